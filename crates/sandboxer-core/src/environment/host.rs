//! Where an environment can be placed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The host that this program runs on.
pub const LOCAL_HOST: &str = "local";

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its id.
    pub id: String,
    /// One line for `sandbox hosts`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// `local`, or `ssh://[USER@]HOST[:PORT]`.
    pub address: String,
    /// The extensions that work there.
    pub extensions: Vec<String>,
    /// Words to choose it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What it has room for.
    #[serde(default)]
    pub capacity: Capacity,
    /// How it is reached, where its address does not say it all.
    #[serde(default, skip_serializing_if = "SshSettings::is_empty")]
    pub ssh: SshSettings,
    /// What may be done there beyond what is harmless.
    #[serde(default, skip_serializing_if = "HostPolicy::is_empty")]
    pub policy: HostPolicy,
    /// Set to take it out of service: new environments go elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Where it was defined: `built-in`, or the file.
    #[serde(skip)]
    pub origin: String,
}

impl Host {
    /// The machine that this program runs on.
    pub fn local() -> Self {
        Self {
            id: LOCAL_HOST.to_owned(),
            summary: String::new(),
            address: LOCAL_HOST.to_owned(),
            extensions: Vec::new(),
            labels: BTreeMap::new(),
            region: None,
            capacity: Capacity::default(),
            ssh: SshSettings::default(),
            policy: HostPolicy::default(),
            drained: false,
            origin: "built-in".to_owned(),
        }
    }
}

/// How a host is reached by SSH. What is not said is as the user's own configuration of it has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SshSettings {
    /// Another configuration file than the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The directory there that sandboxes are in; else `.sandboxer` in the home directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The compose command there, such as `docker compose`; else the first one that works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compose: Option<String>,
    /// Whether what is copied is compressed on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compress: Option<Compression>,
}

impl SshSettings {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether what is copied is compressed on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Where the way is long: a call takes more than 40 milliseconds.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What may be done on a host beyond what is harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostPolicy {
    /// What a stack may ask for here and nowhere else, such as `cap-add`; `sandbox hosts check` lists the words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

impl HostPolicy {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a host has room for; what is not said is not bounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capacity {
    /// Environments at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory, such as `64G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}
