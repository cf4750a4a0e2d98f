//! One server for a state directory.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

/// How often a server that stands by looks.
const LOOK: Duration = Duration::from_millis(100);

/// Held by the one server of a state directory, until it ends, however it ends.
pub struct ServeLock {
    _file: File,
}

impl ServeLock {
    /// Takes it, or says who has it.
    pub fn take(home: &Path) -> Result<Self> {
        let (mut file, path) = open(home)?;
        match file.try_lock() {
            Ok(()) => Self::signed(file, &path),
            Err(TryLockError::WouldBlock) => Err(taken(&mut file, home)),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path, error)),
        }
    }

    /// Waits until it is free.
    pub fn wait(home: &Path, cancel: &CancelFlag) -> Result<Self> {
        let (file, path) = open(home)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Self::signed(file, &path),
                Err(TryLockError::WouldBlock) => cancel.check()?,
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", path, error)),
            }
            std::thread::sleep(LOOK);
        }
    }

    fn signed(mut file: File, path: &Path) -> Result<Self> {
        let sign = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            write!(file, "{}", std::process::id())
        };
        sign(&mut file).map_err(|error| Error::io("write", path, error))?;
        Ok(Self { _file: file })
    }
}

fn open(home: &Path) -> Result<(File, PathBuf)> {
    let path = home.join("serve.lock");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.map_err(|error| Error::io("create directory", home, error))?;
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    file.map(|file| (file, path.clone())).map_err(|error| Error::io("open", path, error))
}

fn taken(file: &mut File, home: &Path) -> Error {
    let mut pid = String::new();
    let _ = file.read_to_string(&mut pid);
    let by = pid.trim().parse::<u32>().map(|pid| format!(" (process {pid})")).unwrap_or_default();
    Error::Refused {
        reason: format!("a server is at work on {} already{by}", home.display()),
        hint: Some("`sandbox serve --standby` waits and takes over when it ends".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn there_is_one_and_the_next_one_waits() {
        let home = tempfile::tempdir().unwrap();
        let first = ServeLock::take(home.path()).unwrap();
        let refusal = ServeLock::take(home.path()).err().unwrap().to_string();
        assert!(refusal.contains(&format!("(process {})", std::process::id())), "{refusal}");
        let place = home.path().to_path_buf();
        let second = std::thread::spawn(move || ServeLock::wait(&place, &CancelFlag::default()).is_ok());
        std::thread::sleep(LOOK * 2);
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap());
    }
}
