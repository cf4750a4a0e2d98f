mod csv;
mod disk;
mod meters;

use sandboxer::wiring;
use sandboxer_core::config::parse_moment;
use sandboxer_core::service::{UsageBy, UsageQuery, UsageReport};

use crate::cli::error::CliError;
use crate::cli::output::Ui;
use crate::cli::session::App;
use crate::cli::{Outcome, exit};

/// Show what the sandboxes use, and who uses it
///
/// How long sandboxes existed, what commands in them used of processors and memory, what they take on disk as last measured, and what that cost, beside the
/// limits that `quotas` sets. Processors are counted by days of UTC. With --disk, which measures: sandbox by sandbox what the copies, the record of their base,
/// checkpoints and undo data take, and how all that is kept compares with the budgets `state.max_size` and `state.min_free`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sandbox usage                                               Who has used how much
  sandbox usage --by sandbox --since 2026-11-01
  sandbox usage --since 2026-11-01 --until 2026-12-01 --csv > november.csv
  sandbox usage --by project --json | jq .total.cost
  sandbox usage --disk")]
pub struct Args {
    /// What a row stands for
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    by: By,
    /// From when on: a date, which is its midnight of UTC, or a time with its offset
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Up to when, exclusive [default: now]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Print comma-separated values, with a header
    #[arg(long)]
    pub(in crate::cli) csv: bool,
    /// Where the disk space is
    #[arg(long, conflicts_with_all = ["by", "since", "until", "csv"])]
    pub(in crate::cli) disk: bool,
}

/// What a row stands for, as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// Who asked: actor and project
    #[default]
    Consumer,
    /// All of a project
    Project,
    /// What sandboxes were made from
    Profile,
    /// What made their environments
    Extension,
    /// Each for itself
    Sandbox,
}

impl From<By> for UsageBy {
    fn from(by: By) -> Self {
        match by {
            By::Consumer => Self::Consumer,
            By::Project => Self::Project,
            By::Profile => Self::Profile,
            By::Extension => Self::Extension,
            By::Sandbox => Self::Sandbox,
        }
    }
}

pub fn run(app: &mut App, args: &Args) -> Outcome {
    if args.disk {
        return run_disk(app);
    }
    let query = args.query(app.ui.json)?;
    let report = app.open()?.manager.usage(&query)?;
    match app.ui.json {
        true => app.ui.document(&report)?,
        false => show(&mut app.ui, &report, args.csv)?,
    }
    Ok(exit::OK)
}

impl Args {
    /// What is asked for.
    pub(in crate::cli) fn query(&self, json: bool) -> Result<UsageQuery, CliError> {
        if self.csv && json {
            return Err(CliError::usage("--csv and --json are two answers; choose one"));
        }
        let moment = |text: &Option<String>| text.as_deref().map(parse_moment).transpose();
        let (since, until) = (moment(&self.since)?, moment(&self.until)?);
        Ok(UsageQuery { by: self.by.into(), since, until, ..UsageQuery::default() })
    }
}

/// What was used, for people or for a spreadsheet.
pub(in crate::cli) fn show(ui: &mut Ui, report: &UsageReport, csv: bool) -> Result<(), CliError> {
    match csv {
        true => ui.bytes(csv::of(report).as_bytes()),
        false if report.rows.is_empty() => {
            ui.note("nothing was used");
            Ok(())
        }
        false => meters::tell(ui, report),
    }
}

fn run_disk(app: &mut App) -> Outcome {
    if !wiring::has_state(&app.places.home) && !app.ui.json {
        app.ui.note("no sandboxes, and nothing is kept");
        return Ok(exit::OK);
    }
    let report = app.open()?.manager.disk_report()?;
    if app.ui.json {
        app.ui.document(&report)?;
    } else {
        disk::tell(&mut app.ui, &report)?;
    }
    Ok(exit::OK)
}
