//! Random operation sequences against a simple model.
//!
//! A sequence edits the sandbox, takes and restores checkpoints, rolls back, commits all or some of it, and now and then
//! somebody edits the original behind everybody's back. The model says what each tree has to be. A commit that is
//! refused must have a reason the model knows of, and must have touched nothing; one that is accepted must have lost
//! nobody's edit; afterwards nothing differs.

mod model;
mod ops;
mod world;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use sandboxer_core::registry::StrategyEntry;
use sandboxer_keeper::mount;
use sandboxer_strategies::{copy_on_write, filesystem_copy, overlay};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::{full, skip};

use ops::{Edit, edit, path};
use world::World;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Edit(Edit),
    Foreign(Edit),
    Checkpoint(u8),
    Restore(u8),
    Rollback,
    RollbackBelow(String),
    Commit,
    CommitSome(Vec<String>),
    Diff,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => edit().prop_map(Step::Edit),
        2 => edit().prop_map(Step::Foreign),
        1 => (0..3u8).prop_map(Step::Checkpoint),
        1 => (0..3u8).prop_map(Step::Restore),
        1 => Just(Step::Rollback),
        1 => path().prop_map(Step::RollbackBelow),
        3 => Just(Step::Commit),
        2 => prop::collection::vec(path(), 1..3).prop_map(Step::CommitSome),
        1 => Just(Step::Diff),
    ]
}

fn sequence() -> impl Strategy<Value = (Vec<Edit>, Vec<Step>)> {
    (prop::collection::vec(edit(), 0..25), prop::collection::vec(step(), 1..50))
}

fn play(entry: &StrategyEntry, dir: &Path, first: &[Edit], steps: &[Step]) {
    let mut world = World::new(entry, dir, first);
    for step in steps {
        match step {
            Step::Edit(edit) => world.edit(edit),
            Step::Foreign(edit) => world.foreign(edit),
            Step::Checkpoint(name) => world.checkpoint(*name),
            Step::Restore(name) => world.restore(*name),
            Step::Rollback => world.rollback(None),
            Step::RollbackBelow(path) => world.rollback(Some(path)),
            Step::Commit => world.commit(&[]),
            Step::CommitSome(paths) => world.commit(paths),
            Step::Diff => world.check_diff(),
        }
    }
    world.check_diff();
    world.commit(&[]);
    world.end();
}

/// The same sequences each time, so that a failure is a failure of the change at hand; a full run tries new ones.
fn run(entry: &StrategyEntry, dir: &Path, cases: u32) {
    let rng_seed = if full() { RngSeed::Random } else { RngSeed::Fixed(20_260_801) };
    let cases = if full() { cases * 5 } else { cases };
    let config =
        Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&sequence(), |(first, steps)| {
        play(entry, dir, &first, &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn filesystem_copy_behaves_like_the_model() {
    let dir = tempfile::tempdir().unwrap();
    run(&filesystem_copy::entry(), dir.path(), 100);
}

#[test]
fn copy_on_write_behaves_like_the_model() {
    match Mounted::xfs(400 << 20) {
        Ok(xfs) => run(&copy_on_write::entry(), xfs.path(), 50),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn overlay_behaves_like_the_model() {
    let dir = tempfile::tempdir().unwrap();
    match mount::try_host(dir.path()) {
        Ok(()) => run(&overlay::entry(), dir.path(), 100),
        Err(reason) => skip(&reason),
    }
}
