//! States that can be brought back, and bringing them back.

use sandboxer_core::model::CheckpointId;
use sandboxer_core::model::RollbackResult;
use sandboxer_core::service::CheckpointRecord;
use serde::Deserialize;
use serde_json::json;

use super::client::{Question, encoded, sandbox, split};
use super::document::Document;
use super::{Remote, done, refuse, text};
use crate::cli::Outcome;
use crate::cli::commands::{checkpoint, checkpoints, rel_paths, restore, rollback};
use crate::cli::output::{self, instant, shell_word};

#[derive(Deserialize)]
struct Taken {
    checkpoint_id: String,
}

pub fn take(remote: &mut Remote<'_>, args: &checkpoint::Args) -> Outcome {
    let (id, workspace) = split(&args.target.id);
    let body = json!({ "name": args.name, "workspace": workspace });
    let document = remote.client.document(Question::post(sandbox(id, "/checkpoints"), &body)?)?;
    if remote.shown(&document)? {
        return done();
    }
    let taken: Taken = remote.client.shaped(&document)?;
    let ui = &mut remote.app.ui;
    ui.line(output::name(&taken.checkpoint_id))?;
    ui.flush()?;
    let (sandbox, checkpoint) = (shell_word(&args.target.id), shell_word(&taken.checkpoint_id));
    ui.next("bring it back:", &format!("sandbox restore {sandbox} {checkpoint}"));
    done()
}

#[derive(Deserialize)]
struct All {
    checkpoints: Vec<Kept>,
}

#[derive(Deserialize)]
struct Kept {
    checkpoint_id: String,
    sequence: u64,
    timestamp: String,
    workspaces: Vec<String>,
    #[serde(default)]
    pinned: bool,
}

impl From<Kept> for CheckpointRecord {
    fn from(kept: Kept) -> Self {
        Self {
            id: CheckpointId::from_string(kept.checkpoint_id),
            sequence: kept.sequence,
            created_at: instant(&kept.timestamp),
            workspaces: kept.workspaces,
            pinned: kept.pinned,
            snapshots: Default::default(),
        }
    }
}

pub fn list(remote: &mut Remote<'_>, args: &checkpoints::Args) -> Outcome {
    refuse("checkpoints", &[("--pin", args.pin.is_some()), ("--unpin", args.unpin.is_some())])?;
    let document = remote.client.document(Question::get(sandbox(&args.target.id, "/checkpoints")))?;
    if remote.shown(&document)? {
        return done();
    }
    let all: All = remote.client.shaped(&document)?;
    let kept: Vec<CheckpointRecord> = all.checkpoints.into_iter().map(CheckpointRecord::from).collect();
    let ui = &mut remote.app.ui;
    match kept.is_empty() {
        true => ui.next(
            "no checkpoints; take one with",
            &format!("sandbox checkpoint {}", shell_word(&args.target.id)),
        ),
        false => checkpoints::show(ui, &kept)?,
    }
    done()
}

pub fn restore(remote: &mut Remote<'_>, args: &restore::Args) -> Outcome {
    let (id, workspace) = split(&args.target.id);
    let place = sandbox(id, &format!("/checkpoints/{}/restore", encoded(args.name.as_bytes(), b"")));
    let document = remote.client.document(Question::post(place, &json!({ "workspace": workspace }))?)?;
    tell(remote, &document)
}

pub fn rollback(remote: &mut Remote<'_>, args: &rollback::Args) -> Outcome {
    let selection = &args.selection;
    refuse(
        "rollback",
        &[
            ("--plan", args.target.plan.is_some()),
            ("--patch", selection.patch),
            ("--hunks", selection.hunks.is_some()),
        ],
    )?;
    rel_paths(&args.paths)?;
    let paths = args.paths.iter().map(|path| text("the path", path)).collect::<Result<Vec<_>, _>>()?;
    let (id, workspace) = split(args.target.id.as_deref().unwrap_or_default());
    let body = json!({ "workspace": workspace, "paths": paths });
    let document = remote.client.document(Question::post(sandbox(id, "/rollback"), &body)?)?;
    tell(remote, &document)
}

#[derive(Deserialize)]
struct Results {
    workspaces: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    workspace: String,
    #[serde(flatten)]
    result: RollbackResult,
}

/// What was brought back in each workspace.
fn tell(remote: &mut Remote<'_>, document: &Document) -> Outcome {
    let results: Results = remote.client.shaped(document)?;
    let results: Vec<(String, RollbackResult)> =
        results.workspaces.into_iter().map(|named| (named.workspace, named.result)).collect();
    if !remote.shown(document)? {
        rollback::tell(&mut remote.app.ui, &results)?;
    }
    Ok(rollback::success_code(&results))
}
