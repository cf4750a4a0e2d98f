//! Commands in a runtime, as a test wants them: somebody with secrets at home, and attempts whose outcome can be compared.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::common::Ran;
use crate::common::user::{User, overlay_users};

/// What a secret holds. It is looked for in everything that a command could read or print.
pub const SECRET: &str = "canary-5d1c7a-secret";

/// What lies outside and is to stay as it is.
pub const CANARY: &str = "canary-93be02-untouched";

/// Credentials that everybody hides, relative to the home directory.
pub const CREDENTIALS: [&str; 6] = [
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".npmrc",
    ".config/gh/hosts.yml",
    ".gnupg/private-keys-v1.d/key",
    ".cargo/credentials.toml",
];

/// Where the system's own interpreter is: others may be in somebody's home directory.
pub const PYTHON: &str = "/usr/bin/python3";

/// Only a test that fails gets there.
const PATIENCE: &str = "60";

/// What every attempt begins with: `attempt(name, action)` prints `name: done RESULT` or `name: ERRNO`, and `call(name, …)` is a
/// system call by its name.
const PRELUDE: &str = r#"
import ctypes, errno, os, platform, signal, socket, struct, sys
def attempt(name, action):
    try:
        result = action()
        print(f'{name}: done {result!r}', flush=True)
    except OSError as e:
        print(f'{name}: {errno.errorcode.get(e.errno, e.errno)}', flush=True)
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    'x86_64': dict(mount=165, umount2=166, pivot_root=155, chroot=161, setns=308, unshare=272, ptrace=101, keyctl=250, add_key=248,
        request_key=249, bpf=321, perf_event_open=298, userfaultfd=323, io_uring_setup=425, open_by_handle_at=304, init_module=175,
        kexec_load=246, reboot=169, sethostname=170, settimeofday=164, swapon=167, syslog=103, process_vm_readv=310, pidfd_open=434,
        pidfd_getfd=438, fsopen=430, open_tree=428, move_mount=429, mount_setattr=442, mknodat=259, clone3=435, personality=135,
        kcmp=312, acct=163, quotactl=179, clock_settime=227, setuid=105, iopl=172, renameat2=316),
    'aarch64': dict(mount=40, umount2=39, pivot_root=41, chroot=51, setns=268, unshare=97, ptrace=117, keyctl=219, add_key=217,
        request_key=218, bpf=280, perf_event_open=241, userfaultfd=282, io_uring_setup=425, open_by_handle_at=265, init_module=105,
        kexec_load=104, reboot=142, sethostname=161, settimeofday=170, swapon=224, syslog=116, process_vm_readv=270, pidfd_open=434,
        pidfd_getfd=438, fsopen=430, open_tree=428, move_mount=429, mount_setattr=442, mknodat=33, clone3=435, personality=92,
        kcmp=272, acct=89, quotactl=60, clock_settime=112, setuid=146, renameat2=276),
}[platform.machine()]
def call(name, *arguments):
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(NUMBERS[name]), *plain)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result
def text(path):
    with open(path) as file: return file.read()
def write(path, content='owned'):
    with open(path, 'w') as file: file.write(content)
"#;

/// Everybody who can be contained here, each with secrets at home, something next to the project, and this project.
pub fn everybody() -> Vec<User> {
    let users = overlay_users();
    users.iter().for_each(furnish);
    users
}

fn furnish(user: &User) {
    let mut script = String::from("umask 022; cd ~;");
    for place in CREDENTIALS {
        script += &format!("mkdir -p $(dirname {place}); echo {SECRET} > {place};");
    }
    script += &format!("mkdir -p ../beside; echo {CANARY} > ../beside/file; echo {CANARY} > notes");
    outside(user, &script);
}

/// A script as the user on the host.
pub fn outside(user: &User, script: &str) -> String {
    let ran = Ran::of(user.command("sh").args(["-c", script]).output().unwrap());
    assert_eq!(ran.code, 0, "{script}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// The command `sandbox`, which ends even where it hangs.
pub fn sandbox(user: &User, arguments: &[&str]) -> Command {
    let mut command = user.command("timeout");
    command.args(["-k", "5", PATIENCE]).arg(user.binary()).args(arguments);
    command
}

/// Runs a shell script in a sandbox that is thrown away.
pub fn shell(user: &User, flags: &[&str], script: &str) -> Ran {
    let words = [&["run", "--discard"], flags, &["--", "sh", "-c", script]].concat();
    Ran::of(sandbox(user, &words).stdin(Stdio::null()).output().unwrap())
}

/// Runs a shell script that has to succeed; gives what it printed.
pub fn works(user: &User, flags: &[&str], script: &str) -> String {
    let ran = shell(user, flags, script);
    assert_eq!(ran.code, 0, "{script}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// What attempts came to, by name.
pub struct Attempts(pub BTreeMap<String, String>);

/// Runs attempts, written in Python, in a sandbox that is thrown away.
pub fn attempts(user: &User, flags: &[&str], code: &str) -> Attempts {
    attempts_of(sandbox(user, &attempting(flags, code)))
}

/// The arguments of `sandbox` for attempts.
pub fn attempting<'a>(flags: &[&'a str], code: &str) -> Vec<&'a str> {
    let program: &'static str = Box::leak(format!("{PRELUDE}{code}").into_boxed_str());
    [&["run", "--discard"], flags, &["--", PYTHON, "-c", program]].concat()
}

/// Runs a command that was made for attempts.
pub fn attempts_of(mut command: Command) -> Attempts {
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "the attempts were not made to the end:\n{}{}", ran.stdout, ran.stderr);
    let outcome = |line: &str| line.split_once(": ").map(|(name, what)| (name.to_owned(), what.to_owned()));
    Attempts(ran.stdout.lines().filter_map(outcome).collect())
}

impl Attempts {
    /// Every one of them failed with one of `errors`, and there were as many as that.
    pub fn refused(&self, count: usize, errors: &[&str]) {
        assert_eq!(self.0.len(), count, "{:?}", self.0);
        for (name, outcome) in &self.0 {
            assert!(errors.contains(&outcome.as_str()), "{name}: {outcome}, of {:?}", self.0);
        }
    }

    /// This one came to that.
    pub fn came_to(&self, name: &str, outcome: &str) {
        assert_eq!(self.0.get(name).map(String::as_str), Some(outcome), "{name} of {:?}", self.0);
    }
}
