//! `sandbox undo` against the `sandbox commit` that it takes back.

use std::cell::Cell;

use super::{Bench, CHANGED, Subject};
use crate::failure::Result;
use crate::measure::{Sample, interleave};
use crate::report::Row;
use crate::tree::edit;

const NAME: &str = "undo command vs the commit command that it takes back, disk";
const GOAL: f64 = 1.2;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let (sample, created) = subject.sandbox.create(&subject.tree, "filesystem_copy")?;
        bench.peaks.create.note(sample);
        let paths = bench.spec.spread(CHANGED);
        let (round, committed) = (Cell::new(1_000), Cell::new(Sample::default()));
        let ours = || {
            round.set(round.get() + 1);
            edit(&created.sandbox_path, &paths, round.get())?;
            subject.place.settle()?;
            committed.set(bench.peaks.commit.note(subject.sandbox.commit(&created, CHANGED)?));
            subject.place.settle()?;
            subject.sandbox.undo(&created, CHANGED)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, || Ok(committed.get()))?;
        subject.sandbox.destroy(&created)?;
        Ok(Row::timed(NAME, Some(GOAL), &sides))
    })
}
