//! A whole plan: all its open sandboxes, looked at, committed and rolled back as one.

use sandboxer_core::model::{CommitRequest, PlanId, RollbackResult};
use sandboxer_core::service::{PlanCommit, PlanDiff, RollbackResults, Sandbox, TargetDiff};
use sandboxer_documents::conflicts::Attempt;
use sandboxer_documents::{CommitDocument, DiffDocument, RollbackDocument, Summary};
use serde::Serialize;

use super::commands::commit as one;
use super::conflicts;
use super::error::CliError;
use super::output::{self, Ui, count, shell_word, style};
use super::rules::{self, RuleArgs};
use super::session::App;
use super::{Outcome, diffs, exit};

/// `diff --plan` and `commit --plan`.
#[derive(Serialize)]
struct Document<'a, T> {
    plan_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    digest: &'a str,
    summary: Summary,
    sandboxes: Vec<T>,
}

/// `rollback --plan`.
#[derive(Serialize)]
struct RolledBack<'a> {
    plan_id: &'a str,
    success: bool,
    restored_files: u64,
    sandboxes: Vec<RollbackDocument<'a>>,
}

/// Shows what differs, sandbox by sandbox.
pub fn diff(app: &mut App, plan: &str, stat: bool, exit_code: bool) -> Outcome {
    let session = app.open()?;
    let diff = session.manager.diff_plan(&PlanId::from_string(plan))?;
    let all = diff.sandboxes.iter().flat_map(|(_, diff)| &diff.workspaces).flat_map(|w| &w.entries);
    let summary = Summary::of(all);
    if app.ui.json {
        let sandboxes = diff.sandboxes.iter().map(|(s, d)| DiffDocument::new(s, d)).collect();
        let digest = &diff.digest;
        app.ui.document(&Document { plan_id: plan, dry_run: false, digest, summary, sandboxes })?;
    } else {
        show(&mut app.ui, plan, &diff, summary, stat)?;
    }
    Ok(if exit_code && summary.total > 0 { exit::ERROR } else { exit::OK })
}

fn show(ui: &mut Ui, plan: &str, diff: &PlanDiff, summary: Summary, stat: bool) -> Result<(), CliError> {
    for (sandbox, diff) in diff.sandboxes.iter().filter(|(_, diff)| diffs::summary(diff).total > 0) {
        heading(ui, sandbox)?;
        match stat {
            true => diffs::show_stat(ui, diff)?,
            false => diffs::show_entries(ui, diff)?,
        }
    }
    ui.flush()?;
    if summary.total == 0 {
        ui.note(format_args!("no changes in {}", count(diff.sandboxes.len(), "sandbox")));
        return Ok(());
    }
    let changed = format!("{} in {}", count(summary.total, "change"), count(diff.sandboxes.len(), "sandbox"));
    ui.note(format_args!("{changed}: {}", summary.text()));
    let plan = shell_word(plan);
    ui.next("make it real: ", &format!("sandbox commit --plan {plan}"));
    ui.next("throw it away:", &format!("sandbox rollback --plan {plan}"));
    Ok(())
}

fn heading(ui: &mut Ui, sandbox: &Sandbox) -> Result<(), CliError> {
    ui.line(ui.paint(style::HEAD, output::name(&sandbox.name)))
}

/// Commits all of it, or says what that would do.
pub fn commit(
    app: &mut App,
    plan: &str,
    request: &CommitRequest,
    rules: &RuleArgs,
    dry_run: bool,
) -> Outcome {
    let session = app.open()?;
    let (id, rules) = (PlanId::from_string(plan), rules.read(&session.settings)?);
    let manager = &session.manager;
    let committed = match dry_run {
        true => manager.try_commit_plan(&id, request, &rules),
        false => rules::commit(
            app,
            &session,
            (request, &rules),
            || manager.diff_plan(&id).map_or(Vec::new(), |diff| beforehand(&diff)),
            |request, rules| manager.commit_plan(&id, request, rules),
        ),
    };
    let attempt = Attempt::Commit { way: request.on_conflict, selection: String::new() };
    let commit = committed.map_err(|error| conflicts::explain(error, &attempt))?;
    match (app.ui.json, dry_run) {
        (true, _) => tell_json(&mut app.ui, plan, &commit, dry_run)?,
        (false, true) => tell_tried(&mut app.ui, &commit)?,
        (false, false) => tell(&mut app.ui, &commit)?,
    }
    let codes = commit.sandboxes.iter().map(|(_, commit)| one::exit_code(commit));
    Ok(codes.max().unwrap_or(exit::OK))
}

/// What is committed before everything else.
fn beforehand(diff: &PlanDiff) -> Vec<String> {
    let of = |(sandbox, diff): &(Sandbox, TargetDiff)| rules::deciding(diff, &format!("{}:", sandbox.name));
    diff.sandboxes.iter().flat_map(of).collect()
}

fn summary(commit: &PlanCommit) -> Summary {
    let results = commit.sandboxes.iter().flat_map(|(_, commit)| &commit.workspaces);
    Summary::of(results.flat_map(|(_, result)| &result.entries))
}

fn tell_json(ui: &mut Ui, plan: &str, commit: &PlanCommit, dry_run: bool) -> Result<(), CliError> {
    let document = if dry_run { CommitDocument::tried } else { CommitDocument::new };
    let sandboxes = commit.sandboxes.iter().map(|(s, c)| document(s, c)).collect();
    ui.document(&Document {
        plan_id: plan,
        dry_run,
        digest: &commit.digest,
        summary: summary(commit),
        sandboxes,
    })
}

fn tell(ui: &mut Ui, commit: &PlanCommit) -> Result<(), CliError> {
    for (sandbox, commit) in &commit.sandboxes {
        ui.line(one::sentence(&sandbox.name, commit))?;
    }
    ui.flush()?;
    tell_notices(ui, commit);
    for (sandbox, commit) in commit.sandboxes.iter().filter(|(_, commit)| one::summary(commit).total > 0) {
        if commit.workspaces.iter().all(|(_, result)| result.undo_bytes.is_some()) {
            let name = shell_word(&sandbox.name);
            ui.next(
                &format!("take back what was in {}:", output::name(&sandbox.name)),
                &format!("sandbox undo {name}"),
            );
        }
    }
    Ok(())
}

fn tell_tried(ui: &mut Ui, commit: &PlanCommit) -> Result<(), CliError> {
    for (sandbox, commit) in &commit.sandboxes {
        ui.line(one::sentence_with("would commit", &sandbox.name, commit))?;
        one::tell_entries(ui, commit)?;
    }
    let is_something = summary(commit).total > 0;
    if is_something {
        ui.line(format_args!("digest {}", commit.digest))?;
    }
    ui.flush()?;
    tell_notices(ui, commit);
    if is_something {
        ui.note("nothing was written; to commit exactly this, type the same with --digest DIGEST instead of --dry-run");
    }
    Ok(())
}

fn tell_notices(ui: &Ui, commit: &PlanCommit) {
    commit.sandboxes.iter().for_each(|(_, commit)| one::tell_notices(ui, commit));
}

/// Throws all of it away.
pub fn rollback(app: &mut App, plan: &str) -> Outcome {
    let session = app.open()?;
    let results = session.manager.rollback_plan(&PlanId::from_string(plan))?;
    let all = || results.iter().flat_map(|(_, results)| results).map(|(_, result)| result);
    let success = all().all(|result: &RollbackResult| result.success);
    if app.ui.json {
        let restored_files = all().map(|result| result.restored_files).sum();
        let sandboxes = results.iter().map(|(s, r)| RollbackDocument::new(s, r)).collect();
        app.ui.document(&RolledBack { plan_id: plan, success, restored_files, sandboxes })?;
    } else {
        tell_rollback(&mut app.ui, &results)?;
    }
    Ok(if success { exit::OK } else { exit::ERROR })
}

fn tell_rollback(ui: &mut Ui, results: &[(Sandbox, RollbackResults)]) -> Result<(), CliError> {
    for (sandbox, results) in results {
        for (workspace, result) in results {
            let of = if results.len() > 1 { format!(":{}", output::name(workspace)) } else { String::new() };
            let message = output::sentence(&result.message);
            ui.line(format_args!("{}{of}: {message}", output::name(&sandbox.name)))?;
        }
    }
    Ok(())
}
