//! The engine through its front door: what a workspace does when the original, the copy or the disk moves under it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, RelPath};
use sandboxer_fs::commit::{self, CommitFiles};
use sandboxer_fs::filter::Patterns;
use sandboxer_fs::space::{Logged, Means, Space};
use sandboxer_fs::tree::{Spec, Workspace};

struct Scene {
    _temp: tempfile::TempDir,
    original: PathBuf,
    home: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (original, home) = (temp.path().join("original"), temp.path().join("home"));
        fs::create_dir_all(original.join("dir/sub")).unwrap();
        fs::create_dir(&home).unwrap();
        fs::write(original.join("a"), "one\n").unwrap();
        fs::write(original.join("dir/b"), "two\n").unwrap();
        fs::write(original.join("dir/sub/c"), "three\n").unwrap();
        symlink("a", original.join("link")).unwrap();
        Self { _temp: temp, original, home }
    }

    fn workspace(&self) -> Workspace {
        self.with(Patterns::default())
    }

    fn with(&self, patterns: Patterns) -> Workspace {
        let spec = Spec {
            original: self.original.clone(),
            patterns,
            root: None,
            reflink: false,
            keep_base: 1 << 20,
        };
        Workspace::create(&self.home, spec, Means::default()).unwrap().0
    }

    fn copy(&self, path: &str) -> PathBuf {
        self.home.join("tree").join(path)
    }

    fn original(&self, path: &str) -> PathBuf {
        self.original.join(path)
    }
}

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The diff as `kind path` lines.
fn lines(space: &Workspace) -> Vec<String> {
    let name = |kind: DiffKind| format!("{kind:?}").to_lowercase();
    space.diff().unwrap().entries.iter().map(|e| format!("{} {}", name(e.kind), e.path)).collect()
}

fn commit_all(space: &Workspace) -> sandboxer_core::Result<sandboxer_core::model::CommitResult> {
    let _lock = space.lock()?;
    space.prepare(&CommitRequest::default(), &Logged::default())?;
    space.finish(&Logged::default())
}

#[test]
fn a_fresh_copy_has_no_difference_and_a_touch_makes_none() {
    let scene = Scene::new();
    let space = scene.workspace();
    assert!(lines(&space).is_empty());
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(scene.copy("a")).unwrap().set_modified(later).unwrap();
    assert!(lines(&space).is_empty());
}

#[test]
fn an_edit_of_the_same_size_and_time_is_seen() {
    let scene = Scene::new();
    let space = scene.workspace();
    let before = fs::metadata(scene.copy("a")).unwrap().modified().unwrap();
    fs::write(scene.copy("a"), "eno\n").unwrap();
    fs::File::options().write(true).open(scene.copy("a")).unwrap().set_modified(before).unwrap();
    assert_eq!(lines(&space), ["modified a"]);
}

#[test]
fn a_directory_that_becomes_a_file_takes_its_content_with_it() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::remove_dir_all(scene.copy("dir")).unwrap();
    fs::write(scene.copy("dir"), "a file now").unwrap();
    assert_eq!(lines(&space), ["type dir", "deleted dir/b", "deleted dir/sub", "deleted dir/sub/c"]);
    commit_all(&space).unwrap();
    assert_eq!(text(&scene.original("dir")), "a file now");
    assert!(lines(&space).is_empty());
    fs::remove_file(scene.copy("dir")).unwrap();
    fs::create_dir(scene.copy("dir")).unwrap();
    fs::write(scene.copy("dir/again"), "x").unwrap();
    assert_eq!(lines(&space), ["type dir", "created dir/again"]);
    commit_all(&space).unwrap();
    assert_eq!(text(&scene.original("dir/again")), "x");
}

#[test]
fn an_edit_between_the_decision_and_its_execution_is_kept_and_the_new_content_parked() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "from the sandbox").unwrap();
    fs::write(scene.copy("dir/b"), "also from the sandbox").unwrap();
    fs::remove_file(scene.copy("link")).unwrap();
    fs::write(scene.copy("new"), "new").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    // As after a crash: somebody edits the tree before the next command recovers.
    fs::write(scene.original("a"), "edited by hand").unwrap();
    fs::remove_file(scene.original("link")).unwrap();
    symlink("elsewhere", scene.original("link")).unwrap();
    fs::write(scene.original("new"), "theirs").unwrap();
    let again = Workspace::open(&scene.home, Means::default()).unwrap();
    let result = again.finish(&Logged::default()).unwrap();
    let conflicts: Vec<_> = result.conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(conflicts, ["link", "a", "new"]);
    assert_eq!(text(&scene.original("a")), "edited by hand");
    assert_eq!(text(&scene.original("new")), "theirs");
    assert_eq!(text(&scene.original("dir/b")), "also from the sandbox");
    let parked = result.conflicts[1].parked.clone().unwrap();
    assert_eq!(text(Path::new(&parked)), "from the sandbox");
    assert_eq!(result.entries.len(), 1);
    // Nothing is left to do, and what was not committed is still pending.
    assert!(again.finish(&Logged::default()).unwrap().entries.is_empty());
    assert_eq!(lines(&again), ["modified a", "deleted link", "created new"]);
    assert!(!scene.home.join("stage").exists());
}

#[test]
fn executing_a_journal_twice_changes_nothing_more() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "changed").unwrap();
    fs::remove_dir_all(scene.copy("dir/sub")).unwrap();
    fs::create_dir(scene.copy("made")).unwrap();
    fs::set_permissions(scene.copy("made"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(scene.copy("dir/b"), fs::Permissions::from_mode(0o600)).unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    let journal = fs::read(scene.home.join("commit.prepared")).unwrap();
    assert!(space.finish(&Logged::default()).unwrap().conflicts.is_empty());
    let inode = fs::metadata(scene.original("a")).unwrap().ino();
    // As after a crash right before the journal was removed, with the stage gone already.
    fs::write(scene.home.join("commit.journal"), journal).unwrap();
    let result = space.finish(&Logged::default()).unwrap();
    assert!(result.conflicts.is_empty(), "{:?}", result.conflicts);
    assert_eq!(fs::metadata(scene.original("a")).unwrap().ino(), inode);
    assert_eq!(fs::metadata(scene.original("made")).unwrap().permissions().mode() & 0o777, 0o555);
    assert!(lines(&space).is_empty());
}

#[test]
fn an_edit_after_execution_is_a_conflict_only_if_the_journal_is_still_there() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "changed").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    let journal = fs::read(scene.home.join("commit.prepared")).unwrap();
    space.finish(&Logged::default()).unwrap();
    fs::write(scene.original("a"), "edited afterwards").unwrap();
    fs::write(scene.home.join("commit.journal"), journal).unwrap();
    let result = space.finish(&Logged::default()).unwrap();
    assert_eq!(result.conflicts.len(), 1);
    assert_eq!(text(&scene.original("a")), "edited afterwards");
}

#[test]
fn each_way_the_original_can_move_is_a_conflict_of_its_own() {
    type Move = (&'static str, fn(&Scene), &'static str);
    let moves: [Move; 6] = [
        ("a", |s| fs::write(s.original("a"), "theirs").unwrap(), "modified"),
        ("a", |s| fs::remove_file(s.original("a")).unwrap(), "deleted"),
        ("a", |s| fs::set_permissions(s.original("a"), fs::Permissions::from_mode(0o600)).unwrap(), "mode"),
        (
            "a",
            |s| {
                fs::remove_file(s.original("a")).unwrap();
                symlink("x", s.original("a")).unwrap();
            },
            "another type",
        ),
        ("new/file", |s| fs::write(s.original("new"), "a file").unwrap(), "created in the original too"),
        ("dir/added", |s| fs::remove_dir_all(s.original("dir")).unwrap(), "directory is gone"),
    ];
    for (path, move_original, reason) in moves {
        let scene = Scene::new();
        let space = scene.workspace();
        space.write(&rel(path), b"from the sandbox").unwrap();
        move_original(&scene);
        let Err(Error::Conflict { conflicts }) = commit_all(&space) else {
            panic!("{path}: no conflict ({reason})")
        };
        assert!(conflicts.iter().any(|c| c.reason.contains(reason)), "{path}: {conflicts:?}");
        assert!(!scene.home.join("commit.journal").exists() && !scene.home.join("stage").exists());
    }
}

#[test]
fn a_deleted_directory_with_something_new_in_it_stays() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::remove_dir_all(scene.copy("dir")).unwrap();
    fs::write(scene.original("dir/sub/fresh"), "theirs").unwrap();
    let Err(Error::Conflict { conflicts }) = commit_all(&space) else { panic!("no conflict") };
    assert!(conflicts[0].reason.contains("fresh"), "{conflicts:?}");
    assert_eq!(text(&scene.original("dir/b")), "two\n");
}

#[test]
fn both_sides_may_make_the_same_directory() {
    let scene = Scene::new();
    let space = scene.workspace();
    space.write(&rel("made/mine"), b"1").unwrap();
    fs::create_dir(scene.original("made")).unwrap();
    fs::write(scene.original("made/theirs"), "2").unwrap();
    commit_all(&space).unwrap();
    assert_eq!(text(&scene.original("made/mine")), "1");
    assert_eq!(text(&scene.original("made/theirs")), "2");
}

#[test]
fn a_prepared_commit_is_forgotten_or_finished_and_a_decided_one_only_finished() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "changed").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    space.abort().unwrap();
    assert_eq!(text(&scene.original("a")), "one\n");
    assert!(!scene.home.join("stage").exists());
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    commit::decide(&CommitFiles::new(&scene.home)).unwrap();
    assert!(matches!(space.abort(), Err(Error::AlreadyDecided { .. })));
    space.finish(&Logged::default()).unwrap();
    assert_eq!(text(&scene.original("a")), "changed");
}

#[test]
fn a_new_commit_finishes_one_that_was_interrupted() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "first").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    commit::decide(&CommitFiles::new(&scene.home)).unwrap();
    fs::write(scene.copy("dir/b"), "second").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    space.finish(&Logged::default()).unwrap();
    assert_eq!(
        (text(&scene.original("a")), text(&scene.original("dir/b"))),
        ("first".into(), "second".into())
    );
}

#[test]
fn privileges_are_stripped_and_told() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(scene.copy("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    let shown = space.diff().unwrap();
    assert_eq!(shown.entries[0].flags, ["setuid", "setgid"]);
    let result = commit_all(&space).unwrap();
    assert_eq!(result.digest, shown.digest);
    assert_eq!(result.notices.len(), 2);
    assert_eq!(fs::metadata(scene.original("tool")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert!(lines(&space).is_empty());
}

#[test]
fn rollback_brings_back_what_is_there_and_says_what_is_not() {
    let scene = Scene::new();
    let space = scene.workspace();
    for gone in ["a", "dir/b", "link"] {
        fs::remove_file(scene.copy(gone)).unwrap();
        fs::remove_file(scene.original(gone)).unwrap();
    }
    fs::remove_dir_all(scene.copy("dir/sub")).unwrap();
    fs::remove_dir_all(scene.original("dir/sub")).unwrap();
    let restored = space.rollback(&[]).unwrap();
    assert_eq!(restored.gone.len(), 5);
    assert!(lines(&space).is_empty());
}

#[test]
fn rollback_within_a_scope_leaves_the_rest() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "changed").unwrap();
    fs::write(scene.copy("dir/b"), "changed").unwrap();
    fs::write(scene.copy("dir/extra"), "new").unwrap();
    let restored = space.rollback(&[rel("dir")]).unwrap();
    assert_eq!(restored.count, 2);
    assert_eq!(lines(&space), ["modified a"]);
}

#[test]
fn rollback_after_the_original_moved_takes_its_present_version() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "mine").unwrap();
    fs::write(scene.original("a"), "theirs").unwrap();
    assert!(space.diff().unwrap().entries[0].moved);
    space.rollback(&[]).unwrap();
    assert_eq!(text(&scene.copy("a")), "theirs");
    assert!(lines(&space).is_empty());
    fs::write(scene.copy("a"), "mine again").unwrap();
    commit_all(&space).unwrap();
}

#[test]
fn hard_links_stay_hard_links() {
    let scene = Scene::new();
    fs::hard_link(scene.original("a"), scene.original("dir/twin")).unwrap();
    let space = scene.workspace();
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(scene.copy("a")), inode(scene.copy("dir/twin")));
    // A third name of an unchanged file, and content changed through one name.
    fs::hard_link(scene.copy("a"), scene.copy("third")).unwrap();
    assert_eq!(lines(&space), ["created third"]);
    commit_all(&space).unwrap();
    assert_eq!(inode(scene.original("a")), inode(scene.original("third")));
    fs::write(scene.copy("third"), "through one name").unwrap();
    assert_eq!(lines(&space).len(), 3);
    space.checkpoint("linked").unwrap();
    commit_all(&space).unwrap();
    assert_eq!(inode(scene.original("a")), inode(scene.original("dir/twin")));
    assert_eq!(text(&scene.original("dir/twin")), "through one name");
    assert!(lines(&space).is_empty());
    fs::remove_file(scene.copy("third")).unwrap();
    fs::write(scene.copy("dir/twin"), "apart? no, together").unwrap();
    space.restore("linked").unwrap();
    assert_eq!(inode(scene.copy("a")), inode(scene.copy("third")));
    assert_eq!(text(&scene.copy("a")), "through one name");
}

#[test]
fn checkpoints_share_content_and_notice_damage() {
    let scene = Scene::new();
    let space = scene.workspace();
    space.checkpoint("one").unwrap();
    let objects = || walk(&scene.home.join("checkpoints/objects"));
    let count = objects().len();
    space.checkpoint("two").unwrap();
    assert_eq!(objects().len(), count);
    for name in ["", ".hidden", "a/b", &"x".repeat(300)] {
        assert!(matches!(space.checkpoint(name), Err(Error::Usage { .. })), "{name:?}");
    }
    assert!(matches!(space.restore("none"), Err(Error::NotFound { .. })));
    fs::write(scene.copy("a"), "changed").unwrap();
    for object in objects() {
        fs::write(object, "damaged").unwrap();
    }
    assert!(matches!(space.restore("one"), Err(Error::Corrupt { .. })));
    for object in objects() {
        fs::remove_file(object).unwrap();
    }
    assert!(matches!(space.restore("one"), Err(Error::Corrupt { .. })));
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    listed.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

#[test]
fn reads_and_writes_stay_inside_and_off_links_pipes_and_excluded_paths() {
    let scene = Scene::new();
    let space = scene.with(Patterns { exclude: vec!["secret".into()], ..Patterns::default() });
    assert_eq!(space.read(&rel("dir/b")).unwrap(), b"two\n");
    assert!(matches!(space.read(&rel("link")), Err(Error::Refused { .. })));
    assert!(matches!(space.write(&rel("link"), b"x"), Err(Error::Refused { .. })));
    assert!(matches!(space.read(&rel("missing/file")), Err(Error::NotFound { .. })));
    assert!(matches!(space.read(&rel("dir")), Err(Error::Refused { .. })));
    assert!(matches!(space.write(&rel("secret/key"), b"x"), Err(Error::Refused { .. })));
    assert!(space.write(&rel("a/below-a-file"), b"x").is_err());
    fs::set_permissions(scene.copy("a"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(space.write(&rel("a"), b"x").unwrap().old_size, Some(4));
    assert_eq!(fs::metadata(scene.copy("a")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_single_file_is_isolated_through_its_parent() {
    let scene = Scene::new();
    let space = scene.with(Patterns { only: Some(rel("a")), ..Patterns::default() });
    assert_eq!(space.path(), scene.copy("a"));
    assert_eq!(walk(&scene.home.join("tree")).len(), 1);
    space.write(&rel("a"), b"changed").unwrap();
    assert!(matches!(space.write(&rel("b"), b"x"), Err(Error::Refused { .. })));
    assert_eq!(lines(&space), ["modified a"]);
    commit_all(&space).unwrap();
    assert_eq!(text(&scene.original("a")), "changed");
}

#[test]
fn cancelling_leaves_the_original_alone() {
    let scene = Scene::new();
    scene.workspace();
    fs::write(scene.copy("a"), "changed").unwrap();
    let means = Means::default();
    means.cancel.cancel();
    let space = Workspace::open(&scene.home, means).unwrap();
    assert!(matches!(space.prepare(&CommitRequest::default(), &Logged::default()), Err(Error::Cancelled)));
    assert!(matches!(space.diff(), Err(Error::Cancelled)));
    assert!(!scene.home.join("commit.journal").exists());
}

#[test]
fn an_edit_that_a_killed_exchange_brought_out_goes_back() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let scene = Scene::new();
    let space = scene.workspace();
    fs::write(scene.copy("a"), "from the sandbox").unwrap();
    fs::remove_file(scene.copy("dir/b")).unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    // As if killed right after the exchange and the move aside, each of which brought out somebody's fresh edit.
    fs::write(scene.original("a"), "edited in that very moment").unwrap();
    fs::write(scene.original("dir/b"), "this one too").unwrap();
    let stage = scene.home.join("stage");
    renameat_with(CWD, stage.join("0"), CWD, scene.original("a"), RenameFlags::EXCHANGE).unwrap();
    fs::rename(scene.original("dir/b"), stage.join("gone-0")).unwrap();
    let result = space.finish(&Logged::default()).unwrap();
    assert_eq!(result.conflicts.len(), 2, "{:?}", result.conflicts);
    assert_eq!(text(&scene.original("a")), "edited in that very moment");
    assert_eq!(text(&scene.original("dir/b")), "this one too");
    let parked = result.conflicts.iter().find_map(|c| c.parked.clone()).unwrap();
    assert_eq!(text(Path::new(&parked)), "from the sandbox");
}

#[test]
fn what_was_parked_before_a_crash_is_found_again() {
    let scene = Scene::new();
    let space = scene.workspace();
    let long = "n".repeat(255);
    fs::write(scene.copy(&long), "from the sandbox").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    fs::write(scene.original(&long), "theirs").unwrap();
    let journal = fs::read(scene.home.join("commit.prepared")).unwrap();
    let first = space.finish(&Logged::default()).unwrap().conflicts;
    fs::write(scene.home.join("commit.journal"), journal).unwrap();
    let second = space.finish(&Logged::default()).unwrap().conflicts;
    assert!(first[0].parked.is_some());
    assert_eq!(first[0].parked, second[0].parked);
    assert_eq!(text(Path::new(second[0].parked.as_ref().unwrap())), "from the sandbox");
}

#[test]
fn repeating_a_commit_that_turned_a_directory_into_a_file_finds_no_conflict() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::remove_dir_all(scene.copy("dir")).unwrap();
    fs::write(scene.copy("dir"), "a file now").unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    let journal = fs::read(scene.home.join("commit.prepared")).unwrap();
    space.finish(&Logged::default()).unwrap();
    fs::write(scene.home.join("commit.journal"), journal).unwrap();
    assert!(space.finish(&Logged::default()).unwrap().conflicts.is_empty());
}

#[test]
fn a_restore_that_fails_throws_nothing_away() {
    let scene = Scene::new();
    let space = scene.workspace();
    space.checkpoint("good").unwrap();
    fs::write(scene.copy("a"), "changed").unwrap();
    fs::write(scene.copy("new"), "new").unwrap();
    fs::remove_dir_all(scene.copy("dir")).unwrap();
    fs::write(scene.copy("dir"), "a file now").unwrap();
    for object in walk(&scene.home.join("checkpoints/objects")) {
        fs::write(object, "damaged").unwrap();
    }
    assert!(matches!(space.restore("good"), Err(Error::Corrupt { .. })));
    assert_eq!(text(&scene.copy("new")), "new");
    assert_eq!(text(&scene.copy("dir")), "a file now");
}

#[test]
fn files_and_directories_that_took_each_others_places_come_back() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::remove_dir_all(scene.copy("dir")).unwrap();
    fs::write(scene.copy("dir"), "a file now").unwrap();
    fs::remove_file(scene.copy("a")).unwrap();
    fs::create_dir(scene.copy("a")).unwrap();
    fs::write(scene.copy("a/inside"), "inside").unwrap();
    space.rollback(&[]).unwrap();
    assert!(space.diff().unwrap().entries.is_empty());
    assert_eq!(text(&scene.copy("a")), text(&scene.original("a")));
    assert_eq!(fs::read_dir(scene.home.join("workshop")).unwrap().count(), 0);
}

#[test]
fn content_of_any_size_is_refused_before_it_is_read() {
    let scene = Scene::new();
    let space = scene.workspace();
    fs::File::create(scene.copy("huge")).unwrap().set_len(100 << 30).unwrap();
    let error = space.read(&rel("huge")).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.to_string().contains("1 GiB")), "{error:?}");
}

#[test]
fn a_setuid_bit_does_not_survive_a_change_of_owner() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root gives files away");
        return;
    }
    let scene = Scene::new();
    std::os::unix::fs::chown(scene.original("a"), Some(1234), None).unwrap();
    fs::set_permissions(scene.original("a"), fs::Permissions::from_mode(0o4755)).unwrap();
    let space = scene.workspace();
    std::os::unix::fs::chown(scene.copy("a"), Some(0), None).unwrap();
    fs::set_permissions(scene.copy("a"), fs::Permissions::from_mode(0o4755)).unwrap();
    let result = commit_all(&space).unwrap();
    assert_eq!(result.notices.len(), 1);
    assert_eq!(fs::metadata(scene.original("a")).unwrap().mode() & 0o7777, 0o755);
}

/// Runs the closure's test again as an ordinary user, in a process of its own.
fn as_ordinary_user(test: &str, body: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return body();
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The build directory may be closed to others: the test runs from a copy.
    let program = scratch.path().join("engine");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", test, "--nocapture"])
        .env("TMPDIR", scratch.path())
        .current_dir(scratch.path())
        .output();
    match ran {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => println!("SKIPPED: setpriv cannot be run ({e})"),
    }
}

#[test]
fn what_the_user_may_not_write_is_refused_before_anything_is_touched() {
    as_ordinary_user("engine::what_the_user_may_not_write_is_refused_before_anything_is_touched", || {
        let scene = Scene::new();
        let read_only = fs::Permissions::from_mode(0o555);
        fs::set_permissions(scene.original("dir"), read_only.clone()).unwrap();
        let space = scene.workspace();
        fs::write(scene.copy("a"), "changed").unwrap();
        fs::set_permissions(scene.copy("dir"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(scene.copy("dir/b"), "changed").unwrap();
        fs::set_permissions(scene.copy("dir"), read_only).unwrap();
        let Err(Error::Uncommittable { entries }) = commit_all(&space) else { panic!("not refused") };
        assert_eq!(entries[0].0, rel("dir/b"));
        assert_eq!(text(&scene.original("a")), "one\n");
        // And what cannot be committed can be thrown away.
        space.rollback(&[]).unwrap();
        assert!(lines(&space).is_empty());
        fs::set_permissions(scene.original("dir"), fs::Permissions::from_mode(0o755)).unwrap();
    });
}

#[test]
fn what_the_user_may_not_read_is_shown_and_refused() {
    as_ordinary_user("engine::what_the_user_may_not_read_is_shown_and_refused", || {
        let scene = Scene::new();
        let space = scene.workspace();
        for closed in ["a", "dir"] {
            fs::set_permissions(scene.copy(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let shown = space.diff().unwrap().entries;
        assert_eq!(shown.iter().filter(|e| e.refused.is_some()).count(), 2, "{shown:?}");
        assert!(matches!(commit_all(&space), Err(Error::Uncommittable { .. })));
        space.rollback(&[]).unwrap();
        assert!(lines(&space).is_empty());
    });
}

#[test]
fn a_damaged_checkpoint_costs_nothing_of_the_present() {
    let scene = Scene::new();
    let space = scene.workspace();
    space.checkpoint("one").unwrap();
    for shelf in fs::read_dir(scene.home.join("checkpoints/objects")).unwrap().map(|e| e.unwrap().path()) {
        for object in fs::read_dir(shelf).unwrap().map(|e| e.unwrap().path()) {
            if text(&object) == "two\n" {
                fs::write(object, "TWO\n").unwrap();
            }
        }
    }
    fs::write(scene.copy("a"), "present").unwrap();
    fs::write(scene.copy("dir/b"), "present").unwrap();
    assert!(matches!(space.restore("one"), Err(Error::Corrupt { .. })));
    assert_eq!((text(&scene.copy("a")), text(&scene.copy("dir/b"))), ("present".into(), "present".into()));
}

/// Hides what is called `hidden`, and refuses what is called `refused`.
struct ByName;

impl sandboxer_fs::filter::Screen for ByName {
    fn hides(&self, path: &RelPath, _is_dir: bool) -> bool {
        path.name() == b"hidden"
    }

    fn refuses(&self, path: &RelPath) -> Option<String> {
        (path.name() == b"refused").then(|| "so it is said".to_owned())
    }
}

#[test]
fn what_a_screen_hides_is_in_the_sandbox_and_in_no_difference() {
    let scene = Scene::new();
    fs::create_dir(scene.original("hidden")).unwrap();
    fs::write(scene.original("hidden/old"), "old").unwrap();
    fs::write(scene.original("dir/hidden"), "old").unwrap();
    let mut space = scene.workspace();
    let pair = space.pair_mut();
    pair.shown = pair.shown.screened(std::sync::Arc::new(ByName));
    fs::write(scene.copy("hidden/new"), "new").unwrap();
    fs::remove_file(scene.copy("hidden/old")).unwrap();
    fs::remove_file(scene.copy("dir/hidden")).unwrap();
    fs::write(scene.copy("a"), "changed\n").unwrap();
    fs::write(scene.copy("refused"), "x").unwrap();
    assert_eq!(lines(&space), ["modified a", "created refused"]);
    assert!(matches!(commit_all(&space), Err(Error::Uncommittable { entries }) if entries.len() == 1));
    fs::remove_file(scene.copy("refused")).unwrap();
    commit_all(&space).unwrap();
    assert_eq!(text(&scene.original("hidden/old")), "old");
    assert!(scene.original("dir/hidden").exists() && !scene.original("hidden/new").exists());
    // A rollback is of the whole sandbox.
    fs::remove_dir_all(scene.copy("hidden")).unwrap();
    space.rollback(&[]).unwrap();
    assert_eq!(text(&scene.copy("hidden/old")), "old");
    assert!(!scene.copy("hidden/new").exists() && scene.copy("dir/hidden").exists());
}
