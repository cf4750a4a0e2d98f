//! The end of a sandbox: on request, because its time is up, or because nobody owns what is left of it.

use std::path::Path;

use serde_json::json;

use super::lock::SandboxLock;
use super::manager::{SandboxManager, explain, new_operation};
use super::{GcReport, Operation, Sandbox, SandboxState, Target};
use crate::Result;
use crate::model::SandboxId;
use crate::store::{OperationEnd, now};

impl SandboxManager {
    /// Removes a sandbox with everything that belongs to it but the resource. Destroying a destroyed one is fine. A
    /// failure leaves it `destroying`; call again.
    pub fn destroy(&self, target: &Target) -> Result<()> {
        let id = &target.sandbox.id;
        self.permit_on(target, "destroy")?;
        if !target.sandbox.state.is_live() {
            return Ok(());
        }
        let _lock = self.lock(id)?;
        self.recover_before_destroy(&target.sandbox)?;
        match self.store.sandbox(id)? {
            Some(sandbox) if sandbox.state.is_live() => self.destroy_locked(&sandbox),
            _ => {
                self.drop_dir_of_closed(id);
                Ok(())
            }
        }
    }

    /// A commit that was decided is finished before its sandbox goes; unless there is nothing left to commit to.
    fn recover_before_destroy(&self, sandbox: &Sandbox) -> Result<()> {
        let gone = |sandbox: &Sandbox| sandbox.workspaces.iter().all(|w| !w.resource.path().exists());
        match self.recover_operations(&sandbox.id) {
            Err(_) if gone(sandbox) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Removes a sandbox whose lock the caller holds.
    pub(super) fn destroy_locked(&self, sandbox: &Sandbox) -> Result<()> {
        let operation = new_operation(&sandbox.id, "destroy", json!({}));
        self.store.begin_in_state(&sandbox.id, SandboxState::Destroying, &operation)?;
        self.cleanup_workspaces(sandbox).map_err(|error| self.log_failure(&operation, error))?;
        // Nothing else that was begun in it goes on.
        let unfinished = self.store.unfinished_operations(&sandbox.id)?;
        let ends: Vec<_> = unfinished.iter().map(|operation| end_with_sandbox(sandbox, operation)).collect();
        self.close(&sandbox.id, SandboxState::Destroyed, &ends)
    }

    /// Ends a sandbox whose workspaces are gone. The state goes first and the directory, with the lock in it, second:
    /// whoever comes to hold a new lock by then finds the state closed. The operations go last, so that a directory that
    /// is left is found by recovery.
    pub(super) fn close(&self, id: &SandboxId, state: SandboxState, ends: &[OperationEnd]) -> Result<()> {
        self.store.close(id, state)?;
        match self.remove_dir(&self.sandbox_dir(id)) {
            Ok(()) => self.store.end_all(ends),
            // Somebody may just have locked it to look; recovery removes it.
            Err(_) => Ok(()),
        }
    }

    /// Taking the lock of a sandbox that is gone has made its directory again. Where it cannot be removed, somebody else
    /// has just done the same and will try too.
    pub(super) fn drop_dir_of_closed(&self, id: &SandboxId) {
        let live = self.store.sandbox(id).map(|found| found.is_some_and(|sandbox| sandbox.state.is_live()));
        if matches!(live, Ok(false)) {
            let _ = self.remove_dir(&self.sandbox_dir(id));
        }
    }

    /// Removes what may be gone already.
    pub(super) fn remove_dir(&self, path: &Path) -> Result<()> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(());
        }
        (self.parts.remove_tree)(path)
    }

    /// Ends sandboxes whose time is up; those with uncommitted changes are kept and reported. One query where there are
    /// none.
    pub fn enforce_ttl(&self) -> Result<GcReport> {
        self.end_expired(false)
    }

    fn end_expired(&self, dry_run: bool) -> Result<GcReport> {
        let mut report = GcReport::default();
        for sandbox in self.store.expired(now())? {
            match self.end_one_expired(&sandbox, dry_run) {
                Ok(true) => report.expired.push(sandbox.id),
                Ok(false) => report.kept.push(sandbox.id),
                Err(error) => report.failed.push(format!("sandbox {}: {}", sandbox.name, explain(&error))),
            }
        }
        Ok(report)
    }

    /// False where it has to be kept: somebody is at work in it, or has left something.
    fn end_one_expired(&self, sandbox: &Sandbox, dry_run: bool) -> Result<bool> {
        let Some(_lock) = SandboxLock::try_acquire(&self.sandbox_dir(&sandbox.id))? else { return Ok(false) };
        self.recover_operations(&sandbox.id)?;
        let Some(sandbox) = self.store.sandbox(&sandbox.id)?.filter(|sandbox| sandbox.state.is_open()) else {
            self.drop_dir_of_closed(&sandbox.id);
            return Ok(true);
        };
        let target = Target { workspaces: sandbox.workspaces.clone(), sandbox };
        let pending = self.diff_unasked(&target, &[])?.workspaces.iter().any(|w| !w.entries.is_empty());
        if !pending && !dry_run {
            self.destroy_locked(&target.sandbox)?;
        }
        Ok(!pending)
    }

    /// Ends what has expired and removes what nobody owns; a dry run only says what it would do.
    pub fn gc(&self, dry_run: bool) -> Result<GcReport> {
        if !dry_run {
            self.recover()?;
        }
        let mut report = self.end_expired(dry_run)?;
        self.remove_orphans(None, dry_run, &mut report)?;
        Ok(report)
    }
}

/// How an operation ends whose sandbox is gone.
pub(super) fn end_with_sandbox(sandbox: &Sandbox, operation: &Operation) -> OperationEnd {
    let (state, summary) = match operation.kind.as_str() {
        "destroy" => ("done", format!("sandbox {} destroyed", sandbox.name)),
        _ => ("failed", "interrupted".to_owned()),
    };
    OperationEnd { id: operation.id.clone(), state, summary, details: operation.details.clone() }
}
