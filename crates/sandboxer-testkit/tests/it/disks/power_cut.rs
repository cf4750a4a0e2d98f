//! D03: the power goes. What was acknowledged is there; what was in the middle is all old or all new.
//!
//! The filesystem is an image on a loop device; `xfs_io -x -c shutdown` drops everything that was not flushed, and
//! mounting again replays the journal, as after a real cut.

use sandboxer_testkit::faults::{Case, Interruption, Outcome, Point, Scenario, Task, Trace, sample};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const STRATEGY: &str = "filesystem_copy";

/// Kinds of images, each with the state directory on it and elsewhere.
const IMAGES: usize = 4;

type Make = fn(u64) -> Result<Mounted, String>;

/// Runs `test` on an image of each kind, with a scenario whose state directory is there too, or elsewhere.
fn on_images(test: impl Fn(&Mounted, bool)) {
    let kinds: [(&str, Make, u64); 2] = [("ext4", Mounted::ext4, 64 << 20), ("xfs", Mounted::xfs, 320 << 20)];
    for (name, make, bytes) in kinds {
        match make(bytes) {
            Ok(mounted) => [true, false].into_iter().for_each(|whole| test(&mounted, whole)),
            Err(reason) => skip(&format!("{name}: {reason}")),
        }
    }
}

/// A scenario on the image, all of it flushed. With `whole` the state directory is on the image as well.
fn settled(mounted: &Mounted, whole: bool) -> (Scenario, Option<TempDir>) {
    let dir = TempDir::with_prefix_in("scenario-", mounted.path()).unwrap();
    let elsewhere = (!whole).then(|| TempDir::with_prefix("sandboxer-home-").unwrap());
    let home = elsewhere.as_ref().map_or_else(|| dir.path().join("home"), |e| e.path().join("home"));
    let scenario = Scenario::at(STRATEGY, home, dir.path().join("resource"), dir);
    mounted.settle();
    (scenario, elsewhere)
}

#[test]
fn d03_an_acknowledged_commit_survives() {
    on_images(|mounted, whole| {
        let (scenario, _elsewhere) = settled(mounted, whole);
        scenario.cli.ok(&scenario.commit_arguments());
        if let Err(reason) = mounted.power_cut() {
            return skip(&reason);
        }
        let context = format!("power cut after commit, state directory on the image: {whole}");
        assert_eq!(scenario.verdict(&context), Outcome::New, "{context}");
        assert_eq!(scenario.recover_and_check(&context), Outcome::New, "{context}");
    });
}

#[test]
fn d03_a_cut_in_the_middle_leaves_old_or_new() {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    on_images(|mounted, whole| {
        let (first, _elsewhere) = settled(mounted, whole);
        let points = Trace::new(&first.cli).on_one_processor().points(&first.commit_arguments());
        let changing: Vec<Point> = points.into_iter().filter(|p| p.changes).collect();
        for point in sample(&changing, IMAGES) {
            let (scenario, _elsewhere) = settled(mounted, whole);
            Trace::new(&scenario.cli).on_one_processor().kill(&point, &scenario.commit_arguments());
            if let Err(reason) = mounted.power_cut() {
                return skip(&reason);
            }
            scenario
                .recover_and_check(&format!("power cut at {point:?}, state directory on the image: {whole}"));
        }
    });
}

/// A task on the image, everything before it flushed. With `whole` the state directory is on the image as well.
fn settled_case(mounted: &Mounted, task: Task, whole: bool) -> (Case, Option<TempDir>) {
    let dir = TempDir::with_prefix_in("case-", mounted.path()).unwrap();
    let elsewhere = (!whole).then(|| TempDir::with_prefix("sandboxer-home-").unwrap());
    let home = elsewhere.as_ref().map_or_else(|| dir.path().join("home"), |e| e.path().join("home"));
    let case = Case::at(task, &home, dir.path().join("resource"), dir);
    mounted.settle();
    (case, elsewhere)
}

#[test]
fn d03_what_was_acknowledged_survives() {
    on_images(|mounted, whole| {
        let tasks = [
            Task::Undo,
            Task::Merge,
            Task::Checkpoint,
            Task::Rollback,
            Task::Restore,
            Task::Park,
            Task::Unpark,
        ];
        for task in tasks.into_iter().filter(|task| whole || task.writes_to_resource()) {
            let (twin, _elsewhere) = settled_case(mounted, task, whole);
            twin.cli.ok(&twin.arguments());
            let (case, _elsewhere) = settled_case(mounted, task, whole);
            case.cli.ok(&case.arguments());
            let expected = twin.look();
            if let Err(reason) = mounted.power_cut() {
                return skip(&reason);
            }
            let context = format!("power cut after {task:?}, state directory on the image: {whole}");
            assert_eq!(case.verdict(&expected, &context), Outcome::New, "{context}");
            assert_eq!(
                case.recover_and_check(Interruption::Killed, &expected, &context),
                Outcome::New,
                "{context}"
            );
        }
    });
}

/// Kills the task and cuts the power at once, at a few points of it.
fn cut_in_the_middle(mounted: &Mounted, task: Task, whole: bool, parts: usize) -> Result<(), String> {
    let (twin, _elsewhere) = settled_case(mounted, task, whole);
    let points = Trace::new(&twin.cli).on_one_processor().points(&twin.arguments());
    let twin = twin.look();
    let changing: Vec<Point> = points.into_iter().filter(|p| p.changes).collect();
    for point in sample(&changing, parts) {
        let (case, _elsewhere) = settled_case(mounted, task, whole);
        Trace::new(&case.cli).on_one_processor().kill(&point, &case.arguments());
        mounted.power_cut()?;
        let context = format!("power cut at {point:?} of {task:?}, state directory on the image: {whole}");
        match task {
            Task::Rollback | Task::Restore => case.recover_and_repeat(&twin, &context),
            _ => drop(case.recover_and_check(Interruption::Killed, &twin, &context)),
        }
    }
    Ok(())
}

#[test]
fn d03_a_cut_in_the_middle_of_anything_leaves_old_or_new() {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    on_images(|mounted, whole| {
        let tasks = [Task::Undo, Task::Park, Task::Unpark, Task::Rollback, Task::Restore];
        // What writes to the sandbox alone, and a state directory elsewhere, are cut off in a full run only.
        let mut tasks = tasks.into_iter().filter(|task| match task {
            Task::Undo => whole || full(),
            _ => whole && full(),
        });
        let cut = tasks.try_for_each(|task| cut_in_the_middle(mounted, task, whole, IMAGES));
        cut.unwrap_or_else(|reason| skip(&reason));
    });
}
