use std::ffi::OsString;

use sandboxer_core::model::RollbackResult;

use super::{TargetArg, rel_paths};
use crate::cli::error::CliError;
use crate::cli::json::RollbackDocument;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Throw the sandbox's changes away: all of them, or some paths
///
/// The original is not touched; the sandbox goes back to the state it was made from, or to its last commit.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox rollback try
  sandbox rollback try src/main.rs build")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Only these paths and what lies below them
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let paths = rel_paths(&args.paths)?;
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let results = session.manager.rollback(&target, &paths)?;
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
