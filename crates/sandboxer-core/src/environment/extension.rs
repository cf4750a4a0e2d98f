//! What a backend says of itself before anybody calls it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::IsolationLevel;

/// A backend that makes environments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtensionDefinition {
    /// Its id: `ext.` and a name.
    pub id: String,
    /// One line for `sandbox extensions`.
    pub summary: String,
    /// What is behind it.
    pub provider: Provider,
    /// What it can do.
    pub capabilities: ExtensionCapabilities,
    /// Whether it runs on machines of one's own.
    #[serde(default)]
    pub self_hosted: bool,
    /// What it costs.
    pub pricing: Pricing,
    /// Where it is; empty means wherever its hosts are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// Settings of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Value>,
    /// Where it was defined: `built-in`, or the file.
    #[serde(skip)]
    pub origin: String,
}

/// What is behind an extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Provider {
    /// Namespaces on this machine.
    Local,
    /// One docker or podman container.
    Container,
    /// A compose project on a host, over SSH.
    ComposeSsh,
    /// A program of somebody else's, as custom strategies are: `module:ClassName`, or `exec:/path`.
    Plugin {
        /// The module, or `exec:/path/to/program`.
        module: String,
        /// What to make in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// The interpreter, where it is not `python3`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        python: Option<String>,
        /// How long a call may take, such as `60s`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<String>,
    },
}

/// What an extension can do; the router looks at this before anything is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtensionCapabilities {
    /// The levels of isolation that it has.
    pub isolation: Vec<IsolationLevel>,
    /// What it can let through of the network: `none`, `host`, `allow`.
    pub network: Vec<String>,
    /// How workspaces get into an environment.
    pub workspaces: WorkspaceAccess,
    /// Whether commands can be run in it.
    #[serde(default)]
    pub exec: bool,
    /// Whether ports can be published.
    #[serde(default)]
    pub ports: bool,
    /// Whether limits on processors, memory and processes are enforced.
    #[serde(default)]
    pub limits: bool,
    /// Whether an input can appear at another path than its own.
    #[serde(default)]
    pub mounts: bool,
}

/// How workspaces get into an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceAccess {
    /// By a path of any process of this user's.
    Any,
    /// By a path that every process of the host sees.
    HostPath,
    /// They are copied to another machine and back.
    Transfer,
    /// Not at all.
    None,
}

/// What an extension costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    /// For what is paid.
    pub model: PricingModel,
    /// How much for each unit of that.
    #[serde(default)]
    pub amount: f64,
    /// In what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

/// For what is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PricingModel {
    /// Nothing.
    Free,
    /// Each hour that an environment is there.
    PerHour,
    /// Each one that is made.
    PerSandbox,
}
