#![allow(clippy::unwrap_used)]
//! Patches against a small difference: what they choose, and why they are refused.

use sandboxer_core::model::{Node, NodeType};
use sandboxer_fs::content::Sides;

use super::*;
use crate::cli::exit;

const OLD: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
const NEW: &str = "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n10\neleven\n12\n";

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

fn node(mode: u32) -> Option<Node> {
    let node_type = NodeType::File;
    Some(Node { node_type, mode, uid: 0, gid: 0, size: 1, digest: None, target: None, xattrs: None })
}

fn entry(name: &str, kind: DiffKind) -> DiffEntry {
    let mut entry = DiffEntry::new(path(name), kind);
    entry.old = if kind == DiffKind::Created { None } else { node(0o644) };
    entry.new = if kind == DiffKind::Deleted { None } else { node(0o644) };
    entry
}

fn difference() -> Vec<DiffEntry> {
    let mut mode = entry("mode", DiffKind::Modified);
    mode.new = node(0o755);
    let mut to = entry("to", DiffKind::Renamed);
    to.from = Some(path("from"));
    vec![
        entry("gone", DiffKind::Deleted),
        entry("meta", DiffKind::Metadata),
        mode,
        DiffEntry { moved: true, ..entry("moved", DiffKind::Modified) },
        entry("new", DiffKind::Created),
        entry("text", DiffKind::Modified),
        to,
    ]
}

fn load(entry: &DiffEntry) -> Result<Sides, CliError> {
    let side = |text: &str| Some(text.as_bytes().to_vec());
    Ok(match entry.kind {
        DiffKind::Created => Sides { old: None, new: side("new\nfile\n") },
        DiffKind::Deleted => Sides { old: side("gone\n"), new: None },
        DiffKind::Renamed => Sides { old: side("same\n"), new: side("same\n") },
        _ => Sides { old: side(OLD), new: side(NEW) },
    })
}

fn chosen(patch: &str, purpose: Purpose) -> Result<Chosen, CliError> {
    let entries = difference();
    PatchSelector::new(&entries, purpose, &load).run(patch::parse_files(patch.as_bytes()).unwrap())
}

fn refusal(patch: &str) -> (u8, String) {
    let error = chosen(patch, Purpose::Commit).unwrap_err();
    (error.exit, error.message.clone())
}

const FIRST: &str = "@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n";
const LAST: &str = "@@ -8,5 +8,5 @@\n 8\n 9\n 10\n-11\n+eleven\n 12\n";

fn of(name: &str, hunks: &str) -> String {
    format!("diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n{hunks}")
}

#[test]
fn hunks_are_handed_on_as_they_stand() {
    for purpose in [Purpose::Commit, Purpose::Discard] {
        let chosen = chosen(&of("text", LAST), purpose).unwrap();
        assert!(chosen.whole.is_empty());
        assert_eq!(
            (&chosen.files[0].path, chosen.files[0].hunks.as_slice()),
            (&path("text"), LAST.as_bytes())
        );
    }
}

#[test]
fn whole_entries_are_named_by_their_paths() {
    let created = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+new\n+file\n";
    let deleted = "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";
    let mode = "diff --git a/meta b/meta\nold mode 100644\nnew mode 100755\n";
    let rename = "diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n";
    let chosen = chosen(&[created, deleted, mode, rename].concat(), Purpose::Commit).unwrap();
    assert_eq!(chosen.whole, ["gone", "meta", "new", "to"].map(path));
    assert_eq!(chosen.seen.len(), 4);
    assert!(chosen.files.is_empty());
}

#[test]
fn a_rename_may_be_told_as_two_changes_but_not_as_one() {
    let created = "--- /dev/null\n+++ b/to\n@@ -0,0 +1 @@\n+same\n";
    let deleted = "--- a/from\n+++ /dev/null\n@@ -1 +0,0 @@\n-same\n";
    assert_eq!(chosen(&[created, deleted].concat(), Purpose::Commit).unwrap().whole, [path("to")]);
    assert_eq!(refusal(created).0, exit::USAGE);
    assert_eq!(refusal(deleted).0, exit::USAGE);
}

#[test]
fn a_mode_comes_with_the_whole_file_alone() {
    let head = "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n--- a/mode\n+++ b/mode\n";
    let all = chosen(&format!("{head}{FIRST}{LAST}"), Purpose::Commit).unwrap();
    assert_eq!((all.whole, all.files), (vec![path("mode")], vec![]));
    let some = chosen(&format!("{head}{FIRST}"), Purpose::Commit).unwrap();
    assert_eq!((some.whole.len(), some.files.len()), (0, 1));
}

#[test]
fn what_does_not_apply_is_a_usage_error_that_names_file_and_hunk() {
    let (code, message) = refusal(&of("text", "@@ -1,2 +1,2 @@ fn\n 1\n-zwei\n+two\n"));
    assert_eq!(code, exit::USAGE);
    assert!(message.contains("text") && message.contains("`@@ -1,2 +1,2 @@`"), "{message}");
}

#[test]
fn what_the_sandbox_did_not_do_is_refused() {
    let (code, message) = refusal(&of("text", "@@ -1,2 +1,2 @@\n 1\n-2\n+zwei\n"));
    assert_eq!(code, exit::REFUSED);
    assert!(message.contains("text") && message.contains("`@@ -1,2 +1,2 @@`"), "{message}");
}

#[test]
fn what_is_not_in_the_difference_is_not_found() {
    assert_eq!(refusal(&of("other", FIRST)).0, exit::NOT_FOUND);
}

#[test]
fn whole_entries_cannot_be_had_in_part() {
    let part =
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n";
    let (code, message) = refusal(part);
    assert_eq!((code, message.contains("as a whole")), (exit::USAGE, true), "{message}");
    assert_eq!(refusal(&of("new", FIRST)).0, exit::USAGE);
    assert_eq!(refusal("diff --git a/text b/text\nold mode 100644\nnew mode 100755\n").0, exit::USAGE);
}

#[test]
fn the_same_file_twice_and_a_moved_original_are_refused() {
    assert_eq!(refusal(&[of("text", FIRST), of("text", LAST)].concat()).0, exit::USAGE);
    assert_eq!(refusal(&of("moved", FIRST)).0, exit::CONFLICT);
}
