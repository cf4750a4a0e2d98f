//! Where an environment can be placed.

use std::collections::BTreeMap;

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
    /// Set to take it out of service: new environments go elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Where it was defined: `built-in`, or the file.
    #[serde(skip)]
    pub origin: String,
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
