//! The lock on a resource, which other state directories and other users meet too.
//!
//! A commit takes its resource exclusively (the directory, or the one file) and every directory above it shared. So commits
//! to `/repo` and to `/repo/sub` exclude each other, and commits to `/repo/a` and `/repo/b` do not.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    resource: PathBuf,
}

/// What this process has locked. Its own locks exclude it like those of others, which a workspace in another's directory has to know.
static OURS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether this process holds the lock on the directory or file at `resource`.
pub fn is_ours(resource: &Path) -> bool {
    ours().iter().any(|held| held == resource)
}

fn ours() -> MutexGuard<'static, Vec<PathBuf>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for ResourceLock {
    fn drop(&mut self) {
        let mut ours = ours();
        if let Some(at) = ours.iter().position(|held| *held == self.resource) {
            ours.swap_remove(at);
        }
    }
}

impl ResourceLock {
    /// Locks the directory or file at `resource`, waiting up to `wait`.
    pub fn acquire(resource: &Path, wait: Duration, cancel: &CancelFlag) -> Result<Self> {
        let deadline = Instant::now() + wait;
        // A file that is gone is locked by its directory.
        let gone = matches!(fs::lstat(resource), Err(Errno::NOENT));
        let resource = resource.parent().filter(|_| gone).unwrap_or(resource);
        let mut held = Vec::new();
        let above: Vec<_> = resource.ancestors().skip(1).collect();
        for dir in above.into_iter().rev().filter(|d| !d.as_os_str().is_empty()) {
            match open(dir) {
                Ok(fd) => held.push(lock(fd, dir, FlockOperation::NonBlockingLockShared, deadline, cancel)?),
                // Whoever may not read a directory cannot make a sandbox of it either.
                Err(Errno::ACCESS) => {}
                Err(e) => return Err(Error::io("open directory", dir, e)),
            }
        }
        held.push(lock_itself(resource, deadline, cancel)?);
        ours().push(resource.to_path_buf());
        Ok(Self { _held: held, resource: resource.to_path_buf() })
    }
}

/// Locks the resource itself. A file may have been replaced by the commit that was waited for: then the lock is on a file
/// that nobody finds any more, and the one that is there now is locked instead.
fn lock_itself(resource: &Path, deadline: Instant, cancel: &CancelFlag) -> Result<OwnedFd> {
    loop {
        let fd = open(resource).map_err(|e| Error::io("open", resource, e))?;
        let fd = lock(fd, resource, FlockOperation::NonBlockingLockExclusive, deadline, cancel)?;
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let now = fs::stat(resource).map(identity);
        let ours = fs::fstat(&fd).map(identity);
        if now.is_err() || now == ours {
            return Ok(fd);
        }
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn lock(
    fd: OwnedFd,
    path: &Path,
    how: FlockOperation,
    deadline: Instant,
    cancel: &CancelFlag,
) -> Result<OwnedFd> {
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
        let (repo, sub, other) =
            (temp.path().join("repo"), temp.path().join("repo/sub"), temp.path().join("other"));
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
        assert!(take(&temp.path().join("missing/below")).is_err());
    }

    #[test]
    fn files_of_one_directory_are_locked_one_by_one() {
        let temp = tempfile::tempdir().unwrap();
        let (one, two) = (temp.path().join("one"), temp.path().join("two"));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&two, "2").unwrap();
        let first = take(&one).unwrap();
        let second = take(&two).unwrap();
        assert!(matches!(take(&one), Err(Error::Busy { .. })));
        assert!(matches!(take(temp.path()), Err(Error::Busy { .. })));
        drop((first, second));
        std::fs::remove_file(&one).unwrap();
        assert!(take(&one).is_ok());
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
