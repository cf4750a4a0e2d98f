//! Verification of plugins: the result of checking a strategy or an extension against what its role asks for.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The last known result of checking a declared strategy or extension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum CheckResult {
    /// Every method is there and can be called as it will be.
    Ok,
    /// The plugin cannot be used as it is declared.
    Broken {
        /// Everything that is wrong, in the order of the role's methods.
        problems: Vec<PluginProblem>,
    },
    /// Never checked as it is declared now: the declaration or the plugin's file has changed since, if it was checked at all.
    #[default]
    NotChecked,
}

/// One thing that is wrong with a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum PluginProblem {
    /// A method that the role requires is not there.
    MissingMethod {
        /// The method's name.
        method: String,
    },
    /// Something has the method's name and cannot be called.
    UncallableMethod {
        /// The method's name.
        method: String,
        /// What it is instead, as the rest of a sentence: "is a coroutine".
        reason: String,
    },
    /// A method cannot take the arguments that it is called with.
    WrongArguments {
        /// The method's name.
        method: String,
        /// The parameters that it has.
        takes: Vec<String>,
        /// The arguments that it is called with.
        called_with: Vec<String>,
    },
    /// A step of a full check failed.
    FailedStep {
        /// The step's name.
        step: String,
        /// What was expected and what was found.
        detail: String,
    },
    /// The plugin could not be started, or its handshake or declaration is invalid.
    Unusable {
        /// Why, in one sentence.
        reason: String,
    },
}

impl CheckResult {
    /// The result that an error of a verification stands for; `None` if the check was interrupted, which says nothing of the plugin.
    pub fn from_error(error: &Error) -> Option<Self> {
        let problems = match error {
            Error::Cancelled => return None,
            Error::InvalidPlugin { problems, .. } => problems.clone(),
            Error::Plugin { reason, .. } => vec![PluginProblem::Unusable { reason: reason.clone() }],
            other => vec![PluginProblem::Unusable { reason: other.in_full() }],
        };
        Some(Self::Broken { problems })
    }

    /// Whether a full check found it broken: the methods are there and one of them does not do what it promises.
    pub fn has_failed_steps(&self) -> bool {
        let is_step = |problem: &PluginProblem| matches!(problem, PluginProblem::FailedStep { .. });
        matches!(self, Self::Broken { problems } if problems.iter().any(is_step))
    }
}

/// `ok`, `broken` or `not checked`.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Broken { .. } => "broken",
            Self::NotChecked => "not checked",
        })
    }
}

impl fmt::Display for PluginProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingMethod { method } => write!(f, "`{method}` is missing"),
            Self::UncallableMethod { method, reason } => write!(f, "`{method}` {reason}"),
            Self::WrongArguments { method, takes, called_with } => {
                let (takes, called_with) = (list(takes), list(called_with));
                write!(f, "`{method}` takes {takes} where it is called with {called_with}")
            }
            Self::FailedStep { step, detail } => write!(f, "step {step} failed: {detail}"),
            Self::Unusable { reason } => f.write_str(reason),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { format!("({})", names.join(", ")) }
}

/// The problems in one line.
pub fn join_problems(problems: &[PluginProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong_arguments() -> PluginProblem {
        PluginProblem::WrongArguments {
            method: "diff".into(),
            takes: Vec::new(),
            called_with: vec!["ref".into()],
        }
    }

    #[test]
    fn a_result_survives_serialization() {
        let missing = PluginProblem::MissingMethod { method: "read".into() };
        let broken = CheckResult::Broken { problems: vec![missing, wrong_arguments()] };
        for result in [CheckResult::Ok, CheckResult::NotChecked, broken] {
            let value = serde_json::to_value(&result).unwrap();
            assert_eq!(serde_json::from_value::<CheckResult>(value).unwrap(), result);
        }
        assert_eq!(json!(CheckResult::NotChecked), json!({"status": "not_checked"}));
        assert_eq!(json!(wrong_arguments())["problem"], "wrong_arguments");
    }

    #[test]
    fn an_error_keeps_its_problems_and_an_interruption_gives_no_result() {
        let problems = vec![wrong_arguments()];
        let error =
            Error::InvalidPlugin { plugin: "mine".into(), role: "strategy", problems: problems.clone() };
        assert_eq!(CheckResult::from_error(&error), Some(CheckResult::Broken { problems }));
        assert_eq!(CheckResult::from_error(&Error::Cancelled), None);
        let reason = "`initialize` got no answer".to_owned();
        let error = Error::Plugin { plugin: "mine".into(), reason: reason.clone(), log: None };
        let problems = vec![PluginProblem::Unusable { reason }];
        assert_eq!(CheckResult::from_error(&error), Some(CheckResult::Broken { problems }));
    }

    #[test]
    fn only_a_failed_step_counts_as_one() {
        let step = PluginProblem::FailedStep { step: "commit".into(), detail: "nothing changed".into() };
        assert!(CheckResult::Broken { problems: vec![wrong_arguments(), step] }.has_failed_steps());
        assert!(!CheckResult::Broken { problems: vec![wrong_arguments()] }.has_failed_steps());
        assert!(!CheckResult::Ok.has_failed_steps());
    }
}
