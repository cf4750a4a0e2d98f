//! Two sandboxes over one original: what one of them commits, the other does not see.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use sandboxer_core::model::{CommitRequest, DiffKind, OnConflict, Resource};

use super::fixture::{Fixture, Open, lines, resolving};
use crate::manifest::{Facets, Manifest};

/// Something of every kind for a neighbour to change.
fn grow(root: &Path) {
    for dir in ["deep/e/f", "kinds/dir", "kept/below", "gone/with/all"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let files =
        ["deep/e/x", "deep/e/f/y", "kinds/file", "kinds/dir/inner", "kept/below/z", "gone/with/all/w"];
    for file in files {
        fs::write(root.join(file), format!("{file}\n")).unwrap();
    }
    symlink("file", root.join("kinds/link")).unwrap();
    fs::write(root.join("text"), lines(&[])).unwrap();
}

/// A change of every kind.
fn change(open: &Open<'_>) {
    super::commits::change_everything(open);
    fs::write(open.path("text"), lines(&[(18, "neighbour")])).unwrap();
    fs::remove_dir_all(open.path("deep")).unwrap();
    fs::create_dir(open.path("deep")).unwrap();
    fs::write(open.path("deep/new"), "new\n").unwrap();
    fs::remove_dir_all(open.path("gone")).unwrap();
    fs::remove_file(open.path("kinds/file")).unwrap();
    fs::create_dir_all(open.path("kinds/file/was")).unwrap();
    fs::write(open.path("kinds/file/was/a file"), "x\n").unwrap();
    fs::remove_dir_all(open.path("kinds/dir")).unwrap();
    fs::write(open.path("kinds/dir"), "was a directory\n").unwrap();
    fs::remove_file(open.path("kinds/link")).unwrap();
    fs::write(open.path("kinds/link"), "was a link\n").unwrap();
    fs::set_permissions(open.path("kept"), Permissions::from_mode(0o700)).unwrap();
    fs::write(open.path("kept/below/more"), "more\n").unwrap();
}

/// A process that works in `dir`, for as long as it lives.
struct Worker(Child);

impl Worker {
    fn in_dir(dir: &Path) -> Self {
        Self(Command::new("sleep").arg("600").current_dir(dir).spawn().unwrap())
    }

    /// Its working directory is still one, and has something in it.
    #[track_caller]
    fn assert_at_home(&self) {
        let dir = PathBuf::from(format!("/proc/{}/cwd", self.0.id()));
        let shown = fs::read_link(&dir).unwrap();
        assert!(fs::read_dir(&dir).unwrap().count() > 0, "somebody's directory is gone: {}", shown.display());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn assert_sees(open: &Open<'_>, expected: &Manifest, when: &str) {
    expected.assert_same(&open.manifest(), Facets::WRITTEN, when);
}

/// Asserts that the sandbox shows `expected`, now and when it is mounted anew, and calls none of it a difference.
#[track_caller]
fn assert_undisturbed(open: &Open<'_>, expected: &Manifest, when: &str) {
    open.assert_clean();
    assert_sees(open, expected, when);
    open.unmount();
    open.assert_clean();
    assert_sees(open, expected, &format!("{when}, mounted anew"));
    open.commit();
    assert_sees(open, expected, &format!("{when}, after a commit of nothing"));
}

/// Two sandboxes over a grown original, and what the second shows.
fn two(fixture: &Fixture) -> (Open<'_>, Open<'_>, Manifest) {
    grow(&fixture.original(""));
    let expected = fixture.manifest();
    (fixture.open(), fixture.open(), expected)
}

/// Its kernel knows every name already.
pub(super) fn everything_looked_up_before(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    assert_sees(&b, &expected, "at first");
    change(&a);
    a.commit();
    assert_undisturbed(&b, &expected, "after a neighbour's commit");
}

/// Its kernel has never been asked.
pub(super) fn nothing_looked_up_before(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    change(&a);
    a.commit();
    assert_undisturbed(&b, &expected, "after a neighbour's commit");
}

/// Directories listed, their files never asked for; and names asked for that were not there.
pub(super) fn some_looked_up_before(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    for dir in ["", "deep", "kept", "gone"] {
        assert!(fs::read_dir(b.path(dir)).unwrap().count() > 0);
    }
    for missing in ["new.txt", "newdir", "deep/new", "kept/below/more"] {
        assert!(!b.path(missing).exists());
    }
    change(&a);
    a.commit();
    assert_undisturbed(&b, &expected, "after a neighbour's commit");
}

pub(super) fn not_mounted(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    b.unmount();
    change(&a);
    a.commit();
    assert_undisturbed(&b, &expected, "after a neighbour's commit");
}

pub(super) fn worked_in(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    let workers = ["", "deep/e", "gone/with", "kinds/dir"].map(|dir| Worker::in_dir(&b.path(dir)));
    let held = fs::File::open(b.path("deep/e/x")).unwrap();
    change(&a);
    a.commit();
    b.assert_clean();
    assert_sees(&b, &expected, "while somebody works in it");
    for worker in &workers {
        worker.assert_at_home();
    }
    drop((workers, held));
    assert_undisturbed(&b, &expected, "after a neighbour's commit");
}

/// A second commit, and a third, to what was changed already.
pub(super) fn commit_after_commit(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    change(&a);
    a.commit();
    fs::write(a.path("deep/new"), "newer\n").unwrap();
    fs::write(a.path("a.txt"), "changed again\n").unwrap();
    fs::remove_dir_all(a.path("newdir")).unwrap();
    fs::create_dir_all(a.path("gone/with")).unwrap();
    fs::write(a.path("gone/with/all"), "a file now\n").unwrap();
    a.commit();
    b.assert_clean();
    assert_sees(&b, &expected, "after two commits");
    fs::remove_dir_all(a.path("kinds/file")).unwrap();
    fs::write(a.path("kinds/file"), "a file again\n").unwrap();
    fs::write(a.path("new.txt"), "more\n").unwrap();
    a.commit();
    assert_undisturbed(&b, &expected, "after three commits");
}

pub(super) fn an_undo_is_not_seen(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    assert_sees(&b, &expected, "at first");
    change(&a);
    a.commit_as("op_1", &CommitRequest::default()).unwrap();
    let late = fixture.open();
    let seen_late = late.manifest();
    a.undo("op_2", "op_1").unwrap();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "the undo did not bring everything back");
    assert_undisturbed(&b, &expected, "after commit and undo");
    assert_undisturbed(&late, &seen_late, "after the undo");
}

pub(super) fn own_changes_stay_what_they_are(fixture: &Fixture) {
    let (a, b, _) = two(fixture);
    fs::write(b.path("b.txt"), "mine\n").unwrap();
    fs::write(b.path("deep/e/mine"), "mine\n").unwrap();
    fs::remove_file(b.path("kept/below/z")).unwrap();
    let (expected, digest) = (b.manifest(), b.diff().digest);
    change(&a);
    a.commit();
    for round in ["live", "mounted anew"] {
        assert_eq!(b.diff().digest, digest, "{round}: {:?}", b.kinds());
        assert_sees(&b, &expected, round);
        b.unmount();
    }
}

pub(super) fn rolled_back_to_what_it_saw(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    fs::write(b.path("a.txt"), "mine\n").unwrap();
    fs::remove_dir_all(b.path("deep/e")).unwrap();
    fs::write(b.path("new.txt"), "mine\n").unwrap();
    change(&a);
    a.commit();
    b.rollback();
    assert_undisturbed(&b, &expected, "rolled back after a neighbour's commit");
}

/// What it deleted and committed stays deleted, also when it has no change left that says so.
pub(super) fn rolled_back_to_what_it_had_deleted(fixture: &Fixture) {
    let b = fixture.open();
    fs::remove_file(b.path("a.txt")).unwrap();
    b.commit();
    b.rollback();
    let expected = b.manifest();
    let a = fixture.open();
    fs::write(a.path("a.txt"), "the neighbour's\n").unwrap();
    a.commit();
    b.rollback();
    assert_undisturbed(&b, &expected, "rolled back after a neighbour's commit");
}

pub(super) fn checkpoints_show_what_they_showed(fixture: &Fixture) {
    let (a, b, clean) = two(fixture);
    b.checkpoint("clean");
    fs::write(b.path("a.txt"), "one\n").unwrap();
    fs::remove_dir_all(b.path("deep/e")).unwrap();
    fs::write(b.path("kept/mine"), "one\n").unwrap();
    let (one, digest) = (b.manifest(), b.diff().digest);
    b.checkpoint("one");
    fs::write(b.path("a.txt"), "two\n").unwrap();
    change(&a);
    a.commit();
    for _ in 0..2 {
        b.restore("one");
        assert_sees(&b, &one, "restored after a neighbour's commit");
        assert_eq!(b.diff().digest, digest);
        b.restore("clean");
        assert_undisturbed(&b, &clean, "restored after a neighbour's commit");
    }
}

pub(super) fn an_edit_of_it_is_a_conflict(fixture: &Fixture) {
    let (a, b, expected) = two(fixture);
    change(&a);
    a.commit();
    let edits = ["a.txt", "deep/e/x", "kinds/file", "gone/with/all/w", "kept/below/more"];
    for path in edits {
        let text = fs::read_to_string(b.path(path)).unwrap_or_default();
        fs::write(b.path(path), format!("{text}mine\n")).unwrap();
        assert_eq!(b.kinds().len(), 1, "{:?}", b.kinds());
        b.assert_conflict(&[path]);
        b.rollback();
        assert_undisturbed(&b, &expected, path);
    }
}

/// Two sandboxes, of which the first has committed one line of a text and the second changed another.
fn two_over_a_text(fixture: &Fixture) -> Open<'_> {
    let (a, b, _) = two(fixture);
    change(&a);
    a.commit();
    fs::write(b.path("text"), lines(&[(2, "mine")])).unwrap();
    b.assert_kinds(&[("text", DiffKind::Modified)]);
    b
}

#[track_caller]
fn assert_merged(b: &Open<'_>) {
    let merged = lines(&[(2, "mine"), (18, "neighbour")]);
    assert_eq!(fs::read_to_string(b.fixture.original("text")).unwrap(), merged);
    assert_eq!(b.read("text"), merged);
    b.assert_clean();
}

pub(super) fn merged_with_it_three_ways(fixture: &Fixture) {
    let b = two_over_a_text(fixture);
    b.try_commit(&resolving(OnConflict::Merge)).unwrap();
    assert_merged(&b);
}

pub(super) fn merged_with_it_only_if_asked(fixture: &Fixture) {
    let b = two_over_a_text(fixture);
    b.assert_conflict(&["text"]);
    b.try_commit(&resolving(OnConflict::Merge)).unwrap();
    assert_merged(&b);
}

/// What a branch has got in the meantime is history, and merged with; the same lines are a conflict all the same.
pub(super) fn merged_with_it_unasked(fixture: &Fixture) {
    let b = two_over_a_text(fixture);
    fs::write(b.path("text"), lines(&[(18, "mine")])).unwrap();
    b.assert_conflict(&["text"]);
    fs::write(b.path("text"), lines(&[(2, "mine")])).unwrap();
    b.commit();
    assert_merged(&b);
}

/// The committer's original holds the neighbour's.
pub(super) fn below_the_committer(fixture: &Fixture) {
    grow(&fixture.original(""));
    let a = fixture.open();
    for dir in ["deep", "kept/below", "dir"] {
        let b = fixture.open_resource(&Resource::at_path("fs-directory", &fixture.original(dir)));
        let expected = b.manifest();
        fs::write(a.path(dir).join("from above"), dir).unwrap();
        let first = fs::read_dir(a.path(dir)).unwrap().flatten().find(|e| e.path().is_file()).unwrap();
        fs::write(first.path(), "changed from above\n").unwrap();
        a.commit();
        assert_undisturbed(&b, &expected, dir);
    }
}

/// The neighbour's original holds the committer's.
pub(super) fn above_the_committer(fixture: &Fixture) {
    grow(&fixture.original(""));
    let expected = fixture.manifest();
    let b = fixture.open();
    let a = fixture.open_resource(&Resource::at_path("fs-directory", &fixture.original("deep")));
    fs::remove_dir_all(a.path("e")).unwrap();
    fs::write(a.path("e"), "a file now\n").unwrap();
    fs::write(a.path("new"), "new\n").unwrap();
    a.commit();
    assert_undisturbed(&b, &expected, "after a commit below");
    fs::write(b.path("deep/e/x"), "mine\n").unwrap();
    b.assert_conflict(&["deep/e/x"]);
}

/// What a neighbour has removed from the original is removed here too: it stays away, whatever becomes of the mount.
pub(super) fn removed_here_after_it_was_removed_there(fixture: &Fixture) {
    grow(&fixture.original(""));
    let (neighbour, open) = (fixture.open(), fixture.open());
    open.manifest();
    fs::remove_file(neighbour.path("a.txt")).unwrap();
    fs::remove_dir_all(neighbour.path("deep")).unwrap();
    neighbour.commit();
    fs::remove_file(open.path("a.txt")).unwrap();
    fs::remove_dir_all(open.path("deep")).unwrap();
    fs::create_dir(open.path("deep")).unwrap();
    fs::write(open.path("deep/new"), "new\n").unwrap();
    let expected = open.manifest();
    let told = open.diff();
    let is_told = |path: &str| told.entries.iter().any(|e| e.path == super::fixture::rel(path));
    assert!(is_told("a.txt") && is_told("deep/e/x"), "{told:?}");
    open.checkpoint("mounted anew");
    expected.assert_same(&open.manifest(), Facets::WRITTEN, "what was removed came back");
    assert_eq!(told.digest, open.diff().digest);
}
