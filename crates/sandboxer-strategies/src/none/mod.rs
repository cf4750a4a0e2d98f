//! No isolation at all: what is written goes straight through to the resource, and is journaled on the way.
//!
//! The diff shows what went through and nothing else; a rollback undoes just that, and refuses where somebody else has written
//! over it since; a commit accepts it and forgets how to undo it. Programs that work in the resource by themselves go
//! unseen: this strategy is for callers that use `write`, and want a way back.

mod journal;

use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, OnConflict, Phase, PlanId, RelPath,
    Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::content::read_regular;
use sandboxer_fs::lock::ResourceLock;
use sandboxer_fs::scratch::{self, NewWorkspace};

use crate::options::FileOptions;
use journal::WriteLog;

/// The name it is registered under.
pub const NAME: &str = "none";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "no isolation: writes go straight through and can be undone".to_owned(),
        origin: "built-in".to_owned(),
        capabilities: Capabilities {
            isolates: false,
            faithful: true,
            scoped_rollback: true,
            checkpoints: true,
            ranges: true,
            resource_types: ["fs-directory", "fs-file", "fs-mount"].map(str::to_owned).to_vec(),
            ..Capabilities::default()
        },
        options: StrategyOptions::new(),
        factory: Arc::new(|name, options, context| Ok(Arc::new(NoIsolation::new(name, options, context)?))),
    }
}

struct NoIsolation {
    name: String,
    options: FileOptions,
    context: StrategyContext,
}

impl NoIsolation {
    fn new(name: &str, options: &StrategyOptions, context: &StrategyContext) -> Result<Self> {
        let options = FileOptions::parse(name, options)?;
        Ok(Self { name: name.to_owned(), options, context: context.clone() })
    }

    /// The log of a sandbox, and the resource below which it writes.
    fn open(&self, sandbox: &SandboxRef) -> Result<WriteLog> {
        let missing = || Error::corrupt(sandbox.resource_id.as_str(), "its ref has no directory");
        let home = sandbox.text("dir").map(PathBuf::from).ok_or_else(missing)?;
        WriteLog::open(&home, &resource_of(sandbox)?)
    }

    fn lock(&self, sandbox: &SandboxRef) -> Result<ResourceLock> {
        let means = self.options.means(&self.context);
        ResourceLock::acquire(&resource_of(sandbox)?, means.lock_wait, &means.cancel)
    }

    fn refuse_gaps(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<()> {
        let gap = if !request.paths.is_empty() || !request.hunks.is_empty() {
            "commit a part"
        } else if request.on_conflict != OnConflict::Fail {
            "resolve conflicts"
        } else if sandbox.undo().is_some() {
            "take a commit back"
        } else {
            return Ok(());
        };
        Err(self.unsupported(gap))
    }

    fn unsupported(&self, what: &'static str) -> Error {
        let reason = "what is written is in the resource already".to_owned();
        Error::Unsupported { strategy: self.name.clone(), what, reason }
    }
}

impl SandboxStrategy for NoIsolation {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let original = resource.require_path()?;
        scratch::require(original)?;
        let root = scratch::in_state(&self.context.home);
        let new = NewWorkspace::create(&self.context.home, &root, plan_id, resource)?;
        WriteLog::create(new.path(), original)?;
        let home = new.keep();
        Ok(SandboxRef::new(plan_id.clone(), resource.id.clone(), &self.name)
            .with_path("path", original)
            .with_path("base", original)
            .with_path("dir", &home))
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        let log = self.open(sandbox)?;
        log.check_inside(path)?;
        read_regular(log.root(), path, sandbox.range()?)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        let _lock = self.lock(sandbox)?;
        self.open(sandbox)?.write(path, content)
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        self.open(sandbox)?.diff()
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        match request.phase {
            Phase::Prepare => return Err(self.unsupported("prepare a commit")),
            Phase::Finish | Phase::FinishPossible | Phase::Abort => return Ok(CommitResult::default()),
            Phase::Whole => self.refuse_gaps(sandbox, request)?,
        }
        let log = self.open(sandbox)?;
        let DiffView { digest, entries, .. } = log.diff()?;
        if let Some(expected) = request.digest.clone().filter(|d| *d != digest) {
            return Err(Error::DigestMismatch { expected, found: digest });
        }
        log.accept()?;
        Ok(CommitResult { digest, entries, ..CommitResult::default() })
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let _lock = self.lock(sandbox)?;
        let count = self.open(sandbox)?.undo(0, &sandbox.scope()?)?;
        let message = format!("undid {count} of the files written through this sandbox");
        Ok(RollbackResult { success: true, checkpoint_id: None, restored_files: count, message })
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.open(sandbox)?.mark(checkpoint_id.as_str()).map(Some)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let _lock = self.lock(sandbox)?;
        let log = self.open(sandbox)?;
        let count = log.undo(log.marked(checkpoint_id.as_str())?, &[])?;
        let message = format!("undid {count} of the files written since checkpoint {checkpoint_id}");
        let checkpoint_id = Some(checkpoint_id.clone());
        Ok(RollbackResult { success: true, checkpoint_id, restored_files: count, message })
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        // Taken for everything, a part would take with it what nobody meant.
        if sandbox.part()?.is_some() {
            return Err(self.unsupported("clean up a part"));
        }
        if let Ok(log) = self.open(sandbox) {
            log.clear_temporary()?;
        }
        match sandbox.text("dir") {
            Some(home) => sandboxer_fs::remove_tree(home.as_ref()),
            None => Ok(()),
        }
    }
}

fn resource_of(sandbox: &SandboxRef) -> Result<PathBuf> {
    let missing = || Error::corrupt(sandbox.resource_id.as_str(), "its ref does not say where it is");
    sandbox.sandbox_path().ok_or_else(missing)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
