use std::time::Duration;

use sandboxer_core::config::parse_duration;
use sandboxer_core::service::ReconcileReport;

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Compare what extensions have made with what is known, and put either right
///
/// What carries the label of this state directory and belongs to no sandbox is removed, once it is older than the grace period. A sandbox whose environment
/// is not there any more is told so: its work is kept, and `sandbox recreate` makes the environment again. An extension that cannot be asked
/// is named, and nothing is concluded from its silence; exit 1 where it has made something. What a killed command left half made is removed first,
/// in sandboxes of plugins as well.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox reconcile --dry-run
  sandbox reconcile --grace 1h")]
pub struct Args {
    #[command(flatten)]
    careful: CarefulArgs,
}

/// How careful somebody is who removes what nobody knows of.
#[derive(clap::Args)]
pub struct CarefulArgs {
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Leave alone what is younger than this
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    grace: String,
}

impl CarefulArgs {
    /// What is younger than this is left alone; and whether nothing is done at all.
    pub fn read(&self) -> Result<(Duration, bool), CliError> {
        Ok((parse_duration(&self.grace)?.unsigned_abs(), self.dry_run))
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let (grace, dry_run) = args.careful.read()?;
    let session = app.open()?;
    let report = session.manager.reconcile(grace, dry_run)?;
    match app.ui.json {
        true => app.ui.document(&report)?,
        false => tell(&mut app.ui, &report, dry_run)?,
    }
    Ok(if report.failed.is_empty() { exit::OK } else { exit::ERROR })
}

/// What was removed, what was not, and what is lost.
pub fn tell_removed(ui: &mut Ui, report: &ReconcileReport, dry_run: bool) -> Result<(), CliError> {
    for item in &report.recovered {
        ui.line(format_args!("recovered {}", output::sentence(item)))?;
    }
    let removed = if dry_run { "would remove" } else { "removed" };
    for item in &report.removed {
        ui.line(format_args!("{removed} {}", output::sentence(item)))?;
    }
    for item in &report.young {
        ui.line(format_args!("left alone, it is young: {}", output::sentence(item)))?;
    }
    for id in &report.lost {
        ui.line(format_args!("the environment of {id} is lost"))?;
        ui.next("make it again:", &format!("sandbox recreate {id}"));
    }
    Ok(())
}

fn tell(ui: &mut Ui, report: &ReconcileReport, dry_run: bool) -> Result<(), CliError> {
    tell_removed(ui, report, dry_run)?;
    for failure in &report.failed {
        ui.warn(output::sentence(failure));
    }
    for unasked in &report.unasked {
        ui.note(format_args!("not asked, and nothing here was made by it: {}", output::sentence(unasked)));
    }
    let removed = if dry_run { "to remove" } else { "removed" };
    let sound = output::count(report.sound, "environment");
    ui.line(format_args!(
        "{sound} as they should be, {} lost, {} {removed}",
        report.lost.len(),
        report.removed.len()
    ))
}
