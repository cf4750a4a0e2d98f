//! Every way in which a sandbox can differ from its base, and what is no difference.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use sandboxer_core::model::{DiffEntry, DiffKind, DiffView, NodeType, RelPath, digest_of};

use super::fixture::{Fixture, Open, rel};
use crate::manifest::{set_mtime, set_xattr};

pub(super) fn nothing_differs_at_first(fixture: &Fixture) {
    let open = fixture.open();
    open.assert_clean();
    assert_eq!(open.diff().digest, DiffView::new(Vec::new()).digest);
}

pub(super) fn a_write_is_seen(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "changed\n");
    open.write("new.txt", "new\n");
    open.assert_kinds(&[("a.txt", DiffKind::Modified), ("new.txt", DiffKind::Created)]);
    let diff = open.diff();
    assert!(diff.entries.is_sorted_by_key(|e| e.path.clone()));
    assert_eq!(diff.digest, digest_of(&diff.entries));
}

pub(super) fn the_digest_follows_the_content(fixture: &Fixture) {
    let open = fixture.open();
    open.write("a.txt", "one\n");
    let first = open.diff().digest;
    assert_eq!(open.diff().digest, first, "a diff changed the digest");
    open.write("a.txt", "two\n");
    let second = open.diff().digest;
    assert_ne!(first, second);
    open.write("a.txt", "one\n");
    assert_eq!(open.diff().digest, first, "the same difference has another digest");
}

pub(super) fn created_modified_deleted(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("new.txt"), "new\n").unwrap();
    fs::write(open.path("a.txt"), "changed\n").unwrap();
    fs::remove_file(open.path("dir/c.txt")).unwrap();
    let expected =
        [("new.txt", DiffKind::Created), ("a.txt", DiffKind::Modified), ("dir/c.txt", DiffKind::Deleted)];
    open.assert_kinds(&expected);
    let entry = entry(&open, "a.txt");
    let (old, new) = (entry.old.unwrap(), entry.new.unwrap());
    assert_eq!((old.size, new.size, new.node_type), (6, 8, NodeType::File));
    assert_eq!(new.digest.unwrap(), format!("blake3:{}", blake3::hash(b"changed\n").to_hex()));
}

pub(super) fn a_renamed_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::rename(open.path("a.txt"), open.path("dir/moved.txt")).unwrap();
    open.assert_kinds(&[("dir/moved.txt", DiffKind::Renamed)]);
    assert_eq!(entry(&open, "dir/moved.txt").from, Some(rel("a.txt")));
}

/// Whether it is told as a rename or as a deletion and a creation, both ends have to show, and commit.
pub(super) fn a_renamed_and_edited_file_loses_nothing(fixture: &Fixture) {
    let open = fixture.open();
    fs::rename(open.path("a.txt"), open.path("moved.txt")).unwrap();
    fs::write(open.path("moved.txt"), "alpha\nand more\n").unwrap();
    let diff = open.diff();
    let named = |path: &str| diff.entries.iter().any(|e| e.path == rel(path) || e.from == Some(rel(path)));
    assert!(named("a.txt") && named("moved.txt"), "{diff:?}");
    open.commit();
    assert!(!fixture.original("a.txt").exists());
    assert_eq!(fs::read_to_string(fixture.original("moved.txt")).unwrap(), "alpha\nand more\n");
}

pub(super) fn a_renamed_directory(fixture: &Fixture) {
    let open = fixture.open();
    // As people do it: where the directory cannot be renamed, `mv` copies.
    let moved = std::process::Command::new("mv").args([open.path("dir"), open.path("moved")]).status();
    assert!(moved.unwrap().success());
    let diff = open.diff();
    let renames = |from: &str, to: &str| {
        let is =
            |e: &DiffEntry| e.kind == DiffKind::Renamed && e.from == Some(rel(from)) && e.path == rel(to);
        diff.entries.iter().any(is)
    };
    let files = renames("dir/c.txt", "moved/c.txt") && renames("dir/sub/d.txt", "moved/sub/d.txt");
    assert!(renames("dir", "moved") || files, "no rename among {:?}", diff.entries);
    open.commit();
    assert!(!fixture.original("dir").exists());
    assert_eq!(fs::read_to_string(fixture.original("moved/sub/d.txt")).unwrap(), "delta\n");
    open.assert_clean();
}

pub(super) fn a_mode(fixture: &Fixture) {
    let open = fixture.open();
    fs::set_permissions(open.path("a.txt"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(open.path("dir"), Permissions::from_mode(0o700)).unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Metadata), ("dir", DiffKind::Metadata)]);
    assert_eq!(entry(&open, "a.txt").new.unwrap().mode, 0o600);
}

pub(super) fn a_link_target(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_file(open.path("link")).unwrap();
    symlink("b.txt", open.path("link")).unwrap();
    open.assert_kinds(&[("link", DiffKind::Modified)]);
    let entry = entry(&open, "link");
    assert_eq!(entry.old.unwrap().target.as_deref(), Some("a.txt"));
    assert_eq!(entry.new.unwrap().target.as_deref(), Some("b.txt"));
}

pub(super) fn an_extended_attribute(fixture: &Fixture) {
    let open = fixture.open();
    if !set_xattr(&open.path("a.txt"), "user.colour", b"red") {
        return crate::skip("no extended attributes on this filesystem");
    }
    open.assert_kinds(&[("a.txt", DiffKind::Metadata)]);
    assert!(entry(&open, "a.txt").new.unwrap().xattrs.is_some());
}

pub(super) fn a_file_became_a_directory(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_file(open.path("a.txt")).unwrap();
    fs::create_dir(open.path("a.txt")).unwrap();
    fs::write(open.path("a.txt/inside"), "x\n").unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Type), ("a.txt/inside", DiffKind::Created)]);
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("a.txt/inside")).unwrap(), "x\n");
    open.assert_clean();
}

pub(super) fn a_directory_became_a_file(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_dir_all(open.path("dir")).unwrap();
    fs::write(open.path("dir"), "a file now\n").unwrap();
    let kinds = open.kinds();
    assert_eq!(kinds.get("dir"), Some(&DiffKind::Type), "{kinds:?}");
    assert_eq!(kinds.get("dir/sub/d.txt"), Some(&DiffKind::Deleted), "{kinds:?}");
    open.commit();
    assert_eq!(fs::read_to_string(fixture.original("dir")).unwrap(), "a file now\n");
    open.assert_clean();
}

pub(super) fn a_file_became_a_link(fixture: &Fixture) {
    let open = fixture.open();
    fs::remove_file(open.path("a.txt")).unwrap();
    symlink("b.txt", open.path("a.txt")).unwrap();
    fs::remove_file(open.path("link")).unwrap();
    fs::write(open.path("link"), "a file now\n").unwrap();
    open.assert_kinds(&[("a.txt", DiffKind::Type), ("link", DiffKind::Type)]);
    open.commit();
    assert_eq!(fs::read_link(fixture.original("a.txt")).unwrap().to_str(), Some("b.txt"));
    assert!(fs::symlink_metadata(fixture.original("link")).unwrap().is_file());
    open.assert_clean();
}

pub(super) fn empty_directories(fixture: &Fixture) {
    let open = fixture.open();
    fs::create_dir(open.path("newly empty")).unwrap();
    fs::remove_dir(open.path("empty")).unwrap();
    let kinds = open.kinds();
    let expected = [("newly empty", DiffKind::Created), ("empty", DiffKind::Deleted)];
    let renamed = kinds.get("newly empty") == Some(&DiffKind::Renamed) && kinds.len() == 1;
    assert!(renamed || expected.iter().all(|(path, kind)| kinds.get(*path) == Some(kind)), "{kinds:?}");
    open.commit();
    assert!(fixture.original("newly empty").is_dir() && !fixture.original("empty").exists());
}

pub(super) fn an_edit_of_the_same_size_and_time(fixture: &Fixture) {
    let open = fixture.open();
    let meta = fs::metadata(open.path("a.txt")).unwrap();
    fs::write(open.path("a.txt"), "ALPHA\n").unwrap();
    set_mtime(&open.path("a.txt"), meta.mtime(), meta.mtime_nsec());
    open.assert_kinds(&[("a.txt", DiffKind::Modified)]);
}

pub(super) fn a_touch_is_no_difference(fixture: &Fixture) {
    let open = fixture.open();
    for path in ["a.txt", "dir", "link"] {
        set_mtime(&open.path(path), 1_234_567, 89);
    }
    open.assert_clean();
}

pub(super) fn a_rewrite_with_the_same_content_is_no_difference(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("a.txt"), "alpha\n").unwrap();
    fs::remove_file(open.path("b.txt")).unwrap();
    fs::write(open.path("b.txt"), "beta\n").unwrap();
    open.assert_clean();
}

pub(super) fn odd_names_survive(fixture: &Fixture) {
    let open = fixture.open();
    let names: [&[u8]; 5] =
        [b"new\nline", b"esc\x1b[2J", "bidi\u{202e}x".as_bytes(), b"bad\xff\xfe", b"base64:eA=="];
    for name in names {
        fs::write(open.path("").join(OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let diff: DiffView = serde_json::from_str(&serde_json::to_string(&open.diff()).unwrap()).unwrap();
    for name in names {
        let path = RelPath::from_bytes(name).unwrap();
        assert!(diff.entries.iter().any(|e| e.path == path), "{path:?} was lost");
    }
    open.commit();
    for name in names {
        assert!(fixture.original("").join(OsStr::from_bytes(name)).exists());
    }
}

pub(super) fn binary_content_is_told(fixture: &Fixture) {
    let open = fixture.open();
    fs::write(open.path("binary"), b"\x00\x01\x02\xff").unwrap();
    fs::write(open.path("text"), "text\n").unwrap();
    assert!(entry(&open, "binary").binary && !entry(&open, "text").binary);
}

fn entry(open: &Open<'_>, path: &str) -> DiffEntry {
    let diff = open.diff();
    let found = diff.entries.iter().find(|e| e.path == rel(path)).cloned();
    found.unwrap_or_else(|| panic!("{path} is not among {:?}", diff.entries))
}
