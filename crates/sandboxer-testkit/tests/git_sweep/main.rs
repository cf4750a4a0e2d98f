//! Commits of a checkout's sandbox killed, failed and cut off: files, branch and index are all old or all new.
//!
//! The first sweeps hit our own process, the others also each git that it starts. By default a spread sample of the calls that change
//! something; `SANDBOXER_TEST_FULL=1` takes every call.
#![allow(clippy::unwrap_used, missing_docs)]

mod case;

use case::{Case, Seen, Task};
use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Ended, Failure, Outcome, Point, Trace, sample};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

fn can_trace() -> bool {
    let reason = Trace::unavailable().or(mount::try_host(&std::env::temp_dir()).err());
    reason.is_none_or(|reason| {
        skip(&reason);
        false
    })
}

/// Our own process alone, or with the gits that it starts.
fn trace<'a>(case: &'a Case, children: bool) -> Trace<'a> {
    let trace = Trace::new(&case.cli).on_one_processor();
    if children { trace } else { trace.without_children() }
}

/// What an undisturbed task comes to, and the calls that it makes.
fn twin(task: Task, children: bool) -> (Seen, Vec<Point>) {
    let twin = Case::new(task);
    let points = trace(&twin, children).points(&twin.arguments());
    let points: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    assert!(points.len() > 10, "hardly a call was seen: {points:?}");
    (twin.look(), points)
}

fn kill(task: Task, count: usize, children: bool) {
    if !can_trace() {
        return;
    }
    let (seen, points) = twin(task, children);
    let (renames, others): (Vec<Point>, Vec<Point>) =
        points.into_iter().partition(|p| p.name.starts_with("rename") || p.name.starts_with("link"));
    let points = [sample(&others, count), sample(&renames, count / 2)].concat();
    let (mut killed, mut done) = (0, 0);
    for point in &points {
        let case = Case::new(task);
        let ended = trace(&case, children).kill(point, &case.arguments());
        killed += usize::from(matches!(ended, Ended::Killed));
        let context = format!("{task:?} killed at {point:?}, children too: {children}");
        done += usize::from(case.recover_and_check(&seen, &context) == Outcome::New);
    }
    println!("{task:?}: {done} done, killed {killed} of {}", points.len());
    assert!(children || killed * 2 > points.len(), "only {killed} of {} points were reached", points.len());
    assert!(done < points.len(), "a sweep over a whole {task:?} sees it undone");
}

#[test]
fn d01_commit_killed() {
    kill(Task::Commit, 16, false);
}

#[test]
fn d01_commit_killed_or_a_git_of_its() {
    kill(Task::Commit, 10, true);
}

#[test]
fn undo_killed() {
    kill(Task::Undo, 8, false);
}

#[test]
fn d02_recovery_killed() {
    if !can_trace() {
        return;
    }
    let (seen, points) = twin(Task::Commit, false);
    let killed_at = |point: &Point| {
        let case = Case::new(Task::Commit);
        trace(&case, false).kill(point, &case.arguments());
        case
    };
    for point in sample(&points[points.len() / 3..], 5) {
        let recovery = trace(&killed_at(&point), false).points(&["list"]);
        let recovery: Vec<Point> = recovery.into_iter().filter(|p| p.changes).collect();
        for second in sample(&recovery, 2) {
            let case = killed_at(&point);
            trace(&case, false).kill(&second, &["list"]);
            case.recover_and_check(&seen, &format!("commit killed at {point:?}, recovery at {second:?}"));
        }
    }
}

const FAILURES: [Failure; 4] = [
    Failure { error: "EIO", from_then_on: false },
    Failure { error: "ENOSPC", from_then_on: true },
    Failure { error: "EIO", from_then_on: true },
    Failure { error: "ENOSPC", from_then_on: false },
];

fn fail(count: usize, children: bool) {
    if !can_trace() {
        return;
    }
    let (seen, points) = twin(Task::Commit, children);
    // Not `ioctl`: what is no clone of a file in another thread is a pipe's setting, which cannot fail like this.
    let points: Vec<Point> = points.into_iter().filter(|p| p.changes && p.name != "ioctl").collect();
    let mut failed = 0;
    for (point, failure) in sample(&points, count).into_iter().zip(FAILURES.into_iter().cycle()) {
        let case = Case::new(Task::Commit);
        let ended = trace(&case, children).fail(&point, failure, &case.arguments());
        let Ended::Exited(code, output) = ended else { panic!("{point:?} with {failure:?} killed it") };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = format!("commit with {failure:?} at {point:?} (exit {code}: {})", stderr.trim());
        println!("{context}");
        assert!([0, 1, 3, 5].contains(&code), "{context}");
        failed += usize::from(code != 0);
        let outcome = case.recover_and_check(&seen, &context);
        assert!(code != 0 || outcome == Outcome::New, "{context}: what was acknowledged is lost");
    }
    // Git has another way for much of what fails (a rename for a link), and which of its calls are sampled varies.
    let most_that_could_miss = if children { 0 } else { 3 };
    assert!(failed > most_that_could_miss, "only {failed} injected errors had an effect");
}

#[test]
fn d04_commit_with_failing_calls() {
    fail(16, false);
}

#[test]
fn d04_commit_with_failing_calls_of_git() {
    fail(10, true);
}

type Make = fn(u64) -> Result<Mounted, String>;

/// D03: what was acknowledged is there after a power cut, and the repository holds together.
#[test]
fn d03_an_acknowledged_commit_survives() {
    let kinds: [(&str, Make, u64); 2] = [("ext4", Mounted::ext4, 64 << 20), ("xfs", Mounted::xfs, 320 << 20)];
    for (name, make, bytes) in kinds {
        let mounted = match make(bytes) {
            Ok(mounted) => mounted,
            Err(reason) => {
                skip(&format!("{name}: {reason}"));
                continue;
            }
        };
        for (task, whole) in [(Task::Commit, true), (Task::Commit, false), (Task::Undo, true)] {
            let elsewhere = (!whole).then(|| TempDir::with_prefix("sandboxer-home-").unwrap());
            let settled = || Case::at(task, mounted.path(), elsewhere.as_ref().map(TempDir::path));
            let twin = settled();
            twin.cli.ok(&twin.arguments());
            let seen = twin.look();
            let case = settled();
            mounted.settle();
            case.cli.ok(&case.arguments());
            twin.detach();
            case.detach();
            if let Err(reason) = mounted.power_cut() {
                return skip(&reason);
            }
            let context = format!("{name}: power cut after {task:?}, state directory on the image: {whole}");
            case.assert_repository(&context);
            assert_eq!(case.recover_and_check(&seen, &context), Outcome::New, "{context}");
        }
    }
}

/// The same in the middle of it: all old or all new, with what the power cut leaves.
#[test]
fn d03_a_cut_in_the_middle_leaves_old_or_new() {
    if !can_trace() {
        return;
    }
    let mounted = match Mounted::ext4(64 << 20) {
        Ok(mounted) => mounted,
        Err(reason) => return skip(&reason),
    };
    let (seen, points) = twin(Task::Commit, false);
    for point in sample(&points, 8) {
        let case = Case::at(Task::Commit, mounted.path(), None);
        mounted.settle();
        trace(&case, false).kill(&point, &case.arguments());
        case.detach();
        if let Err(reason) = mounted.power_cut() {
            return skip(&reason);
        }
        case.recover_and_check(&seen, &format!("power cut at {point:?}"));
    }
}
