//! What a backend says of itself before anybody calls it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::IsolationLevel;
use crate::Error;

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
    /// Set for a file that cannot be used. Only a command that uses the extension fails.
    #[serde(skip)]
    pub invalid: Option<InvalidDefinition>,
}

/// Why the file of an extension cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDefinition {
    /// The file.
    pub file: PathBuf,
    /// The line, if known.
    pub line: Option<u64>,
    /// The column, if known.
    pub column: Option<u64>,
    /// What is wrong with it.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl ExtensionDefinition {
    /// Stands for a file that cannot be read as a definition: it can do nothing.
    pub(super) fn unreadable(id: String, invalid: InvalidDefinition) -> Self {
        Self {
            id,
            summary: String::new(),
            provider: Provider::Plugin { module: String::new(), class: None, python: None, timeout: None },
            capabilities: ExtensionCapabilities {
                isolation: Vec::new(),
                network: Vec::new(),
                workspaces: WorkspaceAccess::None,
                exec: false,
                ports: false,
                limits: false,
                mounts: false,
            },
            self_hosted: false,
            pricing: Pricing { model: PricingModel::Free, amount: 0.0, currency: None },
            regions: Vec::new(),
            options: BTreeMap::new(),
            origin: String::new(),
            invalid: Some(invalid),
        }
    }
}

impl InvalidDefinition {
    /// The error of a command that uses the extension.
    pub fn to_error(&self) -> Error {
        let Self { file, line, column, message, hint } = self.clone();
        Error::Config { file, line, column, message, hint }
    }
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
