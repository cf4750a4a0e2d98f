//! One handler for each operation: parse, call a use case, convert.

pub mod about;
pub mod catalogue;
pub mod changes;
pub mod checkpoints;
pub mod events;
pub mod exec;
pub mod files;
pub mod input;
pub mod sandboxes;
pub mod usage;

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandboxer_documents::Kind;
use serde::Serialize;

use crate::app::App;
use crate::gate;
use crate::problem::Problem;

/// Every operation behind the gate.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(about::health))
        .route("/metrics", get(about::metrics))
        .route("/openapi.json", get(about::openapi))
        .route("/v1/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .route("/v1/sandboxes/{id}", get(sandboxes::get).delete(sandboxes::destroy))
        .route("/v1/sandboxes/{id}/extend", post(sandboxes::extend))
        .route("/v1/sandboxes/{id}/recreate", post(sandboxes::recreate))
        .route("/v1/sandboxes/{id}/unpark", post(sandboxes::unpark))
        .route("/v1/sandboxes/{id}/diff", get(changes::diff))
        .route("/v1/sandboxes/{id}/commit", post(changes::commit))
        .route("/v1/sandboxes/{id}/undo", post(changes::undo))
        .route("/v1/sandboxes/{id}/rollback", post(changes::rollback))
        .route("/v1/sandboxes/{id}/checkpoints", get(checkpoints::list).post(checkpoints::take))
        .route("/v1/sandboxes/{id}/checkpoints/{name}/restore", post(checkpoints::restore))
        .route("/v1/sandboxes/{id}/snapshots", get(checkpoints::snapshots).post(checkpoints::snapshot))
        .route("/v1/sandboxes/{id}/snapshots/{name}/restore", post(checkpoints::restore_snapshot))
        .route("/v1/sandboxes/{id}/files/{*path}", get(files::read).put(files::write))
        .route("/v1/sandboxes/{id}/exec", post(exec::exec))
        .route("/v1/sandboxes/{id}/events", get(events::of_sandbox))
        .route("/v1/events", get(events::of_all))
        .route("/v1/usage", get(usage::usage))
        .route("/v1/profiles", get(catalogue::profiles))
        .route("/v1/extensions", get(catalogue::extensions))
        .route("/v1/hosts", get(catalogue::hosts))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(app.clone(), gate::pass))
        .with_state(app)
}

async fn nowhere() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, Kind::NotFound, "there is nothing at this address")
        .hint("GET /openapi.json lists what there is")
}

async fn not_so() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Usage, "this address is not used with this method")
        .hint("GET /openapi.json lists what there is")
}

/// A document as an answer.
fn answer(status: StatusCode, document: &impl Serialize) -> Result<Response, Problem> {
    let failed = |error: serde_json::Error| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Kind::Error,
            format!("an answer cannot be written: {error}"),
        )
    };
    let text = serde_json::to_vec(document).map_err(failed)?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The same, fine.
fn fine(document: &impl Serialize) -> Result<Response, Problem> {
    answer(StatusCode::OK, document)
}
