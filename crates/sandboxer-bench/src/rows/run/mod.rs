//! The rows of `run` and `exec`: what a command pays for being contained, against bubblewrap, against `nsenter`, and against no
//! container at all. All of them work in one [`Yard`], in projects of a few files.

mod compile;
mod crowd;
mod exec;
mod processes;
mod proxy;
mod sources;
mod start;
mod yard;

use crate::failure::{Failure, Result};
use crate::place::tool;
use crate::report::Row;

pub use yard::Yard;

/// The strategy under test.
const STRATEGY: &str = "overlay";
/// A command that is over in milliseconds has to run often for a steady median.
const RUNS_A_ROUND: usize = 6;
/// How many files a project has.
pub const FILES: usize = 20;
/// What all of it takes on disk, most of it the crowd's sandboxes and two builds.
pub const ROOM: u64 = 1 << 30;
/// How many inodes all of it takes.
pub const INODES: u64 = 100_000;

/// The names that select a part of these rows.
pub const GROUPS: [&str; 5] = ["run-start", "run-exec", "run-compile", "run-memory", "run-proxy"];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// C files of the program that `make` builds.
    c_files: usize,
    /// Modules of the crate that `cargo` builds.
    modules: usize,
    /// Sandboxes at once.
    crowd: usize,
    /// Bytes of one download.
    download: u64,
}

impl Scale {
    /// What the kept table is measured with.
    pub const FULL: Self = Self { c_files: 40, modules: 60, crowd: 200, download: 2_000_000_000 };
    /// To see that it works.
    pub const QUICK: Self = Self { c_files: 6, modules: 6, crowd: 8, download: 200_000_000 };
}

/// The rows of the groups that are `wanted`, in the order of the table.
pub fn rows(yard: &Yard<'_>, scale: &Scale, wanted: impl Fn(&str) -> bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for group in GROUPS.into_iter().filter(|group| wanted(group)) {
        rows.extend(match group {
            "run-start" => start::rows(yard)?,
            "run-exec" => vec![exec::row(yard)?],
            "run-compile" => compile::rows(yard, scale)?,
            "run-memory" => crowd::rows(yard, scale.crowd)?,
            _ => vec![proxy::row(yard, scale.download)?],
        });
    }
    Ok(rows)
}

/// Skips what compares with a tool, or is done by one, where there is none.
fn need_tool(program: &str) -> Result<()> {
    let missing = |why: Failure| Failure::Skipped(format!("no {program} here ({why})"));
    tool(std::process::Command::new(program).arg("--version")).map_err(missing)
}

#[cfg(test)]
mod tests;
