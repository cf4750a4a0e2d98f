//! What is asked of an extension, what it answers, and what is remembered of it beside a sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{IsolationLevel, NetworkNeed, Reachability, ResourceNeeds, Route, Scope, Setup};
use crate::model::SandboxId;
use crate::service::Consumer;

/// The environment of a sandbox, as the store knows it. Written before anything is provisioned, and again with each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Where it was routed to, and why.
    pub route: Route,
    /// How much is kept from what runs inside.
    pub isolation: IsolationLevel,
    /// What of the network is reached from inside.
    pub network: NetworkNeed,
    /// What it may use.
    #[serde(default, skip_serializing_if = "ResourceNeeds::is_empty")]
    pub resources: ResourceNeeds,
    /// Who may see and use it.
    pub scope: Scope,
    /// Where workspaces appear inside, by name; others appear at their resources' own paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<String, PathBuf>,
    /// Handed over to the caller's tooling.
    #[serde(default, skip_serializing_if = "Setup::is_empty")]
    pub setup: Setup,
    /// What of it is reached from outside.
    #[serde(default, skip_serializing_if = "Reachability::is_empty")]
    pub reachability: Reachability,
    /// What only the extension understands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Value>,
    /// Words of the caller's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A word for those who pay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_class: Option<String>,
    /// The key of the request that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The digest of that request, where a server took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The step that it is in, or was in when it failed: `workspaces`, `provision`, `wait_ready`, `ready`.
    pub step: String,
    /// What the extension made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<Handle>,
    /// Where it is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// What was made otherwise than it was asked for, for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What it begins with when it is made: what a checkpoint kept besides the workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// Why it could not be made, or was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<EnvironmentFailure>,
}

/// Why an environment could not be made, or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentFailure {
    /// In which step.
    pub step: String,
    /// What went wrong.
    pub reason: String,
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
}

/// What an extension made: enough to find it again in another process, after a restart, by a later version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// The version of `data`, the extension's own affair.
    pub version: u32,
    /// Whose it is.
    pub sandbox_id: SandboxId,
    /// What only the extension understands.
    pub data: Value,
    /// What to put before a command so that it runs inside; empty where commands run in namespaces of this machine, or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<String>,
    /// The same for a command that has a terminal; empty where that makes no difference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec_on_terminal: Vec<String>,
}

/// One way in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// What it is called, such as `8080/tcp`.
    pub name: String,
    /// The host to connect to.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// What to type so that it is reached from this machine, where that takes more than connecting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
}

/// A way into an environment, or out of it.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// A command that runs inside.
    Exec {
        /// In which part, such as a service of a stack.
        part: Option<&'a str>,
        /// Where to begin; else where that part begins.
        directory: Option<&'a Path>,
        /// Whether it has a terminal.
        terminal: bool,
        /// The command and its arguments.
        command: &'a [OsString],
    },
    /// What has been printed inside.
    Logs {
        /// By which part; by all of them.
        part: Option<&'a str>,
        /// Whether to go on with what is printed from now on.
        follow: bool,
        /// So many lines of what is there, and no more.
        tail: Option<u64>,
    },
    /// A port of this machine that leads to an endpoint.
    Forward {
        /// Where it leads.
        endpoint: &'a Endpoint,
        /// The port here.
        port: u16,
    },
}

/// What is to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provision {
    /// For which sandbox. Everything that is made is labelled with it.
    pub sandbox_id: SandboxId,
    /// What that is called.
    pub name: String,
    /// The profile.
    pub profile_id: String,
    /// Who asked.
    pub consumer: Consumer,
    /// Where: an id, and an address.
    pub host: String,
    /// `local`, or `ssh://…`.
    pub address: String,
    /// How much is kept from what runs inside.
    pub isolation: IsolationLevel,
    /// What of the network is reached from inside.
    pub network: NetworkNeed,
    /// What it may use.
    pub resources: ResourceNeeds,
    /// Ports to publish.
    pub reachability: Reachability,
    /// What appears inside.
    pub mounts: Vec<Mount>,
    /// What only the extension understands.
    pub options: BTreeMap<String, Value>,
    /// Words of the caller's.
    pub labels: BTreeMap<String, String>,
    /// A directory of the sandbox's own on this machine, for what the extension has to remember of it. It need not be there yet.
    #[serde(default)]
    pub records: PathBuf,
    /// What [`keep`](crate::contract::EnvironmentExtension::keep) has put there, to begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
}

/// One workspace and where it appears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The workspace's name.
    pub workspace: String,
    /// Where it is on this machine.
    pub from: PathBuf,
    /// Where it appears inside.
    pub at: PathBuf,
    /// Whether it is only to be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// What is known of an environment once it is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where it is reached.
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    /// What was made otherwise than it was asked for, for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Something of ours that an extension found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// By its label.
    pub sandbox_id: SandboxId,
    /// What it is, for a person: `container 3f2a…`.
    pub what: String,
    /// Whether it works.
    pub running: bool,
    /// When it was made, if that is known.
    #[serde(default)]
    pub made_at: Option<Timestamp>,
}

/// Whether an extension can be used now. What it can do is another question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason", rename_all = "lowercase")]
pub enum Health {
    /// It works.
    Healthy,
    /// It works, except for this.
    Limited(String),
    /// It is there and does not work.
    Unhealthy(String),
    /// It is not there.
    Undetected(String),
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// For an hour.
    pub per_hour: f64,
    /// In what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// What a sandbox used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Meter {
    /// From its making to its end, or to now.
    pub wall_seconds: f64,
    /// Processor time.
    pub cpu_seconds: f64,
    /// The most memory at a time, in bytes.
    pub memory_peak: u64,
    /// On disk, in bytes.
    pub disk: u64,
    /// What that cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// A checkpoint of all workspaces of a sandbox, as an environment's operation has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The checkpoint's id.
    pub id: String,
    /// The sandbox.
    pub sandbox_id: String,
    /// The workspaces that it covers.
    pub workspaces: Vec<String>,
}
