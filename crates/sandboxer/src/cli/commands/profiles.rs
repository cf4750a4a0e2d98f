use sandboxer_core::environment::{Policy, Profile};
use sandboxer_documents::{ProfilesDocument, WithOrigin};

use crate::cli::catalogue::{show, word};
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// List the profiles, or show one
///
/// Files in `profiles/` beside the configuration file add profiles or replace these.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox profiles
  sandbox profiles profile.container
  sandbox profiles --json")]
pub struct Args {
    /// All of this one
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let catalogue = app.catalogue()?;
    if let Some(id) = &args.id {
        let profile = catalogue.profile(id)?;
        show(&mut app.ui, &WithOrigin::profile(profile))?;
    } else if app.ui.json {
        app.ui.document(&ProfilesDocument::new(&catalogue))?;
    } else {
        show_all(&mut app.ui, catalogue.profiles())?;
    }
    Ok(exit::OK)
}

/// One row for each.
pub fn show_all<'a>(ui: &mut Ui, profiles: impl Iterator<Item = &'a Profile>) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = profiles.map(row).collect();
    let head = ["ID", "EXTENSION", "ISOLATION", "NETWORK", "TTL", "ORIGIN", "SUMMARY"];
    ui.bytes(table(&head, &rows).as_bytes())
}

fn row(profile: &Profile) -> Vec<String> {
    let binding = &profile.extension;
    let extension = match (binding.policy, &binding.id) {
        (Policy::Explicit, Some(id)) => output::name(id),
        (policy, _) => word(&policy),
    };
    vec![
        output::name(&profile.id),
        extension,
        word(&profile.isolation),
        profile.network.word().to_owned(),
        output::sentence(profile.ttl.as_deref().unwrap_or("-")),
        output::name(&profile.origin),
        output::sentence(&profile.summary),
    ]
}
