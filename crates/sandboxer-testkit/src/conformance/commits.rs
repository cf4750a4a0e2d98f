//! Making differences real: all, some or none of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffKind, DiffView};

use super::fixture::{Fixture, Open, only, rel};
use crate::manifest::Facets;

fn original(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.original(path)).unwrap()
}

pub(super) fn everything(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new/file.txt", "new\n");
    open.commit();
    assert_eq!(original(fixture, "a.txt"), "changed\n");
    assert_eq!(original(fixture, "new/file.txt"), "new\n");
    assert_eq!(original(fixture, "b.txt"), "beta\n");
    open.assert_clean();
}

/// One of each kind of change, in one tree.
pub(super) fn change_everything(open: &Open<'_>) {
    fs::write(open.path("a.txt"), "changed\n").unwrap();
    fs::write(open.path("new.txt"), "new\n").unwrap();
    fs::create_dir_all(open.path("newdir/below")).unwrap();
    fs::write(open.path("newdir/below/file"), "deep\n").unwrap();
    fs::rename(open.path("b.txt"), open.path("newdir/b.txt")).unwrap();
    fs::remove_file(open.path("dir/c.txt")).unwrap();
    fs::set_permissions(open.path("run.sh"), Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(open.path("link")).unwrap();
    symlink("new.txt", open.path("link")).unwrap();
    fs::remove_dir(open.path("empty")).unwrap();
    fs::write(open.path("empty"), "a file now\n").unwrap();
}

pub(super) fn every_kind_at_once(fixture: &Fixture) {
    let open = fixture.open();
    change_everything(&open);
    let expected = open.manifest();
    let committed = open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "the original is not the sandbox's tree");
    assert!(!committed.entries.is_empty());
    open.assert_clean();
}

pub(super) fn chosen_paths(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("dir/c.txt", "changed too\n");
    open.write("dir/sub/new.txt", "new\n");
    let result = open.try_commit(&only(&["dir"])).unwrap();
    assert!(result.entries.iter().all(|e| e.path.is_within(&rel("dir"))), "{result:?}");
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
    assert_eq!(original(fixture, "dir/c.txt"), "changed too\n");
    assert_eq!(original(fixture, "dir/sub/new.txt"), "new\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
    open.try_commit(&only(&["a.txt"])).unwrap();
    assert_eq!(original(fixture, "a.txt"), "changed\n");
    open.assert_clean();
}

pub(super) fn a_chosen_rename(fixture: &Fixture) {
    let open = fixture.open();
    fs::rename(open.path("a.txt"), open.path("moved.txt")).unwrap();
    open.write("b.txt", "changed\n");
    open.try_commit(&only(&["moved.txt"])).unwrap();
    assert_eq!(original(fixture, "moved.txt"), "alpha\n");
    assert_eq!(original(fixture, "b.txt"), "beta\n");
    let gone = !fixture.original("a.txt").exists();
    let pending = open.kinds().get("a.txt") == Some(&DiffKind::Deleted);
    assert!(gone != pending, "the old name is neither gone nor pending, or both");
}

pub(super) fn nothing_to_commit(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    let result = open.commit();
    assert_eq!((result.entries.len(), result.digest), (0, DiffView::new(Vec::new()).digest));
    fixture.assert_untouched(&before);
}

pub(super) fn the_right_digest(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    let digest = open.diff().digest;
    let request = CommitRequest { digest: Some(digest.clone()), ..CommitRequest::default() };
    assert_eq!(open.try_commit(&request).unwrap().digest, digest);
    assert_eq!(original(fixture, "a.txt"), "changed\n");
}

pub(super) fn the_wrong_digest_writes_nothing(fixture: &Fixture) {
    let before = fixture.manifest();
    let open = fixture.open();
    open.write("a.txt", "reviewed\n");
    let reviewed = open.diff().digest;
    open.write("a.txt", "slipped in\n");
    let found = open.diff().digest;
    let request = CommitRequest { digest: Some(reviewed.clone()), ..CommitRequest::default() };
    match open.try_commit(&request) {
        Err(Error::DigestMismatch { expected, found: told }) => {
            assert_eq!((expected, told), (reviewed, found))
        }
        other => panic!("expected a digest mismatch, got {other:?}"),
    }
    fixture.assert_untouched(&before);
    assert_eq!(open.read("a.txt"), "slipped in\n");
    open.commit();
    assert_eq!(original(fixture, "a.txt"), "slipped in\n");
}

pub(super) fn the_digest_of_a_selection(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("b.txt", "changed\n");
    let selection = open.diff().select(&[rel("a.txt")]).digest;
    let whole = open.diff().digest;
    let request = |digest: &str| CommitRequest { digest: Some(digest.to_owned()), ..only(&["a.txt"]) };
    assert!(matches!(open.try_commit(&request(&whole)), Err(Error::DigestMismatch { .. })));
    assert_eq!(original(fixture, "a.txt"), "alpha\n");
    assert_eq!(open.try_commit(&request(&selection)).unwrap().digest, selection);
    assert_eq!(
        (original(fixture, "a.txt"), original(fixture, "b.txt")),
        ("changed\n".into(), "beta\n".into())
    );
}

pub(super) fn the_result_is_what_diff_showed(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new.txt", "new\n");
    let diff = open.diff();
    let result = open.commit();
    let shown = |entries: &[sandboxer_core::model::DiffEntry]| -> Vec<_> {
        entries.iter().map(|e| (e.path.clone(), e.kind)).collect()
    };
    assert_eq!(result.digest, diff.digest);
    assert_eq!(shown(&result.entries), shown(&diff.entries));
}

pub(super) fn the_base_moves_on(fixture: &Fixture) {
    let open = fixture.open();
    for round in 0..3 {
        let content = format!("round {round}\n");
        open.write("a.txt", &content);
        open.write(&format!("new {round}"), &content);
        open.commit();
        open.assert_clean();
        assert_eq!(original(fixture, "a.txt"), content);
    }
    open.write("a.txt", "thrown away\n");
    open.rollback();
    assert_eq!(open.read("a.txt"), "round 2\n");
    let open = open.reopened();
    open.assert_clean();
}

pub(super) fn a_deleted_tree(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_dir_all(open.path("dir")).unwrap();
    let kinds = open.kinds();
    assert!(kinds.values().all(|kind| *kind == DiffKind::Deleted), "{kinds:?}");
    assert!(kinds.contains_key("dir/sub/d.txt"), "{kinds:?}");
    open.commit();
    assert!(!fixture.original("dir").exists());
    open.assert_clean();
    fs::create_dir(open.path("dir")).unwrap();
    fs::write(open.path("dir/again"), "x\n").unwrap();
    open.commit();
    assert_eq!(original(fixture, "dir/again"), "x\n");
}

/// D14: a process that holds a file open rewrites its own copy, not what was reviewed and committed.
pub(super) fn a_held_file_cannot_change_it(fixture: &Fixture) {
    use std::io::Write;
    let open = fixture.open();
    let mut held = fs::File::create(open.path("a.txt")).unwrap();
    held.write_all(b"reviewed\n").unwrap();
    open.commit();
    held.write_all(b"after the review\n").unwrap();
    held.sync_all().unwrap();
    assert_eq!(original(fixture, "a.txt"), "reviewed\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
}

/// D12: pipes and the like are told, refused, and in nobody's way.
pub(super) fn special_files_are_refused(fixture: &Fixture) {
    let open = fixture.open();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, open.path("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    open.write("a.txt", "changed\n");
    let diff = open.diff();
    let pipe = diff.entries.iter().find(|e| e.path == rel("pipe")).unwrap();
    assert!(pipe.refused.is_some(), "{pipe:?}");
    let before = fixture.manifest();
    match open.try_commit(&CommitRequest::default()) {
        Err(Error::Uncommittable { entries }) => assert_eq!(entries[0].0, rel("pipe")),
        other => panic!("a pipe was committed: {other:?}"),
    }
    fixture.assert_untouched(&before);
    open.try_commit(&only(&["a.txt"])).unwrap();
    assert_eq!(original(fixture, "a.txt"), "changed\n");
}
