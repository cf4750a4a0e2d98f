use sandboxer_core::environment::{ExtensionDefinition, Pricing, PricingModel};
use sandboxer_core::verification::CheckResult;
use sandboxer_documents::WithOrigin;
use sandboxer_plugin::extension::last_check;
use serde::Serialize;

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

#[derive(Serialize)]
struct Document<'a> {
    extensions: Vec<Checked<'a>>,
}

/// An extension with the result of its last check; one that is not a plugin has none.
#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    extension: WithOrigin<'a, ExtensionDefinition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckResult>,
}

impl<'a> Checked<'a> {
    fn new(app: &App, known: &'a ExtensionDefinition) -> Self {
        Self { extension: WithOrigin::extension(known), check: last_check(&app.places.home, known) }
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if let Some(What::Check(args)) = &args.what {
        return extensions_check::run(app, args);
    }
    let catalogue = app.catalogue()?;
    if let Some(id) = &args.id {
        let extension = catalogue.extension(id)?;
        let checked = Checked::new(app, extension);
        show(&mut app.ui, &checked)?;
    } else if app.ui.json {
        let extensions = catalogue.extensions().map(|known| Checked::new(app, known)).collect();
        app.ui.document(&Document { extensions })?;
    } else {
        let home = app.places.home.clone();
        show_all(&mut app.ui, catalogue.extensions(), |known| last_check(&home, known))?;
    }
    Ok(exit::OK)
}

/// One row for each; `check` gives the result of the last check where one is known.
pub fn show_all<'a>(
    ui: &mut Ui,
    extensions: impl Iterator<Item = &'a ExtensionDefinition>,
    check: impl Fn(&ExtensionDefinition) -> Option<CheckResult>,
) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = extensions.map(|known| row(known, check(known))).collect();
    let head = ["ID", "PROVIDER", "ISOLATION", "NETWORK", "COST", "CHECK", "ORIGIN", "SUMMARY"];
    ui.bytes(table(&head, &rows).as_bytes())
}

fn row(extension: &ExtensionDefinition, check: Option<CheckResult>) -> Vec<String> {
    vec![
        output::name(&extension.id),
        extension.provider.word().to_owned(),
        words(&extension.capabilities.isolation),
        words(&extension.capabilities.network),
        price(&extension.pricing),
        check.map_or("-".to_owned(), |check| check.to_string()),
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
