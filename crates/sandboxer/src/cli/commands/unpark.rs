use sandboxer_documents::SandboxDocument;

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, shell_word};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Bring parked work back as a sandbox
///
/// The work is laid over the original as it is now. Where the original has changed under it meanwhile, a commit finds the
/// conflict as if nothing had been parked.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox unpark try
  sandbox unpark try --name second-try")]
pub struct Args {
    /// Parked sandbox: its name, its id or a unique beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Name it gets, instead of the one it had
    #[arg(long)]
    pub(in crate::cli) name: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let parked = session.manager.find_parked(&args.id)?;
    let sandbox = session.manager.unpark(&parked, args.name.as_deref())?;
    if app.ui.json {
        app.ui.document(&SandboxDocument::of(&sandbox))?;
        return Ok(exit::OK);
    }
    tell(&mut app.ui, &sandbox.name, sandbox.id.as_str())?;
    let name = shell_word(&sandbox.name);
    app.ui.next("work in it:         ", &format!("cd \"$(sandbox path {name})\""));
    Ok(exit::OK)
}

/// That it is back, and what to do then.
pub(in crate::cli) fn tell(ui: &mut Ui, name: &str, id: &str) -> Result<(), CliError> {
    ui.line(format_args!("sandbox {} ({}) is back", output::name(name), output::name(id)))?;
    ui.flush()?;
    ui.next("see what is pending:", &format!("sandbox diff {}", shell_word(name)));
    Ok(())
}
