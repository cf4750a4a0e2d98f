//! Parts of a workspace go by themselves; what is left when it is parked comes back.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{CheckpointId, CommitRequest, DiffKind, OpId, Part};

use super::commits::change_everything;
use super::fixture::{Fixture, Open};
use crate::manifest::Facets;

fn park(open: &Open<'_>) {
    open.cleanup_part(&Part::Unchanged).unwrap();
}

/// Takes up again what was parked, as another process does.
fn unpark<'a>(open: Open<'a>) -> Open<'a> {
    let mut open = open.reopened();
    let mut resource = open.fixture.resource();
    let home = open.sandbox.metadata.get("dir").cloned().expect("a ref with parts has a `dir`");
    resource.properties.insert("parked".to_owned(), home);
    open.sandbox = open.strategy.create(&open.sandbox.plan_id, &resource).unwrap();
    open
}

pub(super) fn undo_data(fixture: &Fixture) {
    let open = fixture.open();
    for operation in ["op_1", "op_2"] {
        open.write("a.txt", operation);
        open.commit_as(operation, &CommitRequest::default()).unwrap();
    }
    let part = Part::Undo(OpId::from_string("op_1"));
    open.cleanup_part(&part).unwrap();
    open.cleanup_part(&part).unwrap();
    open.undo("op_3", "op_2").unwrap();
    assert!(matches!(open.undo("op_4", "op_1"), Err(Error::Refused { .. })));
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "op_1");
}

pub(super) fn a_checkpoint(fixture: &Fixture) {
    let open = fixture.open();
    for name in ["one", "two"] {
        open.write("a.txt", name);
        open.checkpoint(name);
    }
    let part = Part::Checkpoint(CheckpointId::from_string("one"));
    open.cleanup_part(&part).unwrap();
    open.cleanup_part(&part).unwrap();
    open.write("a.txt", "later");
    let gone = open.strategy.restore_checkpoint(&open.sandbox, &CheckpointId::from_string("one"));
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    open.restore("two");
    assert_eq!(open.read("a.txt"), "two");
}

pub(super) fn parked_work_comes_back(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    change_everything(&open);
    let (work, digest) = (open.manifest(), open.diff().digest);
    park(&open);
    let open = unpark(open);
    work.assert_same(&open.manifest(), Facets::WRITTEN, "parked work did not come back exactly");
    assert_eq!(open.diff().digest, digest);
    fixture.assert_untouched(&before);
    open.commit();
    open.assert_clean();
}

/// What was not worked on is taken up in its present version; what was is still in conflict.
pub(super) fn parked_over_a_moved_original(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "work\n");
    park(&open);
    fs::write(fixture.original("a.txt"), "by hand\n").unwrap();
    fs::write(fixture.original("b.txt"), "by hand too\n").unwrap();
    fs::write(fixture.original("new.txt"), "new\n").unwrap();
    let open = unpark(open);
    assert_eq!((open.read("a.txt"), open.read("b.txt")), ("work\n".into(), "by hand too\n".into()));
    assert_eq!(open.read("new.txt"), "new\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.assert_conflict(&["a.txt"]);
}

/// An interrupted clean-up is repeated; so is bringing back.
pub(super) fn parked_twice(fixture: &Fixture) {
    let open = fixture.open();
    open.write("dir/sub/d.txt", "work\n");
    park(&open);
    park(&open);
    let open = unpark(unpark(open));
    assert_eq!((open.read("dir/sub/d.txt"), open.read("a.txt")), ("work\n".into(), "alpha\n".into()));
    open.write("a.txt", "more\n");
    park(&open);
    let open = unpark(open);
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("dir/sub/d.txt", DiffKind::Modified)]);
}

pub(super) fn checkpoints_outlive_parking(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "at the checkpoint\n");
    let expected = open.manifest();
    open.checkpoint("one");
    open.write("a.txt", "later\n");
    park(&open);
    fs::write(fixture.original("b.txt"), "by hand\n").unwrap();
    let open = unpark(open);
    open.restore("one");
    expected.assert_same(&open.manifest(), Facets::WRITTEN, "the checkpoint did not outlive parking");
}

pub(super) fn undo_outlives_parking(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "committed\n");
    open.commit_as("op_1", &CommitRequest::default()).unwrap();
    open.write("b.txt", "work\n");
    park(&open);
    let open = unpark(open);
    open.undo("op_2", "op_1").unwrap();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "alpha\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
}

pub(super) fn parked_and_thrown_away(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "work\n");
    park(&open);
    open.strategy.cleanup(&open.sandbox).unwrap();
    let leftovers = fixture.leftovers();
    assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
    fixture.assert_untouched(&before);
    // What is gone has no parts.
    park(&open);
}

pub(super) fn an_unknown_part_removes_nothing(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "work\n");
    let before = open.manifest();
    let unknown = open.sandbox.clone().with("part", "some of it");
    assert!(open.strategy.cleanup(&unknown).is_err());
    before.assert_same(&open.manifest(), Facets::UNTOUCHED, "an unknown part was removed");
}
