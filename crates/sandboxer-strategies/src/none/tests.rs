//! What `none` promises, through the nine methods.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sandboxer_core::model::DiffKind;
use serde_json::json;

use super::*;

/// A resource, a state directory and a sandbox that writes straight through.
struct World {
    dir: tempfile::TempDir,
    strategy: Arc<dyn SandboxStrategy>,
    sandbox: SandboxRef,
}

impl World {
    /// Over a directory with `a.txt` and `dir/b.txt` in it.
    fn directory() -> Self {
        Self::over("resource")
    }

    fn over(resource: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("resource/dir")).unwrap();
        fs::write(dir.path().join("resource/a.txt"), "alpha\n").unwrap();
        fs::write(dir.path().join("resource/dir/b.txt"), "beta\n").unwrap();
        let strategy = strategy(dir.path());
        let resource = Resource::at_path("fs-directory", &dir.path().join(resource));
        let sandbox = strategy.create(&PlanId::generate(), &resource).unwrap();
        Self { dir, strategy, sandbox }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("resource").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    fn write(&self, path: &str, content: &str) -> Change {
        self.strategy.write(&self.sandbox, &rel(path), content.as_bytes()).unwrap()
    }

    fn diff(&self) -> DiffView {
        self.strategy.diff(&self.sandbox).unwrap()
    }

    fn kinds(&self) -> Vec<(String, DiffKind)> {
        self.diff().entries.into_iter().map(|e| (e.path.to_string(), e.kind)).collect()
    }

    fn rollback(&self) -> RollbackResult {
        self.strategy.rollback(&self.sandbox).unwrap()
    }

    fn mark(&self, name: &str) {
        self.strategy.checkpoint(&self.sandbox, &id(name)).unwrap();
    }

    fn restore(&self, name: &str) -> Result<RollbackResult> {
        self.strategy.restore_checkpoint(&self.sandbox, &id(name))
    }

    fn commit(&self, request: CommitRequest) -> Result<CommitResult> {
        self.strategy.commit(&self.sandbox, &request)
    }
}

fn strategy(dir: &Path) -> Arc<dyn SandboxStrategy> {
    (entry().factory)(NAME, &StrategyOptions::new(), &StrategyContext::quiet(dir.join("home"))).unwrap()
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

fn id(name: &str) -> CheckpointId {
    CheckpointId::from_string(name)
}

#[test]
fn the_registration_says_that_nothing_is_isolated() {
    let entry = entry();
    assert!(
        !entry.capabilities.isolates && !entry.capabilities.two_phase && !entry.capabilities.select_paths
    );
    let wrong = StrategyOptions::from([("thread".to_owned(), json!(1))]);
    let made = (entry.factory)(NAME, &wrong, &StrategyContext::quiet("/nowhere"));
    assert!(matches!(made, Err(Error::Usage { .. })));
}

#[test]
fn a_resource_that_is_not_there_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let resource = Resource::at_path("fs-directory", &dir.path().join("missing"));
    let made = strategy(dir.path()).create(&PlanId::generate(), &resource);
    assert!(matches!(made, Err(Error::Io { step: "examine", .. })), "{made:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_write_says_what_it_did_and_is_read_back() {
    let world = World::directory();
    let change = world.write("a.txt", "changed\n");
    assert_eq!((change.kind, change.old_size, change.new_size), (DiffKind::Modified, Some(6), 8));
    let change = world.write("new/deep/file", "x");
    assert_eq!((change.kind, change.old_size, change.new_size), (DiffKind::Created, None, 1));
    assert_eq!((world.text("a.txt"), world.text("new/deep/file")), ("changed\n".into(), "x".into()));
    assert_eq!(world.strategy.read(&world.sandbox, &rel("new/deep/file")).unwrap(), b"x");
    for missing in ["nothing", "no/such/file", "a.txt/below"] {
        let error = world.strategy.read(&world.sandbox, &rel(missing)).unwrap_err();
        assert!(matches!(&error, Error::NotFound { name, .. } if name == missing), "{error:?}");
    }
}

#[test]
fn links_pipes_and_directories_are_refused_and_stay() {
    let world = World::directory();
    let outside = world.dir.path().join("outside");
    fs::write(&outside, "canary").unwrap();
    symlink(&outside, world.at("link")).unwrap();
    symlink(world.dir.path(), world.at("leading-out")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for path in ["link", "pipe", "dir"] {
        let read = world.strategy.read(&world.sandbox, &rel(path));
        assert!(matches!(read, Err(Error::Refused { .. })), "{path}: {read:?}");
        let write = world.strategy.write(&world.sandbox, &rel(path), b"x");
        assert!(matches!(write, Err(Error::Refused { .. })), "{path}: {write:?}");
    }
    let through = world.strategy.write(&world.sandbox, &rel("leading-out/outside"), b"x");
    assert!(matches!(through, Err(Error::Refused { .. })), "{through:?}");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "canary");
    assert!(world.kinds().is_empty());
    assert_eq!(world.rollback().restored_files, 0);
    assert!(world.at("link").is_symlink() && world.at("pipe").exists());
}

#[test]
fn a_diff_describes_both_sides() {
    let world = World::directory();
    world.write("a.txt", "changed\n");
    world.write("binary", "nul\0byte");
    let view = world.diff();
    let [modified, created] = view.entries.as_slice() else { panic!("{view:?}") };
    assert_eq!((modified.kind, modified.binary, modified.moved), (DiffKind::Modified, false, false));
    assert_eq!((modified.old.as_ref().unwrap().size, modified.new.as_ref().unwrap().size), (6, 8));
    let text = modified.text.as_ref().unwrap();
    assert!(text.contains("-alpha\n") && text.contains("+changed\n"), "{text}");
    assert_eq!((created.kind, created.binary, created.moved), (DiffKind::Created, true, false));
    assert!(created.old.is_none() && created.new.as_ref().unwrap().digest.is_some());
}

#[test]
fn what_somebody_else_did_to_a_written_file_shows_as_moved() {
    let world = World::directory();
    for path in ["a.txt", "dir/b.txt", "mine", "mine too"] {
        world.write(path, "written\n");
    }
    fs::remove_file(world.at("a.txt")).unwrap();
    fs::write(world.at("dir/b.txt"), "theirs\n").unwrap();
    fs::remove_file(world.at("mine")).unwrap();
    let moved: Vec<_> =
        world.diff().entries.into_iter().map(|e| (e.path.to_string(), e.kind, e.moved)).collect();
    let expected = [
        ("a.txt".to_owned(), DiffKind::Deleted, true),
        ("dir/b.txt".to_owned(), DiffKind::Modified, true),
        ("mine too".to_owned(), DiffKind::Created, false),
    ];
    assert_eq!(moved, expected, "a new file that is gone again is no difference");
}

#[test]
fn a_written_file_that_became_something_else_stops_diff_and_rollback() {
    let world = World::directory();
    world.write("a.txt", "written\n");
    world.write("other", "written\n");
    fs::remove_file(world.at("a.txt")).unwrap();
    fs::create_dir(world.at("a.txt")).unwrap();
    assert!(matches!(world.strategy.diff(&world.sandbox), Err(Error::Refused { .. })));
    assert!(matches!(world.strategy.rollback(&world.sandbox), Err(Error::Refused { .. })));
    assert_eq!(world.text("other"), "written\n");
}

#[test]
fn a_rollback_changes_all_of_it_or_nothing() {
    let world = World::directory();
    world.write("a.txt", "mine\n");
    world.write("dir/b.txt", "mine\n");
    world.write("new", "mine\n");
    fs::remove_file(world.at("dir/b.txt")).unwrap();
    fs::write(world.at("new"), "theirs\n").unwrap();
    match world.strategy.rollback(&world.sandbox) {
        Err(Error::Conflict { conflicts }) => {
            let paths: Vec<_> = conflicts.iter().map(|c| c.path.to_string()).collect();
            assert_eq!(paths, ["dir/b.txt", "new"]);
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
    assert_eq!((world.text("a.txt"), world.text("new")), ("mine\n".into(), "theirs\n".into()));
    fs::write(world.at("dir/b.txt"), "beta\n").unwrap();
    fs::remove_file(world.at("new")).unwrap();
    let result = world.rollback();
    assert_eq!(result.restored_files, 1, "{}: what others undid is not counted", result.message);
    assert_eq!((world.text("a.txt"), world.text("dir/b.txt")), ("alpha\n".into(), "beta\n".into()));
    assert_eq!(world.rollback().restored_files, 0);
}

#[test]
fn directories_that_writes_made_go_when_all_their_files_go() {
    let world = World::directory();
    for path in ["made/deep/one", "made/deep/two", "made/three", "shared/mine"] {
        world.write(path, "x");
    }
    fs::write(world.at("shared/theirs"), "x").unwrap();
    assert_eq!(world.rollback().restored_files, 4);
    assert!(!world.at("made").exists());
    assert!(world.at("shared/theirs").exists() && !world.at("shared/mine").exists());
}

#[test]
fn a_scope_limits_the_rollback() {
    let world = World::directory();
    world.write("a.txt", "mine\n");
    world.write("dir/b.txt", "mine\n");
    world.write("dir/c.txt", "mine\n");
    let scoped = world.sandbox.clone().scoped(&[rel("dir")]);
    assert_eq!(world.strategy.rollback(&scoped).unwrap().restored_files, 2);
    assert_eq!(world.kinds(), [("a.txt".to_owned(), DiffKind::Modified)]);
    assert_eq!(world.text("dir/b.txt"), "beta\n");
    let unreadable = world.sandbox.clone().with("scope", "dir");
    assert!(matches!(world.strategy.rollback(&unreadable), Err(Error::Usage { .. })));
    assert_eq!(world.text("a.txt"), "mine\n");
}

#[test]
fn a_checkpoint_comes_back_as_often_as_it_is_asked_for() {
    let world = World::directory();
    world.mark("clean");
    world.write("a.txt", "one\n");
    world.mark("one");
    for _ in 0..2 {
        world.write("a.txt", "two\n");
        world.write("new", "two\n");
        let result = world.restore("one").unwrap();
        assert_eq!((result.restored_files, result.checkpoint_id), (2, Some(id("one"))));
        assert_eq!(world.kinds(), [("a.txt".to_owned(), DiffKind::Modified)]);
        assert_eq!(world.text("a.txt"), "one\n");
    }
    world.restore("clean").unwrap();
    assert_eq!(world.text("a.txt"), "alpha\n");
}

#[test]
fn a_checkpoint_whose_writes_were_undone_is_refused() {
    let world = World::directory();
    world.mark("clean");
    world.write("a.txt", "one\n");
    world.mark("one");
    world.rollback();
    world.write("dir/b.txt", "another write that has the same number\n");
    world.write("new", "x");
    let error = world.restore("one").unwrap_err().to_string();
    assert!(error.contains("checkpoint one has been undone"), "{error}");
    assert!(world.at("new").exists());
    world.restore("clean").unwrap();
    assert!(world.kinds().is_empty());
    world.write("a.txt", "again\n");
    world.mark("one");
    world.write("a.txt", "and again\n");
    world.restore("one").unwrap();
    assert_eq!(world.text("a.txt"), "again\n", "a name that is taken anew is good again");
}

#[test]
fn a_scoped_rollback_spoils_only_the_checkpoints_it_reaches_into() {
    let world = World::directory();
    world.write("a.txt", "one\n");
    world.mark("before");
    world.write("dir/b.txt", "two\n");
    world.mark("after");
    world.strategy.rollback(&world.sandbox.clone().scoped(&[rel("dir")])).unwrap();
    assert!(matches!(world.restore("after"), Err(Error::Refused { .. })));
    assert_eq!(world.restore("before").unwrap().restored_files, 0);
    assert_eq!(world.text("a.txt"), "one\n");
}

#[test]
fn checkpoints_have_plain_names_and_unknown_ones_are_told_apart() {
    let world = World::directory();
    for bad in ["", ".hidden", "../out", "a/b", "spa ce"] {
        let taken = world.strategy.checkpoint(&world.sandbox, &id(bad));
        assert!(matches!(taken, Err(Error::Usage { .. })), "{bad:?}: {taken:?}");
        assert!(matches!(world.restore(bad), Err(Error::Usage { .. })), "{bad:?}");
    }
    assert!(matches!(world.restore("never-taken"), Err(Error::NotFound { what: "checkpoint", .. })));
}

#[test]
fn a_commit_accepts_what_was_reviewed() {
    let world = World::directory();
    world.mark("before");
    world.write("a.txt", "mine\n");
    let digest = world.diff().digest;
    let wrong = CommitRequest { digest: Some("blake3:0".into()), ..CommitRequest::default() };
    match world.commit(wrong) {
        Err(Error::DigestMismatch { expected, found }) => {
            assert_eq!((&*expected, found), ("blake3:0", digest.clone()))
        }
        other => panic!("expected a mismatch, got {other:?}"),
    }
    assert_eq!(world.kinds().len(), 1);
    let right = CommitRequest { digest: Some(digest.clone()), ..CommitRequest::default() };
    let result = world.commit(right).unwrap();
    assert_eq!((result.digest, result.entries.len()), (digest, 1));
    assert!(world.kinds().is_empty());
    assert_eq!(world.rollback().restored_files, 0);
    let error = world.restore("before").unwrap_err().to_string();
    assert!(error.contains("was committed"), "{error}");
    world.mark("after");
    world.write("a.txt", "later\n");
    world.restore("after").unwrap();
    assert_eq!(world.text("a.txt"), "mine\n");
}

#[test]
fn a_commit_has_no_parts_and_no_phases() {
    let world = World::directory();
    assert!(world.commit(CommitRequest::default()).unwrap().entries.is_empty());
    world.write("a.txt", "mine\n");
    let phase = |phase| world.commit(CommitRequest { phase, ..CommitRequest::default() });
    let prepared = phase(Phase::Prepare);
    assert!(matches!(&prepared, Err(Error::Unsupported { what: "prepare a commit", .. })), "{prepared:?}");
    assert_eq!(phase(Phase::Finish).unwrap(), CommitResult::default());
    assert_eq!(phase(Phase::Abort).unwrap(), CommitResult::default());
    let part = world.commit(CommitRequest { paths: vec![rel("a.txt")], ..CommitRequest::default() });
    assert!(matches!(&part, Err(Error::Unsupported { what: "commit a part", .. })), "{part:?}");
    assert_eq!(world.kinds().len(), 1, "nothing of this accepts anything");
}

#[test]
fn of_a_single_file_the_neighbours_are_refused() {
    let world = World::over("resource/a.txt");
    world.write("a.txt", "mine\n");
    assert_eq!(world.strategy.read(&world.sandbox, &rel("a.txt")).unwrap(), b"mine\n");
    let read = world.strategy.read(&world.sandbox, &rel("dir/b.txt"));
    assert!(matches!(read, Err(Error::Refused { .. })), "{read:?}");
    let write = world.strategy.write(&world.sandbox, &rel("new"), b"x");
    assert!(matches!(write, Err(Error::Refused { .. })), "{write:?}");
    assert!(!world.at("new").exists());
    fs::remove_file(world.at("a.txt")).unwrap();
    assert_eq!(world.kinds(), [("a.txt".to_owned(), DiffKind::Deleted)]);
    world.write("a.txt", "once more\n");
    world.rollback();
    assert_eq!(world.text("a.txt"), "alpha\n");
}

#[test]
fn a_directory_that_is_gone_is_not_taken_for_its_parent() {
    let world = World::directory();
    world.write("new", "mine\n");
    fs::remove_dir_all(world.at("")).unwrap();
    let neighbour = world.dir.path().join("new");
    fs::write(&neighbour, "mine\n").unwrap();
    assert!(matches!(world.strategy.diff(&world.sandbox), Err(Error::Io { .. })));
    assert!(matches!(world.strategy.rollback(&world.sandbox), Err(Error::Io { .. })));
    assert!(world.strategy.write(&world.sandbox, &rel("resource"), b"x").is_err());
    assert_eq!(fs::read_to_string(neighbour).unwrap(), "mine\n");
    assert!(!world.at("").exists());
}

#[test]
fn cleanup_keeps_the_resource_and_can_be_repeated() {
    let world = World::directory();
    world.write("a.txt", "mine\n");
    let home = PathBuf::from(world.sandbox.text("dir").unwrap());
    for _ in 0..2 {
        world.strategy.cleanup(&world.sandbox).unwrap();
        assert!(!home.exists());
    }
    assert_eq!(world.text("a.txt"), "mine\n");
    assert!(
        matches!(world.strategy.rollback(&world.sandbox), Err(Error::Io { .. })),
        "no log, no empty promise"
    );
    assert!(!home.exists());
}

#[test]
fn a_ref_that_lost_its_metadata_is_damaged() {
    let world = World::directory();
    for key in ["dir", "path"] {
        let mut damaged = world.sandbox.clone();
        damaged.metadata.remove(key);
        assert!(matches!(world.strategy.diff(&damaged), Err(Error::Corrupt { .. })), "{key}");
        assert!(
            matches!(world.strategy.write(&damaged, &rel("x"), b""), Err(Error::Corrupt { .. })),
            "{key}"
        );
        assert!(matches!(world.strategy.rollback(&damaged), Err(Error::Corrupt { .. })), "{key}");
    }
    let mut nowhere = world.sandbox.clone();
    nowhere.metadata.clear();
    world.strategy.cleanup(&nowhere).unwrap();
    assert!(!world.at("x").exists());
}
