//! Checkpoint, rollback and commit while somebody writes inside: they see one moment, and the writer goes on afterwards.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use crate::common::contained::{self, PYTHON, everybody, outside};
use crate::common::user::User;

/// Writes a number into one file and then into the other, each at once. At every moment the first is equal to the second, or one ahead.
const WRITER: &str = "
import os
number = 0
def put(name):
    with open('.' + name, 'w') as file: file.write(str(number))
    try: os.replace('.' + name, name)
    except FileNotFoundError: pass
with open('m-between', 'wb') as file: file.write(os.urandom(8 << 20))
while True:
    number += 1
    put('a-first')
    put('z-second')
    if number == 20: print('going', flush=True)";

/// The writer in a sandbox called `writer`; ended with the guard.
struct Writer(Child);

impl Writer {
    fn start(user: &User) -> Self {
        let mut command = user.sandbox();
        command.args(["run", "--keep", "--name", "writer", "--timeout", "100s", "--", PYTHON, "-c", WRITER]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut going = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut going).unwrap();
        Self(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What two files of a directory hold.
fn pair(dir: &std::path::Path) -> (u64, u64) {
    let number = |name| fs::read_to_string(dir.join(name)).unwrap().parse().unwrap();
    (number("a-first"), number("z-second"))
}

fn is_one_moment((first, second): (u64, u64)) -> bool {
    first == second || first == second + 1
}

/// What the writer has come to, asked inside.
fn progress(user: &User) -> u64 {
    user.ok(&["exec", "writer", "--", "cat", "z-second"]).parse().unwrap()
}

fn goes_on(user: &User) {
    let before = progress(user);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while progress(user) <= before {
        assert!(std::time::Instant::now() < deadline, "the writer stands still");
    }
}

#[test]
fn what_is_committed_is_one_moment() {
    for user in everybody() {
        let writer = Writer::start(&user);
        for _ in 0..4 {
            user.ok(&["commit", "writer", "--accept-flags"]);
            let committed = pair(&user.world.project());
            assert!(is_one_moment(committed), "{committed:?}");
            assert!(progress(&user) >= committed.1);
        }
        goes_on(&user);
        drop(writer);
        assert_eq!(fs::metadata(user.world.path("project/m-between")).unwrap().len(), 8 << 20);
    }
}

#[test]
fn a_checkpoint_is_one_moment() {
    for user in everybody() {
        let writer = Writer::start(&user);
        for name in ["one", "two", "three"] {
            user.ok(&["checkpoint", "writer", name]);
        }
        goes_on(&user);
        drop(writer);
        for name in ["one", "two", "three"] {
            user.ok(&["restore", "writer", name]);
            let number = |file: &str| user.ok(&["read", "writer", file]).parse::<u64>().unwrap();
            let restored = (number("a-first"), number("z-second"));
            assert!(is_one_moment(restored), "{name}: {restored:?}");
        }
    }
}

#[test]
fn a_rollback_goes_back_under_the_writers_feet() {
    for user in everybody() {
        let writer = Writer::start(&user);
        user.ok(&["rollback", "writer"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // It writes its numbers again; what it wrote once, before, is gone.
        while !user.diff("writer").iter().any(|line| line == "A z-second") {
            assert!(std::time::Instant::now() < deadline, "the writer stands still");
        }
        assert!(!user.diff("writer").iter().any(|line| line.contains("m-between")));
        drop(writer);
    }
}

#[test]
fn a_link_that_is_swapped_in_is_not_followed_by_a_commit() {
    for user in everybody() {
        let outside_dir = user.world.path("beside");
        let code = format!(
            "
import os, shutil
os.makedirs('swap/deep', exist_ok=True)
number = 0
while True:
    number += 1
    shutil.rmtree('swap', ignore_errors=True) if not os.path.islink('swap') else os.unlink('swap')
    os.makedirs('swap/deep')
    with open('swap/deep/file', 'w') as file: file.write('owned')
    with open('swap/made', 'w') as file: file.write('owned')
    os.rename('swap', 'gone%d' % (number % 5)) if not os.path.exists('gone%d' % (number % 5)) else shutil.rmtree('swap')
    os.symlink({outside_dir:?}, 'swap')
    if number == 3: print('going', flush=True)"
        );
        let mut command = user.sandbox();
        command.args(["run", "--keep", "--name", "racer", "--timeout", "100s", "--", PYTHON, "-c", &code]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut going = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut going).unwrap();
        let racer = Writer(child);
        for _ in 0..6 {
            user.ok(&["commit", "racer", "--accept-flags"]);
            outside(&user, "test $(ls ../beside | wc -l) = 1");
        }
        drop(racer);
        assert_eq!(fs::read_to_string(outside_dir.join("file")).unwrap().trim(), contained::CANARY);
    }
}

#[test]
fn the_original_may_be_swapped_for_a_link_while_it_is_committed() {
    for user in everybody() {
        user.ok(&["run", "--keep", "--name", "late", "--", "sh", "-c", "mkdir -p src/deep; for i in 1 2 3 4 5 6 7 8; do echo owned > src/deep/file$i; done; echo owned > src/file"]);
        let swap = "i=0; while [ $i -lt 400 ]; do mv src src.away; ln -s ../beside src; rm src; mv src.away src; i=$((i+1)); done";
        let mut racer = user.command("sh").args(["-c", swap]).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..5 {
            user.run(&["commit", "late"]);
        }
        racer.wait().unwrap();
        let beside: Vec<_> = fs::read_dir(user.world.path("beside"))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(beside, ["file"], "something was committed through the link");
        assert_eq!(user.world.text("beside/file").trim(), contained::CANARY);
    }
}
