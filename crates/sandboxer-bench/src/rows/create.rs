//! `sandbox create` against `cp -a`: both make a full second tree with all metadata; ours also writes the manifest that
//! later diffs and commits rest on, and its state.

use std::path::Path;
use std::process::Command;

use super::{Bench, Subject, remove};
use crate::failure::Result;
use crate::measure::{Sample, Sides, interleave, run};
use crate::place::Place;
use crate::report::Row;

/// Goal of `filesystem_copy` on tmpfs.
pub const TMPFS_GOAL: f64 = 0.45;
const REFLINK_GOAL: f64 = 0.55;
/// A row without a goal is for the record: a disk that takes a minute for one copy need not take ten of them.
const ROUNDS_FOR_THE_RECORD: usize = 3;

/// `filesystem_copy` against `cp -a`.
pub fn filesystem_copy(bench: &Bench, subject: &Subject, goal: Option<f64>) -> Result<Row> {
    let name = format!("create by filesystem_copy vs cp -a, {}", subject.place.name);
    bench.row(&name, goal, || {
        let rounds = if goal.is_some() { bench.rounds } else { bench.rounds.min(ROUNDS_FOR_THE_RECORD) };
        let sides = compare(bench, subject, "filesystem_copy", &["-a"], rounds)?;
        Ok(Row::timed(&name, goal, &sides))
    })
}

/// `copy_on_write` against `cp -a --reflink=always`, on an XFS of its own.
pub fn copy_on_write(bench: &Bench, place: Result<Place>) -> Result<Row> {
    let name = "create by copy_on_write vs cp -a --reflink=always, xfs";
    bench.row(name, Some(REFLINK_GOAL), || {
        let subject = Subject::new(bench, place?)?;
        let sides = compare(bench, &subject, "copy_on_write", &["-a", "--reflink=always"], bench.rounds)?;
        Ok(Row::timed(name, Some(REFLINK_GOAL), &sides))
    })
}

fn compare(
    bench: &Bench,
    subject: &Subject,
    strategy: &str,
    cp_options: &[&str],
    rounds: usize,
) -> Result<Sides> {
    let ours = || {
        subject.place.settle()?;
        let (sample, created) = subject.sandbox.create(&subject.tree, strategy)?;
        subject.sandbox.destroy(&created)?;
        Ok(bench.peaks.create.note(sample))
    };
    let theirs = || {
        subject.place.settle()?;
        copy_by_cp(subject, cp_options, &subject.beside("copy"))
    };
    interleave(rounds, &bench.interrupt, ours, theirs)
}

fn copy_by_cp(subject: &Subject, options: &[&str], copy: &Path) -> Result<Sample> {
    let mut cp = Command::new("cp");
    let sample = run(cp.args(options).arg(&subject.tree).arg(copy), &subject.beside("output"), &[0])?;
    remove(copy)?;
    Ok(sample)
}
