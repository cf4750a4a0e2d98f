//! States of a sandbox that can be brought back. A snapshot is a checkpoint of all its workspaces.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use sandboxer_core::environment::Snapshot;
use sandboxer_core::service::CheckpointRecord;
use sandboxer_documents::{CheckpointDocument, CheckpointsDocument, RollbackDocument};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{Document, Named};
use super::{answer, fine};
use crate::app::{App, Who};
use crate::problem::Problem;

/// What to keep.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointBody {
    /// What it is called; made up without it.
    name: Option<String>,
    /// Only this workspace.
    workspace: Option<String>,
}

/// What to bring back.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreBody {
    /// Only this workspace.
    workspace: Option<String>,
}

/// The snapshots of a sandbox, oldest first.
#[derive(Serialize, JsonSchema)]
pub struct SnapshotsDocument {
    snapshots: Vec<Snapshot>,
}

pub async fn take(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<CheckpointBody>,
) -> Result<Response, Problem> {
    app.work(&who, move |manager| {
        let target = named.find(manager, body.workspace.as_deref())?;
        let results = manager.checkpoint(&target, body.name.as_deref())?;
        answer(StatusCode::CREATED, &CheckpointDocument::new(&target.sandbox, &results))
    })
    .await
}

pub async fn list(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    app.look(&who, move |manager| {
        let target = named.find(manager, None)?;
        let records = manager.checkpoints(&target)?;
        fine(&CheckpointsDocument::new(&target.sandbox, &records))
    })
    .await
}

pub async fn restore(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<RestoreBody>,
) -> Result<Response, Problem> {
    app.work(&who, move |manager| {
        let target = named.find(manager, body.workspace.as_deref())?;
        let results = manager.restore(&target, &named.name)?;
        fine(&RollbackDocument::new(&target.sandbox, &results))
    })
    .await
}

fn snapshot_of(sandbox_id: &str, record: &CheckpointRecord) -> Snapshot {
    Snapshot {
        id: record.id.to_string(),
        sandbox_id: sandbox_id.to_owned(),
        workspaces: record.workspaces.clone(),
    }
}

pub async fn snapshot(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    app.work(&who, move |manager| {
        let target = named.find(manager, None)?;
        let results = manager.checkpoint(&target, None)?;
        let id = results.first().map(|(_, result)| result.checkpoint_id.to_string()).unwrap_or_default();
        let workspaces = results.into_iter().map(|(workspace, _)| workspace).collect();
        answer(StatusCode::CREATED, &Snapshot { id, sandbox_id: target.sandbox.id.to_string(), workspaces })
    })
    .await
}

pub async fn snapshots(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    app.look(&who, move |manager| {
        let target = named.find(manager, None)?;
        let (id, all) = (target.sandbox.id.to_string(), target.sandbox.workspaces.len());
        let records = manager.checkpoints(&target)?;
        let whole = records.iter().filter(|record| record.workspaces.len() == all);
        fine(&SnapshotsDocument { snapshots: whole.map(|record| snapshot_of(&id, record)).collect() })
    })
    .await
}

pub async fn restore_snapshot(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
) -> Result<Response, Problem> {
    restore(State(app), who, named, Document(RestoreBody::default())).await
}
