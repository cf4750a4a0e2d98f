//! What is told of a sandbox's life.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::SandboxId;
use crate::service::Consumer;

/// The version of an event's data.
pub const EVENT_FORMAT: u32 = 1;

/// One transition of one sandbox. Written with the transition itself, in one transaction; told to subscribers afterwards, at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}
