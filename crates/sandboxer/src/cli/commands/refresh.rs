use sandboxer_core::service::{Refreshed, Sandbox};
use serde::Serialize;

use super::TargetArg;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Move a sandbox onto what the original is now
///
/// What only the sandbox changed stays, what only the original changed is taken over, and text that both changed is merged.
/// What cannot be merged is left as it is in the sandbox and told, with exit code 3; a commit of it would still conflict.
/// The original is not touched.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox refresh try
  sandbox refresh try:app --json")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

#[derive(Serialize)]
struct Document<'a> {
    sandbox_id: &'a str,
    workspaces: Vec<WorkspaceDocument<'a>>,
}

#[derive(Serialize)]
struct WorkspaceDocument<'a> {
    name: &'a str,
    #[serde(flatten)]
    refreshed: &'a Refreshed,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let results = session.manager.refresh(&target)?;
    if app.ui.json {
        let workspaces =
            results.iter().map(|(name, refreshed)| WorkspaceDocument { name, refreshed }).collect();
        app.ui.document(&Document { sandbox_id: target.sandbox.id.as_str(), workspaces })?;
    } else {
        results.iter().try_for_each(|(name, done)| tell(&mut app.ui, name, done, results.len() > 1))?;
        hint(&app.ui, &target.sandbox, &results);
    }
    let in_conflict = results.iter().any(|(_, done)| !done.conflicts.is_empty());
    Ok(if in_conflict { exit::CONFLICT } else { exit::OK })
}

fn tell(ui: &mut Ui, name: &str, done: &Refreshed, named: bool) -> Result<(), CliError> {
    let prefix = if named { format!("{}: ", output::name(name)) } else { String::new() };
    let merged = output::count(done.merged.len(), "file");
    let conflicts = output::count(done.conflicts.len(), "conflict");
    ui.line(format_args!("{prefix}refreshed: {merged} merged, {conflicts}"))?;
    for path in &done.merged {
        ui.line(format_args!("{prefix}merged {}", output::name(path)))?;
    }
    for conflict in &done.conflicts {
        let path = output::name(conflict.path.to_string());
        ui.line(format_args!("{prefix}conflict {path}: {}", output::sentence(&conflict.reason)))?;
    }
    Ok(())
}

fn hint(ui: &Ui, sandbox: &Sandbox, results: &[(String, Refreshed)]) {
    if results.iter().all(|(_, done)| done.conflicts.is_empty()) {
        return;
    }
    let name = output::name(&sandbox.name);
    ui.note(format_args!("see the sandbox's versions: sandbox diff {name} --patch"));
    ui.note(format_args!("give one up:                sandbox rollback {name} PATH"));
}
