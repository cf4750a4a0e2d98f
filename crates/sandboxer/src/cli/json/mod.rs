//! The JSON documents. Their fields are a contract: `docs/cli.md` lists them, snapshot tests hold them.
//!
//! A path that is not UTF-8 stands lossily in `path` and exactly in `path_b64`; nothing else about a name is altered.

mod commits;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use data_encoding::BASE64;
use jiff::Timestamp;
use sandboxer_core::environment::{
    Endpoint, Environment, EnvironmentFailure, IsolationLevel, NetworkNeed, Route, Scope, Setup,
};
use sandboxer_core::model::{
    CheckpointResult, DiffEntry, DiffKind, Node, NodeType, RelPath, RollbackResult, RowChange,
};
use sandboxer_core::service::{Consumer, Operation, Sandbox, SandboxState, TargetDiff, Workspace};
use sandboxer_strategies::git_worktree::About;
use serde::Serialize;

use super::output;

pub use commits::{CommitDocument, OperationDocument, PatchDocument, ShowDocument, UndoDocument};

/// A path as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathText {
    /// As text, lossily.
    pub path: String,
    /// Its exact bytes, where the text is lossy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

impl PathText {
    /// From bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let exact = std::str::from_utf8(bytes).is_err().then(|| BASE64.encode(bytes));
        Self { path: String::from_utf8_lossy(bytes).into_owned(), path_b64: exact }
    }

    /// From a path inside a workspace.
    pub fn of(path: &RelPath) -> Self {
        Self::new(path.as_bytes())
    }

    /// For the screen.
    pub fn screen(&self) -> String {
        let exact = self.path_b64.as_ref().and_then(|text| BASE64.decode(text.as_bytes()).ok());
        output::name(exact.as_deref().unwrap_or(self.path.as_bytes()))
    }
}

/// `create` and `get`.
#[derive(Serialize)]
pub struct SandboxDocument<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    plan_id: &'a str,
    state: SandboxState,
    created: bool,
    message: Cow<'a, str>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    consumer: &'a Consumer,
    profile_id: &'a str,
    extension_id: &'a str,
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<EnvironmentDocument<'a>>,
    #[serde(flatten)]
    only: Option<Isolation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    git: Option<About>,
    workspaces: Vec<WorkspaceDocument<'a>>,
}

/// What a profile had made around the workspaces.
#[derive(Serialize)]
pub struct EnvironmentDocument<'a> {
    route: &'a Route,
    isolation: IsolationLevel,
    network: &'a NetworkNeed,
    scope: Scope,
    mounts: &'a BTreeMap<String, PathBuf>,
    labels: &'a BTreeMap<String, String>,
    setup: &'a Setup,
    endpoints: &'a [Endpoint],
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a EnvironmentFailure>,
}

impl<'a> EnvironmentDocument<'a> {
    fn new(environment: &'a Environment) -> Self {
        Self {
            route: &environment.route,
            isolation: environment.isolation,
            network: &environment.network,
            scope: environment.scope,
            mounts: &environment.mounts,
            labels: &environment.labels,
            setup: &environment.setup,
            endpoints: &environment.endpoints,
            cost_class: environment.cost_class.as_deref(),
            failure: environment.failure.as_ref(),
        }
    }
}

/// One workspace of a sandbox.
#[derive(Serialize)]
pub struct WorkspaceDocument<'a> {
    name: &'a str,
    #[serde(flatten)]
    isolation: Isolation<'a>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    notices: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    git: Option<About>,
}

/// What the top level repeats of a sandbox's only workspace.
#[derive(Serialize)]
struct Isolation<'a> {
    sandbox_path: Option<String>,
    strategy: &'a str,
    requested_strategy: &'a str,
    resource: ResourceDocument<'a>,
}

#[derive(Serialize)]
struct ResourceDocument<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    location: &'a str,
}

impl<'a> SandboxDocument<'a> {
    /// The document of `sandbox`; `created` and `message` say what the command did.
    pub fn new(sandbox: &'a Sandbox, created: bool, message: impl Into<Cow<'a, str>>) -> Self {
        let only = match sandbox.workspaces.as_slice() {
            [workspace] => Some(isolation(workspace)),
            _ => None,
        };
        Self {
            sandbox_id: sandbox.id.as_str(),
            name: &sandbox.name,
            plan_id: sandbox.plan_id.as_str(),
            state: sandbox.state,
            created,
            message: message.into(),
            created_at: sandbox.created_at,
            expires_at: sandbox.expires_at,
            consumer: &sandbox.consumer,
            profile_id: sandbox.profile_id(),
            extension_id: sandbox.extension_id(),
            host: sandbox.host(),
            environment: sandbox.environment.as_deref().map(EnvironmentDocument::new),
            only,
            git: None,
            workspaces: sandbox.workspaces.iter().map(workspace).collect(),
        }
    }

    /// The document of `list` and the like: nothing was done.
    pub fn of(sandbox: &'a Sandbox) -> Self {
        Self::new(sandbox, false, state_sentence(sandbox))
    }

    /// The document of `get` and `status`, with the notices of each workspace.
    pub fn with_notices(sandbox: &'a Sandbox, notices: &[Vec<String>]) -> Self {
        let mut document = Self::of(sandbox);
        for (workspace, notices) in document.workspaces.iter_mut().zip(notices) {
            workspace.notices = Some(notices.clone());
        }
        document
    }

    /// The same with where each workspace stands in its git repository, as far as it has one.
    pub fn with_git(mut self, abouts: Vec<Option<About>>) -> Self {
        if let [only] = abouts.as_slice() {
            self.git.clone_from(only);
        }
        for (workspace, about) in self.workspaces.iter_mut().zip(abouts) {
            workspace.git = about;
        }
        self
    }
}

/// One sentence on where a sandbox is in its life.
pub fn state_sentence(sandbox: &Sandbox) -> String {
    let what = match sandbox.state {
        SandboxState::Requested => "has been asked for",
        SandboxState::Provisioning => "is being made",
        SandboxState::Ready => "is ready",
        SandboxState::Active => "is in use",
        SandboxState::Destroying => "is being removed",
        SandboxState::Parked => "is parked",
        SandboxState::Destroyed => "has been removed",
        SandboxState::Failed => "could not be made",
    };
    format!("sandbox {} {what}", sandbox.name)
}

fn workspace(workspace: &Workspace) -> WorkspaceDocument<'_> {
    WorkspaceDocument {
        name: &workspace.name,
        isolation: isolation(workspace),
        reason: &workspace.reason,
        notices: None,
        git: None,
    }
}

fn isolation(workspace: &Workspace) -> Isolation<'_> {
    let resource = &workspace.resource;
    Isolation {
        sandbox_path: workspace.sandbox_ref.text("path").map(str::to_owned),
        strategy: &workspace.sandbox_ref.strategy_name,
        requested_strategy: &workspace.requested_strategy,
        resource: ResourceDocument {
            id: resource.id.as_str(),
            type_name: &resource.type_name,
            location: &resource.location,
        },
    }
}

/// How many entries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
#[derive(Serialize)]
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

/// One difference.
#[derive(Serialize)]
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

#[derive(Serialize)]
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

fn entry<'a>(workspace: &'a str, entry: &'a DiffEntry) -> EntryDocument<'a> {
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

/// `checkpoint`: the result of a sandbox's only workspace, or what its results have in common.
#[derive(Serialize)]
pub struct CheckpointDocument<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    result: Option<CheckpointResult>,
    workspaces: Vec<NamedResult<'a, CheckpointResult>>,
}

/// `rollback` and `restore`: the result of a sandbox's only workspace, or all results added up.
#[derive(Serialize)]
pub struct RollbackDocument<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    result: Option<RollbackResult>,
    workspaces: Vec<NamedResult<'a, RollbackResult>>,
}

/// One workspace's result.
#[derive(Serialize)]
pub struct NamedResult<'a, T> {
    workspace: &'a str,
    #[serde(flatten)]
    result: &'a T,
}

fn named<T>(results: &[(String, T)]) -> Vec<NamedResult<'_, T>> {
    results.iter().map(|(workspace, result)| NamedResult { workspace, result }).collect()
}

impl<'a> CheckpointDocument<'a> {
    /// The document of a checkpoint.
    pub fn new(sandbox: &'a Sandbox, results: &'a [(String, CheckpointResult)]) -> Self {
        let mut result = results.first().map(|(_, first)| first.clone());
        if let (Some(shared), true) = (&mut result, results.len() > 1) {
            shared.snapshot_path = None;
        }
        Self { sandbox_id: sandbox.id.as_str(), result, workspaces: named(results) }
    }
}

impl<'a> RollbackDocument<'a> {
    /// The document of a rollback.
    pub fn new(sandbox: &'a Sandbox, results: &'a [(String, RollbackResult)]) -> Self {
        let mut result = results.first().map(|(_, first)| first.clone());
        if let Some(sum) = &mut result {
            sum.success = results.iter().all(|(_, r)| r.success);
            sum.restored_files = results.iter().map(|(_, r)| r.restored_files).sum();
        }
        Self { sandbox_id: sandbox.id.as_str(), result, workspaces: named(results) }
    }
}

/// One sandbox of `status`.
#[derive(Serialize)]
pub struct StatusDocument<'a> {
    /// The sandbox itself.
    #[serde(flatten)]
    pub sandbox: SandboxDocument<'a>,
    /// Seconds since it was made.
    pub age_seconds: i64,
    /// What is not committed; missing where it could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Summary>,
    /// The newest entry of its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<&'a Operation>,
    /// What to look at.
    pub warnings: &'a [String],
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::from_bytes(bytes).unwrap()
    }

    #[test]
    fn paths_are_lossless() {
        let text = PathText::new(b"bad\xff");
        assert_eq!(text.path, "bad\u{fffd}");
        assert_eq!(text.path_b64.as_deref(), Some("YmFk/w=="));
        assert_eq!(text.screen(), "bad\\xff");
        assert_eq!(PathText::new("é".as_bytes()).path_b64, None);
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
