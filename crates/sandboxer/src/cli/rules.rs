//! The rules of a commit as they are typed, and what is told when they do not hold.
//!
//! A refusal lists every rule that failed. Where the only one is the rule on flagged paths and a person is there, they
//! are asked; their yes is for exactly what was about to be committed, to the byte, so that nothing can be slipped in while
//! they read.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use sandboxer_core::Error;
use sandboxer_core::config::Settings;
use sandboxer_core::model::CommitRequest;
use sandboxer_core::policy::{CommitRules, FailedPath, Policy};
use sandboxer_core::service::{Target, TargetCommit, TargetDiff, WorkspaceDiff};
use sandboxer_documents::{FailedPlace, FailedRule};

use super::error::CliError;
use super::output::{self, Ui, style};
use super::session::{App, Session};

/// No more paths than this are shown of one rule; JSON has them all.
const SHOWN: usize = 10;

/// What a commit must hold to.
#[derive(clap::Args, Default)]
pub struct RuleArgs {
    /// Commit only if all of this holds, else exit 5: 'paths=src/**,tests/**; max-files=50; no-flags'
    #[arg(long = "if", value_name = "RULES")]
    pub conditions: Vec<String>,
    /// Commit only if all rules of this file hold, else exit 5
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// Commit flagged paths too: what `diff` shows with `look:`
    #[arg(long)]
    pub accept_flags: bool,
}

impl RuleArgs {
    /// Rules that somebody else has typed.
    #[cfg(feature = "server")]
    pub fn new(conditions: &[String], accept_flags: bool) -> Self {
        Self { conditions: conditions.to_vec(), policy: Vec::new(), accept_flags }
    }

    /// The rules as typed, after those that the configuration always adds.
    pub fn read(&self, settings: &Settings) -> Result<CommitRules, CliError> {
        let files = settings.policies.iter().chain(&self.policy).map(|file| Policy::load(file));
        let typed = self.conditions.iter().map(|text| Policy::parse(text).map_err(in_if));
        let policies = files.chain(typed).collect::<Result<_, Error>>()?;
        Ok(CommitRules { accept_flags: self.accept_flags, policies, ..CommitRules::default() })
    }
}

/// A complaint about a rule, with the flag that it was typed after.
fn in_if(error: Error) -> Error {
    match error {
        Error::Usage { message, hint } => Error::Usage { message: format!("--if: {message}"), hint },
        other => other,
    }
}

/// Commits. Where only flagged paths stand in the way and a person is there, they decide; `beforehand` is what they should know.
pub fn commit<T>(
    app: &App,
    session: &Session,
    (request, rules): (&CommitRequest, &CommitRules),
    beforehand: impl FnOnce() -> Vec<String>,
    commit: impl Fn(&CommitRequest, &CommitRules) -> Result<T, Error>,
) -> Result<T, Error> {
    let refusal = match commit(request, rules) {
        Err(refusal) => refusal,
        done => return done,
    };
    match flagged_alone(&refusal) {
        Some(flagged) if somebody_answers(app) && accepts(app, session, flagged, &beforehand()) => {
            let rules = CommitRules { accepted: flagged.to_vec(), ..rules.clone() };
            let digest = prepared(&refusal).or_else(|| request.digest.clone());
            let request = CommitRequest { digest, ..request.clone() };
            commit(&request, &rules).map_err(changed_since_asked)
        }
        _ => Err(refusal),
    }
}

/// The same for one sandbox.
pub fn commit_target(
    app: &App,
    session: &Session,
    target: &Target,
    request: &CommitRequest,
    rules: &CommitRules,
) -> Result<TargetCommit, Error> {
    let beforehand = || session.manager.diff(target, &[]).map_or(Vec::new(), |diff| deciding(&diff, ""));
    commit(app, session, (request, rules), beforehand, |request, rules| {
        session.manager.commit(target, request, rules)
    })
}

/// What of a difference is committed before everything else, because it cannot be prepared; `prefix` is put before the names.
pub fn deciding(diff: &TargetDiff, prefix: &str) -> Vec<String> {
    let told = |w: &WorkspaceDiff| {
        let why = w.at_decision.as_ref().filter(|_| diff.workspaces.len() > 1 || !prefix.is_empty())?;
        Some(at_decision(&format!("{prefix}{}", w.workspace.name), why))
    };
    diff.workspaces.iter().filter_map(told).collect()
}

/// One sentence on a workspace that is committed at the moment of the decision.
pub fn at_decision(workspace: &str, why: &str) -> String {
    let (workspace, why) = (output::name(workspace), output::sentence(why));
    format!("{workspace} cannot be prepared ({why}): it is committed first, and the rest follows")
}

/// The flagged paths, where nothing else was refused.
fn flagged_alone(refusal: &Error) -> Option<&[FailedPath]> {
    match refusal.root() {
        Error::RulesFailed { failures, .. } => match failures.as_slice() {
            [only] if only.is_about_flags_alone() => Some(&only.paths),
            _ => None,
        },
        _ => None,
    }
}

/// The digest of what was about to be committed.
fn prepared(refusal: &Error) -> Option<String> {
    match refusal.root() {
        Error::RulesFailed { digest, .. } => digest.clone(),
        _ => None,
    }
}

fn changed_since_asked(error: Error) -> Error {
    match error.root() {
        Error::DigestMismatch { .. } => Error::Refused {
            reason: "what is to be committed has changed since you were asked; nothing was committed"
                .to_owned(),
            hint: Some("see what differs now with `sandbox diff ID --patch`, and type it again".to_owned()),
        },
        _ => error,
    }
}

fn somebody_answers(app: &App) -> bool {
    !app.ui.json && io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn accepts(app: &App, session: &Session, flagged: &[FailedPath], beforehand: &[String]) -> bool {
    beforehand.iter().for_each(|line| app.ui.warn(line));
    for path in flagged {
        app.ui.warn(place_line(&FailedPlace::of(path), false));
    }
    let question = app.ui.paint_err(style::HEAD, "commit them all the same? [y/N]");
    let _ = write!(io::stderr(), "{question} ");
    matches!(session.answer().as_deref(), Some("y" | "yes"))
}

fn rule_lines(rule: &FailedRule, ui: &Ui, several: bool) -> Vec<String> {
    let source = rule.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
    let name = ui.paint_err(style::WARN, output::sentence(&format!("{}{source}", rule.rule)));
    let mut lines = vec![format!("  {name}: {}", output::sentence(&rule.detail))];
    let shown = rule.paths.iter().take(SHOWN);
    lines.extend(shown.map(|place| format!("    {}", place_line(place, several))));
    if rule.paths.len() > SHOWN {
        lines.push(format!("    and {} more", rule.paths.len() - SHOWN));
    }
    lines
}

fn place_line(place: &FailedPlace, with_workspace: bool) -> String {
    let workspace =
        if with_workspace { format!("{}: ", output::name(&place.workspace)) } else { String::new() };
    let reason = place.reason.as_ref().map(|reason| format!(": {}", output::sentence(reason)));
    format!("{workspace}{}{}", output::path(&place.path), reason.unwrap_or_default())
}

/// The rules that failed, line by line; paths name their workspace where they lie in several.
pub fn lines(rules: &[FailedRule], ui: &Ui) -> Vec<String> {
    let mut workspaces: Vec<&str> =
        rules.iter().flat_map(|rule| &rule.paths).map(|path| path.workspace.as_str()).collect();
    workspaces.sort_unstable();
    workspaces.dedup();
    rules.iter().flat_map(|rule| rule_lines(rule, ui, workspaces.len() > 1)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::RelPath;
    use sandboxer_core::policy::RuleFailure;

    use super::*;
    use crate::cli::output::ColorWhen;

    fn place(workspace: &str, path: &[u8], reason: Option<&str>) -> FailedPath {
        let path = RelPath::from_bytes(path).unwrap();
        FailedPath { workspace: workspace.into(), path, reason: reason.map(str::to_owned) }
    }

    fn failure(rule: &str, source: &str, paths: Vec<FailedPath>) -> RuleFailure {
        RuleFailure { rule: rule.into(), source: source.into(), detail: "why".into(), paths }
    }

    fn shown(failures: &[RuleFailure]) -> Vec<String> {
        let rules: Vec<FailedRule> = failures.iter().map(FailedRule::of).collect();
        lines(&rules, &Ui::new(false, false, ColorWhen::Never))
    }

    #[test]
    fn each_rule_is_told_with_its_paths() {
        let flagged = failure("flags", "", vec![place("w", b"a\nb", Some("setuid"))]);
        let files = failure("max-files=1", "--if", Vec::new());
        let expected = ["  flags: why", "    a\\nb: setuid", "  max-files=1 (--if): why"];
        assert_eq!(shown(&[flagged, files]), expected);
    }

    #[test]
    fn no_more_than_ten_paths_of_a_rule_are_shown() {
        let paths = |n: usize| (0..n).map(|i| place("w", format!("p{i}").as_bytes(), None)).collect();
        let lines = shown(&[failure("no-links", "ci.yaml", paths(12))]);
        assert_eq!(lines.len(), 12);
        assert_eq!(lines[11], "    and 2 more");
        assert_eq!(shown(&[failure("no-links", "ci.yaml", paths(10))]).len(), 11);
    }

    #[test]
    fn the_workspace_is_named_where_there_are_several() {
        let lines = shown(&[failure("flags", "", vec![place("x", b"a", None), place("y", b"b", None)])]);
        assert_eq!(lines[1..], ["    x: a", "    y: b"]);
    }

    #[test]
    fn typed_rules_are_read_and_complaints_name_the_flag() {
        let read = |text: &str| {
            let conditions = vec![text.to_owned()];
            RuleArgs { conditions, accept_flags: true, ..RuleArgs::default() }.read(&Settings::default())
        };
        let rules = read("no-links").unwrap();
        assert!(rules.accept_flags && rules.policies.len() == 1);
        let error = read("no-lnks").unwrap_err();
        assert_eq!((error.exit, error.message.as_str()), (2, "--if: unknown rule \"no-lnks\""));
        assert!(error.hints[0].contains("no-links"), "{:?}", error.hints);
    }

    #[test]
    fn only_flags_can_be_waved_through() {
        let refused = |failures| Error::RulesFailed { failures, digest: None };
        let flags = || failure("flags", "", vec![place("w", b"a", None)]);
        assert!(flagged_alone(&refused(vec![flags()])).is_some());
        assert!(flagged_alone(&refused(vec![flags(), failure("no-exec", "--if", vec![])])).is_none());
        assert!(flagged_alone(&refused(vec![failure("no-flags", "--if", vec![])])).is_none());
        assert!(flagged_alone(&Error::Cancelled).is_none());
    }
}
