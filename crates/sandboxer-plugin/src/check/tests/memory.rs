//! A strategy of things that are not files: objects in memory, compared by content when they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, Conflict, DiffEntry, DiffKind, DiffView, PlanId,
    RelPath, Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::{Error, Result};

type Objects = BTreeMap<RelPath, Vec<u8>>;

#[derive(Default)]
struct Copy {
    base: Objects,
    now: Objects,
    checkpoints: BTreeMap<CheckpointId, Objects>,
}

#[derive(Default)]
struct State {
    real: Objects,
    copies: BTreeMap<PlanId, Copy>,
}

/// The bucket and its sandboxes.
#[derive(Default)]
pub(super) struct Memory(Mutex<State>);

impl Memory {
    pub fn sandboxes(&self) -> usize {
        self.state().copies.len()
    }

    pub fn paths(&self) -> Vec<RelPath> {
        self.state().real.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn with<T>(&self, sandbox: &SandboxRef, act: impl FnOnce(&mut Copy) -> Result<T>) -> Result<T> {
        let mut state = self.state();
        let copy = state.copies.get_mut(&sandbox.plan_id);
        act(copy.ok_or_else(|| Error::not_found("sandbox", sandbox.plan_id.as_str()))?)
    }
}

fn difference(copy: &Copy) -> DiffView {
    let paths: BTreeSet<&RelPath> = copy.base.keys().chain(copy.now.keys()).collect();
    let changed = paths.into_iter().filter(|path| copy.base.get(path) != copy.now.get(path));
    let entry = |path: &RelPath| {
        let kind = if copy.base.contains_key(path) { DiffKind::Modified } else { DiffKind::Created };
        let text = copy.now.get(path).map(|content| content.escape_ascii().to_string());
        DiffEntry { text, ..DiffEntry::new(path.clone(), kind) }
    };
    DiffView::new(changed.map(entry).collect())
}

fn back(checkpoint_id: Option<CheckpointId>) -> RollbackResult {
    RollbackResult { success: true, checkpoint_id, restored_files: 1, message: "back".to_owned() }
}

impl SandboxStrategy for Memory {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let mut state = self.state();
        let (base, now) = (state.real.clone(), state.real.clone());
        state.copies.insert(plan_id.clone(), Copy { base, now, checkpoints: BTreeMap::new() });
        Ok(SandboxRef::new(plan_id.clone(), resource.id.clone(), "memory"))
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        self.with(sandbox, |copy| {
            copy.now.get(path).cloned().ok_or_else(|| Error::not_found("file", path.to_string()))
        })
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.with(sandbox, |copy| {
            let old = copy.now.insert(path.clone(), content.to_vec());
            let kind = if old.is_some() { DiffKind::Modified } else { DiffKind::Created };
            let old_size = old.map(|content| content.len() as u64);
            Ok(Change { path: path.clone(), kind, old_size, new_size: content.len() as u64 })
        })
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        self.with(sandbox, |copy| Ok(difference(copy)))
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let view = self.diff(sandbox)?;
        if let Some(expected) = request.digest.clone().filter(|digest| *digest != view.digest) {
            return Err(Error::DigestMismatch { expected, found: view.digest });
        }
        let state = &mut *self.state();
        let copy = state.copies.entry(sandbox.plan_id.clone()).or_default();
        let moved = |entry: &&DiffEntry| copy.base.get(&entry.path) != state.real.get(&entry.path);
        let conflicts: Vec<_> = view
            .entries
            .iter()
            .filter(moved)
            .map(|entry| Conflict::new(entry.path.clone(), "modified"))
            .collect();
        if !conflicts.is_empty() {
            return Err(Error::Conflict { conflicts });
        }
        for entry in &view.entries {
            state.real.insert(entry.path.clone(), copy.now[&entry.path].clone());
        }
        copy.base = copy.now.clone();
        Ok(CommitResult { digest: view.digest, entries: view.entries, ..CommitResult::default() })
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        self.with(sandbox, |copy| {
            copy.now = copy.base.clone();
            Ok(back(None))
        })
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.with(sandbox, |copy| {
            copy.checkpoints.insert(checkpoint_id.clone(), copy.now.clone());
            Ok(None)
        })
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        self.with(sandbox, |copy| {
            let kept = copy.checkpoints.get(checkpoint_id).cloned();
            copy.now = kept.ok_or_else(|| Error::not_found("checkpoint", checkpoint_id.as_str()))?;
            Ok(back(Some(checkpoint_id.clone())))
        })
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        self.state().copies.remove(&sandbox.plan_id);
        Ok(())
    }
}
