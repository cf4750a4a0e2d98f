//! The strict fake: a strategy without files of its own, harder on its callers than any real one.
//!
//! It keeps the base and the changes as contents by path in one JSON file of the state directory, so its refs survive
//! another instance as they must. It counts every call, can be told to fail one, and panics where a caller breaks the
//! contract: a call after `cleanup`, a foreign ref, two overlapping calls on one sandbox, a `prepare` on top of another,
//! paths that are unsorted or repeated. It passes the same conformance suite as the real ones.

mod calls;
mod state;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calls::Busy;
pub use calls::Calls;
use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffKind, DiffView, OnConflict, Phase, PlanId, Range,
    RelPath, Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyOptions};
use sandboxer_core::{Error, Result};
use state::State;

/// The fake's registered name.
pub const NAME: &str = "strict_fake";

/// The fake as a registry entry.
pub fn entry() -> StrategyEntry {
    counting(Arc::new(Calls::default()))
}

/// The fake as a registry entry whose calls are counted, and failed, through `calls`.
pub fn counting(calls: Arc<Calls>) -> StrategyEntry {
    let factory = move |name: &str, _: &StrategyOptions, context: &StrategyContext| {
        let fake =
            StrictFake { name: name.to_owned(), dir: context.home.join("fakes"), calls: calls.clone() };
        Ok(Arc::new(fake) as Arc<dyn SandboxStrategy>)
    };
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "contents in one JSON file; strict with its callers".to_owned(),
        origin: "testkit".to_owned(),
        capabilities: capabilities(),
        options: StrategyOptions::new(),
        factory: Arc::new(factory),
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        two_phase: true,
        select_paths: true,
        scoped_rollback: true,
        checkpoints: true,
        ranges: true,
        ..Capabilities::default()
    }
}

/// See the module.
struct StrictFake {
    name: String,
    dir: PathBuf,
    calls: Arc<Calls>,
}

impl StrictFake {
    fn file(&self, sandbox: &SandboxRef) -> PathBuf {
        assert_eq!(sandbox.strategy_name, self.name, "contract: a ref of another strategy was handed in");
        PathBuf::from(sandbox.text("file").expect("contract: the ref lost its metadata"))
    }

    /// Counts the call, fails it if so told, and loads the sandbox for reading.
    fn load(&self, method: &'static str, sandbox: &SandboxRef) -> Result<State> {
        self.calls.count(method)?;
        let file = self.file(sandbox);
        Ok(State::load(&file)
            .unwrap_or_else(|| panic!("contract: {method} after cleanup of {}", file.display())))
    }

    /// The same for a call that changes the sandbox: nobody else may be at it.
    fn change<T>(
        &self,
        method: &'static str,
        sandbox: &SandboxRef,
        work: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let file = self.file(sandbox);
        let _busy = Busy::enter(&file, method);
        let mut state = self.load(method, sandbox)?;
        let result = work(&mut state)?;
        state.save(&file);
        Ok(result)
    }

    fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported { strategy: self.name.clone(), what, reason: "it keeps contents alone".to_owned() }
    }

    fn refuse_gaps(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<()> {
        if !request.hunks.is_empty() {
            return Err(self.unsupported("commit chosen hunks"));
        }
        if request.on_conflict != OnConflict::Fail {
            return Err(self.unsupported("resolve conflicts"));
        }
        if sandbox.undo().is_some() {
            return Err(self.unsupported("take a commit back"));
        }
        Ok(())
    }

    fn finish(&self, state: &mut State) -> Result<CommitResult> {
        if state.prepared.is_none() {
            self.calls.count("finish without prepare")?;
        }
        Ok(state.finish())
    }
}

impl SandboxStrategy for StrictFake {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        self.calls.count("create")?;
        let state = State::of(resource.require_path()?)?;
        fs::create_dir_all(&self.dir).unwrap();
        let file = self.dir.join(format!("{}.json", CheckpointId::generate()));
        state.save(&file);
        Ok(SandboxRef::new(plan_id.clone(), resource.id.clone(), &self.name).with_path("file", &file))
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        let state = self.load("read", sandbox)?;
        let content = state.content(path).ok_or_else(|| Error::not_found("file", path.to_string()))?;
        Ok(match sandbox.range()? {
            Some(range) => within(content, range).to_vec(),
            None => content.to_vec(),
        })
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.change("write", sandbox, |state| {
            if state.is_directory(path) {
                return Err(Error::usage(format!("{path} is a directory")));
            }
            let old_size = state.content(path).map(|c| c.len() as u64);
            let kind = if old_size.is_some() { DiffKind::Modified } else { DiffKind::Created };
            state.put(path.clone(), Some(content.to_vec()));
            Ok(Change { path: path.clone(), kind, old_size, new_size: content.len() as u64 })
        })
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        Ok(self.load("diff", sandbox)?.diff())
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let strictly_sorted = request.paths.is_sorted_by(|a, b| a < b);
        assert!(strictly_sorted, "contract: paths are unsorted or repeated: {:?}", request.paths);
        self.refuse_gaps(sandbox, request)?;
        self.change(method_of(request.phase), sandbox, |state| match request.phase {
            Phase::Whole => {
                state.prepare(request)?;
                Ok(state.finish())
            }
            Phase::Prepare => {
                assert!(state.prepared.is_none(), "contract: prepared twice without finish or abort");
                state.prepare(request)
            }
            Phase::Finish | Phase::FinishPossible => self.finish(state),
            Phase::Abort => {
                state.prepared = None;
                Ok(CommitResult::default())
            }
        })
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let scope = sandbox.scope()?;
        self.change("rollback", sandbox, |state| Ok(rolled_back(None, state.rollback(&scope))))
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.change("checkpoint", sandbox, |state| {
            state.checkpoint(checkpoint_id);
            Ok(None)
        })
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        self.change("restore_checkpoint", sandbox, |state| {
            Ok(rolled_back(Some(checkpoint_id.clone()), state.restore(checkpoint_id)?))
        })
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        self.calls.count("cleanup")?;
        if sandbox.part()?.is_some() {
            return Err(self.unsupported("clean up a part"));
        }
        let file = self.file(sandbox);
        let _busy = Busy::enter(&file, "cleanup");
        remove_if_there(&file)
    }
}

/// The bytes of `content` that lie within `range`.
fn within(content: &[u8], range: Range) -> &[u8] {
    let end = |at: u64| usize::try_from(at).map_or(content.len(), |at| at.min(content.len()));
    &content[end(range.offset)..end(range.offset.saturating_add(range.length))]
}

fn method_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Whole => "commit",
        Phase::Prepare => "prepare",
        Phase::Finish => "finish",
        Phase::FinishPossible => "finish_possible",
        Phase::Abort => "abort",
    }
}

fn rolled_back(checkpoint_id: Option<CheckpointId>, restored_files: u64) -> RollbackResult {
    RollbackResult {
        success: true,
        checkpoint_id,
        restored_files,
        message: format!("{restored_files} restored"),
    }
}

fn remove_if_there(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", file, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
