//! What was done, as JSON: commits, what takes them back, and entries of the log.

use sandboxer_core::model::{CommitResult, Notice, Revision};
use sandboxer_core::service::{AbortedCommit, Consumer, Operation, Sandbox, TargetCommit, Undone};
use schemars::JsonSchema;
use serde::Serialize;

use super::differences::{EntryDocument, entry};
use super::{Detail, PathText, Summary, git};

/// `commit`.
#[derive(Serialize, JsonSchema)]
pub struct CommitDocument<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    op_id: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    digest: &'a str,
    summary: Summary,
    entries: Vec<EntryDocument<'a>>,
    notices: Vec<NoticeDocument<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    at_decision: Vec<DecisionDocument<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<Detail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_bytes: Option<u64>,
    /// What the top level repeats of a commit in one workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a Revision>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revisions: Vec<RevisionDocument<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct RevisionDocument<'a> {
    workspace: &'a str,
    #[serde(flatten)]
    revision: &'a Revision,
}

/// What is committed before everything else, because it cannot be prepared.
#[derive(Serialize, JsonSchema)]
struct DecisionDocument<'a> {
    workspace: &'a str,
    reason: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct NoticeDocument<'a> {
    workspace: &'a str,
    #[serde(flatten)]
    path: PathText,
    message: &'a str,
}

impl<'a> CommitDocument<'a> {
    /// The document of a commit.
    pub fn new(sandbox: &'a Sandbox, commit: &'a TargetCommit) -> Self {
        let results = || commit.workspaces.iter();
        let of_all =
            |(name, result): &'a (String, CommitResult)| result.entries.iter().map(move |e| entry(name, e));
        let notices =
            |(name, result): &'a (String, CommitResult)| result.notices.iter().map(move |n| notice(name, n));
        let only = match commit.workspaces.as_slice() {
            [(_, result)] => result.revision.as_ref(),
            _ => None,
        };
        let named =
            |(workspace, revision): (&'a String, &'a Revision)| RevisionDocument { workspace, revision };
        Self {
            sandbox_id: sandbox.id.as_str(),
            name: &sandbox.name,
            op_id: commit.op_id.as_str(),
            dry_run: false,
            digest: &commit.digest,
            summary: Summary::of(results().flat_map(|(_, result)| &result.entries)),
            entries: results().flat_map(of_all).collect(),
            notices: results().flat_map(notices).collect(),
            at_decision: results().filter_map(decision).collect(),
            conflicts: results().flat_map(|(_, result)| &result.conflicts).map(Detail::of).collect(),
            undo_bytes: results().map(|(_, result)| result.undo_bytes).sum(),
            revision: only,
            revisions: git::revisions(commit).map(named).collect(),
        }
    }

    /// The same for a commit that was only tried.
    pub fn tried(sandbox: &'a Sandbox, commit: &'a TargetCommit) -> Self {
        Self { dry_run: true, undo_bytes: None, ..Self::new(sandbox, commit) }
    }
}

fn decision((workspace, result): &(String, CommitResult)) -> Option<DecisionDocument<'_>> {
    result.at_decision.as_ref().map(|reason| DecisionDocument { workspace, reason })
}

fn notice<'a>(workspace: &'a str, notice: &'a Notice) -> NoticeDocument<'a> {
    NoticeDocument { workspace, path: PathText::of(&notice.path), message: &notice.message }
}

/// `undo`: the document of the commit that it is, and what it took back.
#[derive(Serialize, JsonSchema)]
pub struct UndoDocument<'a> {
    undone: &'a str,
    #[serde(flatten)]
    commit: CommitDocument<'a>,
}

impl<'a> UndoDocument<'a> {
    /// The document of an undo.
    pub fn new(undone: &'a Undone) -> Self {
        let commit = CommitDocument::new(&undone.sandbox, &undone.commit);
        Self { undone: undone.operation.id.as_str(), commit }
    }
}

/// `commit --abort`.
#[derive(Serialize, JsonSchema)]
pub struct AbortDocument<'a> {
    sandbox_id: &'a str,
    /// The interrupted operation.
    aborted: &'a str,
    /// What took back the part that was written; missing if nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<UndoDocument<'a>>,
    /// What could not be written, and why.
    left_out: Vec<Detail>,
}

impl<'a> AbortDocument<'a> {
    /// The document of an aborted commit.
    pub fn new(aborted: &'a AbortedCommit) -> Self {
        Self {
            sandbox_id: aborted.operation.sandbox_id.as_str(),
            aborted: aborted.operation.id.as_str(),
            undo: aborted.undone.as_ref().map(UndoDocument::new),
            left_out: aborted.left_out.iter().map(Detail::of).collect(),
        }
    }
}

/// One entry of the log, with the name of its sandbox.
#[derive(Serialize, JsonSchema)]
pub struct OperationDocument<'a> {
    /// The entry.
    #[serde(flatten)]
    pub operation: &'a Operation,
    /// The sandbox's name, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// Who asked for the sandbox, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<&'a Consumer>,
}

/// `show`.
#[derive(Serialize, JsonSchema)]
pub struct ShowDocument<'a> {
    /// What was done.
    #[serde(flatten)]
    pub operation: OperationDocument<'a>,
    /// How it changed files, as far as that is still kept.
    pub patches: Vec<PatchDocument>,
}

/// What an operation changed in one workspace.
#[derive(Serialize, JsonSchema)]
pub struct PatchDocument {
    /// Which.
    pub workspace: String,
    /// As text, lossily; the file has it exactly.
    pub patch: String,
    /// The file.
    #[serde(flatten)]
    pub path: PathText,
}
