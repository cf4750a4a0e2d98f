use sandboxer_documents::SandboxDocument;

use super::TargetArg;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Take the environment of a sandbox down and make it again
///
/// The workspaces stay, with everything that was done in them; --from brings them back to a checkpoint first. For an environment that was lost, or that
/// something has broken inside. Where it cannot be made, the sandbox is there without one, and says why.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox recreate try
  sandbox recreate try --from before-upgrade")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Restore this checkpoint of the workspaces first
    #[arg(long, value_name = "CHECKPOINT")]
    pub from: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let sandbox = session.manager.recreate(&target, args.from.as_deref())?;
    if app.ui.json {
        app.ui.document(&SandboxDocument::of(&sandbox))?;
    } else {
        tell(&mut app.ui, &sandbox.name, sandbox.extension_id(), sandbox.host())?;
    }
    Ok(exit::OK)
}

/// What was made again, for people.
pub fn tell(ui: &mut Ui, sandbox: &str, extension: &str, host: &str) -> Result<(), CliError> {
    let (name, extension, host) = (output::name(sandbox), output::name(extension), output::name(host));
    ui.line(format_args!("made the environment of {name} again, by {extension} on {host}"))
}
