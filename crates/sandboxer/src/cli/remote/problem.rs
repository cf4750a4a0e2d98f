//! A server's `problem+json`, told as the same failure of a local command would be: kind, message, paths, rules, hints, exit code.

use sandboxer_core::environment::Candidate;
use sandboxer_core::model::ConflictHunk;
use sandboxer_core::verification::PluginProblem;
use sandboxer_documents::{Candidates, Detail, FailedPlace, FailedRule, InvalidPlugin, PathText, Told};
use serde::Deserialize;

use crate::cli::error::{CliError, Kind};

/// A problem, as far as it is told here.
#[derive(Deserialize)]
struct Problem {
    kind: String,
    message: String,
    #[serde(flatten)]
    path: Option<Path>,
    #[serde(default)]
    paths: Vec<Place>,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    candidates: Vec<Candidate>,
    #[serde(default)]
    left_out: usize,
    #[serde(default)]
    problems: Vec<PluginProblem>,
    #[serde(default)]
    hints: Vec<String>,
}

/// A path as documents have it.
#[derive(Debug, Deserialize)]
pub struct Path {
    path: String,
    path_b64: Option<String>,
}

impl From<Path> for PathText {
    fn from(Path { path, path_b64 }: Path) -> Self {
        Self { path, path_b64 }
    }
}

/// One path of several, with why.
#[derive(Debug, Deserialize)]
pub struct Place {
    #[serde(flatten)]
    path: Path,
    reason: String,
    parked: Option<String>,
    #[serde(default)]
    hunks: Vec<ConflictHunk>,
}

impl From<Place> for Detail {
    fn from(Place { path, reason, parked, hunks }: Place) -> Self {
        Self { path: path.into(), reason, parked, hunks }
    }
}

#[derive(Deserialize)]
struct Rule {
    rule: String,
    source: Option<String>,
    detail: String,
    paths: Vec<RulePlace>,
}

#[derive(Deserialize)]
struct RulePlace {
    workspace: String,
    #[serde(flatten)]
    path: Path,
    reason: Option<String>,
}

impl From<Rule> for FailedRule {
    fn from(Rule { rule, source, detail, paths }: Rule) -> Self {
        let place =
            |RulePlace { workspace, path, reason }| FailedPlace { workspace, path: path.into(), reason };
        Self { rule, source, detail, paths: paths.into_iter().map(place).collect() }
    }
}

/// What a problem tells; `None` where the text is none.
pub fn read(text: &str) -> Option<CliError> {
    let problem: Problem = serde_json::from_str(text).ok()?;
    let route = (!problem.candidates.is_empty())
        .then(|| Box::new(Candidates { candidates: problem.candidates, left_out: problem.left_out }));
    let invalid =
        (!problem.problems.is_empty()).then(|| Box::new(InvalidPlugin { problems: problem.problems }));
    let told = Told {
        path: problem.path.map(|path| Box::new(path.into())),
        details: problem.paths.into_iter().map(Detail::from).collect(),
        rules: problem.rules.into_iter().map(FailedRule::from).collect(),
        route,
        invalid,
        hints: problem.hints,
        ..Told::new(kind(&problem.kind), problem.message)
    };
    Some(told.into())
}

/// A kind by its word. One that only a newer server knows is a failure like any other.
fn kind(word: &str) -> Kind {
    match word {
        "usage" => Kind::Usage,
        "conflict" => Kind::Conflict,
        "not_found" => Kind::NotFound,
        "refused" => Kind::Refused,
        "unavailable" => Kind::Unavailable,
        "unsupported" => Kind::Unsupported,
        "plugin" => Kind::Plugin,
        "busy" => Kind::Busy,
        "interrupted" => Kind::Interrupted,
        "config" => Kind::Config,
        "corrupt" => Kind::Corrupt,
        "newer_state" => Kind::NewerState,
        "unfinished" => Kind::Unfinished,
        _ => Kind::Error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::Error;
    use sandboxer_core::model::{Conflict, RelPath};
    use sandboxer_core::policy::{FailedPath, RuleFailure};

    use super::*;

    fn travelled(error: Error) -> (Told, CliError) {
        let told = Told::from(error);
        let text = serde_json::to_string(&told).unwrap();
        (told, read(&text).unwrap())
    }

    #[test]
    fn what_is_told_there_is_told_here() {
        let path = || RelPath::from_bytes(b"a\xff").unwrap();
        let failed = FailedPath { workspace: "w".into(), path: path(), reason: Some("why".into()) };
        let rule = RuleFailure {
            rule: "paths=src/**".into(),
            source: "--if".into(),
            detail: "d".into(),
            paths: vec![failed],
        };
        let missing = PluginProblem::MissingMethod { method: "read".into() };
        for (error, exit) in [
            (
                Error::Conflict {
                    conflicts: vec![Conflict::new(path(), "changed"), Conflict::new(path(), "b")],
                },
                3,
            ),
            (Error::RulesFailed { failures: vec![rule], digest: None }, 5),
            (Error::InvalidPlugin { plugin: "x".into(), role: "strategy", problems: vec![missing] }, 1),
            (Error::not_found("sandbox", "x"), 4),
            (Error::usage("odd"), 2),
            (Error::io("read", "/x", std::io::ErrorKind::Other), 1),
        ] {
            let (told, read) = travelled(error);
            assert_eq!(read.exit, exit);
            let (there, here) = (told.document(), read.document());
            assert_eq!(serde_json::to_value(there).unwrap(), serde_json::to_value(here).unwrap());
        }
    }

    #[test]
    fn every_kind_has_the_word_that_it_travels_by() {
        use Kind::*;
        for known in [
            Error,
            Usage,
            Conflict,
            NotFound,
            Refused,
            Unavailable,
            Unsupported,
            Plugin,
            Busy,
            Interrupted,
            Config,
            Corrupt,
            NewerState,
            Unfinished,
        ] {
            let word = serde_json::to_value(known).unwrap();
            assert_eq!(kind(word.as_str().unwrap()), known);
        }
        assert_eq!(kind("something_new"), Error);
        assert!(read("<html>").is_none());
    }
}
