//! Honest strategies pass; every lie is found out, in the step that it is about and in no other.
#![allow(clippy::unwrap_used)]

mod lying;
mod memory;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sandboxer_core::Error;
use sandboxer_core::contract::{CancelFlag, Capabilities, SandboxStrategy};
use sandboxer_core::model::Resource;
use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_strategies::{filesystem_copy, none};
use tempfile::TempDir;

use super::{Again, Bench, Ground, Outcome, Report, check};
use lying::{Lie, Lying};
use memory::Memory;

/// A directory for everything.
struct World {
    dir: TempDir,
    cancel: CancelFlag,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home", "resource", "outside"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, cancel: CancelFlag::default() }
    }

    fn bench(&self, ground: Ground) -> Bench {
        let resource = match &ground {
            Ground::Directory(path) => Resource::at_path("fs-directory", path),
            Ground::File(path) => Resource::at_path("fs-file", path),
            Ground::Elsewhere => Resource::at_url("bucket", "s3://bucket"),
        };
        let name = "sandboxer-check-1".to_owned();
        let outside = self.dir.path().join("outside");
        Bench { resource, ground, name, stays: false, outside, again: None, cancel: self.cancel.clone() }
    }

    fn directory(&self) -> Bench {
        let bench = self.bench(Ground::Directory(self.dir.path().join("resource")));
        bench.seed().unwrap();
        bench
    }

    fn open(&self, entry: &StrategyEntry) -> Arc<dyn SandboxStrategy> {
        let context = StrategyContext::quiet(self.dir.path().join("home"));
        (entry.factory)(&entry.name, &entry.options, &context).unwrap()
    }

    fn is_left(&self) -> bool {
        let scratch = self.dir.path().join("home/scratch");
        scratch.exists() && fs::read_dir(scratch).unwrap().count() > 0
    }
}

/// What becomes of a copying strategy with that lie.
fn checked(lie: Lie) -> Report {
    let world = World::new();
    let bench = world.directory();
    let inner = world.open(&filesystem_copy::entry());
    let lying = Lying::new(inner, lie, Path::new(&bench.resource.location));
    check(&lying, &filesystem_copy::entry().capabilities, &bench).unwrap()
}

#[track_caller]
fn assert_found_out(lie: Lie, step: &str, words: &str) {
    let told = format!("{lie:?}");
    let report = checked(lie);
    assert_eq!(report.failed(), [step], "{told}: {report:#?}");
    let failed = report.steps.iter().find(|s| s.name == step).unwrap();
    assert!(failed.detail.contains(words), "{told}: {}", failed.detail);
}

#[test]
fn an_honest_strategy_passes_whole() {
    let report = checked(Lie::None);
    assert!(report.failed().is_empty(), "{report:#?}");
    assert_eq!(report.count(Outcome::NotTried), 0, "{report:#?}");
    assert!(report.count(Outcome::Ok) >= 20, "{report:#?}");
}

#[test]
fn what_is_declared_and_was_not_tried_is_told() {
    let world = World::new();
    let bench = world.directory();
    let entry = filesystem_copy::entry();
    let can = Capabilities { looks_through: true, refreshes: true, ..entry.capabilities.clone() };
    let report = check(&*world.open(&entry), &can, &bench).unwrap();
    for claim in ["looks_through", "refreshes"] {
        assert!(report.declared_untried.contains(&claim), "{claim}: {:?}", report.declared_untried);
    }
    for claim in ["isolates", "file_tree", "checkpoints", "two_phase", "ranges", "branches"] {
        assert!(!report.declared_untried.contains(&claim), "{claim}: {:?}", report.declared_untried);
    }
    assert_eq!(checked(Lie::CommitNothing).declared_untried.iter().filter(|c| **c == "two_phase").count(), 1);
}

#[test]
fn nothing_is_left_and_the_resource_stays() {
    let world = World::new();
    let bench = world.directory();
    let entry = filesystem_copy::entry();
    check(&*world.open(&entry), &entry.capabilities, &bench).unwrap();
    assert!(!world.is_left());
    assert!(world.dir.path().join("resource/sandboxer-check-1/kept.txt").exists());
}

#[test]
fn lies_about_content_are_found_out() {
    assert_found_out(Lie::ReadOtherBytes, "read", "expected \"there before");
    assert_found_out(Lie::MissingIsEmpty, "read_missing", "expected not_found, found 0 bytes");
    assert_found_out(Lie::RangeIgnored, "ranges", "5 bytes from 0");
    assert_found_out(Lie::OffsetIgnored, "ranges", "4 bytes from 6");
    assert_found_out(Lie::WriteNothing, "write", "expected \"changed in a sandbox");
    assert_found_out(Lie::NewFileNothing, "write_new", "found nothing");
    assert_found_out(Lie::WriteThrough, "untouched", "in the resource: expected \"there before");
    assert_found_out(Lie::LinkFollowed, "links", "followed a link");
}

#[test]
fn lies_about_differences_are_found_out() {
    assert_found_out(Lie::DiffEmpty, "diff", "found no difference");
    assert_found_out(Lie::DiffInvents, "diff", "invented.txt");
    assert_found_out(Lie::DigestConstant, "digest", "the digest is still");
    assert_found_out(Lie::DigestRandom, "digest", "the content is the same again");
}

#[test]
fn lies_about_ways_back_are_found_out() {
    assert_found_out(Lie::CheckpointNothing, "restore", "no checkpoint");
    assert_found_out(Lie::RestoreNothing, "restore", "expected \"changed in a sandbox");
    assert_found_out(Lie::RollbackNothing, "rollback", "expected \"there before");
    assert_found_out(Lie::RollbackAll, "scoped_rollback", "expected \"changed, and not selected");
}

#[test]
fn lies_about_commits_are_found_out() {
    assert_found_out(Lie::CommitNothing, "commit", "in the resource: expected \"committed");
    assert_found_out(Lie::CommitKeepsPending, "committed", "found");
    assert_found_out(Lie::CommitAll, "select_paths", "kept.txt in the resource");
    assert_found_out(Lie::AnyDigest, "other_digest", "what nobody has reviewed was committed");
    assert_found_out(Lie::PrepareCommits, "two_phase", "after Prepare");
    assert_found_out(Lie::UndoNothing, "undo", "after the undo: ");
    assert_found_out(Lie::HunksAll, "select_hunks", "expected the lines");
    assert_found_out(Lie::MergeTakesOurs, "keeps_base", "expected the lines");
    assert_found_out(Lie::OverConflict, "conflict", "went over what somebody else wrote");
    assert_found_out(Lie::ConflictHalfWay, "conflict", "in the resource");
}

#[test]
fn lies_about_what_a_reviewer_has_to_know_are_found_out() {
    assert_found_out(Lie::NoFlags, "flags", "expected \"setuid\" among []");
    assert_found_out(Lie::KeepsSetuid, "flags", "was committed with its setuid bit");
}

#[test]
fn what_is_kept_in_memory_alone_is_found_out() {
    let world = World::new();
    let can = Capabilities { checkpoints: true, ..Capabilities::default() };
    let again = Again(Arc::new(|| Ok(Arc::new(Memory::default()))));
    let bench = Bench { again: Some(again), ..world.bench(Ground::Elsewhere) };
    let report = check(&Memory::default(), &can, &bench).unwrap();
    assert_eq!(report.failed(), ["another_process"], "{report:#?}");
}

#[test]
fn what_is_on_disk_is_found_by_another_process() {
    let world = World::new();
    let entry = filesystem_copy::entry();
    let (factory, home) = (entry.factory.clone(), world.dir.path().join("home"));
    let again = Again(Arc::new(move || factory("copy", &Default::default(), &StrategyContext::quiet(&home))));
    let bench = Bench { again: Some(again), ..world.directory() };
    let report = check(&*world.open(&entry), &entry.capabilities, &bench).unwrap();
    assert!(report.failed().is_empty(), "{report:#?}");
    let step = report.steps.iter().find(|step| step.name == "another_process").unwrap();
    assert_eq!(step.outcome, Outcome::Ok, "{step:?}");
}

#[test]
fn lies_about_the_end_are_found_out() {
    assert_found_out(Lie::CleanupNothing, "cleanup", "is still there");
    assert_found_out(Lie::CleanupOnce, "cleanup", "the second `cleanup` failed");
}

#[test]
fn lies_about_files_are_found_out() {
    assert_found_out(Lie::PatternsIgnored, "faithful", "left.out");
    assert_found_out(Lie::RenameIsTwo, "faithful", "moved.txt created");
}

#[test]
fn lies_about_parts_are_found_out() {
    assert_found_out(Lie::PartIsAll, "parts", "`create` failed");
    assert_found_out(Lie::ParkedIsNew, "parts", "taken up again: ");
}

#[test]
fn what_dies_in_every_call_is_reported_step_by_step() {
    let report = checked(Lie::DiesAlways);
    assert_eq!(report.failed(), ["create"], "{report:#?}");
    assert_eq!(report.count(Outcome::Ok), 0);
}

#[test]
fn a_failure_stops_nothing_that_does_not_build_on_it() {
    let report = checked(Lie::DiffEmpty);
    let outcome = |name: &str| report.steps.iter().find(|step| step.name == name).unwrap().outcome;
    assert_eq!(
        (outcome("rollback"), outcome("commit"), outcome("conflict")),
        (Outcome::Ok, Outcome::Ok, Outcome::Ok)
    );
    assert_eq!((outcome("digest"), outcome("committed")), (Outcome::NotTried, Outcome::NotTried));
}

#[test]
fn what_does_not_isolate_is_not_asked_to() {
    let world = World::new();
    let bench = world.directory();
    let report = check(&*world.open(&none::entry()), &none::entry().capabilities, &bench).unwrap();
    assert!(report.failed().is_empty() && !world.is_left(), "{report:#?}");
    let not_offered: Vec<_> =
        report.steps.iter().filter(|s| s.outcome == Outcome::NotOffered).map(|s| s.name).collect();
    assert!(not_offered.contains(&"untouched") && not_offered.contains(&"conflict"), "{not_offered:?}");
}

#[test]
fn a_single_file_has_no_room_for_others() {
    let world = World::new();
    let bench = world.bench(Ground::File(world.dir.path().join("resource/one.txt")));
    bench.seed().unwrap();
    let entry = filesystem_copy::entry();
    let report = check(&*world.open(&entry), &entry.capabilities, &bench).unwrap();
    assert!(report.failed().is_empty() && report.count(Outcome::NotTried) == 0, "{report:#?}");
    assert_eq!(fs::read_dir(world.dir.path().join("resource")).unwrap().count(), 1);
}

#[test]
fn what_is_elsewhere_is_looked_at_in_fresh_sandboxes() {
    let world = World::new();
    let memory = Memory::default();
    let can = Capabilities { checkpoints: true, ..Capabilities::default() };
    let report = check(&memory, &can, &world.bench(Ground::Elsewhere)).unwrap();
    assert!(report.failed().is_empty() && report.count(Outcome::NotTried) == 0, "{report:#?}");
    assert_eq!(memory.sandboxes(), 0);
    assert!(memory.paths().iter().all(|path| path.as_bytes().starts_with(b"sandboxer-check-1/")));
}

#[test]
fn lies_of_what_is_elsewhere_are_found_out() {
    let found = |lie| {
        let world = World::new();
        let can = Capabilities { checkpoints: true, ..Capabilities::default() };
        let lying = Lying::new(Arc::new(Memory::default()), lie, Path::new("/nowhere"));
        check(&lying, &can, &world.bench(Ground::Elsewhere)).unwrap().failed()
    };
    assert_eq!(found(Lie::CommitNothing), ["seed"]);
    assert_eq!(found(Lie::DigestConstant), ["digest"]);
    assert_eq!(found(Lie::RestoreNothing), ["restore"]);
}

#[test]
fn what_is_not_to_be_had_here_is_no_liar() {
    let world = World::new();
    let bench = world.directory();
    let lying = Lying::new(Arc::new(Memory::default()), Lie::Unavailable, Path::new("/nowhere"));
    let refusal = check(&lying, &Capabilities::default(), &bench).unwrap_err();
    assert!(matches!(refusal, Error::Unavailable { .. }), "{refusal}");
}

#[test]
fn what_a_check_wrote_is_taken_out_of_what_stays() {
    let world = World::new();
    fs::write(world.dir.path().join("resource/own.txt"), "mine").unwrap();
    let bench = Bench { stays: true, ..world.directory() };
    let entry = filesystem_copy::entry();
    let report = check(&*world.open(&entry), &entry.capabilities, &bench).unwrap();
    assert!(report.failed().is_empty(), "{report:#?}");
    let names: Vec<_> =
        fs::read_dir(world.dir.path().join("resource")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["own.txt"]);
}

#[test]
fn whoever_interrupts_finds_no_fault_and_everything_is_cleaned_up() {
    let world = World::new();
    let bench = Bench { stays: true, ..world.directory() };
    let inner = world.open(&filesystem_copy::entry());
    let lying = Lying::new(inner, Lie::InterruptedInDiff(world.cancel.clone()), Path::new("/nowhere"));
    let report = check(&lying, &filesystem_copy::entry().capabilities, &bench).unwrap();
    assert!(report.failed().is_empty() && report.count(Outcome::NotTried) > 5, "{report:#?}");
    assert_eq!(report.steps.last().unwrap().outcome, Outcome::Ok);
    assert!(!world.is_left());
    assert_eq!(fs::read_dir(world.dir.path().join("resource")).unwrap().count(), 0);
}
