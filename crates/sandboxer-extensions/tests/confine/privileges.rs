//! No privilege is left, and none comes back.

use std::fs;

use nix::libc::{self, SYS_ptrace};
use rustix::process::{DumpableBehavior, Pid, Resource, Signal, dumpable_behavior, getppid, getrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sandboxer_extensions::local::confine::privileges::drop_all;
use sandboxer_testkit::skip;

use crate::inside::{become_init, errno, forked, shell};

pub const CASES: &[crate::Case] = &[
    ("no_capability_is_left", no_capability_is_left),
    ("the_root_of_the_host_is_left_none_either", the_root_of_the_host_is_left_none_either),
    ("no_program_gets_one_back", no_program_gets_one_back),
    ("init_cannot_be_looked_into", init_cannot_be_looked_into),
    ("nobody_dumps_core", nobody_dumps_core),
    ("the_parent_s_death_still_ends_it", the_parent_s_death_still_ends_it),
    ("what_cannot_be_given_up_is_an_error", what_cannot_be_given_up_is_an_error),
];

const NONE: &str = "0000000000000000";

/// The values of the lines that tell of privileges.
fn sets(status: &str) -> Vec<&str> {
    let lines = status.lines().filter(|line| line.starts_with("Cap"));
    lines.map(|line| line.split_whitespace().nth(1).unwrap()).collect()
}

fn no_capability_is_left() {
    become_init();
    assert_ne!(sets(&fs::read_to_string("/proc/self/status").unwrap()), [NONE; 5]);
    drop_all().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(sets(&status), [NONE; 5]);
    assert!(status.contains("NoNewPrivs:\t1"));
    assert_ne!(errno(libc::SYS_unshare, [libc::CLONE_NEWNS as u64, 0, 0, 0, 0]), 0);
}

fn the_root_of_the_host_is_left_none_either() {
    if !rustix::process::geteuid().is_root() {
        return skip("it is not root that runs this");
    }
    drop_all().unwrap();
    assert_eq!(sets(&fs::read_to_string("/proc/self/status").unwrap()), [NONE; 5]);
    assert_eq!(errno(libc::SYS_setuid, [1, 0, 0, 0, 0]), libc::EPERM);
}

/// User 0 gets every capability at `execve`, unless the secure bits, the bounding set or `no_new_privs` forbid it.
fn no_program_gets_one_back() {
    become_init();
    drop_all().unwrap();
    assert_eq!(sets(&shell("cat /proc/self/status")), [NONE; 5]);
    // Locked, and all that they do: see capabilities(7).
    const LOCKED: i32 = 0b1110_1111;
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_SECUREBITS) }, LOCKED);
}

fn init_cannot_be_looked_into() {
    become_init();
    drop_all().unwrap();
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    let status = forked(|| {
        let init = getppid().unwrap();
        let of_init = |name: &str| format!("/proc/{init}/{name}");
        // To root the list of its descriptors is there, since it is root's, but not what they are.
        let seen = ["mem", "environ"].iter().any(|name| fs::read(of_init(name)).is_ok())
            || ["fd/0", "cwd", "exe"].iter().any(|name| fs::read_link(of_init(name)).is_ok());
        let attached =
            errno(SYS_ptrace, [libc::PTRACE_ATTACH.into(), Pid::as_raw(Some(init)) as u64, 0, 0, 0]) == 0;
        i32::from(seen || attached)
    });
    assert_eq!(status, 0);
}

fn nobody_dumps_core() {
    become_init();
    drop_all().unwrap();
    let limit = getrlimit(Resource::Core);
    assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
    assert_eq!(shell("ulimit -Hc"), "0");
    // Unlike SIGQUIT, nobody who starts tests in the background has it ignored.
    let status = forked(|| errno(libc::SYS_kill, [std::process::id().into(), libc::SIGABRT as u64, 0, 0, 0]));
    assert!(libc::WIFSIGNALED(status) && !libc::WCOREDUMP(status), "{status:x}");
}

/// The kernel forgets the signal for whoever gains something by a change of credentials. This one only loses.
fn the_parent_s_death_still_ends_it() {
    become_init();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    drop_all().unwrap();
    assert_eq!(rustix::process::parent_process_death_signal().unwrap(), Some(Signal::KILL));
}

fn what_cannot_be_given_up_is_an_error() {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
    let step = drop_all().unwrap_err();
    assert_eq!(step.step, "empty the bounding set");
    assert!(step.to_string().contains("CAP_SETPCAP"), "{step}");
}
