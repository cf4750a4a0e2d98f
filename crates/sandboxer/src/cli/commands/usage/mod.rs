mod csv;
mod disk;
mod meters;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sandboxer::wiring;
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
        let moment = |text: &Option<String>| text.as_deref().map(moment).transpose();
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

/// A date is its midnight of UTC; a time says its own offset.
fn moment(text: &str) -> Result<Timestamp, CliError> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let midnight = text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
    // A date that is followed by a time without an offset reads as that date; nobody meant its midnight.
    match midnight {
        Ok(midnight) if !text.contains(':') => Ok(midnight.timestamp()),
        _ => Err(CliError::usage(format!("{text:?} is neither a date nor a time")).hint(
            "write a date, such as 2026-11-01, or a time with its offset, such as 2026-11-01T12:00:00Z",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_date_is_its_midnight_and_a_time_itself() {
        assert_eq!(moment("2026-11-01").unwrap().to_string(), "2026-11-01T00:00:00Z");
        assert_eq!(moment("2026-11-01T12:30:00+02:00").unwrap().to_string(), "2026-11-01T10:30:00Z");
        for wrong in ["", "november", "2026-13-01", "2026-02-30", "2026-11-01T12:00", "-1"] {
            assert_eq!(moment(wrong).unwrap_err().exit, 2, "{wrong}");
        }
    }
}
