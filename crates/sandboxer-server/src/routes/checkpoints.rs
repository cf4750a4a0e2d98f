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

/// Keep the present state
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/checkpoints", tag = "checkpoints", operation_id = "checkpoint",
    params(("id" = String, Path, description = "Its id, a unique beginning of it, or its name")),
    request_body(content = ref("#/components/schemas/CheckpointBody")),
    responses((status = 201, description = "It is kept", body = ref("#/components/schemas/CheckpointDocument"))),
)]
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

/// What is kept, oldest first
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/checkpoints", tag = "checkpoints", operation_id = "list_checkpoints",
    params(("id" = String, Path, description = "Its id, a unique beginning of it, or its name")),
    responses((status = 200, description = "All of it", body = ref("#/components/schemas/CheckpointsDocument"))),
)]
pub async fn list(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    app.look(&who, move |manager| {
        let target = named.find(manager, None)?;
        let records = manager.checkpoints(&target)?;
        fine(&CheckpointsDocument::new(&target.sandbox, &records))
    })
    .await
}

/// Bring a kept state back
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/checkpoints/{name}/restore", tag = "checkpoints", operation_id = "restore_checkpoint",
    params(
        ("id" = String, Path, description = "Its id, a unique beginning of it, or its name"),
        ("name" = String, Path, description = "What the checkpoint is called"),
    ),
    request_body(content = ref("#/components/schemas/RestoreBody")),
    responses((status = 200, description = "It is as it was then", body = ref("#/components/schemas/RollbackDocument"))),
)]
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

/// Keep the present state of all workspaces
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots", tag = "checkpoints", operation_id = "snapshot",
    params(("id" = String, Path, description = "Its id, a unique beginning of it, or its name")),
    responses((status = 201, description = "It is kept", body = ref("#/components/schemas/Snapshot"))),
)]
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

/// The snapshots of a sandbox, oldest first
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/snapshots", tag = "checkpoints", operation_id = "list_snapshots",
    params(("id" = String, Path, description = "Its id, a unique beginning of it, or its name")),
    responses((status = 200, description = "All of them", body = ref("#/components/schemas/SnapshotsDocument"))),
)]
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

/// Bring a snapshot back
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots/{name}/restore", tag = "checkpoints", operation_id = "restore_snapshot",
    params(
        ("id" = String, Path, description = "Its id, a unique beginning of it, or its name"),
        ("name" = String, Path, description = "The snapshot's id"),
    ),
    responses((status = 200, description = "It is as it was then", body = ref("#/components/schemas/RollbackDocument"))),
)]
pub async fn restore_snapshot(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
) -> Result<Response, Problem> {
    restore(State(app), who, named, Document(RestoreBody::default())).await
}
