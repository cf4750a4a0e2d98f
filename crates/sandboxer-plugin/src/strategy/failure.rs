//! Errors of the contract as they travel.

use std::error::Error as _;
use std::path::PathBuf;

use sandboxer_core::Error;
use sandboxer_core::model::{Conflict, RelPath};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::message::{RpcError, code};
use crate::envelope::secrets::in_one_piece;

/// What kind of failure it is, with what belongs to it. The words are in the message.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Kind {
    NotFound {
        what: String,
        name: String,
    },
    Usage {
        #[serde(default)]
        hint: Option<String>,
    },
    Refused {
        #[serde(default)]
        hint: Option<String>,
    },
    /// The answer to an abort of a decided commit.
    AlreadyDecided,
    Unsupported,
    Unavailable {
        #[serde(default)]
        path: PathBuf,
    },
    Conflict {
        conflicts: Vec<Conflict>,
    },
    Uncommittable {
        entries: Vec<Uncommittable>,
    },
    DigestMismatch {
        expected: String,
        found: String,
    },
    Busy {
        #[serde(default)]
        path: PathBuf,
        #[serde(default)]
        holder: Option<String>,
    },
    Corrupt {
        path: PathBuf,
    },
    Failed,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Uncommittable {
    path: RelPath,
    reason: String,
}

/// What can be missing. A plugin's own word becomes the nearest of ours.
const MISSING: [&str; 6] =
    ["file", "checkpoint", "resource", "workspace", "operation", "commit to take back"];

/// An error, ready to be sent.
pub(crate) fn to_wire(error: &Error) -> RpcError {
    let (kind, message) = match error.root() {
        Error::NotFound { what, name, .. } => {
            (Kind::NotFound { what: (*what).to_owned(), name: name.clone() }, error.to_string())
        }
        Error::Usage { message, hint } => (Kind::Usage { hint: hint.clone() }, message.clone()),
        Error::Path(error) => (Kind::Usage { hint: None }, error.to_string()),
        Error::Refused { reason, hint } => (Kind::Refused { hint: hint.clone() }, reason.clone()),
        Error::AlreadyDecided { commit } => (Kind::AlreadyDecided, commit.clone()),
        Error::Unsupported { reason, .. } => (Kind::Unsupported, reason.clone()),
        Error::Unavailable { path, reason, .. } => (Kind::Unavailable { path: path.clone() }, reason.clone()),
        Error::Conflict { conflicts } => (Kind::Conflict { conflicts: conflicts.clone() }, error.to_string()),
        Error::Uncommittable { entries } => (uncommittable(entries), error.to_string()),
        Error::DigestMismatch { expected, found } => {
            (Kind::DigestMismatch { expected: expected.clone(), found: found.clone() }, error.to_string())
        }
        Error::Busy { path, holder } => {
            (Kind::Busy { path: path.clone(), holder: holder.clone() }, error.to_string())
        }
        Error::Corrupt { path, reason } => (Kind::Corrupt { path: path.clone() }, reason.clone()),
        other => (Kind::Failed, with_causes(other)),
    };
    let data = serde_json::to_value(kind).unwrap_or(Value::Null);
    RpcError { code: code::FAILED, message, data }
}

fn uncommittable(entries: &[(RelPath, String)]) -> Kind {
    let entry =
        |(path, reason): &(RelPath, String)| Uncommittable { path: path.clone(), reason: reason.clone() };
    Kind::Uncommittable { entries: entries.iter().map(entry).collect() }
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

/// An error that came from the plugin `strategy` in `method`.
pub(crate) fn from_wire(strategy: &str, method: &str, error: RpcError, log: PathBuf) -> Error {
    let message = error.message;
    let failed = |message: &str| Error::Plugin {
        plugin: strategy.to_owned(),
        reason: format!("`{method}` failed: {message}"),
        log: Some(log.clone()),
    };
    match serde_json::from_value(error.data) {
        Ok(Kind::NotFound { what, name }) => Error::not_found(missing(&what), name),
        Ok(Kind::Usage { hint }) => Error::Usage { message, hint: told(hint) },
        Ok(Kind::Refused { hint }) => Error::Refused { reason: message, hint: told(hint) },
        Ok(Kind::AlreadyDecided) => Error::already_decided(message),
        Ok(Kind::Unsupported) => {
            Error::Unsupported { strategy: strategy.to_owned(), what: ability(method), reason: message }
        }
        Ok(Kind::Unavailable { path }) => {
            Error::Unavailable { strategy: strategy.to_owned(), path, reason: message }
        }
        // Somebody who says that nothing is in conflict has not said what is.
        Ok(Kind::Conflict { mut conflicts }) if !conflicts.is_empty() => {
            conflicts.iter_mut().for_each(|conflict| conflict.reason = in_one_piece(&conflict.reason));
            Error::Conflict { conflicts }
        }
        Ok(Kind::Uncommittable { entries }) if !entries.is_empty() => {
            let entry = |e: Uncommittable| (e.path, in_one_piece(&e.reason));
            Error::Uncommittable { entries: entries.into_iter().map(entry).collect() }
        }
        Ok(Kind::DigestMismatch { expected, found }) => {
            Error::DigestMismatch { expected: in_one_piece(&expected), found: in_one_piece(&found) }
        }
        Ok(Kind::Busy { path, holder }) => Error::Busy { path, holder: told(holder) },
        Ok(Kind::Corrupt { path }) => Error::Corrupt { path, reason: message },
        Ok(Kind::Failed | Kind::Conflict { .. } | Kind::Uncommittable { .. }) | Err(_) => failed(&message),
    }
}

/// Words for people, beside the message. Paths and code stay as they are: whoever shows them sees to what is odd in them.
fn told(words: Option<String>) -> Option<String> {
    words.as_deref().map(in_one_piece)
}

fn missing(word: &str) -> &'static str {
    MISSING.into_iter().find(|known| *known == word).unwrap_or("file")
}

/// What a method is for, as an ability.
fn ability(method: &str) -> &'static str {
    match method {
        "create" => "isolate this",
        "read" => "be read from",
        "write" => "be written to",
        "diff" => "tell what differs",
        "commit" => "commit that",
        "rollback" => "roll that back",
        "checkpoint" => "take a checkpoint",
        "restore_checkpoint" => "restore a checkpoint",
        "cleanup" => "clean that up",
        _ => "do that",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use sandboxer_core::model::ConflictHunk;

    use super::*;

    fn there_and_back(error: &Error) -> Error {
        let json = serde_json::to_string(&to_wire(error)).unwrap();
        from_wire("mine", "commit", serde_json::from_str(&json).unwrap(), "/log".into())
    }

    #[test]
    fn errors_of_the_contract_arrive_as_what_they_were() {
        let path = RelPath::parse("a/b").unwrap();
        let errors = [
            Error::not_found("checkpoint", "x"),
            Error::usage("say more"),
            Error::Refused { reason: "no".into(), hint: Some("do".into()) },
            Error::already_decided("op"),
            Error::Unsupported { strategy: "mine".into(), what: "commit that", reason: "why".into() },
            Error::Unavailable { strategy: "mine".into(), path: "/p".into(), reason: "why".into() },
            Error::Conflict { conflicts: vec![Conflict::new(path.clone(), "modified")] },
            Error::Uncommittable { entries: vec![(path, "a pipe".into())] },
            Error::DigestMismatch { expected: "a".into(), found: "b".into() },
            Error::Busy { path: "/p".into(), holder: Some("pid 7".into()) },
            Error::corrupt("/p", "torn"),
        ];
        for error in errors {
            assert_eq!(format!("{:?}", there_and_back(&error)), format!("{error:?}"));
        }
    }

    #[test]
    fn anything_else_is_a_failure_of_the_plugin_with_its_causes() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let told = there_and_back(&Error::io("read", "/p", denied)).to_string();
        assert_eq!(told, "plugin mine: `commit` failed: cannot read /p: permission denied");
    }

    #[test]
    fn odd_data_is_a_failure_too() {
        for data in ["null", "{}", r#"{"kind":"magic"}"#, r#"{"kind":"conflict","conflicts":[]}"#, "7"] {
            let data = serde_json::from_str(data).unwrap();
            let error = RpcError { code: code::FAILED, message: "why".into(), data };
            let error = from_wire("mine", "diff", error, "/log".into());
            assert_eq!(error.to_string(), "plugin mine: `diff` failed: why");
        }
    }

    #[test]
    fn odd_names_and_indented_lines_arrive_as_they_are() {
        let hunk = ConflictHunk { ours: vec!["\tif x:\r".into(), "    y".into()], ..ConflictHunk::default() };
        let at = |name: &[u8], reason: &str| Conflict {
            hunks: vec![hunk.clone()],
            ..Conflict::new(RelPath::parse(std::ffi::OsStr::from_bytes(name)).unwrap(), reason)
        };
        let long = [b"\xff".as_slice(), &[b'x'; 3000]].concat();
        let sent = vec![at(b" lead\nnl", "changed\nby\x1b[31m you"), at(&long, "changed")];
        let Error::Conflict { conflicts } = there_and_back(&Error::Conflict { conflicts: sent.clone() })
        else {
            panic!("it is no conflict any more");
        };
        assert_eq!(conflicts.iter().map(|c| &c.path).collect::<Vec<_>>(), [&sent[0].path, &sent[1].path]);
        assert_eq!((&conflicts[0].hunks, &conflicts[0].reason[..]), (&sent[0].hunks, "changed by [31m you"));
    }

    #[test]
    fn an_unknown_thing_that_is_missing_is_a_file() {
        let data = serde_json::json!({"kind": "not_found", "what": "spoon", "name": "x"});
        let error =
            from_wire("mine", "read", RpcError { code: 0, message: String::new(), data }, "/log".into());
        assert_eq!(error.to_string(), "no file \"x\"");
    }
}
