use sandboxer::wiring;
use sandboxer_core::types::ResourceType;
use serde::Serialize;

use crate::cli::output::{self, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// List the types of resources and the strategies that suit them
///
/// Files in `resource-types/` beside the configuration file add types or replace these.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox types
  sandbox types --json")]
pub struct Args {}

#[derive(Serialize)]
struct Document<'a> {
    types: Vec<&'a ResourceType>,
}

pub fn run(app: &mut App, _args: &Args) -> Outcome {
    let types = wiring::resource_types(&app.places.type_files()?)?;
    if app.ui.json {
        app.ui.document(&Document { types: types.iter().collect() })?;
    } else {
        let rows: Vec<Vec<String>> = types.iter().map(row).collect();
        app.ui.bytes(table(&["NAME", "DEFAULT", "COMPATIBLE", "ORIGIN", "SUMMARY"], &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn row(resource_type: &ResourceType) -> Vec<String> {
    vec![
        output::name(&resource_type.name),
        resource_type.sandbox_strategy.as_ref().unwrap_or(&resource_type.default_strategy).clone(),
        resource_type.strategies.join(", "),
        output::name(&resource_type.origin),
        output::sentence(&resource_type.summary),
    ]
}
