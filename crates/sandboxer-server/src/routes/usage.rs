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
