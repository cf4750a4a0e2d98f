//! Random histories of sandboxes over one tree, in which everything is done as a user does it: by shell commands, on mounts that stay
//! while the original changes below them.
//!
//! [`model`] says what is right. A failure is shortened to a few commands, which are printed ready to be pasted.
//! `SANDBOXER_FUZZ_MINUTES` has each test go on for as long (see `scripts/fuzz`).

mod beside;
mod edit;
mod ground;
mod kind;
mod model;
mod ran;
mod tree;
mod world;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use sandboxer_keeper::mount;
use sandboxer_testkit::faults::seed_for;
use sandboxer_testkit::{full, skip};

use beside::Beside;
use edit::{Edit, any_edit, any_path};
use ground::{GROUNDS, Ground, LaidGround};
use kind::Kind;
use model::{Checked, OnConflict};
use world::{Afterwards, World, program_directory};

const BESIDE: [Beside; 4] = [Beside::Commit, Beside::Checkpoint, Beside::Refresh, Beside::Diff];

/// One thing that happens. The number is that of the sandbox; other numbers count from the newest.
#[derive(Clone, Debug)]
enum Step {
    Inside(usize, Edit),
    Outside(Edit),
    Look(usize),
    Diff(usize),
    Commit(usize, Vec<&'static str>, OnConflict),
    KilledCommit(usize, u8, Afterwards),
    BesideAWriter(usize, Beside),
    Undo(usize, usize),
    Rollback(usize, Option<&'static str>),
    Checkpoint(usize),
    Restore(usize, usize),
    Refresh(usize),
    Park(usize),
    Remount(usize),
}

#[derive(Clone)]
struct History {
    steps: Vec<Step>,
    /// Whether everything is looked at after each step. Looking fills the caches of the kernel.
    is_watched: bool,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.is_watched { "watched" } else { "not watched" })?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

fn any_step(sandboxes: usize) -> impl Strategy<Value = Step> {
    let who = move || prop_oneof![3 => Just(0), 2 => 0..sandboxes];
    let way = || {
        prop_oneof![
            4 => Just(OnConflict::Fail),
            2 => Just(OnConflict::Merge),
            1 => select(&[OnConflict::Ours, OnConflict::Theirs][..]),
        ]
    };
    let scope = || prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any_path(), 1..3)];
    prop_oneof![
        14 => (who(), any_edit()).prop_map(|(who, edit)| Step::Inside(who, edit)),
        4 => any_edit().prop_map(Step::Outside),
        3 => who().prop_map(Step::Look),
        2 => who().prop_map(Step::Diff),
        6 => (who(), scope(), way()).prop_map(|(who, scope, way)| Step::Commit(who, scope, way)),
        2 => (who(), 5..60u8, select(&[Afterwards::Recover, Afterwards::Abort][..]))
            .prop_map(|(who, ms, afterwards)| Step::KilledCommit(who, ms, afterwards)),
        2 => (who(), select(&BESIDE[..])).prop_map(|(who, operation)| Step::BesideAWriter(who, operation)),
        2 => (who(), 0..3usize).prop_map(|(who, which)| Step::Undo(who, which)),
        2 => (who(), prop::option::of(any_path())).prop_map(|(who, scope)| Step::Rollback(who, scope)),
        2 => who().prop_map(Step::Checkpoint),
        2 => (who(), 0..2usize).prop_map(|(who, which)| Step::Restore(who, which)),
        2 => who().prop_map(Step::Refresh),
        1 => who().prop_map(Step::Park),
        1 => who().prop_map(Step::Remount),
    ]
}

fn any_history(sandboxes: usize) -> impl Strategy<Value = History> {
    (prop::collection::vec(any_step(sandboxes), 1..25), any::<bool>())
        .prop_map(|(steps, is_watched)| History { steps, is_watched })
}

fn take(world: &mut World, step: &Step) -> Checked {
    match step {
        Step::Inside(who, edit) => world.edit(*who, edit),
        Step::Outside(edit) => world.edit_original(edit),
        Step::Look(who) => world.look(*who),
        Step::Diff(who) => world.diff(*who),
        Step::Commit(who, scope, way) => world.commit(*who, scope, *way),
        Step::KilledCommit(who, ms, afterwards) => world.killed_commit(*who, *ms, *afterwards),
        Step::BesideAWriter(who, operation) => world.beside_a_writer(*who, *operation),
        Step::Undo(who, which) => world.undo(*who, *which),
        Step::Rollback(who, scope) => world.rollback(*who, *scope),
        Step::Checkpoint(who) => world.checkpoint(*who),
        Step::Restore(who, which) => world.restore(*who, *which),
        Step::Refresh(who) => world.refresh(*who),
        Step::Park(who) => world.park(*who),
        Step::Remount(who) => world.remount(*who),
    }
}

fn play(kind: Kind, ground: &LaidGround, programs: &Path, history: &History) -> Checked {
    let mut world = World::new(kind, ground, programs)?;
    for step in &history.steps {
        let mut taken = take(&mut world, step);
        for who in 0..sandboxes(kind) {
            if history.is_watched && taken.is_ok() {
                taken = world.look(who).and_then(|()| world.diff(who));
            }
        }
        taken.map_err(|wrong| format!("{wrong}\n{}\n", world.script()))?;
    }
    world.end()
}

fn sandboxes(kind: Kind) -> usize {
    if kind == Kind::Git { 2 } else { 3 }
}

/// How long each of the tests goes on in a full run.
const FULL_TIME: Duration = Duration::from_secs(100);

/// How long a test goes on; `None` for the usual number of histories.
fn time() -> Option<Duration> {
    match std::env::var("SANDBOXER_FUZZ_MINUTES") {
        Ok(minutes) => Some(Duration::from_secs(minutes.parse::<u64>().unwrap() * 60)),
        Err(_) => full().then_some(FULL_TIME),
    }
}

/// Plays `cases` histories on one of the `grounds`, or on each in turn as long as there is time.
fn run(kind: Kind, grounds: &[Ground], cases: u32) {
    let (began, programs) = (Instant::now(), program_directory());
    let (histories, steps) = (Cell::new(0), Cell::new(0));
    let seed = |round| seed_for(&format!("{kind:?} {round}"));
    for round in 0u64.. {
        let ground = grounds[(seed(0).wrapping_add(round) % grounds.len() as u64) as usize];
        let laid = match LaidGround::new(ground) {
            Ok(laid) => laid,
            Err(reason) => return skip(&format!("{ground:?}: {reason}")),
        };
        let config = Config {
            cases,
            rng_seed: RngSeed::Fixed(seed(round)),
            failure_persistence: None,
            max_shrink_iters: 300,
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(&any_history(sandboxes(kind)), |history| {
            histories.set(histories.get() + 1);
            steps.set(steps.get() + history.steps.len());
            play(kind, &laid, &programs, &history).map_err(TestCaseError::fail)
        });
        println!("{kind:?} on {ground:?}: {} histories of {} steps so far", histories.get(), steps.get());
        match outcome {
            Err(TestError::Fail(reason, history)) => panic!("{reason}\n{history:?}"),
            Err(TestError::Abort(reason)) => panic!("{reason}"),
            Ok(()) => {}
        }
        if time().is_none_or(|time| began.elapsed() >= time) {
            break;
        }
    }
}

fn overlay_histories(kind: Kind, cases: u32) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    match mount::try_host(dir.path()) {
        Ok(()) => run(kind, &GROUNDS, cases),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn overlay_as_root() {
    overlay_histories(Kind::OverlayAsRoot, 12);
}

#[test]
fn overlay_as_user() {
    overlay_histories(Kind::OverlayAsUser, 12);
}

#[test]
fn git() {
    overlay_histories(Kind::Git, 8);
}

#[test]
fn copies() {
    run(Kind::Copy, &GROUNDS, 12);
}

#[test]
fn reflinks() {
    run(Kind::Reflink, &[Ground::Xfs, Ground::Btrfs], 12);
}

/// As in a container whose project lies in its image.
#[test]
fn overlay_over_an_overlay() {
    run(Kind::OverlayAsRoot, &[Ground::Overlay], 8);
}
