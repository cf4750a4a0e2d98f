//! `none`: straight through, but journaled.

use std::fs;

use sandboxer_core::Error;
use sandboxer_core::model::DiffKind;

use super::fixture::{Fixture, rel};
use crate::manifest::{Facets, set_mtime, set_xattr};

fn original(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.original(path)).unwrap()
}

pub(super) fn writes_reach_the_resource(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new/file", "new\n");
    assert_eq!(
        (original(fixture, "a.txt"), original(fixture, "new/file")),
        ("changed\n".into(), "new\n".into())
    );
}

pub(super) fn diff_shows_just_what_went_through(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new.txt", "new\n");
    fs::write(fixture.original("b.txt"), "by somebody else\n").unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("new.txt", DiffKind::Created)]);
    open.write("a.txt", "alpha\n");
    open.assert_kinds(&[("new.txt", DiffKind::Created)]);
    open.reopened().assert_kinds(&[("new.txt", DiffKind::Created)]);
}

pub(super) fn rollback_undoes_just_that(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "first\n");
    open.write("a.txt", "second\n");
    open.write("new.txt", "new\n");
    fs::write(fixture.original("b.txt"), "by somebody else\n").unwrap();
    let open = open.reopened();
    assert_eq!(open.rollback().restored_files, 2);
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
    assert!(!fixture.original("new.txt").exists());
    assert_eq!(original(fixture, "b.txt"), "by somebody else\n");
    open.assert_clean();
}

pub(super) fn rollback_spares_what_others_wrote_since(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    fs::write(fixture.original("a.txt"), "by somebody else\n").unwrap();
    match open.strategy.rollback(&open.sandbox) {
        Err(Error::Conflict { conflicts }) => assert_eq!(conflicts[0].path, rel("a.txt")),
        other => panic!("expected a conflict, got {other:?}"),
    }
    assert_eq!(original(fixture, "a.txt"), "by somebody else\n");
}

pub(super) fn commit_accepts_what_was_written(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "mine\n");
    let before = fixture.manifest();
    open.commit();
    fixture.assert_untouched(&before);
    open.assert_clean();
    assert_eq!(open.rollback().restored_files, 0);
    assert_eq!(original(fixture, "a.txt"), "mine\n");
}

pub(super) fn created_directories_are_undone(fixture: &Fixture) {
    let open = fixture.open();
    open.write("new/deeper/file", "x\n");
    open.write("mixed/mine", "x\n");
    fs::write(fixture.original("mixed/theirs"), "x\n").unwrap();
    open.rollback();
    assert!(!fixture.original("new").exists());
    assert!(!fixture.original("mixed/mine").exists() && fixture.original("mixed/theirs").exists());
}

pub(super) fn metadata_survives_a_round_trip(fixture: &Fixture) {
    set_xattr(&fixture.original("run.sh"), "user.colour", b"green");
    set_mtime(&fixture.original("run.sh"), 1_000_000_000, 5);
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("run.sh", "#!/bin/sh\nexit 1\n");
    assert_eq!(fixture.manifest().entry("run.sh").mode, 0o755);
    open.rollback();
    before.assert_same(&fixture.manifest(), Facets::WRITTEN, "the resource is not as it was");
}
