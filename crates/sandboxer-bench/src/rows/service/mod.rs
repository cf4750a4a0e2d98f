//! The service, each row beside the same use case called in process, or beside the same with less to do.

mod followers;
mod get;
mod list;
mod pace;
mod scene;

use super::Bench;
use crate::failure::Result;
use crate::report::Row;

/// The groups of rows, by name.
pub const GROUPS: [&str; 4] = ["service-get", "service-list", "service-followers", "service-pace"];

/// How much is measured.
pub struct Scale {
    /// How many requests are one sample.
    pub calls: usize,
    /// How many sandboxes are many.
    pub many: usize,
    /// How many are few.
    pub few: usize,
    /// How many follow the events.
    pub followers: usize,
    /// For how many seconds requests are sent as fast as they are answered.
    pub seconds: u64,
}

impl Scale {
    /// What is kept.
    pub const FULL: Self = Self { calls: 500, many: 10_000, few: 100, followers: 2_000, seconds: 5 };
    /// To see that it works.
    pub const QUICK: Self = Self { calls: 50, many: 1_000, few: 100, followers: 100, seconds: 1 };
}

/// Every row that is wanted.
pub fn rows(bench: &Bench, scale: &Scale, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if is_wanted(GROUPS[0]) {
        rows.push(get::row(bench, scale)?);
    }
    if is_wanted(GROUPS[1]) {
        rows.push(list::row(bench, scale)?);
    }
    if is_wanted(GROUPS[2]) {
        rows.push(followers::row(bench, scale)?);
    }
    if is_wanted(GROUPS[3]) {
        rows.push(pace::row(bench, scale)?);
    }
    Ok(rows)
}
