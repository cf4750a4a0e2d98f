use sandboxer::wiring;
use sandboxer_core::service::Operation;
use serde::Serialize;
use serde_json::Value;

use crate::cli::error::CliError;
use crate::cli::output::{self, moment, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show what was done, newest first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox log
  sandbox log try -n 5
  sandbox log --json | jq '.operations[] | select(.kind == \"commit\")'")]
pub struct Args {
    /// Only this sandbox
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, default_value_t = 50)]
    limit: usize,
}

#[derive(Serialize)]
struct Document<'a> {
    operations: &'a [Operation],
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let found = operations(app, args)?;
    if app.ui.json {
        app.ui.document(&Document { operations: &found })?;
    } else if found.is_empty() {
        app.ui.note("nothing has been done yet");
    } else {
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        app.ui.bytes(table(&["TIME", "SANDBOX", "WHAT", "STATE", "SUMMARY"], &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn operations(app: &App, args: &Args) -> Result<Vec<Operation>, CliError> {
    if args.id.is_none() && !wiring::has_state(&app.places.home) {
        return Ok(Vec::new());
    }
    let session = app.open()?;
    let target = args.id.as_deref().map(|id| session.find_any(id)).transpose()?;
    Ok(session.manager.log(target.as_ref().map(|t| &t.sandbox), args.limit)?)
}

fn row(operation: &Operation) -> Vec<String> {
    vec![
        moment(operation.started_at),
        operation.sandbox_id.to_string(),
        operation.kind.clone(),
        operation.state.clone(),
        summary(operation),
    ]
}

/// What was done, and why if somebody said.
fn summary(operation: &Operation) -> String {
    match operation.details.get("message").and_then(Value::as_str) {
        Some(why) => output::sentence(&format!("{}: {why}", operation.summary)),
        None => output::sentence(&operation.summary),
    }
}
