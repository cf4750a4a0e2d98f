pub(super) mod check;
pub(super) mod ground;
mod list;
mod log;

use sandboxer::wiring;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::registry::StrategyRegistry;

use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::cli::session::{App, current_dir};

/// List the ways to isolate, built-in and custom; or try one
///
/// A custom strategy is started when it is first used, and verified then. Listing starts none: it shows the result of the last
/// check, which counts until the configuration entry or the plugin's file changes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox strategies
  sandbox strategies check mine  Does it do what it says? Tried on something that is thrown away
  sandbox strategies log mine    What it wrote to its standard error
  sandbox doctor                 Which of them work here")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

/// What to do with one of them.
#[derive(clap::Subcommand)]
enum What {
    /// List all of them, as without a subcommand
    List,
    Check(check::Args),
    Log(log::Args),
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    match &args.what {
        None | Some(What::List) => list::run(app),
        Some(What::Check(args)) => check::run(app, args),
        Some(What::Log(args)) => log::run(app, args),
    }
}

/// Every strategy, as the settings here have them.
fn registry(app: &App) -> Result<StrategyRegistry, CliError> {
    let settings = app.settings(&current_dir()?)?;
    let modules = app.places.modules();
    Ok(wiring::registry(&settings, &app.places.home, modules.as_deref(), &CancelFlag::default())?)
}
