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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_request_commits_everything_and_refuses_on_conflict() {
        let request: CommitRequest = serde_json::from_str("{}").unwrap();
        assert_eq!(request, CommitRequest::default());
        assert!(request.paths.is_empty() && request.hunks.is_empty());
        assert_eq!((request.on_conflict, request.phase), (OnConflict::Fail, Phase::Whole));
    }

    #[test]
    fn a_request_survives_json() {
        let path = RelPath::parse("src/a").unwrap();
        let request = CommitRequest {
            paths: vec![path.clone()],
            hunks: vec![HunkSelection { path, hunks: vec![0, 2] }],
            message: Some("why".into()),
            digest: Some("blake3:1".into()),
            on_conflict: OnConflict::Theirs,
            phase: Phase::Prepare,
        };
        let json = serde_json::to_value(&request).unwrap();
        assert_eq!((&json["on_conflict"], &json["phase"]), (&"theirs".into(), &"prepare".into()));
        assert_eq!(serde_json::from_value::<CommitRequest>(json).unwrap(), request);
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(serde_json::from_str::<CommitRequest>(r#"{"phase": "half"}"#).is_err());
        assert!(serde_json::from_str::<CommitRequest>(r#"{"on_conflict": "overwrite"}"#).is_err());
        assert!(serde_json::from_str::<CommitRequest>(r#"{"paths": ["../x"]}"#).is_err());
    }

    #[test]
    fn a_result_without_notices_and_conflicts_is_read() {
        let result: CommitResult = serde_json::from_str(r#"{"digest": "d", "entries": []}"#).unwrap();
        assert_eq!(result, CommitResult { digest: "d".into(), ..CommitResult::default() });
        let conflict =
            Conflict { path: RelPath::parse("x").unwrap(), reason: "modified".into(), parked: None };
        assert_eq!(serde_json::to_string(&conflict).unwrap(), r#"{"path":"x","reason":"modified"}"#);
    }
}
