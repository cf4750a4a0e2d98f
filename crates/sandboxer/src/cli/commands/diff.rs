use std::ffi::OsString;

use data_encoding::BASE64;
use sandboxer_core::service::{Target, TargetDiff, WorkspaceDiff};
use serde::Serialize;

use super::{Named, rel_paths};
use crate::cli::diffs;
use crate::cli::error::CliError;
use crate::cli::json::DiffDocument;
use crate::cli::output::{count, shell_word};
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
    id: String,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// All open sandboxes of this plan, with one digest
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["id", "paths", "patch"])]
    plan: Option<String>,
    /// Lines added and removed, file by file
    #[arg(long, conflicts_with = "patch")]
    stat: bool,
    /// The difference as a patch
    #[arg(short, long)]
    patch: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    exit_code: bool,
}

/// `diff --json --patch`.
#[derive(Serialize)]
struct WithPatch<'a> {
    #[serde(flatten)]
    diff: DiffDocument<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_b64: Option<String>,
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
    let bytes = if args.patch { Some(diffs::patch_bytes(single(diff)?)?) } else { None };
    let exact = bytes.as_ref().filter(|b| std::str::from_utf8(b).is_err()).map(|b| BASE64.encode(b));
    app.ui.document(&WithPatch {
        diff: DiffDocument::new(&target.sandbox, diff),
        patch: bytes.map(|b| String::from_utf8_lossy(&b).into_owned()),
        patch_b64: exact,
    })
}

fn show(app: &mut App, args: &Args, target: &Target, diff: &TargetDiff) -> Result<(), CliError> {
    if args.patch {
        return diffs::show_patch(&mut app.ui, single(diff)?);
    }
    if args.stat {
        return diffs::show_stat(&mut app.ui, diff);
    }
    diffs::show_entries(&mut app.ui, diff)?;
    app.ui.flush()?;
    tell_next(app, args, target, diff);
    Ok(())
}

fn tell_next(app: &App, args: &Args, target: &Target, diff: &TargetDiff) {
    let (summary, name) = (diffs::summary(diff), typed(target));
    let paths: String =
        args.paths.iter().map(|path| format!(" {}", shell_word(&path.to_string_lossy()))).collect();
    if summary.total == 0 {
        app.ui.note("no changes");
        return;
    }
    app.ui.note(format_args!("{}: {}", count(summary.total, "change"), summary.text()));
    app.ui.next("see the content:", &format!("sandbox diff {}{paths} --patch", with_changes(target, diff)));
    app.ui.next("make it real:   ", &format!("sandbox commit {name}{paths}"));
    app.ui.next("throw it away:  ", &format!("sandbox rollback {name}{paths}"));
}

/// What to type for the workspace whose patch to see: the first that has one.
fn with_changes(target: &Target, diff: &TargetDiff) -> String {
    let changed = diff.workspaces.iter().find(|w| !w.entries.is_empty());
    let workspaces = changed.map(|w| w.workspace.clone()).into_iter().collect();
    typed(&Target { sandbox: target.sandbox.clone(), workspaces })
}

/// A patch has one root, so it is of one workspace.
fn single(diff: &TargetDiff) -> Result<&WorkspaceDiff, CliError> {
    match diff.workspaces.as_slice() {
        [only] => Ok(only),
        several => {
            let names: Vec<String> = several.iter().map(|w| shell_word(&w.workspace.name)).collect();
            let hint = format!("`sandbox diff ID:{} --patch`", names.first().cloned().unwrap_or_default());
            let message = format!("a patch is of one workspace; this sandbox has {}", names.join(", "));
            Err(CliError::usage(message).hint(hint))
        }
    }
}
