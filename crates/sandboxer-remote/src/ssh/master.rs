//! The process that keeps the connection.
//!
//! Whoever finds none starts one, one at a time: `ssh` that finds the socket taken in the last moment would stay as an ordinary connection for
//! ever. A socket that nobody answers at is what a crash left, and removed.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

use super::options::{Options, command};
use super::trouble;
use crate::address::Address;
use crate::process::{COMPLAINTS, Group};

/// How long a master may take to say that it is there.
const CHECK: Duration = Duration::from_secs(5);
/// Key exchange and login come after the connection that `ConnectTimeout` is about, and a jump host has its own.
const HANDSHAKES: u32 = 4;

/// Makes sure that there is one.
pub(super) fn ensure(address: &Address, options: &Options) -> Result<()> {
    if answers(address, options) {
        return Ok(());
    }
    let deadline = options.connect_timeout * HANDSHAKES + CHECK;
    let _one_at_a_time = lock(options, deadline + CHECK)?;
    if answers(address, options) {
        return Ok(());
    }
    let _ = std::fs::remove_file(options.socket());
    start(address, options, deadline)
}

/// Ends it, if it is there. It says yes before it goes: whoever connects next must not find what is left of it.
pub(super) fn end(address: &Address, options: &Options) {
    if !options.has_socket() || !order(address, options, "exit") {
        return;
    }
    let until = Instant::now() + CHECK;
    while options.has_socket() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn answers(address: &Address, options: &Options) -> bool {
    options.has_socket() && order(address, options, "check")
}

/// A word to the master. One that hangs is one that does not answer.
fn order(address: &Address, options: &Options, word: &str) -> bool {
    let mut order = with_destination(options.of_order(word), address);
    order.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = Group::spawn(&mut order).map(|mut group| group.wait(Some(CHECK), None));
    matches!(ended, Ok(Ok(Some(status))) if status.success())
}

fn with_destination(mut line: Vec<std::ffi::OsString>, address: &Address) -> Command {
    line.extend(["--".into(), address.destination().into()]);
    command(&line)
}

/// Its complaints go to a file in memory: a pipe would be held open for as long as it lives.
fn start(address: &Address, options: &Options, deadline: Duration) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("start", "ssh", e);
    let complaints = memfd_create("ssh", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let stderr: OwnedFd = complaints.try_clone().map_err(failed)?;
    let mut master = with_destination(options.of_master(), address);
    master.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).current_dir("/");
    let ended = Group::spawn(&mut master)?.wait(Some(deadline), None).map_err(failed)?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(trouble::unreachable(address, &said(complaints).map_err(failed)?)),
        None => Err(trouble::too_late(address, deadline.as_secs())),
    }
}

fn said(complaints: OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut file = File::from(complaints);
    file.rewind()?;
    let mut said = Vec::new();
    file.take(COMPLAINTS as u64).read_to_end(&mut said)?;
    Ok(said)
}

fn lock(options: &Options, wait: Duration) -> Result<File> {
    let path = lock_path(options);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    let until = Instant::now() + wait;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5))
            }
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy { path, holder: None }),
            Err(e) => return Err(Error::io("lock", &path, e)),
        }
    }
}

fn lock_path(options: &Options) -> PathBuf {
    options.socket().with_extension("lock")
}
