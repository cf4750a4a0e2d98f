//! What git adds to what is told: where a sandbox stands in its repository, and what a commit is called there.

use sandboxer_core::model::Revision;
use sandboxer_core::service::{Sandbox, TargetCommit, Workspace};
use sandboxer_strategies::git_worktree::{self, About};

/// The git that is needed, in words.
pub const OLDEST: &str = "2.30 or newer";

/// Where a workspace stands in its repository, if it is one of a checkout and that can be told.
pub fn about(workspace: &Workspace) -> Option<About> {
    git_worktree::about(&workspace.sandbox_ref).ok().flatten()
}

/// The same for each workspace of a sandbox that is there to be looked at.
pub fn about_all(sandbox: &Sandbox) -> Vec<Option<About>> {
    let open = sandbox.state.is_open();
    sandbox.workspaces.iter().map(|workspace| if open { about(workspace) } else { None }).collect()
}

/// The workspaces that have a commit in a repository, with what it is called there.
pub fn revisions(commit: &TargetCommit) -> impl Iterator<Item = (&String, &Revision)> {
    commit.workspaces.iter().filter_map(|(name, result)| Some((name, result.revision.as_ref()?)))
}
