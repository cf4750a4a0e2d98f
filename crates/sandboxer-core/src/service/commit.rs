//! The coordinator: several workspaces are committed as one.
//!
//! One workspace is its strategy's own affair: a whole commit, with a journal beside it that recovery rolls forward. For
//! several, every strategy *prepares* (makes everything ready and durable, changes nothing), then the decision is
//! recorded in the store by one durable transaction, then every strategy *finishes*. Before the decision any failure
//! aborts all; after it nothing can refuse any more, and what a crash leaves is finished by the next command.

use serde_json::{Value, json};

use super::content::{combined_digest, paths_need_one_workspace};
use super::manager::{SandboxManager, counted, failure, in_workspace, new_operation};
use super::{Operation, PerWorkspace, Target, TargetCommit, Workspace};
use crate::model::{CommitRequest, CommitResult, DiffEntry, DiffKind, Phase};
use crate::policy::CommitRules;
use crate::store::OperationEnd;
use crate::{Error, Result};

/// No more paths than this are kept in the log of one commit.
const LOGGED_PATHS: usize = 1000;

/// How a commit is recorded, so that recovery knows what was under way.
pub(super) const WHOLE: &str = "whole";
pub(super) const TWO_PHASE: &str = "two_phase";

impl SandboxManager {
    /// Makes the differences of a target real, if `rules` allow them: all or nothing, over all its workspaces.
    pub fn commit(
        &self,
        target: &Target,
        request: &CommitRequest,
        rules: &CommitRules,
    ) -> Result<TargetCommit> {
        check_request(target, request)?;
        self.permit_on(target, "commit")?;
        let (_lock, target) = self.lock_open(target)?;
        self.check_abilities(&target, request)?;
        self.check_paths(&target, &request.paths)?;
        self.check_rules(&target, request, rules)?;
        let mode = if target.workspaces.len() == 1 { WHOLE } else { TWO_PHASE };
        let names: Vec<&str> = target.workspaces.iter().map(|w| w.name.as_str()).collect();
        let details = json!({"mode": mode, "workspaces": names, "message": request.message});
        let operation = new_operation(&target.sandbox.id, "commit", details);
        self.store.begin(&operation)?;
        match &target.workspaces[..] {
            [only] => self.commit_whole(&target, only, request, &operation),
            _ => self.commit_several(&target, request, operation),
        }
    }

    fn check_rules(&self, target: &Target, request: &CommitRequest, rules: &CommitRules) -> Result<()> {
        if rules.allow_everything() {
            return Ok(());
        }
        let diff = self.diff_unasked(target, &request.paths)?;
        let named = diff.workspaces.iter().map(|w| (w.workspace.name.as_str(), &w.entries));
        rules.check(named.flat_map(|(name, entries)| entries.iter().map(move |entry| (name, entry))))
    }

    fn check_abilities(&self, target: &Target, request: &CommitRequest) -> Result<()> {
        for workspace in &target.workspaces {
            let abilities = self.capabilities_of(workspace)?;
            let refusal = if !request.paths.is_empty() && !abilities.select_paths {
                Some(("commit chosen paths", "it commits everything or nothing"))
            } else if target.workspaces.len() > 1 && !abilities.two_phase {
                Some(("commit together with other workspaces", "it cannot prepare a commit and decide later"))
            } else {
                None
            };
            if let Some((what, reason)) = refusal {
                let strategy = workspace.sandbox_ref.strategy_name.clone();
                return Err(Error::Unsupported { strategy, what, reason: reason.to_owned() });
            }
        }
        Ok(())
    }

    fn commit_whole(
        &self,
        target: &Target,
        workspace: &Workspace,
        request: &CommitRequest,
        operation: &Operation,
    ) -> Result<TargetCommit> {
        let committed = self.strategy_of(workspace).and_then(|s| s.commit(&workspace.sandbox_ref, request));
        let result = committed
            .or_else(|error| self.settle_failure(workspace, operation, error))
            .map_err(in_workspace(&target.sandbox, workspace))?;
        let digest = result.digest.clone();
        self.end_commit(operation, digest, vec![(workspace.name.clone(), result)])
    }

    /// A commit that failed past its commit point (a full disk while the journal was applied) is rolled forward at once;
    /// where even that fails, the operation stays `running`, and the next command's recovery tries again.
    fn settle_failure(
        &self,
        workspace: &Workspace,
        operation: &Operation,
        error: Error,
    ) -> Result<CommitResult> {
        if is_refusal(&error) || !self.capabilities_of(workspace)?.two_phase {
            return Err(self.log_failure(operation, error));
        }
        match self.commit_phase(workspace, Phase::Finish) {
            Ok(result) if did_something(&result) => Ok(result),
            Ok(_) => Err(self.log_failure(operation, error)),
            Err(_) => Err(error),
        }
    }

    fn commit_several(
        &self,
        target: &Target,
        request: &CommitRequest,
        mut operation: Operation,
    ) -> Result<TargetCommit> {
        let prepared = match self.prepare_all(target, request) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.abort_all(target, &operation, error)),
        };
        let digests: Vec<_> =
            prepared.iter().map(|(name, result)| (name.clone(), result.digest.clone())).collect();
        let digest = combined_digest(&digests);
        operation.details["digest"] = json!(digest);
        if let Err(error) = self.last_check(request, &digest) {
            return Err(self.abort_all(target, &operation, error));
        }
        if let Err(error) = self.store.decide(&operation.id, &operation.details) {
            return Err(self.undecide(target, &operation, error));
        }
        let finished = self.finish_all(target)?;
        let results = prepared.into_iter().zip(finished).map(|((name, p), (_, f))| (name, joined(p, f)));
        self.end_commit(&operation, digest, results.collect())
    }

    fn prepare_all(&self, target: &Target, request: &CommitRequest) -> Result<PerWorkspace<CommitResult>> {
        let prepare = CommitRequest { phase: Phase::Prepare, digest: None, ..request.clone() };
        super::content::per_workspace(target, |workspace| {
            self.parts.cancel.check()?;
            self.strategy_of(workspace)?.commit(&workspace.sandbox_ref, &prepare)
        })
    }

    /// The last point at which anything can still be refused.
    fn last_check(&self, request: &CommitRequest, digest: &str) -> Result<()> {
        if let Some(expected) = request.digest.as_deref().filter(|expected| *expected != digest) {
            return Err(Error::DigestMismatch { expected: expected.to_owned(), found: digest.to_owned() });
        }
        self.parts.cancel.check()
    }

    /// After a write that failed, nobody knows what a crash would make of it. So nothing is aborted before the store has
    /// durably said that there was no decision; where it cannot, recovery finds out what it says and acts on that.
    fn undecide(&self, target: &Target, operation: &Operation, error: Error) -> Error {
        match self.store.undecide(&operation.id) {
            Ok(()) => self.abort_all(target, operation, error),
            Err(_) => error,
        }
    }

    /// Finishes every workspace, past the failure of one: what is decided is decided. An error leaves the operation
    /// `decided`, and recovery finishes the rest.
    pub(super) fn finish_all(&self, target: &Target) -> Result<PerWorkspace<CommitResult>> {
        let mut results = Vec::with_capacity(target.workspaces.len());
        let mut first_failure = Ok(());
        for workspace in &target.workspaces {
            match self.commit_phase(workspace, Phase::Finish) {
                Ok(result) => results.push((workspace.name.clone(), result)),
                Err(error) => {
                    first_failure = first_failure.and(Err(in_workspace(&target.sandbox, workspace)(error)))
                }
            }
        }
        first_failure.map(|()| results)
    }

    /// Forgets what was prepared, last first (the one that failed to be prepared included: it may have got half way).
    /// Where that fails, the operation stays `running`, and recovery aborts again.
    fn abort_all(&self, target: &Target, operation: &Operation, error: Error) -> Error {
        if self.abort_each(target).is_ok() {
            let end = OperationEnd { state: "aborted", ..failure(operation, &error) };
            let _ = self.store.end(&end);
        }
        error
    }

    pub(super) fn abort_each(&self, target: &Target) -> Result<()> {
        let mut first_failure = Ok(());
        for workspace in target.workspaces.iter().rev() {
            let aborted = self.commit_phase(workspace, Phase::Abort).map(drop);
            first_failure = first_failure.and(aborted.map_err(in_workspace(&target.sandbox, workspace)));
        }
        first_failure
    }

    pub(super) fn commit_phase(&self, workspace: &Workspace, phase: Phase) -> Result<CommitResult> {
        let request = CommitRequest { phase, ..CommitRequest::default() };
        self.strategy_of(workspace)?.commit(&workspace.sandbox_ref, &request)
    }

    fn end_commit(
        &self,
        operation: &Operation,
        digest: String,
        workspaces: PerWorkspace<CommitResult>,
    ) -> Result<TargetCommit> {
        self.store.end(&commit_end(operation, "done", &digest, &workspaces))?;
        Ok(TargetCommit { op_id: operation.id.clone(), digest, workspaces })
    }
}

fn check_request(target: &Target, request: &CommitRequest) -> Result<()> {
    paths_need_one_workspace(target, &request.paths)?;
    if request.phase != Phase::Whole {
        return Err(Error::usage(
            "the phases of a commit are the coordinator's business; ask for a whole one",
        ));
    }
    if request.hunks.is_empty() {
        return Ok(());
    }
    let strategy = target.workspaces.first().map(|w| w.sandbox_ref.strategy_name.clone()).unwrap_or_default();
    let reason = "hunks cannot be selected yet; commit whole files".to_owned();
    Err(Error::Unsupported { strategy, what: "commit chosen hunks", reason })
}

/// Whether an error is a "no" from before the commit point, after which there is nothing to roll forward.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.root(),
        Error::Busy { .. }
            | Error::Cancelled
            | Error::Conflict { .. }
            | Error::DigestMismatch { .. }
            | Error::Refused { .. }
            | Error::RulesFailed { .. }
            | Error::Uncommittable { .. }
            | Error::Unsupported { .. }
    )
}

/// Whether finishing found anything to finish.
pub(super) fn did_something(result: &CommitResult) -> bool {
    !result.entries.is_empty() || !result.conflicts.is_empty()
}

/// What was prepared is what is committed; finishing may add what it met on the way.
fn joined(prepared: CommitResult, finished: CommitResult) -> CommitResult {
    let mut result = prepared;
    let more: Vec<_> =
        finished.notices.into_iter().filter(|notice| !result.notices.contains(notice)).collect();
    result.notices.extend(more);
    result.conflicts.extend(finished.conflicts);
    result
}

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
    let entries = results.iter().map(|(_, result)| result.entries.len()).sum();
    let summary = format!("{} committed", counted(entries, "path"));
    OperationEnd { id: operation.id.clone(), state, summary, details }
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
