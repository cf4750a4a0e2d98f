//! Named states that come back exactly.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::{CheckpointId, DiffKind};

use super::commits::change_everything;
use super::fixture::Fixture;
use crate::manifest::{Facets, rich_tree};

pub(super) fn restore_is_exact(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    fs::create_dir(open.path("rich")).unwrap();
    rich_tree(&open.path("rich"), fixture.outside());
    open.write("a.txt", "at the checkpoint\n");
    let (expected, digest) = (open.manifest(), open.diff().digest);
    open.checkpoint("one");
    change_everything(&open);
    fs::remove_dir_all(open.path("rich/nested")).unwrap();
    fs::write(open.path("rich/sparse"), "dense").unwrap();
    let result = open.restore("one");
    assert!(result.restored_files > 0, "{result:?}");
    expected.assert_same(&open.manifest(), Facets::WRITTEN, "the checkpoint did not come back exactly");
    assert_eq!(open.diff().digest, digest);
    fixture.assert_untouched(&before);
}

pub(super) fn restore_brings_content_back(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "one\n");
    open.checkpoint("one");
    open.write("a.txt", "two\n");
    open.write("new.txt", "two\n");
    open.restore("one");
    assert_eq!(open.read("a.txt"), "one\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
}

pub(super) fn in_any_order(fixture: &Fixture) {
    let open = fixture.open();
    open.checkpoint("clean");
    for name in ["one", "two", "three"] {
        open.write("a.txt", name);
        open.write(&format!("only in {name} and later"), name);
        open.checkpoint(name);
    }
    for name in ["two", "three", "one", "three", "one", "two"] {
        open.restore(name);
        assert_eq!(open.read("a.txt"), name);
        assert_eq!(open.read(&format!("only in {name} and later")), name);
    }
    open.restore("clean");
    open.assert_clean();
    open.restore("three");
    assert_eq!(open.read("a.txt"), "three");
}

pub(super) fn a_name_is_replaced(fixture: &Fixture) {
    let open = fixture.open();
    for content in ["first\n", "second\n"] {
        open.write("a.txt", content);
        open.checkpoint("same");
    }
    open.write("a.txt", "third\n");
    open.restore("same");
    assert_eq!(open.read("a.txt"), "second\n");
    open.rollback();
    for _ in 0..2 {
        open.checkpoint("same");
        open.restore("same");
        open.assert_clean();
    }
}

pub(super) fn an_unknown_name(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    let error = open
        .strategy
        .restore_checkpoint(&open.sandbox, &CheckpointId::from_string("never-taken"))
        .unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    assert_eq!(open.read("a.txt"), "changed\n");
}

pub(super) fn taking_one_changes_nothing(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    let digest = open.diff().digest;
    open.checkpoint("one");
    assert_eq!(open.diff().digest, digest);
    assert_eq!(open.read("a.txt"), "changed\n");
    fixture.assert_untouched(&before);
}

pub(super) fn after_a_commit(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "before\n");
    open.checkpoint("before");
    open.write("a.txt", "committed\n");
    open.write("b.txt", "committed\n");
    open.commit();
    open.checkpoint("after");
    open.restore("before");
    assert_eq!((open.read("a.txt"), open.read("b.txt")), ("before\n".into(), "beta\n".into()));
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "committed\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("b.txt", DiffKind::Modified)]);
    open.restore("after");
    open.assert_clean();
    open.restore("before");
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "beta\n");
}

pub(super) fn the_base_stays(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "one\n");
    open.checkpoint("one");
    open.write("b.txt", "two\n");
    open.restore("one");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(fixture.original("b.txt")).unwrap(), "beta\n");
    open.write("b.txt", "after\n");
    open.rollback();
    assert_eq!(open.read("a.txt"), "one\n");
}

pub(super) fn valid_in_another_process(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "one\n");
    open.checkpoint("one");
    open.write("a.txt", "two\n");
    let open = open.reopened();
    open.restore("one");
    assert_eq!(open.read("a.txt"), "one\n");
}
