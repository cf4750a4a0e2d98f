//! What was used, by whom, within which limits.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use sandboxer_core::access::TokenScope;
use sandboxer_core::config::parse_moment;
use sandboxer_core::service::{UsageBy, UsageQuery};
use serde::Deserialize;

use super::fine;
use super::input::Asked;
use crate::app::{App, Who};
use crate::problem::Problem;

/// What of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    #[serde(default)]
    by: UsageBy,
    since: Option<String>,
    until: Option<String>,
    project: Option<String>,
}

/// What was used: the caller's own; with the scope `admin`, everybody's
#[utoipa::path(
    get, path = "/v1/usage", tag = "usage", operation_id = "usage",
    params(
        ("by" = Option<String>, Query, description = "`consumer`, `project`, `profile`, `extension` or `sandbox`; `consumer` without it"),
        ("since" = Option<String>, Query, description = "From this date (its midnight of UTC) or time on, such as `2026-11-01`"),
        ("until" = Option<String>, Query, description = "Before this date or time"),
        ("project" = Option<String>, Query, description = "Of this project only"),
    ),
    responses((status = 200, description = "Rows and their sum", body = ref("#/components/schemas/UsageReport"))),
)]
pub async fn usage(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(query): Asked<Query>,
) -> Result<Response, Problem> {
    who.require(TokenScope::Read, "read usage")?;
    let held = match &who {
        Who::Caller(caller) if !caller.has(TokenScope::Admin) => Some(caller),
        _ => None,
    };
    // A consumer's bill is the affair of all who act for it; their sandboxes by name are not.
    let consumer = held.map(|caller| caller.consumer.clone());
    let principal = held.filter(|_| query.by == UsageBy::Sandbox).map(|caller| caller.principal.clone());
    let query = UsageQuery {
        by: query.by,
        since: query.since.as_deref().map(parse_moment).transpose()?,
        until: query.until.as_deref().map(parse_moment).transpose()?,
        project: query.project,
        consumer,
        principal,
        ..UsageQuery::default()
    };
    app.look(&who, move |manager| fine(&manager.usage(&query)?)).await
}
