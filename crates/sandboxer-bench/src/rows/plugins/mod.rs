//! Calls to a strategy in another process, each beside a bare pipe that carries the same bytes to another process and back.

mod ends;
mod memory;
mod resolve;
mod scene;

use std::time::Instant;

use sandboxer_core::model::RelPath;

use ends::Pipe;
pub use ends::be_if_asked;
use scene::{LARGE, Language, SMALL, Scene};

use super::Bench;
use crate::failure::{Failure, Result};
use crate::measure::{Sample, Sides, interleave};
use crate::place::Place;
use crate::report::Row;

/// The groups of rows, by name.
pub const GROUPS: [&str; 4] = ["plugin-resolve", "plugin-read", "plugin-stream", "plugin-memory"];

/// How many calls one sample is of.
const CALLS: usize = 200;
/// What is read at a time of a large file, as `sandbox read` does.
const PIECE: u64 = 4 << 20;

/// How much is measured.
pub struct Scale {
    /// The size of the small file.
    pub small: u64,
    /// The size of the large one.
    pub large: u64,
}

impl Scale {
    /// What is kept.
    pub const FULL: Self = Self { small: 4 << 10, large: 1 << 30 };
    /// To see that it works.
    pub const QUICK: Self = Self { small: 4 << 10, large: 64 << 20 };

    /// What original, copy and output take together.
    pub fn room(&self) -> u64 {
        3 * self.large + (256 << 20)
    }
}

/// Every row that is wanted.
pub fn rows(
    bench: &Bench,
    place: &Place,
    scale: &Scale,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if is_wanted(GROUPS[0]) {
        rows.push(resolve::row(bench)?);
    }
    for (language, goal) in [(Language::Rust, 150.0), (Language::Python, 300.0)] {
        let scene = || Scene::new(place, language, scale);
        if is_wanted(GROUPS[1]) {
            let name = format!("read of 4 KiB through a plugin in {language} vs a pipe");
            let row = || Ok(Row::latency(&name, goal, CALLS, &small_reads(bench, &scene()?, scale)?));
            rows.push(bench.row(&name, Some(goal), row)?);
        }
        if is_wanted(GROUPS[2]) {
            let name = format!(
                "read of {} MiB in pieces through a plugin in {language} vs a pipe",
                scale.large >> 20
            );
            let row = || Ok(Row::rate(&name, 400.0, scale.large, &large_read(bench, &scene()?, scale)?));
            rows.push(bench.row(&name, Some(400.0), row)?);
        }
        if is_wanted(GROUPS[3]) {
            rows.push(memory::row(bench, place, language, scale)?);
        }
    }
    Ok(rows)
}

fn small_reads(bench: &Bench, scene: &Scene, scale: &Scale) -> Result<Sides> {
    let mut pipe = Pipe::start()?;
    let path = path(SMALL)?;
    let ours = || timed(|| (0..CALLS).try_for_each(|_| scene.read(&path, None).map(drop)));
    let theirs = || timed(|| (0..CALLS).try_for_each(|_| pipe.echo(scale.small).map(drop)));
    interleave(bench.rounds * 10, &bench.interrupt, ours, theirs)
}

fn large_read(bench: &Bench, scene: &Scene, scale: &Scale) -> Result<Sides> {
    let mut pipe = Pipe::start()?;
    let path = path(LARGE)?;
    let pieces = scale.large / PIECE;
    let ours = || timed(|| (0..pieces).try_for_each(|n| scene.read_piece(&path, n * PIECE, PIECE)));
    let theirs = || timed(|| (0..pieces).try_for_each(|_| pipe.fetch(PIECE).map(drop)));
    interleave(bench.rounds, &bench.interrupt, ours, theirs)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let started = Instant::now();
    work()?;
    Ok(Sample::in_process(started.elapsed()))
}

fn path(name: &str) -> Result<RelPath> {
    RelPath::parse(name).map_err(|error| Failure::new(error.to_string()))
}
