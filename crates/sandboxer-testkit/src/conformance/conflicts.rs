//! D06 and its relatives: whoever changed the original meanwhile loses nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use sandboxer_core::model::DiffKind;

use super::fixture::{Fixture, only};
use crate::manifest::set_mtime;

pub(super) fn an_edit(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    open.write("b.txt", "mine too\n");
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    open.assert_conflict(&["a.txt"]);
    assert_eq!(open.read("a.txt"), "mine\n");
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn a_deletion(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    fs::remove_file(fixture.original("a.txt")).unwrap();
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn both_created(fixture: &Fixture) {
    let open = fixture.open();
    open.write("new.txt", "mine\n");
    fs::write(fixture.original("new.txt"), "theirs\n").unwrap();
    open.assert_conflict(&["new.txt"]);
}

pub(super) fn a_chmod(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    fs::set_permissions(fixture.original("a.txt"), Permissions::from_mode(0o600)).unwrap();
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn replaced_with_the_same_size_and_time(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    let path = fixture.original("a.txt");
    let meta = fs::metadata(&path).unwrap();
    fs::write(&path, "ALPHA\n").unwrap();
    set_mtime(&path, meta.mtime(), meta.mtime_nsec());
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn deleted_here_edited_there(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_file(open.path("a.txt")).unwrap();
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn a_deleted_directory_gained_a_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_dir_all(open.path("dir")).unwrap();
    fs::write(fixture.original("dir/sub/theirs"), "theirs\n").unwrap();
    open.assert_conflict(&[]);
}

pub(super) fn a_renamed_file_edited_there(fixture: &Fixture) {
    let open = fixture.open();
    fs::rename(open.path("a.txt"), open.path("moved.txt")).unwrap();
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    open.assert_conflict(&[]);
}

/// A directory of the original that became a link must not lead the commit elsewhere.
pub(super) fn a_parent_became_a_link(fixture: &Fixture) {
    let open = fixture.open();
    open.write("dir/c.txt", "mine\n");
    let elsewhere = fixture.original("").with_file_name("elsewhere");
    move_out(&fixture.original("dir"), &elsewhere);
    symlink(&elsewhere, fixture.original("dir")).unwrap();
    assert!(open.try_commit(&Default::default()).is_err());
    assert_eq!(fs::read_to_string(elsewhere.join("c.txt")).unwrap(), "gamma\n");
}

/// By a rename, which keeps the files what they are; out of a subvolume there is none.
fn move_out(dir: &Path, elsewhere: &Path) {
    match fs::rename(dir, elsewhere) {
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            fs::create_dir(elsewhere).unwrap();
            fs::copy(dir.join("c.txt"), elsewhere.join("c.txt")).unwrap();
            fs::remove_dir_all(dir).unwrap();
        }
        moved => moved.unwrap(),
    }
}

pub(super) fn elsewhere_is_none(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    open.write("dir/mine.txt", "mine\n");
    fs::write(fixture.original("b.txt"), "theirs\n").unwrap();
    fs::write(fixture.original("dir/theirs.txt"), "theirs\n").unwrap();
    fs::remove_file(fixture.original("dir/sub/d.txt")).unwrap();
    open.commit();
    let read = |path: &str| fs::read_to_string(fixture.original(path)).unwrap();
    assert_eq!((read("a.txt"), read("b.txt")), ("mine\n".into(), "theirs\n".into()));
    assert_eq!((read("dir/mine.txt"), read("dir/theirs.txt")), ("mine\n".into(), "theirs\n".into()));
    assert!(!fixture.original("dir/sub/d.txt").exists());
}

pub(super) fn outside_the_selection_is_none(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    open.write("b.txt", "mine\n");
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    open.try_commit(&only(&["b.txt"])).unwrap();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "theirs\n");
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "mine\n");
    open.assert_conflict(&["a.txt"]);
}

pub(super) fn the_first_committer_wins(fixture: &Fixture) {
    let (first, second) = (fixture.open(), fixture.open());
    first.write("a.txt", "first\n");
    second.write("a.txt", "second\n");
    second.write("b.txt", "second\n");
    first.commit();
    second.assert_conflict(&["a.txt"]);
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "first\n");
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "beta\n");
}

pub(super) fn others_keep_what_they_read(fixture: &Fixture) {
    let (first, second) = (fixture.open(), fixture.open());
    first.write("a.txt", "first\n");
    first.write("new.txt", "first\n");
    first.commit();
    assert_eq!(second.read("a.txt"), "alpha\n");
    assert!(second.strategy.read(&second.sandbox, &super::fixture::rel("new.txt")).is_err());
    second.assert_clean();
    second.write("b.txt", "second\n");
    second.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "first\n");
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "second\n");
}

pub(super) fn diff_tells_what_moved(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    open.write("b.txt", "mine\n");
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    let diff = open.diff();
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
    assert_eq!(diff.entries.iter().map(|e| e.moved).collect::<Vec<_>>(), [true, false]);
}
