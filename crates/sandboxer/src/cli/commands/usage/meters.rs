//! The meters as a table.

use std::time::Duration;

use sandboxer_core::service::{Measure, UsageBy, UsageLimit, UsageReport, UsageRow, Used};

use crate::cli::contain::told::seconds;
use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, size, table};

/// Tells it to a person; the limits only where there are any.
pub fn tell(ui: &mut Ui, report: &UsageReport) -> Result<(), CliError> {
    let mut headings =
        vec![heading(report.by), "SANDBOXES", "LIVE", "WALL", "CPU", "MEMORY PEAK", "DISK", "COST", "LIMITS"];
    if report.rows.iter().all(|row| row.limits.is_empty()) {
        headings.pop();
    }
    let mut rows: Vec<Vec<String>> = report.rows.iter().map(row).collect();
    if rows.len() > 1 {
        rows.push(cells("total".to_owned(), &report.total, String::new()));
    }
    rows.iter_mut().for_each(|cells| cells.truncate(headings.len()));
    ui.bytes(table(&headings, &rows).as_bytes())
}

fn heading(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Consumer => "CONSUMER",
        UsageBy::Project => "PROJECT",
        UsageBy::Profile => "PROFILE",
        UsageBy::Extension => "EXTENSION",
        UsageBy::Sandbox => "SANDBOX",
    }
}

fn row(row: &UsageRow) -> Vec<String> {
    // Names come back for others: together with the id, a row is one sandbox's.
    let key = match &row.name {
        Some(name) => format!("{} ({})", output::name(name), row.key),
        None => output::name(&row.key),
    };
    let limits: Vec<String> = row.limits.iter().map(limit).collect();
    cells(key, &row.used, limits.join("; "))
}

fn cells(key: String, used: &Used, limits: String) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(none, size);
    vec![
        key,
        used.sandboxes.to_string(),
        used.live.to_string(),
        time(used.wall_seconds),
        time(used.cpu_seconds),
        bytes(used.memory_peak),
        bytes(used.disk),
        cost(used),
        limits,
    ]
}

fn none() -> String {
    "-".to_owned()
}

fn time(number: f64) -> String {
    seconds(Duration::try_from_secs_f64(number).unwrap_or_default())
}

/// Each currency for itself.
fn cost(used: &Used) -> String {
    if used.cost.is_empty() {
        return none();
    }
    let amounts: Vec<String> = used
        .cost
        .iter()
        .map(|(currency, amount)| format!("{amount:.2} {}", output::name(currency)))
        .collect();
    amounts.join(" + ")
}

fn limit(limit: &UsageLimit) -> String {
    let (used, of) = (limit.used, limit.of);
    let currency = limit.currency.as_deref().unwrap_or_default();
    let what = match limit.limit {
        Measure::Sandboxes => format!("{used} of {of} live"),
        Measure::Disk => format!("{} of {} on disk", size(used as u64), size(of as u64)),
        Measure::CpuHours => format!("{used:.2} of {of} processor hours"),
        Measure::WallHours => format!("{used:.2} of {of} hours"),
        Measure::Cost => {
            format!("{used:.2} of {of} {}", output::name(currency)).trim_end().to_owned() + " spent"
        }
    };
    let per = limit.per.map(|per| format!(", per {}", per.as_str())).unwrap_or_default();
    format!("{what}{per} ({})", output::name(&limit.entry))
}
