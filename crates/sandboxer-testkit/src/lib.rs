//! What sandboxer is tested with: a second opinion on trees, one suite for every strategy, and ways to break things.
//!
//! [`manifest`] records a tree with code of its own, so that it can find the file engine's bugs. [`conformance`] is the
//! one suite that every strategy passes; [`fake`] is a strategy stricter than the real ones, to test callers with.
//! [`faults`] runs the real binary under `strace` and kills it or fails its system calls one by one. [`mounts`] makes
//! filesystems of a chosen kind and size for as long as a guard lives. [`users`] runs a test as an ordinary user.
//! [`git`] makes repositories that do not depend on the machine's configuration. [`servers`] starts database servers that are private to a
//! test; [`databases`] is the suite that every strategy for databases passes. [`docker`] starts a daemon for
//! containers; [`host`] is another machine, with an engine, that is reached by ssh; [`sshd`] is only the latter.
#![allow(clippy::unwrap_used, reason = "everything here runs inside tests, where a panic is the report")]

pub mod conformance;
pub mod databases;
pub mod docker;
pub mod fake;
pub mod faults;
pub mod features;
pub mod git;
pub mod host;
pub mod manifest;
pub mod mounts;
mod ports;
mod run;
pub mod servers;
mod skip;
pub mod sshd;
pub mod users;

pub use ports::reserve_port;
pub use run::{once_per_run, run_directory};
pub use skip::{full, skip};

/// A directory for files that are flushed often and need not survive: in memory if there is room, and the directory for
/// temporary files otherwise.
pub fn in_memory() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let is_writable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
    let space = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if is_writable && space > 2 << 30 { memory.to_owned() } else { std::env::temp_dir() }
}
