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

pub async fn health(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    app.glance(&Who::Nobody, |manager| Ok(manager.last_event()?))?;
    fine(&Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

pub async fn metrics(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    who.require(TokenScope::Admin, "read the metrics")?;
    let sandboxes = app.look(&who, |manager| Ok(manager.count_by_state()?)).await?;
    let text = app.metrics.text(&sandboxes);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

pub async fn openapi(who: Who) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read the description of the server")?;
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::text()).into_response())
}
