//! What works here, found out by trying.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::{copy_on_write, filesystem_copy, git_worktree, none, overlay};

/// Whether a strategy works for resources at some place, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyHealth {
    /// Which.
    pub strategy: String,
    /// By which way, of a strategy that has several.
    pub way: Option<&'static str>,
    /// Whether it does.
    pub healthy: bool,
    /// Why, in either case.
    pub reason: String,
}

/// Tries each built-in strategy's mechanism in the directory `at`. Keepers of overlays are started from `program`. Nothing is
/// left behind.
pub fn probe(at: &Path, program: Option<&Path>) -> Vec<StrategyHealth> {
    let overlays = overlay::probe(at, program).into_iter().map(|(way, tried)| StrategyHealth {
        way: Some(way),
        ..health(overlay::NAME, tried.map(|()| "an overlay could be mounted and worked in".to_owned()))
    });
    let sharing = can_share(at).map_err(CannotShare::into_text);
    let git = sandboxer_git::git::version().map(|version| format!("git {version} is installed"));
    let copies = [
        health(git_worktree::NAME, git),
        health(copy_on_write::NAME, sharing.map(|()| format!("files in {} can share blocks", at.display()))),
        health(filesystem_copy::NAME, Ok("needs nothing special".to_owned())),
        health(none::NAME, Ok("needs nothing special, and isolates nothing".to_owned())),
    ];
    overlays.chain(copies).collect()
}

fn health(strategy: &str, tried: Result<String, String>) -> StrategyHealth {
    let (healthy, reason) = (tried.is_ok(), tried.unwrap_or_else(|reason| reason));
    StrategyHealth { strategy: strategy.to_owned(), way: None, healthy, reason }
}

/// Why files in some directory cannot share blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotShare {
    /// It cannot be written to; another directory on its filesystem may be.
    Unwritable(String),
    /// Its filesystem has no such thing.
    Unsupported(String),
}

impl CannotShare {
    /// The reason as it is shown.
    pub fn into_text(self) -> String {
        match self {
            Self::Unwritable(text) | Self::Unsupported(text) => text,
        }
    }
}

/// Whether files in `dir` (or, if it is not there yet, in the directory that it would be made in) can share blocks; tried
/// with two files that have no name, so that nothing is left behind.
pub fn can_share(dir: &Path) -> Result<(), CannotShare> {
    let dir = dir.ancestors().find(|d| d.is_dir()).unwrap_or(dir);
    let failed =
        |e: std::io::Error| CannotShare::Unwritable(format!("{} cannot be written ({e})", dir.display()));
    let (first, second) = (unnamed(dir).map_err(failed)?, unnamed(dir).map_err(failed)?);
    let mut file = &first;
    file.write_all(&[1; 4096]).map_err(failed)?;
    rustix::fs::ioctl_ficlone(&second, &first).map_err(|e| {
        let e = std::io::Error::from(e);
        CannotShare::Unsupported(format!("the filesystem of {} cannot share blocks ({e})", dir.display()))
    })
}

/// A file without a name, which is gone when it is closed.
fn unnamed(dir: &Path) -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_is_probed_and_says_why() {
        let temp = tempfile::tempdir().unwrap();
        let health = probe(&temp.path().join("new"), None);
        let ways: Vec<_> = health.iter().map(|h| (h.strategy.as_str(), h.way)).collect();
        let overlays = [("overlay", Some("on the host")), ("overlay", Some("in a user namespace"))];
        let others =
            [("git_worktree", None), ("copy_on_write", None), ("filesystem_copy", None), ("none", None)];
        assert_eq!(ways, [&overlays[..], &others].concat());
        assert!(health.iter().all(|h| !h.reason.is_empty()));
        assert!(health[1].reason.contains("no program"), "{}", health[1].reason);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        let nowhere = probe(Path::new("/proc/nowhere"), None);
        let unwritable = |h: &StrategyHealth| !h.healthy && h.reason.contains("cannot be written");
        assert!([0, 1, 3].iter().all(|at| unwritable(&nowhere[*at])));
    }

    #[test]
    fn what_is_unwritable_is_told_apart_from_what_is_unsupported() {
        let unwritable = can_share(Path::new("/proc/self/fd")).unwrap_err();
        assert!(matches!(&unwritable, CannotShare::Unwritable(why) if why.contains("cannot be written")));
        assert!(matches!(can_share(Path::new("")), Err(CannotShare::Unwritable(_))));
        if !Path::new("/dev/shm").is_dir() {
            eprintln!("skipped: no tmpfs at /dev/shm, which cannot share blocks");
            return;
        }
        let unsupported = can_share(Path::new("/dev/shm")).unwrap_err();
        assert!(matches!(&unsupported, CannotShare::Unsupported(why) if why.contains("/dev/shm")));
        let health = probe(Path::new("/dev/shm"), None);
        assert_eq!((health[3].healthy, &health[3].reason), (false, &unsupported.into_text()));
    }
}
