//! What works here, found out by trying.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::{copy_on_write, filesystem_copy, none};

/// Whether a strategy works for resources at some place, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyHealth {
    /// Which.
    pub strategy: String,
    /// Whether it does.
    pub healthy: bool,
    /// Why, in either case.
    pub reason: String,
}

/// Tries each built-in strategy's mechanism in the directory `at`, which is made if need be.
pub fn probe(at: &Path) -> Vec<StrategyHealth> {
    let sharing = can_share(at);
    let health = |name: &str, healthy, reason: String| StrategyHealth { strategy: name.to_owned(), healthy, reason };
    vec![
        health(
            copy_on_write::NAME,
            sharing.is_ok(),
            sharing.err().unwrap_or_else(|| format!("files in {} can share blocks", at.display())),
        ),
        health(filesystem_copy::NAME, true, "needs nothing special".to_owned()),
        health(none::NAME, true, "needs nothing special, and isolates nothing".to_owned()),
    ]
}

/// Whether files in `dir` can share blocks; tried with two small files.
pub fn can_share(dir: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{} cannot be written: {e}", dir.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let (first, second) = (unnamed(dir).map_err(failed)?, unnamed(dir).map_err(failed)?);
    let mut file = &first;
    file.write_all(&[1; 4096]).map_err(failed)?;
    rustix::fs::ioctl_ficlone(&second, &first)
        .map_err(|e| format!("the filesystem of {} does not share blocks between files ({e})", dir.display()))
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
        let health = probe(&temp.path().join("new"));
        assert_eq!(health.len(), 3);
        assert!(health.iter().all(|h| !h.reason.is_empty()));
        assert_eq!(std::fs::read_dir(temp.path().join("new")).unwrap().count(), 0);
        assert!(!probe(Path::new("/proc/nowhere"))[0].healthy);
    }
}
