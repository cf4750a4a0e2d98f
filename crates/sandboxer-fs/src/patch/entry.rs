//! One entry of a diff as its part of a git-style patch.
//!
//! Git knows three kinds of content: a file, an executable file, and a symbolic link whose content is its target. An entry's
//! two sides are reduced to those first; whatever is left over (directories, pipes, owners, attributes) a patch cannot express and
//! is passed over in silence. What remains is one of three cases: something appears, something goes, something changes.

use std::io::{self, BufWriter, Write};

use data_encoding::HEXLOWER;
use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RelPath};
use sha1::{Digest, Sha1};

use super::align::LineDiff;
use super::hunk::{hunks_of, render_hunk, render_whole};
use super::is_binary;
use super::literal::write_literal;
use super::quote::{write_name, write_word};

const NO_BLOB: &str = "0000000000000000000000000000000000000000";
const NO_FILE: &str = "/dev/null";

/// Writes the patch of one entry: nothing where a patch has no words for the difference.
///
/// `old` and `new` are the contents of its two sides; of a symbolic link, the target. They are needed wherever the content
/// differs: one that is missing then is an error of kind `InvalidInput`. A change of type is a deletion followed by a creation.
pub fn render_entry(
    entry: &DiffEntry,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let old_path = entry.from.as_ref().unwrap_or(&entry.path);
    let old = entry.old.as_ref().and_then(|node| Side::of(node, old_path, old));
    let new = entry.new.as_ref().and_then(|node| Side::of(node, &entry.path, new));
    match (old, new) {
        (Some(old), Some(new)) if old.is_link() == new.is_link() => {
            write_change(&mut out, entry, &old, &new)?
        }
        (old, new) => {
            old.map(|side| write_whole(&mut out, entry, &side, Whole::Deleted)).transpose()?;
            new.map(|side| write_whole(&mut out, entry, &side, Whole::Created)).transpose()?;
        }
    }
    out.flush()
}

/// One side of an entry, as git sees it.
struct Side<'a> {
    path: &'a RelPath,
    node: &'a Node,
    mode: &'static str,
    content: Option<&'a [u8]>,
}

const LINK_MODE: &str = "120000";

impl<'a> Side<'a> {
    /// `None` for what git has no word for.
    fn of(node: &'a Node, path: &'a RelPath, content: Option<&'a [u8]>) -> Option<Self> {
        let target = node.target.as_deref().map(str::as_bytes);
        let (mode, content) = match node.node_type {
            NodeType::File if node.mode & 0o100 != 0 => ("100755", content),
            NodeType::File => ("100644", content),
            NodeType::Symlink => (LINK_MODE, content.or(target)),
            _ => return None,
        };
        Some(Self { path, node, mode, content })
    }

    fn is_link(&self) -> bool {
        self.mode == LINK_MODE
    }

    fn content(&self) -> io::Result<&'a [u8]> {
        let missing = || format!("no content was given for the patch of {}", self.path);
        self.content.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, missing()))
    }

    fn is_binary(&self, entry: &DiffEntry, content: &[u8]) -> bool {
        !self.is_link() && (entry.binary || is_binary(content))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Created,
    Deleted,
}

/// Something that appears or goes as a whole.
fn write_whole(out: &mut dyn Write, entry: &DiffEntry, side: &Side<'_>, whole: Whole) -> io::Result<()> {
    let content = side.content()?;
    let blob = blob_id(content);
    write_git_line(out, side.path, side.path)?;
    match whole {
        Whole::Created => writeln!(out, "new file mode {}\nindex {NO_BLOB}..{blob}", side.mode)?,
        Whole::Deleted => writeln!(out, "deleted file mode {}\nindex {blob}..{NO_BLOB}", side.mode)?,
    }
    let created = whole == Whole::Created;
    if content.is_empty() {
        return Ok(());
    }
    if side.is_binary(entry, content) {
        return if created { write_binary(out, b"", content) } else { write_binary(out, content, b"") };
    }
    write_file_line(out, "---", "a/", (!created).then_some(side.path))?;
    write_file_line(out, "+++", "b/", created.then_some(side.path))?;
    render_whole(content, if created { b'+' } else { b'-' }, out)
}

/// Something that is there on both sides: moved, with another mode, with other content, or any of these at once.
fn write_change(out: &mut dyn Write, entry: &DiffEntry, old: &Side<'_>, new: &Side<'_>) -> io::Result<()> {
    let body = Body::of(entry, old, new)?;
    let moved = old.path != new.path;
    if !moved && old.mode == new.mode && matches!(body, Body::Same) {
        return Ok(());
    }
    write_git_line(out, old.path, new.path)?;
    if old.mode != new.mode {
        writeln!(out, "old mode {}\nnew mode {}", old.mode, new.mode)?;
    }
    if moved {
        writeln!(out, "similarity index {}%", body.similarity())?;
        write_path_line(out, "rename from ", old.path)?;
        write_path_line(out, "rename to ", new.path)?;
    }
    body.write(out, old, new)
}

/// How the content of a changed entry differs.
enum Body<'a> {
    Same,
    Binary { old: &'a [u8], new: &'a [u8] },
    Text { old: &'a [u8], new: &'a [u8], diff: LineDiff<'a> },
}

impl<'a> Body<'a> {
    fn of(entry: &DiffEntry, old: &Side<'a>, new: &Side<'a>) -> io::Result<Self> {
        if is_known_equal(entry, old, new) {
            return Ok(Self::Same);
        }
        let (old_content, new_content) = (old.content()?, new.content()?);
        if old.is_binary(entry, old_content) || new.is_binary(entry, new_content) {
            return Ok(Self::Binary { old: old_content, new: new_content });
        }
        let diff = LineDiff::compute(old_content, new_content);
        Ok(Self::Text { old: old_content, new: new_content, diff })
    }

    /// How much of the content is the same, in percent; git takes it as a comment.
    fn similarity(&self) -> usize {
        let (old, new, shared) = match self {
            Self::Same => return 100,
            Self::Binary { old, new } => (old, new, shared_ends(old, new)),
            Self::Text { old, new, diff } => (old, new, old.len() - removed_bytes(diff)),
        };
        (shared as u64 * 100 / old.len().max(new.len()) as u64).min(99) as usize
    }

    fn write(&self, out: &mut dyn Write, old_side: &Side<'_>, new_side: &Side<'_>) -> io::Result<()> {
        match self {
            Self::Same => Ok(()),
            Self::Binary { old, new } => {
                write_index_line(out, (old_side, old), (new_side, new))?;
                write_binary(out, old, new)
            }
            Self::Text { old, new, diff } => {
                write_index_line(out, (old_side, old), (new_side, new))?;
                write_file_line(out, "---", "a/", Some(old_side.path))?;
                write_file_line(out, "+++", "b/", Some(new_side.path))?;
                hunks_of(diff).try_for_each(|hunk| render_hunk(&hunk, out))
            }
        }
    }
}

/// Whether the contents are known to be equal: from the bytes, or from what the entry says of them.
fn is_known_equal(entry: &DiffEntry, old: &Side<'_>, new: &Side<'_>) -> bool {
    match (old.content, new.content) {
        (Some(old), Some(new)) => old == new,
        _ => {
            entry.kind == DiffKind::Metadata
                || old.node.digest.is_some() && old.node.digest == new.node.digest
        }
    }
}

fn removed_bytes(diff: &LineDiff<'_>) -> usize {
    diff.changes().iter().flat_map(|change| diff.old_lines(change.old.clone())).map(<[u8]>::len).sum()
}

/// How many bytes two contents have in common at their beginnings and ends.
fn shared_ends(old: &[u8], new: &[u8]) -> usize {
    let prefix = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old[prefix..].iter().rev().zip(new[prefix..].iter().rev());
    prefix + rest.take_while(|(old, new)| old == new).count()
}

/// Git leaves a name with spaces bare here; `patch`, which knows an empty or merely renamed file from this line alone,
/// cannot tell where it ends. Both understand quotes.
fn write_git_line(out: &mut dyn Write, old: &RelPath, new: &RelPath) -> io::Result<()> {
    out.write_all(b"diff --git ")?;
    write_word(out, "a/", old.as_bytes())?;
    out.write_all(b" ")?;
    write_word(out, "b/", new.as_bytes())?;
    writeln!(out)
}

fn write_path_line(out: &mut dyn Write, words: &str, path: &RelPath) -> io::Result<()> {
    out.write_all(words.as_bytes())?;
    write_name(out, "", path.as_bytes())?;
    writeln!(out)
}

/// A `---` or `+++` line. A tab after a name with spaces tells `patch` where the name ends.
fn write_file_line(out: &mut dyn Write, mark: &str, prefix: &str, path: Option<&RelPath>) -> io::Result<()> {
    write!(out, "{mark} ")?;
    let Some(path) = path else { return writeln!(out, "{NO_FILE}") };
    write_name(out, prefix, path.as_bytes())?;
    out.write_all(if path.as_bytes().contains(&b' ') { b"\t\n" } else { b"\n" })
}

/// The ids of both contents in full, as binary patches need them; the mode, where it has not changed.
fn write_index_line(out: &mut dyn Write, old: (&Side<'_>, &[u8]), new: (&Side<'_>, &[u8])) -> io::Result<()> {
    write!(out, "index {}..{}", blob_id(old.1), blob_id(new.1))?;
    if old.0.mode == new.0.mode { writeln!(out, " {}", new.0.mode) } else { writeln!(out) }
}

/// Both contents, so that the patch can be taken back too.
fn write_binary(out: &mut dyn Write, old: &[u8], new: &[u8]) -> io::Result<()> {
    out.write_all(b"GIT binary patch\n")?;
    write_literal(out, new)?;
    write_literal(out, old)
}

/// The id that git gives a content.
fn blob_id(content: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", content.len()));
    hasher.update(content);
    HEXLOWER.encode(&hasher.finalize())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn node(node_type: NodeType, mode: u32) -> Node {
        Node { node_type, mode, uid: 0, gid: 0, size: 0, digest: None, target: None, xattrs: None }
    }

    fn file() -> Option<Node> {
        Some(node(NodeType::File, 0o644))
    }

    fn executable() -> Option<Node> {
        Some(node(NodeType::File, 0o755))
    }

    fn entry(kind: DiffKind, old: Option<Node>, new: Option<Node>) -> DiffEntry {
        DiffEntry { old, new, ..DiffEntry::new(path("dir/f"), kind) }
    }

    fn render(entry: &DiffEntry, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        render_entry(entry, old, new, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const EMPTY_BLOB: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    const HELLO_BLOB: &str = "ce013625030ba8dba906f756967f9e9ca394464a";

    #[test]
    fn blob_ids_are_gits() {
        assert_eq!(blob_id(b""), EMPTY_BLOB);
        assert_eq!(blob_id(b"hello\n"), HELLO_BLOB);
    }

    #[test]
    fn created_files() {
        let entry = entry(DiffKind::Created, None, executable());
        assert_eq!(
            render(&entry, None, Some(b"hello\n")),
            format!(
                "diff --git a/dir/f b/dir/f\nnew file mode 100755\nindex {NO_BLOB}..{HELLO_BLOB}\n\
                 --- /dev/null\n+++ b/dir/f\n@@ -0,0 +1 @@\n+hello\n"
            )
        );
        assert_eq!(
            render(&entry, None, Some(b"")),
            format!("diff --git a/dir/f b/dir/f\nnew file mode 100755\nindex {NO_BLOB}..{EMPTY_BLOB}\n")
        );
    }

    #[test]
    fn deleted_files() {
        assert_eq!(
            render(&entry(DiffKind::Deleted, file(), None), Some(b"hello\n"), None),
            format!(
                "diff --git a/dir/f b/dir/f\ndeleted file mode 100644\nindex {HELLO_BLOB}..{NO_BLOB}\n\
                 --- a/dir/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n"
            )
        );
    }

    #[test]
    fn modified_content_with_and_without_another_mode() {
        let body = "--- a/dir/f\n+++ b/dir/f\n@@ -0,0 +1 @@\n+hello\n";
        assert_eq!(
            render(&entry(DiffKind::Modified, file(), file()), Some(b""), Some(b"hello\n")),
            format!("diff --git a/dir/f b/dir/f\nindex {EMPTY_BLOB}..{HELLO_BLOB} 100644\n{body}")
        );
        assert_eq!(
            render(&entry(DiffKind::Modified, file(), executable()), Some(b""), Some(b"hello\n")),
            format!(
                "diff --git a/dir/f b/dir/f\nold mode 100644\nnew mode 100755\n\
                 index {EMPTY_BLOB}..{HELLO_BLOB}\n{body}"
            )
        );
    }

    #[test]
    fn metadata_shows_as_far_as_git_has_words_for_it() {
        let mode = "diff --git a/dir/f b/dir/f\nold mode 100644\nnew mode 100755\n";
        assert_eq!(render(&entry(DiffKind::Metadata, file(), executable()), None, None), mode);
        assert_eq!(render(&entry(DiffKind::Metadata, file(), executable()), Some(b"x"), Some(b"x")), mode);
        let owner = Some(Node { uid: 5, ..node(NodeType::File, 0o600) });
        assert_eq!(render(&entry(DiffKind::Metadata, file(), owner), None, None), "");
        assert_eq!(render(&entry(DiffKind::Modified, file(), file()), Some(b"x"), Some(b"x")), "");
    }

    fn renamed(old: Option<Node>, new: Option<Node>) -> DiffEntry {
        DiffEntry { from: Some(path("was here")), ..entry(DiffKind::Renamed, old, new) }
    }

    #[test]
    fn renames() {
        let head = "diff --git \"a/was here\" b/dir/f\n";
        let names = "rename from was here\nrename to dir/f\n";
        assert_eq!(
            render(&renamed(file(), file()), Some(b"x"), Some(b"x")),
            format!("{head}similarity index 100%\n{names}")
        );
        let changed = render(&renamed(file(), executable()), Some(b"one\ntwo\n"), Some(b"one\nthree\n"));
        let expected = format!(
            "{head}old mode 100644\nnew mode 100755\nsimilarity index 40%\n{names}index {}..{}\n\
             --- a/was here\t\n+++ b/dir/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
            blob_id(b"one\ntwo\n"),
            blob_id(b"one\nthree\n"),
        );
        assert_eq!(changed, expected);
        let binary = render(&renamed(file(), file()), Some(b"\0 same\x01 end"), Some(b"\0 same\x02 end"));
        assert!(binary.contains("similarity index 90%\n"), "{binary}");
    }

    #[test]
    fn equal_digests_spare_the_content_of_a_rename() {
        let known = || Some(Node { digest: Some("blake3:1".into()), ..node(NodeType::File, 0o644) });
        assert!(render(&renamed(known(), known()), None, None).contains("similarity index 100%"));
    }

    #[test]
    fn symbolic_links_are_files_with_a_target() {
        let link = |to: &str| Some(Node { target: Some(to.into()), ..node(NodeType::Symlink, 0o777) });
        let shown = render(&entry(DiffKind::Modified, link("a"), link("b")), None, None);
        assert!(shown.contains(" 120000\n--- a/dir/f\n+++ b/dir/f\n"), "{shown}");
        assert!(shown.ends_with("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"));
        let exact = render(&entry(DiffKind::Created, None, link("lossy")), None, Some(b"exact"));
        assert!(exact.contains("new file mode 120000\n") && exact.contains("+exact\n"), "{exact}");
    }

    #[test]
    fn another_type_is_a_deletion_and_a_creation() {
        let link = Some(Node { target: Some("t".into()), ..node(NodeType::Symlink, 0o777) });
        let shown = render(&entry(DiffKind::Type, file(), link), Some(b"hello\n"), Some(b"t"));
        let (deleted, created) = (shown.find("deleted file mode 100644"), shown.find("new file mode 120000"));
        assert!(deleted.unwrap() < created.unwrap());
        assert_eq!(shown.matches("diff --git").count(), 2);
        let directory = Some(node(NodeType::Directory, 0o755));
        let shown = render(&entry(DiffKind::Type, file(), directory.clone()), Some(b"x"), None);
        assert!(shown.contains("deleted file mode") && !shown.contains("new file mode"), "{shown}");
        let shown = render(&entry(DiffKind::Type, directory, file()), None, Some(b"x"));
        assert!(shown.contains("new file mode") && !shown.contains("deleted file mode"), "{shown}");
    }

    #[test]
    fn what_git_has_no_word_for_is_passed_over() {
        for node_type in
            [NodeType::Directory, NodeType::Fifo, NodeType::Socket, NodeType::Device, NodeType::Other]
        {
            let there = || Some(node(node_type, 0o755));
            assert_eq!(render(&entry(DiffKind::Created, None, there()), None, None), "");
            assert_eq!(render(&entry(DiffKind::Deleted, there(), None), None, None), "");
            assert_eq!(render(&entry(DiffKind::Metadata, there(), there()), None, None), "");
        }
    }

    #[test]
    fn binaries_hold_both_directions() {
        let shown = render(&entry(DiffKind::Modified, file(), file()), Some(b"\0"), Some(b"\0\0"));
        let body = shown.split_once("GIT binary patch\n").unwrap().1;
        assert!(
            body.starts_with("literal 2\n") && body.contains("\n\nliteral 1\n") && body.ends_with("\n\n")
        );
        let created = render(&entry(DiffKind::Created, None, file()), None, Some(b"\0"));
        assert!(created.contains("GIT binary patch\nliteral 1\n") && created.contains("\nliteral 0\n"));
        let told = DiffEntry { binary: true, ..entry(DiffKind::Deleted, file(), None) };
        assert!(render(&told, Some(b"text\n"), None).contains("GIT binary patch\nliteral 0\n"));
    }

    #[test]
    fn a_missing_content_is_an_error_that_names_the_path() {
        let cases = [
            (entry(DiffKind::Created, None, file()), None),
            (entry(DiffKind::Deleted, file(), None), None),
            (entry(DiffKind::Modified, file(), file()), Some(&b"x"[..])),
        ];
        for (entry, old) in cases {
            let error =
                render_entry(&entry, if entry.new.is_some() { old } else { None }, None, &mut Vec::new());
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("dir/f"), "{error}");
        }
    }
}
