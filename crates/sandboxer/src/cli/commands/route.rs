use sandboxer_core::environment::{Candidate, Cost, Route, RouteQuestion, route};

use crate::cli::catalogue::{field, word};
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, style, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Say which extension and host a profile would go to, and why; nothing is made
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox route --profile profile.local
  sandbox route --profile profile.container --host local --json")]
pub struct Args {
    /// The profile
    #[arg(long, value_name = "ID")]
    profile: String,
    /// Only this extension
    #[arg(long, value_name = "ID")]
    extension: Option<String>,
    /// Only this host
    #[arg(long, value_name = "ID")]
    host: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let catalogue = app.catalogue()?;
    let question = RouteQuestion {
        profile: catalogue.profile(&args.profile)?,
        extension: args.extension.as_deref(),
        host: args.host.as_deref(),
    };
    let found = route(&question, &catalogue, &app.nearby()?)?;
    match app.ui.json {
        true => app.ui.document(&found)?,
        false => describe(&mut app.ui, &found)?,
    }
    Ok(exit::OK)
}

fn describe(ui: &mut Ui, found: &Route) -> Result<(), CliError> {
    ui.line(ui.paint(style::HEAD, format_args!("{} on {}", found.extension_id, found.host)))?;
    field(ui, "profile", &found.profile_id)?;
    field(ui, "policy", &word(&found.policy))?;
    field(ui, "cost", &found.cost.as_ref().map_or_else(|| "not known".to_owned(), price))?;
    field(ui, "reason", &output::sentence(&found.reason))?;
    let rows: Vec<Vec<String>> = found.considered.iter().map(row).collect();
    ui.bytes(table(&["EXTENSION", "HOST", "QUALIFIES", "WHY"], &rows).as_bytes())
}

fn price(cost: &Cost) -> String {
    match &cost.currency {
        Some(currency) => format!("{} {currency} an hour", cost.per_hour),
        None => "free".to_owned(),
    }
}

fn row(candidate: &Candidate) -> Vec<String> {
    vec![
        candidate.extension_id.clone(),
        candidate.host.clone(),
        if candidate.eligible { "yes" } else { "no" }.to_owned(),
        output::sentence(&candidate.reason),
    ]
}
