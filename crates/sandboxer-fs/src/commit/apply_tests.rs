use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::manifest::Entry;
use crate::xattrs::Xattrs;

struct Scene {
    temp: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["original/dir", "stage"] {
            fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        fs::write(temp.path().join("original/dir/file"), "old").unwrap();
        fs::write(temp.path().join("stage/0"), "new").unwrap();
        Self { temp }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.temp.path().join(below)
    }

    fn stamp(&self, root: &str, path: &str) -> Stamp {
        Root::open(self.path(root)).unwrap().stamp(&rel(path)).unwrap().unwrap()
    }

    /// Carries out one step and returns why it was not done, if it was not.
    fn apply(&self, step: Step) -> Option<String> {
        let journal = Journal { stage: self.path("stage"), steps: vec![step], ..Journal::default() };
        let original = Root::open(self.path("original")).unwrap();
        let (outcome, edits) = apply(&journal, &original, &self.path("parked"), OnFailure::Stop).unwrap();
        assert_eq!(edits.len() + outcome.conflicts.len(), 1);
        outcome.conflicts.into_iter().next().map(|c| c.reason)
    }

    fn delete(&self) -> Step {
        Step::Delete { path: rel("dir/file"), old: self.stamp("original", "dir/file") }
    }

    fn place(&self, old: bool) -> Step {
        let old = old.then(|| self.stamp("original", "dir/file"));
        let (staged, new) = ("0".to_owned(), self.stamp("stage", "0"));
        Step::Place { path: rel("dir/file"), staged, old, new, entry: Entry::default() }
    }

    fn dress(&self, mode: u32) -> Step {
        let dress = Dress { mode, owner: None, xattrs: Xattrs::new(), mtime: None };
        let old = self.stamp("original", "dir/file");
        Step::Dress { path: rel("dir/file"), old, dress, entry: Entry::default() }
    }
}

fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

#[test]
fn what_is_gone_needs_no_deleting_and_what_changed_is_kept() {
    let scene = Scene::new();
    let step = scene.delete();
    fs::write(scene.path("original/dir/file"), "edited").unwrap();
    assert!(scene.apply(step.clone()).unwrap().contains("changed"));
    fs::remove_file(scene.path("original/dir/file")).unwrap();
    assert_eq!(scene.apply(step.clone()), None);
    fs::remove_dir(scene.path("original/dir")).unwrap();
    assert_eq!(scene.apply(step), None);
}

#[test]
fn a_deletion_without_its_stage_is_done_all_the_same() {
    let scene = Scene::new();
    let step = scene.delete();
    crate::remove_tree(&scene.path("stage")).unwrap();
    assert_eq!(scene.apply(step), None);
    assert!(!scene.path("original/dir/file").exists());
}

#[test]
fn a_directory_goes_only_when_it_is_empty() {
    let scene = Scene::new();
    let step = Step::Delete { path: rel("dir"), old: scene.stamp("original", "dir") };
    assert!(scene.apply(step.clone()).unwrap().contains("does not know"));
    fs::remove_file(scene.path("original/dir/file")).unwrap();
    assert_eq!(scene.apply(step), None);
}

#[test]
fn nothing_is_put_where_the_original_has_moved() {
    for (reason, old, change) in [
        ("directory is gone", true, (|s| crate::remove_tree(&s.path("original/dir")).unwrap()) as fn(&Scene)),
        ("deleted", true, |s| fs::remove_file(s.path("original/dir/file")).unwrap()),
        ("changed", true, |s| fs::write(s.path("original/dir/file"), "edited").unwrap()),
        ("created", false, |_| {}),
    ] {
        let scene = Scene::new();
        let step = scene.place(old);
        change(&scene);
        assert!(scene.apply(step).unwrap().contains(reason), "{reason}");
        assert_eq!(fs::read_to_string(scene.path("parked/-0-file")).unwrap(), "new", "{reason}");
    }
}

#[test]
fn a_place_whose_stage_is_gone_was_done_or_has_been_edited() {
    let scene = Scene::new();
    let step = scene.place(true);
    assert_eq!(scene.apply(step.clone()), None);
    assert_eq!(fs::read_to_string(scene.path("original/dir/file")).unwrap(), "new");
    crate::remove_tree(&scene.path("stage")).unwrap();
    assert_eq!(scene.apply(step.clone()), None);
    fs::write(scene.path("original/dir/file"), "edited since").unwrap();
    assert!(scene.apply(step).unwrap().contains("after it was committed"));
}

#[test]
fn only_the_file_that_was_meant_is_dressed() {
    for (reason, change) in [
        ("directory is gone", (|s| crate::remove_tree(&s.path("original/dir")).unwrap()) as fn(&Scene)),
        ("changed", |s| fs::write(s.path("original/dir/file"), "edited").unwrap()),
        ("another mode", |s| {
            let mode = fs::Permissions::from_mode(0o611);
            fs::set_permissions(s.path("original/dir/file"), mode).unwrap();
        }),
        ("replaced", |s| {
            fs::remove_file(s.path("original/dir/file")).unwrap();
            symlink("x", s.path("original/dir/file")).unwrap();
        }),
    ] {
        let scene = Scene::new();
        let step = scene.dress(0o750);
        change(&scene);
        assert!(scene.apply(step).unwrap().contains(reason), "{reason}");
    }
    let scene = Scene::new();
    assert_eq!(scene.apply(scene.dress(0o750)), None);
    assert_eq!(fs::metadata(scene.path("original/dir/file")).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn a_link_is_given_another_owner_and_nothing_else() {
    let scene = Scene::new();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root gives files away");
        return;
    }
    symlink("nowhere", scene.path("original/link")).unwrap();
    let dress = Dress { mode: 0o777, owner: Some((1234, 1234)), ..Dress::default() };
    let old = scene.stamp("original", "link");
    let step = Step::Dress { path: rel("link"), old, dress, entry: Entry::default() };
    assert_eq!(scene.apply(step), None);
    assert_eq!(scene.stamp("original", "link").uid, 1234);
}
