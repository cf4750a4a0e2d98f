//! A strategy that is somebody else's process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::contract::{CancelFlag, Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffEntry, DiffView, OnConflict, Phase, PlanId,
    RelPath, Resource, RollbackResult, SandboxRef,
};
use sandboxer_core::{Error, Result};
use sandboxer_fs::scratch::NewWorkspace;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answers::{self, Read, Tell};
use super::failure::from_wire;
use super::locks::Locks;
use super::places::{self, Places};
use super::refs::{self, SCRATCH};
use super::trust;
use crate::envelope::connection::Answer;
use crate::envelope::plugin::{Failure, Plugin};
use crate::envelope::secrets::in_one_piece;

/// The properties that name a workspace which is there already.
const EXISTING: [&str; 2] = ["parked", "refresh"];

/// What is said of a commit that may have happened.
const IN_DOUBT: &str = "what it had changed by then is not known: look at the original";

/// The nine methods of a plugin. What it does not declare never reaches it.
pub struct PluginStrategy {
    pub(super) plugin: Arc<Plugin>,
    pub(super) capabilities: Capabilities,
    pub(super) places: Places,
    /// `None` where the plugin takes the resource's lock itself.
    pub(super) locks: Option<Locks>,
    pub(super) cancel: CancelFlag,
}

impl PluginStrategy {
    fn name(&self) -> &str {
        self.plugin.name()
    }

    /// Asks for what may be left half done; nothing that changes anything is.
    fn look(&self, method: &str, params: &impl Serialize) -> Result<Answer> {
        self.told(method, self.plugin.call(method, params, &[], Some(&self.cancel)))
    }

    fn act(&self, method: &str, params: &impl Serialize) -> Result<Box<RawValue>> {
        Ok(self.told(method, self.plugin.call(method, params, &[], None))?.0)
    }

    fn told<T>(&self, method: &str, outcome: Result<T, Failure>) -> Result<T> {
        outcome.map_err(|failure| self.error(method, failure))
    }

    pub(super) fn error(&self, method: &str, failure: Failure) -> Error {
        match failure {
            Failure::Told(error) => from_wire(self.name(), method, error, self.plugin.log().to_path_buf()),
            Failure::Broken { reason, .. } => self.broken(reason),
            Failure::Invalid(problems) => self.plugin.invalid(problems),
            Failure::Cancelled => Error::Cancelled,
        }
    }

    fn broken(&self, reason: impl Into<String>) -> Error {
        let log = Some(self.plugin.log().to_path_buf());
        Error::Plugin { plugin: self.name().to_owned(), reason: reason.into(), log }
    }

    /// An answer of the wrong shape is the plugin's failure.
    fn read_as<T>(&self, method: &str, read: Read<T>) -> Result<T> {
        read.map_err(|why| self.broken(format!("its answer to `{method}` cannot be used: {why}")))
    }

    /// The same for what is told to people and kept.
    fn read_told<T: Tell>(&self, method: &str, read: Read<T>) -> Result<T> {
        let mut answer = self.read_as(method, read)?;
        answer.tell(self.plugin.secrets());
        Ok(answer)
    }

    fn unsupported<T>(&self, what: &'static str, reason: &str) -> Result<T> {
        Err(Error::Unsupported { strategy: self.name().to_owned(), what, reason: reason.to_owned() })
    }

    /// Makes a sandbox in a workspace that is new, or there already.
    fn make(&self, plan: &PlanId, mut resource: Resource, workspace: PathBuf) -> Result<SandboxRef> {
        resource.properties.insert(SCRATCH.to_owned(), json!(places::as_text(&workspace)?));
        let bare = SandboxRef::new(plan.clone(), resource.id.clone(), self.name());
        let answer = self.plugin.call(
            "create",
            &json!({"plan_id": plan, "resource": resource}),
            &[],
            Some(&self.cancel),
        );
        let (half_made, failed) = match answer {
            Ok((said, _)) => match self.accept(&said, &bare, &workspace) {
                Ok(own) => return Ok(self.kept(bare, &own, &workspace)),
                Err(error) => (answers::created(&said).map(|made| made.metadata).unwrap_or_default(), error),
            },
            Err(failure @ (Failure::Broken { sent: false, .. } | Failure::Invalid(_))) => {
                return Err(self.error("create", failure));
            }
            Err(failure) => (Map::new(), self.error("create", failure)),
        };
        // It may have made something. What it says of it now does not matter: the first failure does.
        let half_made = self.kept(bare, &half_made, &workspace);
        let _ = self.plugin.call("cleanup", &json!({"ref": refs::for_plugin(&half_made)}), &[], None);
        Err(failed)
    }

    /// What does not isolate is worked on where it is.
    fn kept(&self, bare: SandboxRef, own: &Map<String, Value>, workspace: &Path) -> SandboxRef {
        let kept = refs::kept(bare, own, workspace, &self.places.state);
        if self.capabilities.isolates { kept } else { kept.anywhere() }
    }

    /// Whether a new ref is one that people can be sent to.
    fn accept(&self, said: &RawValue, bare: &SandboxRef, workspace: &Path) -> Result<Map<String, Value>> {
        let made = self.read_as("create", answers::created(said))?;
        let about = [(made.plan_id, bare.plan_id.as_str()), (made.resource_id, bare.resource_id.as_str())];
        if let Some((Some(other), _)) =
            about.iter().find(|(said, asked)| said.as_deref().is_some_and(|s| s != *asked))
        {
            return Err(
                self.broken(format!("its answer to `create` is about {other:?}, which nobody asked for"))
            );
        }
        match made.metadata.get("path") {
            // What does not isolate works on the resource, and says so.
            Some(Value::String(path))
                if !self.capabilities.isolates && format!("path:{path}") == bare.resource_id.as_str() => {}
            Some(Value::String(path)) => {
                self.places.check_path(path, workspace).map_err(|why| self.broken(why))?;
            }
            None if !self.capabilities.file_tree => {}
            _ => return Err(self.broken("it declares `file_tree`, and its ref has no `path` to work in")),
        }
        let mut own = made.metadata;
        if let Some(reason) = own.get_mut("fallback_reason") {
            self.plugin.secrets().take_out_of(reason);
            if let Value::String(words) = reason {
                *words = in_one_piece(words);
            }
        }
        places::keep_metadata(workspace, &own)?;
        Ok(own)
    }

    /// Brings a sandbox back, or up to date, in the workspace that it has; in the plugin's own terms.
    fn make_again(
        &self,
        plan: &PlanId,
        mut resource: Resource,
        key: &str,
        workspace: PathBuf,
    ) -> Result<SandboxRef> {
        let own = places::kept_metadata(&workspace)?;
        let scratch = json!(places::as_text(&workspace)?);
        let theirs = own.get("dir").cloned().unwrap_or_else(|| scratch.clone());
        resource.properties.insert(key.to_owned(), theirs);
        resource.properties.insert(SCRATCH.to_owned(), scratch);
        let bare = SandboxRef::new(plan.clone(), resource.id.clone(), self.name());
        let said = self.act("create", &json!({"plan_id": plan, "resource": resource}))?;
        let own = self.accept(&said, &bare, &workspace)?;
        Ok(self.kept(bare, &own, &workspace))
    }

    /// What was not declared is refused here: a plugin need not know of it.
    fn check_request(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<()> {
        let can = &self.capabilities;
        let gaps = [
            (request.phase != Phase::Whole && !can.two_phase, "commit in two phases", "it commits at once"),
            (
                !request.paths.is_empty() && !can.select_paths,
                "commit chosen paths",
                "it commits everything or nothing",
            ),
            (!request.hunks.is_empty() && !can.select_hunks, "commit chosen hunks", "it commits whole files"),
            (
                !resolves(can, request.on_conflict),
                "resolve conflicts",
                "it does not keep what its files were made from",
            ),
            (request.branch.is_some() && !can.branches, "commit to branches", "what it isolates has none"),
            (sandbox.undo().is_some() && !can.undo, "take a commit back", "it keeps nothing for that"),
        ];
        match gaps.iter().find(|(is_gap, ..)| *is_gap) {
            Some((_, what, reason)) => self.unsupported(what, reason),
            None => Ok(()),
        }
    }

    /// Commits what is pending, with the resource locked.
    fn commit_locked(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let pending = self.pending(sandbox, request)?;
        let params = json!({"ref": refs::for_plugin(sandbox), "request": request});
        let answer = self.plugin.call("commit", &params, &[], None).map_err(|failure| match failure {
            Failure::Broken { reason, sent: true } if request.phase == Phase::Whole => {
                Failure::Broken { reason: format!("{reason}; {IN_DOUBT}"), sent: true }
            }
            other => other,
        });
        let (said, _) = self.told("commit", answer)?;
        let read = answers::committed(&said, pending.clone()).map_err(|why| match request.phase {
            Phase::Whole => format!("{why}; {IN_DOUBT}"),
            _ => why,
        });
        self.looked_after(sandbox, request, &pending, self.read_told("commit", read))
    }

    /// What a plugin says it has committed, once the host has looked at it too.
    fn looked_after(
        &self,
        sandbox: &SandboxRef,
        request: &CommitRequest,
        pending: &[DiffEntry],
        done: Result<CommitResult>,
    ) -> Result<CommitResult> {
        let told = done.as_ref().map(|done| &done.entries[..]).unwrap_or_default();
        let changes = matches!(request.phase, Phase::Whole | Phase::Finish | Phase::FinishPossible)
            && sandbox.undo().is_none();
        let notices = match changes && self.capabilities.file_tree && self.capabilities.isolates {
            true => trust::take_powers(sandbox, &[pending, told].concat())?,
            false => Vec::new(),
        };
        let mut done = done?;
        done.notices.extend(notices);
        self.flag(sandbox, &mut done.entries);
        let is_reviewed =
            request.phase == Phase::Whole && request.hunks.is_empty() && sandbox.undo().is_none();
        match trust::unreviewed(request, pending, &done).filter(|_| is_reviewed) {
            Some(what) => Err(self.broken(format!(
                "it committed other than was reviewed{what}; look at the original, and at what `sandbox diff` still shows"
            ))),
            None => Ok(done),
        }
    }

    /// In a tree of files the host knows by itself what has to be looked at.
    fn flag(&self, sandbox: &SandboxRef, entries: &mut [DiffEntry]) {
        if self.capabilities.file_tree {
            trust::flag(sandbox, entries);
        }
    }

    /// What is about to be committed; refused where it is not what was reviewed. What chosen hunks come to, and what an undo or a later
    /// phase does, the plugin alone can tell.
    fn pending(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<Vec<DiffEntry>> {
        if request.phase != Phase::Whole || !request.hunks.is_empty() || sandbox.undo().is_some() {
            return Ok(Vec::new());
        }
        let view = self.diff(sandbox)?.select(&request.paths);
        match &request.digest {
            Some(expected) if *expected != view.digest => {
                Err(Error::DigestMismatch { expected: expected.clone(), found: view.digest })
            }
            _ => Ok(view.entries),
        }
    }
}

impl SandboxStrategy for PluginStrategy {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let existing =
            EXISTING.into_iter().find_map(|key| Some((key, resource.properties.get(key)?.as_str()?)));
        if let Some((key, workspace)) = existing {
            return self.make_again(plan_id, resource.clone(), key, PathBuf::from(workspace));
        }
        let new: NewWorkspace = self.places.new_workspace(plan_id, resource)?;
        let reference = self.make(plan_id, resource.clone(), new.path().to_path_buf())?;
        new.keep();
        Ok(reference)
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        Ok(self.look("read", &json!({"ref": refs::for_plugin(sandbox), "path": path}))?.1)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        let params = json!({"ref": refs::for_plugin(sandbox), "path": path});
        let (value, _) = self.told("write", self.plugin.call("write", &params, content, None))?;
        self.read_as("write", answers::change(&value, path, content))
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        let (value, _) = self.look("diff", &json!({"ref": refs::for_plugin(sandbox)}))?;
        let mut view = self.read_told("diff", answers::difference(&value))?;
        self.flag(sandbox, &mut view.entries);
        Ok(view)
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.check_request(sandbox, request)?;
        let commit = || self.commit_locked(sandbox, request);
        match &self.locks {
            Some(locks) => locks.during(sandbox, refs::workspace_of(sandbox)?, request, &self.cancel, commit),
            None => commit(),
        }
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        if !sandbox.scope()?.is_empty() && !self.capabilities.scoped_rollback {
            return self.unsupported("roll back chosen paths", "it rolls back everything or nothing");
        }
        let value = self.act("rollback", &json!({"ref": refs::for_plugin(sandbox)}))?;
        self.read_told("rollback", answers::rolled_back(&value, None, "rolled back"))
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        if !self.capabilities.checkpoints {
            return self.unsupported("take a checkpoint", "it has none");
        }
        let params = json!({"ref": refs::for_plugin(sandbox), "checkpoint_id": checkpoint_id});
        let value = self.act("checkpoint", &params)?;
        self.read_as("checkpoint", answers::kept_at(&value))
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        if !self.capabilities.checkpoints {
            return self.unsupported("restore a checkpoint", "it has none");
        }
        let params = json!({"ref": refs::for_plugin(sandbox), "checkpoint_id": checkpoint_id});
        let value = self.act("restore_checkpoint", &params)?;
        let id = Some(checkpoint_id.clone());
        self.read_told("restore_checkpoint", answers::rolled_back(&value, id, "restored"))
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let is_part = sandbox.metadata.contains_key("part");
        if is_part && !self.capabilities.parts {
            return self.unsupported("clean up a part", "it cleans up everything or nothing");
        }
        let workspace = refs::workspace_of(sandbox)?;
        if is_part && !workspace.exists() {
            return Ok(());
        }
        self.act("cleanup", &json!({"ref": refs::for_plugin(sandbox)}))?;
        if is_part {
            return Ok(());
        }
        self.locks.iter().for_each(|locks| locks.forget(workspace));
        sandboxer_fs::remove_tree(workspace)
    }
}

/// Whether conflicts can be treated in that way.
fn resolves(can: &Capabilities, way: OnConflict) -> bool {
    let plainly = matches!(way, OnConflict::Ours | OnConflict::Theirs) && can.resolves;
    way == OnConflict::Fail || can.keeps_base || plainly
}
