use sandboxer_core::environment::{Capacity, Host};
use sandboxer_documents::{HostsDocument, WithOrigin};

use super::{hosts_check, hosts_sweep};
use crate::cli::catalogue::{show, words};
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, count, table};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// List the hosts that environments are placed on, or show one
///
/// Files in `hosts/` beside the configuration file add hosts or replace these.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sandbox hosts
  sandbox hosts local
  sandbox hosts check build-1               Has it what a stack needs?
  sandbox hosts sweep --dry-run             What have crashes left there?
  sandbox hosts --json"
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
    Check(hosts_check::Args),
    Sweep(hosts_sweep::Args),
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    match &args.what {
        Some(What::Check(args)) => return hosts_check::run(app, args),
        Some(What::Sweep(args)) => return hosts_sweep::run(app, args),
        None => {}
    }
    let catalogue = app.catalogue()?;
    if let Some(id) = &args.id {
        let host = catalogue.host(id)?;
        show(&mut app.ui, &WithOrigin::host(host))?;
    } else if app.ui.json {
        app.ui.document(&HostsDocument::new(&catalogue))?;
    } else {
        show_all(&mut app.ui, catalogue.hosts())?;
    }
    Ok(exit::OK)
}

/// The host `id`, or every host that can run stacks.
pub fn selected_hosts(app: &App, id: Option<&str>) -> Result<Vec<Host>, CliError> {
    let catalogue = app.catalogue()?;
    if let Some(id) = id {
        return Ok(vec![catalogue.host(id)?.clone()]);
    }
    let has_stacks = |host: &&Host| {
        let runs_stacks =
            |id: &String| catalogue.extension(id).is_ok_and(|it| it.provider.word() == "compose-ssh");
        host.extensions.iter().any(runs_stacks)
    };
    Ok(catalogue.hosts().filter(has_stacks).cloned().collect())
}

/// One row for each.
pub fn show_all<'a>(ui: &mut Ui, hosts: impl Iterator<Item = &'a Host>) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = hosts.map(row).collect();
    let head = ["ID", "ADDRESS", "EXTENSIONS", "REGION", "ROOM FOR", "ORIGIN", "SUMMARY"];
    ui.bytes(table(&head, &rows).as_bytes())
}

fn row(host: &Host) -> Vec<String> {
    vec![
        output::name(&host.id),
        output::name(&host.address),
        words(&host.extensions),
        output::sentence(host.region.as_deref().unwrap_or("-")),
        if host.drained { "nothing: drained".to_owned() } else { room(&host.capacity) },
        output::name(&host.origin),
        output::sentence(&host.summary),
    ]
}

fn room(capacity: &Capacity) -> String {
    let sandboxes =
        capacity.sandboxes.map(|most| count(usize::try_from(most).unwrap_or(usize::MAX), "sandbox"));
    let cpus = capacity.cpus.map(|cpus| format!("{cpus} cpus"));
    let memory = capacity.memory.as_ref().map(|memory| format!("{} memory", output::sentence(memory)));
    let bounds: Vec<String> = [sandboxes, cpus, memory].into_iter().flatten().collect();
    if bounds.is_empty() { "any number".to_owned() } else { bounds.join(", ") }
}
