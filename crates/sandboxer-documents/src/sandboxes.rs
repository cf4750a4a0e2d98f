//! A sandbox as it is told.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use sandboxer_core::environment::{
    Endpoint, Environment, EnvironmentFailure, IsolationLevel, NetworkNeed, Route, SandboxStatus, Scope,
    Setup,
};
use sandboxer_core::service::{Consumer, Operation, Sandbox, SandboxState, Workspace};
use sandboxer_strategies::git_worktree::About;
use schemars::JsonSchema;
use serde::Serialize;

use super::Summary;

/// `create` and `get`.
#[derive(Serialize, JsonSchema)]
pub struct SandboxDocument<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    plan_id: &'a str,
    state: SandboxState,
    created: bool,
    message: Cow<'a, str>,
    #[schemars(with = "String", extend("format" = "date-time"))]
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    expires_at: Option<Timestamp>,
    consumer: &'a Consumer,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    profile_id: &'a str,
    extension_id: &'a str,
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<EnvironmentDocument<'a>>,
    #[serde(flatten)]
    only: Option<Isolation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    git: Option<About>,
    workspaces: Vec<WorkspaceDocument<'a>>,
}

/// What a profile had made around the workspaces.
#[derive(Serialize, JsonSchema)]
pub struct EnvironmentDocument<'a> {
    route: &'a Route,
    isolation: IsolationLevel,
    network: &'a NetworkNeed,
    scope: Scope,
    mounts: &'a BTreeMap<String, PathBuf>,
    labels: &'a BTreeMap<String, String>,
    setup: &'a Setup,
    endpoints: &'a [Endpoint],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a EnvironmentFailure>,
}

impl<'a> EnvironmentDocument<'a> {
    fn new(environment: &'a Environment) -> Self {
        Self {
            route: &environment.route,
            isolation: environment.isolation,
            network: &environment.network,
            scope: environment.scope,
            mounts: &environment.mounts,
            labels: &environment.labels,
            setup: &environment.setup,
            endpoints: &environment.endpoints,
            notes: &environment.notes,
            cost_class: environment.cost_class.as_deref(),
            failure: environment.failure.as_ref(),
        }
    }
}

/// One workspace of a sandbox.
#[derive(Serialize, JsonSchema)]
pub struct WorkspaceDocument<'a> {
    name: &'a str,
    #[serde(flatten)]
    isolation: Isolation<'a>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    notices: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    git: Option<About>,
}

/// What the top level repeats of a sandbox's only workspace.
#[derive(Serialize, JsonSchema)]
struct Isolation<'a> {
    sandbox_path: Option<String>,
    strategy: &'a str,
    requested_strategy: &'a str,
    resource: ResourceDocument<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ResourceDocument<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    location: &'a str,
}

impl<'a> SandboxDocument<'a> {
    /// The document of `sandbox`; `created` and `message` say what the command did.
    pub fn new(sandbox: &'a Sandbox, created: bool, message: impl Into<Cow<'a, str>>) -> Self {
        let only = match sandbox.workspaces.as_slice() {
            [workspace] => Some(isolation(workspace)),
            _ => None,
        };
        Self {
            sandbox_id: sandbox.id.as_str(),
            name: &sandbox.name,
            plan_id: sandbox.plan_id.as_str(),
            state: sandbox.state,
            created,
            message: message.into(),
            created_at: sandbox.created_at,
            expires_at: sandbox.expires_at,
            consumer: &sandbox.consumer,
            principal: sandbox.principal.as_deref(),
            profile_id: sandbox.profile_id(),
            extension_id: sandbox.extension_id(),
            host: sandbox.host(),
            environment: sandbox.environment.as_deref().map(EnvironmentDocument::new),
            only,
            git: None,
            workspaces: sandbox.workspaces.iter().map(workspace).collect(),
        }
    }

    /// The document of `list` and the like: nothing was done.
    pub fn of(sandbox: &'a Sandbox) -> Self {
        Self::new(sandbox, false, state_sentence(sandbox))
    }

    /// The document of `get` and `status`, with the notices of each workspace.
    pub fn with_notices(sandbox: &'a Sandbox, notices: &[Vec<String>]) -> Self {
        let mut document = Self::of(sandbox);
        for (workspace, notices) in document.workspaces.iter_mut().zip(notices) {
            workspace.notices = Some(notices.clone());
        }
        document
    }

    /// The same as somebody has it who was sent it.
    pub fn to_status(&self) -> serde_json::Result<SandboxStatus> {
        serde_json::from_value(serde_json::to_value(self)?)
    }

    /// The same with where each workspace stands in its git repository, as far as it has one.
    pub fn with_git(mut self, abouts: Vec<Option<About>>) -> Self {
        if let [only] = abouts.as_slice() {
            self.git.clone_from(only);
        }
        for (workspace, about) in self.workspaces.iter_mut().zip(abouts) {
            workspace.git = about;
        }
        self
    }
}

/// One sentence on where a sandbox is in its life.
pub fn state_sentence(sandbox: &Sandbox) -> String {
    let what = match sandbox.state {
        SandboxState::Requested => "has been asked for",
        SandboxState::Provisioning => "is being made",
        SandboxState::Ready => "is ready",
        SandboxState::Active => "is in use",
        SandboxState::Destroying => "is being removed",
        SandboxState::Parked => "is parked",
        SandboxState::Destroyed => "has been removed",
        SandboxState::Failed => "could not be made",
    };
    format!("sandbox {} {what}", sandbox.name)
}

fn workspace(workspace: &Workspace) -> WorkspaceDocument<'_> {
    WorkspaceDocument {
        name: &workspace.name,
        isolation: isolation(workspace),
        reason: &workspace.reason,
        notices: None,
        git: None,
    }
}

fn isolation(workspace: &Workspace) -> Isolation<'_> {
    let resource = &workspace.resource;
    Isolation {
        sandbox_path: workspace.sandbox_ref.text("path").map(str::to_owned),
        strategy: &workspace.sandbox_ref.strategy_name,
        requested_strategy: &workspace.requested_strategy,
        resource: ResourceDocument {
            id: resource.id.as_str(),
            type_name: &resource.type_name,
            location: &resource.location,
        },
    }
}

/// `list`.
#[derive(Serialize, JsonSchema)]
pub struct SandboxesDocument<'a> {
    sandboxes: Vec<SandboxDocument<'a>>,
}

impl<'a> SandboxesDocument<'a> {
    /// The document of all of these.
    pub fn new(sandboxes: &'a [Sandbox]) -> Self {
        Self { sandboxes: sandboxes.iter().map(SandboxDocument::of).collect() }
    }
}

/// One sandbox of `status`.
#[derive(Serialize, JsonSchema)]
pub struct StatusDocument<'a> {
    /// The sandbox itself.
    #[serde(flatten)]
    pub sandbox: SandboxDocument<'a>,
    /// Seconds since it was made.
    pub age_seconds: i64,
    /// What is not committed; missing where it could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Summary>,
    /// The newest entry of its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<&'a Operation>,
    /// What to look at.
    pub warnings: &'a [String],
}
