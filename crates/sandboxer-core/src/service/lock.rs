//! One writer at a time in each sandbox, across processes: an exclusive `flock` on `sandboxes/<id>/lock`.
//!
//! The kernel lets go of it when its holder dies, so a lock that is free means that nobody is at work, whatever the
//! store says; recovery stands on that. A sandbox that is destroyed takes its lock file along, so whoever waited for it
//! looks again whether the file that was locked is still the one at that path.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::contract::CancelFlag;
use crate::store::make_private_dir;
use crate::{Error, Result};

const POLL: Duration = Duration::from_millis(10);

/// Held while a command runs in a sandbox: neither its time nor anybody else ends the sandbox meanwhile. Any number may be
/// held at once.
///
/// A shared `flock` on `sandboxes/<id>/in-use`. The file is closed on exec, so what the command leaves running in the
/// background does not keep the sandbox for good.
#[must_use]
#[derive(Debug)]
pub struct InUse {
    _file: File,
}

impl InUse {
    /// Begins to use the sandbox in `directory`. The caller holds its lock, so nobody is looking whether it is in use.
    pub(super) fn begin(directory: &Path, _held: &SandboxLock) -> Result<Self> {
        let path = in_use_file(directory);
        let file = open(directory, &path)?;
        file.lock_shared().map_err(|error| Error::io("lock", &path, error))?;
        sign(&file);
        Ok(Self { _file: file })
    }

    /// Refuses where somebody uses the sandbox in `directory`. The caller holds its lock, so nobody begins to. Makes nothing.
    pub(super) fn check_none(directory: &Path, _held: &SandboxLock) -> Result<()> {
        let path = in_use_file(directory);
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        if !opened.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock))) {
            return Ok(());
        }
        let pid = holder(&path).map(|pid| format!(", {pid}")).unwrap_or_default();
        let holder = Some(format!("a command is running in it{pid}"));
        Err(Error::Busy { path: directory.to_path_buf(), holder })
    }
}

/// Held while a sandbox is being changed.
#[must_use]
#[derive(Debug)]
pub(super) struct SandboxLock {
    _file: File,
}

impl SandboxLock {
    /// Takes the lock in `directory` (made where it is missing), waiting up to `wait` for its holder.
    pub fn acquire(directory: &Path, wait: Duration, cancel: &CancelFlag) -> Result<Self> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(lock) = Self::try_acquire(directory)? {
                return Ok(lock);
            }
            cancel.check()?;
            if Instant::now() >= deadline {
                return Err(Error::Busy {
                    path: directory.to_path_buf(),
                    holder: holder(&lock_file(directory)),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Whether somebody holds the lock. Makes nothing.
    pub fn is_held(directory: &Path) -> bool {
        let file = File::open(lock_file(directory));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Takes the lock if nobody holds it.
    pub fn try_acquire(directory: &Path) -> Result<Option<Self>> {
        let path = lock_file(directory);
        loop {
            let file = open(directory, &path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", path, error)),
            }
            if is_still_at(&file, &path) {
                sign(&file);
                return Ok(Some(Self { _file: file }));
            }
        }
    }
}

fn lock_file(directory: &Path) -> PathBuf {
    directory.join("lock")
}

fn in_use_file(directory: &Path) -> PathBuf {
    directory.join("in-use")
}

fn open(directory: &Path, path: &Path) -> Result<File> {
    loop {
        make_private_dir(directory)?;
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        match opened {
            // The directory went away in between, with the sandbox: make it again, the caller looks at the store next.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|error| Error::io("open", path, error)),
        }
    }
}

fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(there)) => identity(held) == identity(there),
        _ => false,
    }
}

/// Leaves our pid for whoever has to wait. A courtesy: nothing depends on it, so failing to is no failure.
fn sign(mut file: &File) {
    let _ = file.set_len(0);
    let _ = file.write_all(std::process::id().to_string().as_bytes());
}

fn holder(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse::<u32>().ok().map(|pid| format!("pid {pid}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn acquire(directory: &Path) -> Result<SandboxLock> {
        SandboxLock::acquire(directory, Duration::from_millis(30), &CancelFlag::default())
    }

    #[test]
    fn a_held_lock_is_refused_with_its_holders_pid_and_free_again_after_drop() {
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path().join("sbx");
        assert!(!SandboxLock::is_held(&directory) && !directory.exists());
        let held = acquire(&directory).unwrap();
        assert!(SandboxLock::is_held(&directory));
        assert!(SandboxLock::try_acquire(&directory).unwrap().is_none());
        let error = acquire(&directory).unwrap_err();
        let pid = format!("pid {}", std::process::id());
        assert!(matches!(&error, Error::Busy { holder: Some(h), .. } if *h == pid), "{error}");
        drop(held);
        assert!(!SandboxLock::is_held(&directory));
        drop(acquire(&directory).unwrap());
    }

    #[test]
    fn a_sandbox_is_in_use_until_the_last_command_in_it_ends() {
        let temp = tempfile::tempdir().unwrap();
        let lock = acquire(temp.path()).unwrap();
        InUse::check_none(temp.path(), &lock).unwrap();
        assert!(!in_use_file(temp.path()).exists(), "looking makes nothing");
        let first = InUse::begin(temp.path(), &lock).unwrap();
        let second = InUse::begin(temp.path(), &lock).unwrap();
        drop(first);
        let error = InUse::check_none(temp.path(), &lock).unwrap_err();
        let expected = format!("a command is running in it, pid {}", std::process::id());
        assert!(matches!(&error, Error::Busy { holder: Some(h), .. } if *h == expected), "{error}");
        drop(second);
        InUse::check_none(temp.path(), &lock).unwrap();
    }

    #[test]
    fn waiting_ends_when_the_user_asks_to_stop() {
        let temp = tempfile::tempdir().unwrap();
        let _held = acquire(temp.path()).unwrap();
        let cancel = CancelFlag::default();
        cancel.cancel();
        let error = SandboxLock::acquire(temp.path(), Duration::from_secs(60), &cancel).unwrap_err();
        assert!(matches!(error, Error::Cancelled));
    }

    #[test]
    fn a_lock_whose_file_was_removed_meanwhile_does_not_count() {
        let temp = tempfile::tempdir().unwrap();
        let path = lock_file(temp.path());
        let stale = open(temp.path(), &path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!is_still_at(&stale, &path));
        let lock = SandboxLock::try_acquire(temp.path()).unwrap();
        assert!(lock.is_some());
        assert!(!is_still_at(&stale, &path));
    }

    #[test]
    fn a_place_that_cannot_be_locked_is_named() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(lock_file(temp.path())).unwrap();
        let error = acquire(temp.path()).unwrap_err();
        assert!(
            matches!(&error, Error::Io { step: "open", path, .. } if *path == lock_file(temp.path())),
            "{error}"
        );
    }
}
