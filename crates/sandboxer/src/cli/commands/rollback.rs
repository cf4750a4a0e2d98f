use std::ffi::OsString;

use sandboxer_core::model::RollbackResult;
use sandboxer_documents::RollbackDocument;

use super::{Named, TargetOrPlan, rel_paths};
use crate::cli::error::CliError;
use crate::cli::hunks::{self, Purpose, SelectionArgs};
use crate::cli::output::{self, Ui};
use crate::cli::plans;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Throw the sandbox's changes away: all of them, some paths, or some hunks
///
/// The original is not touched; the sandbox goes back to the state it was made from, or to its last commit. Hunks are
/// thrown away only from files that are still as they were shown; otherwise nothing is, with exit code 3.
#[derive(clap::Args)]
#[command(override_usage = "sandbox rollback [OPTIONS] <ID> [PATH]...
       sandbox rollback [OPTIONS] --plan <PLAN>")]
#[command(after_help = "\
Examples:
  sandbox rollback try
  sandbox rollback try src/main.rs build
  sandbox rollback try -p src            Choose hunk by hunk
  sandbox rollback --plan fix-123        All open sandboxes of a plan")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetOrPlan,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub selection: SelectionArgs,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let paths = rel_paths(&args.paths)?;
    let id = match args.target.named() {
        Named::Plan(plan) => return plans::rollback(app, plan),
        Named::Sandbox(id) => id,
    };
    let session = app.open()?;
    let target = session.find(id)?;
    let results = match hunks::choose(app, &session, &target, &args.selection, &paths, Purpose::Discard)? {
        None => session.manager.rollback(&target, &paths)?,
        Some(chosen) if chosen.is_nothing() => {
            app.ui.line("nothing selected; nothing thrown away")?;
            return Ok(exit::OK);
        }
        Some(chosen) => hunks::discard(&session, &target, &chosen)?,
    };
    if app.ui.json {
        app.ui.document(&RollbackDocument::new(&target.sandbox, &results))?;
    } else {
        tell(&mut app.ui, &results)?;
    }
    Ok(success_code(&results))
}

/// What was brought back, for people.
pub fn tell(ui: &mut Ui, results: &[(String, RollbackResult)]) -> Result<(), CliError> {
    for (workspace, result) in results {
        let prefix = if results.len() > 1 { format!("{}: ", output::name(workspace)) } else { String::new() };
        ui.line(format_args!("{prefix}{}", output::sentence(&result.message)))?;
    }
    Ok(())
}

/// Fine if every workspace is in the state that was asked for.
pub fn success_code(results: &[(String, RollbackResult)]) -> u8 {
    if results.iter().all(|(_, result)| result.success) { exit::OK } else { exit::ERROR }
}
