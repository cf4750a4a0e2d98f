use std::ffi::OsString;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffEntry, History, OnConflict};
use sandboxer_core::service::TargetCommit;
use sandboxer_documents::conflicts::Attempt;
use sandboxer_documents::git::revisions;
use sandboxer_documents::{AbortDocument, CommitDocument, Summary};

use super::{Named, TargetOrPlan, rel_paths};
use crate::cli::conflicts::{self, ConflictArgs};
use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::git;
use crate::cli::hunks::{self, Purpose, SelectionArgs};
use crate::cli::output::{self, Ui, count, shell_word};
use crate::cli::plans;
use crate::cli::rules::{self, RuleArgs};
use crate::cli::session::{App, conflict_sentence};
use crate::cli::{Outcome, exit};

/// Make the difference real: all of it, some paths, or some hunks
///
/// Refuses with exit code 3, and writes nothing, where the original has changed since the sandbox was made. Either
/// everything that was selected is written or nothing is, also when the machine stops in the middle. The sandbox stays
/// open, and what was committed is its new base; `sandbox undo` takes it back. Paths that a careful person should look at
/// first are flagged, and refused with exit code 5 unless you say --accept-flags. In a git checkout it is a commit on the branch that is checked out, with
/// -m as its message; what you have changed there yourself and not committed stays as it is. With --to it is only a branch, for review: neither files
/// nor index change, and the work stays pending in the sandbox. With --plan all open sandboxes of the plan are committed as one: everything in
/// all of them or nothing in any. Each is taken back by itself.
#[derive(clap::Args)]
#[command(override_usage = "sandbox commit [OPTIONS] <ID> [PATH]...
       sandbox commit [OPTIONS] --plan <PLAN>")]
#[command(after_help = "\
Examples:
  sandbox commit try
  sandbox commit try src/main.rs docs -m 'fix the parser'
  sandbox commit try -p src                            Choose hunk by hunk
  sandbox commit try --digest \"$(sandbox diff try --json | jq -r .digest)\"   Only what was reviewed
  sandbox commit try --on-conflict merge               Merge with what the original has now
  sandbox commit try --to review -m 'new parser'       Git: only leave it as a branch, for review
  sandbox commit try --keep-commits                    Git: keep the commits that were made inside
  sandbox commit --plan fix-123                        All open sandboxes of a plan, as one
  sandbox commit try --dry-run                         Only tell what would be done
  sandbox commit try --abort                           Take back one that stopped half way
  sandbox commit try --if 'paths=src/**; max-files=50; no-flags'      Only what is harmless")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetOrPlan,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Why; kept in the log, and the message of a git commit
    #[arg(short, long)]
    pub message: Option<String>,
    /// Refuse (exit 5) unless this is the digest of exactly what is to be committed
    #[arg(long)]
    pub digest: Option<String>,
    #[command(flatten)]
    pub revision: RevisionArgs,
    #[command(flatten)]
    pub conflicts: ConflictArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Check everything and tell what would be committed, but write nothing
    #[arg(long, conflicts_with = "write_conflicts")]
    pub dry_run: bool,
    /// Take back what a commit has written that was interrupted and cannot be finished
    #[arg(long, conflicts_with_all = ["plan", "paths", "dry_run", "message", "digest", "patch", "hunks"])]
    pub abort: bool,
}

/// What becomes of it in a git repository.
#[derive(clap::Args)]
pub struct RevisionArgs {
    /// Only leave it as this branch, for review; the checkout is not touched
    #[arg(long, value_name = "BRANCH", help_heading = git::HEADING)]
    pub to: Option<String>,
    /// Keep the commits that were made in the sandbox; one more has what is in none of them
    #[arg(long, conflicts_with = "squash", help_heading = git::HEADING)]
    pub keep_commits: bool,
    /// Make one commit of everything, whatever was committed in the sandbox [default]
    #[arg(long, help_heading = git::HEADING)]
    pub squash: bool,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let mut request = CommitRequest {
        paths: rel_paths(&args.paths)?,
        message: args.message.clone(),
        digest: args.digest.clone(),
        on_conflict: args.conflicts.read()?,
        branch: args.revision.to.clone(),
        history: if args.revision.keep_commits { History::Keep } else { History::Squash },
        ..CommitRequest::default()
    };
    let id = match args.target.named() {
        Named::Sandbox(id) if args.abort => return abort(app, id),
        Named::Plan(plan) => return plans::commit(app, plan, &request, &args.rules, args.dry_run),
        Named::Sandbox(id) => id,
    };
    let session = app.open()?;
    let target = session.find(id)?;
    let rules = args.rules.read(&session.settings)?;
    let chosen = hunks::choose(app, &session, &target, &args.selection, &request.paths, Purpose::Commit)?;
    if let Some(chosen) = &chosen {
        if chosen.is_nothing() {
            app.ui.line("nothing selected; nothing committed")?;
            return Ok(exit::OK);
        }
        chosen.put_into(&mut request);
    }
    let attempt = Attempt::commit(&request);
    if let Some(chosen) = chosen.filter(|_| !args.dry_run && request.digest.is_none()) {
        request.digest = chosen.digest_as_seen(&session, &target, &request, &attempt)?;
    }
    let committed = match args.dry_run {
        true => session.manager.try_commit(&target, &request, &rules),
        false => rules::commit_target(app, &session, &target, &request, &rules),
    };
    let commit = committed.map_err(|error| match error.root() {
        Error::DigestMismatch { .. } if request.digest != args.digest => hunks::not_as_seen(),
        _ => conflicts::explain(error, &attempt),
    })?;
    match (app.ui.json, args.dry_run) {
        (true, true) => app.ui.document(&CommitDocument::tried(&target.sandbox, &commit))?,
        (true, false) => app.ui.document(&CommitDocument::new(&target.sandbox, &commit))?,
        (false, true) => tell_tried(&mut app.ui, &target.sandbox.name, &request, &commit)?,
        (false, false) => tell(&mut app.ui, &target.sandbox.name, &request, &commit, |ui, branch| {
            git::tell_review(ui, &target.sandbox, &commit, branch);
        })?,
    }
    Ok(exit_code(&commit))
}

fn abort(app: &mut App, id: &str) -> Outcome {
    let session = app.open()?;
    let target = session.find(id)?;
    let aborted = session.manager.abort_commit(&target)?;
    if app.ui.json {
        app.ui.document(&AbortDocument::new(&aborted))?;
        return Ok(exit::OK);
    }
    let (name, operation) = (output::name(&target.sandbox.name), &aborted.operation);
    app.ui.line(match &aborted.undone {
        Some(_) => format!(
            "aborted {} {} of {name}: what it had written is taken back",
            operation.kind, operation.id
        ),
        None => format!("aborted {} {} of {name}: nothing had been written", operation.kind, operation.id),
    })?;
    app.ui.flush()?;
    for conflict in &aborted.left_out {
        app.ui.warn(format_args!("could not be written: {}", conflict_sentence(conflict)));
    }
    app.ui.next("still pending:", &format!("sandbox diff {}", shell_word(&target.sandbox.name)));
    Ok(exit::OK)
}

/// Somebody edited what was being written, after the point of no return: their edit stands, ours is put aside.
pub fn exit_code(commit: &TargetCommit) -> u8 {
    let parked = commit.workspaces.iter().any(|(_, result)| !result.conflicts.is_empty());
    if parked { exit::CONFLICT } else { exit::OK }
}

/// What was committed, for people; `review` says how to look at a branch that it was left on.
pub fn tell(
    ui: &mut Ui,
    sandbox: &str,
    request: &CommitRequest,
    commit: &TargetCommit,
    review: impl FnOnce(&Ui, &str),
) -> Result<(), CliError> {
    if let Some(branch) = &request.branch {
        return tell_left(ui, sandbox, branch, commit, review);
    }
    ui.line(sentence(sandbox, commit))?;
    ui.flush()?;
    tell_notices(ui, commit);
    if summary(commit).total > 0 {
        tell_next(ui, &shell_word(sandbox), request, commit);
    }
    Ok(())
}

/// What was left as a branch, for people. It is still pending, and there is nothing to take back: a branch is deleted.
fn tell_left(
    ui: &mut Ui,
    sandbox: &str,
    branch: &str,
    commit: &TargetCommit,
    review: impl FnOnce(&Ui, &str),
) -> Result<(), CliError> {
    let is_new = revisions(commit).next().is_some();
    match (is_new, output::name(sandbox)) {
        (true, _) => ui.line(left_sentence("left", sandbox, branch, commit))?,
        (false, name) => {
            ui.line(format_args!("nothing in {name} that branch {} does not have", output::name(branch)))?;
        }
    }
    ui.flush()?;
    tell_notices(ui, commit);
    if is_new {
        review(ui, branch);
        ui.next("still pending here:", &format!("sandbox diff {}", shell_word(sandbox)));
    }
    Ok(())
}

fn left_sentence(verb: &str, sandbox: &str, branch: &str, commit: &TargetCommit) -> String {
    let (name, changes) = (output::name(sandbox), count(summary(commit).total, "change"));
    let on = match git::named_on_branch(commit) {
        Some(named) => named,
        None => format!(" on branch {}", output::name(branch)),
    };
    format!("{verb} {changes} of {name}{on}; the checkout is untouched")
}

/// The way back and the way on. Nobody is told to remove a sandbox in which something may still be pending.
fn tell_next(ui: &Ui, name: &str, request: &CommitRequest, commit: &TargetCommit) {
    if commit.workspaces.iter().all(|(_, result)| result.undo_bytes.is_some()) {
        ui.next("take it back:", &format!("sandbox undo {name}"));
    }
    let in_part = !request.paths.is_empty() || !request.hunks.is_empty();
    if in_part || leaves_something(request.on_conflict, commit) {
        ui.next("what is left:", &format!("sandbox diff {name}"));
    } else {
        ui.next("done with it:", &format!("sandbox destroy {name}"));
    }
}

/// What would be committed, for people: the same sentence, and all that can be known of it.
pub fn tell_tried(
    ui: &mut Ui,
    sandbox: &str,
    request: &CommitRequest,
    commit: &TargetCommit,
) -> Result<(), CliError> {
    match (&request.branch, summary(commit).total) {
        (Some(branch), 1..) => ui.line(left_sentence("would leave", sandbox, branch, commit))?,
        _ => ui.line(sentence_with("would commit", sandbox, commit))?,
    }
    tell_entries(ui, commit)?;
    if summary(commit).total > 0 {
        ui.line(format_args!("digest {}", output::name(&commit.digest)))?;
    }
    ui.flush()?;
    tell_notices(ui, commit);
    if summary(commit).total > 0 {
        ui.note("nothing was written; to commit exactly this, type the same with --digest DIGEST instead of --dry-run");
    }
    Ok(())
}

/// What would be committed, line by line.
pub fn tell_entries(ui: &mut Ui, commit: &TargetCommit) -> Result<(), CliError> {
    for entry in commit.workspaces.iter().flat_map(|(_, result)| &result.entries) {
        // It is dealt with: that the original has changed as well is no longer in the way.
        let entry = DiffEntry { moved: false, ..entry.clone() };
        ui.line(format_args!("  {}", diffs::line_of(&entry, |style, text| ui.paint(style, text))))?;
    }
    Ok(())
}

/// Whether a commit leaves something behind that is only in the sandbox.
pub fn leaves_something(way: OnConflict, commit: &TargetCommit) -> bool {
    let left_out = way == OnConflict::Ours && commit.workspaces.iter().any(|(_, r)| !r.notices.is_empty());
    left_out || exit_code(commit) != exit::OK
}

/// One sentence on what was committed.
pub fn sentence(sandbox: &str, commit: &TargetCommit) -> String {
    sentence_with("committed", sandbox, commit)
}

/// The same with another verb.
pub fn sentence_with(verb: &str, sandbox: &str, commit: &TargetCommit) -> String {
    let (summary, name) = (summary(commit), output::name(sandbox));
    match summary.total {
        0 => format!("nothing to commit in {name}"),
        total => {
            format!("{verb} {} of {name}{}: {}", count(total, "change"), git::named(commit), summary.text())
        }
    }
}

/// What was left out or altered on the way, and what was left alone.
pub fn tell_notices(ui: &Ui, commit: &TargetCommit) {
    if let Some(unsent) = &commit.unsent {
        ui.warn(output::sentence(unsent));
    }
    for (workspace, result) in &commit.workspaces {
        if let Some(why) = &result.at_decision {
            ui.warn(rules::at_decision(workspace, why));
        }
    }
    for notice in commit.workspaces.iter().flat_map(|(_, result)| &result.notices) {
        ui.warn(format_args!(
            "{}: {}",
            output::name(notice.path.as_bytes()),
            output::sentence(&notice.message)
        ));
    }
    for conflict in commit.workspaces.iter().flat_map(|(_, result)| &result.conflicts) {
        ui.warn(conflict_sentence(conflict));
    }
}

/// How many changes of each kind.
pub fn summary(commit: &TargetCommit) -> Summary {
    Summary::of(commit.workspaces.iter().flat_map(|(_, result)| &result.entries))
}
