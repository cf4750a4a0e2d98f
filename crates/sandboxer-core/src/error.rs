//! The one error type of the core, the file engine and the strategies.
//!
//! A variant names the step and what it failed on, and holds its source without repeating the source's text. Turning
//! it into words, hints and an exit code is the edge's business.

use std::io;
use std::path::{Path, PathBuf};

use crate::environment::Candidate;
use crate::model::{Conflict, PathError, RelPath};
use crate::policy::RuleFailure;
use crate::verification::{PluginProblem, join_problems};

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
    /// The answer to an abort of a commit that is decided: it can only be finished.
    #[error("the commit {commit} is decided and can only be finished")]
    AlreadyDecided {
        /// The commit, by its operation or by the directory that has its files.
        commit: String,
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
    /// Rules set for the commit do not hold for what is to be committed.
    #[error("refused by {}", rules_in_words(failures))]
    RulesFailed {
        /// Each rule that does not hold.
        failures: Vec<RuleFailure>,
        /// The digest of exactly what they looked at, where that is known: who overrules them overrules them for that.
        digest: Option<String>,
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
    /// A plugin cannot be started, died, hung, or broke the protocol; or failed by its own account.
    #[error("plugin {plugin}: {reason}")]
    Plugin {
        /// The strategy's registered name.
        plugin: String,
        /// In which call, and how.
        reason: String,
        /// What it wrote to its standard error.
        log: Option<PathBuf>,
    },
    /// A plugin lacks methods of its role, or has them in a form that cannot be called.
    #[error("plugin {plugin} is not a valid {role}: {}", join_problems(problems))]
    InvalidPlugin {
        /// Its registered name.
        plugin: String,
        /// What it was declared as: `strategy` or `extension`.
        role: &'static str,
        /// Every method that is missing or cannot be called.
        problems: Vec<PluginProblem>,
    },
    /// A database server said no, or does not answer.
    #[error("{database}: {message}{}", code.as_deref().map(|c| format!(" ({c})")).unwrap_or_default())]
    Database {
        /// Which database, without credentials.
        database: String,
        /// What it said, and what to do about it where that is known.
        message: String,
        /// The server's code for it: an SQLSTATE, or an error number.
        code: Option<String>,
    },
    /// Another process holds the lock for longer than we wait.
    #[error("{} is in use by another process{}", path.display(), holder.as_deref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Busy {
        /// What is locked.
        path: PathBuf,
        /// Who holds it, if known.
        holder: Option<String>,
    },
    /// Nothing that is known can make what a profile asks for.
    #[error("there is no route for {profile}: {}", candidates_in_words(candidates.len() + left_out))]
    NoRoute {
        /// The profile.
        profile: String,
        /// Each extension on each host, and why not.
        candidates: Vec<Candidate>,
        /// How many more there are.
        left_out: usize,
    },
    /// The user asked to stop.
    #[error("interrupted; nothing was changed")]
    Cancelled,
    /// A configuration or catalogue file is wrong.
    #[error("{}{}: {message}", file.display(), place_in_words(*line, *column))]
    Config {
        /// Which file.
        file: PathBuf,
        /// Which line, if known.
        line: Option<u64>,
        /// Which column of it, if known.
        column: Option<u64>,
        /// What is wrong.
        message: String,
        /// The nearest valid word or what else to do.
        hint: Option<String>,
    },
    /// A decided commit stopped while it was applied. It is finished by recovery, or aborted by a command.
    #[error("the commit of {sandbox} is decided but not finished")]
    Unfinished {
        /// The sandbox's name.
        sandbox: String,
        /// What stopped it.
        source: Box<Error>,
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

fn candidates_in_words(candidates: usize) -> String {
    match candidates {
        0 => "no host has an extension that it may use".to_owned(),
        1 => "the only candidate does not qualify".to_owned(),
        many => format!("none of {many} candidates qualifies"),
    }
}

fn count(entries: usize) -> String {
    if entries == 1 { "1 path".to_owned() } else { format!("{entries} paths") }
}

/// `:LINE:COLUMN`, as far as they are known.
fn place_in_words(line: Option<u64>, column: Option<u64>) -> String {
    let column = column.map(|column| format!(":{column}")).unwrap_or_default();
    line.map(|line| format!(":{line}{column}")).unwrap_or_default()
}

fn rules_in_words(failures: &[RuleFailure]) -> String {
    let names: Vec<String> = failures.iter().map(ToString::to_string).collect();
    let rules = if names.len() == 1 { "the rule" } else { "these rules:" };
    format!("{rules} {}", names.join("; "))
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

    /// The answer to an abort of a decided commit.
    pub fn already_decided(commit: impl Into<String>) -> Self {
        Self::AlreadyDecided { commit: commit.into() }
    }

    /// Whether an abort failed because the commit is decided. After any other error it is unknown whether it is.
    pub fn is_already_decided(&self) -> bool {
        matches!(self.root(), Self::AlreadyDecided { .. })
    }

    /// A damaged file.
    pub fn corrupt(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.as_ref().to_path_buf(), reason: reason.into() }
    }

    /// A name that nothing goes by.
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into(), similar: Vec::new() }
    }

    /// What stopped a decided commit of the sandbox called `name`.
    pub(crate) fn unfinished(name: &str, source: Self) -> Self {
        Self::Unfinished { sandbox: name.to_owned(), source: Box::new(source) }
    }

    /// The same refusal by rules, about what has this digest.
    pub(crate) fn about(self, prepared: &str) -> Self {
        match self {
            Self::RulesFailed { failures, .. } => {
                Self::RulesFailed { failures, digest: Some(prepared.to_owned()) }
            }
            other => other,
        }
    }

    /// It with all its causes, in one line.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        text
    }

    /// The innermost error, past the workspace wrappers.
    pub fn root(&self) -> &Error {
        match self {
            Self::Workspace { source, .. } => source.root(),
            other => other,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn path() -> PathBuf {
        "/p".into()
    }

    fn rel() -> RelPath {
        RelPath::parse("a").unwrap()
    }

    fn no_route(left_out: usize) -> Error {
        Error::NoRoute { profile: "p".into(), candidates: Vec::new(), left_out }
    }

    fn conflict() -> Conflict {
        Conflict::new(rel(), "modified")
    }

    #[test]
    fn what_failed_is_named_and_its_source_not_repeated() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Error::io("read", "/p", denied());
        assert_eq!(error.to_string(), "cannot read /p");
        assert_eq!(error.source().unwrap().to_string(), denied().to_string());
        let error = Error::from(PathError::Empty);
        assert_eq!(error.source().unwrap().to_string(), "the path is empty");
        let error = Error::Store { step: "list", path: path(), source: rusqlite::Error::InvalidQuery };
        assert_eq!(error.to_string(), "cannot list in the state database /p");
        assert!(error.source().is_some());
    }

    #[test]
    fn messages_are_one_sentence_each() {
        let strategy = || "overlay".to_owned();
        let reason = || "why".to_owned();
        let cases = [
            (
                Error::NewerState { path: path(), found: 9, supported: 1 },
                "the state in /p has format 9, this version reads up to 1",
            ),
            (Error::corrupt("/p", "why"), "/p is damaged: why"),
            (Error::not_found("sandbox", "x"), "no sandbox \"x\""),
            (Error::usage("say more"), "say more"),
            (Error::refused("why"), "refused: why"),
            (
                Error::DigestMismatch { expected: "d1".into(), found: "d2".into() },
                "the difference has digest d2, not d1",
            ),
            (
                Error::Unsupported { strategy: strategy(), what: "fly", reason: reason() },
                "strategy overlay cannot fly: why",
            ),
            (
                Error::Unavailable { strategy: strategy(), path: path(), reason: reason() },
                "isolation by overlay is not available for /p: why",
            ),
            (Error::Plugin { plugin: "bucket".into(), reason: reason(), log: None }, "plugin bucket: why"),
            (
                Error::InvalidPlugin {
                    plugin: "bucket".into(),
                    role: "strategy",
                    problems: ["read", "diff"]
                        .map(|m| PluginProblem::MissingMethod { method: m.into() })
                        .into(),
                },
                "plugin bucket is not a valid strategy: `read` is missing; `diff` is missing",
            ),
            (
                Error::Database { database: "pg".into(), message: reason(), code: Some("42P01".into()) },
                "pg: why (42P01)",
            ),
            (no_route(0), "there is no route for p: no host has an extension that it may use"),
            (no_route(1), "there is no route for p: the only candidate does not qualify"),
            (no_route(2), "there is no route for p: none of 2 candidates qualifies"),
            (Error::Cancelled, "interrupted; nothing was changed"),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn paths_are_counted() {
        let conflicts = |count| Error::Conflict { conflicts: vec![conflict(); count] }.to_string();
        assert_eq!(conflicts(1), "1 path changed in the original since the sandbox was made");
        assert_eq!(conflicts(2), "2 paths changed in the original since the sandbox was made");
        let entries = vec![(rel(), "a pipe".to_owned())];
        assert_eq!(Error::Uncommittable { entries }.to_string(), "1 path cannot be committed");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let busy = |holder| Error::Busy { path: path(), holder }.to_string();
        assert_eq!(busy(None), "/p is in use by another process");
        assert_eq!(busy(Some("pid 7".into())), "/p is in use by another process (pid 7)");
        let config = |line, column| {
            Error::Config { file: path(), line, column, message: "bad".into(), hint: None }.to_string()
        };
        assert_eq!(config(None, None), "/p: bad");
        assert_eq!(config(Some(3), None), "/p:3: bad");
        assert_eq!(config(Some(3), Some(7)), "/p:3:7: bad");
    }

    #[test]
    fn the_root_is_below_every_workspace() {
        let wrap = |error| Error::Workspace { workspace: "w".into(), source: Box::new(error) };
        let error = wrap(wrap(Error::Cancelled));
        assert_eq!(error.to_string(), "workspace w");
        assert!(matches!(error.root(), Error::Cancelled));
        assert!(matches!(Error::Cancelled.root(), Error::Cancelled));
    }
}
