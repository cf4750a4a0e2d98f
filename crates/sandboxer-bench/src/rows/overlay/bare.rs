//! What the kernel costs without us: an overlay by the `mount` program over directories that were made beforehand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::forest::Forest;
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, run};
use crate::place::Mount;

/// A bare overlay. It is unmounted, and what was written into it removed, when this value goes.
pub struct BareOverlay {
    /// Where to work.
    pub merged: PathBuf,
    // Unmounted before its directories are removed.
    _mount: Mount,
    _directory: TempDir,
}

impl BareOverlay {
    /// Times `mount -t overlay` over `lower`, with these options besides its directories.
    pub fn mount(forest: &Forest, lower: &Path, options: &str) -> Result<(Sample, Self)> {
        let root = forest.place.root();
        let directory = tempfile::tempdir_in(root).during("make a directory in", root)?;
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| directory.path().join(name));
        for path in [&upper, &work, &merged] {
            fs::create_dir(path).during("create directory", path)?;
        }
        let layers =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        forest.place.settle()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &format!("{layers}{options}")]).arg(&merged);
        let sample = run(&mut mount, &forest.beside("output"), &[0])
            .map_err(|why| Failure::Skipped(format!("no overlay mount here ({why})")))?;
        Ok((sample, Self { _mount: Mount::made_at(&merged), merged, _directory: directory }))
    }
}
