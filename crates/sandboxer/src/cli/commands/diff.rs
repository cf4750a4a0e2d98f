use std::ffi::OsString;

use sandboxer_core::service::{Target, TargetDiff};
use sandboxer_documents::{DiffDocument, PatchedDiffDocument, Summary, patch};

use super::{Named, rel_paths};
use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::output::{Ui, count, shell_word};
use crate::cli::plans;
use crate::cli::session::{App, typed};
use crate::cli::{Outcome, exit};

/// Show what differs from the original, entry by entry
///
/// A created, M modified, D deleted, R renamed, T of another type, m with other metadata only. It can be read while
/// something still runs in the sandbox.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox diff try
  sandbox diff try src docs/index.md
  sandbox diff try --patch | git apply      Patches apply with git apply
  sandbox diff --plan fix-123               All open sandboxes of a plan
  sandbox diff try --exit-code              1 if there are differences, as git has it")]
pub struct Args {
    /// Sandbox: its name, its id, a unique prefix of the id, or @last; with :WORKSPACE for one of several
    #[arg(value_name = "ID", default_value = "@last")]
    pub id: String,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// All open sandboxes of this plan, with one digest
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["id", "paths", "patch"])]
    pub plan: Option<String>,
    /// Lines added and removed, file by file
    #[arg(long, conflicts_with = "patch")]
    pub stat: bool,
    /// The difference as a patch
    #[arg(short, long)]
    pub patch: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    pub exit_code: bool,
}

impl Args {
    /// What it is about.
    pub fn named(&self) -> Named<'_> {
        self.plan.as_deref().map_or(Named::Sandbox(&self.id), Named::Plan)
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if let Some(plan) = &args.plan {
        return plans::diff(app, plan, args.stat, args.exit_code);
    }
    let paths = rel_paths(&args.paths)?;
    let session = app.open()?;
    let target = session.find(&args.id)?;
    let diff = session.manager.diff(&target, &paths)?;
    if app.ui.json {
        show_json(app, args, &target, &diff)?;
    } else {
        show(app, args, &target, &diff)?;
    }
    let differs = diff.workspaces.iter().any(|w| !w.entries.is_empty());
    Ok(if args.exit_code && differs { exit::ERROR } else { exit::OK })
}

fn show_json(app: &mut App, args: &Args, target: &Target, diff: &TargetDiff) -> Result<(), CliError> {
    let patch = if args.patch { Some(patch::bytes(patch::single(diff)?)?) } else { None };
    let document = DiffDocument::new(&target.sandbox, diff);
    app.ui.document(&PatchedDiffDocument::new(document, patch.as_deref()))
}

fn show(app: &mut App, args: &Args, target: &Target, diff: &TargetDiff) -> Result<(), CliError> {
    if args.patch {
        return diffs::show_patch(&mut app.ui, patch::single(diff)?);
    }
    if args.stat {
        return diffs::show_stat(&mut app.ui, diff);
    }
    diffs::show_entries(&mut app.ui, diff)?;
    app.ui.flush()?;
    tell_next(&app.ui, args, diffs::summary(diff), &typed(target), &with_changes(target, diff));
    Ok(())
}

/// How much it is, and what to do with it; `changed` is what is typed for a workspace that has a patch.
pub fn tell_next(ui: &Ui, args: &Args, summary: Summary, name: &str, changed: &str) {
    let paths: String =
        args.paths.iter().map(|path| format!(" {}", shell_word(&path.to_string_lossy()))).collect();
    if summary.total == 0 {
        ui.note("no changes");
        return;
    }
    ui.note(format_args!("{}: {}", count(summary.total, "change"), summary.text()));
    ui.next("see the content:", &format!("sandbox diff {changed}{paths} --patch"));
    ui.next("make it real:   ", &format!("sandbox commit {name}{paths}"));
    ui.next("throw it away:  ", &format!("sandbox rollback {name}{paths}"));
}

/// What to type for the workspace whose patch to see: the first that has one.
fn with_changes(target: &Target, diff: &TargetDiff) -> String {
    let changed = diff.workspaces.iter().find(|w| !w.entries.is_empty());
    let workspaces = changed.map(|w| w.workspace.clone()).into_iter().collect();
    typed(&Target { sandbox: target.sandbox.clone(), workspaces })
}
