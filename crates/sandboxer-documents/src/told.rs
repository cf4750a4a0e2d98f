//! The one place where an error of the library becomes words: kind, message, path and hints.
//!
//! A hint says what to type next. It is written with the placeholder `ID`, which [`Told::aimed_at`] replaces by what
//! the user typed, so that the command can be pasted.

use std::error::Error as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::environment::Candidate;
use sandboxer_core::model::{OpId, RelPath};
use sandboxer_core::verification::PluginProblem;
use schemars::JsonSchema;
use serde::Serialize;

use super::hints::hints_of;
use super::words::{shell_word, system_text};
use super::{Detail, FailedRule, PathText};

/// What kind of failure it is, in one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something failed.
    Error,
    /// The request makes no sense.
    Usage,
    /// The original changed meanwhile.
    Conflict,
    /// Nothing of that name.
    NotFound,
    /// A rule says no.
    Refused,
    /// No such isolation here.
    Unavailable,
    /// A strategy lacks an ability.
    Unsupported,
    /// A custom strategy's own program failed.
    Plugin,
    /// Another process is at it.
    Busy,
    /// Ctrl-C.
    Interrupted,
    /// A configuration file is wrong.
    Config,
    /// State is damaged.
    Corrupt,
    /// State is from a newer version.
    NewerState,
    /// A commit is decided and not finished.
    Unfinished,
}

/// A failure, ready to be told.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Told {
    /// In one word.
    pub kind: Kind,
    /// In one sentence.
    pub message: String,
    /// On what, if that is one path.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<PathText>>,
    /// Path by path, where there are several.
    #[serde(rename = "paths", skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// Each rule that refused.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub rules: Box<[FailedRule]>,
    /// Each candidate of a route, and why not.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<Candidates>>,
    /// What is wrong with a plugin that was refused.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<Box<InvalidPlugin>>,
    /// What to type next.
    pub hints: Vec<String>,
}

/// What could not be chosen.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Candidates {
    /// The best of them.
    pub candidates: Vec<Candidate>,
    /// How many more there are.
    pub left_out: usize,
}

impl Candidates {
    fn of(error: &Error) -> Option<Box<Self>> {
        let Error::NoRoute { candidates, left_out, .. } = error else { return None };
        Some(Box::new(Self { candidates: candidates.clone(), left_out: *left_out }))
    }
}

/// A plugin that was refused when it was verified.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InvalidPlugin {
    /// Each method that is missing or cannot be called.
    pub problems: Vec<PluginProblem>,
}

impl InvalidPlugin {
    fn of(error: &Error) -> Option<Box<Self>> {
        let Error::InvalidPlugin { problems, .. } = error else { return None };
        Some(Box::new(Self { problems: problems.clone() }))
    }
}

/// What is told of an error where JSON is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorDocument<'a> {
    error: &'a Told,
}

impl Told {
    /// An error of that kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            path: None,
            details: Vec::new(),
            rules: Box::default(),
            route: None,
            invalid: None,
            hints: Vec::new(),
        }
    }

    /// The library's error with other hints than the usual ones.
    pub fn with_hints(error: &Error, hints: Vec<String>) -> Self {
        explain(error, hints)
    }

    /// The same error with one more hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same error on that path.
    pub fn on(mut self, path: &Path) -> Self {
        self.path = Some(Box::new(PathText::new(path.as_os_str().as_bytes())));
        self
    }

    /// The same error, its hints naming what the user typed for `ID`.
    pub fn aimed_at(mut self, selector: &str) -> Self {
        let whole = shell_word(selector);
        // A hint that names a workspace replaces the one that was typed.
        let sandbox = shell_word(selector.split(':').next().unwrap_or(selector));
        for hint in &mut self.hints {
            *hint = with_target(hint, |_, after| if after.starts_with(':') { &sandbox } else { &whole });
        }
        self
    }

    /// The same error, its hints naming the plan that the user typed; what takes paths names a sandbox of it.
    pub fn aimed_at_plan(mut self, plan: &str) -> Self {
        let all = format!("--plan {}", shell_word(plan));
        for hint in &mut self.hints {
            let whole = hint.replace("sandbox diff ID --patch`", "sandbox diff ID`").replace(" ID:", " ");
            *hint = with_target(&whole, |command, after| {
                let is_whole = !after.starts_with(' ') || after.starts_with(" -");
                let takes_plan = ["diff", "commit", "rollback"].contains(&command);
                if is_whole && takes_plan { &all } else { "ID" }
            });
        }
        self
    }

    /// A conflict of taking `operation` back: what matters is what changed after it.
    pub fn since(mut self, operation: &OpId) -> Self {
        self.message = self
            .message
            .replace(" in the original since the sandbox was made", &format!(" since {operation}"));
        self
    }

    /// As JSON.
    pub fn document(&self) -> ErrorDocument<'_> {
        ErrorDocument { error: self }
    }
}

impl From<Error> for Told {
    fn from(error: Error) -> Self {
        let hints = hints_of(error.root());
        explain(&error, hints)
    }
}

fn explain(error: &Error, hints: Vec<String>) -> Told {
    let root = error.root();
    let mut told = Told::new(kind_of(root), chain(error));
    told.path = path_of(root).map(|path| Box::new(PathText::new(path.as_os_str().as_bytes())));
    told.details = details_of(root);
    told.route = Candidates::of(root);
    if let Error::RulesFailed { failures, .. } = root {
        told.rules = failures.iter().map(FailedRule::of).collect();
    }
    told.invalid = InvalidPlugin::of(root);
    told.hints = hints;
    if let (Error::Workspace { workspace, .. }, Kind::Conflict | Kind::Refused) = (error, told.kind) {
        // Their hints take paths, and a path lies in one workspace; a commit without paths stays one of all workspaces.
        let one = format!("ID:{}", shell_word(workspace));
        told.hints.iter_mut().for_each(|hint| {
            *hint = with_target(hint, |command, after| {
                let of_all = command == "commit" && (!after.starts_with(' ') || after.starts_with(" -"));
                if of_all { "ID" } else { &one }
            })
        });
    }
    told
}

/// A hint with something else for each `ID` of its commands; `target` is told the command and what follows. A path that is
/// called so stays.
fn with_target<'a>(hint: &str, target: impl Fn(&str, &str) -> &'a str) -> String {
    let mut parts = hint.split("sandbox ");
    let mut aimed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        aimed.push_str("sandbox ");
        let end = part.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(part.len());
        let (command, rest) = part.split_at(end);
        match rest.strip_prefix(" ID").filter(|after| !after.starts_with(|c: char| c.is_alphanumeric())) {
            Some(after) => aimed.push_str(&format!("{command} {}{after}", target(command, after))),
            None => aimed.push_str(part),
        }
    }
    aimed
}

fn kind_of(error: &Error) -> Kind {
    match error {
        Error::Path(_) | Error::Usage { .. } => Kind::Usage,
        Error::Conflict { .. } => Kind::Conflict,
        Error::NotFound { .. } => Kind::NotFound,
        Error::Refused { .. }
        | Error::AlreadyDecided { .. }
        | Error::RulesFailed { .. }
        | Error::Uncommittable { .. }
        | Error::DigestMismatch { .. } => Kind::Refused,
        Error::Unavailable { .. } | Error::NoRoute { .. } => Kind::Unavailable,
        Error::Unsupported { .. } => Kind::Unsupported,
        Error::Plugin { .. } | Error::InvalidPlugin { .. } => Kind::Plugin,
        Error::Busy { .. } => Kind::Busy,
        Error::Cancelled => Kind::Interrupted,
        Error::Config { .. } => Kind::Config,
        Error::Corrupt { .. } => Kind::Corrupt,
        Error::NewerState { .. } => Kind::NewerState,
        Error::Unfinished { .. } => Kind::Unfinished,
        _ => Kind::Error,
    }
}

/// The error and its sources in one sentence; they do not repeat one another.
fn chain(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.downcast_ref::<io::Error>().map_or_else(|| inner.to_string(), system_text);
        message.push_str(": ");
        message.push_str(&text);
        source = inner.source();
    }
    message
}

fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. }
        | Error::Store { path, .. }
        | Error::NewerState { path, .. }
        | Error::Corrupt { path, .. }
        | Error::Unavailable { path, .. }
        | Error::Busy { path, .. } => Some(path),
        Error::Unfinished { source, .. } => path_of(source.root()),
        Error::Config { file, .. } => Some(file),
        Error::NotFound { what: "resource" | "file", name, .. } => Some(Path::new(name)),
        Error::Conflict { conflicts } if conflicts.len() == 1 => Some(conflicts[0].path.as_path()),
        Error::Uncommittable { entries } if entries.len() == 1 => Some(entries[0].0.as_path()),
        _ => None,
    }
}

fn details_of(error: &Error) -> Vec<Detail> {
    match error {
        Error::Conflict { conflicts } => conflicts.iter().map(Detail::of).collect(),
        Error::Uncommittable { entries } => entries.iter().map(|(path, why)| detail(path, why)).collect(),
        _ => Vec::new(),
    }
}

fn detail(path: &RelPath, reason: &str) -> Detail {
    Detail { path: PathText::of(path), reason: reason.to_owned(), parked: None, hunks: Vec::new() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::Conflict;

    use super::*;

    fn conflict(path: &str) -> Conflict {
        Conflict::new(RelPath::parse(path).unwrap(), "modified in the original")
    }

    #[test]
    fn a_workspace_wrapper_is_looked_through() {
        let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a"), conflict("b")] });
        let told = Told::from(Error::Workspace { workspace: "w".into(), source: inner });
        assert_eq!(told.kind, Kind::Conflict);
        assert_eq!(told.details.len(), 2);
        assert!(told.message.starts_with("workspace w: 2 paths changed"), "{}", told.message);
    }

    #[test]
    fn hints_with_paths_name_the_workspace_they_lie_in() {
        for typed in ["try", "try:w"] {
            let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a")] });
            let told = Told::from(Error::Workspace { workspace: "w".into(), source: inner });
            let told = told.aimed_at(typed);
            let whole = format!("`sandbox commit {typed} --on-");
            assert!(told.hints[1].contains(&whole), "{typed}: {:?}", told.hints);
            assert!(told.hints[3].contains("`sandbox rollback try:w a`"), "{typed}: {:?}", told.hints);
        }
    }

    #[test]
    fn io_errors_name_step_path_and_cause_once() {
        let told = Told::from(Error::io("read", "/x/y", io::Error::from_raw_os_error(2)));
        assert_eq!(told.message, "cannot read /x/y: No such file or directory");
        assert_eq!(told.path.as_deref(), Some(&PathText::new(b"/x/y")));
        let full = Told::from(Error::io("write", "/x", io::Error::from_raw_os_error(28)));
        assert!(full.hints[0].contains("sandbox gc"));
    }

    #[test]
    fn hints_name_what_was_typed() {
        let told = Told::from(Error::Conflict { conflicts: vec![conflict("a b")] }).aimed_at("my proj");
        assert!(told.hints[3].contains("`sandbox rollback 'my proj' 'a b'`"), "{:?}", told.hints);
        assert!(!told.hints.iter().any(|h| h.contains(" ID")));
    }

    #[test]
    fn hints_on_a_plan_name_it_or_a_sandbox_of_it() {
        let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a")] });
        let told = Told::from(Error::Workspace { workspace: "s:w".into(), source: inner });
        let hints = told.aimed_at_plan("my plan").hints;
        assert!(hints[1].contains("`sandbox commit --plan 'my plan' --on-conflict merge`"), "{hints:?}");
        assert!(hints[3].contains("`sandbox rollback s:w a`"), "{hints:?}");
        let told = Told::new(Kind::Usage, "x").hint("`sandbox diff ID --patch`, `sandbox commit ID PATH…`");
        assert_eq!(told.aimed_at_plan("p").hints[0], "`sandbox diff --plan p`, `sandbox commit ID PATH…`");
    }

    #[test]
    fn only_the_sandbox_of_a_command_is_named() {
        let told = Told::new(Kind::Usage, "x")
            .hint("`sandbox rollback ID ID`, the sandbox ID.txt, `sandbox diff ID:w IDs`");
        assert_eq!(
            told.aimed_at("try:v").hints[0],
            "`sandbox rollback try:v ID`, the sandbox ID.txt, `sandbox diff try:w IDs`"
        );
    }

    #[test]
    fn the_json_document_has_the_promised_fields() {
        let told = Told::from(Error::Conflict { conflicts: vec![conflict("a")] });
        let document: serde_json::Value = serde_json::to_value(told.document()).unwrap();
        assert_eq!(document["error"]["kind"], "conflict");
        assert_eq!(document["error"]["path"], "a");
        assert_eq!(document["error"]["paths"][0]["reason"], "modified in the original");
        assert!(document["error"]["hints"].is_array());
        assert!(document["error"].get("path_b64").is_none());
    }
}
