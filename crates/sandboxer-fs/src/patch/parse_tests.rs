#![allow(clippy::unwrap_used)]
//! Patches as several tools write them, as people leave them, and as nobody should.

use proptest::prelude::*;
use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType};

use super::*;
use crate::patch::render_entry;

fn files(patch: &str) -> Vec<FilePatch> {
    parse_files(patch.as_bytes()).unwrap()
}

fn one(patch: &str) -> FilePatch {
    let mut all = files(patch);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

const HUNK: &str = "@@ -1 +1 @@\n-a\n+b\n";

#[test]
fn git_headers_and_plain_ones_name_the_file() {
    for head in [
        "diff --git a/src/x b/src/x\nindex 1..2 100644\n--- a/src/x\n+++ b/src/x\n",
        "--- a/src/x\n+++ b/src/x\n",
        "diff -ru old/src/x new/src/x\n--- old/src/x\t2024-01-01 00:00:00 +0000\n+++ new/src/x\t2024-01-02 00:00:00\n",
        "--- i/src/x\r\n+++ w/src/x\r\n",
        "diff --git src/x src/x\n--- src/x\n+++ src/x\n",
    ] {
        let file = one(&format!("Subject: junk\n\n{head}{HUNK}"));
        assert_eq!((file.path, file.kind), (path("src/x"), FilePatchKind::Modified), "{head}");
        assert_eq!(file.hunks, HUNK.as_bytes());
    }
}

#[test]
fn a_plain_diff_of_two_names_takes_the_new_one() {
    assert_eq!(one(&format!("--- x.orig\n+++ x\n{HUNK}")).path, path("x"));
    assert_eq!(one(&format!("--- a\n+++ a\n{HUNK}")).path, path("a"));
    assert_eq!(one(&format!("--- a/x\n+++ a/x\n{HUNK}")).path, path("a/x"), "written without prefixes");
}

#[test]
fn whole_files_come_go_and_move() {
    let created = one(
        "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n",
    );
    assert_eq!((created.kind, created.path), (FilePatchKind::Created, path("x")));
    assert_eq!(one("diff --git a/x b/x\nnew file mode 100644\n").kind, FilePatchKind::Created);
    assert_eq!(one("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n").kind, FilePatchKind::Created);
    let deleted =
        one("diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n");
    assert_eq!((deleted.kind, deleted.path), (FilePatchKind::Deleted, path("x")));
    let renamed = one("diff --git a/x b/y z\nsimilarity index 90%\nrename from x\nrename to y z\n");
    assert_eq!(
        (renamed.kind, renamed.path, renamed.from),
        (FilePatchKind::Renamed, path("y z"), Some(path("x")))
    );
}

#[test]
fn binaries_and_modes_have_no_hunks() {
    let patch = "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nIcmZ\n\nliteral 0\nHcmV\n\n\
                 diff --git a/y b/y\nBinary files a/y and b/y differ\n\
                 diff --git a/z b/z\nold mode 100644\nnew mode 100755\n";
    let kinds: Vec<(String, FilePatchKind)> =
        files(patch).into_iter().map(|file| (file.path.to_string(), file.kind)).collect();
    let expected =
        [("x", FilePatchKind::Binary), ("y", FilePatchKind::Binary), ("z", FilePatchKind::ModeOnly)];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
}

#[test]
fn a_mode_beside_hunks_is_noticed() {
    let file =
        one(&format!("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n--- a/x\n+++ b/x\n{HUNK}"));
    assert_eq!((file.kind, file.mode_changed), (FilePatchKind::Modified, true));
}

#[test]
fn names_on_the_git_line_alone() {
    let names = |text: &str| {
        one(&format!("diff --git {text}\nold mode 100644\nnew mode 100755\n")).path.as_bytes().to_vec()
    };
    assert_eq!(names("a/with space b/with space"), b"with space");
    assert_eq!(names(r#""a/q\"\303\251" "b/q\"\303\251""#), "q\"é".as_bytes());
    assert_eq!(names("x y/b x y/b"), b"x y/b");
}

#[test]
fn lines_that_look_like_headers_are_lines_where_the_counts_say_so() {
    let hunk = "@@ -1,2 +1,2 @@\n-- x\n--- y\n+++ y\n++ x\n";
    let patch = format!("--- a/x\n+++ b/x\n{hunk}--- a/y\n+++ b/y\n{HUNK}");
    let all = files(&patch);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].hunks, hunk.as_bytes());
    let tricky = format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- y\n+++ y\n{HUNK}");
    assert_eq!(one(&tricky).hunks, format!("@@ -1 +1 @@\n--- y\n+++ y\n{HUNK}").as_bytes());
}

#[test]
fn edited_hunks_are_as_long_as_their_lines() {
    let hunk = "@@ -1,9 +1,9 @@\n a\n-b\n";
    let more = "@@ -1 +1 @@\n-a\n+b\n+c\n d\n";
    let patch = format!("--- a/x\n+++ b/x\n{hunk}{more}--- a/y\n+++ b/y\n{HUNK}");
    let all = files(&patch);
    assert_eq!(all[0].hunks, format!("{hunk}{more}").as_bytes());
    assert_eq!(all[1].path, path("y"));
}

#[test]
fn mails_end_with_a_signature() {
    let patch = format!("From 1 Mon\nSubject: x\n---\n x | 2 +-\n\n--- a/x\n+++ b/x\n{HUNK}-- \n2.39.5\n\n");
    assert_eq!(one(&patch).hunks, HUNK.as_bytes());
}

#[test]
fn a_missing_newline_at_the_end_is_forgiven() {
    assert_eq!(one("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b").hunks, HUNK.as_bytes());
    let unended = "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n";
    assert_eq!(one(&format!("--- a/x\n+++ b/x\n{unended}")).hunks, unended.as_bytes());
}

#[test]
fn errors_say_where() {
    let error = |patch: &str| parse_files(patch.as_bytes()).unwrap_err();
    assert_eq!(error(&format!("junk\n{HUNK}")).line, 2);
    assert_eq!(error(&format!("--- a/../x\n+++ b/../x\n{HUNK}")).line, 1);
    assert!(error(&format!("--- /etc/x\n+++ /etc/x\n{HUNK}")).reason.contains("absolute"));
    assert_eq!(error("--- a/x\n+++ b/x\n@@ -1 +1\n").line, 3);
    assert_eq!(error(&format!("--- \"a/x\n+++ b/x\n{HUNK}")).line, 1);
    assert_eq!(error("diff --git a b c d\nold mode 1\n").line, 1);
    assert!(files("nothing\nof a patch\n").is_empty());
}

fn node(mode: u32) -> Option<Node> {
    let node_type = NodeType::File;
    Some(Node { node_type, mode, uid: 0, gid: 0, size: 0, digest: None, target: None, xattrs: None })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        3 => "[ab]{0,1}\n".prop_map(String::into_bytes),
        1 => Just(b"-- a/x\n".to_vec()),
        1 => Just(b"++ b/x\n".to_vec()),
        1 => Just(b"diff --git a/x b/x\n".to_vec()),
        1 => "[^\0]{0,3}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(line, 1..30).prop_map(|lines| lines.concat())
}

fn rel_path() -> impl Strategy<Value = RelPath> {
    let names = proptest::collection::vec(any::<u8>(), 1..9);
    names.prop_filter_map("not a path", |bytes| RelPath::from_bytes(bytes).ok())
}

proptest! {
    #[test]
    fn what_diff_writes_is_read_back(name in rel_path(), old in text(), new in text()) {
        let mut entry = DiffEntry::new(name.clone(), DiffKind::Modified);
        (entry.old, entry.new) = (node(0o644), node(0o644));
        let mut patch = Vec::new();
        render_entry(&entry, Some(&old), Some(&new), &mut patch).unwrap();
        patch.extend_from_slice(b"--- a/next\n+++ b/next\n@@ -1 +1 @@\n-a\n+b\n");
        let read = parse_files(&patch).unwrap();
        prop_assert_eq!(read.last().unwrap().path.as_bytes(), b"next");
        if old == new {
            prop_assert_eq!(read.len(), 1);
        } else {
            prop_assert_eq!((read.len(), &read[0].path), (2, &name));
            prop_assert_eq!(crate::patch::apply_exactly(&old, &read[0].hunks).unwrap(), new);
        }
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), lines in proptest::collection::vec(0usize..12, 0..30)) {
        const PIECES: [&[u8]; 12] = [
            b"diff --git ", b"a/x b/x\n", b"--- ", b"+++ ", b"\"a\\", b"@@ -1 +1 @@\n", b"@@ -1,9 +0,0 @@",
            b"\n", b"-", b"+x\n", b"GIT binary patch\n", b"rename from ",
        ];
        let _ = parse_files(&bytes);
        let soup: Vec<u8> = lines.into_iter().flat_map(|piece| PIECES[piece].to_vec()).collect();
        let _ = parse_files(&soup);
    }
}
