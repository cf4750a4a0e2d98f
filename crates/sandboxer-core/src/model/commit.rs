//! What a commit is asked for, and what it answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DiffEntry, RelPath};

/// What to commit, and how. The default commits everything at once and refuses on conflict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitRequest {
    /// Only these paths and what lies below them, as a whole; empty means everything, unless there are hunks.
    pub paths: Vec<RelPath>,
    /// Only these hunks of text files, beside what `paths` selects.
    pub hunks: Vec<HunkSelection>,
    /// Why, in the committer's words; kept in the log.
    pub message: Option<String>,
    /// Refuse unless the digest of exactly what is to be committed is this.
    pub digest: Option<String>,
    /// What to do where the original has changed meanwhile.
    pub on_conflict: OnConflict,
    /// Leave it as a branch of this name, for review, and touch nothing else of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What becomes of commits that were made in the sandbox.
    pub history: History,
    /// Which part of a two-phase commit this call is.
    pub phase: Phase,
}

/// Some hunks of one text file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HunkSelection {
    /// The file.
    pub path: RelPath,
    /// The hunks, as a unified patch against the base: `@@` headers and lines, no file headers. In JSON a string, or
    /// `{"b64": …}` where it is not UTF-8.
    #[serde(with = "text_or_base64")]
    pub patch: Vec<u8>,
}

/// What becomes of commits that were made in the sandbox, where the resource has commits of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// One commit has all that is committed.
    #[default]
    Squash,
    /// They are kept; one more has what is in none of them.
    Keep,
}

/// What to do where the original has changed since the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Refuse, write nothing.
    #[default]
    Fail,
    /// Merge text three ways where the base is known; refuse, and write nothing, where that leaves a conflict.
    Merge,
    /// Merge into the sandbox, with markers where both sides differ, and refuse: a person resolves them there. The
    /// original is not touched.
    Mark,
    /// Keep the original's version; the sandbox's stays pending.
    Ours,
    /// Take the sandbox's version.
    Theirs,
}

/// Which part of a commit a call is.
///
/// `Prepare` makes everything ready and durable but changes nothing; `Finish` makes it so and cannot be refused any more;
/// `Abort` forgets it. `Finish` and `Abort` are idempotent, and valid in another process after a crash: `Finish` of a
/// workspace with nothing prepared is a no-op, or, where the ref's `operation` was finished before, says again what that did.
/// `Abort` of what is decided is [`crate::Error::Refused`]: recovery tells by that what to finish. `Abort` where nothing is
/// prepared leaves the work as it is. `Whole` is all in one.
///
/// A `Finish` that has the digest of what was prepared comes from somebody who has decided nothing else by it: one workspace is committed alone. It may
/// be an error, where nothing of it was made so; `Abort` tells, as always.
///
/// A strategy that cannot prepare what it is asked to says so in [`CommitResult::at_decision`], and then commits in `Finish`:
/// an error of that means that nothing was committed, unless `Abort` is refused. `Abort` of the ref's `operation` is refused
/// from that commit on, also after `Finish` has returned: the store may not have learned of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Everything in one call.
    #[default]
    Whole,
    /// Make ready.
    Prepare,
    /// Make it so.
    Finish,
    /// Like `Finish`, for a decided commit that cannot be finished: what fails is left out and is a conflict of the result.
    FinishPossible,
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
    /// How many bytes are kept so that this commit can be taken back; `None` where it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_bytes: Option<u64>,
    /// What the resource's own history calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// What `Prepare` answers where nothing could be prepared: why not. Its `Finish` is then the first of all, before anything
    /// else is, and decides by its success about the whole commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_decision: Option<String>,
}

/// A commit in the resource's own history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// The commit.
    pub commit: String,
    /// The branch that has it now; `None` where no branch was checked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How many commits of the sandbox's own were kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
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
    /// Where in a text both sides changed, after a merge was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<ConflictHunk>,
}

impl Conflict {
    /// A conflict over a whole entry.
    pub fn new(path: RelPath, reason: impl Into<String>) -> Self {
        Self { path, reason: reason.into(), parked: None, hunks: Vec::new() }
    }
}

/// One place in a text that both sides changed in different ways. Lines are counted from 1; what is not UTF-8 is lossy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConflictHunk {
    /// First line of it in the original's text.
    pub ours_start: usize,
    /// What the original has there.
    pub ours: Vec<String>,
    /// What the base had there.
    pub base: Vec<String>,
    /// First line of it in the sandbox's text.
    pub theirs_start: usize,
    /// What the sandbox has there.
    pub theirs: Vec<String>,
}

/// Bytes in JSON: a string where they are UTF-8, `{"b64": …}` where not.
mod text_or_base64 {
    use data_encoding::BASE64;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Exact { b64: String },
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let form = match std::str::from_utf8(bytes) {
            Ok(text) => Form::Text(text.to_owned()),
            Err(_) => Form::Exact { b64: BASE64.encode(bytes) },
        };
        form.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(text.into_bytes()),
            Form::Exact { b64 } => BASE64.decode(b64.as_bytes()).map_err(D::Error::custom),
        }
    }
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
            hunks: vec![
                HunkSelection { path: path.clone(), patch: b"@@ -1 +1 @@\n-a\n+b\n".to_vec() },
                HunkSelection { path, patch: b"@@ -1 +1 @@\n-\xff\n+b\n".to_vec() },
            ],
            message: Some("why".into()),
            digest: Some("blake3:1".into()),
            on_conflict: OnConflict::Theirs,
            branch: Some("review".into()),
            history: History::Keep,
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
        let conflict = Conflict::new(RelPath::parse("x").unwrap(), "modified");
        assert_eq!(serde_json::to_string(&conflict).unwrap(), r#"{"path":"x","reason":"modified"}"#);
    }
}
