//! The one place where an error of the library becomes words: kind, message, path, hints and exit code.
//!
//! A hint says what to type next. It is written with the placeholder `ID`, which [`CliError::aimed_at`] replaces by what
//! the user typed, so that the command can be pasted.

use std::error::Error as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandboxer_core::Error;
use sandboxer_core::environment::Candidate;
use sandboxer_core::model::{OnConflict, OpId, RelPath};
use sandboxer_strategies::git_worktree;
use serde::Serialize;

use super::conflicts::{self, Attempt, Detail};
use super::exit;
use super::git;
use super::json::PathText;
use super::output::{self, Ui, shell_word, style};
use super::rules::{self, FailedRule};

/// What kind of failure it is, in one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

impl Kind {
    /// The exit code of this kind.
    pub fn exit(self) -> u8 {
        match self {
            Self::Usage => exit::USAGE,
            Self::Conflict => exit::CONFLICT,
            Self::NotFound => exit::NOT_FOUND,
            Self::Refused => exit::REFUSED,
            Self::Unavailable => exit::UNAVAILABLE,
            Self::Interrupted => exit::INTERRUPTED,
            Self::Error
            | Self::Unsupported
            | Self::Plugin
            | Self::Busy
            | Self::Config
            | Self::Corrupt
            | Self::NewerState => exit::ERROR,
        }
    }
}

/// A failure, ready to be told.
#[derive(Debug, Serialize)]
pub struct CliError {
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FailedRule>,
    /// Each candidate of a route, and why not.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    route: Option<Box<Candidates>>,
    /// What to type next.
    pub hints: Vec<String>,
    /// The exit code.
    #[serde(skip)]
    pub exit: u8,
    /// The reader of our output has gone: nobody is there to be told.
    #[serde(skip)]
    silent: bool,
}

/// What could not be chosen.
#[derive(Debug, Serialize)]
struct Candidates {
    candidates: Vec<Candidate>,
    /// How many more there are.
    left_out: usize,
}

impl Candidates {
    fn of(error: &Error) -> Option<Box<Self>> {
        let Error::NoRoute { candidates, left_out, .. } = error else { return None };
        Some(Box::new(Self { candidates: candidates.clone(), left_out: *left_out }))
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let each = self.candidates.iter().map(|candidate| {
            let Candidate { extension_id, host, reason, .. } = candidate;
            format!("  {extension_id} on {host}: {}", output::sentence(reason))
        });
        each.chain((self.left_out > 0).then(|| format!("  and {} more", self.left_out)))
    }
}

/// What `--json` prints of it.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: &'a CliError,
}

impl CliError {
    /// An error of that kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message,
            path: None,
            details: Vec::new(),
            rules: Vec::new(),
            route: None,
            hints: Vec::new(),
            exit: kind.exit(),
            silent: false,
        }
    }

    /// A request that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The output could not be written. A closed pipe is no error: the reader has seen enough.
    pub fn output(error: io::Error) -> Self {
        let silent = error.kind() == io::ErrorKind::BrokenPipe;
        let failure = Self::new(Kind::Error, format!("cannot write the output: {}", system_text(&error)));
        Self { silent, exit: if silent { exit::OK } else { exit::ERROR }, ..failure }
    }

    /// The same error with one more hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The same error with another exit code.
    pub fn exiting(mut self, code: u8) -> Self {
        self.exit = if self.silent { self.exit } else { code };
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

    /// The library's error with other hints than the usual ones.
    pub fn from_with_hints(error: &Error, hints: Vec<String>) -> Self {
        explain(error, hints)
    }

    /// A conflict of taking `operation` back: what matters is what changed after it.
    pub fn since(mut self, operation: &OpId) -> Self {
        self.message = self
            .message
            .replace(" in the original since the sandbox was made", &format!(" since {operation}"));
        self
    }

    /// Tells it on stderr, as text or as the JSON document.
    pub fn report(&self, ui: &Ui) {
        if self.silent {
            return;
        }
        let text = if ui.json { self.document() } else { self.text(ui) };
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn document(&self) -> String {
        let document = ErrorDocument { error: self };
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    fn text(&self, ui: &Ui) -> String {
        let head = ui.paint_err(style::BAD, "error:");
        let mut text = format!("{head} {}\n", output::sentence(&self.message));
        for line in self.details.iter().flat_map(|detail| detail.lines(ui)) {
            text.push_str(&format!("{line}\n"));
        }
        for line in rules::lines(&self.rules, ui) {
            text.push_str(&format!("{line}\n"));
        }
        for line in self.route.iter().flat_map(|route| route.lines()) {
            text.push_str(&format!("{line}\n"));
        }
        for hint in &self.hints {
            text.push_str(&format!("{} {}\n", ui.paint_err(style::HINT, "hint:"), output::sentence(hint)));
        }
        text
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let hints = hints_of(error.root());
        explain(&error, hints)
    }
}

fn explain(error: &Error, hints: Vec<String>) -> CliError {
    let root = error.root();
    let mut told = CliError::new(kind_of(root), chain(error));
    told.path = path_of(root).map(|path| Box::new(PathText::new(path.as_os_str().as_bytes())));
    told.details = details_of(root);
    told.route = Candidates::of(root);
    if let Error::RulesFailed { failures, .. } = root {
        told.rules = failures.iter().map(FailedRule::of).collect();
    }
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
        | Error::RulesFailed { .. }
        | Error::Uncommittable { .. }
        | Error::DigestMismatch { .. } => Kind::Refused,
        Error::Unavailable { .. } | Error::NoRoute { .. } => Kind::Unavailable,
        Error::Unsupported { .. } => Kind::Unsupported,
        Error::Plugin { .. } => Kind::Plugin,
        Error::Busy { .. } => Kind::Busy,
        Error::Cancelled => Kind::Interrupted,
        Error::Config { .. } => Kind::Config,
        Error::Corrupt { .. } => Kind::Corrupt,
        Error::NewerState { .. } => Kind::NewerState,
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

/// The system's words without ` (os error 2)`.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. }
        | Error::Store { path, .. }
        | Error::NewerState { path, .. }
        | Error::Corrupt { path, .. }
        | Error::Unavailable { path, .. }
        | Error::Busy { path, .. } => Some(path),
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

fn hints_of(error: &Error) -> Vec<String> {
    match error {
        Error::Io { source, .. } => io_hints(source),
        Error::Store { source, .. } => store_hints(&source.to_string()),
        Error::Path(_) => {
            vec!["paths are relative to the workspace's root, as `sandbox diff ID` shows them".to_owned()]
        }
        Error::NewerState { .. } => {
            vec![
                "use the newer `sandbox`, or another state directory: --home DIR or $SANDBOXER_HOME"
                    .to_owned(),
            ]
        }
        Error::Corrupt { path, .. } => corrupt_hints(path),
        Error::NotFound { what, similar, .. } => not_found_hints(what, similar),
        Error::Usage { hint, .. } | Error::Refused { hint, .. } | Error::Config { hint, .. } => {
            hint.iter().cloned().collect()
        }
        Error::Conflict { conflicts } => {
            let attempt = Attempt::Commit { way: OnConflict::Fail, selection: String::new() };
            conflicts::hints(conflicts, &attempt)
        }
        Error::DigestMismatch { .. } => {
            vec!["review again: `sandbox diff ID --json` gives the digest of what is there now".to_owned()]
        }
        Error::Uncommittable { entries } => uncommittable_hints(entries),
        Error::RulesFailed { failures, .. } => rules::hints(failures),
        Error::Unavailable { strategy, .. } if strategy == git_worktree::NAME => {
            vec![format!(
                "install git {}, or use `--strategy overlay`, which knows nothing of git",
                git::OLDEST
            )]
        }
        Error::Unsupported { .. } => {
            vec!["`sandbox strategies --json` shows what each strategy can do".to_owned()]
        }
        Error::Unavailable { .. } => {
            vec!["`sandbox doctor` shows which strategies work here, and why not".to_owned()]
        }
        Error::NoRoute { profile, .. } => no_route_hints(profile),
        Error::Plugin { plugin, reason, log } => plugin_hints(plugin, reason, log.as_deref()),
        Error::Busy { holder, .. } => busy_hints(holder.as_deref()),
        Error::Cancelled => vec!["type the command again to go on".to_owned()],
        _ => Vec::new(),
    }
}

fn no_route_hints(profile: &str) -> Vec<String> {
    vec![format!(
        "`sandbox profiles {}` shows what it asks for, `sandbox hosts` where there is room",
        shell_word(profile)
    )]
}

fn plugin_hints(plugin: &str, reason: &str, log: Option<&Path>) -> Vec<String> {
    let force = reason
        .starts_with("`cleanup`")
        .then(|| "`sandbox destroy ID --force` removes the sandbox without it".to_owned());
    let said = log
        .filter(|log| log.exists())
        .map(|log| format!("what it wrote to its standard error is in {}", log.display()));
    let check = format!(
        "`sandbox strategies check {}` tries it on something that can be thrown away",
        shell_word(plugin)
    );
    said.into_iter().chain(force).chain([check]).collect()
}

fn busy_hints(holder: Option<&str>) -> Vec<String> {
    let command = holder.is_some_and(|holder| holder.starts_with("a command is running"));
    let see = command.then(|| "`sandbox ps ID` shows what runs in it".to_owned());
    see.into_iter().chain(["wait until it has ended, then try again".to_owned()]).collect()
}

fn io_hints(source: &io::Error) -> Vec<String> {
    let hint = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there (`sandbox gc`, `sandbox list`), or use --home DIR on a larger filesystem"
        }
        io::ErrorKind::PermissionDenied => {
            "run this as a user who may, or change the permissions of that path"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "that filesystem is read-only: nothing can be committed to it or kept there"
        }
        io::ErrorKind::NotADirectory => "a part of that path is not a directory",
        _ => return Vec::new(),
    };
    vec![hint.to_owned()]
}

fn store_hints(source: &str) -> Vec<String> {
    if source.contains("locked") || source.contains("busy") {
        return vec!["another `sandbox` is writing: try again".to_owned()];
    }
    vec!["`sandbox doctor` looks at the state directory".to_owned()]
}

fn corrupt_hints(path: &Path) -> Vec<String> {
    if path.extension().is_some_and(|e| e == "db") {
        let database = shell_word(&path.to_string_lossy());
        return vec![format!(
            "move it away with `mv {database} {database}.damaged`, then `sandbox adopt` finds the sandboxes again"
        )];
    }
    vec![
        "what is in the sandbox can still be copied from `sandbox path ID`; `sandbox destroy ID` removes it"
            .to_owned(),
    ]
}

fn not_found_hints(what: &str, similar: &[String]) -> Vec<String> {
    let mut hints = Vec::new();
    if !similar.is_empty() {
        hints.push(format!("did you mean {}?", similar.join(" or ")));
    }
    let listing = match what {
        "resource" => "name a directory or a file that is there; without one it is the current directory",
        "sandbox" => "`sandbox list` shows what there is",
        "open sandbox of plan" => "`sandbox list --json` shows the plan of each open sandbox",
        "workspace" => "`sandbox get ID` shows its workspaces",
        "checkpoint" => "`sandbox checkpoints ID` shows what there is",
        "operation" | "commit to take back" => {
            "`sandbox log` shows what was done, with the id of each operation"
        }
        "registered strategy" => {
            hints.push("`sandbox destroy ID --force` removes the sandbox without it".to_owned());
            "the sandbox was made with a configuration that registers it (sandbox.custom_strategies), which is missing now: give it with --config FILE"
        }
        "strategy" | "strategy (named by sandbox.strategy)" => "`sandbox strategies` shows what there is",
        "profile" => "`sandbox profiles` shows what there is",
        "extension" => "`sandbox extensions` shows what there is",
        "host" => "`sandbox hosts` shows what there is",
        "resource type" | "type" => "`sandbox types` shows what there is",
        _ => return hints,
    };
    hints.push(listing.to_owned());
    hints
}

fn uncommittable_hints(entries: &[(RelPath, String)]) -> Vec<String> {
    let first = entries.first().map(|(path, _)| shell_word(&path.to_string())).unwrap_or_default();
    vec![
        format!("drop it from the sandbox with `sandbox rollback ID {first}`"),
        "or commit the rest by naming it: `sandbox commit ID PATH…`".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::Conflict;

    use super::*;

    fn conflict(path: &str) -> Conflict {
        Conflict::new(RelPath::parse(path).unwrap(), "modified in the original")
    }

    fn exit_of(error: Error) -> u8 {
        CliError::from(error).exit
    }

    #[test]
    fn every_kind_has_its_exit_code() {
        assert_eq!(exit_of(Error::Conflict { conflicts: vec![] }), 3);
        assert_eq!(exit_of(Error::not_found("sandbox", "x")), 4);
        assert_eq!(exit_of(Error::refused("x")), 5);
        assert_eq!(exit_of(Error::Uncommittable { entries: vec![] }), 5);
        assert_eq!(exit_of(Error::RulesFailed { failures: vec![], digest: None }), 5);
        assert_eq!(exit_of(Error::DigestMismatch { expected: "a".into(), found: "b".into() }), 5);
        let unavailable = Error::Unavailable { strategy: "s".into(), path: "/".into(), reason: "r".into() };
        assert_eq!(exit_of(unavailable), 6);
        assert_eq!(exit_of(Error::usage("x")), 2);
        assert_eq!(exit_of(RelPath::parse("..").unwrap_err().into()), 2);
        assert_eq!(exit_of(Error::Cancelled), 130);
        assert_eq!(exit_of(Error::Busy { path: "/x".into(), holder: None }), 1);
        assert_eq!(exit_of(Error::corrupt("/x", "r")), 1);
    }

    #[test]
    fn a_workspace_wrapper_is_looked_through() {
        let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a"), conflict("b")] });
        let told = CliError::from(Error::Workspace { workspace: "w".into(), source: inner });
        assert_eq!(told.exit, 3);
        assert_eq!(told.details.len(), 2);
        assert!(told.message.starts_with("workspace w: 2 paths changed"), "{}", told.message);
    }

    #[test]
    fn hints_with_paths_name_the_workspace_they_lie_in() {
        for typed in ["try", "try:w"] {
            let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a")] });
            let told = CliError::from(Error::Workspace { workspace: "w".into(), source: inner });
            let told = told.aimed_at(typed);
            let whole = format!("`sandbox commit {typed} --on-");
            assert!(told.hints[1].contains(&whole), "{typed}: {:?}", told.hints);
            assert!(told.hints[3].contains("`sandbox rollback try:w a`"), "{typed}: {:?}", told.hints);
        }
    }

    #[test]
    fn a_strategy_that_is_gone_points_at_the_configuration() {
        let told = CliError::from(Error::not_found("registered strategy", "mine"));
        assert_eq!(told.exit, 4);
        assert!(told.hints[0].contains("--force") && told.hints[1].contains("--config"), "{:?}", told.hints);
    }

    #[test]
    fn io_errors_name_step_path_and_cause_once() {
        let told = CliError::from(Error::io("read", "/x/y", io::Error::from_raw_os_error(2)));
        assert_eq!(told.message, "cannot read /x/y: No such file or directory");
        assert_eq!(told.path.as_deref(), Some(&PathText::new(b"/x/y")));
        let full = CliError::from(Error::io("write", "/x", io::Error::from_raw_os_error(28)));
        assert!(full.hints[0].contains("sandbox gc"));
    }

    #[test]
    fn hints_name_what_was_typed() {
        let told = CliError::from(Error::Conflict { conflicts: vec![conflict("a b")] }).aimed_at("my proj");
        assert!(told.hints[3].contains("`sandbox rollback 'my proj' 'a b'`"), "{:?}", told.hints);
        assert!(!told.hints.iter().any(|h| h.contains(" ID")));
    }

    #[test]
    fn hints_on_a_plan_name_it_or_a_sandbox_of_it() {
        let inner = Box::new(Error::Conflict { conflicts: vec![conflict("a")] });
        let told = CliError::from(Error::Workspace { workspace: "s:w".into(), source: inner });
        let hints = told.aimed_at_plan("my plan").hints;
        assert!(hints[1].contains("`sandbox commit --plan 'my plan' --on-conflict merge`"), "{hints:?}");
        assert!(hints[3].contains("`sandbox rollback s:w a`"), "{hints:?}");
        let told = CliError::usage("x").hint("`sandbox diff ID --patch`, `sandbox commit ID PATH…`");
        assert_eq!(told.aimed_at_plan("p").hints[0], "`sandbox diff --plan p`, `sandbox commit ID PATH…`");
    }

    #[test]
    fn only_the_sandbox_of_a_command_is_named() {
        let told = CliError::usage("x")
            .hint("`sandbox rollback ID ID`, the sandbox ID.txt, `sandbox diff ID:w IDs`");
        assert_eq!(
            told.aimed_at("try:v").hints[0],
            "`sandbox rollback try:v ID`, the sandbox ID.txt, `sandbox diff try:w IDs`"
        );
    }

    #[test]
    fn the_json_document_has_the_promised_fields() {
        let told = CliError::from(Error::Conflict { conflicts: vec![conflict("a")] });
        let document: serde_json::Value = serde_json::from_str(&told.document()).unwrap();
        assert_eq!(document["error"]["kind"], "conflict");
        assert_eq!(document["error"]["path"], "a");
        assert_eq!(document["error"]["paths"][0]["reason"], "modified in the original");
        assert!(document["error"]["hints"].is_array());
        assert!(document["error"].get("path_b64").is_none());
    }

    #[test]
    fn a_closed_pipe_is_silent_success() {
        let told = CliError::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((told.exit, told.silent), (0, true));
        assert_eq!(told.exiting(125).exit, 0);
    }

    #[test]
    fn near_names_come_first() {
        let error = Error::NotFound { what: "sandbox", name: "proy".into(), similar: vec!["proj".into()] };
        assert_eq!(CliError::from(error).hints[0], "did you mean proj?");
    }
}
