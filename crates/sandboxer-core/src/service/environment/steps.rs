//! The steps of an environment, each with its undo, as a create and a destroy take them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{EnvironmentExtension, Quiet};
use crate::environment::{
    Environment, EnvironmentFailure, Mount, Provider, Provision, Route, Way, WorkspaceAccess,
};
use crate::model::SandboxId;
use crate::service::manager::{SandboxManager, explain};
use crate::service::{CreateRequest, Created, Sandbox, SandboxState, Target, Workspace};
use crate::store::now;
use crate::{Error, Result};

/// Workspaces are being made; of the environment there is nothing.
pub(super) const WORKSPACES: &str = "workspaces";
/// The extension has been asked for it.
const PROVISION: &str = "provision";
/// It is there, and not yet to be used.
const WAIT_READY: &str = "wait_ready";
/// It can be used.
pub(super) const READY: &str = "ready";

/// How long an environment may take to become ready, unless the extension's options say otherwise.
const DEADLINE: Duration = Duration::from_secs(120);
/// Nobody waits longer than a day.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// The option that says otherwise.
const DEADLINE_OPTION: &str = "ready_timeout_seconds";

impl SandboxManager {
    /// What a request with the same key was answered with.
    pub(in crate::service) fn made_by_key(&self, request: &CreateRequest) -> Result<Option<Created>> {
        let key = request.environment.as_ref().and_then(|e| e.idempotency_key.as_deref());
        key.map_or(Ok(None), |key| self.answered(key))
    }

    /// The open sandbox that a request with this key was answered with. Whoever repeats one asks this first: where it would be routed now does not
    /// matter any more, nor whether its inputs are still there.
    pub fn answered(&self, key: &str) -> Result<Option<Created>> {
        let found =
            self.store.sandbox_by_key(key)?.filter(|sandbox| sandbox.state.is_open() && self.sees(sandbox));
        let message = |sandbox: &Sandbox| {
            format!("the request {key:?} was answered with sandbox {} already", sandbox.name)
        };
        Ok(found.map(|sandbox| Created { created: false, message: message(&sandbox), sandbox }))
    }

    /// The sandbox that a request with this key is about to be answered with, made or in the making.
    pub fn requested(&self, key: &str) -> Result<Option<Sandbox>> {
        Ok(self.store.sandbox_by_key(key)?.filter(|sandbox| self.sees(sandbox)))
    }

    /// Makes the environment of a sandbox whose workspaces are there.
    pub(in crate::service) fn make_environment(&self, sandbox: &mut Sandbox) -> Result<()> {
        let Some(mut environment) = sandbox.environment.take() else { return Ok(()) };
        let made = self.make(sandbox, &mut environment);
        sandbox.environment = Some(environment);
        made
    }

    /// The steps, in order.
    pub(super) fn make(&self, sandbox: &Sandbox, environment: &mut Environment) -> Result<()> {
        let definition = self.parts.environments.definition(&environment.route.extension_id)?;
        // Namespaces of this machine are made with the first command: nothing is there that could be left behind.
        let nothing_to_make = definition.provider == Provider::Local;
        let request = self.provision_request(sandbox, environment, definition.capabilities.workspaces)?;
        let extension = self.extension_of(environment)?;
        let at = |step: &str, environment: &mut Environment| {
            step.clone_into(&mut environment.step);
            if nothing_to_make { Ok(()) } else { self.store.set_environment(&sandbox.id, environment) }
        };
        self.parts.cancel.check()?;
        at(PROVISION, environment)?;
        let mut steps = || {
            environment.handle = Some(extension.provision(&request)?);
            self.forget_unsent(&sandbox.id)?;
            at(WAIT_READY, environment)?;
            if let Some(handle) = &environment.handle {
                let ready = extension.wait_ready(handle, deadline(environment), &self.parts.cancel)?;
                environment.endpoints = ready.endpoints;
                environment.notes = ready.notes;
            }
            Ok(())
        };
        self.parts.progress.begin("making the environment", None);
        let made: Result<()> = steps();
        self.parts.progress.end();
        made?;
        READY.clone_into(&mut environment.step);
        environment.failure = None;
        Ok(())
    }

    fn provision_request(
        &self,
        sandbox: &Sandbox,
        environment: &Environment,
        access: WorkspaceAccess,
    ) -> Result<Provision> {
        Ok(Provision {
            sandbox_id: sandbox.id.clone(),
            name: sandbox.name.clone(),
            profile_id: environment.route.profile_id.clone(),
            consumer: sandbox.consumer.clone(),
            host: environment.route.host.clone(),
            address: self.parts.environments.host(&environment.route.host)?.address.clone(),
            isolation: environment.isolation,
            network: environment.network.clone(),
            resources: environment.resources.clone(),
            reachability: environment.reachability.clone(),
            mounts: self.mounts(sandbox, environment, access)?,
            options: options_of(environment),
            labels: environment.labels.clone(),
            records: self.records_of(&sandbox.id),
            kept: environment.kept.clone(),
        })
    }

    /// Where each workspace is, and where it appears.
    pub(super) fn mounts(
        &self,
        sandbox: &Sandbox,
        environment: &Environment,
        access: WorkspaceAccess,
    ) -> Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for workspace in &sandbox.workspaces {
            let mount = mount(workspace, environment, access)?;
            mounts.extend(mount.iter().filter_map(|_| exposed(workspace)));
            mounts.extend(mount);
        }
        // Where an environment begins is the first.
        mounts.sort_by_key(|mount| mount.read_only);
        Ok(mounts)
    }

    /// Removes what was made of an environment. `Ok` means that the extension has looked, and nothing is left.
    pub(in crate::service) fn tear_down_environment(&self, sandbox: &Sandbox) -> Result<()> {
        let Some(environment) = sandbox.environment.as_deref().filter(|e| e.step != WORKSPACES) else {
            return Ok(());
        };
        let id = &environment.route.extension_id;
        if self.parts.environments.definition(id)?.provider == Provider::Local {
            return self.parts.runtime.end(&sandbox.id);
        }
        self.extension_of(environment)?.teardown(&sandbox.id, environment.handle.as_ref())
    }

    /// The arguments of a program that leads into a sandbox's environment, or out of it; `None` where there is no such way but the handle's own.
    pub fn line(&self, sandbox: &Sandbox, way: &Way<'_>) -> Result<Option<Vec<OsString>>> {
        let Some(environment) = sandbox.environment.as_deref().filter(|e| e.failure.is_none()) else {
            return Ok(None);
        };
        self.permit(&sandbox.consumer, "exec", sandbox.id.as_str())?;
        match &environment.handle {
            Some(handle) => self.extension_of(environment)?.line(handle, way),
            None => Ok(None),
        }
    }

    /// What made an environment, as it is on the host where that is.
    pub(in crate::service) fn extension_of(
        &self,
        environment: &Environment,
    ) -> Result<Arc<dyn EnvironmentExtension>> {
        let Route { extension_id, host, .. } = &environment.route;
        self.parts.environments.extension_on(extension_id, host)
    }

    /// Whether what made a sandbox's environment can be asked at all. Where none was made, nobody has to answer.
    pub(in crate::service) fn answers(&self, sandbox: &Sandbox) -> bool {
        let Some(environment) = sandbox.environment.as_deref() else { return true };
        let asked = self.extension_of(environment).and_then(|extension| extension.inspect(Some(&sandbox.id)));
        asked.is_ok()
    }

    /// Where an extension keeps what it has to remember of a sandbox.
    fn records_of(&self, id: &SandboxId) -> PathBuf {
        self.sandbox_dir(id).join("environment")
    }

    /// Whether commands of this sandbox run in namespaces of this machine.
    pub fn runs_here(&self, sandbox: &Sandbox) -> Result<bool> {
        let Some(environment) = &sandbox.environment else { return Ok(true) };
        Ok(self.parts.environments.definition(&environment.route.extension_id)?.provider == Provider::Local)
    }

    /// Holds still what runs in an environment that is not of this machine's namespaces.
    pub(in crate::service) fn hold_environment_still(&self, sandbox: &Sandbox) -> Result<Option<Quiet>> {
        let Some(environment) = &sandbox.environment else { return Ok(None) };
        let definition = self.parts.environments.definition(&environment.route.extension_id)?;
        // Of what is copied, what is called lost may be there.
        let copied = definition.capabilities.workspaces == WorkspaceAccess::Transfer;
        match &environment.handle {
            Some(handle) if environment.step == READY && (copied || environment.failure.is_none()) => {
                self.extension_of(environment)?.hold_still(handle)
            }
            _ => Ok(None),
        }
    }

    /// Writes down in which step a create failed, and why, beside the sandbox that will be `failed`.
    pub(in crate::service) fn note_failure(&self, sandbox: &Sandbox, error: &Error) {
        if let Some(environment) = &sandbox.environment {
            let failed = failed(environment, error);
            let _ = self.store.set_environment(&sandbox.id, &failed);
        }
    }

    /// The target without its environment, which is taken down before its work is put away.
    pub(in crate::service) fn without_environment(&self, target: &Target) -> Result<Target> {
        let mut target = target.clone();
        if target.sandbox.environment.is_none() {
            return Ok(target);
        }
        self.tear_down_environment(&target.sandbox)?;
        self.forget_unsent(&target.sandbox.id)?;
        if let Some(environment) = &mut target.sandbox.environment {
            unmade(environment);
            self.store.set_environment(&target.sandbox.id, environment)?;
        }
        Ok(target)
    }

    /// Removes what an interrupted `recreate` may have made; the workspaces stay.
    pub(in crate::service) fn forget_half_made_environment(&self, sandbox: &Sandbox) -> Result<()> {
        self.bring_in_last(sandbox)?;
        self.tear_down_environment(sandbox)?;
        let Some(environment) = &sandbox.environment else { return Ok(()) };
        let mut environment = environment.clone();
        unmade(&mut environment);
        environment.failure = Some(failure("recreate", "interrupted".to_owned()));
        self.store.tell_of_environment(&sandbox.id, &environment, "lost", Some("recreate: interrupted"))
    }

    pub(super) fn require_open(&self, id: &SandboxId, name: &str) -> Result<Sandbox> {
        let found =
            self.store.sandbox(id)?.filter(|s| matches!(s.state, SandboxState::Ready | SandboxState::Active));
        found.ok_or_else(|| Error::not_found("sandbox", name))
    }
}

/// As it was before anything of it was made.
pub(super) fn unmade(environment: &mut Environment) {
    WORKSPACES.clone_into(&mut environment.step);
    environment.handle = None;
    environment.kept = None;
    environment.endpoints.clear();
    environment.notes.clear();
}

/// The environment with why it is not there.
pub(super) fn failed(environment: &Environment, error: &Error) -> Environment {
    let failure = failure(&environment.step, explain(error));
    Environment { failure: Some(failure), ..environment.clone() }
}

pub(super) fn failure(step: &str, reason: String) -> EnvironmentFailure {
    EnvironmentFailure { step: step.to_owned(), reason, at: now() }
}

fn deadline(environment: &Environment) -> Duration {
    let seconds = environment.options.get(DEADLINE_OPTION).and_then(serde_json::Value::as_u64);
    seconds.map_or(DEADLINE, |seconds| Duration::from_secs(seconds).min(LONGEST_DEADLINE))
}

/// What only the extension understands: the deadline is kept here.
fn options_of(environment: &Environment) -> BTreeMap<String, serde_json::Value> {
    let mut options = environment.options.clone();
    options.remove(DEADLINE_OPTION);
    options
}

/// Where a workspace is, and where it appears. What has no path (a database) is connected to instead.
fn mount(workspace: &Workspace, environment: &Environment, access: WorkspaceAccess) -> Result<Option<Mount>> {
    let Some(from) = workspace.sandbox_ref.sandbox_path() else { return Ok(None) };
    let own = workspace.resource.path().map(Path::to_path_buf);
    let Some(at) = environment.mounts.get(&workspace.name).cloned().or(own) else { return Ok(None) };
    match access {
        WorkspaceAccess::None => return Ok(None),
        WorkspaceAccess::HostPath => seen_by_everybody(workspace, &from)?,
        WorkspaceAccess::Any | WorkspaceAccess::Transfer => {}
    }
    workspace.sandbox_ref.check_path()?;
    refuse_companions(workspace)?;
    Ok(Some(Mount { workspace: workspace.name.clone(), from, at, read_only: false }))
}

/// What a workspace needs besides, to be read at its own path: the objects that a checkout's repository borrows.
fn exposed(workspace: &Workspace) -> Option<Mount> {
    let at = workspace.sandbox_ref.text("exposes").map(PathBuf::from)?;
    let from = at.canonicalize().ok()?;
    Some(Mount { workspace: workspace.name.clone(), from, at, read_only: true })
}

/// Programs put other files beside such a file, and those would be lost with the environment.
fn refuse_companions(workspace: &Workspace) -> Result<()> {
    if workspace.sandbox_ref.text("companions").is_none() {
        return Ok(());
    }
    Err(Error::Unavailable {
        strategy: workspace.sandbox_ref.strategy_name.clone(),
        path: workspace.resource.path().map(Path::to_path_buf).unwrap_or_default(),
        reason: "programs keep files beside a database, which would stay behind in the environment; isolate the directory \
                 that it is in, or use ext.local"
            .to_owned(),
    })
}

/// A mount in a namespace of its own is seen by those who go there, and a daemon does not.
fn seen_by_everybody(workspace: &Workspace, path: &Path) -> Result<()> {
    let real: PathBuf = path.canonicalize().map_err(|error| Error::io("look up", path, error))?;
    if !real.starts_with("/proc") {
        return Ok(());
    }
    Err(Error::Unavailable {
        strategy: workspace.sandbox_ref.strategy_name.clone(),
        path: path.to_path_buf(),
        reason: "its files are in a mount that only processes of ours see; for this profile isolate them \
                 by `--strategy copy_on_write` or `filesystem_copy`"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{PlanId, Resource, SandboxRef};

    fn workspace(key: &str, value: &str) -> Workspace {
        let resource = Resource::at_path("sqlite", Path::new("/data/app.db"));
        let sandbox_ref =
            SandboxRef::new(PlanId::generate(), resource.id.clone(), "snapshot").with(key, value);
        let (name, reason) = ("db".to_owned(), String::new());
        Workspace { name, resource, requested_strategy: "snapshot".into(), reason, sandbox_ref }
    }

    #[test]
    fn files_that_others_are_put_beside_are_refused() {
        let refused = refuse_companions(&workspace("companions", "/scratch/ws_1")).unwrap_err();
        assert!(
            matches!(&refused, Error::Unavailable { reason, .. } if reason.contains("ext.local")),
            "{refused}"
        );
        refuse_companions(&workspace("dir", "/scratch/ws_1")).unwrap();
    }

    #[test]
    fn what_a_workspace_borrows_is_only_read() {
        let exposed = exposed(&workspace("exposes", "/")).unwrap();
        assert!(exposed.read_only && exposed.from == exposed.at);
        assert!(super::exposed(&workspace("exposes", "/no/such/objects")).is_none());
    }

    #[test]
    fn what_only_our_processes_see_is_refused() {
        let workspace = workspace("dir", "/x");
        seen_by_everybody(&workspace, Path::new("/")).unwrap();
        let refused = seen_by_everybody(&workspace, Path::new("/proc/self")).unwrap_err();
        assert!(matches!(&refused, Error::Unavailable { reason, .. } if reason.contains("copy_on_write")));
    }
}
