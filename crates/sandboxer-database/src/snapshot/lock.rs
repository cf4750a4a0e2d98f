//! The lock on a database that a commit holds, which commits of other kinds meet, too.
//!
//! It is the same lock as that of the file strategies: exclusive on the file, shared on every directory above it. But the file
//! is locked through SQLite's own descriptor: closing another would drop every lock that this process has on the database.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode as FileMode, OFlags, flock, open};
use rustix::io::Errno;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};
use sandboxer_fs::lock::is_ours;
use sandboxer_sqlite::{Connection, Mode};

const WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// Held until it is dropped.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub(super) struct DatabaseLock {
    _file: Connection,
    _above: Vec<OwnedFd>,
}

impl DatabaseLock {
    /// Locks `database`. `within` is a directory whose workspace belongs to the same sandbox and leaves the database out: the commit that has it
    /// locked is the one that this is a part of.
    pub fn acquire(database: &Path, within: Option<&Path>, cancel: &CancelFlag) -> Result<Self> {
        let deadline = Instant::now() + WAIT;
        let mut above = Vec::new();
        for dir in database.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()) {
            match open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty()) {
                Ok(descriptor) => {
                    let shared = || {
                        flock(&descriptor, FlockOperation::NonBlockingLockShared).is_ok()
                            || (within == Some(dir) && is_ours(dir))
                    };
                    wait_for(shared, dir, deadline, cancel)?;
                    above.push(descriptor);
                }
                // Whoever may not read a directory cannot make a sandbox of it either.
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(Error::io("open directory", dir, error)),
            }
        }
        let file = Connection::open(database, Mode::ReadWrite)?;
        wait_for(|| file.try_flock(), database, deadline, cancel)?;
        Ok(Self { _file: file, _above: above })
    }
}

fn wait_for(
    mut is_free: impl FnMut() -> bool,
    path: &Path,
    deadline: Instant,
    cancel: &CancelFlag,
) -> Result<()> {
    while !is_free() {
        if Instant::now() >= deadline {
            let holder = Some("a commit to it, or to a directory above it".to_owned());
            return Err(Error::Busy { path: path.to_path_buf(), holder });
        }
        cancel.check()?;
        std::thread::sleep(POLL);
    }
    Ok(())
}
