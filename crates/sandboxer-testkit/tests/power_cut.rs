//! D03: the power goes. What was acknowledged is there; what was in the middle is all old or all new.
//!
//! The filesystem is an image on a loop device; `xfs_io -x -c shutdown` drops everything that was not flushed, and
//! mounting again replays the journal, as after a real cut.
#![allow(clippy::unwrap_used, missing_docs)]

use sandboxer_testkit::faults::{Outcome, Point, Scenario, Trace, sample};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::skip;
use tempfile::TempDir;

const STRATEGY: &str = "filesystem_copy";

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
        for point in sample(&changing, 6) {
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
