//! The strategy `database_snapshot`: an SQLite database is worked on in a clone, which any program opens as a file.
//!
//! A workspace has `files/NAME`, the clone; `base.db`, what the clone was at first; `checkpoints/ID.db`; and `commit/` while a commit is
//! under way. Nothing is recorded while programs write: the difference is that of the two files.

mod commits;
mod engine;
mod lock;
mod place;
mod record;

use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, Part, PlanId, RelPath, Resource,
    RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_core::{Error, Result};

use crate::{paths, view};
use commits::Locks;
use engine::{SnapshotEngine, changes_between};
use place::Place;

/// The name it is registered under.
pub const NAME: &str = "database_snapshot";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "a clone of an SQLite database, compared and committed row by row".to_owned(),
        origin: "built-in".to_owned(),
        capabilities: Capabilities {
            isolates: true,
            two_phase: true,
            checkpoints: true,
            resolves: true,
            resource_types: vec!["sqlite".to_owned()],
            ..Capabilities::default()
        },
        options: Default::default(),
        factory: Arc::new(|name, _, context| Ok(Arc::new(Snapshots::new(name, context)))),
    }
}

/// The strategy.
struct Snapshots {
    name: String,
    context: StrategyContext,
    locks: Locks,
}

impl Snapshots {
    fn new(name: &str, context: &StrategyContext) -> Self {
        Self { name: name.to_owned(), context: context.clone(), locks: Locks::default() }
    }

    fn unsupported(&self, what: &'static str, reason: &str) -> Error {
        Error::Unsupported { strategy: self.name.clone(), what, reason: reason.to_owned() }
    }
}

impl SandboxStrategy for Snapshots {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let (place, way) = Place::create(&self.context.home, plan_id, resource)?;
        let reference = SandboxRef::new(plan_id.clone(), resource.id.clone(), &self.name);
        Ok(place.written_to(reference).with("way", format!("{way:?}").to_lowercase()))
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        paths::read(&mut SnapshotEngine::new(Place::of(sandbox)?, &self.name), path)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        paths::write(&mut SnapshotEngine::new(Place::of(sandbox)?, &self.name), path, content)
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        let place = Place::of(sandbox)?;
        view::view(&changes_between(&place.base(), &place.clone)?)
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.commit_phase(sandbox, request)
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let place = Place::of(sandbox)?;
        let count = place.bring_back(&place.base())?;
        Ok(rolled_back(None, count, "rolled back to the base".to_owned()))
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        Place::of(sandbox)?.take_checkpoint(checkpoint_id).map(Some)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let place = Place::of(sandbox)?;
        let kept = place.checkpoint(checkpoint_id);
        if !kept.exists() {
            return Err(Error::not_found("checkpoint", checkpoint_id.as_str()));
        }
        let count = place.bring_back(&kept)?;
        Ok(rolled_back(Some(checkpoint_id.clone()), count, format!("restored checkpoint {checkpoint_id}")))
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let place = Place::of(sandbox)?;
        match sandbox.part()? {
            Some(Part::Checkpoint(id)) => return sandboxer_fs::durable::remove(&place.checkpoint(&id)),
            Some(_) => return Ok(()),
            None => {}
        }
        if place.dir.exists() {
            self.settle(&place)?;
        }
        self.locks.let_go(&place.dir);
        sandboxer_fs::remove_tree(&place.dir)
    }
}

fn rolled_back(checkpoint_id: Option<CheckpointId>, rows: u64, done: String) -> RollbackResult {
    let rows_in_words =
        if rows == 1 { "1 row or definition".to_owned() } else { format!("{rows} rows and definitions") };
    RollbackResult {
        success: true,
        checkpoint_id,
        restored_files: rows,
        message: format!("{done}: {rows_in_words} changed back"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod hostile_tests;
