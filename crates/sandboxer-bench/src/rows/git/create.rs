//! `sandbox create` of a checkout against `git worktree add`: a second place to work in, with a branch of its own. Ours also
//! has what is ignored and not committed.

use super::checkout::Checkout;
use crate::failure::Result;
use crate::measure::{Sample, interleave, run};
use crate::report::Row;
use crate::rows::count;

const GOAL: f64 = 0.02;

/// The comparison. Without an overlay ours is a copy, and the goal is not about that.
pub fn row(checkout: &Checkout<'_>) -> Result<Row> {
    let files = count(checkout.bench.spec.files);
    let name = format!("git create of {files} files vs git worktree add");
    checkout.bench.row(&name, Some(GOAL), || {
        checkout.sandbox.need_strategy(&checkout.path, "overlay")?;
        let ours = || {
            let (sample, created) = checkout.create()?;
            checkout.sandbox.destroy(&created)?;
            Ok(sample)
        };
        let theirs = || add_worktree(checkout);
        let sides = interleave(checkout.bench.rounds, &checkout.bench.interrupt, ours, theirs)?;
        Ok(Row::timed(&name, Some(GOAL), &sides))
    })
}

fn add_worktree(checkout: &Checkout<'_>) -> Result<Sample> {
    checkout.place.settle()?;
    let worktree = checkout.future_worktree("worktree");
    run(&mut worktree.add(), &checkout.beside("output"), &[0])
}
