//! Prepare makes ready and changes nothing; finish makes it so and cannot be refused; abort forgets.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, Phase};

use super::fixture::{Fixture, Open};

fn prepared(fixture: &Fixture) -> Open<'_> {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new/file", "new\n");
    let result = open.phase(Phase::Prepare).unwrap();
    assert!(result.entries.iter().any(|e| e.path.as_bytes() == b"a.txt"), "{result:?}");
    fixture.assert_untouched(&before);
    open
}

fn original(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.original(path)).unwrap()
}

fn assert_committed(fixture: &Fixture) {
    assert_eq!(original(fixture, "a.txt"), "changed\n");
    assert_eq!(original(fixture, "new/file"), "new\n");
}

pub(super) fn aborted_leaves_everything(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = prepared(fixture);
    open.phase(Phase::Abort).unwrap();
    open.phase(Phase::Abort).unwrap();
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "changed\n");
    open.phase(Phase::Finish).unwrap();
    fixture.assert_untouched(&before);
    open.commit();
    assert_committed(fixture);
}

pub(super) fn finished_equals_whole(fixture: &Fixture) {
    let open = prepared(fixture);
    let result = open.phase(Phase::Finish).unwrap();
    assert_eq!(result.conflicts, []);
    assert_committed(fixture);
    open.assert_clean();
}

pub(super) fn finish_twice(fixture: &Fixture) {
    let open = prepared(fixture);
    open.phase(Phase::Finish).unwrap();
    let after = fixture.manifest();
    open.phase(Phase::Finish).unwrap();
    fixture.assert_untouched(&after);
    open.phase(Phase::Abort).unwrap();
    fixture.assert_untouched(&after);
    open.assert_clean();
}

pub(super) fn finish_in_another_process(fixture: &Fixture) {
    let open = prepared(fixture).reopened();
    open.phase(Phase::Finish).unwrap();
    assert_committed(fixture);
    open.assert_clean();
}

pub(super) fn abort_in_another_process(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = prepared(fixture).reopened();
    open.phase(Phase::Abort).unwrap();
    fixture.assert_untouched(&before);
    open.assert_kinds_include("a.txt", DiffKind::Modified);
    open.commit();
    assert_committed(fixture);
}

pub(super) fn nothing_prepared(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.phase(Phase::Finish).unwrap();
    open.phase(Phase::Abort).unwrap();
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "changed\n");
}

pub(super) fn prepare_refuses_conflicts(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    fs::write(fixture.original("a.txt"), "theirs\n").unwrap();
    let before = fixture.manifest();
    let result = open.phase(Phase::Prepare);
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
    open.phase(Phase::Finish).unwrap();
    fixture.assert_untouched(&before);
}

/// What runs in the sandbox between the two phases does not slip into the commit.
pub(super) fn finish_commits_what_was_prepared(fixture: &Fixture) {
    let open = prepared(fixture);
    open.write("a.txt", "slipped in\n");
    open.write("b.txt", "slipped in\n");
    open.phase(Phase::Finish).unwrap();
    assert_committed(fixture);
    assert_eq!(original(fixture, "b.txt"), "beta\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
}

/// Once decided, a commit is finished; but an edit made by hand after the decision is left alone and reported.
pub(super) fn finish_spares_a_later_edit(fixture: &Fixture) {
    let open = prepared(fixture).reopened();
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    let result = open.phase(Phase::Finish).unwrap();
    assert_eq!(original(fixture, "a.txt"), "by hand\n");
    assert_eq!(original(fixture, "new/file"), "new\n");
    let named: Vec<_> = result.conflicts.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(named, ["a.txt"]);
}

/// Whoever crashed between finishing and writing it down asks again.
pub(super) fn finish_says_again_what_it_did(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    let phase = |open: &Open<'_>, phase| {
        open.commit_as("op_1", &CommitRequest { phase, ..CommitRequest::default() }).unwrap()
    };
    phase(&open, Phase::Prepare);
    let first = phase(&open, Phase::Finish);
    let after = fixture.manifest();
    let open = open.reopened();
    let again = phase(&open, Phase::Finish);
    assert_eq!((&again.digest, &again.entries), (&first.digest, &first.entries));
    assert_eq!((again.undo_bytes, again.entries.len()), (first.undo_bytes, 1));
    fixture.assert_untouched(&after);
    // Of an operation that never was, there is nothing to say.
    let request = CommitRequest { phase: Phase::Finish, ..CommitRequest::default() };
    assert!(open.commit_as("op_2", &request).unwrap().entries.is_empty());
}
