//! A disk that breaks: a loop device whose image lies on a filesystem that is too small for it, so that writes fail with a real
//! `EIO` when they are flushed. Nothing is acknowledged that is not there, and once the disk works again everything goes on.

use std::fs;
use std::path::{Path, PathBuf};

use sandboxer_testkit::faults::{Case, Interruption, Outcome, Scenario, Task};
use sandboxer_testkit::mounts::Mounted;
use sandboxer_testkit::skip;
use tempfile::TempDir;

const MEGABYTE: u64 = 1 << 20;

/// A disk of 64 MB that can hold 24.
fn disk() -> Option<Mounted> {
    Mounted::undersized(64 * MEGABYTE, 24 * MEGABYTE).map_err(|reason| skip(&reason)).ok()
}

/// Leaves the disk's image `spare` bytes to grow.
fn break_disk(mounted: &Mounted, spare: u64) -> PathBuf {
    let dir = mounted.backing().unwrap();
    let stat = rustix::fs::statvfs(dir).unwrap();
    let room = (stat.f_bavail * stat.f_frsize).saturating_sub(spare);
    let file = fs::File::create(dir.join("ballast")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, room).unwrap();
    dir.join("ballast")
}

/// The disk works again. What it had not taken is gone, as after a reboot.
fn mend(mounted: &Mounted, ballast: &Path) {
    fs::remove_file(ballast).unwrap();
    mounted.while_unmounted(|_| ()).unwrap();
}

fn places(mounted: &Mounted) -> (TempDir, PathBuf, PathBuf) {
    let dir = TempDir::with_prefix_in("case-", mounted.path()).unwrap();
    let (home, resource) = (dir.path().join("home"), dir.path().join("resource"));
    (dir, home, resource)
}

/// Room for nothing, for a part of it, and for nearly all.
const SPARE: [u64; 3] = [0, 96 << 10, 400 << 10];

#[test]
fn commit_on_a_disk_that_breaks() {
    for spare in SPARE {
        let Some(mounted) = disk() else { return };
        let (dir, home, resource) = places(&mounted);
        let scenario = Scenario::at("filesystem_copy", home, resource, dir);
        mounted.settle();
        let ballast = break_disk(&mounted, spare);
        let code = scenario.cli.code(&scenario.commit_arguments());
        mend(&mounted, &ballast);
        let context = format!("commit with {spare} bytes until EIO (exit {code})");
        println!("{context}");
        let outcome = scenario.recover_and_check_late(&context);
        assert!(code != 0 || outcome == Outcome::New, "{context}: false success");
    }
}

/// The same for everything else that has to last.
fn on_broken_disks(task: Task) {
    for spare in SPARE {
        let Some(mounted) = disk() else { return };
        let (dir, home, resource) = places(&mounted);
        let twin = Case::new(task);
        twin.cli.ok(&twin.arguments());
        let case = Case::at(task, &home, resource, dir);
        mounted.settle();
        let ballast = break_disk(&mounted, spare);
        let code = case.cli.code(&case.arguments());
        mend(&mounted, &ballast);
        let context = format!("{task:?} with {spare} bytes until EIO (exit {code})");
        println!("{context}");
        let outcome = case.recover_and_check(Interruption::FailedForGood, &twin.look(), &context);
        assert!(code != 0 || outcome == Outcome::New, "{context}: false success");
    }
}

#[test]
fn undo_on_a_disk_that_breaks() {
    on_broken_disks(Task::Undo);
}

#[test]
fn checkpoint_on_a_disk_that_breaks() {
    on_broken_disks(Task::Checkpoint);
}

#[test]
fn restore_on_a_disk_that_breaks() {
    on_broken_disks(Task::Restore);
}

#[test]
fn parking_on_a_disk_that_breaks() {
    on_broken_disks(Task::Park);
    on_broken_disks(Task::Unpark);
}
