//! `sandbox diff` by overlay: in a large tree against a small one, and against `git status`. Both trees have the
//! changed files at the same paths, so only what was not changed is more in one of them.

use super::forest::Forest;
use super::{RUNS_A_ROUND, count};
use crate::failure::Result;
use crate::measure::{interleave, run};
use crate::report::Row;
use crate::rows::CHANGED;
use crate::sandbox::Created;
use crate::tree::{TreeSpec, edit};

const GROWTH_GOAL: f64 = 1.3;
const GIT_GOAL: f64 = 0.05;

/// Both comparisons.
pub fn rows(forest: &Forest) -> Result<Vec<Row>> {
    Ok(vec![growth(forest)?, against_git(forest)?])
}

fn growth(forest: &Forest) -> Result<Row> {
    let (large, small) = (forest.scale.large, forest.scale.small);
    let (many, few) = (count(large.files), count(small.files));
    let name = format!("overlay diff of {CHANGED} changes among {many} files vs among {few}");
    forest.bench.row(&name, Some(GROWTH_GOAL), || {
        let (large, small) = (changed_sandbox(forest, large)?, changed_sandbox(forest, small)?);
        let diff = |created| move || diff(forest, created);
        let runs = forest.bench.rounds * RUNS_A_ROUND;
        let sides = interleave(runs, &forest.bench.interrupt, diff(&large), diff(&small))?;
        forest.sandbox.destroy(&large)?;
        forest.sandbox.destroy(&small)?;
        Ok(Row::timed(&name, Some(GROWTH_GOAL), &sides))
    })
}

/// Git looks at the original, a plain checkout with as many changes to the same files; they were made before the sandbox,
/// which has its own on top of them.
fn against_git(forest: &Forest) -> Result<Row> {
    let spec = forest.scale.large;
    let files = count(spec.files);
    let name = format!(
        "overlay diff of {CHANGED} changes among {files} files vs git status of as many in a plain checkout"
    );
    forest.bench.row(&name, Some(GIT_GOAL), || {
        let tree = forest.repository(spec)?;
        edit(&tree, &spec.first(CHANGED), 0)?;
        let created = changed_sandbox(forest, spec)?;
        let status = || {
            forest.place.settle()?;
            run(&mut forest.git(&tree, &["status", "--porcelain"]), &forest.beside("output"), &[0])
        };
        let sides =
            interleave(forest.bench.rounds, &forest.bench.interrupt, || diff(forest, &created), status)?;
        forest.sandbox.destroy(&created)?;
        Ok(Row::timed(&name, Some(GIT_GOAL), &sides))
    })
}

fn changed_sandbox(forest: &Forest, spec: TreeSpec) -> Result<Created> {
    let (_, created) = forest.create(&forest.tree(spec)?)?;
    edit(&created.sandbox_path, &spec.first(CHANGED), 1)?;
    Ok(created)
}

fn diff(forest: &Forest, created: &Created) -> Result<crate::measure::Sample> {
    forest.place.settle()?;
    forest.sandbox.diff(created, CHANGED)
}
