//! Results of resource handlers: plain immutable values.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckpointId, PlanId, SandboxId};

/// What `create_sandbox` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxResult {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Where to work, where the strategy gives a path.
    pub sandbox_path: Option<PathBuf>,
    /// The strategy in use.
    pub strategy: String,
    /// False where the sandbox existed already.
    pub created: bool,
    /// One sentence for a person.
    pub message: String,
}

/// What `create_checkpoint` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointResult {
    /// The checkpoint's name.
    pub checkpoint_id: CheckpointId,
    /// The plan of its sandbox.
    pub plan_id: PlanId,
    /// When it was taken.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub timestamp: Timestamp,
    /// Where the strategy keeps it, if that is a path.
    pub snapshot_path: Option<PathBuf>,
    /// One sentence for a person.
    pub message: String,
}

/// What `rollback_to` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    /// The fields of the published contract, no more and no fewer.
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, expected: Value) {
        let json = serde_json::to_value(&value).unwrap();
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<T>(json).unwrap(), value);
    }

    #[test]
    fn sandbox_and_checkpoint_results_have_the_fields_of_the_contract() {
        let result = SandboxResult {
            sandbox_id: SandboxId::from_string("sbx_1"),
            sandbox_path: Some("/w".into()),
            strategy: "none".into(),
            created: true,
            message: "made".into(),
        };
        let expected = json!({
            "sandbox_id": "sbx_1", "sandbox_path": "/w", "strategy": "none", "created": true, "message": "made",
        });
        check(result, expected);
        let result = CheckpointResult {
            checkpoint_id: CheckpointId::from_string("cp_1"),
            plan_id: PlanId::from_string("pln_1"),
            timestamp: "2026-01-02T03:04:05Z".parse().unwrap(),
            snapshot_path: None,
            message: "kept".into(),
        };
        let expected = json!({
            "checkpoint_id": "cp_1", "plan_id": "pln_1", "timestamp": "2026-01-02T03:04:05Z",
            "snapshot_path": null, "message": "kept",
        });
        check(result, expected);
    }

    #[test]
    fn rollback_and_access_results_have_the_fields_of_the_contract() {
        let result =
            RollbackResult { success: true, checkpoint_id: None, restored_files: 3, message: "back".into() };
        check(
            result,
            json!({"success": true, "checkpoint_id": null, "restored_files": 3, "message": "back"}),
        );
        let result = AccessResult {
            permitted: false,
            principal: "agt".into(),
            action: "commit".into(),
            scope: "sbx_1".into(),
            reason: "no".into(),
        };
        let expected = json!({
            "permitted": false, "principal": "agt", "action": "commit", "scope": "sbx_1", "reason": "no",
        });
        check(result, expected);
    }
}
