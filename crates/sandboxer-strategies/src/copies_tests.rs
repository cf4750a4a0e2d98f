//! What a copying strategy does around the engine: where workspaces go, who holds the lock, what is said.

use std::fs;
use std::sync::Arc;

use sandboxer_core::model::{DiffKind, Phase};
use sandboxer_fs::commit::{self, CommitFiles};
use serde_json::{Value, json};

use super::*;
use crate::{copy_on_write, filesystem_copy};

/// A resource `resource` with `a.txt` and `dir/b.txt` in it, and a state directory `home`.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("resource/dir")).unwrap();
        fs::write(dir.path().join("resource/a.txt"), "alpha\n").unwrap();
        fs::write(dir.path().join("resource/dir/b.txt"), "beta\n").unwrap();
        Self { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("resource").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    fn resource(&self) -> Resource {
        Resource::at_path("fs-directory", &self.dir.path().join("resource"))
    }

    /// Waits for no lock: a strategy that has to wait here would wait for ever.
    fn strategy(&self) -> Arc<dyn SandboxStrategy> {
        self.with_options(&[("lock_wait_ms", json!(0))], "home")
    }

    fn with_options(&self, options: &[(&str, Value)], home: &str) -> Arc<dyn SandboxStrategy> {
        make(&filesystem_copy::entry(), options, &self.dir.path().join(home))
    }

    /// A sandbox in which `a.txt` was changed.
    fn changed(&self, strategy: &dyn SandboxStrategy) -> SandboxRef {
        let sandbox = strategy.create(&PlanId::generate(), &self.resource()).unwrap();
        strategy.write(&sandbox, &rel("a.txt"), b"changed\n").unwrap();
        sandbox
    }

    /// What is left of workspaces and stages, anywhere.
    fn assert_no_trace(&self) {
        let left: Vec<_> = fs::read_dir(self.dir.path().join("home/scratch")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fs::read_dir(self.at("")).unwrap().count(), 2);
    }
}

fn make(
    entry: &sandboxer_core::registry::StrategyEntry,
    options: &[(&str, Value)],
    home: &Path,
) -> Arc<dyn SandboxStrategy> {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    (entry.factory)(&entry.name, &options, &StrategyContext::quiet(home)).unwrap()
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

fn phase(phase: Phase) -> CommitRequest {
    CommitRequest { phase, ..CommitRequest::default() }
}

fn files(sandbox: &SandboxRef) -> CommitFiles {
    CommitFiles::new(&home_of(sandbox).unwrap())
}

/// The names in `dir`.
fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn both_registrations_check_their_options() {
    for entry in [filesystem_copy::entry(), copy_on_write::entry()] {
        assert_eq!(entry.capabilities, capabilities());
        let wrong = StrategyOptions::from([("threads".to_owned(), json!("many"))]);
        let made = (entry.factory)(&entry.name, &wrong, &StrategyContext::quiet("/nowhere"));
        assert!(matches!(made, Err(Error::Usage { .. })), "{}", entry.name);
    }
}

#[test]
fn without_shared_blocks_a_plain_copy_is_made_and_says_why() {
    let world = World::new();
    let strategy = make(&copy_on_write::entry(), &[], &world.dir.path().join("home"));
    if probe::can_share(world.dir.path()).is_ok() {
        eprintln!("skipped: the temporary directory can share blocks, so nothing falls back");
        return;
    }
    let sandbox = strategy.create(&PlanId::generate(), &world.resource()).unwrap();
    assert_eq!(sandbox.strategy_name, FALLBACK);
    let reason = sandbox.text("fallback_reason").unwrap();
    assert!(reason.contains("cannot share blocks"), "{reason}");
    assert_eq!(strategy.read(&sandbox, &rel("dir/b.txt")).unwrap(), b"beta\n");
    strategy.cleanup(&sandbox).unwrap();
    world.assert_no_trace();
    let mut strict = world.resource();
    strict.properties.insert("no_fallback".into(), json!(true));
    match strategy.create(&PlanId::generate(), &strict) {
        Err(Error::Unavailable { strategy, path, reason }) => {
            assert_eq!((&*strategy, path), (copy_on_write::NAME, world.dir.path().join("resource")));
            assert!(reason.contains("cannot share blocks"), "{reason}");
        }
        other => panic!("expected it to be unavailable, got {other:?}"),
    }
    world.assert_no_trace();
}

#[test]
fn where_nothing_can_be_written_the_reason_says_so() {
    let world = World::new();
    let context = StrategyContext::quiet(world.dir.path().join("home"));
    let strategy =
        CopyStrategy::new(copy_on_write::NAME, Mode::Reflink, &StrategyOptions::new(), &context).unwrap();
    let reason = strategy.sharing_root(Path::new("/proc/self")).unwrap_err();
    assert!(reason.contains("cannot be written"), "{reason}");
    let reason = strategy.sharing_root(Path::new("/proc/self/no/such/place")).unwrap_err();
    assert!(reason.contains("be written"), "{reason}");
}

#[test]
fn a_single_file_is_copied_and_committed_alone() {
    let world = World::new();
    let strategy = world.strategy();
    let resource = Resource::at_path("fs-file", &world.at("a.txt"));
    let sandbox = strategy.create(&PlanId::generate(), &resource).unwrap();
    let copy = sandbox.sandbox_path().unwrap();
    assert_eq!(names_in(copy.parent().unwrap()), ["a.txt"]);
    fs::write(&copy, "changed\n").unwrap();
    let neighbour = strategy.write(&sandbox, &rel("dir/b.txt"), b"x");
    assert!(matches!(neighbour, Err(Error::Refused { .. })), "{neighbour:?}");
    strategy.commit(&sandbox, &CommitRequest::default()).unwrap();
    assert_eq!((world.text("a.txt"), world.text("dir/b.txt")), ("changed\n".into(), "beta\n".into()));
    strategy.cleanup(&sandbox).unwrap();
    world.assert_no_trace();
}

#[test]
fn a_resource_that_is_not_there_is_refused_and_leaves_nothing() {
    let world = World::new();
    let missing = Resource::at_path("fs-file", &world.at("missing"));
    let made = world.strategy().create(&PlanId::generate(), &missing);
    assert!(matches!(made, Err(Error::Io { step: "examine", .. })), "{made:?}");
    assert!(!world.dir.path().join("home").exists());
}

#[test]
fn what_is_ours_inside_the_resource_is_not_copied_into_itself() {
    let world = World::new();
    let inside = world.at("ours").to_string_lossy().into_owned();
    let chosen = [("scratch", json!(inside))];
    let cases = [
        (world.with_options(&[], "resource/ours"), vec!["a.txt", "dir"]),
        (world.with_options(&chosen, "home"), vec!["a.txt", "dir"]),
        (world.with_options(&[], "resource"), vec!["a.txt", "dir", "ours"]),
    ];
    for (case, (strategy, expected)) in cases.into_iter().enumerate() {
        let sandbox = strategy.create(&PlanId::generate(), &world.resource()).unwrap();
        assert_eq!(names_in(&sandbox.sandbox_path().unwrap()), expected, "case {case}");
        assert!(strategy.diff(&sandbox).unwrap().is_empty());
        strategy.write(&sandbox, &rel("a.txt"), format!("case {case}").as_bytes()).unwrap();
        assert_eq!(strategy.commit(&sandbox, &CommitRequest::default()).unwrap().entries.len(), 1);
        strategy.cleanup(&sandbox).unwrap();
    }
}

#[test]
fn the_resource_itself_is_no_scratch_directory() {
    let world = World::new();
    let place = json!(world.dir.path().join("resource").to_string_lossy());
    let strategy = world.with_options(&[("scratch", place)], "home");
    let made = strategy.create(&PlanId::generate(), &world.resource());
    assert!(matches!(made, Err(Error::Usage { .. })), "{made:?}");
    let file = Resource::at_path("fs-file", &world.at("a.txt"));
    let sandbox = strategy.create(&PlanId::generate(), &file).unwrap();
    strategy.cleanup(&sandbox).unwrap();
    assert_eq!(names_in(&world.at("")), ["a.txt", "dir"]);
}

#[test]
fn from_prepare_to_finish_nobody_else_commits() {
    let world = World::new();
    let (strategy, other) = (world.strategy(), world.strategy());
    let (first, second) = (world.changed(&*strategy), world.changed(&*other));
    let prepared = strategy.commit(&first, &phase(Phase::Prepare)).unwrap();
    assert_eq!(world.text("a.txt"), "alpha\n");
    for busy in [Phase::Whole, Phase::Prepare] {
        let result = other.commit(&second, &phase(busy));
        assert!(matches!(result, Err(Error::Busy { .. })), "{busy:?}: {result:?}");
    }
    let finished = strategy.commit(&first, &phase(Phase::Finish)).unwrap();
    assert_eq!(finished.digest, prepared.digest);
    assert_eq!(world.text("a.txt"), "changed\n");
    assert!(strategy.commit(&first, &phase(Phase::Finish)).unwrap().entries.is_empty());
    let result = other.commit(&second, &phase(Phase::Whole));
    assert!(!matches!(result, Err(Error::Busy { .. })), "{result:?}");
}

#[test]
fn an_abort_gives_the_lock_back_and_changes_nothing() {
    let world = World::new();
    let (strategy, other) = (world.strategy(), world.strategy());
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    assert!(matches!(other.commit(&sandbox, &phase(Phase::Finish)), Err(Error::Busy { .. })));
    for _ in 0..2 {
        assert_eq!(strategy.commit(&sandbox, &phase(Phase::Abort)).unwrap(), CommitResult::default());
    }
    assert_eq!(world.text("a.txt"), "alpha\n");
    assert_eq!(other.commit(&sandbox, &CommitRequest::default()).unwrap().entries.len(), 1);
    assert_eq!(world.text("a.txt"), "changed\n");
}

#[test]
fn what_was_prepared_is_finished_by_another_process() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    drop(strategy);
    let finished = world.strategy().commit(&sandbox, &phase(Phase::Finish)).unwrap();
    assert_eq!(finished.entries.len(), 1);
    assert_eq!(world.text("a.txt"), "changed\n");
}

#[test]
fn a_commit_that_is_refused_gives_the_lock_back() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    for wrong in [Phase::Whole, Phase::Prepare] {
        let request = CommitRequest { digest: Some("blake3:0".into()), ..phase(wrong) };
        let result = strategy.commit(&sandbox, &request);
        assert!(matches!(result, Err(Error::DigestMismatch { .. })), "{wrong:?}: {result:?}");
    }
    assert_eq!(world.text("a.txt"), "alpha\n");
    strategy.commit(&sandbox, &CommitRequest::default()).unwrap();
}

#[test]
fn cleanup_forgets_what_was_prepared() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    for _ in 0..2 {
        strategy.cleanup(&sandbox).unwrap();
        world.assert_no_trace();
    }
    assert_eq!(world.text("a.txt"), "alpha\n");
    let again = world.changed(&*strategy);
    strategy.commit(&again, &CommitRequest::default()).unwrap();
}

#[test]
fn cleanup_that_cannot_abort_does_not_commit_instead() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    let mut in_the_way = files(&sandbox).note().into_os_string();
    in_the_way.push(".new");
    fs::create_dir(&in_the_way).unwrap();
    let result = strategy.cleanup(&sandbox);
    assert!(matches!(result, Err(Error::Io { step: "remove", .. })), "{result:?}");
    assert_eq!(world.text("a.txt"), "alpha\n");
    fs::remove_dir(in_the_way).unwrap();
    strategy.cleanup(&sandbox).unwrap();
    world.assert_no_trace();
    assert_eq!(world.text("a.txt"), "alpha\n");
}

#[test]
fn cleanup_finishes_what_was_decided() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    commit::decide(&files(&sandbox)).unwrap();
    let aborted = strategy.commit(&sandbox, &phase(Phase::Abort));
    assert!(matches!(aborted, Err(Error::AlreadyDecided { .. })), "{aborted:?}");
    strategy.cleanup(&sandbox).unwrap();
    assert_eq!(world.text("a.txt"), "changed\n");
    world.assert_no_trace();
}

#[test]
fn cleanup_keeps_a_decided_commit_that_it_cannot_finish() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.commit(&sandbox, &phase(Phase::Prepare)).unwrap();
    commit::decide(&files(&sandbox)).unwrap();
    let (tree, away) = (files(&sandbox).home().join("tree"), files(&sandbox).home().join("away"));
    fs::rename(&tree, &away).unwrap();
    let kept = strategy.cleanup(&sandbox);
    assert!(matches!(kept, Err(Error::AlreadyDecided { .. })), "{kept:?}");
    fs::rename(&away, &tree).unwrap();
    strategy.cleanup(&sandbox).unwrap();
    assert_eq!(world.text("a.txt"), "changed\n");
}

#[test]
fn when_the_resource_has_vanished_the_sandbox_still_goes() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    fs::remove_dir_all(world.at("")).unwrap();
    assert!(matches!(strategy.diff(&sandbox), Err(Error::Io { step: "open the original directory", .. })));
    assert!(strategy.commit(&sandbox, &CommitRequest::default()).is_err());
    strategy.cleanup(&sandbox).unwrap();
    assert_eq!(names_in(&world.dir.path().join("home/scratch")), [""; 0]);
    assert!(!world.at("").exists());
}

#[test]
fn a_ref_that_lost_its_directory_is_damaged() {
    let world = World::new();
    let strategy = world.strategy();
    let mut sandbox = world.changed(&*strategy);
    sandbox.metadata.remove("dir");
    let results = [
        strategy.diff(&sandbox).map(drop),
        strategy.commit(&sandbox, &phase(Phase::Abort)).map(drop),
        strategy.rollback(&sandbox).map(drop),
        strategy.cleanup(&sandbox),
    ];
    for result in results {
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    }
}

#[test]
fn a_rollback_and_a_checkpoint_say_what_came_back() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    let name = CheckpointId::from_string("one");
    assert!(strategy.checkpoint(&sandbox, &name).unwrap().is_some());
    let result = strategy.rollback(&sandbox.clone().scoped(&[rel("dir")])).unwrap();
    assert_eq!(result.restored_files, 0, "{}", result.message);
    let result = strategy.rollback(&sandbox).unwrap();
    assert_eq!(result.message, "rolled back to the base: 1 entry changed back");
    let result = strategy.restore_checkpoint(&sandbox, &name).unwrap();
    assert_eq!(result.message, "restored checkpoint one: 1 entry changed back");
    assert_eq!((result.success, result.checkpoint_id), (true, Some(name)));
    let entries = strategy.diff(&sandbox).unwrap().entries;
    assert_eq!((entries.len(), entries[0].kind), (1, DiffKind::Modified));
}

#[test]
fn what_cannot_come_back_is_named() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    strategy.write(&sandbox, &rel("dir/b.txt"), b"changed\n").unwrap();
    fs::remove_file(world.at("a.txt")).unwrap();
    let scoped = sandbox.clone().scoped(&[rel("a.txt")]);
    let message = strategy.rollback(&scoped).unwrap().message;
    assert!(message.ends_with("; a.txt is gone from the original and stays away"), "{message}");
    strategy.write(&sandbox, &rel("dir/b.txt"), b"changed\n").unwrap();
    let gone = ["a", "b", "c"].map(rel).to_vec();
    let restored = Restored { count: 3, gone, ..Restored::default() };
    let message = rollback_result(None, &restored, "done").message;
    assert_eq!(
        message,
        "done: 3 entries changed back; a is gone from the original and stays away (2 more like it)"
    );
}

#[test]
fn a_checkpoint_goes_also_where_the_original_is_gone() {
    let world = World::new();
    let strategy = world.strategy();
    let sandbox = world.changed(&*strategy);
    let id = CheckpointId::from_string("cp-1");
    let kept = strategy.checkpoint(&sandbox, &id).unwrap().unwrap();
    assert!(kept.exists());
    fs::remove_dir_all(world.at("")).unwrap();
    strategy.cleanup(&sandbox.clone().for_part(&Part::Checkpoint(id))).unwrap();
    assert!(!kept.exists());
}
