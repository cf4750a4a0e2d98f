//! What can be chosen of an entry: its hunks, all of it, or nothing.

use std::collections::BTreeSet;

use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RelPath};
use sandboxer_documents::patch::is_huge;

use super::Purpose;
use crate::cli::output;

/// What a person is asked about one entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer<'e> {
    pub entry: &'e DiffEntry,
    pub part: Part,
}

/// How much of it there is to choose.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Hunks, if its content turns out to be text.
    Hunks,
    /// All or nothing of it; called by this name in the question.
    Whole(&'static str),
    /// Nothing, for this reason.
    Nothing(String),
}

/// The questions about a difference, in its order. What comes with another entry is not asked about.
pub fn offers(entries: &[DiffEntry], purpose: Purpose) -> Vec<Offer<'_>> {
    let greedy: BTreeSet<&RelPath> =
        entries.iter().filter(|entry| takes_all_below(entry)).map(|entry| &entry.path).collect();
    let asked = entries.iter().filter(|entry| !comes_along(entry, &greedy));
    let offer = |entry| {
        let part = part_of(entry, has_entries_below(entry, entries), purpose)?;
        Some(Offer { entry, part })
    };
    asked.filter_map(offer).collect()
}

/// Whether an entry lies, or lay, below one that takes everything below it along.
fn comes_along(entry: &DiffEntry, greedy: &BTreeSet<&RelPath>) -> bool {
    let above =
        |path: &RelPath| std::iter::successors(path.parent(), RelPath::parent).any(|p| greedy.contains(&p));
    !greedy.is_empty() && (above(&entry.path) || entry.from.as_ref().is_some_and(above))
}

/// Whether a directory is, or was, there.
pub fn is_directory(entry: &DiffEntry) -> bool {
    let directory = |node: &Node| node.node_type == NodeType::Directory;
    entry.old.iter().chain(&entry.new).any(directory)
}

/// What comes with an entry that is chosen as a whole.
pub fn taken_along<'e>(entry: &DiffEntry, all: &'e [DiffEntry]) -> Vec<&'e DiffEntry> {
    if !is_directory(entry) {
        return Vec::new();
    }
    let path = std::slice::from_ref(&entry.path);
    all.iter().filter(|other| other.path != entry.path && other.is_selected(path)).collect()
}

/// Whether choosing this entry means choosing what is below it: it goes, moves, or becomes something else.
fn takes_all_below(entry: &DiffEntry) -> bool {
    is_directory(entry) && matches!(entry.kind, DiffKind::Deleted | DiffKind::Renamed | DiffKind::Type)
}

/// Whether anything below a directory is among the entries. They are sorted by bytes, in which `a-b` stands between `a` and `a/b`: so it is not enough to look at the next one.
fn has_entries_below(entry: &DiffEntry, entries: &[DiffEntry]) -> bool {
    if !is_directory(entry) {
        return false;
    }
    let first = [entry.path.as_bytes(), b"/"].concat();
    let at = entries.partition_point(|other| other.path.as_bytes() < &first[..]);
    entries.get(at).is_some_and(|other| other.path.is_within(&entry.path))
}

/// `None` for what comes by itself: a new directory comes with the first file in it.
fn part_of(entry: &DiffEntry, has_below: bool, purpose: Purpose) -> Option<Part> {
    if let Some(reason) = entry.refused.as_ref().filter(|_| purpose == Purpose::Commit) {
        return Some(Part::Nothing(format!("it cannot be committed: {}", output::sentence(reason))));
    }
    if has_below && entry.kind == DiffKind::Created {
        return None;
    }
    if has_below && matches!(entry.kind, DiffKind::Metadata | DiffKind::Modified) {
        return Some(Part::Nothing("it can only be chosen by its path, with everything below it".to_owned()));
    }
    Some(if has_hunks(entry) { Part::Hunks } else { Part::Whole(noun(entry)) })
}

/// Changed lines of a regular file whose base can be read.
pub fn has_hunks(entry: &DiffEntry) -> bool {
    let file = |node: &Option<Node>| node.as_ref().is_some_and(|node| node.node_type == NodeType::File);
    entry.kind == DiffKind::Modified
        && file(&entry.old)
        && file(&entry.new)
        && !(entry.binary || entry.moved || entry.text.is_some() || is_huge(entry))
}

fn noun(entry: &DiffEntry) -> &'static str {
    let directory = is_directory(entry);
    match entry.kind {
        DiffKind::Created if directory => "this new directory",
        DiffKind::Created => "this new file",
        DiffKind::Deleted if directory => "this deletion, with everything below it",
        DiffKind::Deleted => "this deletion",
        DiffKind::Renamed if directory => "this rename, with everything below it",
        DiffKind::Renamed => "this rename",
        DiffKind::Metadata => "this change of metadata",
        DiffKind::Type => "this change of type",
        DiffKind::Modified if entry.binary => BINARY,
        DiffKind::Modified => "this change as a whole",
    }
}

/// What a file is called whose content is not text.
pub const BINARY: &str = "this binary file";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn node(node_type: NodeType) -> Option<Node> {
        Some(Node {
            node_type,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 1,
            digest: None,
            target: None,
            xattrs: None,
        })
    }

    fn entry(path: &str, kind: DiffKind, node_type: NodeType) -> DiffEntry {
        let mut entry = DiffEntry::new(RelPath::parse(path).unwrap(), kind);
        entry.old = if kind == DiffKind::Created { None } else { node(node_type) };
        entry.new = if kind == DiffKind::Deleted { None } else { node(node_type) };
        entry
    }

    fn asked(entries: &[DiffEntry], purpose: Purpose) -> Vec<(String, Part)> {
        offers(entries, purpose).into_iter().map(|offer| (offer.entry.path.to_string(), offer.part)).collect()
    }

    #[test]
    fn only_changed_text_files_have_hunks() {
        use NodeType::{Directory, File, Symlink};
        let part = |entry: DiffEntry| asked(&[entry], Purpose::Commit).remove(0).1;
        assert_eq!(part(entry("x", DiffKind::Modified, File)), Part::Hunks);
        assert_eq!(part(entry("x", DiffKind::Modified, Symlink)), Part::Whole("this change as a whole"));
        assert_eq!(part(entry("x", DiffKind::Created, File)), Part::Whole("this new file"));
        assert_eq!(part(entry("x", DiffKind::Created, Directory)), Part::Whole("this new directory"));
        assert_eq!(part(entry("x", DiffKind::Metadata, File)), Part::Whole("this change of metadata"));
        let binary = DiffEntry { binary: true, ..entry("x", DiffKind::Modified, File) };
        assert_eq!(part(binary), Part::Whole(BINARY));
        let moved = DiffEntry { moved: true, ..entry("x", DiffKind::Modified, File) };
        assert_eq!(part(moved), Part::Whole("this change as a whole"));
    }

    #[test]
    fn what_cannot_be_committed_can_be_discarded() {
        let pipe =
            DiffEntry { refused: Some("a pipe".into()), ..entry("x", DiffKind::Created, NodeType::Fifo) };
        let all = [pipe];
        assert!(
            matches!(&asked(&all, Purpose::Commit)[0].1, Part::Nothing(reason) if reason.contains("a pipe"))
        );
        assert_eq!(asked(&all, Purpose::Discard)[0].1, Part::Whole("this new file"));
    }

    #[test]
    fn directories_come_with_what_is_in_them_or_take_it_along() {
        use NodeType::{Directory, File};
        let all = [
            entry("gone", DiffKind::Deleted, Directory),
            entry("gone-not", DiffKind::Modified, File),
            entry("gone/a", DiffKind::Deleted, Directory),
            entry("gone/a/b", DiffKind::Deleted, File),
            entry("meta", DiffKind::Metadata, Directory),
            entry("meta/x", DiffKind::Modified, File),
            entry("new", DiffKind::Created, Directory),
            entry("new/x", DiffKind::Created, File),
        ];
        let names: Vec<String> = asked(&all, Purpose::Commit).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["gone", "gone-not", "meta", "meta/x", "new/x"]);
        assert!(matches!(asked(&all, Purpose::Commit)[2].1, Part::Nothing(_)));
    }
}
