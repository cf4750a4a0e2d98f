//! Random histories of two sandboxes over one directory, against a model that knows where every byte must be.
//!
//! Programs edit the sandboxes, a person edits the original, and in between everything is committed (whole, by paths, by
//! hunks, with every way out of a conflict), taken back, rolled back, checkpointed, parked and taken up again. After every step
//! the original, both sandboxes and what they say of their differences are compared with plain maps. What is refused must have
//! a reason the model knows of, and must have changed nothing.

mod edits;
mod model;
mod tree;
mod world;

use std::fmt;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use sandboxer_core::model::OnConflict;
use sandboxer_keeper::mount;
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::{full, skip};

use edits::{Edit, edit, path};
use world::{Checked, World};

/// One thing that happens. The number is that of the sandbox.
#[derive(Clone, Debug)]
enum Step {
    Edit(usize, Edit),
    ByHand(Edit),
    Commit(usize, OnConflict),
    CommitPaths(usize, Vec<&'static str>, OnConflict),
    CommitHunks(usize, &'static str, u8),
    UndoLast(usize),
    Undo(usize, usize),
    Rollback(usize),
    RollbackBelow(usize, &'static str),
    Checkpoint(usize),
    Restore(usize, usize),
    Park(usize, Vec<Edit>),
    Renew(usize),
}

/// What happened, one step a line.
#[derive(Clone)]
struct History(Vec<Step>);

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, step)| write!(f, "\n  {at:2}. {step:?}"))
    }
}

fn on_conflict() -> impl Strategy<Value = OnConflict> {
    prop_oneof![
        3 => Just(OnConflict::Fail),
        3 => Just(OnConflict::Merge),
        1 => Just(OnConflict::Mark),
        1 => Just(OnConflict::Ours),
        1 => Just(OnConflict::Theirs),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // The second sandbox commits in between now and then.
    let who = || prop_oneof![4 => Just(0usize), 1 => Just(1usize)];
    let paths = || prop::collection::vec(path(), 1..3);
    let texts = prop::sample::select(&["a", "d/c", "d/e/f"][..]);
    prop_oneof![
        16 => (who(), edit()).prop_map(|(who, edit)| Step::Edit(who, edit)),
        5 => edit().prop_map(Step::ByHand),
        4 => (who(), on_conflict()).prop_map(|(who, on)| Step::Commit(who, on)),
        2 => (who(), paths(), on_conflict()).prop_map(|(who, paths, on)| Step::CommitPaths(who, paths, on)),
        2 => (who(), texts, 1..8u8).prop_map(|(who, path, mask)| Step::CommitHunks(who, path, mask)),
        2 => who().prop_map(Step::UndoLast),
        2 => (who(), 0..8usize).prop_map(|(who, which)| Step::Undo(who, which)),
        1 => who().prop_map(Step::Rollback),
        1 => (who(), path()).prop_map(|(who, path)| Step::RollbackBelow(who, path)),
        1 => who().prop_map(Step::Checkpoint),
        1 => (who(), 0..4usize).prop_map(|(who, which)| Step::Restore(who, which)),
        2 => (who(), prop::collection::vec(edit(), 0..3)).prop_map(|(who, edits)| Step::Park(who, edits)),
        1 => who().prop_map(Step::Renew),
    ]
}

fn history() -> impl Strategy<Value = History> {
    prop::collection::vec(step(), 1..30).prop_map(History)
}

fn take(world: &mut World, step: &Step) -> Checked {
    match step {
        Step::Edit(who, edit) => world.edit(*who, edit),
        Step::ByHand(edit) => world.by_hand(edit),
        Step::Commit(who, on) => world.commit(*who, &[], *on)?,
        Step::CommitPaths(who, paths, on) => world.commit(*who, paths, *on)?,
        Step::CommitHunks(who, path, mask) => world.commit_hunks(*who, path, *mask)?,
        Step::UndoLast(who) => world.undo_last(*who)?,
        Step::Undo(who, which) => world.undo(*who, *which)?,
        Step::Rollback(who) => world.rollback(*who, None)?,
        Step::RollbackBelow(who, path) => world.rollback(*who, Some(path))?,
        Step::Checkpoint(who) => world.checkpoint(*who)?,
        Step::Restore(who, which) => world.restore(*who, *which)?,
        Step::Park(who, edits) => world.park(*who, edits)?,
        Step::Renew(who) => world.renew(*who)?,
    }
    world.check()
}

fn play(strategy: &'static str, dir: &Path, history: &History) -> Checked {
    let mut world = World::new(strategy, dir);
    for (at, step) in history.0.iter().enumerate() {
        take(&mut world, step).map_err(|wrong| format!("after {at}. {step:?}: {wrong}"))?;
    }
    world.end().map_err(|wrong| format!("in the end: {wrong}"))
}

/// The same histories each time, so that a failure is a failure of the change at hand; a full run tries new ones.
fn run(strategy: &'static str, dir: &Path, cases: u32) {
    let rng_seed = if full() { RngSeed::Random } else { RngSeed::Fixed(20_260_802) };
    let cases = if full() { cases * 10 } else { cases };
    let config =
        Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 1_000, ..Config::default() };
    let result = TestRunner::new(config)
        .run(&history(), |history| play(strategy, dir, &history).map_err(TestCaseError::fail));
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn filesystem_copy_puts_every_byte_where_the_model_says() {
    // In memory where that is possible: every step is flushed, and there are many.
    match Mounted::tmpfs(256 << 20) {
        Ok(memory) => run("filesystem_copy", memory.path(), 40),
        Err(_) => run("filesystem_copy", tempfile::tempdir().unwrap().path(), 10),
    }
}

#[test]
fn copy_on_write_puts_every_byte_where_the_model_says() {
    match Mounted::xfs(400 << 20) {
        Ok(xfs) => run("copy_on_write", xfs.path(), 12),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn overlay_puts_every_byte_where_the_model_says() {
    match Mounted::tmpfs(256 << 20).and_then(|memory| mount::try_host(memory.path()).map(|()| memory)) {
        Ok(memory) => run("overlay", memory.path(), 40),
        Err(reason) => skip(&reason),
    }
}
