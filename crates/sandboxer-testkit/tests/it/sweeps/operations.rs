//! Every operation besides a plain commit, killed at a system call, then the next command, twice.
//!
//! By default a spread sample of the calls that change something; `SANDBOXER_TEST_FULL=1` takes every call.

use sandboxer_testkit::faults::{
    Case, Ended, Interruption, Outcome, Point, Seen, Task, Trace, sample, spread,
};
use sandboxer_testkit::{full, skip};

/// The tasks that are killed: together they are one sweep.
const TASKS: usize = 5;

/// What the task comes to undisturbed, and the calls that are worth a kill.
fn undisturbed(task: Task) -> Option<(Seen, Vec<Point>)> {
    if let Some(reason) = Trace::unavailable() {
        skip(&reason);
        return None;
    }
    let twin = Case::new(task);
    let points = Trace::new(&twin.cli).on_one_processor().points(&twin.arguments());
    let points: Vec<Point> = points.into_iter().filter(|p| full() || p.changes).collect();
    assert!(points.len() > 10, "hardly a call was seen: {points:?}");
    Some((twin.look(), points))
}

/// A case whose task was killed at `point`.
fn killed_at(task: Task, point: &Point) -> (Case, bool) {
    let case = Case::new(task);
    let ended = Trace::new(&case.cli).on_one_processor().kill(point, &case.arguments());
    (case, matches!(ended, Ended::Killed))
}

/// A spread sample, and some of the renames by which whole files and directories take their places: little else decides so
/// much. A merge also exchanges a file of the sandbox and then removes the old one: all of its removals.
fn chosen(task: Task, points: Vec<Point>) -> Vec<Point> {
    let (removals, points): (Vec<Point>, Vec<Point>) =
        points.into_iter().partition(|p| task == Task::Merge && p.name == "unlinkat");
    let (renames, others): (Vec<Point>, Vec<Point>) = points.into_iter().partition(|p| p.name == "rename");
    [sample(&others, TASKS), sample(&renames, 10), removals].concat()
}

/// Kills the task at sampled points; after each the state is old or new, nothing is left over, and life goes on.
fn sweep(task: Task) {
    let Some((twin, points)) = undisturbed(task) else { return };
    let (mut killed, mut seen) = (0, [0, 0]);
    let points = chosen(task, points);
    for point in &points {
        let (case, was_killed) = killed_at(task, point);
        killed += usize::from(was_killed);
        let outcome =
            case.recover_and_check(Interruption::Killed, &twin, &format!("{task:?} killed at {point:?}"));
        seen[usize::from(outcome == Outcome::New)] += 1;
    }
    println!("{task:?}: old {}, new {}, killed {killed} of {}", seen[0], seen[1], points.len());
    assert!(killed * 2 > points.len(), "only {killed} of {} points were reached", points.len());
    // Recovery finishes a rollback or restore from the moment it is logged; the few points before that may not be in the sample.
    let expected = usize::from(matches!(task, Task::Rollback | Task::Restore));
    assert!(seen[expected] > 0, "a sweep over a whole {task:?} sees it {}", ["undone", "finished"][expected]);
}

#[test]
fn undo_killed() {
    sweep(Task::Undo);
}

#[test]
fn merging_commit_killed() {
    sweep(Task::Merge);
}

#[test]
fn commit_of_hunks_killed() {
    sweep(Task::Hunks);
}

#[test]
fn parking_killed() {
    sweep(Task::Park);
}

#[test]
fn unparking_killed() {
    sweep(Task::Unpark);
}

/// What only a full run takes. By default `sweeps::overlay` kills a rollback, a checkpoint and a restore.
mod full {
    use super::*;

    #[test]
    fn rollback_killed() {
        sweep(Task::Rollback);
    }

    #[test]
    fn checkpoint_killed() {
        sweep(Task::Checkpoint);
    }

    #[test]
    fn restore_killed() {
        sweep(Task::Restore);
    }

    /// D02 of undo: some kill points of the undo; the recovery of each is killed, and recovered in its turn.
    #[test]
    fn recovery_of_an_undo_killed() {
        let Some((twin, points)) = undisturbed(Task::Undo) else { return };
        for point in spread(&points, 5) {
            let (case, _) = killed_at(Task::Undo, &point);
            let recovery = Trace::new(&case.cli).on_one_processor().points(&["list"]);
            let recovery: Vec<Point> = recovery.into_iter().filter(|p| p.changes).collect();
            for second in sample(&recovery, 5) {
                let (case, _) = killed_at(Task::Undo, &point);
                Trace::new(&case.cli).on_one_processor().kill(&second, &["list"]);
                case.recover_and_check(
                    Interruption::Killed,
                    &twin,
                    &format!("undo killed at {point:?}, recovery at {second:?}"),
                );
            }
        }
    }
}
