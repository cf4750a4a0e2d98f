//! What is told of a sandbox's life.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Endpoint, Environment};
use crate::model::SandboxId;
use crate::service::Consumer;

/// The subscriber that the State Hub is, where there is one.
pub const HUB: &str = "hub";

/// The version of an event's data.
pub const EVENT_FORMAT: u32 = 1;

/// One transition of one sandbox. Written with the transition itself, in one transaction; told to subscribers afterwards, at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LifecycleEvent {
    /// Its place in the order of all events of this state directory.
    pub seq: u64,
    /// `evt_` and a ULID; the same however often it is told.
    pub id: String,
    /// Whose.
    pub sandbox_id: SandboxId,
    /// What that is called.
    pub name: String,
    /// What it has become: a state of the lifecycle, or `extended`, `lost`.
    pub kind: String,
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// The profile.
    pub profile_id: String,
    /// The extension.
    pub extension_id: String,
    /// The host.
    pub host: String,
    /// Who asked for the sandbox.
    pub consumer: Consumer,
    /// Why, where there is a reason: of a failure, the step and what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it is known by besides its id.
    #[serde(flatten)]
    pub identity: Identity,
}

/// What a sandbox registers with a hub, besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// Words of the caller's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where it is reached, as long as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Where its credentials are, such as `env:NPM_TOKEN`. Never what they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
}

impl Identity {
    /// Of a sandbox with this environment.
    pub fn of(environment: Option<&Environment>) -> Self {
        environment.map_or_else(Self::default, |environment| Self {
            labels: environment.labels.clone(),
            endpoints: environment.endpoints.clone(),
            credentials: environment.setup.secret_refs.clone(),
        })
    }
}
