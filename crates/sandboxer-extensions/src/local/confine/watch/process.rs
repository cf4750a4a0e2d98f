//! What a stopped process is about to do: its memory, its directories.

use std::ffi::OsString;
use std::fs;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use nix::libc::{AT_FDCWD, PATH_MAX};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::calls::{self, Flags, Intent, Watched};
use super::notify::Notification;

/// No page is smaller, and what begins in a page may end before the next, which need not be there.
const PAGE: usize = 4096;

/// A path that is to be written, as the process said it.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Where it starts from, if it is relative.
    pub(super) base: Option<PathBuf>,
    pub(super) path: PathBuf,
    pub(super) intent: Intent,
}

/// Everything that has to be asked before the process goes on: afterwards it may be gone.
pub(super) fn attempts(notification: &Notification) -> Vec<Attempt> {
    let Some(watched) = calls::find(notification.call) else { return Vec::new() };
    let process = Process { notification };
    let Some(intents) = process.intents(watched) else { return Vec::new() };
    let named = watched.paths.iter().zip(intents);
    named.filter_map(|((dir, path, _), intent)| process.attempt(*dir, *path, intent)).collect()
}

struct Process<'a> {
    notification: &'a Notification,
}

impl Process<'_> {
    /// What is intended with each path, unless nothing is to be written.
    fn intents(&self, watched: &Watched) -> Option<Vec<Intent>> {
        let flags = match watched.flags {
            Flags::None => return Some(watched.paths.iter().map(|(_, _, intent)| *intent).collect()),
            Flags::In(argument) => self.notification.arguments[argument],
            Flags::Behind(argument) => self.word(self.notification.arguments[argument])?,
        };
        calls::intent(flags).map(|intent| vec![intent])
    }

    fn attempt(&self, dir: Option<usize>, path: usize, intent: Intent) -> Option<Attempt> {
        let path = self.path(self.notification.arguments[path])?;
        let base = if path.is_absolute() { None } else { Some(self.base(dir)?) };
        Some(Attempt { base, path, intent })
    }

    /// The directory that relative paths start from.
    fn base(&self, dir: Option<usize>) -> Option<PathBuf> {
        let thread = self.notification.thread;
        // A descriptor is an `int`.
        let fd = dir.map_or(AT_FDCWD, |argument| self.notification.arguments[argument] as i32);
        let link = match fd {
            AT_FDCWD => format!("/proc/{thread}/cwd"),
            fd => format!("/proc/{thread}/fd/{fd}"),
        };
        // What is no file has a link that is no path.
        fs::read_link(link).ok().filter(|base| base.is_absolute())
    }

    /// A path in memory. None if it cannot be read, has no end where it may be longest, or is empty.
    fn path(&self, address: u64) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        while bytes.len() < PATH_MAX as usize {
            let from = (address as usize).checked_add(bytes.len())?;
            let mut rest = [0; PAGE];
            let rest = &mut rest[..PAGE - from % PAGE];
            self.read(from, rest)?;
            let end = rest.iter().position(|byte| *byte == 0);
            bytes.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if end.is_some() {
                return (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into());
            }
        }
        None
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address as usize, &mut word)?;
        Some(u64::from_ne_bytes(word))
    }

    fn read(&self, base: usize, into: &mut [u8]) -> Option<()> {
        let thread = Pid::from_raw(self.notification.thread as i32);
        let remote = [RemoteIoVec { base, len: into.len() }];
        let len = into.len();
        let read = process_vm_readv(thread, &mut [IoSliceMut::new(into)], &remote).ok()?;
        (read == len).then_some(())
    }
}
