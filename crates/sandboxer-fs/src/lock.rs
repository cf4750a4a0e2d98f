//! The lock on a resource, which other state directories and other users meet too.
//!
//! A commit takes its resource's root exclusively and every directory above it shared. So commits to `/repo` and to
//! `/repo/sub` exclude each other, and commits to `/repo/a` and `/repo/b` do not.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

const POLL: Duration = Duration::from_millis(5);

/// Held until it is dropped, or its process ends however it ends.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct ResourceLock {
    _held: Vec<OwnedFd>,
}

impl ResourceLock {
    /// Locks the directory `root`, waiting up to `wait`.
    pub fn acquire(root: &Path, wait: Duration, cancel: &CancelFlag) -> Result<Self> {
        let deadline = Instant::now() + wait;
        let mut held = Vec::new();
        let above: Vec<_> = root.ancestors().skip(1).collect();
        for dir in above.into_iter().rev().filter(|d| !d.as_os_str().is_empty()) {
            match open_dir(dir) {
                Ok(fd) => held.push(lock(fd, dir, FlockOperation::NonBlockingLockShared, deadline, cancel)?),
                // Whoever may not read a directory cannot make a sandbox of it either.
                Err(Errno::ACCESS) => {}
                Err(e) => return Err(Error::io("open directory", dir, e)),
            }
        }
        let fd = open_dir(root).map_err(|e| Error::io("open directory", root, e))?;
        held.push(lock(fd, root, FlockOperation::NonBlockingLockExclusive, deadline, cancel)?);
        Ok(Self { _held: held })
    }
}

fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn lock(fd: OwnedFd, path: &Path, how: FlockOperation, deadline: Instant, cancel: &CancelFlag) -> Result<OwnedFd> {
    loop {
        match fs::flock(&fd, how) {
            Ok(()) => return Ok(fd),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                cancel.check()?;
                std::thread::sleep(POLL);
            }
            Err(Errno::WOULDBLOCK) => {
                let holder = Some("a commit to it, or to a directory above or below it".to_owned());
                return Err(Error::Busy { path: path.to_path_buf(), holder });
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("lock", path, e)),
        }
    }
}

/// Takes an exclusive lock on an open file if it is free.
pub fn try_exclusive(file: &File) -> bool {
    fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn take(path: &Path) -> Result<ResourceLock> {
        ResourceLock::acquire(path, Duration::from_millis(20), &CancelFlag::default())
    }

    #[test]
    fn nested_roots_exclude_each_other_and_neighbours_do_not() {
        let temp = tempfile::tempdir().unwrap();
        let (repo, sub, other) = (temp.path().join("repo"), temp.path().join("repo/sub"), temp.path().join("other"));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::create_dir(&other).unwrap();
        let held = take(&sub).unwrap();
        assert!(matches!(take(&repo), Err(Error::Busy { .. })));
        assert!(matches!(take(&sub), Err(Error::Busy { .. })));
        let beside = take(&other).unwrap();
        drop((held, beside));
        let whole = take(&repo).unwrap();
        assert!(matches!(take(&sub), Err(Error::Busy { .. })));
        drop(whole);
        assert!(take(&sub).is_ok());
        assert!(take(&temp.path().join("missing")).is_err());
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let temp = tempfile::tempdir().unwrap();
        let _held = take(temp.path()).unwrap();
        let cancel = CancelFlag::default();
        cancel.cancel();
        let result = ResourceLock::acquire(temp.path(), Duration::from_secs(60), &cancel);
        assert!(matches!(result, Err(Error::Cancelled)));
    }
}
