//! Differences as they are told: how many of each kind, and each of them.

use data_encoding::BASE64;
use sandboxer_core::model::{DiffEntry, DiffKind, Node, NodeType, RowChange};
use sandboxer_core::service::{Sandbox, TargetDiff};
use schemars::JsonSchema;
use serde::Serialize;

use super::PathText;

/// How many entries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    /// New ones.
    pub created: usize,
    /// With other content.
    pub modified: usize,
    /// Gone ones.
    pub deleted: usize,
    /// Moved ones.
    pub renamed: usize,
    /// With other mode, owner or attributes only.
    pub metadata: usize,
    /// Of another type now.
    #[serde(rename = "type")]
    pub retyped: usize,
    /// All together.
    pub total: usize,
}

impl Summary {
    /// Counts.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a DiffEntry>) -> Self {
        let mut summary = Self::default();
        for entry in entries {
            *summary.slot(entry.kind) += 1;
            summary.total += 1;
        }
        summary
    }

    fn slot(&mut self, kind: DiffKind) -> &mut usize {
        match kind {
            DiffKind::Created => &mut self.created,
            DiffKind::Modified => &mut self.modified,
            DiffKind::Deleted => &mut self.deleted,
            DiffKind::Renamed => &mut self.renamed,
            DiffKind::Metadata => &mut self.metadata,
            DiffKind::Type => &mut self.retyped,
        }
    }

    /// What taking all of it back amounts to, or what was there to be taken back: what came goes, what went comes.
    pub fn inverse(self) -> Self {
        Self { created: self.deleted, deleted: self.created, ..self }
    }

    /// `2 created, 1 deleted`, or `no changes`.
    pub fn text(&self) -> String {
        let parts = [
            (self.created, "created"),
            (self.modified, "modified"),
            (self.deleted, "deleted"),
            (self.renamed, "renamed"),
            (self.metadata, "with other metadata"),
            (self.retyped, "of another type"),
        ];
        let told: Vec<String> =
            parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if told.is_empty() { "no changes".to_owned() } else { told.join(", ") }
    }
}

/// `diff`.
#[derive(Serialize, JsonSchema)]
pub struct DiffDocument<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    digest: &'a str,
    summary: Summary,
    entries: Vec<EntryDocument<'a>>,
}

impl<'a> DiffDocument<'a> {
    /// The document of a difference.
    pub fn new(sandbox: &'a Sandbox, diff: &'a TargetDiff) -> Self {
        let all = diff.workspaces.iter().flat_map(|w| &w.entries);
        let documents =
            diff.workspaces.iter().flat_map(|w| w.entries.iter().map(|e| entry(&w.workspace.name, e)));
        Self {
            sandbox_id: sandbox.id.as_str(),
            name: &sandbox.name,
            digest: &diff.digest,
            summary: Summary::of(all),
            entries: documents.collect(),
        }
    }
}

/// `diff --patch`.
#[derive(Serialize, JsonSchema)]
pub struct PatchedDiffDocument<'a> {
    #[serde(flatten)]
    diff: DiffDocument<'a>,
    /// As text, lossily.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// Its exact bytes, where the text is lossy.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_b64: Option<String>,
}

impl<'a> PatchedDiffDocument<'a> {
    /// The document of a difference, with its patch if that was asked for.
    pub fn new(diff: DiffDocument<'a>, patch: Option<&[u8]>) -> Self {
        let exact = patch.filter(|bytes| std::str::from_utf8(bytes).is_err());
        Self {
            diff,
            patch: patch.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            patch_b64: exact.map(|bytes| BASE64.encode(bytes)),
        }
    }
}

/// One difference.
#[derive(Serialize, JsonSchema)]
pub struct EntryDocument<'a> {
    workspace: &'a str,
    #[serde(flatten)]
    path: PathText,
    kind: DiffKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    binary: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<NodeDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<NodeDocument<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    moved: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<&'a RowChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    flags: &'a [String],
}

#[derive(Serialize, JsonSchema)]
struct NodeDocument<'a> {
    #[serde(rename = "type")]
    node_type: NodeType,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xattrs: Option<&'a str>,
}

fn node(node: &Node) -> NodeDocument<'_> {
    NodeDocument {
        node_type: node.node_type,
        mode: octal(node.mode),
        uid: node.uid,
        gid: node.gid,
        size: node.size,
        digest: node.digest.as_deref(),
        target: node.target.as_deref(),
        xattrs: node.xattrs.as_deref(),
    }
}

/// Permission bits as people write them.
pub fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

/// The document of one entry.
pub(crate) fn entry<'a>(workspace: &'a str, entry: &'a DiffEntry) -> EntryDocument<'a> {
    let shown = entry.new.as_ref().or(entry.old.as_ref());
    let from = entry.from.as_ref().map(PathText::of);
    EntryDocument {
        workspace,
        path: PathText::of(&entry.path),
        kind: entry.kind,
        from: from.as_ref().map(|text| text.path.clone()),
        from_b64: from.and_then(|text| text.path_b64),
        mode: shown.map(|n| octal(n.mode)),
        size: shown.filter(|n| n.node_type == NodeType::File).map(|n| n.size),
        binary: entry.binary,
        old: entry.old.as_ref().map(node),
        new: entry.new.as_ref().map(node),
        moved: entry.moved,
        text: entry.text.as_deref(),
        row: entry.row.as_ref(),
        refused: entry.refused.as_deref(),
        flags: &entry.flags,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::RelPath;

    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::from_bytes(bytes).unwrap()
    }

    #[test]
    fn an_entry_leaves_out_what_it_does_not_have() {
        let plain = DiffEntry::new(path(b"a"), DiffKind::Deleted);
        let json = serde_json::to_value(entry("w", &plain)).unwrap();
        assert_eq!(json, serde_json::json!({"workspace": "w", "path": "a", "kind": "deleted"}));
    }

    #[test]
    fn a_renamed_entry_keeps_both_ends_exactly() {
        let mut renamed = DiffEntry::new(path(b"new"), DiffKind::Renamed);
        renamed.from = Some(path(b"old\xfe"));
        let node = Node {
            node_type: NodeType::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            digest: None,
            target: None,
            xattrs: None,
        };
        renamed.new = Some(node);
        let json = serde_json::to_value(entry("w", &renamed)).unwrap();
        assert_eq!(json["from_b64"], "b2xk/g==");
        assert_eq!(json["mode"], "0644");
        assert_eq!(json["size"], 3);
        assert_eq!(json["new"]["type"], "file");
    }

    #[test]
    fn summaries_tell_only_what_there_is() {
        assert_eq!(Summary::default().text(), "no changes");
        let entries =
            [DiffEntry::new(path(b"a"), DiffKind::Created), DiffEntry::new(path(b"b"), DiffKind::Type)];
        let summary = Summary::of(&entries);
        assert_eq!(summary.text(), "1 created, 1 of another type");
        assert_eq!(summary.inverse().text(), "1 deleted, 1 of another type");
        assert_eq!(summary.total, 2);
    }
}
