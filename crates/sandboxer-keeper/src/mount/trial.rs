//! Whether overlays work here, found out by making one.
//!
//! A kernel that mounts an overlay may still be unable to delete in it, or to replace a directory: that takes whiteouts and
//! extended attributes of the filesystem below. So both are tried, on directories that nobody else knows.

use std::fs::DirBuilder;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

use super::detached;
use crate::chain::in_words;
use crate::{Kind, Overlay, work};

/// Mounts an overlay of throw-away directories in `scratch` on the host, works in it, and removes everything. The mount is
/// never attached anywhere. The error is the reason, in words.
pub fn try_host(scratch: &Path) -> Result<(), String> {
    let trial = Trial::new(scratch).map_err(|e| in_words(&e))?;
    let mounted = detached(&trial.overlay(), Kind::Host).map_err(|e| in_words(&e))?;
    Trial::exercise(&mounted)
}

/// The directories of an overlay that is only a trial; removed when this is dropped.
pub(crate) struct Trial {
    dir: PathBuf,
}

impl Trial {
    pub(crate) fn new(scratch: &Path) -> Result<Self> {
        let trial = Self { dir: scratch.join(unique("try")) };
        for part in ["", "lower", "lower/directory", "upper", "work", "at"] {
            let dir = trial.dir.join(part);
            DirBuilder::new().mode(0o700).create(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        }
        for part in ["lower/file", "lower/directory/file"] {
            let file = trial.dir.join(part);
            std::fs::write(&file, "").map_err(|e| Error::io("write", &file, e))?;
        }
        Ok(trial)
    }

    pub(crate) fn overlay(&self) -> Overlay {
        let part = |name| self.dir.join(name);
        Overlay {
            lowers: vec![part("lower")],
            upper: part("upper"),
            work: part("work"),
            at: part("at"),
            volatile: true,
        }
    }

    /// Deletes a file, and replaces a directory by an empty one, in the overlay whose root is open.
    pub(crate) fn exercise(root: impl AsFd) -> Result<(), String> {
        let step = |what: &str, result: rustix::io::Result<()>| {
            result.map_err(|e| format!("an overlay could be mounted, but not {what}: {e}"))
        };
        step("written to", fs::mkdirat(&root, "new", Mode::RWXU))?;
        step("deleted from", fs::unlinkat(&root, "file", AtFlags::empty()))?;
        step("deleted from", fs::unlinkat(&root, "directory/file", AtFlags::empty()))?;
        step("deleted from", fs::unlinkat(&root, "directory", AtFlags::REMOVEDIR))?;
        step("given a new directory for an old one", fs::mkdirat(&root, "directory", Mode::RWXU))?;
        match fs::statat(&root, "directory/file", AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            _ => Err("an overlay could be mounted, but shows what was deleted in it".to_owned()),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = work::remove(&self.dir);
    }
}

/// A name that nobody else uses.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    format!("{prefix}-{}-{}-{now:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
