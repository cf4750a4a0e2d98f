use sandboxer_core::environment::{Policy, Profile};
use sandboxer_documents::{ProfilesDocument, WithOrigin};

use crate::cli::catalogue::{show, word};
use crate::cli::output::{self, table};
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
    id: Option<String>,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let catalogue = app.catalogue()?;
    if let Some(id) = &args.id {
        let profile = catalogue.profile(id)?;
        show(&mut app.ui, &WithOrigin::profile(profile))?;
    } else if app.ui.json {
        app.ui.document(&ProfilesDocument::new(&catalogue))?;
    } else {
        let rows: Vec<Vec<String>> = catalogue.profiles().map(row).collect();
        let head = ["ID", "EXTENSION", "ISOLATION", "NETWORK", "TTL", "ORIGIN", "SUMMARY"];
        app.ui.bytes(table(&head, &rows).as_bytes())?;
    }
    Ok(exit::OK)
}

fn row(profile: &Profile) -> Vec<String> {
    let binding = &profile.extension;
    let extension = match (binding.policy, &binding.id) {
        (Policy::Explicit, Some(id)) => id.clone(),
        (policy, _) => word(&policy),
    };
    vec![
        output::name(&profile.id),
        extension,
        word(&profile.isolation),
        profile.network.word().to_owned(),
        profile.ttl.clone().unwrap_or_else(|| "-".to_owned()),
        output::name(&profile.origin),
        output::sentence(&profile.summary),
    ]
}
