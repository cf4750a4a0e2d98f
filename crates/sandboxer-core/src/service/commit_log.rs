//! How commits are written down: what each did, path by path as far as that is bearable.

use serde_json::{Value, json};

use super::commit::BRANCH;
use super::manager::counted;
use super::{Operation, PerWorkspace};
use crate::model::{CommitResult, DiffEntry, DiffKind};
use crate::store::OperationEnd;

/// No more paths than this are kept in the log of one commit.
const LOGGED_PATHS: usize = 1000;

/// How a commit that did something is written down.
pub(super) fn commit_end(
    operation: &Operation,
    state: &'static str,
    digest: &str,
    results: &PerWorkspace<CommitResult>,
) -> OperationEnd {
    let mut details = operation.details.clone();
    details["digest"] = json!(digest);
    details["counts"] = counts(results);
    details["paths"] = paths(results);
    details["notices"] = each(results, |result| &result.notices);
    details["conflicts"] = each(results, |result| &result.conflicts);
    if let Some(revision) = results.iter().find_map(|(_, result)| result.revision.as_ref()) {
        details["revision"] = json!(revision);
    }
    let at_decision: Vec<&String> =
        results.iter().filter(|(_, result)| result.at_decision.is_some()).map(|(name, _)| name).collect();
    if !at_decision.is_empty() {
        details["at_decision"] = json!(at_decision);
    }
    details["undo_bytes"] = undo_bytes(results).map_or(Value::Null, Value::from);
    let entries = results.iter().map(|(_, result)| result.entries.len()).sum();
    let done = match (operation.kind.as_str(), details[BRANCH].as_str()) {
        ("undo", _) => "taken back".to_owned(),
        (_, Some(branch)) => format!("left on branch {branch}"),
        _ => "committed".to_owned(),
    };
    let mut summary = format!("{} {done}", counted(entries, "path"));
    if entries > 0 {
        summary = format!("{summary}: {}", in_words(&details["counts"]));
    }
    OperationEnd { id: operation.id.clone(), state, summary, details }
}

/// `2 created, 1 modified`.
fn in_words(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    counts.map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

/// What is kept for taking it back; `None` where a workspace cannot.
pub(super) fn undo_bytes(results: &PerWorkspace<CommitResult>) -> Option<u64> {
    results.iter().map(|(_, result)| result.undo_bytes).sum()
}

fn all_entries(results: &PerWorkspace<CommitResult>) -> impl Iterator<Item = (&String, &DiffEntry)> {
    results.iter().flat_map(|(name, result)| result.entries.iter().map(move |entry| (name, entry)))
}

fn counts(results: &PerWorkspace<CommitResult>) -> Value {
    let kinds = [
        DiffKind::Created,
        DiffKind::Modified,
        DiffKind::Deleted,
        DiffKind::Renamed,
        DiffKind::Metadata,
        DiffKind::Type,
    ];
    let of = |kind: DiffKind| all_entries(results).filter(|(_, entry)| entry.kind == kind).count();
    let name = |kind: DiffKind| json!(kind).as_str().unwrap_or_default().to_owned();
    kinds.iter().filter(|kind| of(**kind) > 0).map(|kind| (name(*kind), json!(of(*kind)))).collect()
}

fn paths(results: &PerWorkspace<CommitResult>) -> Value {
    let line = |(name, entry): (&String, &DiffEntry)| json!({"workspace": name, "path": entry.path, "kind": entry.kind});
    all_entries(results).take(LOGGED_PATHS).map(line).collect()
}

fn each<T: serde::Serialize>(
    results: &PerWorkspace<CommitResult>,
    part: impl Fn(&CommitResult) -> &Vec<T>,
) -> Value {
    let lines = results.iter().flat_map(|(name, result)| part(result).iter().map(move |item| (name, item)));
    lines.take(LOGGED_PATHS).map(|(name, item)| json!({"workspace": name, "about": item})).collect()
}
