//! Handlers of resource types: the use cases for one resource of a plan, with plain results.
//!
//! A resource type names its handler; [`SandboxManager::handler`] finds it. `file`, `git`, `database` and `generic` are one: what differs between
//! files, checkouts, databases and what is at a URL is detection and strategy, not what can be done.

use super::content::the_one;
use super::manager::SandboxManager;
use super::{Consumer, CreateRequest, Target};
use crate::contract::ResourceHandler;
use crate::model::{
    AccessResult, CheckpointId, CheckpointResult, PlanId, Resource, RollbackResult, SandboxResult,
};
use crate::{Error, Result};

impl SandboxManager {
    /// The handler of a resource type, by the type's name.
    pub fn handler(&self, type_name: &str) -> Result<Box<dyn ResourceHandler + '_>> {
        let resource_type = self.types().get(type_name)?;
        match resource_type.handler.as_str() {
            "database" | "file" | "git" | "generic" => Ok(Box::new(SandboxHandler::new(self))),
            other => Err(Error::not_found("handler", other)),
        }
    }
}

/// The handler of everything that a strategy can isolate.
pub struct SandboxHandler<'a> {
    manager: &'a SandboxManager,
    consumer: Consumer,
}

impl<'a> SandboxHandler<'a> {
    /// A handler that acts for a person.
    pub fn new(manager: &'a SandboxManager) -> Self {
        Self { manager, consumer: Consumer { actor_type: "adm".to_owned(), project: "local".to_owned() } }
    }

    /// A handler that acts for `consumer`.
    pub fn acting_for(manager: &'a SandboxManager, consumer: Consumer) -> Self {
        Self { manager, consumer }
    }

    fn request(&self, plan_id: &PlanId) -> CreateRequest {
        CreateRequest {
            inputs: Vec::new(),
            strategy: None,
            no_fallback: false,
            plan: Some(plan_id.clone()),
            name: None,
            ttl: None,
            consumer: self.consumer.clone(),
            disposable: false,
            environment: None,
        }
    }

    /// The resource as it is on this machine now: canonical, there, readable.
    fn located(&self, resource: &Resource) -> Result<Resource> {
        let found = self.manager.types().detect(&resource.location)?;
        Ok(Resource {
            type_name: resource.type_name.clone(),
            properties: resource.properties.clone(),
            ..found
        })
    }

    /// The workspace of the plan's live sandbox over `resource`.
    fn target(&self, plan_id: &PlanId, resource: &Resource) -> Result<Target> {
        let id = self.located(resource).map_or_else(|_| resource.id.clone(), |found| found.id);
        let live = self.manager.store.live_of_plan(plan_id)?.into_iter().filter(|s| s.state.is_open());
        let with_workspace = |sandbox: super::Sandbox| {
            let workspace = sandbox.workspaces.iter().find(|w| w.resource.id == id).cloned()?;
            Some(Target { sandbox, workspaces: vec![workspace] })
        };
        let found = live.filter_map(with_workspace).next();
        found.ok_or_else(|| {
            Error::not_found("sandbox", format!("of plan {plan_id} over {}", resource.location))
        })
    }
}

impl ResourceHandler for SandboxHandler<'_> {
    fn create_sandbox(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxResult> {
        let located = self.located(resource)?;
        let created = self.manager.get_or_create_over(&self.request(plan_id), vec![(None, located)])?;
        let target = Target { workspaces: created.sandbox.workspaces.clone(), sandbox: created.sandbox };
        let workspace = the_one(&target, "create_sandbox")?;
        let sandbox_path = match workspace.sandbox_ref.sandbox_path() {
            Some(_) => Some(self.manager.sandbox_path(&target)?),
            None => None,
        };
        Ok(SandboxResult {
            sandbox_id: target.sandbox.id.clone(),
            sandbox_path,
            strategy: workspace.sandbox_ref.strategy_name.clone(),
            created: created.created,
            message: created.message,
        })
    }

    fn create_checkpoint(&self, plan_id: &PlanId, resource: &Resource) -> Result<CheckpointResult> {
        let taken = self.manager.checkpoint(&self.target(plan_id, resource)?, None)?;
        let first = taken.into_iter().next().map(|(_, result)| result);
        first.ok_or_else(|| Error::not_found("workspace", resource.location.as_str()))
    }

    fn rollback_to(
        &self,
        plan_id: &PlanId,
        resource: &Resource,
        checkpoint: &CheckpointId,
    ) -> Result<RollbackResult> {
        let target = self.target(plan_id, resource)?;
        match self.manager.restore(&target, checkpoint.as_str()) {
            Ok(restored) => {
                let first = restored.into_iter().next().map(|(_, result)| result);
                first.ok_or_else(|| Error::not_found("workspace", resource.location.as_str()))
            }
            Err(Error::NotFound { what: "checkpoint", .. }) => Ok(RollbackResult {
                success: false,
                checkpoint_id: Some(checkpoint.clone()),
                restored_files: 0,
                message: format!("sandbox {} has no checkpoint {checkpoint}", target.sandbox.name),
            }),
            Err(error) => Err(error),
        }
    }

    fn project_access(&self, principal: &str, action: &str, resource: &Resource) -> AccessResult {
        self.manager.permissions.decide(principal, action, resource.id.as_str())
    }
}
