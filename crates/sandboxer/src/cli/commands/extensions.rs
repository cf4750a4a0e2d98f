use sandboxer_core::environment::{ExtensionDefinition, Pricing, PricingModel};
use sandboxer_documents::{ExtensionsDocument, WithOrigin};

use super::extensions_check;
use crate::cli::catalogue::{show, words};
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// List the extensions, which make environments, or show one
///
/// Files in `extensions/` beside the configuration file add extensions or replace these.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sandbox extensions
  sandbox extensions ext.container
  sandbox extensions check ext.team-vm  Does it do what it says? Tried on a sandbox that nobody has
  sandbox extensions --json"
)]
pub struct Args {
    /// All of this one
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(subcommand)]
    pub what: Option<What>,
}

/// What to do with one of them.
#[derive(clap::Subcommand)]
pub enum What {
    Check(extensions_check::Args),
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if let Some(What::Check(args)) = &args.what {
        return extensions_check::run(app, args);
    }
    let catalogue = app.catalogue()?;
    if let Some(id) = &args.id {
        let extension = catalogue.extension(id)?;
        show(&mut app.ui, &WithOrigin::extension(extension))?;
    } else if app.ui.json {
        app.ui.document(&ExtensionsDocument::new(&catalogue))?;
    } else {
        show_all(&mut app.ui, catalogue.extensions())?;
    }
    Ok(exit::OK)
}

/// One row for each.
pub fn show_all<'a>(
    ui: &mut Ui,
    extensions: impl Iterator<Item = &'a ExtensionDefinition>,
) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = extensions.map(row).collect();
    let head = ["ID", "PROVIDER", "ISOLATION", "NETWORK", "COST", "ORIGIN", "SUMMARY"];
    ui.bytes(table(&head, &rows).as_bytes())
}

fn row(extension: &ExtensionDefinition) -> Vec<String> {
    vec![
        output::name(&extension.id),
        extension.provider.word().to_owned(),
        words(&extension.capabilities.isolation),
        words(&extension.capabilities.network),
        price(&extension.pricing),
        output::name(&extension.origin),
        output::sentence(&extension.summary),
    ]
}

fn price(pricing: &Pricing) -> String {
    let each = match pricing.model {
        PricingModel::Free => return "free".to_owned(),
        PricingModel::PerHour => "an hour",
        PricingModel::PerSandbox => "a sandbox",
    };
    let currency = pricing
        .currency
        .as_deref()
        .map(|currency| format!(" {}", output::sentence(currency)))
        .unwrap_or_default();
    format!("{}{currency} {each}", pricing.amount)
}
