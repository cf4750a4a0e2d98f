//! D01, D02 and their relatives: a command killed at a system call, then the next command.
//!
//! By default a spread sample of the calls that change something; `SANDBOXER_TEST_FULL=1` takes every call.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sandboxer_testkit::faults::{Cli, Ended, Outcome, Point, Scenario, Trace, fill_fifty_files, sample};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const STRATEGY: &str = "filesystem_copy";

/// The points worth a kill: all in a full sweep, else those that change something.
fn worth_a_kill(points: Vec<Point>, parts: usize) -> Vec<Point> {
    let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    assert!(changing.len() > 10, "hardly a call was seen: {changing:?}");
    sample(&changing, parts)
}

fn can_trace() -> bool {
    let reason = Trace::unavailable();
    if let Some(reason) = &reason {
        skip(reason);
    }
    reason.is_none()
}

/// D01, on one processor: nearly every call is the main thread's, so nearly each point is hit exactly. Flushes are
/// spread over threads even so; a point that is not reached lets the commit finish.
#[test]
fn d01_commit_killed_at_each_call() {
    if !can_trace() {
        return;
    }
    let first = Scenario::new(STRATEGY);
    let points = Trace::new(&first.cli).on_one_processor().points(&first.commit_arguments());
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    let points = worth_a_kill(points, 2);
    let mut killed = 0;
    for point in &points {
        let scenario = Scenario::new(STRATEGY);
        let ended = Trace::new(&scenario.cli).on_one_processor().kill(point, &scenario.commit_arguments());
        killed += usize::from(matches!(ended, Ended::Killed));
        match scenario.recover_and_check(&format!("commit killed at {point:?}")) {
            Outcome::Old => *outcomes.entry("old").or_default() += 1,
            Outcome::New => *outcomes.entry("new").or_default() += 1,
        }
    }
    assert!(killed * 2 > points.len(), "only {killed} of {} points were reached", points.len());
    println!("outcomes: {outcomes:?}");
    assert_eq!(outcomes.len(), 2, "a sweep over a whole commit sees both outcomes");
}

/// D01 with as many threads as the machine has: which call is hit varies, the verdict may not.
#[test]
fn d01_commit_on_several_threads_killed() {
    if !can_trace() {
        return;
    }
    let first = Scenario::new(STRATEGY);
    let points = Trace::new(&first.cli).points(&first.commit_arguments());
    for point in worth_a_kill(points, 4) {
        let scenario = Scenario::new(STRATEGY);
        Trace::new(&scenario.cli).kill(&point, &scenario.commit_arguments());
        scenario.recover_and_check(&format!("commit on several threads killed at {point:?}"));
    }
}

/// A scenario whose commit was killed at `point`.
fn killed_at(point: &Point) -> Scenario {
    let scenario = Scenario::new(STRATEGY);
    Trace::new(&scenario.cli).on_one_processor().kill(point, &scenario.commit_arguments());
    scenario
}

/// D02: ten kill points of the commit; the recovery of each is killed, and recovered in its turn.
#[test]
fn d02_recovery_killed_at_each_call() {
    if !can_trace() {
        return;
    }
    let first = Scenario::new(STRATEGY);
    let commit = Trace::new(&first.cli).on_one_processor().points(&first.commit_arguments());
    let changing: Vec<Point> = commit.into_iter().filter(|p| p.changes).collect();
    for i in 0..10 {
        let point = &changing[(2 * i + 1) * changing.len() / 20];
        let recovery = Trace::new(&killed_at(point).cli).on_one_processor().points(&["list"]);
        let recovery: Vec<Point> = recovery.into_iter().filter(|p| p.changes).collect();
        for second in sample(&recovery, 20) {
            let scenario = killed_at(point);
            Trace::new(&scenario.cli).on_one_processor().kill(&second, &["list"]);
            scenario.recover_and_check(&format!("commit killed at {point:?}, recovery at {second:?}"));
        }
    }
}

/// A resource and a state directory without a sandbox.
struct Fresh {
    cli: Cli,
    resource: std::path::PathBuf,
    before: Manifest,
    _dir: TempDir,
}

impl Fresh {
    fn new() -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-faults-", sandboxer_testkit::in_memory()).unwrap();
        let resource = dir.path().join("resource");
        fs::create_dir(&resource).unwrap();
        fill_fifty_files(&resource);
        let before = Manifest::capture(&resource);
        Self { cli: Cli::new(&dir.path().join("home")), resource, before, _dir: dir }
    }

    fn arguments(&self) -> [&str; 4] {
        ["create", self.resource.to_str().unwrap(), "--strategy", STRATEGY]
    }
}

fn sandboxes(cli: &Cli) -> Vec<String> {
    let answer = cli.json(&["list"]);
    let list = answer["sandboxes"].as_array().unwrap();
    list.iter().map(|s| s["sandbox_id"].as_str().unwrap().to_owned()).collect()
}

fn of_sandboxes(cli: &Cli) -> Vec<std::path::PathBuf> {
    let has = |path: &Path, prefix: &str| path.iter().any(|part| part.to_string_lossy().starts_with(prefix));
    cli.inventory().into_iter().filter(|p| has(p, "ws_") || has(p, "sbx_")).collect()
}

#[test]
fn create_killed_leaves_a_whole_sandbox_or_none() {
    if !can_trace() {
        return;
    }
    let first = Fresh::new();
    let points = Trace::new(&first.cli).points(&first.arguments());
    for point in worth_a_kill(points, 2) {
        let fresh = Fresh::new();
        Trace::new(&fresh.cli).kill(&point, &fresh.arguments());
        let context = format!("create killed at {point:?}");
        let left = sandboxes(&fresh.cli);
        fresh.before.assert_same(&Manifest::capture(&fresh.resource), Facets::UNTOUCHED, &context);
        for id in &left {
            assert_eq!(fresh.cli.code(&["diff", "--exit-code", id]), 0, "{context}: {id} is not whole");
            fresh.cli.ok(&["destroy", id]);
        }
        let leftovers = of_sandboxes(&fresh.cli);
        assert!(leftovers.is_empty(), "{context}: {} sandboxes, left over: {leftovers:?}", left.len());
    }
}
