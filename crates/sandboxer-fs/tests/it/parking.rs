//! Parked workspaces: the work stays, the rest comes back from the original.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, OnConflict, OpId};
use sandboxer_fs::space::{Logged, Means, Space};
use sandboxer_fs::tree::{Spec, Workspace};

struct Scene {
    temp: tempfile::TempDir,
    space: Workspace,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (original, home) = (temp.path().join("original"), temp.path().join("home"));
        fs::create_dir_all(original.join("dir/sub")).unwrap();
        fs::create_dir_all(original.join("quiet/deep")).unwrap();
        fs::create_dir(&home).unwrap();
        for name in ["a", "dir/b", "dir/sub/c", "quiet/deep/d", "gone", "mode"] {
            fs::write(original.join(name), format!("{name}\n1\n2\n3\n4\n5\n")).unwrap();
        }
        symlink("a", original.join("link")).unwrap();
        let spec =
            Spec { original, patterns: Default::default(), root: None, reflink: false, keep_base: 1 << 20 };
        let space = Workspace::create(&home, spec, Means::default()).unwrap().0;
        let scene = Self { temp, space };
        fs::write(scene.copy("a"), "changed\n").unwrap();
        fs::create_dir_all(scene.copy("new/deep")).unwrap();
        fs::set_permissions(scene.copy("new/deep"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(scene.copy("new/deep/file"), "new\n").unwrap();
        fs::hard_link(scene.copy("new/deep/file"), scene.copy("new/linked")).unwrap();
        fs::remove_file(scene.copy("gone")).unwrap();
        fs::set_permissions(scene.copy("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(scene.copy("dir/b"), scene.copy("moved")).unwrap();
        scene
    }

    fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    fn original(&self, path: &str) -> PathBuf {
        self.temp.path().join("original").join(path)
    }

    fn copy(&self, path: &str) -> PathBuf {
        self.home().join("tree").join(path)
    }

    fn unpark(&self) -> Workspace {
        Workspace::unpark(&self.home(), Means::default()).unwrap()
    }
}

fn pending(space: &Workspace) -> Vec<String> {
    let name = |kind: DiffKind| format!("{kind:?}").to_lowercase();
    let from = |e: &sandboxer_core::model::DiffEntry| {
        e.from.as_ref().map(|f| format!(" from {f}")).unwrap_or_default()
    };
    space.diff().unwrap().entries.iter().map(|e| format!("{} {}{}", name(e.kind), e.path, from(e))).collect()
}

fn files_in(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    entries.map(|e| if e.file_type().unwrap().is_dir() { files_in(&e.path()) } else { 1 }).sum()
}

#[test]
fn only_the_work_stays_and_everything_comes_back() {
    let scene = Scene::new();
    let (before, digest) = (pending(&scene.space), scene.space.diff().unwrap().digest);
    assert_eq!(scene.space.park().unwrap(), before.len() + 1, "a rename counts on both ends");
    assert_eq!(files_in(&scene.home().join("tree")), 5);
    assert!(!scene.copy("quiet").exists());
    // Doing it again changes nothing.
    scene.space.park().unwrap();
    let space = scene.unpark();
    assert_eq!(pending(&space), before);
    assert_eq!(space.diff().unwrap().digest, digest);
    assert_eq!(
        fs::read(scene.copy("quiet/deep/d")).unwrap(),
        fs::read(scene.original("quiet/deep/d")).unwrap()
    );
    assert_eq!(fs::metadata(scene.copy("new/deep/file")).unwrap().nlink(), 2);
    let left: Vec<_> = fs::read_dir(scene.home()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n == "fresh" || n == "tree.parked" || n == "parked.json"), "{left:?}");
    // What is not parked stays as it is.
    assert_eq!(pending(&scene.unpark()), before);
    let _lock = space.lock().unwrap();
    space.prepare(&CommitRequest::default(), &Logged::default()).unwrap();
    space.finish(&Logged::default()).unwrap();
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "changed\n");
    assert!(!scene.original("gone").exists());
    assert!(pending(&space).is_empty());
}

#[test]
fn an_original_that_moved_on_meanwhile_is_still_in_conflict_where_it_matters() {
    let scene = Scene::new();
    scene.space.park().unwrap();
    fs::write(scene.original("a"), "edited meanwhile\n").unwrap();
    fs::write(scene.original("quiet/deep/d"), "edited too\n").unwrap();
    fs::write(scene.original("dir/b"), "edited as well\n").unwrap();
    fs::remove_file(scene.original("gone")).unwrap();
    let space = scene.unpark();
    assert_eq!(fs::read_to_string(scene.copy("quiet/deep/d")).unwrap(), "edited too\n");
    assert_eq!(fs::read_to_string(scene.copy("a")).unwrap(), "changed\n");
    let _lock = space.lock().unwrap();
    let Err(Error::Conflict { conflicts }) = space.prepare(&CommitRequest::default(), &Logged::default())
    else {
        panic!("no conflict");
    };
    let paths: Vec<_> = conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, ["a", "dir/b"]);
    let request = CommitRequest { on_conflict: OnConflict::Theirs, ..CommitRequest::default() };
    space.prepare(&request, &Logged::default()).unwrap();
    space.finish(&Logged::default()).unwrap();
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "changed\n");
}

#[test]
fn an_interrupted_return_is_taken_up_where_it_stopped() {
    let scene = Scene::new();
    let before = pending(&scene.space);
    scene.space.park().unwrap();
    // As if it had died while the fresh copy was being made.
    fs::create_dir_all(scene.home().join("fresh/tree/half")).unwrap();
    assert_eq!(pending(&scene.unpark()), before);
    // As if it had died between the renames.
    let space = scene.unpark();
    space.park().unwrap();
    let list = fs::read(scene.home().join("parked.json")).unwrap();
    scene.unpark();
    fs::write(scene.home().join("parked.json"), list).unwrap();
    fs::create_dir(scene.home().join("fresh")).unwrap();
    fs::rename(scene.home().join("base.manifest"), scene.home().join("fresh/base.manifest")).unwrap();
    fs::rename(scene.home().join("tree"), scene.home().join("fresh/tree")).unwrap();
    fs::write(scene.home().join("fresh/done"), "").unwrap();
    assert_eq!(pending(&scene.unpark()), before);
}

#[test]
fn commits_can_be_taken_back_after_parking() {
    let scene = Scene::new();
    let logged = |op: &str, undo: Option<&str>| Logged {
        operation: Some(OpId::from_string(op)),
        undo: undo.map(OpId::from_string),
        ..Logged::default()
    };
    let before = pending(&scene.space);
    {
        let _lock = scene.space.lock().unwrap();
        scene.space.prepare(&CommitRequest::default(), &logged("op_1", None)).unwrap();
        scene.space.finish(&logged("op_1", None)).unwrap();
    }
    assert_eq!(scene.space.park().unwrap(), 0);
    let space = scene.unpark();
    let _lock = space.lock().unwrap();
    space.prepare(&CommitRequest::default(), &logged("op_2", Some("op_1"))).unwrap();
    space.finish(&logged("op_2", Some("op_1"))).unwrap();
    assert!(fs::read_to_string(scene.original("a")).unwrap().starts_with("a\n"));
    assert_eq!(pending(&space), before);
}

/// Every state in which an unparking can be interrupted, as far as names tell.
#[test]
fn an_interrupted_unparking_is_finished_or_forgotten() {
    let scene = Scene::new();
    let before = pending(&scene.space);
    scene.space.park().unwrap();
    let home = scene.home();
    // Half a fresh copy: forgotten.
    fs::create_dir_all(home.join("fresh/tree/half")).unwrap();
    Workspace::settle_unparking(&home).unwrap();
    assert!(!home.join("fresh").exists() && home.join("parked.json").exists());
    // Everything is in its place, and only the rest was to be removed.
    let list = fs::read(home.join("parked.json")).unwrap();
    assert_eq!(pending(&scene.unpark()), before);
    fs::create_dir_all(home.join("tree.parked/dir")).unwrap();
    fs::create_dir(home.join("fresh")).unwrap();
    assert_eq!(pending(&scene.unpark()), before);
    assert!(!home.join("tree.parked").exists() && !home.join("fresh").exists());
    // The old tree had made way and the new one had not come.
    fs::write(home.join("parked.json"), list).unwrap();
    fs::create_dir(home.join("fresh")).unwrap();
    fs::write(home.join("fresh/done"), "").unwrap();
    fs::rename(home.join("tree"), home.join("fresh/tree")).unwrap();
    fs::create_dir(home.join("tree.parked")).unwrap();
    Workspace::settle_unparking(&home).unwrap();
    assert!(!home.join("parked.json").exists() && !home.join("tree.parked").exists());
    assert_eq!(pending(&Workspace::open(&home, Means::default()).unwrap()), before);
}

#[test]
fn what_the_original_got_in_a_removed_directory_is_neither_lost_nor_unseen() {
    let scene = Scene::new();
    fs::remove_dir_all(scene.copy("quiet")).unwrap();
    scene.space.park().unwrap();
    fs::write(scene.original("quiet/deep/d"), "edited by hand\n").unwrap();
    fs::write(scene.original("quiet/by hand"), "by hand\n").unwrap();
    let space = scene.unpark();
    let told = pending(&space);
    assert!(told.contains(&"deleted quiet/deep/d".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("by hand")), "{told:?}");
    let _lock = space.lock().unwrap();
    let refused = space.prepare(&CommitRequest::default(), &Logged::default());
    let Err(Error::Conflict { conflicts }) = refused else { panic!("no conflict: {refused:?}") };
    let paths: Vec<String> = conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, ["quiet", "quiet/deep/d"]);
}

#[test]
fn a_directory_that_both_sides_made_holds_what_both_put_there() {
    let scene = Scene::new();
    scene.space.park().unwrap();
    fs::create_dir(scene.original("new")).unwrap();
    fs::write(scene.original("new/by hand"), "by hand\n").unwrap();
    fs::remove_dir_all(scene.original("dir")).unwrap();
    let space = scene.unpark();
    assert_eq!(fs::read_to_string(scene.copy("new/by hand")).unwrap(), "by hand\n");
    let told = pending(&space);
    assert!(told.contains(&"created new/linked".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.ends_with(" new") || line.contains("by hand")), "{told:?}");
}

#[test]
fn a_directory_that_the_original_lost_comes_back_as_it_was() {
    let scene = Scene::new();
    fs::set_permissions(scene.original("dir/sub"), fs::Permissions::from_mode(0o750)).unwrap();
    scene.space.rollback(&[]).unwrap();
    fs::set_permissions(scene.copy("dir/sub"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(scene.copy("dir/sub/c"), "work\n").unwrap();
    scene.space.park().unwrap();
    fs::remove_dir_all(scene.original("dir")).unwrap();
    let space = scene.unpark();
    let mode = fs::metadata(scene.copy("dir/sub")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o750);
    assert_eq!(pending(&space), ["metadata dir/sub", "modified dir/sub/c"]);
}

#[test]
fn what_is_edited_after_unparking_can_be_merged() {
    let scene = Scene::new();
    scene.space.park().unwrap();
    let space = scene.unpark();
    fs::write(scene.copy("quiet/deep/d"), "sandbox\nquiet/deep/d\n1\n2\n3\n4\n5\n").unwrap();
    fs::write(scene.original("quiet/deep/d"), "quiet/deep/d\n1\n2\n3\n4\n5\noriginal\n").unwrap();
    let _lock = space.lock().unwrap();
    let request = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    let logged = Logged { operation: Some(OpId::from_string("op_1")), ..Logged::default() };
    space.prepare(&request, &logged).unwrap();
    space.finish(&logged).unwrap();
    let merged = fs::read_to_string(scene.original("quiet/deep/d")).unwrap();
    assert_eq!(merged, "sandbox\nquiet/deep/d\n1\n2\n3\n4\n5\noriginal\n");
}

#[test]
fn what_is_new_in_a_directory_that_the_original_lost_is_still_in_conflict() {
    let scene = Scene::new();
    scene.space.rollback(&[]).unwrap();
    fs::write(scene.copy("quiet/new"), "work\n").unwrap();
    scene.space.park().unwrap();
    fs::remove_dir_all(scene.original("quiet")).unwrap();
    let space = scene.unpark();
    assert_eq!(pending(&space), ["created quiet/new"]);
    let _lock = space.lock().unwrap();
    let refused = space.prepare(&CommitRequest::default(), &Logged::default());
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}
