//! The end of workspaces: of those that were made, and of those that were being made when somebody was killed.

use super::manager::{SandboxManager, in_workspace};
use super::{Sandbox, Workspace};
use crate::Result;
use crate::model::SandboxRef;
use crate::resolve::BUILT_IN;

/// Marks the ref of a workspace that no strategy has made yet.
pub(super) const UNMADE: &str = "unmade";

impl SandboxManager {
    /// Removes the environment first, which holds on to the workspaces, and then those.
    pub(super) fn take_down(&self, sandbox: &Sandbox) -> Result<()> {
        self.tear_down_environment(sandbox)?;
        self.cleanup_workspaces(sandbox)
    }

    /// Cleans up every workspace that was made, last first, and goes on past a failure.
    fn cleanup_workspaces(&self, sandbox: &Sandbox) -> Result<()> {
        self.each_made(sandbox, |workspace| self.cleanup_workspace(workspace))
    }

    pub(super) fn cleanup_workspace(&self, workspace: &Workspace) -> Result<()> {
        self.strategy_of(workspace)?.cleanup(&workspace.sandbox_ref)
    }

    /// Does something about every workspace that was made, last first, and goes on past a failure.
    pub(super) fn each_made(
        &self,
        sandbox: &Sandbox,
        mut work: impl FnMut(&Workspace) -> Result<()>,
    ) -> Result<()> {
        let mut first_failure = Ok(());
        for workspace in sandbox.workspaces.iter().rev().filter(|w| is_made(w)) {
            first_failure = first_failure.and(work(workspace).map_err(in_workspace(sandbox, workspace)));
        }
        first_failure
    }

    /// Whether everything in a sandbox can be seen to without starting a program of somebody else's.
    pub(super) fn is_at_hand(&self, sandbox: &Sandbox) -> bool {
        let registry = &self.parts.registry;
        if !self.parts.environments.is_at_hand(sandbox) {
            return false;
        }
        sandbox.workspaces.iter().all(|w| registry.is_registered(&w.sandbox_ref.strategy_name))
    }

    /// A built-in makes nothing outside its directory; a custom strategy may have, and is told which sandbox will never be.
    pub(super) fn cleanup_half_made(&self, sandbox: &Sandbox) -> Result<()> {
        for workspace in sandbox.workspaces.iter().filter(|w| !is_made(w)) {
            let name = &workspace.sandbox_ref.strategy_name;
            if self.parts.registry.get(name).is_ok_and(|entry| entry.origin == BUILT_IN) {
                continue;
            }
            for directory in self.half_made(sandbox, workspace)? {
                let bare =
                    SandboxRef::new(sandbox.plan_id.clone(), workspace.resource.id.clone(), name.as_str());
                self.strategy(name)?.cleanup(&bare.with_path("dir", &directory))?;
            }
        }
        Ok(())
    }
}

/// Whether a strategy has made it already.
fn is_made(workspace: &Workspace) -> bool {
    !workspace.sandbox_ref.metadata.contains_key(UNMADE)
}
