//! Work that nobody committed is put away, not thrown away.
//!
//! A sandbox that ends with uncommitted work is *parked*: its strategies remove what they can make again, its name and its
//! place are free, and the work waits until somebody takes it up again or says that it can go.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::budget::disk_use;
use super::commit::names;
use super::descriptor::Descriptor;
use super::manager::{SandboxManager, counted, in_workspace, new_operation};
use super::{
    KeptItem, Operation, ParkedSandbox, Sandbox, SandboxState, Target, Uncommitted, Workspace,
    names as naming,
};
use crate::model::{Part, SandboxId, SandboxRef};
use crate::store::{Naming, OperationEnd, Reservation};
use crate::{Error, Result};

/// Parked work.
pub(super) const PARKED: &str = "parked";
/// The property of a resource that has a strategy bring a parked workspace back instead of making one.
pub(super) const BRING_BACK: &str = "parked";
/// A parked sandbox without work, kept for what takes its commits back.
pub(super) const HISTORY: &str = "history";

impl SandboxManager {
    /// What is parked, newest first.
    pub fn parked(&self) -> Result<Vec<ParkedSandbox>> {
        let kept = self.store.kept()?;
        let of = |sandbox: Sandbox| {
            let is_it =
                |k: &&KeptItem| [PARKED, HISTORY].contains(&k.kind.as_str()) && k.sandbox_id == sandbox.id;
            let item = kept.iter().find(is_it)?;
            let operations = self.store.operations(Some(&sandbox.id), usize::MAX).unwrap_or_default();
            let summary = operations.into_iter().find(|op| op.kind == "park").map(|op| op.summary);
            Some(ParkedSandbox {
                parked_at: item.created_at,
                bytes: item.bytes,
                pinned: item.pinned,
                summary: summary.unwrap_or_default(),
                sandbox,
            })
        };
        Ok(self.store.parked()?.into_iter().filter(|sandbox| self.sees(sandbox)).filter_map(of).collect())
    }

    /// The parked sandbox that `selector` names.
    pub fn find_parked(&self, selector: &str) -> Result<Sandbox> {
        let mut parked = self.store.parked()?;
        parked.retain(|sandbox| self.sees(sandbox));
        if let Some(found) = parked.iter().find(|s| s.id.as_str() == selector || s.name == selector) {
            return Ok(found.clone());
        }
        let matching: Vec<_> = parked.iter().filter(|s| is_beginning(selector, s.id.as_str())).collect();
        match matching[..] {
            [only] => Ok(only.clone()),
            [] => {
                let names: Vec<String> = parked.iter().map(|s| s.name.clone()).collect();
                let similar = crate::resolve::nearest(selector, names.iter());
                Err(Error::NotFound { what: "parked sandbox", name: selector.to_owned(), similar })
            }
            _ => Err(Error::usage(format!("{selector:?} is the beginning of several parked sandboxes' ids"))),
        }
    }

    /// Has budgets leave a parked sandbox alone, or not any more.
    pub fn pin_parked(&self, sandbox: &Sandbox, pinned: bool) -> Result<()> {
        for kind in [PARKED, HISTORY] {
            self.store.pin(&sandbox.id, kind, sandbox.id.as_str(), pinned)?;
        }
        Ok(())
    }

    /// Puts a sandbox away that is of no more use but for taking its commits back; one that has none is removed.
    pub fn put_away(&self, target: &Target, why: &str) -> Result<()> {
        self.permit_on(target, "destroy")?;
        let (_lock, target) = self.lock_open(target)?;
        self.bring_in_last(&target.sandbox)?;
        let has_undo = |item: &KeptItem| item.kind == "undo" && item.sandbox_id == target.sandbox.id;
        let whole = target.workspaces.len() == target.sandbox.workspaces.len();
        match whole && self.store.kept()?.iter().any(has_undo) {
            true => self.park_locked(&target, self.pending(&target), why),
            false => self.end_locked(target.sandbox, Uncommitted::Park, why).map(drop),
        }
    }

    /// Puts a sandbox away whose lock the caller holds.
    pub(super) fn park_locked(&self, target: &Target, changes: usize, why: &str) -> Result<()> {
        let details = json!({"workspaces": names(target), "changes": changes, "why": why});
        let operation = new_operation(&target.sandbox.id, "park", details);
        self.store.begin(&operation)?;
        flush(target, &operation).map_err(|error| self.log_failure(&operation, error))?;
        self.slim_and_record(target, &operation)
    }

    /// Parks what somebody was interrupted at. Can be repeated.
    pub(super) fn finish_parking(&self, target: &Target, operation: &Operation) -> Result<()> {
        self.bring_in_last(&target.sandbox)?;
        flush(target, operation)?;
        self.slim_and_record(target, operation)
    }

    /// Puts away what is not yet, and writes it down.
    fn slim_and_record(&self, target: &Target, operation: &Operation) -> Result<()> {
        let target = &self.without_environment(target)?;
        for workspace in &target.workspaces {
            self.slim(workspace).map_err(in_workspace(&target.sandbox, workspace))?;
        }
        let parked = Sandbox { state: SandboxState::Parked, ..target.sandbox.clone() };
        self.describe(&parked)?;
        let bytes = target.workspaces.iter().filter_map(home_of).map(disk_use).sum();
        let changes = operation.details["changes"].as_u64().unwrap_or(0) as usize;
        let why = operation.details["why"].as_str().unwrap_or("destroyed");
        let (kind, summary) = match changes {
            0 => (HISTORY, format!("put away, its commits can be taken back: {why}")),
            _ => (PARKED, format!("parked with {}: {why}", counted(changes, "uncommitted change"))),
        };
        let details = operation.details.clone();
        self.store.park(
            &parked.id,
            kind,
            bytes,
            &OperationEnd { id: operation.id.clone(), state: "done", summary, details },
        )?;
        // It is parked, whatever comes of making room.
        let _ = self.keep_within_budget(Some(&parked.id));
        Ok(())
    }

    /// Removes what can be made again. What cannot be slimmed now is kept as it stands: work is worth more than room.
    fn slim(&self, workspace: &Workspace) -> Result<()> {
        if !self.capabilities_of(workspace).is_ok_and(|can| can.parts) {
            return Ok(());
        }
        let part = workspace.sandbox_ref.clone().for_part(&Part::Unchanged);
        match self.strategy_of(workspace)?.cleanup(&part) {
            Err(Error::Cancelled) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// Takes a parked sandbox up again, under `name`, or its own with a number where that is taken.
    pub fn unpark(&self, sandbox: &Sandbox, name: Option<&str>) -> Result<Sandbox> {
        if let Some(name) = name {
            naming::check("sandbox", name)?;
        }
        let target = Target { workspaces: sandbox.workspaces.clone(), sandbox: sandbox.clone() };
        self.permit_on(&target, "unpark")?;
        let _lock = self.lock(&sandbox.id)?;
        let still = self.store.sandbox(&sandbox.id)?.filter(|s| s.state == SandboxState::Parked);
        let sandbox = still.ok_or_else(|| Error::not_found("parked sandbox", sandbox.name.as_str()))?;
        let operation = new_operation(&sandbox.id, "unpark", json!({}));
        self.store.begin(&operation)?;
        let naming =
            name.map_or(Naming::Derived(sandbox.name.clone()), |name| Naming::Exact(name.to_owned()));
        self.unpark_all(&sandbox, &naming, &operation).map_err(|error| {
            let _ = self.park_again(&sandbox.id);
            self.log_failure(&operation, error)
        })
    }

    /// Removes what an unparking that came to nothing has made; the sandbox is parked as before.
    pub(super) fn park_again(&self, id: &SandboxId) -> Result<()> {
        let parked = self.store.sandbox(id)?.filter(|s| s.state == SandboxState::Parked);
        let workspaces = parked.map(|sandbox| sandbox.workspaces).unwrap_or_default();
        workspaces.iter().try_for_each(|workspace| self.slim(workspace))
    }

    fn unpark_all(&self, sandbox: &Sandbox, naming: &Naming, operation: &Operation) -> Result<Sandbox> {
        for (position, workspace) in sandbox.workspaces.iter().enumerate() {
            let made = self.fill_up(sandbox, workspace).map_err(|error| where_it_lies(workspace, error));
            let made = made.map_err(in_workspace(sandbox, workspace))?;
            self.store.set_ref(&sandbox.id, position, &made, &workspace.reason)?;
        }
        match self.store.unpark(&self.limits_on_taking_up(&sandbox.consumer), sandbox, naming)? {
            Reservation::NameTaken(holder) => {
                return Err(Error::Usage {
                    message: format!("the name {:?} is taken by sandbox {}", holder.name, holder.id),
                    hint: Some("choose another with --name".to_owned()),
                });
            }
            Reservation::OverQuota(standing) => return Err(self.over_quota(&standing, &sandbox.consumer)),
            _ => {}
        }
        let open = self
            .store
            .sandbox(&sandbox.id)?
            .ok_or_else(|| Error::not_found("sandbox", sandbox.name.as_str()))?;
        self.end_unparking(&open, operation)?;
        Ok(open)
    }

    /// What is left to do once the sandbox is open again. Can be repeated.
    pub(super) fn end_unparking(&self, sandbox: &Sandbox, operation: &Operation) -> Result<()> {
        self.describe(sandbox)?;
        let (id, details) = (operation.id.clone(), operation.details.clone());
        self.store.end(&OperationEnd { id, state: "done", summary: "taken up again".to_owned(), details })
    }

    /// Writes beside the sandbox what the store knows of it, for `adopt`.
    pub(super) fn describe(&self, sandbox: &Sandbox) -> Result<()> {
        let checkpoints = self.store.checkpoints(&sandbox.id)?;
        Descriptor { sandbox: sandbox.clone(), checkpoints }.write(&self.sandbox_dir(&sandbox.id))
    }

    /// Sees to it that what a path leads to is there: what is only there while something keeps it may be gone.
    pub fn bring_up(&self, target: &Target) -> Result<()> {
        for workspace in &target.workspaces {
            if self.capabilities_of(workspace)?.looks_through {
                let made = self.fill_up(&target.sandbox, workspace);
                made.map_err(in_workspace(&target.sandbox, workspace))?;
            }
        }
        Ok(())
    }

    /// Has a strategy make again what it removed.
    fn fill_up(&self, sandbox: &Sandbox, workspace: &Workspace) -> Result<SandboxRef> {
        let home = workspace.sandbox_ref.text("dir");
        let Some(home) = home.filter(|_| self.capabilities_of(workspace).is_ok_and(|can| can.parts)) else {
            return Ok(workspace.sandbox_ref.clone());
        };
        let mut resource = workspace.resource.clone();
        resource.properties.insert(BRING_BACK.to_owned(), json!(home));
        self.strategy_of(workspace)?.create(&sandbox.plan_id, &resource)
    }
}

/// Flushes what the workspaces hold: once it is parked nobody has it but us, and it has to outlast a power cut.
fn flush(target: &Target, operation: &Operation) -> Result<()> {
    if operation.details["changes"] == 0 {
        return Ok(());
    }
    for home in target.workspaces.iter().filter_map(home_of).filter(|home| home.exists()) {
        let dir = std::fs::File::open(home).map_err(|e| Error::io("open directory", home, e))?;
        rustix::fs::syncfs(&dir).map_err(|e| Error::io("flush", home, e))?;
    }
    Ok(())
}

/// Says, where there is nothing any more that the work could be laid over, where it lies. Any other failure stays.
fn where_it_lies(workspace: &Workspace, error: Error) -> Error {
    let Some(original) = workspace.resource.path() else { return error };
    let work = workspace.sandbox_ref.text("work").map(PathBuf::from);
    let Some(work) = work.or_else(|| workspace.sandbox_ref.sandbox_path()).filter(|work| work.exists())
    else {
        return error;
    };
    let what = match std::fs::metadata(original) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => "is gone",
        Ok(found) if work.is_dir() && !found.is_dir() => "is not a directory any more",
        Ok(found) if !work.is_dir() && found.is_dir() => "is a directory now",
        _ => return error,
    };
    Error::Refused {
        reason: format!(
            "the original {} {what}; the work is still parked, its files are in {}",
            original.display(),
            work.display()
        ),
        hint: Some("bring the original back and type it again, or copy the files from there".to_owned()),
    }
}

/// Where a workspace is kept.
pub(super) fn home_of(workspace: &Workspace) -> Option<&Path> {
    workspace.sandbox_ref.text("dir").map(Path::new)
}

fn is_beginning(text: &str, id: &str) -> bool {
    let rest = id.strip_prefix("sbx_").unwrap_or(id);
    text.len() >= 4 && (id.starts_with(text) || rest.starts_with(text))
}
