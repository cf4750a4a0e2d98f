//! Commits of a checkout's sandbox killed and failed: files, branch and index are all old or all new.
//!
//! The first sweeps hit our own process, the others also each git that it starts. By default a spread sample of the calls that change
//! something; `SANDBOXER_TEST_FULL=1` takes every call.

pub mod case;

use case::{Case, Seen, Task};
use sandboxer_keeper::mount;
use sandboxer_testkit::faults::{Ended, Failure, Outcome, Point, Trace, UNFINISHED, sample, spread};
use sandboxer_testkit::{full, skip};

pub fn can_trace() -> bool {
    let reason = Trace::unavailable().or(mount::try_host(&std::env::temp_dir()).err());
    reason.is_none_or(|reason| {
        skip(&reason);
        false
    })
}

/// Our own process alone, or with the gits that it starts.
pub fn trace<'a>(case: &'a Case, children: bool) -> Trace<'a> {
    let trace = Trace::new(&case.cli).on_one_processor();
    if children { trace } else { trace.without_children() }
}

/// What an undisturbed task comes to, and the calls that it makes.
pub fn twin(task: Task, children: bool) -> (Seen, Vec<Point>) {
    let twin = Case::new(task);
    let points = trace(&twin, children).points(&twin.arguments());
    let points: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    assert!(points.len() > 10, "hardly a call was seen: {points:?}");
    (twin.look(), points)
}

fn kill(task: Task, children: bool) {
    if !can_trace() {
        return;
    }
    let (seen, points) = twin(task, children);
    let (renames, others): (Vec<Point>, Vec<Point>) =
        points.into_iter().partition(|p| p.name.starts_with("rename") || p.name.starts_with("link"));
    let points = [sample(&others, 3), sample(&renames, 6)].concat();
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
fn d01_commit_killed_or_a_git_of_its() {
    kill(Task::Commit, true);
}

#[test]
fn undo_killed() {
    kill(Task::Undo, false);
}

const FAILURES: [Failure; 4] = [
    Failure { error: "EIO", from_then_on: false },
    Failure { error: "ENOSPC", from_then_on: true },
    Failure { error: "EIO", from_then_on: true },
    Failure { error: "ENOSPC", from_then_on: false },
];

fn fail(children: bool) {
    if !can_trace() {
        return;
    }
    let (seen, points) = twin(Task::Commit, children);
    // Not `ioctl`: what is no clone of a file in another thread is a pipe's setting, which cannot fail like this.
    let points: Vec<Point> = points.into_iter().filter(|p| p.changes && p.name != "ioctl").collect();
    let mut failed = 0;
    for (point, failure) in sample(&points, 2).into_iter().zip(FAILURES.into_iter().cycle()) {
        let case = Case::new(Task::Commit);
        let ended = trace(&case, children).fail(&point, failure, &case.arguments());
        let Ended::Exited(code, output) = ended else { panic!("{point:?} with {failure:?} killed it") };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = format!("commit with {failure:?} at {point:?} (exit {code}: {})", stderr.trim());
        println!("{context}");
        assert!([0, 1, 3, 5, UNFINISHED].contains(&code), "{context}");
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
    fail(false);
}

/// What only a full run takes.
mod full {
    use super::*;

    /// By default, `d01_commit_killed_or_a_git_of_its` hits our own process, too.
    #[test]
    fn d01_commit_killed() {
        kill(Task::Commit, false);
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
        for point in spread(&points[points.len() / 3..], 5) {
            let recovery = trace(&killed_at(&point), false).points(&["list"]);
            let recovery: Vec<Point> = recovery.into_iter().filter(|p| p.changes).collect();
            for second in sample(&recovery, 5) {
                let case = killed_at(&point);
                trace(&case, false).kill(&second, &["list"]);
                case.recover_and_check(&seen, &format!("commit killed at {point:?}, recovery at {second:?}"));
            }
        }
    }

    #[test]
    fn d04_commit_with_failing_calls_of_git() {
        fail(true);
    }
}
