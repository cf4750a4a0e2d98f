//! Environments, each beside what makes the same without us.

mod container;

use super::Bench;
use crate::failure::Result;
use crate::report::Row;

/// The groups of rows, by name.
pub const GROUPS: [&str; 1] = ["environment-container"];

/// Every row that is wanted.
pub fn rows(bench: &Bench, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if is_wanted(GROUPS[0]) {
        rows.push(container::row(bench)?);
    }
    Ok(rows)
}
