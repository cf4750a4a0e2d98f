use std::process::Stdio;

use sandboxer_core::environment::Way;

use super::TargetArg;
use crate::cli::Outcome;
use crate::cli::session::App;
use crate::cli::tunnels;

/// Show what the services of a sandbox have printed
///
/// It is the engine's own log: of one service, or of all of them with their names before each line.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox logs try
  sandbox logs try web --tail 20
  sandbox logs try web --follow             Until Ctrl-C")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
    /// Only this service
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// Go on with what is printed from now on
    #[arg(short, long)]
    follow: bool,
    /// Only so many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let target = session.find(&args.target.id)?;
    let way = Way::Logs { part: args.service.as_deref(), follow: args.follow, tail: args.tail };
    let line = tunnels::line(&session, &target.sandbox, &way, "logs")?;
    tunnels::become_it(session, &line, Stdio::inherit())
}
