//! Results of resource handlers: plain immutable values.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CheckpointId, PlanId, SandboxId};

/// What `create_sandbox` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxResult {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Where to work.
    pub sandbox_path: PathBuf,
    /// The strategy in use.
    pub strategy: String,
    /// False where the sandbox existed already.
    pub created: bool,
    /// One sentence for a person.
    pub message: String,
}

/// What `create_checkpoint` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointResult {
    /// The checkpoint's name.
    pub checkpoint_id: CheckpointId,
    /// The plan of its sandbox.
    pub plan_id: PlanId,
    /// When it was taken.
    pub timestamp: Timestamp,
    /// Where the strategy keeps it, if that is a path.
    pub snapshot_path: Option<PathBuf>,
    /// One sentence for a person.
    pub message: String,
}

/// What `rollback_to` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackResult {
    /// Whether the workspace is now in that state.
    pub success: bool,
    /// The checkpoint; `None` for a rollback to the base.
    pub checkpoint_id: Option<CheckpointId>,
    /// How many entries were brought back, removed or changed.
    pub restored_files: u64,
    /// One sentence for a person.
    pub message: String,
}

/// What `project_access` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessResult {
    /// The answer.
    pub permitted: bool,
    /// Who asked.
    pub principal: String,
    /// What they want to do.
    pub action: String,
    /// On what.
    pub scope: String,
    /// Why, in either case.
    pub reason: String,
}
