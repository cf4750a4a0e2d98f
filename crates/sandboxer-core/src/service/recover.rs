//! What a killed process left, put right by whoever comes next.
//!
//! The store says what was begun and not ended; a free lock says that nobody is at it any more. A commit that was
//! decided (or whose journal was published) is rolled forward, one that was not is forgotten, a half-made sandbox is
//! removed, a half-removed one is removed to the end. Every step can be repeated, so recovery may be killed as well.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::checkpoint::told_restore;
use super::commit::{TWO_PHASE, did_something, logged_as, undone_by};
use super::commit_log::commit_end;
use super::content::{combined_digest, told_rollback};
use super::lifecycle::end_with_sandbox;
use super::lock::SandboxLock;
use super::manager::{SandboxManager, counted, explain};
use super::pieces::{named, pieces_of};
use super::{GcReport, Operation, PerWorkspace, Recovered, Sandbox, SandboxState, Target};
use crate::model::{CheckpointId, CommitResult, Conflict, Phase, RelPath, SandboxId};
use crate::store::OperationEnd;
use crate::{Error, Result};

impl SandboxManager {
    /// Puts right what killed processes left, and tells what it did. Cheap where there is nothing: call it first in
    /// every command. What cannot be put right now is told too, and tried again next time. What only a plugin can put right waits until
    /// somebody uses that sandbox, or for `reconcile` or `gc`: a plugin that hangs must not hold up a command that has nothing to do with it.
    pub fn recover(&self) -> Result<Vec<Recovered>> {
        // Of one that is gone there is only a directory of ours left: nobody has to be asked for that.
        let is_ours = |sandbox: &Sandbox| sandbox.state.is_gone() || self.is_at_hand(sandbox);
        let mut all = self.recover_whatever(is_ours)?;
        all.extend(self.left_to_others()?);
        Ok(all)
    }

    /// Environments that were left half done and are not ours to see to: nobody would look for them who is not told.
    fn left_to_others(&self) -> Result<Vec<Recovered>> {
        let mut all = Vec::new();
        let is_theirs = |sandbox: &Sandbox| {
            sandbox.environment.is_some() && !sandbox.state.is_gone() && !self.is_at_hand(sandbox)
        };
        for id in self.store.unfinished()? {
            let left = self.store.sandbox(&id)?.is_some_and(|sandbox| is_theirs(&sandbox));
            if !left || SandboxLock::is_held(&self.sandbox_dir(&id)) {
                continue;
            }
            let message = "a command was killed at work in it, and putting that right takes a plugin, or another machine; \
                           `sandbox reconcile` starts it";
            all.push(Recovered { failed: true, ..told(&id, message.to_owned()) });
        }
        Ok(all)
    }

    /// The same for the sandboxes that are meant.
    pub(super) fn recover_whatever(&self, is_meant: impl Fn(&Sandbox) -> bool) -> Result<Vec<Recovered>> {
        let mut all = Vec::new();
        for id in self.store.unfinished()? {
            if self.store.sandbox(&id)?.is_some_and(|sandbox| !is_meant(&sandbox)) {
                continue;
            }
            match self.recover_if_free(&id) {
                Ok(recovered) => all.extend(recovered),
                Err(error) => all.push(Recovered { failed: true, ..told(&id, explain(&error)) }),
            }
        }
        Ok(all)
    }

    fn recover_if_free(&self, id: &SandboxId) -> Result<Vec<Recovered>> {
        let Some(_lock) = self.try_lock(id)? else { return Ok(Vec::new()) };
        let recovered = self.recover_locked(id)?;
        self.drop_dir_of_closed(id);
        Ok(recovered)
    }

    /// The same for one sandbox whose lock the caller holds.
    pub(super) fn recover_locked(&self, id: &SandboxId) -> Result<Vec<Recovered>> {
        let Some(sandbox) = self.store.sandbox(id)? else { return Ok(Vec::new()) };
        match sandbox.state {
            SandboxState::Requested | SandboxState::Provisioning => {
                Ok(vec![self.remove_half_made(&sandbox)?])
            }
            SandboxState::Destroying => {
                // Tried before it is logged: what fails again at every command is told, and not logged each time.
                self.take_down(&sandbox)?;
                self.destroy_locked(&sandbox)?;
                self.remove_leftovers(id)?;
                Ok(vec![told(id, format!("finished destroying sandbox {}", sandbox.name))])
            }
            SandboxState::Parked => self.recover_all_operations(&sandbox),
            SandboxState::Destroyed | SandboxState::Failed => {
                self.finish_closing(&sandbox).map(|()| Vec::new())
            }
            SandboxState::Ready | SandboxState::Active => self.recover_all_operations(&sandbox),
        }
    }

    /// All that was left to do was to remove the directory.
    fn finish_closing(&self, sandbox: &Sandbox) -> Result<()> {
        self.remove_dir(&self.sandbox_dir(&sandbox.id))?;
        let unfinished = self.store.unfinished_operations(&sandbox.id)?;
        let ends: Vec<_> = unfinished.iter().map(|operation| end_with_sandbox(sandbox, operation)).collect();
        self.store.end_all(&ends)
    }

    /// Finishes or forgets what was begun in a sandbox whose lock the caller holds.
    pub(super) fn recover_operations(&self, id: &SandboxId) -> Result<()> {
        match self.store.sandbox(id)? {
            Some(sandbox)
                if matches!(sandbox.state, SandboxState::Requested | SandboxState::Provisioning) =>
            {
                self.remove_half_made(&sandbox).map(drop)
            }
            Some(sandbox) if !sandbox.state.is_gone() => self.recover_all_operations(&sandbox).map(drop),
            _ => Ok(()),
        }
    }

    fn recover_all_operations(&self, sandbox: &Sandbox) -> Result<Vec<Recovered>> {
        let unfinished = self.store.unfinished_operations(&sandbox.id)?;
        if !unfinished.is_empty() && sandbox.state.is_open() {
            // Whoever held its environment still let go of it by dying; held once more and let go of, it runs.
            let held = self.hold_environment_still(sandbox)?;
            if self.is_unsent(&sandbox.id) {
                std::mem::forget(held);
            }
        }
        unfinished.iter().map(|operation| self.recover_operation(sandbox, operation)).collect()
    }

    fn recover_operation(&self, sandbox: &Sandbox, operation: &Operation) -> Result<Recovered> {
        let target = target_of(sandbox, operation);
        self.check_settled(operation)?;
        match (operation.kind.as_str(), operation.state.as_str()) {
            (_, "decided") => self.roll_forward(&target, operation),
            ("commit" | "undo", _) if operation.details["mode"] == TWO_PHASE => {
                self.abort_each(&pieces_of(&target))?;
                self.end_quietly(
                    operation,
                    "aborted",
                    "interrupted before it was decided; nothing was committed",
                )
            }
            ("commit" | "undo", _) if self.can_finish(&target)? => {
                // What was only prepared is aborted. Only a strategy that says that it is decided has it finished.
                match self.abort_each(&pieces_of(&target)) {
                    Err(error) if !error.is_already_decided() => Err(error),
                    _ => self.roll_forward(&target, operation),
                }
            }
            ("commit" | "undo", _) => {
                let summary = "interrupted; what it had changed by then is not known: look at the original";
                self.end_quietly(operation, "failed", summary)
            }
            ("park", _) if sandbox.state.is_open() => {
                self.finish_parking(&target, operation)?;
                Ok(told(&sandbox.id, format!("finished parking sandbox {}", sandbox.name)))
            }
            ("unpark", _) if sandbox.state == SandboxState::Parked => {
                self.park_again(&sandbox.id)?;
                self.end_quietly(operation, "failed", "interrupted; it is still parked")
            }
            ("unpark", _) => {
                self.end_unparking(sandbox, operation)?;
                Ok(told(&sandbox.id, format!("finished taking up sandbox {}", sandbox.name)))
            }
            ("recreate", _) => {
                self.forget_half_made_environment(sandbox)?;
                self.end_quietly(
                    operation,
                    "failed",
                    "interrupted; `sandbox recreate` makes the environment again",
                )
            }
            ("checkpoint", _) => {
                self.describe(sandbox)?;
                self.end_quietly(operation, "failed", "interrupted")
            }
            ("rollback" | "restore", _) if self.can_repeat(&target)? => {
                self.tidy(sandbox);
                self.repeat(&target, operation)
            }
            ("rollback" | "restore" | "refresh" | "write", _) => {
                self.tidy(sandbox);
                self.end_quietly(operation, "failed", "interrupted")
            }
            _ => self.end_quietly(operation, "failed", "interrupted"),
        }
    }

    /// Whether a rollback or restore can be done again here: by the file engine, on trees that are not copied to another machine.
    fn can_repeat(&self, target: &Target) -> Result<bool> {
        if target.workspaces.is_empty()
            || !target.sandbox.state.is_open()
            || self.has_copies(&target.sandbox)?
        {
            return Ok(false);
        }
        let mut abilities = target.workspaces.iter().map(|w| self.capabilities_of(w));
        abilities.try_fold(true, |all, one| one.map(|can| all && can.two_phase && can.file_tree))
    }

    /// Finishes an interrupted rollback or restore by doing it again: half of it is a mixture of two states, which the next
    /// commit would take. One that fails again is not tried a second time, because a new one has to be possible.
    fn repeat(&self, target: &Target, operation: &Operation) -> Result<Recovered> {
        let _quiet = self.parts.runtime.quiesce(&target.sandbox.id)?;
        match self.repeat_each(target, operation) {
            Ok((summary, details)) => {
                let summary = format!("{summary} (after an interruption)");
                let id = operation.id.clone();
                self.store.end(&OperationEnd { id, state: "recovered", summary, details })?;
                let message = format!("finished {} {}", operation.kind, operation.id);
                Ok(told(&operation.sandbox_id, message))
            }
            Err(error) => {
                let summary = format!(
                    "interrupted, and it failed when it was repeated ({}); repeat it before you commit",
                    explain(&error)
                );
                Ok(Recovered { failed: true, ..self.end_quietly(operation, "failed", &summary)? })
            }
        }
    }

    fn repeat_each(&self, target: &Target, operation: &Operation) -> Result<(String, Value)> {
        if operation.kind == "restore" {
            let checkpoint: CheckpointId = planned(operation, "checkpoint")?;
            return Ok(told_restore(&self.restore_each(target, &checkpoint)?, &checkpoint));
        }
        let paths: Vec<RelPath> = planned(operation, "paths")?;
        Ok(told_rollback(&self.rollback_each(target, &paths)?, "rolled back"))
    }

    /// Has strategies remove what they were about to write, as after a commit that came to nothing. It only takes room.
    fn tidy(&self, sandbox: &Sandbox) {
        let can = |w: &&super::Workspace| self.capabilities_of(w).is_ok_and(|can| can.two_phase);
        for workspace in sandbox.workspaces.iter().filter(can) {
            let _ = self.commit_phase(workspace, Phase::Abort);
        }
    }

    fn can_finish(&self, target: &Target) -> Result<bool> {
        let mut abilities = target.workspaces.iter().map(|w| self.capabilities_of(w).map(|c| c.two_phase));
        abilities.try_fold(true, |all, one| one.map(|one| all && one))
    }

    fn roll_forward(&self, target: &Target, operation: &Operation) -> Result<Recovered> {
        let finished = self.finish_each(&pieces_of(target));
        let finished = finished.map_err(|error| Error::unfinished(&target.sandbox.name, error))?;
        let results = named(target, finished);
        let decided = operation.state == "decided";
        if !decided && !results.iter().any(|(_, result)| did_something(result)) {
            return self.end_quietly(operation, "aborted", "interrupted; there was nothing left to finish");
        }
        self.end_logged(operation, &recovered_end(operation, &results))?;
        let conflicts: Vec<Conflict> = results.into_iter().flat_map(|(_, result)| result.conflicts).collect();
        let message = match conflicts.len() {
            0 => format!("finished {} {}", operation.kind, operation.id),
            n => format!("finished {} {} but for {}", operation.kind, operation.id, counted(n, "conflict")),
        };
        Ok(Recovered { sandbox_id: operation.sandbox_id.clone(), message, conflicts, failed: false })
    }

    fn end_quietly(&self, operation: &Operation, state: &'static str, summary: &str) -> Result<Recovered> {
        self.store.end(&end(operation, state, summary))?;
        Ok(told(&operation.sandbox_id, format!("{} {}: {summary}", operation.kind, operation.id)))
    }

    fn remove_half_made(&self, sandbox: &Sandbox) -> Result<Recovered> {
        self.take_down(sandbox)?;
        self.cleanup_half_made(sandbox)?;
        self.remove_leftovers(&sandbox.id)?;
        let unfinished = self.store.unfinished_operations(&sandbox.id)?;
        let ends: Vec<_> = unfinished.iter().map(|operation| end_with_sandbox(sandbox, operation)).collect();
        self.close(&sandbox.id, SandboxState::Failed, &ends)?;
        Ok(told(&sandbox.id, format!("removed half-made sandbox {}", sandbox.name)))
    }

    /// Directories that a strategy was killed over: no ref names them.
    fn remove_leftovers(&self, id: &SandboxId) -> Result<()> {
        let mut report = GcReport::default();
        self.remove_orphans(Some(id), false, &mut report)
    }
}

/// The workspaces that an operation was about.
pub(super) fn target_of(sandbox: &Sandbox, operation: &Operation) -> Target {
    let names = operation.details["workspaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_meant = |name: &str| names.iter().any(|value| value == &Value::from(name));
    let workspaces = sandbox.workspaces.iter().filter(|w| is_meant(&w.name)).cloned().collect();
    let target = Target { sandbox: sandbox.clone(), workspaces };
    logged_as(target, &operation.id, undone_by(operation).as_ref())
}

/// What an operation noted under `key` when it began.
fn planned<T: DeserializeOwned>(operation: &Operation, key: &str) -> Result<T> {
    serde_json::from_value(operation.details[key].clone())
        .map_err(|error| Error::refused(format!("its {key} cannot be read from the log: {error}")))
}

fn told(id: &SandboxId, message: String) -> Recovered {
    Recovered { sandbox_id: id.clone(), message, conflicts: Vec::new(), failed: false }
}

fn end(operation: &Operation, state: &'static str, summary: &str) -> OperationEnd {
    let (id, details) = (operation.id.clone(), operation.details.clone());
    OperationEnd { id, state, summary: summary.to_owned(), details }
}

/// The decision's digest where there was one; what finishing found, otherwise.
pub(super) fn recovered_end(operation: &Operation, results: &PerWorkspace<CommitResult>) -> OperationEnd {
    let digests: Vec<_> =
        results.iter().map(|(name, result)| (name.clone(), result.digest.clone())).collect();
    let digest =
        operation.details["digest"].as_str().map_or_else(|| combined_digest(&digests), str::to_owned);
    let mut end = commit_end(operation, "recovered", &digest, results);
    end.summary = format!("{} (after an interruption)", end.summary);
    end
}
