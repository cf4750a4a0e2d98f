//! Everything that differs from the base, entry by entry.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RelPath, RowChange};

/// What one `write` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where.
    pub path: RelPath,
    /// `Created` or `Modified`.
    pub kind: DiffKind,
    /// Size before, if it existed.
    pub old_size: Option<u64>,
    /// Size now.
    pub new_size: u64,
}

/// How an entry differs from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiffKind {
    /// It is new.
    Created,
    /// Its content (or a link's target) differs.
    Modified,
    /// It is gone.
    Deleted,
    /// It was moved here from `from`; its content may differ too.
    Renamed,
    /// Only mode, owner or extended attributes differ.
    Metadata,
    /// It is another type of thing now: a directory where a file was.
    Type,
}

/// What kind of thing an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe. Never committed.
    Fifo,
    /// A socket. Never committed.
    Socket,
    /// A device. Never committed.
    Device,
    /// A row, an object: whatever a strategy without files isolates.
    Other,
}

/// One side of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What it is.
    #[serde(rename = "type")]
    pub node_type: NodeType,
    /// Permission bits, the file type not among them.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of a file in bytes.
    pub size: u64,
    /// `blake3:` and the hash of the content; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Target of a symbolic link; lossy where it is not UTF-8 (the digest is exact).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Digest of all extended attributes (ACLs among them); `None` where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xattrs: Option<String>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffEntry {
    /// Where it is now (or was, if deleted).
    pub path: RelPath,
    /// How it differs.
    pub kind: DiffKind,
    /// Where it was, if renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RelPath>,
    /// The base's side; `None` if created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Node>,
    /// The sandbox's side; `None` if deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Node>,
    /// Whether its content is not text.
    #[serde(default)]
    pub binary: bool,
    /// Whether the original has changed here since the base: a commit of this entry would conflict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// A rendered difference, from strategies whose content is not files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The row of a database that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<RowChange>,
    /// Why this entry cannot be committed, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What a careful person should look at: `setuid`, `runs by itself`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl DiffEntry {
    /// An entry with nothing but its path and kind.
    pub fn new(path: RelPath, kind: DiffKind) -> Self {
        Self {
            path,
            kind,
            from: None,
            old: None,
            new: None,
            binary: false,
            moved: false,
            text: None,
            row: None,
            refused: None,
            flags: Vec::new(),
        }
    }

    /// Whether a directory comes to be here.
    pub fn makes_directory(&self) -> bool {
        let is_dir = self.new.as_ref().is_some_and(|n| n.node_type == NodeType::Directory);
        is_dir && matches!(self.kind, DiffKind::Created | DiffKind::Renamed | DiffKind::Type)
    }

    /// Whether the entry lies within one of `paths`, either where it is or where it came from; no paths means yes.
    pub fn is_selected(&self, paths: &[RelPath]) -> bool {
        let within = |path: &RelPath| paths.iter().any(|p| path.is_within(p));
        paths.is_empty() || within(&self.path) || self.from.as_ref().is_some_and(within)
    }
}

/// Everything that differs, sorted by path, with one digest over all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffView {
    /// See [`digest_of`].
    pub digest: String,
    /// Sorted by path.
    pub entries: Vec<DiffEntry>,
    /// Why this cannot be prepared, if it cannot: together with others, it is committed first of all, and decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_decision: Option<String>,
    /// What a careful person has to know of it: what was compared otherwise than usual, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

impl DiffView {
    /// Sorts the entries and computes the digest.
    pub fn new(mut entries: Vec<DiffEntry>) -> Self {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Self { digest: digest_of(&entries), entries, at_decision: None, notices: Vec::new() }
    }

    /// The part within `paths`, with a digest of its own. New directories above a selected entry belong to the part:
    /// the entry could not be there without them.
    pub fn select(self, paths: &[RelPath]) -> Self {
        if paths.is_empty() {
            return self;
        }
        let mut chosen: BTreeSet<RelPath> = BTreeSet::new();
        for entry in self.entries.iter().filter(|e| e.is_selected(paths)) {
            chosen.insert(entry.path.clone());
            chosen.extend(ancestors(entry));
        }
        let is_chosen =
            |e: &DiffEntry| chosen.contains(&e.path) && (e.is_selected(paths) || e.makes_directory());
        let part = Self::new(self.entries.into_iter().filter(is_chosen).collect());
        Self { at_decision: self.at_decision, notices: self.notices, ..part }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The directories above an entry that exists now.
fn ancestors(entry: &DiffEntry) -> impl Iterator<Item = RelPath> {
    let first = entry.new.as_ref().and_then(|_| entry.path.parent());
    std::iter::successors(first, RelPath::parent)
}

/// The digest of a set of differences: what a reviewer approves and a commit is held to.
///
/// It covers where, how, and what each entry is now (type, mode, owner, content, target, attributes), and nothing that
/// can change without the difference changing: neither the original's movement nor flags nor what is known of the base.
pub fn digest_of(entries: &[DiffEntry]) -> String {
    let mut hasher = blake3::Hasher::new();
    for entry in entries {
        let covered = (&entry.path, entry.kind, &entry.from, &entry.new, &entry.text);
        let bytes = serde_json::to_vec(&covered).unwrap_or_default();
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
        if let Some(row) = &entry.row {
            hasher.update(&serde_json::to_vec(&(&row.table, &row.key, &row.new)).unwrap_or_default());
        }
    }
    format!("blake3:{}", hasher.finalize().to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: DiffKind) -> DiffEntry {
        DiffEntry::new(RelPath::parse(path).unwrap(), kind)
    }

    #[test]
    fn digest_depends_on_the_difference_alone() {
        let one = DiffView::new(vec![entry("b", DiffKind::Created), entry("a", DiffKind::Deleted)]);
        let mut moved = one.clone().entries;
        moved[0].moved = true;
        moved[0].flags.push("setuid".into());
        assert_eq!(DiffView::new(moved).digest, one.digest);
        let other = DiffView::new(vec![entry("b", DiffKind::Modified), entry("a", DiffKind::Deleted)]);
        assert_ne!(other.digest, one.digest);
    }

    #[test]
    fn selection_follows_renames_from_either_end() {
        let mut renamed = entry("new/x", DiffKind::Renamed);
        renamed.from = Some(RelPath::parse("old/x").unwrap());
        let view = DiffView::new(vec![renamed, entry("other", DiffKind::Created)]);
        let select = |p: &str| view.clone().select(&[RelPath::parse(p).unwrap()]).entries.len();
        assert_eq!(select("old"), 1);
        assert_eq!(select("new/x"), 1);
        assert_eq!(select("ne"), 0);
        assert_eq!(view.clone().select(&[]), view);
    }
}
