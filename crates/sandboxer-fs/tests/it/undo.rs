//! Taking commits back: the original is what it was, byte, mode and link, and the changes are pending again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, CommitResult, DiffKind, OpId, RelPath};
use sandboxer_fs::space::{Logged, Means, Space};
use sandboxer_fs::tree::{Spec, Workspace};

struct Scene {
    temp: tempfile::TempDir,
    space: Workspace,
}

impl Scene {
    fn new() -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), None)
    }

    fn in_dir(temp: tempfile::TempDir, home: Option<&Path>) -> Self {
        let original = temp.path().join("original");
        let home = home.map_or_else(|| temp.path().join("home"), Path::to_path_buf);
        fs::create_dir_all(original.join("dir/sub")).unwrap();
        fs::create_dir_all(&home).unwrap();
        fs::write(original.join("a"), "one\n").unwrap();
        fs::write(original.join("gone"), "going\n").unwrap();
        fs::write(original.join("mode"), "mode\n").unwrap();
        fs::write(original.join("dir/b"), "two\n").unwrap();
        fs::write(original.join("dir/sub/c"), "three\n").unwrap();
        fs::write(original.join("became-dir"), "a file\n").unwrap();
        fs::create_dir(original.join("became-file")).unwrap();
        fs::write(original.join("became-file/inside"), "inside\n").unwrap();
        symlink("a", original.join("link")).unwrap();
        let spec =
            Spec { original, patterns: Default::default(), root: None, reflink: false, keep_base: 1 << 20 };
        let space = Workspace::create(&home, spec, Means::default()).unwrap().0;
        Self { temp, space }
    }

    fn original(&self, path: &str) -> PathBuf {
        self.temp.path().join("original").join(path)
    }

    fn copy(&self, path: &str) -> PathBuf {
        self.space.path().join(path)
    }

    /// Changes of every kind.
    fn change_everything(&self) {
        fs::write(self.copy("a"), "ONE\n").unwrap();
        fs::remove_file(self.copy("gone")).unwrap();
        fs::set_permissions(self.copy("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(self.copy("new/deep")).unwrap();
        fs::write(self.copy("new/deep/file"), "new\n").unwrap();
        fs::rename(self.copy("dir/b"), self.copy("moved")).unwrap();
        fs::remove_dir_all(self.copy("dir/sub")).unwrap();
        fs::remove_file(self.copy("link")).unwrap();
        symlink("moved", self.copy("link")).unwrap();
        fs::remove_file(self.copy("became-dir")).unwrap();
        fs::create_dir(self.copy("became-dir")).unwrap();
        fs::write(self.copy("became-dir/x"), "x\n").unwrap();
        fs::remove_dir_all(self.copy("became-file")).unwrap();
        fs::write(self.copy("became-file"), "now a file\n").unwrap();
    }

    fn commit(&self, operation: &str) -> CommitResult {
        self.try_commit(operation, None).unwrap()
    }

    fn undo(&self, operation: &str, undoes: &str) -> sandboxer_core::Result<CommitResult> {
        self.try_commit(operation, Some(undoes))
    }

    fn try_commit(&self, operation: &str, undo: Option<&str>) -> sandboxer_core::Result<CommitResult> {
        let _lock = self.space.lock()?;
        let logged = logged(operation, undo);
        self.space.prepare(&CommitRequest::default(), &logged)?;
        self.space.finish(&logged)
    }

    fn state(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        state_below(&self.temp.path().join("original"), Path::new(""), &mut found);
        found
    }

    fn pending(&self) -> Vec<String> {
        let name = |kind: DiffKind| format!("{kind:?}").to_lowercase();
        self.space.diff().unwrap().entries.iter().map(|e| format!("{} {}", name(e.kind), e.path)).collect()
    }
}

fn logged(operation: &str, undo: Option<&str>) -> Logged {
    Logged {
        operation: Some(OpId::from_string(operation)),
        undo: undo.map(OpId::from_string),
        ..Logged::default()
    }
}

/// Type, mode, content, target and modification time of everything but directories' times.
fn state_below(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        let meta = fs::symlink_metadata(root.join(&path)).unwrap();
        let what = if meta.is_dir() {
            state_below(root, &path, found);
            format!("dir {:o}", meta.mode())
        } else if meta.is_symlink() {
            format!("link {}", fs::read_link(root.join(&path)).unwrap().display())
        } else {
            format!("{:o} {} {:?}", meta.mode(), meta.mtime_nsec(), fs::read(root.join(&path)).unwrap())
        };
        found.insert(path, what);
    }
}

#[test]
fn everything_comes_back_and_is_pending_again() {
    let scene = Scene::new();
    let before = scene.state();
    scene.change_everything();
    let pending = scene.pending();
    let done = scene.commit("op_1");
    assert!(done.undo_bytes.is_some_and(|bytes| bytes > 0), "{done:?}");
    assert!(scene.pending().is_empty());
    let patch = fs::read_to_string(scene.space.path().with_file_name("undo").join("op_1/patch")).unwrap();
    for line in [
        "-one\n+ONE\n",
        "-going\n",
        "old mode 100644\nnew mode 100755\n",
        "rename to moved\n",
        "+now a file\n",
    ] {
        assert!(patch.contains(line), "{line:?} in {patch}");
    }
    let after = scene.state();
    assert_ne!(after, before);
    let undone = scene.undo("op_2", "op_1").unwrap();
    assert_eq!(undone.entries.len(), done.entries.len());
    assert_eq!(scene.state(), before);
    assert_eq!(scene.pending(), pending);
    // And again, forwards: by a commit, and by taking the taking back back.
    scene.undo("op_3", "op_2").unwrap();
    assert_eq!(scene.state(), after);
    assert!(scene.pending().is_empty());
    scene.undo("op_4", "op_3").unwrap();
    assert_eq!((scene.state(), scene.pending()), (before, pending));
    scene.commit("op_5");
    assert_eq!(scene.state(), after);
}

#[test]
fn a_workspace_on_another_filesystem_keeps_copies() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: there is no second filesystem at /dev/shm");
        return;
    };
    let scene = Scene::in_dir(tempfile::tempdir().unwrap(), Some(elsewhere.path()));
    let before = scene.state();
    scene.change_everything();
    scene.commit("op_1");
    assert_eq!(fs::read_dir(scene.temp.path()).unwrap().count(), 1, "nothing is left beside the original");
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!(scene.state(), before);
}

#[test]
fn what_changed_on_top_is_named_and_nothing_is_touched() {
    let scene = Scene::new();
    scene.change_everything();
    scene.commit("op_1");
    fs::write(scene.original("a"), "edited since\n").unwrap();
    fs::write(scene.original("new/stranger"), "mine\n").unwrap();
    fs::write(scene.original("gone"), "here again\n").unwrap();
    let state = scene.state();
    let Err(Error::Conflict { conflicts }) = scene.undo("op_2", "op_1") else { panic!("no conflict") };
    let told: Vec<_> = conflicts.iter().map(|c| format!("{}: {}", c.path, c.reason)).collect();
    let expected = [
        "a: modified since that operation",
        "gone: created since that operation",
        "new: holds stranger now, which that operation did not put there",
    ];
    assert_eq!(told, expected);
    assert_eq!(scene.state(), state);
    assert!(!scene.space.path().parent().unwrap().join("stage").exists());
}

#[test]
fn a_touch_on_top_is_no_change() {
    let scene = Scene::new();
    fs::write(scene.copy("a"), "ONE\n").unwrap();
    scene.commit("op_1");
    let file = fs::File::options().append(true).open(scene.original("a")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "one\n");
}

#[test]
fn an_operation_is_taken_back_once_and_only_while_it_is_kept() {
    let scene = Scene::new();
    fs::write(scene.copy("a"), "ONE\n").unwrap();
    scene.commit("op_1");
    scene.undo("op_2", "op_1").unwrap();
    assert!(matches!(scene.undo("op_3", "op_1"), Err(Error::Refused { .. })));
    scene.commit("op_4");
    scene.space.forget_undo(&OpId::from_string("op_4")).unwrap();
    assert!(matches!(scene.undo("op_5", "op_4"), Err(Error::Refused { .. })));
    assert!(matches!(scene.undo("op_6", "../x"), Err(Error::Usage { .. })));
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "ONE\n");
}

#[test]
fn commits_under_a_later_one_can_be_taken_back_where_they_do_not_meet() {
    let scene = Scene::new();
    fs::write(scene.copy("a"), "ONE\n").unwrap();
    scene.commit("op_1");
    fs::write(scene.copy("dir/b"), "TWO\n").unwrap();
    scene.commit("op_2");
    scene.undo("op_3", "op_1").unwrap();
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(scene.original("dir/b")).unwrap(), "TWO\n");
    assert_eq!(scene.pending(), ["modified a"]);
}

#[test]
fn a_displaced_file_with_other_names_is_kept_apart_from_them() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("original")).unwrap();
    fs::write(temp.path().join("original/first"), "linked\n").unwrap();
    fs::hard_link(temp.path().join("original/first"), temp.path().join("original/second")).unwrap();
    let scene = Scene::in_dir(temp, None);
    fs::remove_file(scene.copy("first")).unwrap();
    fs::write(scene.copy("first"), "alone\n").unwrap();
    scene.commit("op_1");
    assert_eq!(fs::metadata(scene.original("second")).unwrap().nlink(), 1);
    fs::write(scene.original("second"), "written in place\n").unwrap();
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!(fs::read_to_string(scene.original("first")).unwrap(), "linked\n");
    assert_eq!(fs::read_to_string(scene.original("second")).unwrap(), "written in place\n");
}

#[test]
fn a_finished_operation_says_again_what_it_did() {
    let scene = Scene::new();
    fs::write(scene.copy("a"), "ONE\n").unwrap();
    let done = scene.commit("op_1");
    assert_eq!(scene.space.finish(&logged("op_1", None)).unwrap(), done);
    assert!(scene.space.finish(&logged("op_9", None)).unwrap().entries.is_empty());
    let kept: RelPath = done.entries[0].path.clone();
    assert_eq!(kept.to_string(), "a");
}

#[test]
fn a_new_directory_that_both_made_is_not_removed() {
    let scene = Scene::new();
    fs::create_dir(scene.copy("both")).unwrap();
    fs::write(scene.copy("both/mine"), "mine\n").unwrap();
    fs::create_dir(scene.original("both")).unwrap();
    scene.commit("op_1");
    scene.undo("op_2", "op_1").unwrap();
    assert!(scene.original("both").is_dir());
    assert!(!scene.original("both/mine").exists());
}

#[test]
fn kept_content_that_was_tampered_with_is_not_put_back() {
    let scene = Scene::new();
    fs::write(scene.copy("a"), "ONE\n").unwrap();
    scene.commit("op_1");
    let kept = fs::read_dir(scene.space.path().with_file_name("undo").join("op_1"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| fs::read(p).unwrap() == b"one\n")
        .unwrap();
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    fs::write(&kept, "EVL\n").unwrap();
    fs::File::options().append(true).open(&kept).unwrap().set_modified(before).unwrap();
    assert!(matches!(scene.undo("op_2", "op_1"), Err(Error::Corrupt { .. })));
    assert_eq!(fs::read_to_string(scene.original("a")).unwrap(), "ONE\n");
}
