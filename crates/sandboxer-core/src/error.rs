//! The one error type of the core, the file engine and the strategies.
//!
//! A variant names the step and what it failed on, and holds its source without repeating the source's text. Turning
//! it into words, hints and an exit code is the edge's business.

use std::io;
use std::path::{Path, PathBuf};

use crate::model::{Conflict, PathError, RelPath};

/// A result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, on what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a step.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was attempted, as a verb phrase: `read`, `create directory`.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A path given for use inside a workspace is not allowed.
    #[error("invalid path inside a workspace")]
    Path(#[from] PathError),
    /// The store failed.
    #[error("cannot {step} in the state database {}", path.display())]
    Store {
        /// What was attempted.
        step: &'static str,
        /// The database file.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
    /// The state was written by a newer version.
    #[error("the state in {} has format {found}, this version reads up to {supported}", path.display())]
    NewerState {
        /// The database file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        supported: u32,
    },
    /// A state file, manifest or journal is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing goes by that name.
    #[error("no {what} {name:?}")]
    NotFound {
        /// What was looked for: `sandbox`, `workspace`, `checkpoint`, `file`.
        what: &'static str,
        /// The name given.
        name: String,
        /// Names that come near.
        similar: Vec<String>,
    },
    /// The request does not make sense as it stands.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead, if there is such a thing.
        hint: Option<String>,
    },
    /// The original has changed where the commit wants to write.
    #[error("{} changed in the original since the sandbox was made", count(conflicts.len()))]
    Conflict {
        /// Each path and why.
        conflicts: Vec<Conflict>,
    },
    /// What is to be committed is not what was reviewed.
    #[error("the difference has digest {found}, not {expected}")]
    DigestMismatch {
        /// The digest asked for.
        expected: String,
        /// The digest of what is there.
        found: String,
    },
    /// A rule says no.
    #[error("refused: {reason}")]
    Refused {
        /// Which rule, on what.
        reason: String,
        /// What would be accepted.
        hint: Option<String>,
    },
    /// Entries that may never be committed are among the selection.
    #[error("{} cannot be committed", count(entries.len()))]
    Uncommittable {
        /// Each path and why.
        entries: Vec<(RelPath, String)>,
    },
    /// A strategy has no such ability.
    #[error("strategy {strategy} cannot {what}: {reason}")]
    Unsupported {
        /// Which strategy.
        strategy: String,
        /// What was asked of it.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The isolation that was asked for is not to be had here.
    #[error("isolation by {strategy} is not available for {}: {reason}", path.display())]
    Unavailable {
        /// Which strategy.
        strategy: String,
        /// For which resource.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Another process holds the lock for longer than we wait.
    #[error("{} is in use by another process{}", path.display(), holder.as_deref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Busy {
        /// What is locked.
        path: PathBuf,
        /// Who holds it, if known.
        holder: Option<String>,
    },
    /// The user asked to stop.
    #[error("interrupted; nothing was changed")]
    Cancelled,
    /// A configuration or catalogue file is wrong.
    #[error("{}{}: {message}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
    Config {
        /// Which file.
        file: PathBuf,
        /// Which line, if known.
        line: Option<u64>,
        /// What is wrong.
        message: String,
        /// The nearest valid word or what else to do.
        hint: Option<String>,
    },
    /// One workspace of several failed.
    #[error("workspace {workspace}")]
    Workspace {
        /// Which.
        workspace: String,
        /// How.
        source: Box<Error>,
    },
}

fn count(entries: usize) -> String {
    if entries == 1 { "1 path".to_owned() } else { format!("{entries} paths") }
}

impl Error {
    /// An I/O error that names its step and path.
    pub fn io(step: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { step, path: path.as_ref().to_path_buf(), source: source.into() }
    }

    /// A usage error without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// A refusal without a hint.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into(), hint: None }
    }

    /// A damaged file.
    pub fn corrupt(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.as_ref().to_path_buf(), reason: reason.into() }
    }

    /// A name that nothing goes by.
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into(), similar: Vec::new() }
    }

    /// The innermost error, past the workspace wrappers.
    pub fn root(&self) -> &Error {
        match self {
            Self::Workspace { source, .. } => source.root(),
            other => other,
        }
    }
}
