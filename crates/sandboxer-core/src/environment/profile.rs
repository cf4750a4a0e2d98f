//! What a caller may ask for by one name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The profile of a sandbox that was made without one.
pub const DEFAULT_PROFILE: &str = "profile.local";

/// A named kind of environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its id: `profile.` and a name.
    pub id: String,
    /// One line for `sandbox profiles`.
    pub summary: String,
    /// Which extensions may make it, and how one of them is chosen.
    #[serde(default)]
    pub extension: Binding,
    /// How much is kept from what runs inside.
    #[serde(default)]
    pub isolation: IsolationLevel,
    /// What of the network is reached from inside.
    #[serde(default)]
    pub network: NetworkNeed,
    /// How inputs are isolated.
    #[serde(default)]
    pub workspace: WorkspaceMode,
    /// What has to be given, by name. A profile without any takes what it is given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputSpec>,
    /// Who may see and use the sandbox.
    #[serde(default)]
    pub scope: Scope,
    /// How long it lives, such as `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// What it needs, and may use at most.
    #[serde(default, skip_serializing_if = "ResourceNeeds::is_empty")]
    pub resources: ResourceNeeds,
    /// What the caller's own tooling does with it. It is stored and handed over; none of it is run.
    #[serde(default, skip_serializing_if = "Setup::is_empty")]
    pub setup: Setup,
    /// Which hosts.
    #[serde(default, skip_serializing_if = "Placement::is_empty")]
    pub placement: Placement,
    /// What of it is reached from outside.
    #[serde(default, skip_serializing_if = "Reachability::is_empty")]
    pub reachability: Reachability,
    /// A word for those who pay, such as `standard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_class: Option<String>,
    /// What only the extension understands, such as `image`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Value>,
    /// Where it was defined: `built-in`, or the file.
    #[serde(skip)]
    pub origin: String,
}

/// Which extensions may make an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Binding {
    /// How one is chosen.
    pub policy: Policy,
    /// The one of policy `explicit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Only these; empty means any that can.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<String>,
}

/// How an extension and a host are chosen among those that can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One's own machines first, then the cheapest.
    #[default]
    PreferSelfHosted,
    /// The cheapest, whoever's it is.
    LowestCost,
    /// The one that is named, or none.
    Explicit,
}

/// How much is kept from what runs inside, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationLevel {
    /// Nothing but files.
    Files,
    /// Namespaces, no privileges, no credentials.
    #[default]
    Standard,
    /// The same, with a smaller kernel.
    Strict,
    /// A container with a root filesystem of its own.
    Container,
}

impl IsolationLevel {
    /// The word that it has in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Standard => "standard",
            Self::Strict => "strict",
            Self::Container => "container",
        }
    }
}

/// What of the network is reached from inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkNeed {
    /// Nothing.
    #[default]
    None,
    /// Everything that the host reaches.
    Host,
    /// These hosts, each `HOST` or `HOST:PORT`.
    Allow(Vec<String>),
}

impl NetworkNeed {
    /// The word for it in an extension's capabilities.
    pub fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Allow(_) => "allow",
        }
    }
}

/// How inputs are isolated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceMode {
    /// The strategy; without one, what the resource and the settings say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Refuse rather than use another strategy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_fallback: bool,
}

/// One declared input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InputSpec {
    /// The resource type that it has to be.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// Whether it has to be given.
    pub required: bool,
    /// Where it appears inside; without it, at the resource's own path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// Who may see and use a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The consumer who asked for it.
    #[default]
    Consumer,
    /// Everybody of the consumer's project.
    Project,
    /// Everybody on the host.
    Host,
}

/// What an environment needs, and may use at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceNeeds {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory, such as `4G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Disk, such as `10G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

impl ResourceNeeds {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the caller's own tooling does with an environment. sandboxer runs none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Commands for the caller to run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// References to secrets, such as `env:NPM_TOKEN` or `file:/run/secrets/npm`. Never the secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_refs: Vec<String>,
}

impl Setup {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which hosts, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// These hosts first, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer: Vec<String>,
    /// These where none of the first will do, in this order. Without it, any host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// Only hosts with these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Only in these regions; empty means anywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
}

impl Placement {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What of an environment is reached from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reachability {
    /// Ports that are reached from this machine; the endpoints of an environment say where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}

impl Reachability {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
