use sandboxer_documents::CheckpointDocument;

use super::TargetArg;
use crate::cli::output::{self, shell_word};
use crate::cli::session::{App, typed};
use crate::cli::{Outcome, exit};

/// Keep the sandbox's present state under a name
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox checkpoint try before-refactoring
  sandbox checkpoint try                       The name is made up and printed")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Its name [default: made up]
    pub name: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let results = session.manager.checkpoint(&target, args.name.as_deref())?;
    if app.ui.json {
        app.ui.document(&CheckpointDocument::new(&target.sandbox, &results))?;
    } else if let Some((_, first)) = results.first() {
        app.ui.line(output::name(first.checkpoint_id.as_str()))?;
        app.ui.flush()?;
        let checkpoint = shell_word(first.checkpoint_id.as_str());
        app.ui.next("bring it back:", &format!("sandbox restore {} {checkpoint}", typed(&target)));
    }
    Ok(exit::OK)
}
