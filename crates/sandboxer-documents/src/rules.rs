//! Rules of a commit that did not hold.

use sandboxer_core::policy::{FailedPath, RuleFailure};
use schemars::JsonSchema;
use serde::Serialize;

use super::PathText;

/// A rule that did not hold.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedRule {
    /// As it is written for `--if`; `flags` is the one that always applies.
    pub rule: String,
    /// `--if` or the policy file; missing for the one that always applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it found.
    pub detail: String,
    /// On which paths, unless it is about all of them together.
    pub paths: Vec<FailedPlace>,
}

/// A path that a rule did not let pass.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedPlace {
    /// The workspace it lies in.
    pub workspace: String,
    /// Where.
    #[serde(flatten)]
    pub path: PathText,
    /// What about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl FailedRule {
    /// From the library's failure.
    pub fn of(failure: &RuleFailure) -> Self {
        Self {
            rule: failure.rule.clone(),
            source: Some(failure.source.clone()).filter(|source| !source.is_empty()),
            detail: failure.detail.clone(),
            paths: failure.paths.iter().map(FailedPlace::of).collect(),
        }
    }
}

impl FailedPlace {
    /// From the library's failure.
    pub fn of(failed: &FailedPath) -> Self {
        let (workspace, path) = (failed.workspace.clone(), PathText::of(&failed.path));
        Self { workspace, path, reason: failed.reason.clone() }
    }
}

/// What to type next.
pub(crate) fn hints(failures: &[RuleFailure]) -> Vec<String> {
    let mut hints = vec!["nothing was written; see what differs with `sandbox diff ID --patch`".to_owned()];
    if failures.iter().all(RuleFailure::is_about_flags_alone) {
        hints.push("commit it all the same with `sandbox commit ID --accept-flags`".to_owned());
    } else if failures.iter().any(RuleFailure::is_about_flags_alone) {
        hints.push("flagged paths are committed with --accept-flags".to_owned());
    }
    hints.push("or commit the harmless part by naming it: `sandbox commit ID PATH…`".to_owned());
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(rule: &str, source: &str) -> RuleFailure {
        RuleFailure { rule: rule.into(), source: source.into(), detail: "why".into(), paths: Vec::new() }
    }

    #[test]
    fn hints_offer_the_way_out_that_there_is() {
        let flags = || failure("flags", "");
        let other = || failure("max-files=1", "--if");
        let offers = |failures: &[RuleFailure]| hints(failures).concat().matches("--accept-flags").count();
        assert_eq!(offers(&[flags()]), 1);
        assert_eq!(offers(&[flags(), other()]), 1);
        assert_eq!(offers(&[other()]), 0);
        assert!(hints(&[other()]).iter().all(|hint| !hint.contains("all the same")));
    }
}
