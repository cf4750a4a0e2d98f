//! The state that an init is in when it confines itself, and what cases do there.

use std::fs;
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};

use nix::libc::{self, c_long, pid_t};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};
use sandboxer_extensions::local::Isolation;
use sandboxer_extensions::local::confine::{privileges, seccomp};

/// Takes a user namespace with every capability in it, whoever we are.
pub fn become_init() {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).unwrap();
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
}

/// An init that has the filter and still all its capabilities: what is refused to it the filter refused.
pub fn filtered(isolation: Isolation) {
    become_init();
    seccomp::filter(isolation).unwrap().install().unwrap();
}

/// An init as it starts commands.
pub fn confined(isolation: Isolation) {
    become_init();
    privileges::drop_all().unwrap();
    seccomp::filter(isolation).unwrap().install().unwrap();
}

/// The errno of a raw system call, or 0.
pub fn errno(call: c_long, arguments: [u64; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    // SAFETY: cases pass numbers, null or pointers to what they own, and pointers that lead nowhere where it is to fail.
    let result = unsafe { libc::syscall(call, a, b, c, d, e) };
    if result == -1 { Error::last_os_error().raw_os_error().unwrap() } else { 0 }
}

/// How a forked process that does `what` ends: its wait status.
pub fn forked(what: impl FnOnce() -> i32) -> i32 {
    // SAFETY: cases fork while they have one thread.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", Error::last_os_error()),
        0 => {
            let code = catch_unwind(AssertUnwindSafe(what)).unwrap_or(101);
            // SAFETY: nothing is to be cleaned up in the copy.
            unsafe { libc::_exit(code) }
        }
        child => waited(child),
    }
}

/// The wait status of a child.
pub fn waited(child: pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// A shell script that has to work; what it printed.
pub fn shell(script: &str) -> String {
    let output = try_shell(script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

pub fn try_shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script]).output().unwrap()
}
