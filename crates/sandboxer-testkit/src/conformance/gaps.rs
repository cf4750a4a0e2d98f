//! What a strategy does not declare, it refuses: asked all the same, it says `Unsupported` and does nothing.

use sandboxer_core::model::{CommitRequest, HunkSelection, OnConflict, OpId, Part};
use sandboxer_core::{Error, Result};

use super::fixture::{Fixture, rel, resolving};

#[track_caller]
fn assert_unsupported<T: std::fmt::Debug>(result: Result<T>) {
    let Err(Error::Unsupported { reason, .. }) = result else { panic!("not unsupported: {result:?}") };
    assert!(!reason.is_empty());
}

pub(super) fn chosen_hunks(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    let before = fixture.manifest();
    let hunks = vec![HunkSelection { path: rel("a.txt"), patch: b"@@ -1 +1 @@\n-alpha\n+mine\n".to_vec() }];
    assert_unsupported(open.try_commit(&CommitRequest { hunks, ..CommitRequest::default() }));
    fixture.assert_untouched(&before);
}

pub(super) fn ways_out_of_conflicts(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    let before = fixture.manifest();
    for way in [OnConflict::Merge, OnConflict::Mark, OnConflict::Ours, OnConflict::Theirs] {
        assert_unsupported(open.try_commit(&resolving(way)));
    }
    fixture.assert_untouched(&before);
}

pub(super) fn taking_back(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    // A name to log it under is no more than a name.
    open.commit_as("op_1", &CommitRequest::default()).unwrap();
    let before = fixture.manifest();
    assert_unsupported(open.undo("op_2", "op_1"));
    fixture.assert_untouched(&before);
}

/// Whoever takes a part for everything removes what nobody meant.
pub(super) fn a_part_is_not_everything(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    for part in [Part::Unchanged, Part::Undo(OpId::from_string("op_1"))] {
        assert_unsupported(open.cleanup_part(&part));
        assert_eq!(open.read("a.txt"), "mine\n");
    }
}
