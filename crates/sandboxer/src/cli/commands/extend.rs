use sandboxer_core::config::parse_ttl;
use sandboxer_documents::SandboxDocument;

use super::TargetArg;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, expiry};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Give a sandbox more time, or less
///
/// It ends so long from now, whenever it would have ended. Uncommitted work is parked then, as ever.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox extend try 2h
  sandbox extend @last 30m --json")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Time to live from now, such as 30m, 2h or 7d
    #[arg(value_name = "DURATION")]
    pub ttl: String,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let ttl = parse_ttl(&args.ttl)?;
    let session = app.open()?;
    let sandbox = session.manager.extend(&session.find(&args.target.id)?, ttl)?;
    if app.ui.json {
        app.ui.document(&SandboxDocument::of(&sandbox))?;
        return Ok(exit::OK);
    }
    tell(&mut app.ui, &sandbox.name, &expiry(sandbox.expires_at, jiff::Timestamp::now()))?;
    Ok(exit::OK)
}

/// When it ends, for people.
pub fn tell(ui: &mut Ui, sandbox: &str, when: &str) -> Result<(), CliError> {
    ui.line(format_args!("{} expires {when}", output::name(sandbox)))
}
