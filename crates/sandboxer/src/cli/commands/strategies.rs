use sandboxer::wiring;
use sandboxer_core::contract::Capabilities;
use sandboxer_core::registry::StrategyEntry;
use serde::Serialize;

use crate::cli::output::{self, table};
use crate::cli::session::{App, current_dir};
use crate::cli::{Outcome, exit};

/// List the ways to isolate, built-in and custom
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox strategies
  sandbox doctor                 Which of them work here")]
pub struct Args {}

#[derive(Serialize)]
struct Document<'a> {
    strategies: Vec<StrategyDocument<'a>>,
}

#[derive(Serialize)]
struct StrategyDocument<'a> {
    name: &'a str,
    summary: &'a str,
    origin: &'a str,
    capabilities: &'a Capabilities,
}

pub fn run(app: &mut App, _args: &Args) -> Outcome {
    let settings = app.settings(&current_dir()?)?;
    let registry = wiring::registry(&settings, &app.places.home, app.places.modules().as_deref())?;
    if app.ui.json {
        app.ui.document(&Document { strategies: registry.entries().map(document).collect() })?;
    } else {
        let rows: Vec<Vec<String>> = registry.entries().map(row).collect();
        app.ui.bytes(table(&["NAME", "ISOLATES", "CHECKPOINTS", "ORIGIN", "SUMMARY"], &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn document(entry: &StrategyEntry) -> StrategyDocument<'_> {
    StrategyDocument {
        name: &entry.name,
        summary: &entry.summary,
        origin: &entry.origin,
        capabilities: &entry.capabilities,
    }
}

fn row(entry: &StrategyEntry) -> Vec<String> {
    let yes = |able: bool| if able { "yes" } else { "no" }.to_owned();
    vec![
        output::name(&entry.name),
        yes(entry.capabilities.isolates),
        yes(entry.capabilities.checkpoints),
        output::name(&entry.origin),
        output::sentence(&entry.summary),
    ]
}
