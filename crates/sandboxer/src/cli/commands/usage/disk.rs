//! Where the disk space is.

use sandboxer_core::service::{DiskReport, SandboxDisk};

use crate::cli::error::CliError;
use crate::cli::output::{self, Ui, size, table};

/// Tells it to a person.
pub fn tell(ui: &mut Ui, report: &DiskReport) -> Result<(), CliError> {
    if !report.sandboxes.is_empty() {
        let rows: Vec<Vec<String>> = report.sandboxes.iter().map(row).collect();
        let headings = ["NAME", "STATE", "COPIES", "BASE", "CHECKPOINTS", "UNDO", "OTHER", "TOTAL"];
        ui.bytes(table(&headings, &rows).as_bytes())?;
        ui.line("")?;
    }
    ui.line(format_args!("database       {}", size(report.database)))?;
    ui.line(format_args!(
        "kept           {} of {} (state.max_size), in {}",
        size(report.kept_bytes),
        size(report.max_size),
        output::count(report.kept.len(), "item")
    ))?;
    ui.line(format_args!(
        "free           {}, of which {} are left alone (state.min_free)",
        size(report.free),
        size(report.min_free)
    ))?;
    if let Some(first) = report.kept.iter().find(|item| !item.pinned) {
        ui.line(format_args!("goes first     {} {}, {}", first.kind, first.item, size(first.bytes)))?;
    }
    Ok(())
}

fn row(disk: &SandboxDisk) -> Vec<String> {
    let mut row = vec![output::name(&disk.name), disk.state.as_str().to_owned()];
    row.extend([disk.copies, disk.base, disk.checkpoints, disk.undo, disk.other, disk.total].map(size));
    row
}
