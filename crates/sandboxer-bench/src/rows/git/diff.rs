//! `sandbox diff` of a hundred changes, with and without their patches, against `git status --porcelain && git diff` of the
//! same changes in a worktree. Git has been told of the new paths (`git add --intent-to-add`, not timed), or its patch would
//! leave them out and show a rename as a deletion: both sides show the same hundred.

use std::process::Command;

use super::checkout::{Checkout, Worktree};
use crate::failure::Result;
use crate::measure::{Sample, interleave, run};
use crate::report::Row;
use crate::rows::{CHANGED, count, without_configuration};
use crate::sandbox::{Created, expect_patches};

const GOAL: f64 = 0.2;
const SCRIPT: &str = "git status --porcelain && git diff";

/// Both comparisons.
pub fn rows(checkout: &Checkout<'_>) -> Result<Vec<Row>> {
    let patch = |created: &Created| checkout.sandbox.diff_patch(created, CHANGED);
    let list = |created: &Created| checkout.sandbox.diff(created, CHANGED);
    Ok(vec![row(checkout, "diff --patch", patch)?, row(checkout, "diff", list)?])
}

fn row(checkout: &Checkout<'_>, what: &str, diff: impl Fn(&Created) -> Result<Sample>) -> Result<Row> {
    let files = count(checkout.bench.spec.files);
    let name = format!("git {what} of {CHANGED} changes among {files} files vs git status and git diff");
    checkout.bench.row(&name, Some(GOAL), || {
        let (_, created) = checkout.create()?;
        checkout.changes.make(&created.sandbox_path, 0)?;
        let worktree = checkout.worktree("worktree")?;
        worktree.change(0)?;
        let ours = || {
            checkout.place.settle()?;
            diff(&created)
        };
        let theirs = || status_and_diff(checkout, &worktree);
        let sides = interleave(checkout.bench.rounds, &checkout.bench.interrupt, ours, theirs)?;
        checkout.sandbox.destroy(&created)?;
        Ok(Row::timed(&name, Some(GOAL), &sides))
    })
}

fn status_and_diff(checkout: &Checkout<'_>, worktree: &Worktree<'_>) -> Result<Sample> {
    checkout.place.settle()?;
    let output = checkout.beside("output");
    let mut shell = Command::new("/bin/sh");
    without_configuration(&mut shell).args(["-c", SCRIPT]).current_dir(&worktree.path);
    let sample = run(&mut shell, &output, &[0])?;
    expect_patches("git diff", &output, CHANGED)?;
    Ok(sample)
}
