use jiff::Timestamp;
use sandboxer::wiring;
use sandboxer_core::service::ParkedSandbox;
use serde::Serialize;

use crate::cli::error::CliError;
use crate::cli::output::{self, age, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// List uncommitted work that was put away
///
/// A sandbox that is destroyed, or whose time is over, while it holds uncommitted work is parked: its work is kept, the rest is
/// removed. `sandbox unpark` brings it back, `sandbox destroy --discard` throws it away. Budgets remove the oldest when
/// room is short, and say so; a pinned one stays.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox parked
  sandbox parked --pin try
  sandbox parked --json | jq -r '.parked[].id'")]
pub struct Args {
    /// Have budgets leave this one alone
    #[arg(long, value_name = "ID", conflicts_with = "unpin")]
    pin: Option<String>,
    /// Let budgets remove this one again
    #[arg(long, value_name = "ID")]
    unpin: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    parked: &'a [ParkedSandbox],
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let found = look(app, args)?;
    if app.ui.json {
        app.ui.document(&Document { parked: &found })?;
    } else if found.is_empty() {
        app.ui.note("nothing is parked");
    } else {
        let now = Timestamp::now();
        let rows: Vec<Vec<String>> = found.iter().map(|parked| row(parked, now)).collect();
        app.ui.bytes(table(&["NAME", "ID", "PARKED", "SIZE", "RESOURCE", "WHAT"], &rows).as_bytes())?;
        app.ui.flush()?;
        app.ui.next("bring one back:", "sandbox unpark ID");
    }
    Ok(exit::OK)
}

fn look(app: &App, args: &Args) -> Result<Vec<ParkedSandbox>, CliError> {
    if !wiring::has_state(&app.places.home) {
        return Ok(Vec::new());
    }
    let manager = app.open()?.manager;
    if let Some(selector) = args.pin.as_ref().or(args.unpin.as_ref()) {
        manager.pin_parked(&manager.find_parked(selector)?, args.pin.is_some())?;
    }
    Ok(manager.parked()?)
}

fn row(parked: &ParkedSandbox, now: Timestamp) -> Vec<String> {
    let sandbox = &parked.sandbox;
    let resources: Vec<String> =
        sandbox.workspaces.iter().map(|w| output::name(&w.resource.location)).collect();
    let pinned = if parked.pinned { " (pinned)" } else { "" };
    vec![
        output::name(&sandbox.name),
        sandbox.id.to_string(),
        age(parked.parked_at, now),
        output::size(parked.bytes),
        resources.join(", "),
        format!("{}{pinned}", output::sentence(&parked.summary)),
    ]
}
