use jiff::Timestamp;
use serde_json::json;

use super::TargetArg;
use crate::cli::contain::events::{self, Event};
use crate::cli::contain::runtimes;
use crate::cli::output;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show what commands in a sandbox reached for
///
/// Each connection that was allowed or refused where hosts are allowed by name, and each path outside that something tried to write, once. Oldest first.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox events try
  sandbox events try --json")]
pub struct Args {
    #[command(flatten)]
    pub target: TargetArg,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let session = app.open()?;
    let sandbox = session.find(&args.target.id)?.sandbox;
    let events = events::read(&runtimes(&session)?.directory(sandbox.id.as_str()))?;
    if app.ui.json {
        let document = json!({"sandbox_id": sandbox.id, "name": sandbox.name, "events": events});
        app.ui.document(&document)?;
        return Ok(exit::OK);
    }
    if events.is_empty() {
        app.ui.line(format_args!("nothing to tell of {}", output::name(&sandbox.name)))?;
    }
    for event in &events {
        app.ui.line(line(event))?;
    }
    Ok(exit::OK)
}

fn line(event: &Event) -> String {
    let at = i64::try_from(event.at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = at.map(output::moment).unwrap_or_default();
    format!("{at}  {}  {}", output::name(&event.kind), output::sentence(&event.text()))
}
