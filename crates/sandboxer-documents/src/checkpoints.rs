//! Checkpoints, and what going back does.

use jiff::Timestamp;
use sandboxer_core::model::{CheckpointResult, RollbackResult};
use sandboxer_core::service::{CheckpointRecord, Sandbox};
use schemars::JsonSchema;
use serde::Serialize;

/// `checkpoint`: the result of a sandbox's only workspace, or what its results have in common.
#[derive(Serialize, JsonSchema)]
pub struct CheckpointDocument<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    result: Option<CheckpointResult>,
    workspaces: Vec<NamedResult<'a, CheckpointResult>>,
}

/// `rollback` and `restore`: the result of a sandbox's only workspace, or all results added up.
#[derive(Serialize, JsonSchema)]
pub struct RollbackDocument<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    result: Option<RollbackResult>,
    workspaces: Vec<NamedResult<'a, RollbackResult>>,
}

/// One workspace's result.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Named{T}")]
pub struct NamedResult<'a, T> {
    workspace: &'a str,
    #[serde(flatten)]
    result: &'a T,
}

fn named<T>(results: &[(String, T)]) -> Vec<NamedResult<'_, T>> {
    results.iter().map(|(workspace, result)| NamedResult { workspace, result }).collect()
}

impl<'a> CheckpointDocument<'a> {
    /// The document of a checkpoint.
    pub fn new(sandbox: &'a Sandbox, results: &'a [(String, CheckpointResult)]) -> Self {
        let mut result = results.first().map(|(_, first)| first.clone());
        if let (Some(shared), true) = (&mut result, results.len() > 1) {
            shared.snapshot_path = None;
        }
        Self { sandbox_id: sandbox.id.as_str(), result, workspaces: named(results) }
    }
}

impl<'a> RollbackDocument<'a> {
    /// The document of a rollback.
    pub fn new(sandbox: &'a Sandbox, results: &'a [(String, RollbackResult)]) -> Self {
        let mut result = results.first().map(|(_, first)| first.clone());
        if let Some(sum) = &mut result {
            sum.success = results.iter().all(|(_, r)| r.success);
            sum.restored_files = results.iter().map(|(_, r)| r.restored_files).sum();
        }
        Self { sandbox_id: sandbox.id.as_str(), result, workspaces: named(results) }
    }
}

/// `checkpoints`.
#[derive(Serialize, JsonSchema)]
pub struct CheckpointsDocument<'a> {
    sandbox_id: &'a str,
    checkpoints: Vec<KeptCheckpointDocument<'a>>,
}

/// One checkpoint of several.
#[derive(Serialize, JsonSchema)]
pub struct KeptCheckpointDocument<'a> {
    checkpoint_id: &'a str,
    sequence: u64,
    #[schemars(with = "String", extend("format" = "date-time"))]
    timestamp: Timestamp,
    workspaces: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pinned: bool,
}

impl<'a> CheckpointsDocument<'a> {
    /// The document of all that a sandbox has.
    pub fn new(sandbox: &'a Sandbox, records: &'a [CheckpointRecord]) -> Self {
        Self { sandbox_id: sandbox.id.as_str(), checkpoints: records.iter().map(kept).collect() }
    }
}

fn kept(record: &CheckpointRecord) -> KeptCheckpointDocument<'_> {
    KeptCheckpointDocument {
        checkpoint_id: record.id.as_str(),
        sequence: record.sequence,
        timestamp: record.created_at,
        workspaces: &record.workspaces,
        pinned: record.pinned,
    }
}
