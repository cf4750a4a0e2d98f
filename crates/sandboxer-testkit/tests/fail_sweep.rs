//! D04: each system call that writes fails once, with `EIO` or `ENOSPC`. The command succeeds in full or says that it
//! failed; after the next command the tree is all old or all new, and nothing is left over.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;

use sandboxer_testkit::faults::{Ended, Failure, Outcome, Point, Scenario, Trace, sample};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::{full, skip};

const STRATEGY: &str = "filesystem_copy";

/// A passing fault, and a disk that is full from then on.
const FAILURES: [Failure; 4] = [
    Failure { error: "EIO", from_then_on: false },
    Failure { error: "ENOSPC", from_then_on: true },
    Failure { error: "EIO", from_then_on: true },
    Failure { error: "ENOSPC", from_then_on: false },
];

/// Points with a failure each: a passing and a lasting one at every point of a full sweep, in turn otherwise.
fn with_failures(points: Vec<Point>, count: usize) -> Vec<(Point, Failure)> {
    let changing: Vec<Point> = points.into_iter().filter(|p| p.changes).collect();
    assert!(changing.len() > 10, "hardly a call was seen: {changing:?}");
    if full() {
        return changing.into_iter().flat_map(|p| [(p.clone(), FAILURES[0]), (p, FAILURES[1])]).collect();
    }
    sample(&changing, count).into_iter().zip(FAILURES.into_iter().cycle()).collect()
}

fn can_trace() -> bool {
    let reason = Trace::unavailable();
    if let Some(reason) = &reason {
        skip(reason);
    }
    reason.is_none()
}

/// Every kind of call that a commit makes, at least once.
fn one_of_each_kind(points: &[Point]) -> Vec<(Point, Failure)> {
    let mut kinds: Vec<Point> = Vec::new();
    for point in points.iter().rev().filter(|p| p.changes) {
        if !kinds.iter().any(|k| k.name == point.name) {
            kinds.push(point.clone());
        }
    }
    kinds.into_iter().zip(FAILURES.into_iter().cycle().skip(1)).collect()
}

#[test]
fn d04_commit_with_each_call_failing() {
    if !can_trace() {
        return;
    }
    let first = Scenario::new(STRATEGY);
    let points = Trace::new(&first.cli).on_one_processor().points(&first.commit_arguments());
    let cases = [one_of_each_kind(&points), with_failures(points, 25)].concat();
    let mut failed = 0;
    for (point, failure) in cases {
        let scenario = Scenario::new(STRATEGY);
        let ended =
            Trace::new(&scenario.cli).on_one_processor().fail(&point, failure, &scenario.commit_arguments());
        let Ended::Exited(code, output) = ended else {
            panic!("{point:?} with {failure:?} killed the command")
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = format!("commit with {failure:?} at {point:?} (exit {code}: {})", stderr.trim());
        // 5: nowhere to stage; it is refused before anything is touched.
        assert!([0, 1, 5].contains(&code), "{context}");
        println!("{context}");
        failed += usize::from(code != 0);
        if code == 0 {
            assert_eq!(scenario.verdict(&context), Outcome::New, "{context}: false success");
        } else {
            let mute = failure.from_then_on && point.name == "write";
            assert!(mute || !stderr.trim().is_empty(), "{context}: failed without a word");
        }
        let outcome = if failure.from_then_on {
            scenario.recover_and_check_late(&context)
        } else {
            scenario.recover_and_check(&context)
        };
        assert!(code != 0 || outcome == Outcome::New, "{context}: an acknowledged commit was lost");
    }
    assert!(failed > 10, "only {failed} injected errors had an effect");
}

/// Runs a command of a fresh scenario with failing calls; the resource stays, and the command can be repeated.
fn sweep(
    count: usize,
    prepare: impl Fn(&Scenario),
    arguments: impl Fn(&Scenario) -> Vec<String>,
    check: impl Fn(&Scenario, &str),
) {
    if !can_trace() {
        return;
    }
    let first = Scenario::new(STRATEGY);
    prepare(&first);
    let points = Trace::new(&first.cli).points(&arguments(&first));
    for (point, failure) in with_failures(points, count) {
        let scenario = Scenario::new(STRATEGY);
        prepare(&scenario);
        let ended = Trace::new(&scenario.cli).fail(&point, failure, &arguments(&scenario));
        let context = format!("{} with {failure:?} at {point:?}: {ended:?}", arguments(&scenario)[0]);
        let Ended::Exited(code, _) = ended else { panic!("{context}: killed") };
        let resource = Manifest::capture(&scenario.resource);
        scenario.old.assert_same(&resource, Facets::UNTOUCHED, &context);
        if code != 0 && !is_there(&scenario, &arguments(&scenario)) {
            scenario.cli.ok(&arguments(&scenario));
        }
        check(&scenario, &context);
        scenario.assert_destroyable(&context);
    }
}

/// Whether a checkpoint that was reported as failed is there all the same: only its log entry failed.
fn is_there(scenario: &Scenario, arguments: &[String]) -> bool {
    let known = scenario.cli.json(&["checkpoints", &scenario.sandbox.id]);
    arguments[0] == "checkpoint" && !known["checkpoints"].as_array().unwrap().is_empty()
}

fn words(command: &str, scenario: &Scenario, rest: &[&str]) -> Vec<String> {
    [&[command, &scenario.sandbox.id], rest].concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn rollback_with_failing_calls() {
    let check = |scenario: &Scenario, context: &str| {
        let tree = Manifest::capture(&scenario.sandbox.path);
        scenario.old.assert_same(&tree, Facets::WRITTEN, context);
    };
    sweep(8, |_| (), |s| words("rollback", s, &[]), check);
}

#[test]
fn checkpoint_and_restore_with_failing_calls() {
    let check = |scenario: &Scenario, context: &str| {
        fs::remove_dir_all(scenario.sandbox.path.join("src")).unwrap();
        scenario.cli.ok(&words("restore", scenario, &["one"]));
        let tree = Manifest::capture(&scenario.sandbox.path);
        scenario.new.assert_same(&tree, Facets::WRITTEN, context);
    };
    sweep(8, |_| (), |s| words("checkpoint", s, &["one"]), check);
    let prepare = |scenario: &Scenario| {
        scenario.cli.ok(&words("checkpoint", scenario, &["one"]));
        fs::remove_dir_all(scenario.sandbox.path.join("src")).unwrap();
    };
    sweep(8, prepare, |s| words("restore", s, &["one"]), check);
}
