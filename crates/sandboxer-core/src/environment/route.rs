//! Which extension on which host, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cost, Policy};

/// What was chosen for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// For which profile.
    pub profile_id: String,
    /// By which policy.
    pub policy: Policy,
    /// The extension.
    pub extension_id: String,
    /// The host.
    pub host: String,
    /// One sentence.
    pub reason: String,
    /// What an hour of it costs, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Everything that was looked at, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<Candidate>,
}

/// One extension on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The extension.
    pub extension_id: String,
    /// The host.
    pub host: String,
    /// Whether it could be it.
    pub eligible: bool,
    /// Why not, or how it ranks.
    pub reason: String,
}
