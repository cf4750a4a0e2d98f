//! The whole `sandbox commit` command against what it is made of: one `sandbox diff` command plus twice the time of an
//! in-process loop that copies the same files and makes each durable. Twice, because that is what the apply phase may
//! take ([`super::apply`]): one copy into the stage, one change of the original.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::{Bench, CHANGED, Subject, copy_and_fsync};
use crate::failure::Result;
use crate::measure::{Sample, interleave, median_ms, ratio};
use crate::report::Row;
use crate::sandbox::Created;
use crate::tree::edit;

const NAME: &str = "commit command vs diff command + 2 × copy-and-fsync loop, disk";
const GOAL: f64 = 1.0;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        let (sample, created) = subject.sandbox.create(&subject.tree, "filesystem_copy")?;
        bench.peaks.create.note(sample);
        let row = compare(bench, subject, &created)?;
        subject.sandbox.destroy(&created)?;
        Ok(row)
    })
}

fn compare(bench: &Bench, subject: &Subject, created: &Created) -> Result<Row> {
    let paths = bench.spec.spread(CHANGED);
    let (round, last_diff) = (Cell::new(0), Cell::new(Duration::ZERO));
    let (diffs, loops) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let ours = || {
        round.set(round.get() + 1);
        edit(&created.sandbox_path, &paths, round.get())?;
        subject.place.settle()?;
        let diff = bench.peaks.diff.note(subject.sandbox.diff(created, CHANGED)?);
        last_diff.set(diff.wall);
        diffs.borrow_mut().push(diff);
        subject.place.settle()?;
        Ok(bench.peaks.commit.note(subject.sandbox.commit(created, CHANGED)?))
    };
    let theirs = || {
        subject.place.settle()?;
        let taken = copy_and_fsync(&created.sandbox_path, &paths, &subject.beside("loop"))?;
        loops.borrow_mut().push(Sample::in_process(taken));
        Ok(Sample::in_process(last_diff.get() + 2 * taken))
    };
    let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
    let (diff, once) = (median_ms(&diffs.borrow()[1..]), median_ms(&loops.borrow()[1..]));
    let against_one = ratio(sides.medians().0, diff + once);
    let parts = format!("diff {diff:.0} ms, loop {once:.0} ms; {against_one:.2} of diff + 1 loop");
    Ok(Row::timed(NAME, Some(GOAL), &sides).noting(&parts))
}
