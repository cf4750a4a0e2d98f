//! What is said to a keeper of a database, and what it answers: one of each a connection, a JSON line followed by content.

use std::io::{self, Read, Write};

use sandboxer_core::Error;
use sandboxer_core::model::{Change, CommitResult, DiffView, RelPath};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{Connection, Prepared, Status};

/// The version of everything below. `Hello` and its answer stay as they are in every version.
pub(crate) const PROTOCOL: u32 = 1;

/// Longest line or content: what a person or a program could want of one read.
const MAX: u64 = 4 << 30;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Hello,
    Status,
    Connection,
    Read(RelPath),
    /// Followed by the content.
    Write(RelPath),
    Diff,
    Checkpoint(String),
    Restore(String),
    Rollback,
    /// Only if the digest of what is committed is this.
    Commit {
        operation: String,
        digest: Option<String>,
    },
    Prepare {
        operation: String,
        digest: Option<String>,
    },
    Finish {
        operation: String,
    },
    /// Also of one that is still to come: whoever asked for it may be gone.
    Abort {
        operation: String,
    },
    Quit,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Hello {
        protocol: u32,
        pid: u32,
    },
    Status(Status),
    Connection(Option<Connection>),
    /// Followed by the content.
    Content,
    Change(Change),
    Diff(DiffView),
    Committed(CommitResult),
    Prepared(CommitResult, Prepared),
    /// Whether the work is still there. What is committed already is answered with `Committed`.
    Aborted(bool),
    Done,
    Failed(Failure),
}

/// What a new keeper says to who started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Startup {
    Ready,
    Taken,
    Failed(Failure),
}

/// An error on its way from one process to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    #[serde(default)]
    code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Usage,
    Refused,
    NotFound,
    Unsupported,
    Digest,
    Other,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let of = |kind, message: String, hint| Self { kind, message, hint, code: None };
        match error {
            Error::Usage { message, hint } => of(Kind::Usage, message, hint),
            Error::Refused { reason, hint } => of(Kind::Refused, reason, hint),
            Error::NotFound { what, name, .. } => of(Kind::NotFound, name, Some(what.to_owned())),
            Error::Unsupported { what, reason, .. } => of(Kind::Unsupported, reason, Some(what.to_owned())),
            Error::DigestMismatch { expected, found } => of(Kind::Digest, expected, Some(found)),
            Error::Database { database, message, code } => {
                Self { kind: Kind::Other, code, ..of(Kind::Other, message, Some(database)) }
            }
            other => of(Kind::Other, in_words(&other), None),
        }
    }
}

/// What was looked for, or could not be done: the errors hold words that live for ever.
const WORDS: [&str; 6] =
    ["row", "table", "checkpoint", "file", "be connected to by programs", "run this statement"];

impl Failure {
    /// A refusal.
    pub(crate) fn refusal(message: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, message: message.into(), hint: None, code: None }
    }

    /// The error as it was over there, as far as callers can tell.
    pub(crate) fn into_error(self, strategy: &str) -> Error {
        let Self { kind, message, hint, code } = self;
        let word = |hint: Option<String>, otherwise| {
            WORDS.into_iter().find(|word| Some(*word) == hint.as_deref()).unwrap_or(otherwise)
        };
        match kind {
            Kind::Usage => Error::Usage { message, hint },
            Kind::NotFound => {
                Error::NotFound { what: word(hint, "thing"), name: message, similar: Vec::new() }
            }
            Kind::Unsupported => Error::Unsupported {
                strategy: strategy.to_owned(),
                what: word(hint, "do this"),
                reason: message,
            },
            Kind::Digest => Error::DigestMismatch { expected: message, found: hint.unwrap_or_default() },
            Kind::Refused => Error::Refused { reason: message, hint },
            // Never a refusal: whoever coordinates takes one for an answer.
            Kind::Other => {
                let database = hint.unwrap_or_else(|| "the database's keeper".to_owned());
                Error::Database { database, message, code }
            }
        }
    }
}

/// An error with everything behind it.
pub(crate) fn in_words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut behind = std::error::Error::source(error);
    while let Some(source) = behind {
        words += &format!(": {source}");
        behind = source.source();
    }
    words
}

/// Sends a message and what comes with it.
pub(crate) fn send(to: &mut impl Write, what: &impl Serialize, content: &[u8]) -> io::Result<()> {
    let line = serde_json::to_vec(what)?;
    let mut head = Vec::with_capacity(16 + line.len());
    head.extend((line.len() as u64).to_le_bytes());
    head.extend((content.len() as u64).to_le_bytes());
    head.extend(line);
    to.write_all(&head)?;
    to.write_all(content)?;
    to.flush()
}

/// Receives a message and what comes with it.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let (line, content) = (length(from)?, length(from)?);
    let message = serde_json::from_slice(&exactly(from, line)?)?;
    Ok((message, exactly(from, content)?))
}

fn length(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    match u64::from_le_bytes(bytes) {
        length if length <= MAX => Ok(length),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long")),
    }
}

/// Memory is taken as the bytes come, not as they are promised.
fn exactly(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_their_content() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Request::Commit { operation: "op".into(), digest: None }, b"content").unwrap();
        let (request, content) = receive::<Request>(&mut &bytes[..]).unwrap();
        assert_eq!(request, Request::Commit { operation: "op".into(), digest: None });
        assert_eq!(content, b"content");
        for cut in [0, 7, 15, 20, bytes.len() - 1] {
            assert!(receive::<Request>(&mut &bytes[..cut]).is_err(), "{cut}");
        }
        let endless = [0xff; 16];
        assert!(receive::<Request>(&mut &endless[..]).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn an_error_stays_itself_between_processes() {
        let passed = |error: Error| {
            let json = serde_json::to_string(&Failure::from(error)).unwrap();
            serde_json::from_str::<Failure>(&json).unwrap().into_error("s")
        };
        let usage = Error::Usage { message: "m".into(), hint: Some("h".into()) };
        assert!(
            matches!(passed(usage), Error::Usage { message, hint } if message == "m" && hint.as_deref() == Some("h"))
        );
        assert!(
            matches!(passed(Error::not_found("row", "7")), Error::NotFound { what: "row", name, .. } if name == "7")
        );
        let mismatch = Error::DigestMismatch { expected: "a".into(), found: "b".into() };
        assert!(
            matches!(passed(mismatch), Error::DigestMismatch { expected, found } if expected == "a" && found == "b")
        );
        let io = Error::io("read", "/x", io::Error::from_raw_os_error(5));
        assert!(
            matches!(passed(io), Error::Database { message, .. } if message.contains("/x") && message.contains("os error 5"))
        );
    }
}
