//! Moving a sandbox onto what its resources are now.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::per_workspace;
use super::manager::{SandboxManager, counted, in_workspace};
use super::{Target, Workspace};
use crate::model::Conflict;
use crate::{Error, Result};

/// The property that has a strategy move a workspace onto what its resource is now.
pub(super) const REFRESH: &str = "refresh";

/// What a refresh did to one workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refreshed {
    /// Files that have the changes of both sides now.
    pub merged: Vec<String>,
    /// How many entries were brought up to date, beside all those that are simply seen through.
    pub updated: u64,
    /// What both sides changed and could not be merged: it is as it was, and a commit would still conflict.
    pub conflicts: Vec<Conflict>,
}

impl SandboxManager {
    /// Moves every workspace of the target onto what its resource is now.
    pub fn refresh(&self, target: &Target) -> Result<Vec<(String, Refreshed)>> {
        self.permit_on(target, "refresh")?;
        let (mut still, target) = self.lock_still(target)?;
        for workspace in &target.workspaces {
            self.check_refreshes(workspace).map_err(in_workspace(&target.sandbox, workspace))?;
        }
        let plan = &target.sandbox.plan_id;
        let work = || {
            per_workspace(&target, |workspace| {
                let mut resource = workspace.resource.clone();
                let home = workspace.sandbox_ref.text("dir").unwrap_or_default();
                resource.properties.insert(REFRESH.to_owned(), json!(home));
                let mut made = self.strategy_of(workspace)?.create(plan, &resource)?;
                let told = made.metadata.remove("refreshed").unwrap_or_default();
                serde_json::from_value(told).map_err(|e| Error::corrupt(home, e.to_string()))
            })
        };
        let logged =
            || self.logged(&target.sandbox.id, "refresh", json!({}), work, |results| told_refresh(results));
        self.sending_one(&mut still, &target, logged)
    }

    fn check_refreshes(&self, workspace: &Workspace) -> Result<()> {
        if self.capabilities_of(workspace)?.refreshes {
            return Ok(());
        }
        Err(Error::Unsupported {
            strategy: workspace.sandbox_ref.strategy_name.clone(),
            what: "refresh",
            reason: "its copy is of the time when it was made; make a new sandbox".to_owned(),
        })
    }
}

fn told_refresh(results: &[(String, Refreshed)]) -> (String, Value) {
    let merged: usize = results.iter().map(|(_, done)| done.merged.len()).sum();
    let conflicts: usize = results.iter().map(|(_, done)| done.conflicts.len()).sum();
    let text = format!("refreshed: {} merged, {}", counted(merged, "file"), counted(conflicts, "conflict"));
    (text, json!({"workspaces": results}))
}
