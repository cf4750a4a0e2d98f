//! Abort of a decided commit that cannot be finished: a disk that stays full, an immutable directory, a mount in the way.
//!
//! What can be applied is applied, the rest is left out and reported, and then all of it is undone. Each of the two is
//! recovered by itself, so an interrupted abort can be repeated.

use super::commit::{TWO_PHASE, did_something};
use super::manager::{SandboxManager, failure};
use super::pieces::{named, pieces_of};
use super::recover::{recovered_end, target_of};
use super::{AbortedCommit, Operation, Sandbox, Target};
use crate::model::{Conflict, Phase, SandboxId};
use crate::store::OperationEnd;
use crate::{Error, Result};

impl SandboxManager {
    /// Aborts the interrupted commit or undo of a sandbox. The original is as it was before, but for what others have changed
    /// since; what was committed is pending again.
    pub fn abort_commit(&self, target: &Target) -> Result<AbortedCommit> {
        self.permit_on(target, "commit")?;
        let (operation, left_out) = self.end_interrupted(&target.sandbox)?;
        let undone = match left_out {
            Some(_) => Some(self.undo(&operation)?),
            None => None,
        };
        Ok(AbortedCommit { operation, undone, left_out: left_out.unwrap_or_default() })
    }

    /// Ends what was interrupted, decided or not. Returns what was left out, or `None` if nothing was written to the original.
    fn end_interrupted(&self, sandbox: &Sandbox) -> Result<(Operation, Option<Vec<Conflict>>)> {
        let _lock = self.lock(&sandbox.id)?;
        let operation = self.interrupted_commit(&sandbox.id)?;
        let current = self.store.sandbox(&sandbox.id)?.unwrap_or_else(|| sandbox.clone());
        let _held = self.hold_environment_still(&current)?;
        let target = target_of(&current, &operation);
        let pieces = pieces_of(&target);
        if operation.state != "decided" {
            match self.abort_each(&pieces) {
                Ok(()) => return self.end_undecided(operation),
                Err(error) if is_undecided(&operation) || !error.is_already_decided() => return Err(error),
                Err(_) => {}
            }
        }
        let finish = |piece| self.phase_of(piece, Phase::FinishPossible);
        let results = named(&target, pieces.iter().map(finish).collect::<Result<Vec<_>>>()?);
        if !results.iter().any(|(_, result)| did_something(result)) {
            return self.end_undecided(operation);
        }
        self.end_logged(&operation, &recovered_end(&operation, &results))?;
        let applied = results.iter().any(|(_, result)| !result.entries.is_empty());
        let left_out: Vec<Conflict> = results.into_iter().flat_map(|(_, result)| result.conflicts).collect();
        Ok((self.find_operation(operation.id.as_str())?, applied.then_some(left_out)))
    }

    fn end_undecided(&self, operation: Operation) -> Result<(Operation, Option<Vec<Conflict>>)> {
        let aborted = Error::refused("aborted before anything was written");
        self.store.end(&OperationEnd { state: "aborted", ..failure(&operation, &aborted) })?;
        Ok((operation, None))
    }

    fn interrupted_commit(&self, id: &SandboxId) -> Result<Operation> {
        let unfinished = self.store.unfinished_operations(id)?;
        let commit = unfinished.into_iter().find(|op| matches!(op.kind.as_str(), "commit" | "undo"));
        commit.ok_or_else(|| Error::Refused {
            reason: "no commit is waiting to be finished".to_owned(),
            hint: Some(format!("to take back a finished commit: `sandbox undo {id}`")),
        })
    }
}

/// Whether the decision would be a record of the store, and there is none.
fn is_undecided(operation: &Operation) -> bool {
    operation.details["mode"] == TWO_PHASE
}
