//! Sandboxes that are on disk and not in the store, because the database was lost: registered again from the
//! descriptors beside them.

use super::budget::disk_use;
use super::descriptor::Descriptor;
use super::lock::SandboxLock;
use super::manager::SandboxManager;
use super::orphans::subdirectories;
use super::park::home_of;
use super::{Sandbox, SandboxState, Workspace};
use crate::Result;
use crate::model::Phase;

impl SandboxManager {
    /// Registers every sandbox found by its descriptor that the store lacks, the oldest first, and returns those. One
    /// whose workspaces are gone is passed over. A name that is taken by now gets a number.
    pub fn adopt(&self) -> Result<Vec<Sandbox>> {
        let mut found = self.find_unknown()?;
        found.sort_by_key(|descriptor| descriptor.sandbox.created_at);
        let mut adopted = Vec::new();
        for descriptor in found {
            let directory = self.sandbox_dir(&descriptor.sandbox.id);
            let Some(_lock) = SandboxLock::try_acquire(&directory)? else { continue };
            let bytes = descriptor.sandbox.workspaces.iter().filter_map(home_of).map(disk_use).sum();
            if let Some(sandbox) = self.store.adopt(&descriptor.sandbox, &descriptor.checkpoints, bytes)? {
                Descriptor { sandbox: sandbox.clone(), ..descriptor }.write(&directory)?;
                if sandbox.state.is_open() {
                    self.finish_interrupted(&sandbox)?;
                }
                adopted.push(sandbox);
            }
        }
        Ok(adopted)
    }

    /// How many sandboxes are on disk that [`SandboxManager::adopt`] could register.
    pub fn count_adoptable(&self) -> Result<usize> {
        self.find_unknown().map(|found| found.len())
    }

    fn find_unknown(&self) -> Result<Vec<Descriptor>> {
        let mut found = Vec::new();
        for directory in subdirectories(&self.sandboxes_dir(), "sbx_")? {
            let Ok(Some(descriptor)) = Descriptor::read(&directory) else { continue };
            let sandbox = &descriptor.sandbox;
            let is_whole = sandbox.state.is_open() || sandbox.state == SandboxState::Parked;
            let belongs = directory.ends_with(sandbox.id.as_str()) && is_whole;
            if belongs
                && sandbox.workspaces.iter().all(is_on_disk)
                && self.store.sandbox(&sandbox.id)?.is_none()
            {
                found.push(descriptor);
            }
        }
        Ok(found)
    }

    /// The lost store may have held an unfinished commit. What was only prepared was perhaps never approved, and is
    /// forgotten; what was decided refuses to be, and is rolled forward, as are the workspaces after it: they are
    /// finished in order, so what they have prepared was decided with it.
    fn finish_interrupted(&self, sandbox: &Sandbox) -> Result<()> {
        let mut decided = false;
        for workspace in self.in_finishing_order(sandbox.workspaces.iter().collect()) {
            if !self.capabilities_of(workspace).is_ok_and(|can| can.two_phase) {
                continue;
            }
            decided = decided || self.is_decided(workspace)?;
            if decided {
                self.commit_phase(workspace, Phase::Finish)?;
            }
        }
        Ok(())
    }

    /// Forgets what a workspace has prepared, unless that is decided.
    fn is_decided(&self, workspace: &Workspace) -> Result<bool> {
        match self.commit_phase(workspace, Phase::Abort) {
            Ok(_) => Ok(false),
            Err(error) if error.is_already_decided() => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// A path that leads through a process leads nowhere while that is not running.
fn is_on_disk(workspace: &Workspace) -> bool {
    let sandbox_ref = &workspace.sandbox_ref;
    ["dir", "path"]
        .iter()
        .filter_map(|key| sandbox_ref.text(key))
        .all(|path| std::path::Path::new(path).symlink_metadata().is_ok())
}
