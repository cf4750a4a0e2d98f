//! Throwing differences away leaves the original identical and the sandbox as it was at first.

use super::commits::change_everything;
use super::fixture::{Fixture, rel};
use crate::manifest::{Facets, rich_tree, set_xattr};
use std::fs;

pub(super) fn the_sandbox_is_as_at_first(fixture: &Fixture) {
    rich_tree(&fixture.original(""), fixture.outside());
    let before = fixture.manifest();
    let open = fixture.open();
    fs::remove_dir(open.path("empty/also empty")).unwrap();
    change_everything(&open);
    fs::remove_dir_all(open.path("nested")).unwrap();
    fs::remove_file(open.path("links/second name")).unwrap();
    fs::remove_file(open.path("sparse")).unwrap();
    fs::write(open.path("large.bin"), "small now").unwrap();
    set_xattr(&open.path("attributes/file"), "user.colour", b"red");
    let result = open.rollback();
    assert!(result.restored_files > 0, "{result:?}");
    fixture.assert_untouched(&before);
    before.assert_same(&open.manifest(), Facets::WRITTEN, "the sandbox is not as it was");
    open.assert_clean();
}

pub(super) fn writes_are_gone(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new/file", "new\n");
    open.rollback();
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "alpha\n");
    assert!(open.strategy.read(&open.sandbox, &rel("new/file")).is_err());
    open.assert_clean();
    open.write("a.txt", "changed again\n");
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt")).unwrap(), "changed again\n");
}

pub(super) fn nothing_to_roll_back(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    assert_eq!(open.rollback().restored_files, 0);
    fixture.assert_untouched(&before);
}

pub(super) fn only_the_scope(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "kept\n");
    open.write("dir/c.txt", "thrown away\n");
    open.write("dir/new.txt", "thrown away\n");
    let scoped = open.sandbox.clone().scoped(&[rel("dir")]);
    assert!(open.strategy.rollback(&scoped).unwrap().success);
    assert_eq!(open.read("a.txt"), "kept\n");
    assert_eq!(open.read("dir/c.txt"), "gamma\n");
    assert!(open.strategy.read(&open.sandbox, &rel("dir/new.txt")).is_err());
    open.assert_kinds(&[("a.txt", sandboxer_core::model::DiffKind::Modified)]);
}

/// A rename within the scope by either of its ends goes back as a whole: half of it would lose the content.
pub(super) fn a_rename_goes_back_whole(fixture: &Fixture) {
    for scope in ["moved.txt", "a.txt"] {
        let open = fixture.open();
        fs::rename(open.path("a.txt"), open.path("moved.txt")).unwrap();
        open.write("b.txt", "kept\n");
        let scoped = open.sandbox.clone().scoped(&[rel(scope)]);
        open.strategy.rollback(&scoped).unwrap();
        assert_eq!((open.read("a.txt"), open.read("b.txt")), ("alpha\n".into(), "kept\n".into()));
        assert!(!open.path("moved.txt").exists());
    }
}

pub(super) fn a_file_comes_back_with_its_directory(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_dir_all(open.path("dir")).unwrap();
    let scoped = open.sandbox.clone().scoped(&[rel("dir/sub/d.txt")]);
    open.strategy.rollback(&scoped).unwrap();
    assert_eq!(open.read("dir/sub/d.txt"), "delta\n");
    open.assert_kinds(&[("dir/c.txt", sandboxer_core::model::DiffKind::Deleted)]);
}

pub(super) fn committed_work_stays(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "committed\n");
    open.commit();
    let before = fixture.manifest();
    open.write("a.txt", "thrown away\n");
    open.rollback();
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "committed\n");
}
