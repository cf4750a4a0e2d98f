//! Strict isolation, and commands that join later: what `exec` starts is held by the same things as what `run` did.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::common::Ran;
use crate::common::contained::{
    self, CANARY, SECRET, attempting, attempts, attempts_of, everybody, sandbox, works,
};

const STRICT: [&str; 2] = ["--isolation", "strict"];

#[test]
fn strict_refuses_what_few_programs_need() {
    for user in everybody() {
        let code = "
child = os.fork()
if child == 0:
    signal.pause()
attempt('attach', lambda: call('ptrace', 16, child, 0, 0))
attempt('traceme', lambda: call('ptrace', 0, 0, 0, 0))
os.kill(child, 9)
attempt('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
attempt('userfaultfd', lambda: call('userfaultfd', 1))
attempt('mount', lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, None))";
        attempts(&user, &STRICT, code).refused(5, &["EPERM"]);
    }
}

#[test]
fn strict_shows_nothing_of_home_and_of_the_machine() {
    for user in everybody() {
        let seen = works(&user, &STRICT, "ls -A ~; ls -A /sys; cat hello.txt; echo x > ~/made && cat ~/made");
        assert_eq!(seen, "hello\nworld\nx\n");
        let ran = contained::shell(
            &user,
            &STRICT,
            &format!("grep -rs -e {SECRET} -e {CANARY} {}; true", user.world.path("").display()),
        );
        assert_eq!(ran.stdout, "", "{}", ran.stderr);
    }
}

#[test]
fn what_joins_is_held_like_what_was_there() {
    for user in everybody() {
        user.ok(&["create", "--name", "joined"]);
        let code = "
attempt('mount', lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, None))
attempt('setns', lambda: call('setns', os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))
attempt('root', lambda: os.listdir('/proc/1/root'))
attempt('etc', lambda: write('/etc/canary'))
attempt('secret', lambda: text(os.environ['HOME'] + '/.ssh/id_ed25519'))
attempt('beside', lambda: text('../beside/file'))
attempt('host', lambda: socket.create_connection(('192.0.2.1', 80), timeout=2))
attempt('variable', lambda: os.environ['MY_TOKEN'] if 'MY_TOKEN' in os.environ else text('/no'))
attempt('privilege', lambda: 0 if [l for l in open('/proc/self/status') if l.startswith('Cap') and int(l.split()[1], 16)] else text('/no'))";
        let words = attempting(&[], code);
        let mut command = sandbox(&user, &[&["exec", "joined"], &words[2..]].concat());
        command.env("MY_TOKEN", SECRET);
        attempts_of(command).refused(9, &["EPERM", "EACCES", "EROFS", "ENOENT", "ENETUNREACH"]);
    }
}

#[test]
fn what_runs_side_by_side_is_the_same_place() {
    for user in everybody() {
        let mut first = user.sandbox();
        first.args([
            "run",
            "--keep",
            "--name",
            "side",
            "--",
            "sh",
            "-c",
            "echo mine > /tmp/shared; echo home > ~/shared; echo ready; read line",
        ]);
        let mut first =
            first.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let second = Ran::of(
            sandbox(
                &user,
                &["exec", "side", "--", "sh", "-c", "cat /tmp/shared ~/shared; kill -0 2 && echo seen"],
            )
            .output()
            .unwrap(),
        );
        drop(first.stdin.take());
        first.wait().unwrap();
        assert_eq!(second.stdout, "mine\nhome\nseen\n", "{}", second.stderr);
    }
}

#[test]
fn a_device_that_is_a_stream_stays_as_it_is() {
    for user in everybody() {
        let before = fs::metadata("/dev/null").unwrap().permissions();
        let mut command = sandbox(
            &user,
            &["run", "--discard", "--", contained::PYTHON, "-c", "import os\nos.fchmod(0, 0o600)"],
        );
        command.stdin(Stdio::null());
        let _ = command.output().unwrap();
        let after = fs::metadata("/dev/null").unwrap().permissions();
        if after != before {
            fs::set_permissions("/dev/null", before.clone()).unwrap();
        }
        assert_eq!(before.mode(), after.mode(), "the host's null device was changed");
    }
}
