//! D04: each system call that writes fails once, with `EIO` or `ENOSPC`. The command succeeds in full or says that it
//! failed; after the next command the tree is all old or all new, and nothing is left over.

use sandboxer_testkit::faults::{
    Case, Ended, Failure, Interruption, Outcome, Point, Scenario, Task, Trace, UNFINISHED, sample,
};
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
fn with_failures(points: Vec<Point>, parts: usize) -> Vec<(Point, Failure)> {
    let changing: Vec<Point> = points.into_iter().filter(|p| p.changes).collect();
    assert!(changing.len() > 10, "hardly a call was seen: {changing:?}");
    if full() {
        return changing.into_iter().flat_map(|p| [(p.clone(), FAILURES[0]), (p, FAILURES[1])]).collect();
    }
    sample(&changing, parts).into_iter().zip(FAILURES.into_iter().cycle()).collect()
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
    let cases = [one_of_each_kind(&points), with_failures(points, 1)].concat();
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
        assert!([0, 1, 5, UNFINISHED].contains(&code), "{context}");
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

/// The tasks whose calls fail: together they are one sweep.
const TASKS: usize = 6;

/// Runs a task with failing calls: it fails with a word or is done in full, and is never torn.
fn sweep(task: Task) {
    if !can_trace() {
        return;
    }
    let twin = Case::new(task);
    let points = Trace::new(&twin.cli).on_one_processor().points(&twin.arguments());
    let twin = twin.look();
    for (point, failure) in with_failures(points, TASKS) {
        let case = Case::new(task);
        let ended = Trace::new(&case.cli).on_one_processor().fail(&point, failure, &case.arguments());
        let Ended::Exited(code, output) = ended else {
            panic!("{task:?}: {point:?} with {failure:?} killed it")
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = format!("{task:?} with {failure:?} at {point:?} (exit {code}: {})", stderr.trim());
        println!("{context}");
        assert!([0, 1, 5, UNFINISHED].contains(&code), "{context}");
        let mute = failure.from_then_on && point.name == "write";
        assert!(code == 0 || mute || !stderr.trim().is_empty(), "{context}: failed without a word");
        if code == 0 {
            assert_eq!(case.verdict(&twin, &context), Outcome::New, "{context}: false success");
        }
        let how = if failure.from_then_on { Interruption::FailedForGood } else { Interruption::Failed };
        let outcome = case.recover_and_check(how, &twin, &context);
        assert!(code != 0 || outcome == Outcome::New, "{context}: what was acknowledged is lost");
    }
}

#[test]
fn undo_with_failing_calls() {
    sweep(Task::Undo);
}

#[test]
fn merging_commit_with_failing_calls() {
    sweep(Task::Merge);
}

#[test]
fn rollback_with_failing_calls() {
    sweep(Task::Rollback);
}

#[test]
fn checkpoint_with_failing_calls() {
    sweep(Task::Checkpoint);
}

#[test]
fn restore_with_failing_calls() {
    sweep(Task::Restore);
}

#[test]
fn parking_with_failing_calls() {
    sweep(Task::Park);
}

/// What only a full run takes.
mod full {
    use super::*;

    #[test]
    fn unparking_with_failing_calls() {
        sweep(Task::Unpark);
    }
}
