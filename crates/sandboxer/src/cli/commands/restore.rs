use sandboxer_documents::RollbackDocument;

use super::TargetArg;
use super::rollback::{success_code, tell};
use crate::cli::Outcome;
use crate::cli::session::App;

/// Bring a checkpoint back
///
/// The sandbox's content becomes what it was then. The original is not touched, and the difference is told from the
/// same base as before.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox restore try before-refactoring")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// The checkpoint's name
    pub name: String,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let results = session.manager.restore(&target, &args.name)?;
    if app.ui.json {
        app.ui.document(&RollbackDocument::new(&target.sandbox, &results))?;
    } else {
        tell(&mut app.ui, &results)?;
    }
    Ok(success_code(&results))
}
