//! Conflicts: which paths, why, where in them, and what to type next.

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, Conflict, ConflictHunk, OnConflict, OpId};
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{count, name, shell_word};
use super::{Kind, PathText, Told};

/// No more files than this are named in a hint.
const NAMED: usize = 3;

/// One path of several that an error is about.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Detail {
    /// Where.
    #[serde(flatten)]
    pub path: PathText,
    /// Why.
    pub reason: String,
    /// Where the sandbox's version was put aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
    /// Where in a text both sides changed, after a merge was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<ConflictHunk>,
}

impl Detail {
    /// One conflict as a detail.
    pub fn of(conflict: &Conflict) -> Self {
        Self {
            path: PathText::of(&conflict.path),
            reason: conflict.reason.clone(),
            parked: conflict.parked.clone(),
            hunks: conflict.hunks.clone(),
        }
    }
}

/// What met the conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt<'a> {
    /// A commit, with what was typed after the sandbox to select a part.
    Commit {
        /// How it dealt with conflicts.
        way: OnConflict,
        /// As it is typed again, with a space before it; empty for everything.
        selection: String,
    },
    /// Taking an operation back.
    Undo(&'a OpId),
}

impl Attempt<'_> {
    /// A commit as it was asked for; hunks are typed again as the files they are in.
    pub fn commit(request: &CommitRequest) -> Self {
        let paths = request.paths.iter().chain(request.hunks.iter().map(|hunks| &hunks.path));
        let selection = paths.map(|path| format!(" {}", shell_word(&path.to_string()))).collect();
        Self::Commit { way: request.on_conflict, selection }
    }
}

/// A failure of a commit or an undo; the hints on conflicts fit what was tried.
pub fn explain(error: Error, attempt: &Attempt<'_>) -> Told {
    let hints = match error.root() {
        Error::Conflict { conflicts } => Some(hints(conflicts, attempt)),
        _ => None,
    };
    let Some(hints) = hints else { return error.into() };
    let told = Told::with_hints(&error, hints);
    match attempt {
        Attempt::Undo(operation) => told.since(operation),
        Attempt::Commit { .. } => told,
    }
}

/// A failure to find a commit to take back, of all sandboxes or of one, in words that fit where there is none.
pub fn no_commit(error: Error, of: Option<&str>) -> Told {
    let mut told = Told::from(error);
    if told.kind == Kind::NotFound {
        let of = of.map(|sandbox| format!("of {} ", name(sandbox))).unwrap_or_default();
        told.message = format!("there is no commit {of}to take back");
    }
    told
}

/// What to type next.
pub fn hints(conflicts: &[Conflict], attempt: &Attempt<'_>) -> Vec<String> {
    match attempt {
        Attempt::Undo(operation) => undo_hints(conflicts, operation),
        Attempt::Commit { way: OnConflict::Mark, selection } => marked_hints(conflicts, selection),
        Attempt::Commit { way, selection } => commit_hints(conflicts, *way, selection),
    }
}

const UNTOUCHED: &str = "nothing was written; the original and the sandbox are as they were";

fn commit_hints(conflicts: &[Conflict], way: OnConflict, selection: &str) -> Vec<String> {
    let first = conflicts.first().map(|c| shell_word(&c.path.to_string())).unwrap_or_default();
    let mut hints = vec![UNTOUCHED.to_owned()];
    if conflicts.iter().all(is_row) {
        hints.push("commit the other rows and leave these pending with `--on-conflict skip`, or the sandbox's versions with `--on-conflict accept`".to_owned());
        hints.push(format!("see the sandbox's version with `sandbox diff ID --patch {first}`"));
        return hints;
    }
    if way == OnConflict::Fail {
        hints.push(format!("merge both versions with `sandbox commit ID{selection} --on-conflict merge`"));
    }
    if way == OnConflict::Merge && conflicts.iter().any(|c| !c.hunks.is_empty()) {
        hints.push(format!(
            "resolve them in the sandbox: `sandbox commit ID{selection} --on-conflict merge --write-conflicts` puts both versions there, between markers"
        ));
    }
    if matches!(way, OnConflict::Fail | OnConflict::Merge) {
        hints.push(one_side());
    }
    hints.push(format!(
        "see the sandbox's version with `sandbox diff ID --patch {first}`; give it up with `sandbox rollback ID {first}`"
    ));
    hints
}

/// Whether a conflict is over a row of a database, which cannot be merged.
fn is_row(conflict: &Conflict) -> bool {
    let path = conflict.path.to_string();
    path.starts_with("tables/") && path.contains("/rows/")
}

fn one_side() -> String {
    "or take one side: `--on-conflict theirs` commits the sandbox's versions, `--on-conflict ours` commits the rest and leaves these pending".to_owned()
}

fn marked_hints(conflicts: &[Conflict], selection: &str) -> Vec<String> {
    let marked: Vec<String> =
        conflicts.iter().filter(|c| !c.hunks.is_empty()).map(|c| shell_word(&c.path.to_string())).collect();
    if marked.is_empty() {
        return vec![UNTOUCHED.to_owned(), one_side()];
    }
    let mut named = marked.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if marked.len() > NAMED {
        named = format!("{named} and {}", count(marked.len() - NAMED, "more file"));
    }
    let mut hints = vec![
        "the original is as it was; the sandbox's files have both versions now, between `<<<<<<< original` and `>>>>>>> sandbox`".to_owned(),
        format!("edit {named} in the sandbox (`sandbox path ID` says where), then commit again: `sandbox commit ID{selection}`"),
    ];
    if marked.len() < conflicts.len() {
        hints.push(one_side());
    }
    hints
}

fn undo_hints(conflicts: &[Conflict], operation: &OpId) -> Vec<String> {
    let mut hints = vec![UNTOUCHED.to_owned()];
    if let Some(later) = conflicts.iter().filter_map(|c| named_commit(&c.reason)).max() {
        hints.push(format!("take back first what came later: `sandbox undo {later}`"));
    }
    hints.push(format!(
        "or change these paths by hand; `sandbox show {operation}` shows what was changed in them"
    ));
    hints
}

/// The commit in `… (by commit op_…)`. An undo is not named: taking that back as well leads in a circle.
fn named_commit(reason: &str) -> Option<&str> {
    let id = reason.strip_suffix(')')?.rsplit_once("(by commit ")?.1;
    (id.starts_with("op_") && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::RelPath;

    use super::*;
    use crate::Kind;

    fn conflict(path: &str, reason: &str) -> Conflict {
        Conflict::new(RelPath::parse(path).unwrap(), reason)
    }

    fn merged(path: &str, ours: &[&str], theirs: &[&str]) -> Conflict {
        let text = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect();
        let hunk = ConflictHunk {
            ours_start: 2,
            ours: text(ours),
            theirs_start: 3,
            theirs: text(theirs),
            ..Default::default()
        };
        Conflict { hunks: vec![hunk], ..conflict(path, "both") }
    }

    fn commit(way: OnConflict) -> Attempt<'static> {
        Attempt::Commit { way, selection: " src".to_owned() }
    }

    #[test]
    fn hints_lead_from_one_way_to_the_next() {
        let told = |conflicts: &[Conflict], way| hints(conflicts, &commit(way)).join("\n");
        let plain = [conflict("a b", "modified")];
        assert!(told(&plain, OnConflict::Fail).contains("`sandbox commit ID src --on-conflict merge`"));
        assert!(told(&plain, OnConflict::Fail).contains("`sandbox rollback ID 'a b'`"));
        assert!(!told(&plain, OnConflict::Merge).contains("--write-conflicts"));
        let row = [conflict("tables/t/rows/1.json", "changed")];
        assert!(told(&row, OnConflict::Fail).contains("--on-conflict skip"));
        assert!(!told(&row, OnConflict::Fail).contains("merge"));
        let both = [merged("a", &["x"], &["y"]), conflict("b", "binary")];
        assert!(told(&both, OnConflict::Merge).contains("--on-conflict merge --write-conflicts`"));
        let marked = told(&both, OnConflict::Mark);
        assert!(marked.contains("edit a in the sandbox") && marked.contains("`sandbox commit ID src`"));
        assert!(marked.contains("--on-conflict theirs"), "{marked}");
        assert!(told(&plain, OnConflict::Mark).starts_with("nothing was written"));
    }

    #[test]
    fn an_undo_points_at_what_came_later() {
        let operation = OpId::from_string("op_1");
        let by = |id: &str| conflict("a", &format!("modified since that operation (by commit {id})"));
        let told = hints(&[by("op_2"), by("op_3"), conflict("b", "gone")], &Attempt::Undo(&operation));
        assert!(told[1].ends_with("`sandbox undo op_3`"), "{told:?}");
        assert!(told[2].contains("`sandbox show op_1`"), "{told:?}");
        for reason in ["x (by commit op_2`x`)", "x (by undo op_2)"] {
            assert_eq!(hints(&[conflict("b", reason)], &Attempt::Undo(&operation)).len(), 2, "{reason}");
        }
    }

    #[test]
    fn the_message_of_an_undo_names_the_operation() {
        let operation = OpId::from_string("op_1");
        let told =
            explain(Error::Conflict { conflicts: vec![conflict("a", "x")] }, &Attempt::Undo(&operation));
        assert_eq!((told.kind, told.message.as_str()), (Kind::Conflict, "1 path changed since op_1"));
        let other = explain(Error::Cancelled, &Attempt::Undo(&operation));
        assert_eq!(other.kind, Kind::Interrupted);
    }
}
