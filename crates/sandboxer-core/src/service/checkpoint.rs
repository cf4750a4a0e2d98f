//! Checkpoints: the service names, orders, keeps and prunes them, across processes; strategies supply the mechanism.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::content::{per_workspace, told_rollback};
use super::manager::{SandboxManager, Still, counted};
use super::park::home_of;
use super::{CheckpointRecord, CheckpointResults, RollbackResults, Target, names};
use crate::model::{CheckpointId, CheckpointResult, Part};
use crate::store::now;
use crate::{Error, Result};

impl SandboxManager {
    /// The service that keeps this state's checkpoints.
    pub fn checkpoint_service(&self) -> CheckpointService<'_> {
        CheckpointService { manager: self }
    }

    /// Keeps the present state of a target, under `name` or the next number.
    pub fn checkpoint(&self, target: &Target, name: Option<&str>) -> Result<CheckpointResults> {
        self.checkpoint_service().take(target, name)
    }

    /// The checkpoints of a sandbox, oldest first.
    pub fn checkpoints(&self, target: &Target) -> Result<Vec<CheckpointRecord>> {
        self.checkpoint_service().list(target)
    }

    /// Brings a checkpoint back.
    pub fn restore(&self, target: &Target, name: &str) -> Result<RollbackResults> {
        self.checkpoint_service().restore(target, name)
    }

    pub(super) fn restore_each(&self, target: &Target, checkpoint: &CheckpointId) -> Result<RollbackResults> {
        per_workspace(target, |w| self.strategy_of(w)?.restore_checkpoint(&w.sandbox_ref, checkpoint))
    }
}

/// Names, orders, persists and prunes checkpoints.
#[derive(Clone, Copy)]
pub struct CheckpointService<'a> {
    manager: &'a SandboxManager,
}

impl CheckpointService<'_> {
    /// Keeps the present state of a target, under `name` or the next number. A name is used once.
    pub fn take(&self, target: &Target, name: Option<&str>) -> Result<CheckpointResults> {
        if let Some(name) = name {
            names::check("checkpoint", name)?;
        }
        self.manager.permit_on(target, "checkpoint")?;
        let (_still, target) = self.manager.lock_still(target)?;
        self.check_ability(&target)?;
        let record = self.next_record(&target, name)?;
        let places: Vec<PathBuf> =
            target.workspaces.iter().filter_map(home_of).map(Path::to_path_buf).collect();
        self.manager.make_room(&target.sandbox.id, &places, "a checkpoint")?;
        let told = |results: &CheckpointResults| told_checkpoint(&record, results);
        self.manager.logged(
            &target.sandbox.id,
            "checkpoint",
            json!({}),
            || self.take_all(&target, &record),
            told,
        )
    }

    fn check_ability(&self, target: &Target) -> Result<()> {
        for workspace in &target.workspaces {
            if !self.manager.capabilities_of(workspace)?.checkpoints {
                return Err(Error::Unsupported {
                    strategy: workspace.sandbox_ref.strategy_name.clone(),
                    what: "take checkpoints",
                    reason: "it keeps one state only".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn next_record(&self, target: &Target, name: Option<&str>) -> Result<CheckpointRecord> {
        let taken = self.manager.store.checkpoints(&target.sandbox.id)?;
        let is_taken = |name: &str| taken.iter().any(|record| record.id.as_str() == name);
        let sequence = self.manager.store.last_checkpoint(&target.sandbox.id)? + 1;
        let name = match name {
            Some(name) if is_taken(name) => return Err(name_taken(target, name)),
            Some(name) => name.to_owned(),
            None => (sequence..).map(|n| format!("cp-{n}")).find(|n| !is_taken(n)).unwrap_or_default(),
        };
        Ok(CheckpointRecord {
            id: CheckpointId::from_string(name),
            sequence,
            created_at: now(),
            workspaces: target.workspaces.iter().map(|w| w.name.clone()).collect(),
            pinned: false,
            snapshots: BTreeMap::new(),
        })
    }

    /// Every workspace first, the record second: a crash in between leaves content that nobody lists, which a second
    /// attempt under that name replaces.
    fn take_all(&self, target: &Target, record: &CheckpointRecord) -> Result<CheckpointResults> {
        let paths = per_workspace(target, |workspace| {
            self.manager.strategy_of(workspace)?.checkpoint(&workspace.sandbox_ref, &record.id)
        })?;
        let snapshots = paths.iter().filter_map(|(name, path)| Some((name.clone(), path.clone()?))).collect();
        let record = CheckpointRecord { snapshots, ..record.clone() };
        self.manager.keep_besides(target, &record.id)?;
        self.manager.store.add_checkpoint(&target.sandbox.id, &record)?;
        let fits = self.manager.account_checkpoint(target, &record.id);
        self.manager.describe(&target.sandbox)?;
        fits?;
        let result = |path: Option<PathBuf>| CheckpointResult {
            checkpoint_id: record.id.clone(),
            plan_id: target.sandbox.plan_id.clone(),
            timestamp: record.created_at,
            snapshot_path: path,
            message: format!("checkpoint {} of sandbox {}", record.id, target.sandbox.name),
        };
        Ok(paths.into_iter().map(|(name, path)| (name, result(path))).collect())
    }

    /// The checkpoints of a sandbox, oldest first; of one workspace, those that cover it.
    pub fn list(&self, target: &Target) -> Result<Vec<CheckpointRecord>> {
        let mut records = self.manager.store.checkpoints(&target.sandbox.id)?;
        records.retain(|record| target.workspaces.iter().any(|w| record.workspaces.contains(&w.name)));
        Ok(records)
    }

    /// Brings a checkpoint back in every workspace of the target.
    pub fn restore(&self, target: &Target, name: &str) -> Result<RollbackResults> {
        self.manager.permit_on(target, "restore")?;
        let (mut still, target) = self.manager.lock_still_to_replace(target)?;
        let record = self.covering(&target, name)?;
        self.manager.sending_one(&mut still, &target, || self.restore_locked(&target, &record))
    }

    /// The same for what is taken down next, and not told any more. The caller holds it still.
    pub(super) fn restore_at_last(&self, still: &mut Still, target: &Target, name: &str) -> Result<()> {
        self.manager.permit_on(target, "restore")?;
        let record = self.covering(target, name)?;
        self.manager.without_sending(still, target, || self.restore_locked(target, &record)).map(drop)
    }

    fn restore_locked(&self, target: &Target, record: &CheckpointRecord) -> Result<RollbackResults> {
        let plan = json!({"workspaces": super::commit::names(target), "checkpoint": record.id});
        let told = |results: &RollbackResults| told_restore(results, &record.id);
        let work = || self.manager.restore_each(target, &record.id);
        self.manager.logged(&target.sandbox.id, "restore", plan, work, told)
    }

    /// The checkpoint of that name, if it covers every workspace of the target.
    fn covering(&self, target: &Target, name: &str) -> Result<CheckpointRecord> {
        let record = self.get(target, name)?;
        check_covered(target, &record)?;
        Ok(record)
    }

    fn get(&self, target: &Target, name: &str) -> Result<CheckpointRecord> {
        let records = self.list(target)?;
        let ids: Vec<String> = records.iter().map(|record| record.id.as_str().to_owned()).collect();
        records.into_iter().find(|record| record.id.as_str() == name).ok_or_else(|| Error::NotFound {
            what: "checkpoint",
            name: name.to_owned(),
            similar: crate::resolve::nearest(name, ids.iter()),
        })
    }

    /// Has pruning leave a checkpoint alone, or not any more.
    pub fn pin(&self, target: &Target, name: &str, pinned: bool) -> Result<()> {
        self.manager.permit_on(target, "checkpoint")?;
        let (_lock, target) = self.manager.lock_open(target)?;
        let record = self.get(&target, name)?;
        self.manager.store.pin_checkpoint(&target.sandbox.id, &record.id, pinned)?;
        self.manager.store.pin(&target.sandbox.id, "checkpoint", record.id.as_str(), pinned)?;
        self.manager.describe(&target.sandbox)
    }

    /// Forgets all but the newest `keep` checkpoints and the pinned ones; returns which. What their strategies keep for
    /// each of them alone goes too.
    pub fn prune(&self, target: &Target, keep: usize) -> Result<Vec<CheckpointId>> {
        self.manager.permit_on(target, "checkpoint")?;
        let (_lock, target) = self.manager.lock_open(target)?;
        let newest_first = self.list(&target)?.into_iter().rev();
        let old: Vec<_> = newest_first.filter(|record| !record.pinned).skip(keep).collect();
        let ids: Vec<_> = old.iter().map(|record| record.id.clone()).collect();
        if ids.is_empty() {
            return Ok(ids);
        }
        self.manager.store.remove_checkpoints(&target.sandbox.id, &ids)?;
        self.manager.describe(&target.sandbox)?;
        for record in &old {
            self.manager.store.forget(&target.sandbox.id, "checkpoint", record.id.as_str())?;
            self.manager.drop_part(&target.sandbox.workspaces, &Part::Checkpoint(record.id.clone()))?;
            self.manager.forget_besides(&target.sandbox.id, &record.id)?;
        }
        self.manager.settle_checkpoints(&target.sandbox)?;
        Ok(ids)
    }
}

fn check_covered(target: &Target, record: &CheckpointRecord) -> Result<()> {
    match target.workspaces.iter().find(|w| !record.workspaces.contains(&w.name)) {
        None => Ok(()),
        Some(missing) => Err(Error::Usage {
            message: format!("checkpoint {} does not cover workspace {}", record.id, missing.name),
            hint: record.workspaces.first().map(|name| format!("name one: {}:{name}", target.sandbox.name)),
        }),
    }
}

fn name_taken(target: &Target, name: &str) -> Error {
    Error::Usage {
        message: format!("sandbox {} has a checkpoint {name:?} already", target.sandbox.name),
        hint: Some("choose another name, or leave it out to have one made up".to_owned()),
    }
}

pub(super) fn told_restore(results: &RollbackResults, checkpoint: &CheckpointId) -> (String, Value) {
    told_rollback(results, &format!("restored {checkpoint}:"))
}

fn told_checkpoint(record: &CheckpointRecord, results: &CheckpointResults) -> (String, Value) {
    let summary = format!("checkpoint {} of {}", record.id, counted(results.len(), "workspace"));
    (summary, json!({"checkpoint": record.id, "workspaces": record.workspaces}))
}
