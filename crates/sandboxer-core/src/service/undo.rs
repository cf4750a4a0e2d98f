//! Taking commits back, and looking at what an operation did.
//!
//! An undo is a commit of the inverse: prepared, decided and finished by the same coordinator, logged as an operation of its
//! own, and itself something that can be taken back.

use std::path::PathBuf;

use serde_json::json;

use super::commit::{BRANCH, logged_as, mode_of, names, only, undone_by};
use super::manager::SandboxManager;
use super::manager::new_operation;
use super::together::{Member, Undertaking};
use super::{Operation, Sandbox, SandboxState, Target, Undone};
use crate::model::{CommitRequest, Conflict, OpId, SandboxId};
use crate::policy::CommitRules;
use crate::{Error, Result};

/// What begins every operation's id.
const PREFIX: &str = "op_";
/// Fewer characters than this name no operation.
const SHORTEST: usize = 4;

impl SandboxManager {
    /// The operation that `text` names: an id or a unique beginning of one.
    pub fn find_operation(&self, text: &str) -> Result<Operation> {
        let rest = text.to_ascii_lowercase();
        let rest = rest.strip_prefix(PREFIX).unwrap_or(&rest);
        if rest.len() < SHORTEST {
            return Err(Error::not_found("operation", text));
        }
        let mut found = self.store.operations_called(&format!("{PREFIX}{rest}"), 2)?;
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(Error::not_found("operation", text)),
            (Some(_), false) => Err(Error::Usage {
                message: format!("{text:?} is the beginning of several operations' ids"),
                hint: Some("give more of the id; `sandbox log` shows it".to_owned()),
            }),
        }
    }

    /// The newest commit that can be taken back: of one sandbox, or of any.
    pub fn last_commit(&self, sandbox: Option<&Sandbox>) -> Result<Operation> {
        let found = self.store.last_commit(sandbox.map(|s| &s.id))?;
        found.ok_or_else(|| Error::NotFound {
            what: "commit to take back",
            name: sandbox.map_or("in any sandbox", |s| s.name.as_str()).to_owned(),
            similar: Vec::new(),
        })
    }

    /// Takes a commit back, where nothing has changed on top of it since; its changes are pending again.
    pub fn undo(&self, operation: &Operation) -> Result<Undone> {
        check_undoable(operation)?;
        let taken_up = self.take_up_if_parked(operation)?;
        self.undo_open(operation).inspect_err(|_| {
            if let Some((parked, pinned)) = &taken_up {
                // The failure of the undo matters more than one of putting it away.
                let _ = self.put_back(parked, *pinned);
            }
        })
    }

    /// The same where the sandbox is open.
    fn undo_open(&self, operation: &Operation) -> Result<Undone> {
        let target = self.target_of_operation(operation)?;
        self.permit_on(&target, "undo")?;
        let (mut still, target) = self.lock_still(&target)?;
        // Somebody may have taken it back while we waited.
        let operation = self.find_operation(operation.id.as_str())?;
        check_undoable(&operation)?;
        self.check_can_undo(&target)?;
        // A commit that was made again is kept under the name of what made it so.
        let standing = self.store.redo_of(&operation.id)?.unwrap_or_else(|| operation.clone());
        let undone = &standing.id;
        let mut details = json!({"mode": mode_of(&target), "workspaces": names(&target), "undoes": undone});
        if let Some(commit) = self.commit_made_again(&standing)? {
            details["redoes"] = json!(commit);
        }
        let undo = new_operation(&target.sandbox.id, "undo", details);
        let logged = logged_as(target.clone(), &undo.id, Some(undone));
        let task = Undertaking {
            members: vec![Member { target: logged, operation: undo }],
            plan: None,
            request: &CommitRequest::default(),
            rules: &CommitRules { accept_flags: true, ..CommitRules::default() },
            dry_run: false,
        };
        let (stills, targets) = (std::slice::from_mut(&mut still), std::slice::from_ref(&target));
        let commit = self.undertake_and_send(stills, targets, task).and_then(only);
        let commit = commit.map_err(|error| self.explain_conflicts(error, &standing))?;
        Ok(Undone { sandbox: target.sandbox, operation, commit })
    }

    /// What takes a commit back outlives the sandbox's use: a parked one is taken up again. Returns it as it was, and
    /// whether it was pinned.
    fn take_up_if_parked(&self, operation: &Operation) -> Result<Option<(Sandbox, bool)>> {
        let sandbox = self.store.sandbox(&operation.sandbox_id)?;
        let Some(parked) = sandbox.filter(|s| s.state == SandboxState::Parked) else { return Ok(None) };
        let pinned = self.store.kept()?.iter().any(|k| k.item == parked.id.as_str() && k.pinned);
        self.unpark(&parked, None)?;
        Ok(Some((parked, pinned)))
    }

    /// Parks again what was taken up for an undo that came to nothing.
    fn put_back(&self, sandbox: &Sandbox, pinned: bool) -> Result<()> {
        let target = Target { sandbox: sandbox.clone(), workspaces: sandbox.workspaces.clone() };
        let (_still, target) = self.lock_still(&target)?;
        self.park_locked(&target, self.pending(&target), "an undo came to nothing")?;
        self.pin_parked(sandbox, pinned)
    }

    /// The commit that taking `operation` back makes again: where it is the undo of one, or of what made one again.
    fn commit_made_again(&self, operation: &Operation) -> Result<Option<OpId>> {
        let redoes = |operation: &Operation| operation.details["redoes"].as_str().map(OpId::from_string);
        let Some(undone) = undone_by(operation).filter(|_| redoes(operation).is_none()) else {
            return Ok(None);
        };
        let undone = self.find_operation(undone.as_str())?;
        Ok(Some(redoes(&undone).unwrap_or(undone.id)))
    }

    fn target_of_operation(&self, operation: &Operation) -> Result<Target> {
        let sandbox = self.store.sandbox(&operation.sandbox_id)?;
        let sandbox = sandbox.filter(|s| s.state.is_open()).ok_or_else(|| Error::Refused {
            reason: format!("{} cannot be taken back: its sandbox is gone", operation.id),
            hint: Some("change the files back by hand, or in a new sandbox".to_owned()),
        })?;
        let is_meant = |name: &str| {
            let names = operation.details["workspaces"].as_array();
            names.is_some_and(|names| names.iter().any(|n| n == name))
        };
        let workspaces = sandbox.workspaces.iter().filter(|w| is_meant(&w.name)).cloned().collect();
        Ok(Target { sandbox, workspaces })
    }

    fn check_can_undo(&self, target: &Target) -> Result<()> {
        for workspace in &target.workspaces {
            if !self.capabilities_of(workspace)?.undo {
                return Err(Error::Unsupported {
                    strategy: workspace.sandbox_ref.strategy_name.clone(),
                    what: "take a commit back",
                    reason: "it does not keep what a commit replaces".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Names the operation that changed a path on top, where the log knows one.
    fn explain_conflicts(&self, error: Error, operation: &Operation) -> Error {
        let later = self.store.commits_since(&operation.id).unwrap_or_default();
        map_conflicts(error, &|mut conflict| {
            if let Some(by) = later.iter().rev().find(|op| touches(op, &conflict)) {
                conflict.reason = format!("{} (by {} {})", conflict.reason, by.kind, by.id);
            }
            conflict
        })
    }

    /// Where the patch of an operation is kept, workspace by workspace, as far as it still is.
    pub fn patches_of(&self, operation: &Operation) -> Result<Vec<(String, PathBuf)>> {
        let Some(sandbox) = self.store.sandbox(&operation.sandbox_id)? else { return Ok(Vec::new()) };
        let patch = |workspace: &super::Workspace| {
            let history = workspace.sandbox_ref.text("history")?;
            let path = PathBuf::from(history).join(operation.id.as_str()).join("patch");
            path.is_file().then(|| (workspace.name.clone(), path))
        };
        Ok(sandbox.workspaces.iter().filter_map(patch).collect())
    }

    /// A sandbox by its id, also one that is gone.
    pub fn sandbox_by_id(&self, id: &SandboxId) -> Result<Option<Sandbox>> {
        self.store.sandbox(id)
    }
}

fn check_undoable(operation: &Operation) -> Result<()> {
    let id: &OpId = &operation.id;
    if let Some(branch) = operation.details[BRANCH].as_str() {
        return Err(Error::Refused {
            reason: format!("{id} only left branch {branch}, and changed nothing that could be taken back"),
            hint: Some(
                "delete the branch with `git branch -D`; what is on it is still pending in the sandbox"
                    .to_owned(),
            ),
        });
    }
    let reason = match (operation.kind.as_str(), operation.state.as_str()) {
        ("commit" | "undo", "done" | "recovered") => return Ok(()),
        ("commit" | "undo", "undone") => format!("{id} is taken back already"),
        ("commit" | "undo", "running" | "decided") => format!("{id} is still under way"),
        ("commit" | "undo", _) => format!("{id} did nothing that could be taken back"),
        (kind, _) => format!("{id} is a {kind}; only commits can be taken back"),
    };
    Err(Error::Refused { reason, hint: Some("`sandbox log` shows what was done".to_owned()) })
}

/// Whether an operation changed the path of a conflict.
fn touches(operation: &Operation, conflict: &Conflict) -> bool {
    let paths = operation.details["paths"].as_array();
    let path = json!(conflict.path);
    paths.is_some_and(|paths| paths.iter().any(|entry| entry["path"] == path))
}

fn map_conflicts(error: Error, change: &dyn Fn(Conflict) -> Conflict) -> Error {
    match error {
        Error::Conflict { conflicts } => {
            Error::Conflict { conflicts: conflicts.into_iter().map(change).collect() }
        }
        Error::Workspace { workspace, source } => {
            Error::Workspace { workspace, source: Box::new(map_conflicts(*source, change)) }
        }
        other => other,
    }
}
