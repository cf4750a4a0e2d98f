//! What differs, made real, and taken back.

use sandboxer_core::model::{CommitRequest, History};
use sandboxer_documents::Summary;
use serde_json::json;

use super::client::{Question, query, sandbox, split};
use super::documents::{Commit, Diff};
use super::{Remote, done, refuse, text};
use crate::cli::commands::{commit, diff, rel_paths, undo};
use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::output::{self, shell_word, style};
use crate::cli::{Outcome, exit};

pub fn diff(remote: &mut Remote<'_>, args: &diff::Args) -> Outcome {
    refuse(
        "diff",
        &[
            ("--plan", args.plan.is_some()),
            ("--stat", args.stat),
            ("--patch with --json", args.patch && remote.app.ui.json),
        ],
    )?;
    if args.patch {
        let patch = remote.client.ask(question(args, Some("patch"))?)?;
        show_patch(remote, patch)?;
    }
    if args.patch && !args.exit_code {
        return done();
    }
    let document = remote.client.document(question(args, None)?)?;
    let told: Diff = remote.client.shaped(&document)?;
    let (name, workspaces) = (told.name.clone(), told.entries()?);
    let summary = Summary::of(workspaces.iter().flat_map(|(_, entries)| entries));
    if !args.patch && !remote.shown(&document)? {
        show(remote, &workspaces)?;
        let of = |workspace: &str| shell_word(&format!("{name}:{workspace}"));
        let whole = split(&args.id).1.map_or_else(|| shell_word(&name), of);
        let changed = match workspaces.as_slice() {
            [(first, _), _, ..] => of(first),
            _ => whole.clone(),
        };
        diff::tell_next(&remote.app.ui, args, summary, &whole, &changed);
    }
    Ok(if args.exit_code && summary.total > 0 { exit::ERROR } else { exit::OK })
}

fn question(args: &diff::Args, format: Option<&str>) -> Result<Question, CliError> {
    let (id, workspace) = split(&args.id);
    let path = only_path(args)?;
    let query = query(&[("workspace", workspace), ("path", path.as_deref()), ("format", format)]);
    Ok(Question::get(sandbox(id, &format!("/diff{query}"))))
}

/// A server tells the difference of everything, or of one path.
fn only_path(args: &diff::Args) -> Result<Option<String>, CliError> {
    rel_paths(&args.paths)?;
    match args.paths.as_slice() {
        [] => Ok(None),
        [path] => text("the path", path).map(Some),
        _ => Err(CliError::usage("a server shows what differs below one path at a time")
            .hint("name one, or none for everything")),
    }
}

fn show(
    remote: &mut Remote<'_>,
    workspaces: &[(String, Vec<sandboxer_core::model::DiffEntry>)],
) -> Result<(), CliError> {
    let ui = &mut remote.app.ui;
    for (workspace, entries) in workspaces {
        if workspaces.len() > 1 {
            ui.line(ui.paint(style::HEAD, output::name(workspace)))?;
        }
        diffs::show_lines(ui, entries)?;
    }
    ui.flush()
}

fn show_patch(remote: &mut Remote<'_>, answer: ureq::http::Response<ureq::Body>) -> Result<(), CliError> {
    let mut patch = Vec::new();
    let read = std::io::Read::read_to_end(&mut remote.client.bytes(answer), &mut patch);
    read.map_err(|error| remote.client.broken(&error))?;
    diffs::show_rendered(&mut remote.app.ui, &patch)
}

pub fn commit(remote: &mut Remote<'_>, args: &commit::Args) -> Outcome {
    refuse(
        "commit",
        &[
            ("--plan", args.target.plan.is_some()),
            ("--patch", args.selection.patch),
            ("--hunks", args.selection.hunks.is_some()),
            ("--policy", !args.rules.policy.is_empty()),
            ("--abort", args.abort),
        ],
    )?;
    let request = CommitRequest {
        paths: rel_paths(&args.paths)?,
        message: args.message.clone(),
        digest: args.digest.clone(),
        on_conflict: args.conflicts.read()?,
        branch: args.revision.to.clone(),
        history: if args.revision.keep_commits { History::Keep } else { History::Squash },
        ..CommitRequest::default()
    };
    let paths = args.paths.iter().map(|path| text("the path", path)).collect::<Result<Vec<_>, _>>()?;
    let (id, workspace) = split(args.target.id.as_deref().unwrap_or_default());
    let body = json!({
        "workspace": workspace, "paths": paths, "message": request.message, "digest": request.digest,
        "on_conflict": request.on_conflict, "to": request.branch, "history": request.history,
        "if": args.rules.conditions, "accept_flags": args.rules.accept_flags, "dry_run": args.dry_run,
    });
    let document = remote.client.document(Question::post(sandbox(id, "/commit"), &body)?)?;
    let told: Commit = remote.client.shaped(&document)?;
    let (name, made) = (told.name.clone(), told.read()?);
    if !remote.shown(&document)? {
        let ui = &mut remote.app.ui;
        match args.dry_run {
            true => commit::tell_tried(ui, &name, &request, &made)?,
            // Its repository is on the server's machine.
            false => commit::tell(ui, &name, &request, &made, |_, _| {})?,
        }
    }
    Ok(commit::exit_code(&made))
}

pub fn undo(remote: &mut Remote<'_>, args: &undo::Args) -> Outcome {
    let Some(id) = args.what.as_deref().filter(|what| !what.starts_with("op_")) else {
        let message = "a server takes the newest commit of a sandbox back, which has to be named";
        return Err(
            CliError::usage(message).hint("`sandbox undo ID`; others are taken back on the server's machine")
        );
    };
    let document = remote.client.document(Question::post(sandbox(id, "/undo"), &json!({}))?)?;
    let told: Commit = remote.client.shaped(&document)?;
    let (name, operation, undone) = (told.name.clone(), told.undone.clone(), told.read()?);
    if !remote.shown(&document)? {
        let line = undo::sentence(&name, "commit", &operation, &undone);
        undo::tell(&mut remote.app.ui, &name, &line, &undone, true)?;
    }
    Ok(commit::exit_code(&undone))
}
