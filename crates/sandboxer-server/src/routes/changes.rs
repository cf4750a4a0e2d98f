//! What differs, made real or thrown away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandboxer_core::access::TokenScope;
use sandboxer_core::model::{CommitRequest, History, OnConflict};
use sandboxer_documents::conflicts::{self, Attempt};
use sandboxer_documents::{CommitDocument, DiffDocument, RollbackDocument, UndoDocument, patch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::{Asked, Document, Named, rel_paths};
use super::{answer, fine};
use crate::app::{App, Who};
use crate::problem::Problem;

/// What of the difference.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    workspace: Option<String>,
    path: Option<String>,
    #[serde(default)]
    format: Format,
}

/// How the difference is told.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Patch,
}

pub async fn diff(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Asked(query): Asked<DiffQuery>,
) -> Result<Response, Problem> {
    let paths = rel_paths(query.path.as_slice())?;
    app.work(&who, move |manager| {
        let target = named.find(manager, query.workspace.as_deref())?;
        let diff = manager.diff(&target, &paths)?;
        if query.format == Format::Json {
            return fine(&DiffDocument::new(&target.sandbox, &diff));
        }
        let bytes = patch::bytes(patch::single(&diff)?)?;
        Ok(([(header::CONTENT_TYPE, "text/x-diff")], bytes).into_response())
    })
    .await
}

/// What is to be committed, and how.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommitBody {
    /// Only this workspace.
    workspace: Option<String>,
    /// Only these paths and what lies below them; empty means everything.
    paths: Vec<String>,
    /// Why; kept in the log, and the message of a git commit.
    message: Option<String>,
    /// Refuse unless this is the digest of exactly what is to be committed.
    digest: Option<String>,
    /// What to do where the original has changed meanwhile.
    on_conflict: OnConflict,
    /// Git: only leave it as this branch, for review.
    to: Option<String>,
    /// Git: what becomes of commits that were made in the sandbox.
    history: History,
    /// Rules that have to hold, such as `paths=src/**; max-files=50`.
    #[serde(rename = "if")]
    conditions: Vec<String>,
    /// Commit flagged paths, too.
    accept_flags: bool,
    /// Check everything and tell what would be committed, but write nothing.
    dry_run: bool,
}

pub async fn commit(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<CommitBody>,
) -> Result<Response, Problem> {
    let request = CommitRequest {
        paths: rel_paths(&body.paths)?,
        message: body.message,
        digest: body.digest,
        on_conflict: body.on_conflict,
        branch: body.to,
        history: body.history,
        ..CommitRequest::default()
    };
    let backend = app.backend.clone();
    app.work(&who, move |manager| {
        let target = named.find(manager, body.workspace.as_deref())?;
        let places = target.workspaces.iter().filter_map(|workspace| workspace.resource.path());
        let places: Vec<PathBuf> = places.map(Path::to_path_buf).collect();
        let rules = backend.rules(&places, &body.conditions, body.accept_flags)?;
        let committed = match body.dry_run {
            true => manager.try_commit(&target, &request, &rules),
            false => manager.commit(&target, &request, &rules),
        };
        let asked_for = named.selector(body.workspace.as_deref());
        let explain = |error| Problem::from(conflicts::explain(error, &Attempt::commit(&request)));
        let commit = committed.map_err(|error| explain(error).aimed_at(&asked_for))?;
        let document = match body.dry_run {
            true => CommitDocument::tried(&target.sandbox, &commit),
            false => CommitDocument::new(&target.sandbox, &commit),
        };
        let parked = commit.workspaces.iter().any(|(_, result)| !result.conflicts.is_empty());
        answer(if parked { StatusCode::CONFLICT } else { StatusCode::OK }, &document)
    })
    .await
}

pub async fn undo(State(app): State<Arc<App>>, who: Who, named: Named) -> Result<Response, Problem> {
    // Before anybody looks whether there is something to take back.
    who.require(TokenScope::Commit, "undo")?;
    app.work(&who, move |manager| {
        let target = named.find(manager, None)?;
        let last = manager.last_commit(Some(&target.sandbox));
        let operation = last.map_err(|error| conflicts::no_commit(error, Some(&target.sandbox.name)))?;
        let explain = |error| Problem::from(conflicts::explain(error, &Attempt::Undo(&operation.id)));
        let undone = manager.undo(&operation).map_err(|error| explain(error).aimed_at(&named.id))?;
        fine(&UndoDocument::new(&undone))
    })
    .await
}

/// Which paths.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathsBody {
    /// Only this workspace.
    workspace: Option<String>,
    /// Only these paths and what lies below them; empty means everything.
    paths: Vec<String>,
}

pub async fn rollback(
    State(app): State<Arc<App>>,
    who: Who,
    named: Named,
    Document(body): Document<PathsBody>,
) -> Result<Response, Problem> {
    let paths = rel_paths(&body.paths)?;
    app.work(&who, move |manager| {
        let target = named.find(manager, body.workspace.as_deref())?;
        let asked_for = named.selector(body.workspace.as_deref());
        let rolled_back = manager.rollback(&target, &paths);
        let results = rolled_back.map_err(|error| Problem::from(error).aimed_at(&asked_for))?;
        fine(&RollbackDocument::new(&target.sandbox, &results))
    })
    .await
}
