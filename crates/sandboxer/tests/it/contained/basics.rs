//! What has to work for a contained command, unmodified: builds, tools, and everything that programs take for granted.

use std::path::PathBuf;
use std::process::Command;

use crate::common;
use crate::common::contained::{PYTHON, everybody, outside, sandbox, works};
use crate::common::user::User;

/// Runs a script in a sandbox of the project that is kept as `name`.
fn kept(user: &User, name: &str, script: &str) -> String {
    let words = ["run", "--keep", "--name", name, "--", "sh", "-c", script];
    let ran = common::Ran::of(sandbox(user, &words).output().unwrap());
    assert_eq!(ran.code, 0, "{script}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Whether the user has this program; says so where not.
fn has(user: &User, program: &str) -> bool {
    let found = user.command("sh").args(["-c", &format!("{program} --version")]).output();
    let has = found.is_ok_and(|ran| ran.status.success());
    if !has {
        sandboxer_testkit::skip(&format!("{program} is not there for this user"));
    }
    has
}

/// The directory of the toolchain's own programs, without the proxies in somebody's home directory.
fn toolchain() -> Option<PathBuf> {
    let ran = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let path = String::from_utf8(ran.stdout).ok()?;
    ran.status.success().then(|| PathBuf::from(path.trim_end()).join("bin"))
}

const CRATE: &str = r#"
mkdir -p src vendor/dep/src .cargo
printf '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndep = "1"\n' > Cargo.toml
printf 'fn main() { println!("{}", dep::answer()); }\n#[test]\nfn it_works() { assert_eq!(dep::answer(), 42); }\n' > src/main.rs
printf '[package]\nname = "dep"\nversion = "1.0.0"\nedition = "2021"\n' > vendor/dep/Cargo.toml
printf 'pub fn answer() -> u32 { 42 }\n' > vendor/dep/src/lib.rs
printf '{"files":{},"package":null}' > vendor/dep/.cargo-checksum.json
printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "vendor"\n' > .cargo/config.toml
"#;

#[test]
fn a_crate_is_built_and_tested_offline() {
    let Some(toolchain) = toolchain() else { return sandboxer_testkit::skip("there is no rustc") };
    for user in everybody() {
        if !has(&user, &toolchain.join("cargo").display().to_string()) {
            continue;
        }
        outside(&user, CRATE);
        let script = format!(
            "PATH={}:$PATH; cargo build --offline -q && ./target/debug/app && cargo test --offline -q",
            toolchain.display()
        );
        let printed = kept(&user, "built", &script);
        assert!(printed.starts_with("42\n") && printed.contains("1 passed"), "{printed}");
        assert!(!user.world.path("project/target").exists());
        let changes = user.diff("built");
        assert!(changes.iter().any(|line| line.starts_with("A Cargo.lock")), "{changes:?}");
    }
}

#[test]
fn a_checkout_is_worked_in_with_git() {
    for user in everybody() {
        let identity = "git config user.name me && git config user.email me@example.com";
        outside(&user, &format!("git init -q -b main . && {identity} && git add . && git commit -qm first"));
        let head = outside(&user, "git rev-parse HEAD");
        let script = "git status --porcelain && echo more >> hello.txt && git status --porcelain && git commit -qam second && \
                      git log --format=%s && git checkout -q -b side && git stash list && git gc -q && git fsck --strict 2>/dev/null";
        let printed = kept(&user, "git", script);
        assert_eq!(printed, " M hello.txt\nsecond\nfirst\n");
        assert_eq!(outside(&user, "git rev-parse HEAD"), head, "the original has the new commit");
        assert_eq!(outside(&user, "git status --porcelain"), "");
        user.ok(&["commit", "git"]);
        assert_eq!(user.world.text("project/hello.txt"), "hello\nworld\nmore\n");
    }
}

#[test]
fn make_and_a_compiler_work() {
    for user in everybody() {
        if !has(&user, "make") || !has(&user, "cc") {
            continue;
        }
        outside(
            &user,
            "printf 'app: app.c\\n\\tcc -o app app.c -lpthread\\n' > Makefile; \
            printf '#include <stdio.h>\\nint main(){puts(\"made\");return 0;}\\n' > app.c",
        );
        assert!(works(&user, &[], "make -s -j4 && ./app").ends_with("made\n"));
    }
}

#[test]
fn node_and_npm_work() {
    for user in everybody() {
        if !has(&user, "node") || !has(&user, "npm") {
            continue;
        }
        outside(
            &user,
            r#"printf '{"name":"x","version":"1.0.0","scripts":{"hi":"node -e \\"console.log(6*7)\\""}}' > package.json"#,
        );
        let printed = works(&user, &[], "npm run --silent hi");
        assert_eq!(printed, "42\n");
    }
}

#[test]
fn python_tests_run() {
    for user in everybody() {
        outside(
            &user,
            "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_it(self): self.assertEqual(1, 1)\\n' > test_it.py",
        );
        let printed = works(&user, &[], &format!("{PYTHON} -m unittest -v 2>&1"));
        assert!(printed.contains("OK"), "{printed}");
        if has(&user, &format!("{PYTHON} -m pytest")) {
            assert!(works(&user, &[], &format!("{PYTHON} -m pytest -q")).contains("1 passed"));
        }
    }
}

/// Python inside, which has to succeed.
fn python(user: &User, code: &str) -> String {
    let words = ["run", "--discard", "--", PYTHON, "-c", code];
    let ran = common::Ran::of(sandbox(user, &words).output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

#[test]
fn shells_pipe_and_signal() {
    for user in everybody() {
        let script = "seq 1000 | sort -rn | head -1; trap 'echo caught' USR1; kill -USR1 $$; (sleep 60 & echo $! > /tmp/pid; wait) & \
                      while ! test -s /tmp/pid; do :; done; kill $(cat /tmp/pid); wait; echo $(mktemp) | cut -c1-9; f=$(mktemp -d) && rmdir $f; \
                      diff <(echo a) <(echo a) && cat <<< done; [[ -t 0 ]] || echo plain";
        let words = ["run", "--discard", "--", "bash", "-c", script];
        let ran = common::Ran::of(sandbox(&user, &words).output().unwrap());
        assert_eq!(ran.stdout, "1000\ncaught\n/tmp/tmp.\ndone\nplain\n", "{}", ran.stderr);
    }
}

#[test]
fn bytes_pass_through_pipes_as_they_are() {
    for user in everybody() {
        outside(&user, "head -c 3000000 /dev/urandom > data");
        let whole = user
            .command("sh")
            .args([
                "-c",
                &format!(
                    "cat data | timeout 60 {} run --discard -- cat | sha256sum; sha256sum < data",
                    user.binary().display()
                ),
            ])
            .output()
            .unwrap();
        let printed = String::from_utf8(whole.stdout).unwrap();
        let sums: Vec<&str> = printed.lines().collect();
        assert_eq!(sums[0], sums[1]);
    }
}

#[test]
fn threads_sockets_and_watches_work() {
    for user in everybody() {
        let printed = python(&user, "
import ctypes, mmap, multiprocessing, os, socket, sqlite3, struct, tempfile, threading
server = socket.create_server(('127.0.0.1', 0))
def serve():
    peer, _ = server.accept(); peer.sendall(peer.recv(10).upper()); peer.close()
thread = threading.Thread(target=serve); thread.start()
client = socket.create_connection(server.getsockname()); client.sendall(b'hi'); print(client.recv(10)); thread.join()
own = socket.socket(socket.AF_UNIX); own.bind('/tmp/own'); own.listen()
peer = socket.socket(socket.AF_UNIX); peer.connect('/tmp/own'); print('unix')
here = socket.socket(socket.AF_UNIX); here.bind('own.sock'); here.listen()
peer = socket.socket(socket.AF_UNIX); peer.connect('own.sock'); print('unix here')
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0mine'); abstract.listen()
peer = socket.socket(socket.AF_UNIX); peer.connect('\\0mine'); print('abstract')
db = sqlite3.connect('db.sqlite'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)'); db.execute('insert into t values (1)'); db.commit()
print(sqlite3.connect('db.sqlite').execute('select count(*) from t').fetchone())
with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, range(-10, 0))))
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(0); libc.inotify_add_watch(watch, b'.', 0x100)
open('watched', 'w').close(); print(os.read(watch, 4096)[16:23])
shared = mmap.mmap(-1, 4096); print('shared')
os.mkfifo('pipe'); print('fifo')
import fcntl
lock = open('locked', 'w'); fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')
os.memfd_create('x'); os.eventfd(0); print('descriptors')
");
        let expected =
            "b'HI'\nunix\nunix here\nabstract\n(1,)\n55\nb'watched'\nshared\nfifo\nlocked\ndescriptors\n";
        assert_eq!(printed, expected);
    }
}

#[test]
fn a_debugger_may_trace_what_it_starts() {
    for user in everybody() {
        if !has(&user, "strace") {
            continue;
        }
        let printed = works(
            &user,
            &[],
            "strace -f -o /tmp/trace sh -c 'exit 3'; echo $?; grep -c exit_group /tmp/trace",
        );
        assert_eq!(printed, "3\n1\n");
    }
}

#[test]
fn the_surroundings_are_the_usual() {
    for user in everybody() {
        assert_eq!(works(&user, &[], "pwd"), format!("{}\n", user.world.project().display()));
        assert_eq!(works(&user, &[], "id -u"), outside(&user, "id -u"));
        assert_eq!(works(&user, &[], "cd src; ls; umask"), "main.rs\n0022\n");
        assert_eq!(works(&user, &[], "LC_ALL=C.UTF-8 locale charmap"), "UTF-8\n");
        assert_eq!(works(&user, &[], "getent hosts localhost | wc -l; ls /proc/self/fd/ | wc -l"), "1\n4\n");
        let script = "df . >/dev/null && ps -e >/dev/null && uptime >/dev/null && nproc >/dev/null && who >/dev/null; date +%Y | wc -c";
        assert_eq!(works(&user, &[], script), "5\n");
    }
}

#[test]
fn many_files_at_home_are_no_trouble() {
    for user in everybody() {
        let printed = python(
            &user,
            "
import os
home = os.environ['HOME'] + '/many'
os.mkdir(home)
for i in range(20000): os.close(os.open(f'{home}/{i}', os.O_CREAT | os.O_WRONLY))
print(len(os.listdir(home)))",
        );
        assert_eq!(printed, "20000\n");
        assert!(!user.world.path("user/many").exists());
    }
}
