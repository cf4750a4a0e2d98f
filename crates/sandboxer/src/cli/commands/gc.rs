use sandboxer::wiring;
use sandboxer_core::service::{GcReport, Uncommitted};
use serde::Serialize;

use super::reconcile;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, count};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Clean up what has expired, what nobody owns, and what is over budget
///
/// Uncommitted work in a sandbox whose time is over is parked, not thrown away; `sandbox parked` lists it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox gc --dry-run
  sandbox gc")]
pub struct Args {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Throw uncommitted work away for good, instead of parking it
    #[arg(long)]
    discard: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    dry_run: bool,
    #[serde(flatten)]
    report: &'a GcReport,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let uncommitted = if args.discard { Uncommitted::Discard } else { Uncommitted::Park };
    let report = match wiring::has_state(&app.places.home) {
        true => app.open()?.manager.gc(uncommitted, args.dry_run)?,
        false => GcReport::default(),
    };
    if app.ui.json {
        app.ui.document(&Document { dry_run: args.dry_run, report: &report })?;
    } else {
        tell(&mut app.ui, &report, args.dry_run)?;
    }
    Ok(if report.failed.is_empty() { exit::OK } else { exit::ERROR })
}

fn tell(ui: &mut Ui, report: &GcReport, dry_run: bool) -> Result<(), CliError> {
    let verb = if dry_run { "would remove" } else { "removed" };
    for id in &report.expired {
        ui.line(format_args!("{verb} sandbox {id}: its time is over"))?;
    }
    let park = if dry_run { "would park" } else { "parked" };
    for id in &report.parked {
        ui.line(format_args!("{park} sandbox {id}: its time is over, and it holds uncommitted work"))?;
    }
    for path in &report.removed {
        ui.line(format_args!("{verb} {}", output::name(path.as_os_str().as_encoded_bytes())))?;
    }
    reconcile::tell_removed(ui, &report.environments, dry_run)?;
    ui.flush()?;
    for id in &report.kept {
        ui.note(format_args!("kept sandbox {id}: its time is over, and somebody is at work in it"));
    }
    if !report.parked.is_empty() && !dry_run {
        ui.next("see what is parked:", "sandbox parked");
    }
    for failure in &report.failed {
        ui.warn(output::sentence(failure));
    }
    let total = report.expired.len() + report.removed.len() + report.environments.removed.len();
    ui.note(format_args!("{verb} {}", count(total, "thing")));
    Ok(())
}
