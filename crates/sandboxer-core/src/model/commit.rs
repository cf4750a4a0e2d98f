//! What a commit is asked for, and what it answers.

use serde::{Deserialize, Serialize};

use super::{DiffEntry, RelPath};

/// What to commit, and how. The default commits everything at once and refuses on conflict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitRequest {
    /// Only these paths and what lies below them; empty means everything.
    pub paths: Vec<RelPath>,
    /// Only these hunks of text files; empty means whole files.
    pub hunks: Vec<HunkSelection>,
    /// Why, in the committer's words; kept in the log.
    pub message: Option<String>,
    /// Refuse unless the digest of exactly what is to be committed is this.
    pub digest: Option<String>,
    /// What to do where the original has changed meanwhile.
    pub on_conflict: OnConflict,
    /// Which part of a two-phase commit this call is.
    pub phase: Phase,
}

/// Some hunks of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HunkSelection {
    /// The file.
    pub path: RelPath,
    /// Which hunks of its diff, counted from zero.
    pub hunks: Vec<usize>,
}

/// What to do where the original has changed since the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Refuse, write nothing.
    #[default]
    Fail,
    /// Merge text three ways where the base is known.
    Merge,
    /// Keep the original's version.
    Ours,
    /// Take the sandbox's version.
    Theirs,
}

/// Which part of a commit a call is.
///
/// `Prepare` makes everything ready and durable but changes nothing; `Finish` makes it so and cannot be refused any more;
/// `Abort` forgets it. `Finish` and `Abort` are idempotent, and valid in another process after a crash: `Finish` of a
/// workspace with nothing prepared is a no-op. `Whole` is all in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Everything in one call.
    #[default]
    Whole,
    /// Make ready.
    Prepare,
    /// Make it so.
    Finish,
    /// Forget it.
    Abort,
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitResult {
    /// Digest of exactly what was committed.
    pub digest: String,
    /// What was committed.
    pub entries: Vec<DiffEntry>,
    /// What was left out or altered on the way, each with its reason (a stripped setuid bit, say).
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// Entries that recovery left alone because somebody had edited them after a crash; the new content is parked.
    #[serde(default)]
    pub conflicts: Vec<Conflict>,
}

/// Something a careful person wants to know about one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Where.
    pub path: RelPath,
    /// What, as a sentence without its subject: `setuid bit removed`.
    pub message: String,
}

/// One path on which a commit and the original's present state disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Where.
    pub path: RelPath,
    /// What happened to it in the original: `modified in the original since the sandbox was made`.
    pub reason: String,
    /// Where the sandbox's version was put aside, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
}
