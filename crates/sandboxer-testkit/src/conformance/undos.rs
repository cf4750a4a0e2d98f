//! What a commit did is taken back, where nothing has changed on top of it.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, HunkSelection, OnConflict, OpId, Phase};

use super::commits::change_everything;
use super::fixture::{Fixture, Open, lines, only, rel, resolving};
use crate::manifest::Facets;

fn original(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.original(path)).unwrap()
}

/// A sandbox with one commit in it, `op_1`.
fn committed(fixture: &Fixture) -> Open<'_> {
    let open = fixture.open();
    open.write("a.txt", "committed\n");
    let result = open.commit_as("op_1", &CommitRequest::default()).unwrap();
    assert!(result.undo_bytes.is_some(), "{result:?}");
    open
}

pub(super) fn the_original_is_as_before(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    change_everything(&open);
    let digest = open.diff().digest;
    open.commit_as("op_1", &CommitRequest::default()).unwrap();
    open.undo("op_2", "op_1").unwrap();
    before.assert_same(&fixture.manifest(), Facets::WRITTEN, "an undo did not bring everything back");
    assert_eq!(open.diff().digest, digest);
}

pub(super) fn the_changes_are_pending_again(fixture: &Fixture) {
    let open = committed(fixture);
    let result = open.undo("op_2", "op_1").unwrap();
    assert_eq!((result.entries.len(), result.undo_bytes.is_some()), (1, true));
    assert_eq!((original(fixture, "a.txt"), open.read("a.txt")), ("alpha\n".into(), "committed\n".into()));
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(original(fixture, "a.txt"), "committed\n");
}

pub(super) fn an_undo_is_undone(fixture: &Fixture) {
    let open = committed(fixture);
    open.undo("op_2", "op_1").unwrap();
    open.undo("op_3", "op_2").unwrap();
    assert_eq!(original(fixture, "a.txt"), "committed\n");
    open.assert_clean();
    open.undo("op_4", "op_3").unwrap();
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
}

pub(super) fn in_another_process(fixture: &Fixture) {
    let open = committed(fixture).reopened();
    open.undo("op_2", "op_1").unwrap();
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
}

pub(super) fn in_any_order(fixture: &Fixture) {
    let open = committed(fixture);
    open.write("b.txt", "second\n");
    open.commit_as("op_2", &CommitRequest::default()).unwrap();
    open.undo("op_3", "op_1").unwrap();
    assert_eq!(
        (original(fixture, "a.txt"), original(fixture, "b.txt")),
        ("alpha\n".into(), "second\n".into())
    );
    open.undo("op_4", "op_2").unwrap();
    assert_eq!(original(fixture, "b.txt"), "beta\n");
}

/// A commit with another on top of it stays; once that is taken back, so can be the one below.
pub(super) fn from_the_end(fixture: &Fixture) {
    let open = committed(fixture);
    open.write("b.txt", "second\n");
    open.commit_as("op_2", &CommitRequest::default()).unwrap();
    let before = fixture.manifest();
    assert!(matches!(open.undo("op_3", "op_1"), Err(Error::Refused { .. })));
    fixture.assert_untouched(&before);
    fixture.assert_sound();
    open.undo("op_4", "op_2").unwrap();
    assert_eq!(original(fixture, "b.txt"), "beta\n");
    open.undo("op_5", "op_1").unwrap();
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
}

pub(super) fn only_once(fixture: &Fixture) {
    let open = committed(fixture);
    open.undo("op_2", "op_1").unwrap();
    let before = fixture.manifest();
    assert!(matches!(open.undo("op_3", "op_1"), Err(Error::Refused { .. })));
    fixture.assert_untouched(&before);
}

pub(super) fn an_unknown_operation(fixture: &Fixture) {
    let open = committed(fixture);
    let before = fixture.manifest();
    assert!(matches!(open.undo("op_3", "op_2"), Err(Error::Refused { .. })));
    fixture.assert_untouched(&before);
}

pub(super) fn a_later_edit_is_a_conflict(fixture: &Fixture) {
    let open = committed(fixture);
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    let before = fixture.manifest();
    let Err(Error::Conflict { conflicts }) = open.undo("op_2", "op_1") else { panic!("no conflict") };
    assert_eq!(conflicts.iter().map(|c| c.path.to_string()).collect::<Vec<_>>(), ["a.txt"]);
    fixture.assert_untouched(&before);
}

pub(super) fn of_chosen_paths(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "chosen\n");
    open.write("b.txt", "not chosen\n");
    open.commit_as("op_1", &only(&["a.txt"])).unwrap();
    open.undo("op_2", "op_1").unwrap();
    assert_eq!((original(fixture, "a.txt"), original(fixture, "b.txt")), ("alpha\n".into(), "beta\n".into()));
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
}

pub(super) fn of_chosen_hunks(fixture: &Fixture) {
    fs::write(fixture.original("a.txt"), lines(&[])).unwrap();
    let open = fixture.open();
    open.write("a.txt", &lines(&[(2, "two"), (18, "eighteen")]));
    let patch = b"@@ -2 +2 @@\n-2\n+two\n".to_vec();
    let hunks = vec![HunkSelection { path: rel("a.txt"), patch }];
    open.commit_as("op_1", &CommitRequest { hunks, ..CommitRequest::default() }).unwrap();
    assert_eq!(original(fixture, "a.txt"), lines(&[(2, "two")]));
    open.undo("op_2", "op_1").unwrap();
    assert_eq!(original(fixture, "a.txt"), lines(&[]));
    assert_eq!(open.read("a.txt"), lines(&[(2, "two"), (18, "eighteen")]));
}

/// Nobody's bytes are gone for good.
pub(super) fn of_what_theirs_went_over(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "sandbox\n");
    open.write("new.txt", "sandbox\n");
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    fs::write(fixture.original("new.txt"), "by hand too\n").unwrap();
    open.commit_as("op_1", &resolving(OnConflict::Theirs)).unwrap();
    assert_eq!(original(fixture, "new.txt"), "sandbox\n");
    open.undo("op_2", "op_1").unwrap();
    assert_eq!(
        (original(fixture, "a.txt"), original(fixture, "new.txt")),
        ("by hand\n".into(), "by hand too\n".into())
    );
    open.assert_conflict(&["a.txt", "new.txt"]);
}

pub(super) fn in_two_phases(fixture: &Fixture) {
    let open = committed(fixture);
    let before = fixture.manifest();
    let undoing =
        open.sandbox.clone().for_operation(&OpId::from_string("op_2")).undoing(&OpId::from_string("op_1"));
    let phase =
        |phase| open.strategy.commit(&undoing, &CommitRequest { phase, ..CommitRequest::default() }).unwrap();
    phase(Phase::Prepare);
    fixture.assert_untouched(&before);
    phase(Phase::Abort);
    fixture.assert_untouched(&before);
    phase(Phase::Prepare);
    phase(Phase::Finish);
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
    assert_eq!(phase(Phase::Finish).entries.len(), 1);
}
