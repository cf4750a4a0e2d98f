//! The coordinator: what is committed is looked at first, and several workspaces are committed as one.
//!
//! Every strategy *prepares* (makes everything ready and durable, changes nothing); then the rules look at exactly what was
//! prepared; then every strategy *finishes*. Before the decision any failure aborts all; after it nothing can refuse any
//! more, and what a crash leaves is finished by the next command. One workspace decides by itself, with the journal beside
//! it; for several the decision is one durable transaction of the store. A strategy that has no phases is asked for its
//! differences, and then held to their digest.

use serde_json::{Value, json};

use super::commit_log::commit_end;
use super::content::{combined_digest, paths_need_one_workspace};
use super::manager::{SandboxManager, failure, in_workspace, new_operation};
use super::{Operation, PerWorkspace, Target, TargetCommit, Workspace};
use crate::model::{CommitRequest, CommitResult, DiffEntry, History, OnConflict, OpId, Phase};
use crate::policy::CommitRules;
use crate::store::OperationEnd;
use crate::{Error, Result};

/// The detail of a commit that only leaves a branch, and changes nothing that could be taken back.
pub(super) const BRANCH: &str = "branch";

/// How a commit is recorded, so that recovery knows what was under way.
pub(super) const WHOLE: &str = "whole";
pub(super) const TWO_PHASE: &str = "two_phase";

/// One commit under way.
pub(super) struct Undertaking<'a> {
    /// What it is about; the refs say what it is logged as.
    pub target: Target,
    /// What to commit.
    pub request: &'a CommitRequest,
    /// Under which conditions.
    pub rules: &'a CommitRules,
    /// How it is logged.
    pub operation: Operation,
    /// Go as far as the last check and no further.
    pub dry_run: bool,
}

impl SandboxManager {
    /// Makes the differences of a target real, if `rules` allow them: all or nothing, over all its workspaces.
    pub fn commit(
        &self,
        target: &Target,
        request: &CommitRequest,
        rules: &CommitRules,
    ) -> Result<TargetCommit> {
        self.commit_or_try(target, request, rules, false)
    }

    /// What a commit would do, as far as that can be known without doing it: everything is prepared and checked, and then
    /// forgotten.
    pub fn try_commit(
        &self,
        target: &Target,
        request: &CommitRequest,
        rules: &CommitRules,
    ) -> Result<TargetCommit> {
        self.commit_or_try(target, request, rules, true)
    }

    fn commit_or_try(
        &self,
        target: &Target,
        request: &CommitRequest,
        rules: &CommitRules,
        dry_run: bool,
    ) -> Result<TargetCommit> {
        check_request(target, request)?;
        self.permit_on(target, "commit")?;
        let (_still, target) = self.lock_still(target)?;
        self.check_abilities(&target, request, dry_run)?;
        self.check_paths(&target, &request.paths)?;
        let mut details =
            json!({"mode": mode_of(&target), "workspaces": names(&target), "message": request.message});
        if let Some(branch) = &request.branch {
            details[BRANCH] = json!(branch);
        }
        let operation = new_operation(&target.sandbox.id, "commit", details);
        let target = logged_as(target, &operation.id, None);
        self.undertake(Undertaking { target, request, rules, operation, dry_run })
    }

    /// Logs and carries out a commit whose sandbox's lock the caller holds.
    pub(super) fn undertake(&self, task: Undertaking<'_>) -> Result<TargetCommit> {
        self.store.begin(&task.operation)?;
        match &task.target.workspaces[..] {
            [only] if !self.capabilities_of(only)?.two_phase => self.commit_at_once(&task, only),
            _ => self.commit_prepared(task),
        }
    }

    fn check_abilities(&self, target: &Target, request: &CommitRequest, dry_run: bool) -> Result<()> {
        for workspace in &target.workspaces {
            let abilities = self.capabilities_of(workspace)?;
            let refusal = if !request.paths.is_empty() && !abilities.select_paths {
                Some(("commit chosen paths", "it commits everything or nothing"))
            } else if !request.hunks.is_empty() && !abilities.select_hunks {
                Some(("commit chosen hunks", "it commits whole files"))
            } else if request.on_conflict != OnConflict::Fail && !abilities.keeps_base {
                Some(("resolve conflicts", "it does not keep what its files were made from"))
            } else if (request.branch.is_some() || request.history != History::Squash) && !abilities.branches
            {
                Some(("commit to branches", "what it isolates has none"))
            } else if target.workspaces.len() > 1 && !abilities.two_phase {
                Some(("commit together with other workspaces", "it cannot prepare a commit and decide later"))
            } else if dry_run && !abilities.two_phase {
                Some(("try a commit", "it cannot prepare a commit and forget it"))
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

    /// For a strategy without phases: what was looked at is what is committed, or nothing is.
    fn commit_at_once(&self, task: &Undertaking<'_>, workspace: &Workspace) -> Result<TargetCommit> {
        let committed = self.checked_digest(task, workspace).and_then(|digest| {
            let request = CommitRequest { digest: Some(digest), ..task.request.clone() };
            self.strategy_of(workspace)?.commit(&workspace.sandbox_ref, &request)
        });
        let committed = committed.map_err(in_workspace(&task.target.sandbox, workspace));
        let result = committed.map_err(|error| self.log_failure(&task.operation, error))?;
        let digest = result.digest.clone();
        self.end_commit(&task.operation, digest, vec![(workspace.name.clone(), result)])
    }

    fn checked_digest(&self, task: &Undertaking<'_>, workspace: &Workspace) -> Result<String> {
        let view = self.strategy_of(workspace)?.diff(&workspace.sandbox_ref)?;
        let entries = view.entries.iter().map(|entry| (workspace.name.as_str(), entry));
        task.rules.check(entries).map_err(|refusal| refusal.about(&view.digest))?;
        Ok(task.request.digest.clone().unwrap_or(view.digest))
    }

    fn commit_prepared(&self, mut task: Undertaking<'_>) -> Result<TargetCommit> {
        let prepared = match self.prepare_all(&task) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.abort_all(&task, error)),
        };
        let digest = digest_of(&prepared);
        if let Err(error) = self.last_check(&task, &prepared, &digest) {
            return Err(self.abort_all(&task, error));
        }
        if task.dry_run {
            return self.forget_all(&task, digest, prepared);
        }
        let several = task.target.workspaces.len() > 1;
        if several {
            task.operation.details["digest"] = json!(digest);
            if let Err(error) = self.store.decide(&task.operation.id, &task.operation.details) {
                return Err(self.undecide(&task, error));
            }
        }
        let finished = match self.finish_all(&task.target) {
            Err(error) if !several => self.settle_failure(&task, error)?,
            finished => finished?,
        };
        let results = prepared.into_iter().zip(finished).map(|((name, p), (_, f))| (name, joined(p, f)));
        self.end_commit(&task.operation, digest, results.collect())
    }

    fn prepare_all(&self, task: &Undertaking<'_>) -> Result<PerWorkspace<CommitResult>> {
        let prepare = CommitRequest { phase: Phase::Prepare, digest: None, ..task.request.clone() };
        super::content::per_workspace(&task.target, |workspace| {
            self.parts.cancel.check()?;
            self.strategy_of(workspace)?.commit(&workspace.sandbox_ref, &prepare)
        })
    }

    /// The last point at which anything can still be refused.
    fn last_check(
        &self,
        task: &Undertaking<'_>,
        prepared: &PerWorkspace<CommitResult>,
        digest: &str,
    ) -> Result<()> {
        if let Some(expected) = task.request.digest.as_deref().filter(|expected| *expected != digest) {
            return Err(Error::DigestMismatch { expected: expected.to_owned(), found: digest.to_owned() });
        }
        task.rules.check(named_entries(prepared)).map_err(|refusal| refusal.about(digest))?;
        self.parts.cancel.check()
    }

    /// The end of a dry run.
    fn forget_all(
        &self,
        task: &Undertaking<'_>,
        digest: String,
        workspaces: PerWorkspace<CommitResult>,
    ) -> Result<TargetCommit> {
        self.abort_each(&task.target)?;
        let mut end = commit_end(&task.operation, "aborted", &digest, &workspaces);
        end.summary = format!("tried, not done: {}", end.summary);
        self.store.end(&end)?;
        Ok(TargetCommit { op_id: task.operation.id.clone(), digest, workspaces })
    }

    /// A workspace that failed to finish decides by itself whether it had begun: what had not is forgotten; what had is
    /// tried once more, and where even that fails, the operation stays `running` and the next command's recovery tries again.
    /// What failed after everything was done, while clearing up, is done.
    fn settle_failure(&self, task: &Undertaking<'_>, error: Error) -> Result<PerWorkspace<CommitResult>> {
        let was_begun = match self.abort_each(&task.target) {
            Ok(()) => false,
            Err(refusal) if matches!(refusal.root(), Error::Refused { .. }) => true,
            // Nobody knows: recovery finds out.
            Err(_) => return Err(error),
        };
        match self.finish_all(&task.target) {
            Ok(results) if was_begun || results.iter().any(|(_, result)| did_something(result)) => {
                Ok(results)
            }
            Err(_) if was_begun => Err(error),
            _ => Err(self.log_failure(&task.operation, error)),
        }
    }

    /// After a write that failed, nobody knows what a crash would make of it. So nothing is aborted before the store has
    /// durably said that there was no decision; where it cannot, recovery finds out what it says and acts on that.
    fn undecide(&self, task: &Undertaking<'_>, error: Error) -> Error {
        match self.store.undecide(&task.operation.id) {
            Ok(()) => self.abort_all(task, error),
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
    fn abort_all(&self, task: &Undertaking<'_>, error: Error) -> Error {
        if self.abort_each(&task.target).is_ok() {
            let end = OperationEnd { state: "aborted", ..failure(&task.operation, &error) };
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
        mut workspaces: PerWorkspace<CommitResult>,
    ) -> Result<TargetCommit> {
        self.end_logged(operation, &commit_end(operation, "done", &digest, &workspaces))?;
        // The commit stands, whatever comes of making room.
        let _ = self.keep_within_budget(Some(&operation.sandbox_id));
        if !self.is_undo_kept(&operation.id) {
            workspaces.iter_mut().for_each(|(_, result)| result.undo_bytes = None);
        }
        Ok(TargetCommit { op_id: operation.id.clone(), digest, workspaces })
    }

    /// Whether an operation can be taken back: making room may have cost it what it needs for that.
    fn is_undo_kept(&self, operation: &OpId) -> bool {
        let kept = self.store.kept().unwrap_or_default();
        kept.iter().any(|item| item.kind == "undo" && item.item == operation.as_str())
    }

    /// Writes down how a commit or an undo ended, what is kept of it, and what an undo took back, all in one.
    pub(super) fn end_logged(&self, operation: &Operation, end: &OperationEnd) -> Result<()> {
        let undo_bytes = end.details["undo_bytes"].as_u64();
        self.store.end_commit(end, &operation.sandbox_id, undo_bytes, undone_by(operation).as_ref())
    }
}

/// The operation that an undo takes back.
pub(super) fn undone_by(operation: &Operation) -> Option<OpId> {
    operation.details["undoes"].as_str().map(OpId::from_string)
}

/// The same target, its refs saying what a commit is logged as, and what it takes back.
pub(super) fn logged_as(mut target: Target, operation: &OpId, undoes: Option<&OpId>) -> Target {
    for workspace in &mut target.workspaces {
        let plain = workspace.sandbox_ref.clone().for_operation(operation);
        workspace.sandbox_ref = match undoes {
            Some(undoes) => plain.undoing(undoes),
            None => plain,
        };
    }
    target
}

/// Who decides: one workspace by itself, several together.
pub(super) fn mode_of(target: &Target) -> &'static str {
    if target.workspaces.len() == 1 { WHOLE } else { TWO_PHASE }
}

/// The names of a target's workspaces, for the log.
pub(super) fn names(target: &Target) -> Value {
    target.workspaces.iter().map(|w| w.name.as_str()).collect()
}

fn named_entries(results: &PerWorkspace<CommitResult>) -> impl Iterator<Item = (&str, &DiffEntry)> {
    results.iter().flat_map(|(name, result)| result.entries.iter().map(move |entry| (name.as_str(), entry)))
}

fn digest_of(results: &PerWorkspace<CommitResult>) -> String {
    let digests: Vec<_> =
        results.iter().map(|(name, result)| (name.clone(), result.digest.clone())).collect();
    combined_digest(&digests)
}

fn check_request(target: &Target, request: &CommitRequest) -> Result<()> {
    paths_need_one_workspace(target, &request.paths)?;
    let hunks: Vec<_> = request.hunks.iter().map(|h| h.path.clone()).collect();
    paths_need_one_workspace(target, &hunks)?;
    if request.phase == Phase::Whole {
        return Ok(());
    }
    Err(Error::usage("the phases of a commit are the coordinator's business; ask for a whole one"))
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
    result.entries.retain(|entry| !finished.conflicts.iter().any(|conflict| conflict.path == entry.path));
    result.conflicts.extend(finished.conflicts);
    result.undo_bytes = finished.undo_bytes;
    result.revision = finished.revision.or(result.revision);
    result
}
