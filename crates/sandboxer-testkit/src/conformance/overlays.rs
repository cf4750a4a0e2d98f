//! What only a strategy can get wrong that shows the original wherever the sandbox has changed nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sandboxer_core::model::DiffKind;
use serde_json::json;

use super::fixture::Fixture;
use crate::manifest::set_mtime;

/// Writes through the file's own inode, and gives it the time that it had.
fn edit_unseen(path: &Path, content: &str) {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), content.len() as u64, "the edit has to be of the same size");
    fs::write(path, content).unwrap();
    set_mtime(path, before.mtime(), before.mtime_nsec());
}

pub(super) fn hand_edits_show_through(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    fs::write(fixture.original("dir/by hand"), "new\n").unwrap();
    assert_eq!((open.read("a.txt"), open.read("dir/by hand")), ("by hand\n".into(), "new\n".into()));
    open.assert_clean();
    open.write("b.txt", "changed\n");
    open.assert_kinds(&[("b.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "by hand\n");
}

pub(super) fn excluded_paths_show_through(fixture: &Fixture) {
    fs::create_dir(fixture.original("target")).unwrap();
    fs::write(fixture.original("target/big"), "build output\n").unwrap();
    let mut resource = fixture.resource();
    resource.properties.insert("exclude".into(), json!(["target", "**/*.log"]));
    let before = fixture.manifest();
    let open = fixture.open_resource(&resource);
    assert_eq!(fs::read_to_string(open.path("target/big")).unwrap(), "build output\n");
    fs::write(open.path("target/big"), "built again\n").unwrap();
    fs::write(open.path("dir/c.log"), "log\n").unwrap();
    fs::remove_file(open.path("b.txt")).unwrap();
    open.assert_kinds(&[("b.txt", DiffKind::Deleted)]);
    open.commit();
    assert!(!fixture.original("dir/c.log").exists() && !fixture.original("b.txt").exists());
    assert_eq!(before.entry("target/big").hash, fixture.manifest().entry("target/big").hash);
    for path in ["target/big", "dir/c.log", "target/new"] {
        let written = open.strategy.write(&open.sandbox, &super::fixture::rel(path), b"x");
        assert!(written.is_err(), "{path} is no part of the sandbox, and was written: {written:?}");
    }
}

pub(super) fn unseen_edits_on_both_sides(fixture: &Fixture) {
    let open = fixture.open();
    edit_unseen(&open.path("a.txt"), "ALPHA\n");
    edit_unseen(&fixture.original("a.txt"), "aLPHa\n");
    open.assert_conflict(&["a.txt"]);
    assert_eq!(open.read("a.txt"), "ALPHA\n");
}

/// The other way round: what was there when the sandbox's program changed it is not what was there at first.
pub(super) fn an_unseen_edit_before_the_sandboxs(fixture: &Fixture) {
    let open = fixture.open();
    edit_unseen(&fixture.original("a.txt"), "aLPHa\n");
    edit_unseen(&open.path("a.txt"), "ALPHA\n");
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn a_hand_deletion_of_an_edited_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("dir/c.txt"), "edited in place\n").unwrap();
    fs::set_permissions(open.path("dir/sub/d.txt"), Permissions::from_mode(0o600)).unwrap();
    fs::remove_dir_all(fixture.original("dir")).unwrap();
    open.assert_conflict(&["dir/c.txt", "dir/sub/d.txt"]);
    assert!(!fixture.original("dir").exists());
}

pub(super) fn created_on_both_sides(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("new.txt"), "here\n").unwrap();
    fs::create_dir(open.path("newdir")).unwrap();
    fs::write(open.path("newdir/file"), "here\n").unwrap();
    fs::write(fixture.original("new.txt"), "there\n").unwrap();
    fs::create_dir(fixture.original("newdir")).unwrap();
    fs::write(fixture.original("newdir/file"), "there\n").unwrap();
    open.assert_conflict(&["new.txt", "newdir/file"]);
}

/// Another directory with the same names, older than the sandbox, takes the place of the one that was worked in.
pub(super) fn a_swapped_directory(fixture: &Fixture) {
    let (dir, other) = (fixture.original("dir"), fixture.outside().join("dir"));
    fs::create_dir_all(other.join("sub")).unwrap();
    fs::write(other.join("c.txt"), "other\n").unwrap();
    fs::write(other.join("sub/d.txt"), "other\n").unwrap();
    let open = fixture.open();
    fs::write(open.path("dir/c.txt"), "edited\n").unwrap();
    fs::write(open.path("dir/sub/d.txt"), "edited\n").unwrap();
    fs::rename(&dir, fixture.outside().join("dir was")).unwrap();
    fs::rename(&other, &dir).unwrap();
    open.assert_conflict(&["dir/c.txt", "dir/sub/d.txt"]);
}

pub(super) fn copied_up_and_unchanged(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    drop(fs::OpenOptions::new().append(true).open(open.path("a.txt")).unwrap());
    for path in ["b.txt", "dir", "dir/sub/d.txt"] {
        let permissions = fs::metadata(open.path(path)).unwrap().permissions();
        fs::set_permissions(open.path(path), permissions).unwrap();
    }
    fs::write(open.path("dir/c.txt"), "gamma\n").unwrap();
    open.assert_clean();
    assert!(open.commit().entries.is_empty());
    fixture.assert_untouched(&before);
}

/// Each takes the other's place; both were changed inside, so each is known there.
pub(super) fn two_directories_that_change_places(fixture: &Fixture) {
    for (path, content) in [("left/x", "left\n"), ("right/x", "right hand\n"), ("right/kept", "kept\n")] {
        fs::create_dir_all(fixture.original(path).parent().unwrap()).unwrap();
        fs::write(fixture.original(path), content).unwrap();
    }
    let open = fixture.open();
    fs::write(open.path("left/x"), "mine\n").unwrap();
    fs::remove_file(open.path("right/x")).unwrap();
    let aside = fixture.outside().join("aside");
    fs::rename(fixture.original("left"), &aside).unwrap();
    fs::rename(fixture.original("right"), fixture.original("left")).unwrap();
    fs::rename(&aside, fixture.original("right")).unwrap();
    open.assert_conflict(&["left/x", "right/x"]);
    assert_eq!(fs::read_to_string(fixture.original("left/x")).unwrap(), "right hand\n");
}

/// Replaced inside, as editors do it, and deleted from the original after somebody had looked.
pub(super) fn a_hand_deletion_of_a_replaced_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("new name"), "replaced\n").unwrap();
    fs::rename(open.path("new name"), open.path("a.txt")).unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    fs::remove_file(fixture.original("a.txt")).unwrap();
    open.assert_conflict(&["a.txt"]);
    assert!(!fixture.original("a.txt").exists());
}

/// What something else left in the place of a layer is not taken for one.
pub(super) fn a_stale_layer(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "first\n");
    open.checkpoint("one");
    let layers = Path::new(open.sandbox.text("dir").unwrap()).join("layers");
    let next = (1..).find(|number| !layers.join(number.to_string()).exists()).unwrap();
    for number in next..next + 3 {
        fs::create_dir(layers.join(number.to_string())).unwrap();
    }
    open.write("b.txt", "second\n");
    open.checkpoint("two");
    assert_eq!((open.read("a.txt"), open.read("b.txt")), ("first\n".into(), "second\n".into()));
    open.write("b.txt", "third\n");
    open.restore("two");
    assert_eq!((open.read("a.txt"), open.read("b.txt")), ("first\n".into(), "second\n".into()));
}

/// After a refresh nothing is told from the base before it.
pub(super) fn refreshed_and_changed(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_file(open.path("a.txt")).unwrap();
    open.commit();
    open.rollback();
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    let mut resource = fixture.resource();
    resource.properties.insert("refresh".into(), json!(open.sandbox.text("dir").unwrap()));
    let refreshed = open.strategy.create(&open.sandbox.plan_id, &resource).unwrap();
    assert_eq!(refreshed.metadata["refreshed"]["conflicts"], json!([]));
    assert_eq!(open.read("a.txt"), "by hand\n");
    open.assert_clean();
    fs::remove_file(open.path("a.txt")).unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Deleted)]);
    open.commit();
    assert!(!fixture.original("a.txt").exists());
}
