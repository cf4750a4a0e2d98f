use sandboxer_documents::SandboxDocument;
use serde::Serialize;

use crate::cli::output::{self, count};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Find sandboxes on disk that the state database does not know, and register them again
///
/// For when the database was lost or damaged: each sandbox's directory says what it is.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox adopt")]
pub struct Args {}

#[derive(Serialize)]
struct Document<'a> {
    adopted: Vec<SandboxDocument<'a>>,
}

pub fn run(app: &mut App, _args: &Args) -> Outcome {
    let session = app.open()?;
    let adopted = session.manager.adopt()?;
    if app.ui.json {
        app.ui.document(&Document { adopted: adopted.iter().map(SandboxDocument::of).collect() })?;
        return Ok(exit::OK);
    }
    for sandbox in &adopted {
        app.ui.line(format_args!("adopted {} ({})", output::name(&sandbox.name), sandbox.id))?;
    }
    app.ui.flush()?;
    app.ui.note(format_args!("{} adopted", count(adopted.len(), "sandbox")));
    Ok(exit::OK)
}
