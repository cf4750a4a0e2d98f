//! The way in to every use case, and what all of them share: the parts, the permissions, the locks and the log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::lock::{InUse, SandboxLock};
use super::{Consumer, Operation, Sandbox, SandboxState, Target, Workspace};
use crate::access::Visibility;
use crate::config::Settings;
use crate::contract::{
    CancelFlag, Capabilities, PermissionService, Progress, Quiet, Runtime, SandboxStrategy,
};
use crate::environment::Environments;
use crate::model::{OpId, SandboxId};
use crate::registry::{StrategyContext, StrategyRegistry};
use crate::store::{OperationEnd, Page, PageQuery, Store, now};
use crate::types::ResourceTypes;
use crate::{Error, Result};

/// Everything that a manager works with; all of it comes in as arguments.
pub struct ManagerParts {
    /// The state directory.
    pub home: PathBuf,
    /// Every strategy.
    pub registry: StrategyRegistry,
    /// Every resource type.
    pub types: ResourceTypes,
    /// The resolved configuration.
    pub settings: Settings,
    /// Who may do what.
    pub permissions: Arc<dyn PermissionService>,
    /// Hears of long work.
    pub progress: Arc<dyn Progress>,
    /// Says when to stop.
    pub cancel: CancelFlag,
    /// Hears, in words, of everything that is removed to keep within the budgets.
    pub on_removal: Arc<dyn Fn(&str) + Send + Sync>,
    /// The program that keepers are started from.
    pub program: Option<PathBuf>,
    /// What runs in sandboxes.
    pub runtime: Arc<dyn Runtime>,
    /// What makes environments around them.
    pub environments: Environments,
    /// Removes a file, or a directory with everything in it, following no link, however deep it is. Missing is fine.
    pub remove_tree: fn(&Path) -> Result<()>,
}

/// The use cases. Any number of managers, in any number of processes, may share one state directory. A clone shares everything.
#[derive(Clone)]
pub struct SandboxManager {
    pub(super) parts: Arc<ManagerParts>,
    pub(super) store: Arc<Store>,
    pub(super) permissions: Arc<dyn PermissionService>,
    opened: Arc<Mutex<BTreeMap<String, Arc<dyn SandboxStrategy>>>>,
}

impl SandboxManager {
    /// Opens the state. What is not there yet is made by the first command that needs it. Recovers nothing: call
    /// [`SandboxManager::recover`] first in every command.
    pub fn open(parts: ManagerParts) -> Result<Self> {
        let store = Arc::new(Store::open(&parts.home)?);
        let permissions = parts.permissions.clone();
        Ok(Self { parts: Arc::new(parts), store, permissions, opened: Arc::default() })
    }

    /// The same use cases for somebody with these permissions.
    pub fn permitted_by(&self, permissions: Arc<dyn PermissionService>) -> Self {
        Self { permissions, ..self.clone() }
    }

    /// Every strategy.
    pub fn registry(&self) -> &StrategyRegistry {
        &self.parts.registry
    }

    /// Every resource type.
    pub fn types(&self) -> &ResourceTypes {
        &self.parts.types
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        &self.parts.home
    }

    /// Sandboxes, newest first: the live ones, or all that ever were.
    pub fn list(&self, all: bool) -> Result<Vec<Sandbox>> {
        let visibility = self.permissions.visibility();
        let mut sandboxes = self.store.sandboxes(all)?;
        sandboxes.retain(|sandbox| visibility.includes(&sandbox.owner()));
        Ok(sandboxes)
    }

    /// Which sandboxes whoever asks gets to see.
    pub fn visibility(&self) -> Visibility {
        self.permissions.visibility()
    }

    /// How many sandboxes are in each state; those that are gone are not counted.
    pub fn count_by_state(&self) -> Result<Vec<(String, u64)>> {
        self.store.count_by_state()
    }

    /// A part of them, newest first.
    pub fn page(&self, query: &PageQuery) -> Result<Page> {
        self.store.page(query, &self.permissions.visibility())
    }

    /// The operation log, newest first.
    pub fn log(&self, sandbox: Option<&Sandbox>, limit: usize) -> Result<Vec<Operation>> {
        self.store.operations(sandbox.map(|s| &s.id), limit)
    }

    /// Notes that the consumer has begun to use a sandbox.
    pub fn mark_active(&self, target: &Target) -> Result<()> {
        if target.sandbox.state == SandboxState::Active {
            return Ok(());
        }
        self.store.set_active(&target.sandbox.id)
    }

    /// Keeps a sandbox from being ended, by its time or by anybody, for as long as the answer is held.
    pub fn use_sandbox(&self, target: &Target) -> Result<InUse> {
        self.permit_on(target, "exec")?;
        let (lock, target) = self.lock_open(target)?;
        self.send_what_is_left(&target.sandbox)?;
        InUse::begin(&self.sandbox_dir(&target.sandbox.id), &lock)
    }

    /// The strategy of that name. One instance serves all calls, because what it holds between the phases of a commit
    /// (locks on the resource) lives in it.
    pub(super) fn strategy(&self, name: &str) -> Result<Arc<dyn SandboxStrategy>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(strategy) = opened.get(name) {
            return Ok(strategy.clone());
        }
        let context = StrategyContext {
            home: self.parts.home.clone(),
            progress: self.parts.progress.clone(),
            cancel: self.parts.cancel.clone(),
            program: self.parts.program.clone(),
        };
        let strategy = self.parts.registry.open(name, &context)?;
        opened.insert(name.to_owned(), strategy.clone());
        Ok(strategy)
    }

    /// The strategy that made a workspace.
    pub(super) fn strategy_of(&self, workspace: &Workspace) -> Result<Arc<dyn SandboxStrategy>> {
        self.strategy(&workspace.sandbox_ref.strategy_name).map_err(no_longer_registered)
    }

    pub(super) fn capabilities_of(&self, workspace: &Workspace) -> Result<&Capabilities> {
        let entry = self.parts.registry.get(&workspace.sandbox_ref.strategy_name);
        Ok(&entry.map_err(no_longer_registered)?.capabilities)
    }

    /// Asks whether `consumer` may do `action` on `scope`.
    pub(super) fn permit(&self, consumer: &Consumer, action: &str, scope: &str) -> Result<()> {
        let by_itself = || format!("{}:{}", consumer.actor_type, consumer.project);
        let principal = self.permissions.caller().map_or_else(by_itself, str::to_owned);
        let answer = self.permissions.decide(&principal, action, scope);
        if answer.permitted { Ok(()) } else { Err(Error::refused(answer.reason)) }
    }

    pub(super) fn permit_on(&self, target: &Target, action: &str) -> Result<()> {
        if !self.sees(&target.sandbox) {
            return Err(Error::not_found("sandbox", target.sandbox.id.as_str()));
        }
        self.permit(&target.sandbox.consumer, action, target.sandbox.id.as_str())?;
        // What is shared with somebody to be looked at and worked in is not theirs to change for real.
        if matches!(action, "commit" | "undo") {
            let mut resources = target.workspaces.iter().map(|workspace| workspace.resource.id.as_str());
            return resources.try_for_each(|id| self.permit(&target.sandbox.consumer, action, id));
        }
        Ok(())
    }

    /// Whether whoever asks gets to see a sandbox. What they do not see is not there for them.
    pub(super) fn sees(&self, sandbox: &Sandbox) -> bool {
        self.permissions.visibility().includes(&sandbox.owner())
    }

    pub(super) fn sandboxes_dir(&self) -> PathBuf {
        self.parts.home.join("sandboxes")
    }

    pub(super) fn sandbox_dir(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes_dir().join(id.as_str())
    }

    /// Takes the lock of a sandbox as it is, whatever was left open in it.
    pub(super) fn lock_as_it_is(&self, id: &SandboxId) -> Result<SandboxLock> {
        SandboxLock::acquire(&self.sandbox_dir(id), self.parts.settings.lock_wait, &self.parts.cancel)
    }

    /// Takes the lock of a target's sandbox to change it. What another process left half done in it is finished first,
    /// and the target is as it is now, not as it was when somebody looked for it.
    pub(super) fn lock_open(&self, target: &Target) -> Result<(SandboxLock, Target)> {
        let id = &target.sandbox.id;
        let lock = self.lock(id)?;
        self.recover_operations(id)?;
        let sandbox = self.store.sandbox(id)?.filter(|sandbox| sandbox.state.is_open());
        let Some(sandbox) = sandbox else {
            self.drop_dir_of_closed(id);
            return Err(Error::not_found("sandbox", target.sandbox.name.as_str()));
        };
        let named = |w: &Workspace| target.workspaces.iter().any(|t| t.name == w.name);
        let workspaces = sandbox.workspaces.iter().filter(|w| named(w)).cloned().collect();
        Ok((lock, Target { sandbox, workspaces }))
    }

    /// The same, with whatever runs in the sandbox held still: what is looked at is then what is committed, kept or replaced.
    pub(super) fn lock_still(&self, target: &Target) -> Result<(Still, Target)> {
        let (mut still, target) = self.lock_still_as_it_is(target)?;
        if let Err(error) = self.bring_in(&target.sandbox) {
            if self.is_unsent(&target.sandbox.id) {
                still.leave_held();
            }
            return Err(error);
        }
        still.brought_in = true;
        Ok((still, target))
    }

    /// The same for those who replace everything that is in it: what has changed in copies elsewhere does not matter to them, once they have.
    pub(super) fn lock_still_to_replace(&self, target: &Target) -> Result<(Still, Target)> {
        match target.workspaces.len() == target.sandbox.workspaces.len() {
            true => self.lock_still_as_it_is(target),
            false => self.lock_still(target),
        }
    }

    fn lock_still_as_it_is(&self, target: &Target) -> Result<(Still, Target)> {
        let (lock, target) = self.lock_open(target)?;
        let quiet = self.parts.runtime.quiesce(&target.sandbox.id)?;
        let held = self.hold_environment_still(&target.sandbox)?;
        Ok((Still { _quiet: quiet, held, brought_in: false, lock }, target))
    }

    /// Logs `work`: that it begins, before it does, and how it ended. `plan` is what recovery needs if `work` is interrupted.
    pub(super) fn logged<T>(
        &self,
        sandbox: &SandboxId,
        kind: &str,
        plan: Value,
        work: impl FnOnce() -> Result<T>,
        tell: impl FnOnce(&T) -> (String, Value),
    ) -> Result<T> {
        let operation = new_operation(sandbox, kind, plan);
        self.store.begin(&operation)?;
        match work() {
            Ok(value) => {
                let (summary, details) = tell(&value);
                self.store.end(&OperationEnd { id: operation.id, state: "done", summary, details })?;
                Ok(value)
            }
            Err(error) => Err(self.log_failure(&operation, error)),
        }
    }

    /// Logs that an operation failed; the failure itself matters more than a log that cannot be written.
    pub(super) fn log_failure(&self, operation: &Operation, error: Error) -> Error {
        let _ = self.store.end(&failure(operation, &error));
        error
    }
}

/// A sandbox that is locked, and in which nothing moves.
#[must_use]
pub(super) struct Still {
    _quiet: Option<Quiet>,
    held: Option<Quiet>,
    brought_in: bool,
    lock: SandboxLock,
}

impl Still {
    /// Whether everything that has changed in copies elsewhere is here.
    pub(super) fn is_brought_in(&self) -> bool {
        self.brought_in
    }

    /// The lock alone: what runs here goes on, and so does what runs elsewhere, unless it was left held.
    pub(super) fn into_lock(self) -> SandboxLock {
        self.lock
    }

    pub(super) fn lock(&self) -> &SandboxLock {
        &self.lock
    }

    /// What stands still elsewhere is not let go of with us: it has not been told what it has to know first.
    pub(super) fn leave_held(&mut self) {
        std::mem::forget(self.held.take());
    }
}

/// A sandbox's own strategy was registered when it was made, so it is the configuration that is missing, not a name that
/// is mistyped: no other name comes near.
fn no_longer_registered(error: Error) -> Error {
    match error {
        Error::NotFound { what: "strategy", name, .. } => Error::not_found("registered strategy", name),
        other => other,
    }
}

/// An operation that begins now.
pub(super) fn new_operation(sandbox: &SandboxId, kind: &str, details: Value) -> Operation {
    Operation {
        id: OpId::generate(),
        sandbox_id: sandbox.clone(),
        kind: kind.to_owned(),
        state: "running".to_owned(),
        started_at: now(),
        finished_at: None,
        summary: String::new(),
        details,
    }
}

/// How an operation ended that did not succeed.
pub(super) fn failure(operation: &Operation, error: &Error) -> OperationEnd {
    let details = operation.details.clone();
    OperationEnd { id: operation.id.clone(), state: "failed", summary: explain(error), details }
}

/// An error with all its causes, in one line.
pub(super) fn explain(error: &Error) -> String {
    error.in_full()
}

/// Says which workspace of several an error is about.
pub(super) fn in_workspace(sandbox: &Sandbox, workspace: &Workspace) -> impl FnOnce(Error) -> Error {
    let several = sandbox.workspaces.len() > 1;
    let name = workspace.name.clone();
    move |error| if several { Error::Workspace { workspace: name, source: Box::new(error) } } else { error }
}

/// `1 path`, `2 paths`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
