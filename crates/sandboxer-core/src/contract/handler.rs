//! What is done for a type of resource.

use crate::Result;
use crate::model::{
    AccessResult, CheckpointId, CheckpointResult, PlanId, Resource, RollbackResult, SandboxResult,
};

/// The handler of a resource type: the use cases of one resource within one plan, with plain results.
pub trait ResourceHandler: Send + Sync {
    /// Isolates `resource` for `plan_id`; returns the live one where there is one.
    fn create_sandbox(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxResult>;

    /// Takes a checkpoint of the plan's sandbox over `resource`.
    fn create_checkpoint(&self, plan_id: &PlanId, resource: &Resource) -> Result<CheckpointResult>;

    /// Brings a checkpoint back. A checkpoint that is not there is a result with `success: false`.
    fn rollback_to(
        &self,
        plan_id: &PlanId,
        resource: &Resource,
        checkpoint: &CheckpointId,
    ) -> Result<RollbackResult>;

    /// Whether `principal` may do `action` on `resource`.
    fn project_access(&self, principal: &str, action: &str, resource: &Resource) -> AccessResult;
}
