//! Environments, each beside what makes the same without us, or beside the least that it could take.

mod container;
mod local;
mod reconcile;
mod routing;
pub mod scene;

use std::path::Path;

use super::Bench;
use crate::failure::Result;
use crate::report::Row;

/// The groups of rows, by name.
pub const GROUPS: [&str; 4] =
    ["environment-container", "environment-local", "environment-reconcile", "environment-route"];

/// How much is measured.
pub struct Scale {
    /// How many sandboxes are made and removed in one sample.
    pub made: usize,
    /// How many sandboxes there are to reconcile.
    pub known: usize,
    /// How many hosts there are to choose from.
    pub hosts: usize,
}

impl Scale {
    /// What is kept.
    pub const FULL: Self = Self { made: 500, known: 10_000, hosts: 1_000 };
    /// To see that it works.
    pub const QUICK: Self = Self { made: 50, known: 1_000, hosts: 100 };
}

/// Every row that is wanted.
pub fn rows(bench: &Bench, disk: &Path, scale: &Scale, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if is_wanted(GROUPS[0]) {
        rows.push(container::row(bench)?);
    }
    if is_wanted(GROUPS[1]) {
        rows.extend(local::rows(bench, disk, scale)?);
    }
    if is_wanted(GROUPS[2]) {
        rows.push(reconcile::row(bench, scale)?);
    }
    if is_wanted(GROUPS[3]) {
        rows.push(routing::row(bench, scale)?);
    }
    Ok(rows)
}
