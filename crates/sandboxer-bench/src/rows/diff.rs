//! `sandbox diff` after some changes against `diff -rq` of the two trees: both answer which files differ.

use std::process::Command;

use super::{Bench, CHANGED, Subject};
use crate::failure::Result;
use crate::measure::{Sides, interleave, run};
use crate::report::Row;
use crate::sandbox::Created;
use crate::tree::edit;

/// Goal of the diff.
pub const GOAL: f64 = 0.2;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject, goal: Option<f64>) -> Result<Row> {
    let name = format!("diff of {CHANGED} changed files vs diff -rq, {}", subject.place.name);
    bench.row(&name, goal, || {
        let (sample, created) = subject.sandbox.create(&subject.tree, "filesystem_copy")?;
        bench.peaks.create.note(sample);
        edit(&created.sandbox_path, &bench.spec.spread(CHANGED), 0)?;
        let sides = compare(bench, subject, &created)?;
        subject.sandbox.destroy(&created)?;
        Ok(Row::timed(&name, goal, &sides))
    })
}

fn compare(bench: &Bench, subject: &Subject, created: &Created) -> Result<Sides> {
    let ours = || {
        subject.place.settle()?;
        Ok(bench.peaks.diff.note(subject.sandbox.diff(created, CHANGED)?))
    };
    let theirs = || {
        subject.place.settle()?;
        let mut diff = Command::new("diff");
        diff.arg("-rq").arg(&subject.tree).arg(&created.sandbox_path);
        // It ends with 1 where trees differ, and they must.
        run(&mut diff, &subject.beside("output"), &[1])
    };
    interleave(bench.rounds, &bench.interrupt, ours, theirs)
}
