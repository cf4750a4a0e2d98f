use sandboxer::wiring;
use sandboxer_core::service::GcReport;
use serde::Serialize;

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, count};
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Clean up: sandboxes whose time is over, and directories that no sandbox owns
///
/// A sandbox that holds uncommitted changes is never removed by this.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox gc --dry-run
  sandbox gc")]
pub struct Args {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    dry_run: bool,
    #[serde(flatten)]
    report: &'a GcReport,
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    let report = match wiring::has_state(&app.places.home) {
        true => app.open()?.manager.gc(args.dry_run)?,
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
        ui.line(format_args!("{verb} sandbox {id}: expired, nothing pending"))?;
    }
    for path in &report.removed {
        ui.line(format_args!("{verb} {}", output::name(path.as_os_str().as_encoded_bytes())))?;
    }
    ui.flush()?;
    for id in &report.kept {
        ui.next("kept, expired but with uncommitted changes:", &format!("sandbox diff {id}"));
    }
    for failure in &report.failed {
        ui.warn(output::sentence(failure));
    }
    let total = report.expired.len() + report.removed.len();
    ui.note(format_args!("{verb} {}", count(total, "thing")));
    Ok(())
}
