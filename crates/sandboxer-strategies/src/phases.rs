//! Commits in phases: the resource stays locked from prepare to finish.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandboxer_core::Result;
use sandboxer_core::model::{CommitRequest, CommitResult, Phase, SandboxRef};
use sandboxer_fs::commit::{self, CommitFiles, OnFailure};
use sandboxer_fs::lock::ResourceLock;
use sandboxer_fs::space::{Logged, Space};

/// Locks held from prepare to finish, by workspace.
#[derive(Default)]
pub struct Phases {
    held: Mutex<HashMap<PathBuf, ResourceLock>>,
}

impl Phases {
    /// Does what `request` asks for.
    pub fn commit(
        &self,
        space: &dyn Space,
        sandbox: &SandboxRef,
        request: &CommitRequest,
    ) -> Result<CommitResult> {
        let on_failure = match request.phase {
            Phase::FinishPossible => OnFailure::LeaveOut,
            _ => OnFailure::Stop,
        };
        let logged = Logged { operation: sandbox.operation(), undo: sandbox.undo(), on_failure };
        match request.phase {
            Phase::Whole => whole(space, request, &logged),
            Phase::Prepare => self.prepare(space, request, &logged),
            Phase::Finish | Phase::FinishPossible => self.finish(space, &logged),
            Phase::Abort => {
                let aborted = space.abort();
                self.let_go(&space.pair().home);
                aborted.map(|()| CommitResult::default())
            }
        }
    }

    /// Aborts a commit of the workspace at `home`, which cannot be opened: its original may be gone. A commit that was not decided
    /// has written nothing to the original, so removing its files is enough.
    pub fn abort_unopened(&self, home: &Path) -> Result<CommitResult> {
        self.let_go(home);
        commit::abort(&CommitFiles::new(home)).map(|()| CommitResult::default())
    }

    /// Removes what a commit left of a workspace at `home` that cannot be opened. A decided commit stays as long as there is an
    /// `original` that it may have changed in part.
    pub fn end_unopened(&self, home: &Path, original: &Path) -> Result<()> {
        match original.exists() {
            true => self.abort_unopened(home).map(drop),
            false => commit::forget(&CommitFiles::new(home)),
        }
    }

    fn prepare(&self, space: &dyn Space, request: &CommitRequest, logged: &Logged) -> Result<CommitResult> {
        self.prepare_holding(space.lock()?, space, request, logged)
    }

    /// Makes a commit ready for a caller who has locked the resource already.
    pub fn prepare_holding(
        &self,
        lock: ResourceLock,
        space: &dyn Space,
        request: &CommitRequest,
        logged: &Logged,
    ) -> Result<CommitResult> {
        let prepared = space.prepare(request, logged)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(space.pair().home.clone(), lock);
        Ok(prepared)
    }

    fn finish(&self, space: &dyn Space, logged: &Logged) -> Result<CommitResult> {
        let _lock = match self.let_go(&space.pair().home) {
            Some(lock) => lock,
            None => space.lock()?,
        };
        space.finish(logged)
    }

    /// Forgets what was only prepared, and finishes what was decided, before a workspace goes.
    pub fn end(&self, space: &dyn Space) -> Result<()> {
        match space.abort() {
            Err(error) if error.is_already_decided() => self.finish(space, &Logged::default()).map(drop),
            // Any other failure must not end in a commit of what was only prepared.
            aborted => aborted,
        }
    }

    /// Lets go of the lock of the workspace at `home`.
    pub fn let_go(&self, home: &Path) -> Option<ResourceLock> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(home)
    }
}

fn whole(space: &dyn Space, request: &CommitRequest, logged: &Logged) -> Result<CommitResult> {
    let _lock = space.lock()?;
    space.prepare(request, logged)?;
    space.finish(logged)
}
