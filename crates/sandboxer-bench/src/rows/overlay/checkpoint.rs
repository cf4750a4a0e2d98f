//! `sandbox checkpoint` and `sandbox restore` of an idle sandbox with much changed against one with little changed: what
//! was changed is neither copied nor read, so its size should not count. It is written through the sandbox and flushed
//! before the clock starts; each run has a sandbox of its own.

use std::fs;
use std::path::Path;

use super::forest::Forest;
use crate::failure::{During, Result};
use crate::measure::{Sample, interleave};
use crate::report::Row;
use crate::sandbox::Created;

const GOAL: f64 = 2.0;
/// A gigabyte has to be written for each run.
const ROUNDS: usize = 3;
const CHUNK: u64 = 4 << 20;
const LITTLE: u64 = 1 << 10;
const NAME: &str = "kept";

/// Both comparisons.
pub fn rows(forest: &Forest) -> Result<Vec<Row>> {
    let checkpoint = |created: &Created, bytes| {
        change(forest, &created.sandbox_path, bytes)?;
        forest.sandbox.checkpoint_as(created, NAME)
    };
    let restore = |created: &Created, bytes| {
        forest.sandbox.checkpoint_as(created, NAME)?;
        change(forest, &created.sandbox_path, bytes)?;
        forest.sandbox.restore(created, NAME)
    };
    Ok(vec![row(forest, "checkpoint", checkpoint)?, row(forest, "restore", restore)?])
}

fn row(forest: &Forest, step: &str, timed: impl Fn(&Created, u64) -> Result<Sample>) -> Result<Row> {
    let much = forest.scale.changed;
    let name = format!("overlay {step} with {} MiB changed vs with 1 KiB changed", much >> 20);
    forest.bench.row(&name, Some(GOAL), || {
        forest.place.need(much * 2, 10_000)?;
        let tree = forest.tree(forest.scale.small)?;
        let with = |bytes| {
            let (_, created) = forest.create(&tree)?;
            let sample = timed(&created, bytes)?;
            forest.sandbox.destroy(&created)?;
            Ok(sample)
        };
        let rounds = forest.bench.rounds.min(ROUNDS);
        let sides = interleave(rounds, &forest.bench.interrupt, || with(much), || with(LITTLE))?;
        Ok(Row::timed(&name, Some(GOAL), &sides))
    })
}

/// Writes new files of `bytes` in all, and waits until they are on the disk.
fn change(forest: &Forest, sandbox: &Path, bytes: u64) -> Result<()> {
    let directory = sandbox.join("changes");
    fs::create_dir(&directory).during("create directory", &directory)?;
    let content = vec![0x5a; CHUNK.min(bytes) as usize];
    for number in 0..bytes.div_ceil(CHUNK) {
        forest.bench.interrupt.check()?;
        let path = directory.join(format!("file{number:03}"));
        fs::write(&path, &content).during("write", &path)?;
    }
    forest.place.settle()
}
