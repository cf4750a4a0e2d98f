//! The server itself: is it well, what has it done, what can it do.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sandboxer_core::access::TokenScope;
use schemars::JsonSchema;
use serde::Serialize;

use super::fine;
use crate::app::{App, Who};
use crate::openapi;
use crate::problem::Problem;

/// How the server is.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    /// `ok`: the state can be read.
    status: &'static str,
    /// Its version.
    version: &'static str,
}

/// Is it well? Needs no token
#[utoipa::path(
    get, path = "/health", tag = "server", operation_id = "health",
    responses((status = 200, description = "The server answers, and its state can be read", body = ref("#/components/schemas/Health"))),
)]
pub async fn health(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    app.glance(&Who::Nobody, |manager| Ok(manager.last_event()?))?;
    fine(&Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Counters for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "server", operation_id = "metrics",
    responses((status = 200, description = "In Prometheus' text format", body = String, content_type = "text/plain")),
)]
pub async fn metrics(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    who.require(TokenScope::Admin, "read the metrics")?;
    let sandboxes = app.look(&who, |manager| Ok(manager.count_by_state()?)).await?;
    let text = app.metrics.text(&sandboxes);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// This description
#[utoipa::path(
    get, path = "/openapi.json", tag = "server", operation_id = "openapi",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = ref("#/components/schemas/OpenApi"))),
)]
pub async fn openapi(who: Who) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read the description of the server")?;
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::text()).into_response())
}
