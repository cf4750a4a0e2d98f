//! The rows of databases: a server behind the proxy against the same server, and files of SQLite by this project's own ways against
//! those that SQLite and `cp` have.

mod clone;
mod postgres;
mod server;
mod sqlite;

use std::time::Instant;

use crate::failure::Result;
use crate::measure::Sample;
use crate::report::Row;
use crate::rows::Bench;

use server::Served;

/// The names that select a part of these rows.
pub const GROUPS: [&str; 6] = [
    "postgres-select",
    "postgres-transactions",
    "postgres-diff",
    "sqlite-diff",
    "sqlite-record",
    "sqlite-clone",
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The scale of pgbench's tables: a hundred thousand accounts each.
    pgbench: usize,
    /// SELECTs of one sample.
    selects: usize,
    /// Transactions of one sample, of all clients together.
    transactions: usize,
    /// Rows of the SQLite table whose difference is looked for.
    rows: usize,
    /// Rows that are changed before a difference is looked for.
    changed: usize,
    /// Rows of one bulk write.
    bulk: usize,
    /// The size of the database that is cloned.
    clone: u64,
}

impl Scale {
    /// What the kept table is measured with.
    pub const FULL: Self = Self {
        pgbench: 10,
        selects: 20_000,
        transactions: 2_000,
        rows: 1_000_000,
        changed: 1_000,
        bulk: 500_000,
        clone: 1_000_000_000,
    };
    /// To see that it works.
    pub const QUICK: Self = Self {
        pgbench: 1,
        selects: 1_000,
        transactions: 200,
        rows: 50_000,
        changed: 100,
        bulk: 20_000,
        clone: 50_000_000,
    };
}

/// The rows of the groups that are `wanted`, in the order of the table.
pub fn rows(bench: &Bench, scale: &Scale, wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let (mut rows, needs_server) = (Vec::new(), GROUPS[..3].iter().any(|group| wanted(group)));
    if needs_server {
        let served = Served::start(bench, scale);
        for group in GROUPS[..3].iter().filter(|group| wanted(group)) {
            rows.extend(match *group {
                "postgres-select" => postgres::selects(bench, scale, &served)?,
                "postgres-transactions" => postgres::transactions(bench, scale, &served)?,
                _ => vec![postgres::diff(bench, scale, &served)?],
            });
        }
    }
    for group in GROUPS[3..].iter().filter(|group| wanted(group)) {
        rows.extend(match *group {
            "sqlite-diff" => vec![sqlite::diff(bench, scale)?],
            "sqlite-record" => sqlite::recording(bench, scale)?,
            _ => clone::rows(bench, scale)?,
        });
    }
    Ok(rows)
}

/// Times what this process does itself.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Sample, T)> {
    let started = Instant::now();
    let made = work()?;
    Ok((Sample::in_process(started.elapsed()), made))
}

/// A number with its thousands apart.
fn grouped(number: usize) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1_000),
    }
}

#[cfg(test)]
mod tests;
