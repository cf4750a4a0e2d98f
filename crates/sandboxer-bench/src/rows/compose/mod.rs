//! Stacks by `ext.compose-ssh`, each row beside what a person would type to the same host; and trees of files between here and there.

mod create;
mod crowd;
mod destroy;
mod program;
mod scene;
#[cfg(test)]
mod tests;
mod transfer;
mod wire;

use std::path::Path;

use super::Bench;
use crate::failure::Result;
use crate::report::Row;
use crate::tree::TreeSpec;
pub use program::Program;
use scene::Scene;

/// The groups of rows, by name.
pub const GROUPS: [&str; 4] = ["compose-create", "compose-crowd", "compose-destroy", "compose-transfer"];

/// How much is measured.
pub struct Scale {
    /// What is sent.
    pub tree: TreeSpec,
    /// How many stacks are made at once.
    pub crowd: usize,
}

impl Scale {
    /// What is kept.
    pub const FULL: Self = Self { tree: TreeSpec::sources(50_000, 500), crowd: 10 };
    /// To see that it works.
    pub const QUICK: Self = Self { tree: TreeSpec::sources(2_000, 100), crowd: 3 };
}

/// Every row that is wanted. One host is for all rows of stacks: none of them leaves anything on it.
pub fn rows(
    bench: &Bench,
    disk: &Path,
    program: Program,
    scale: &Scale,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if GROUPS[..3].iter().any(|group| is_wanted(group)) {
        let scene = Scene::new(bench, disk, program);
        bench.interrupt.check()?;
        if is_wanted(GROUPS[0]) {
            rows.push(create::row(bench, &scene, program)?);
        }
        if is_wanted(GROUPS[1]) {
            rows.extend(crowd::rows(bench, &scene, program, scale)?);
        }
        if is_wanted(GROUPS[2]) {
            rows.extend(destroy::rows(bench, &scene, program)?);
        }
    }
    if is_wanted(GROUPS[3]) {
        rows.extend(transfer::rows(bench, disk, scale)?);
    }
    Ok(rows)
}
