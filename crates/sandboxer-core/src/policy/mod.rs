//! Under which conditions a commit goes ahead without a person.
//!
//! Whoever commits may set rules: where the changes may lie, how many there may be, of which kinds. A [`Policy`] is one
//! set of rules, written on the command line or in a file; [`CommitRules`] are all policies of one commit together with
//! the rule that always applies: what is flagged is not committed unless somebody has said so. Every rule is looked at,
//! and a refusal lists each one that failed with the paths it failed on, so that nobody has to find out one by one.
//! Nothing here touches a file of the sandbox: rules see the entries that are about to be committed, and only those.

mod file;
mod globs;
mod rule;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::model::{DiffEntry, RelPath};
use crate::{Error, Result};
use rule::{Changes, Rule};

/// The name of the rule that holds without any policy.
const FLAGS: &str = "flags";

/// Under which conditions a commit goes ahead. The default refuses what is flagged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommitRules {
    /// Commit flagged entries as well, unless a policy says `no-flags`.
    pub accept_flags: bool,
    /// These flagged entries are accepted, each for the flags it was shown with.
    pub accepted: Vec<FailedPath>,
    /// All of them must hold.
    pub policies: Vec<Policy>,
}

/// One set of rules, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Where it was written: `--if`, or the file.
    pub source: String,
    rules: Vec<Rule>,
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFailure {
    /// The rule, as it is written for `--if`; `flags` is the one that always applies.
    pub rule: String,
    /// The policy it stands in; empty for the one that always applies.
    pub source: String,
    /// What it found.
    pub detail: String,
    /// On which paths; empty where it is about all of them together.
    pub paths: Vec<FailedPath>,
}

/// A path that a rule does not let pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPath {
    /// The workspace it lies in.
    pub workspace: String,
    /// Where.
    pub path: RelPath,
    /// What about it, where the rule alone does not say.
    pub reason: Option<String>,
}

impl CommitRules {
    /// Refuses with [`Error::RulesFailed`] unless every rule holds for `entries`: each workspace's name with one
    /// entry that is to be committed in it.
    pub fn check<'a>(&self, entries: impl IntoIterator<Item = (&'a str, &'a DiffEntry)>) -> Result<()> {
        if self.allow_everything() {
            return Ok(());
        }
        let changes = Changes::new(entries);
        let mut failures: Vec<RuleFailure> = self.check_flags(&changes).into_iter().collect();
        for policy in &self.policies {
            failures.extend(policy.check(&changes));
        }
        if failures.is_empty() { Ok(()) } else { Err(Error::RulesFailed { failures, digest: None }) }
    }

    /// Whether nothing can be refused, so that nobody need look.
    pub fn allow_everything(&self) -> bool {
        self.accept_flags && self.policies.iter().all(|policy| policy.rules.is_empty())
    }

    /// What always applies, unless a policy has a word of its own on flags.
    fn check_flags(&self, changes: &Changes<'_>) -> Option<RuleFailure> {
        if self.accept_flags || self.policies.iter().any(Policy::forbids_flags) {
            return None;
        }
        let paths: Vec<_> = changes.flagged().filter(|path| !self.accepted.contains(path)).collect();
        let detail = match paths.len() {
            0 => return None,
            1 => "1 path is to be looked at before it is committed".to_owned(),
            many => format!("{many} paths are to be looked at before they are committed"),
        };
        Some(RuleFailure { rule: FLAGS.to_owned(), source: String::new(), detail, paths })
    }
}

impl Policy {
    fn check(&self, changes: &Changes<'_>) -> impl Iterator<Item = RuleFailure> {
        self.rules.iter().filter_map(|rule| rule.check(changes).map(|failed| self.failure(rule, failed)))
    }

    fn failure(&self, rule: &Rule, (detail, paths): (String, Vec<FailedPath>)) -> RuleFailure {
        RuleFailure { rule: rule.to_string(), source: self.source.clone(), detail, paths }
    }

    fn forbids_flags(&self) -> bool {
        self.rules.contains(&Rule::NoFlags)
    }
}

impl RuleFailure {
    /// Whether it is the rule that always applies, which a person may set aside.
    pub fn is_about_flags_alone(&self) -> bool {
        self.rule == FLAGS && self.source.is_empty()
    }
}

impl fmt::Display for RuleFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rule)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}
