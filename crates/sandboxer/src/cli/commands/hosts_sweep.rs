use sandboxer_core::service::ReconcileReport;

use super::hosts::selected_hosts;
use super::reconcile::{CarefulArgs, tell_removed};
use crate::cli::output::{self, count};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Remove what crashes have left on hosts
///
/// Every container, network, volume, image and directory that carries the label of this state directory and belongs to no sandbox of it. What other state directories
/// have made there is theirs, and left alone.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox hosts sweep --dry-run
  sandbox hosts sweep build-1 --grace 0s")]
pub struct Args {
    /// Only this one
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    careful: CarefulArgs,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let (grace, dry_run) = args.careful.read()?;
    let hosts = selected_hosts(app, args.id.as_deref())?;
    let session = app.open()?;
    let mut all = ReconcileReport::default();
    for host in &hosts {
        all.add(session.manager.reconcile_host(&host.id, grace, dry_run)?);
    }
    if app.ui.json {
        app.ui.document(&all)?;
    } else {
        tell_removed(&mut app.ui, &all, dry_run)?;
        all.failed.iter().for_each(|failure| app.ui.warn(output::sentence(failure)));
        let verb = if dry_run { "to remove" } else { "removed" };
        app.ui.line(format_args!(
            "{} looked at, {} {verb}",
            count(hosts.len(), "host"),
            count(all.removed.len(), "thing")
        ))?;
    }
    Ok(if all.failed.is_empty() { exit::OK } else { exit::ERROR })
}
