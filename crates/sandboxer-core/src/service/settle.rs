//! Who decided about a commit that was interrupted: where a workspace could not be prepared, its own commit is the decision,
//! and nobody else knows of it until the store says so.
//!
//! Before such a workspace is finished, every operation that takes part has it on record. Whoever comes next asks it, with the
//! lock of its sandbox and no other held, and writes the answer down for all of them at once. After that each sandbox is
//! recovered by itself, as always.

use serde_json::{Value, json};

use super::commit::operations_of;
use super::lock::SandboxLock;
use super::manager::SandboxManager;
use super::{Operation, Workspace};
use crate::model::{OpId, Phase, SandboxId};
use crate::{Error, Result};

/// The detail that names the workspace whose commit decides.
pub(super) const DECIDED_BY: &str = "decided_by";

/// A commit that was interrupted while a workspace decided about it.
struct Question {
    /// One of the operations that wait for the answer.
    asked_by: Operation,
    /// Where the one is that knows.
    sandbox: SandboxId,
    workspace: String,
    /// What it was committed as.
    operation: OpId,
}

/// What to write down before `workspace` decides.
pub(super) fn decided_by(operation: &Operation, workspace: &Workspace) -> Value {
    json!({"sandbox": operation.sandbox_id, "operation": operation.id, "workspace": workspace.name})
}

fn question(operation: Operation) -> Option<Question> {
    let by = &operation.details[DECIDED_BY];
    let text = |key: &str| by[key].as_str().map(str::to_owned);
    let (sandbox, workspace, id) = (text("sandbox")?, text("workspace")?, text("operation")?);
    (operation.state == "running").then(|| Question {
        sandbox: SandboxId::from_string(sandbox),
        workspace,
        operation: OpId::from_string(id),
        asked_by: operation,
    })
}

/// Where nobody can tell any more, and others wait for the answer, there is one way out in any case.
fn or_give_up(error: Error, decider: &SandboxId) -> Error {
    let Error::Usage { message, hint } = error.root() else { return error };
    let force = format!(
        "`sandbox destroy {decider} --force` gives it up: it counts as not committed then, and what waits for it is forgotten"
    );
    let hint = hint.iter().cloned().chain([force]).collect::<Vec<_>>().join("; or ");
    Error::Usage { message: message.clone(), hint: Some(hint) }
}

impl SandboxManager {
    /// Takes the lock of a sandbox, waiting for its holder. Who decided about an interrupted commit is found out first.
    pub(super) fn lock(&self, id: &SandboxId) -> Result<SandboxLock> {
        let wait = |id: &SandboxId| self.lock_as_it_is(id).map(Some);
        let lock = self.lock_settled(id, &wait)?;
        lock.ok_or_else(|| Error::Busy { path: self.sandbox_dir(id), holder: None })
    }

    /// The same if nobody holds it.
    pub(super) fn try_lock(&self, id: &SandboxId) -> Result<Option<SandboxLock>> {
        self.lock_settled(id, &|id: &SandboxId| SandboxLock::try_acquire(&self.sandbox_dir(id)))
    }

    fn lock_settled(
        &self,
        id: &SandboxId,
        take: &dyn Fn(&SandboxId) -> Result<Option<SandboxLock>>,
    ) -> Result<Option<SandboxLock>> {
        loop {
            let Some(lock) = take(id)? else { return Ok(None) };
            let Some(found) = self.open_question(id)? else { return Ok(Some(lock)) };
            if found.sandbox == *id {
                self.answer(&found)?;
                continue;
            }
            // Never two locks at once: others may hold that one and wait for this one.
            drop(lock);
            let Some(_lock) = take(&found.sandbox)? else { return Ok(None) };
            if let Some(still) = self.open_question(id)?.filter(|still| still.sandbox == found.sandbox) {
                self.answer(&still)?;
            }
            self.drop_dir_of_closed(&found.sandbox);
        }
    }

    fn open_question(&self, id: &SandboxId) -> Result<Option<Question>> {
        Ok(self.store.unfinished_operations(id)?.into_iter().find_map(question))
    }

    /// Asks, and writes the answer down for all that wait for it. The caller holds the lock of the sandbox that is asked.
    fn answer(&self, question: &Question) -> Result<()> {
        let sandbox = self.store.sandbox(&question.sandbox)?.filter(|sandbox| !sandbox.state.is_gone());
        let decided = match sandbox.as_ref().and_then(|sandbox| sandbox.workspace(&question.workspace)) {
            Some(workspace) => self
                .was_committed(workspace, &question.operation)
                .map_err(|error| or_give_up(error, &question.sandbox))?,
            // Given up by force, with whatever it knew.
            None => false,
        };
        self.store.settle(&operations_of(&question.asked_by), DECIDED_BY, decided)
    }

    /// What was committed refuses to be forgotten.
    fn was_committed(&self, workspace: &Workspace, operation: &OpId) -> Result<bool> {
        let mut asked = workspace.clone();
        asked.sandbox_ref = asked.sandbox_ref.for_operation(operation);
        match self.commit_phase(&asked, Phase::Abort) {
            Ok(_) => Ok(false),
            Err(error) if error.is_already_decided() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Nothing of an operation is finished or forgotten before it is known which.
    pub(super) fn check_settled(&self, operation: &Operation) -> Result<()> {
        match question(operation.clone()) {
            None => Ok(()),
            Some(question) => Err(Error::Busy {
                path: self.sandbox_dir(&question.sandbox),
                holder: Some(format!("{} is not settled yet", operation.id)),
            }),
        }
    }
}
