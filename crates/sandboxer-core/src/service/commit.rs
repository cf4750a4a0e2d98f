//! The coordinator: what is committed is looked at first, and several workspaces are committed as one.
//!
//! Every strategy *prepares* (makes everything ready and durable, changes nothing); then the rules look at exactly what was
//! prepared; then every strategy *finishes*. Before the decision any failure aborts all; after it nothing can refuse any
//! more, and what a crash leaves is finished by the next command. One workspace decides by itself, with the journal beside
//! it; for several the decision is one durable transaction of the store. A strategy that has no phases is asked for its
//! differences, and then held to their digest.
//!
//! What could not be taken up again once it was prepared is prepared last: its differences are looked at together with what
//! the others have prepared, and it is held to their digest. What cannot be prepared at all is finished first, and its
//! success is the decision (see `settle.rs` for what becomes of a crash there).
//!
//! A commit may span several sandboxes of one plan. Each has an operation of its own in the log, which all begin together and are
//! decided together; so each is recovered, and taken back, by itself.

use serde_json::{Value, json};

use super::commit_log::commit_end;
use super::content::{combined_digest, paths_need_one_workspace};
use super::manager::{SandboxManager, failure, new_operation};
use super::pieces::{Piece, named, pieces_of, pieces_of_plan};
use super::settle::{DECIDED_BY, decided_by};
use super::{Operation, PerWorkspace, Target, TargetCommit, Workspace};
use crate::model::{CommitRequest, CommitResult, DiffEntry, History, OnConflict, OpId, Phase, PlanId};
use crate::policy::CommitRules;
use crate::store::OperationEnd;
use crate::{Error, Result};

/// The detail of a commit that only leaves a branch, and changes nothing that could be taken back.
pub(super) const BRANCH: &str = "branch";

/// How a commit is recorded, so that recovery knows what was under way.
pub(super) const WHOLE: &str = "whole";
pub(super) const TWO_PHASE: &str = "two_phase";

/// The detail of a commit of a whole plan: the plan, and the operations of all its sandboxes.
pub(super) const PLAN_COMMIT: &str = "plan_commit";

/// One commit under way.
pub(super) struct Undertaking<'a> {
    /// What it is about, sandbox by sandbox; more than one for a plan alone.
    pub members: Vec<Member>,
    /// Whose sandboxes they are, where it is a plan that is committed.
    pub plan: Option<&'a PlanId>,
    /// What to commit.
    pub request: &'a CommitRequest,
    /// Under which conditions.
    pub rules: &'a CommitRules,
    /// Go as far as the last check and no further.
    pub dry_run: bool,
}

/// The part of a commit in one sandbox.
pub(super) struct Member {
    /// What it is about; the refs say what it is logged as.
    pub target: Target,
    /// How it is logged.
    pub operation: Operation,
}

/// What became of a commit: its digest, and member by member.
pub(super) type Together = (String, Vec<TargetCommit>);

impl Undertaking<'_> {
    fn pieces(&self) -> Vec<Piece<'_>> {
        match (self.plan, &self.members[..]) {
            (None, [only]) => pieces_of(&only.target),
            _ => pieces_of_plan(self.members.iter().map(|member| &member.target)),
        }
    }

    fn operations(&self) -> Vec<&Operation> {
        self.members.iter().map(|member| &member.operation).collect()
    }

    /// Results of all pieces, member by member.
    fn by_member(&self, results: Vec<CommitResult>) -> Vec<PerWorkspace<CommitResult>> {
        let mut rest = results.into_iter();
        self.members.iter().map(|member| named(&member.target, rest.by_ref())).collect()
    }

    /// Adds to every operation's particulars what they are to be if it is finished by another process.
    fn note_digests(&mut self, prepared: &[CommitResult]) {
        let digests: Vec<String> = self.by_member(prepared.to_vec()).iter().map(digest_of).collect();
        for (member, digest) in self.members.iter_mut().zip(digests) {
            member.operation.details["digest"] = json!(digest);
        }
    }
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
        self.check_abilities(&pieces_of(&target), request, dry_run)?;
        self.check_paths(&target, &request.paths)?;
        let operation =
            new_operation(&target.sandbox.id, "commit", commit_details(&target, mode_of(&target), request));
        let target = logged_as(target, &operation.id, None);
        let members = vec![Member { target, operation }];
        only(self.undertake(Undertaking { members, plan: None, request, rules, dry_run })?)
    }

    /// Logs and carries out a commit whose sandboxes' locks the caller holds.
    pub(super) fn undertake(&self, task: Undertaking<'_>) -> Result<Together> {
        self.store.begin_all(&task.operations())?;
        match &task.pieces()[..] {
            [only] if self.is_committed_at_once(only.workspace)? => self.commit_at_once(&task, only),
            _ => self.commit_prepared(task),
        }
    }

    fn is_committed_at_once(&self, workspace: &Workspace) -> Result<bool> {
        let can = self.capabilities_of(workspace)?;
        Ok(!can.two_phase || can.prepare_ends)
    }

    pub(super) fn check_abilities(
        &self,
        pieces: &[Piece<'_>],
        request: &CommitRequest,
        dry_run: bool,
    ) -> Result<()> {
        for workspace in pieces.iter().map(|piece| piece.workspace) {
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
            } else if pieces.len() > 1 && !abilities.two_phase {
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

    /// For a strategy without phases, or whose phases do not come back: what was looked at is what is committed, or nothing is.
    fn commit_at_once(&self, task: &Undertaking<'_>, piece: &Piece<'_>) -> Result<Together> {
        let operation = &task.members[0].operation;
        let fail = |error| self.log_failure(operation, piece.explain(error));
        let looked = self.look_at(task, piece).map_err(fail)?;
        let digest = looked.digest.clone();
        if task.dry_run {
            return self.end_trial(task, digest, vec![looked]);
        }
        let request = CommitRequest { digest: Some(digest), ..task.request.clone() };
        let committed = self
            .strategy_of(piece.workspace)?
            .commit(&piece.workspace.sandbox_ref, &request)
            .map_err(fail)?;
        self.end_commit(task, committed.digest.clone(), vec![committed])
    }

    /// What would be committed at once, as far as its differences tell, if the rules allow it.
    fn look_at(&self, task: &Undertaking<'_>, piece: &Piece<'_>) -> Result<CommitResult> {
        let looked = self.differences(piece.workspace, task.request)?;
        check_digest(task.request, &looked.digest)?;
        let entries = looked.entries.iter().map(|entry| (piece.label.as_str(), entry));
        task.rules.check(entries).map_err(|refusal| refusal.about(&looked.digest))?;
        Ok(CommitResult { at_decision: None, ..looked })
    }

    /// What a strategy says that differs, as what would be committed.
    fn differences(&self, workspace: &Workspace, request: &CommitRequest) -> Result<CommitResult> {
        let view = self.strategy_of(workspace)?.diff(&workspace.sandbox_ref)?.select(&request.paths);
        let (digest, entries, at_decision) = (view.digest, view.entries, view.at_decision);
        Ok(CommitResult { digest, entries, at_decision, ..CommitResult::default() })
    }

    fn commit_prepared(&self, mut task: Undertaking<'_>) -> Result<Together> {
        let mut begun = Vec::new();
        let looked = self.prepare_first(&task, &mut begun).and_then(|looked| self.last_check(&task, looked));
        let (digest, looked) = looked.map_err(|error| self.abort_begun(&task, &begun, error))?;
        if task.dry_run {
            self.abort_some(&task.pieces(), &begun)?;
            return self.end_trial(&task, digest, looked);
        }
        let prepared = self.prepare_last(&task, &mut begun, looked);
        let prepared = prepared.map_err(|error| self.abort_begun(&task, &begun, error))?;
        let finished = self.decide_and_finish(&mut task, &prepared)?;
        let results = prepared.into_iter().zip(finished).map(|(p, f)| joined(p, f)).collect();
        self.end_commit(&task, digest, results)
    }

    /// Prepares what can be taken up again; of the rest, asks what differs. `begun` says what has to be aborted.
    fn prepare_first(&self, task: &Undertaking<'_>, begun: &mut Vec<usize>) -> Result<Vec<CommitResult>> {
        let pieces = task.pieces();
        let mut results = vec![CommitResult::default(); pieces.len()];
        for at in self.in_preparing_order(&pieces) {
            self.parts.cancel.check().map_err(|error| pieces[at].explain(error))?;
            results[at] = match self.prepare_ends(pieces[at].workspace) {
                false => self.prepare(task, &pieces, at, None, begun)?,
                true => {
                    let looked = self.differences(pieces[at].workspace, task.request);
                    looked.map_err(|error| pieces[at].explain(error))?
                }
            };
        }
        Ok(results)
    }

    /// Prepares the rest, held to what was looked at.
    fn prepare_last(
        &self,
        task: &Undertaking<'_>,
        begun: &mut Vec<usize>,
        mut looked: Vec<CommitResult>,
    ) -> Result<Vec<CommitResult>> {
        let pieces = task.pieces();
        let order = self.in_preparing_order(&pieces);
        for at in order.into_iter().filter(|at| self.prepare_ends(pieces[*at].workspace)) {
            let prepared = self.prepare(task, &pieces, at, Some(looked[at].digest.clone()), begun)?;
            looked[at].notices.extend(prepared.notices);
            looked[at].at_decision = prepared.at_decision;
        }
        Ok(looked)
    }

    fn prepare(
        &self,
        task: &Undertaking<'_>,
        pieces: &[Piece<'_>],
        at: usize,
        digest: Option<String>,
        begun: &mut Vec<usize>,
    ) -> Result<CommitResult> {
        let request = CommitRequest { phase: Phase::Prepare, digest, ..task.request.clone() };
        let workspace = pieces[at].workspace;
        // The one that fails to be prepared may have got half way.
        begun.push(at);
        let strategy = self.strategy_of(workspace).map_err(|error| pieces[at].explain(error))?;
        strategy.commit(&workspace.sandbox_ref, &request).map_err(|error| pieces[at].explain(error))
    }

    /// The last point at which anything can still be refused. Adds the digest over all of it.
    fn last_check(
        &self,
        task: &Undertaking<'_>,
        looked: Vec<CommitResult>,
    ) -> Result<(String, Vec<CommitResult>)> {
        let labels = task.pieces().into_iter().map(|piece| piece.label);
        let labelled: PerWorkspace<CommitResult> = labels.zip(looked).collect();
        let digest = digest_of(&labelled);
        check_digest(task.request, &digest)?;
        task.rules.check(named_entries(&labelled)).map_err(|refusal| refusal.about(&digest))?;
        self.parts.cancel.check()?;
        Ok((digest, labelled.into_iter().map(|(_, result)| result).collect()))
    }

    fn decide_and_finish(
        &self,
        task: &mut Undertaking<'_>,
        prepared: &[CommitResult],
    ) -> Result<Vec<CommitResult>> {
        if let [_] = prepared {
            return self.finish_each(&task.pieces()).or_else(|error| self.settle_failure(task, error));
        }
        task.note_digests(prepared);
        let decider = prepared.iter().position(|result| result.at_decision.is_some());
        let finished = match decider {
            Some(at) => self.decide_by(task, at)?,
            None => self.decide_here(task)?,
        };
        self.finish_rest(&task.pieces(), finished)
    }

    /// The decision is the store's.
    fn decide_here(&self, task: &Undertaking<'_>) -> Result<Option<(usize, CommitResult)>> {
        let decided = self.store.decide(&task.operations());
        decided.map(|()| None).map_err(|error| self.undecide(task, error))
    }

    /// The decision is the success of one that could not be prepared; the store learns of it after that. Until then, whoever
    /// finds the operations asks that one.
    fn decide_by(&self, task: &mut Undertaking<'_>, at: usize) -> Result<Option<(usize, CommitResult)>> {
        let by = decider(task, at);
        task.members.iter_mut().for_each(|member| member.operation.details[DECIDED_BY] = by.clone());
        let noted = self.store.note(&task.operations());
        noted.map_err(|error| self.abort_all(task, error))?;
        let pieces = task.pieces();
        let finished = match self.phase_of(&pieces[at], Phase::Finish) {
            Ok(result) => Some((at, result)),
            Err(error) => match self.phase_of(&pieces[at], Phase::Abort) {
                Ok(_) => return Err(self.abort_all(task, error)),
                Err(refusal) if matches!(refusal.root(), Error::Refused { .. }) => None,
                // Nobody knows: recovery finds out.
                Err(_) => return Err(error),
            },
        };
        self.store.decide(&task.operations())?;
        Ok(finished)
    }

    /// The end of a dry run.
    fn end_trial(
        &self,
        task: &Undertaking<'_>,
        digest: String,
        looked: Vec<CommitResult>,
    ) -> Result<Together> {
        let mut commits = Vec::with_capacity(task.members.len());
        for (member, workspaces) in task.members.iter().zip(task.by_member(looked)) {
            let own = digest_of(&workspaces);
            let mut end = commit_end(&member.operation, "aborted", &own, &workspaces);
            end.summary = format!("tried, not done: {}", end.summary);
            self.store.end(&end)?;
            commits.push(TargetCommit { op_id: member.operation.id.clone(), digest: own, workspaces });
        }
        Ok((digest, commits))
    }

    /// A workspace that failed to finish decides by itself whether it had begun: what had not is forgotten; what had is
    /// tried once more, and where even that fails, the operation stays `running` and the next command's recovery tries again.
    /// What failed after everything was done, while clearing up, is done.
    fn settle_failure(&self, task: &Undertaking<'_>, error: Error) -> Result<Vec<CommitResult>> {
        let pieces = task.pieces();
        let was_begun = match self.abort_each(&pieces) {
            Ok(()) => false,
            Err(refusal) if matches!(refusal.root(), Error::Refused { .. }) => true,
            // Nobody knows: recovery finds out.
            Err(_) => return Err(error),
        };
        match self.finish_each(&pieces) {
            Ok(results) if was_begun || results.iter().any(did_something) => Ok(results),
            Err(_) if was_begun => Err(error),
            _ => Err(self.log_failure(&task.members[0].operation, error)),
        }
    }

    /// After a write that failed, nobody knows what a crash would make of it. So nothing is aborted before the store has
    /// durably said that there was no decision; where it cannot, recovery finds out what it says and acts on that.
    fn undecide(&self, task: &Undertaking<'_>, error: Error) -> Error {
        match self.store.undecide(&task.operations()) {
            Ok(()) => self.abort_all(task, error),
            Err(_) => error,
        }
    }

    /// Forgets all of it. Where that fails, the operations stay `running`, and recovery aborts again.
    fn abort_all(&self, task: &Undertaking<'_>, error: Error) -> Error {
        self.abort_begun(task, &self.in_preparing_order(&task.pieces()), error)
    }

    /// The same for what was prepared so far.
    fn abort_begun(&self, task: &Undertaking<'_>, begun: &[usize], error: Error) -> Error {
        if self.abort_some(&task.pieces(), begun).is_ok() {
            for operation in task.operations() {
                let end = OperationEnd { state: "aborted", ..failure(operation, &error) };
                let _ = self.store.end(&end);
            }
        }
        error
    }

    fn end_commit(
        &self,
        task: &Undertaking<'_>,
        digest: String,
        done: Vec<CommitResult>,
    ) -> Result<Together> {
        let mut commits = Vec::with_capacity(task.members.len());
        for (member, workspaces) in task.members.iter().zip(task.by_member(done)) {
            let (operation, own) = (&member.operation, digest_of(&workspaces));
            self.end_logged(operation, &commit_end(operation, "done", &own, &workspaces))?;
            commits.push(TargetCommit { op_id: operation.id.clone(), digest: own, workspaces });
        }
        // The commit stands, whatever comes of making room.
        let _ = self.keep_within_budget(Some(&task.members[0].operation.sandbox_id));
        for commit in commits.iter_mut().filter(|commit| !self.is_undo_kept(&commit.op_id)) {
            commit.workspaces.iter_mut().for_each(|(_, result)| result.undo_bytes = None);
        }
        Ok((digest, commits))
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

/// Of a commit in one sandbox, what became of it.
pub(super) fn only((_, mut commits): Together) -> Result<TargetCommit> {
    commits.pop().ok_or_else(|| Error::usage("there is nothing to commit"))
}

/// What is written down of a commit in one sandbox when it begins.
pub(super) fn commit_details(target: &Target, mode: &str, request: &CommitRequest) -> Value {
    let mut details = json!({"mode": mode, "workspaces": names(target), "message": request.message});
    if let Some(branch) = &request.branch {
        details[BRANCH] = json!(branch);
    }
    details
}

/// All operations that are decided together with this one, itself among them.
pub(super) fn operations_of(operation: &Operation) -> Vec<OpId> {
    let all = operation.details[PLAN_COMMIT]["operations"].as_array();
    let all = all.into_iter().flatten().filter_map(Value::as_str).map(OpId::from_string);
    all.filter(|id| *id != operation.id).chain([operation.id.clone()]).collect()
}

/// What to write down before the piece at `at` decides.
fn decider(task: &Undertaking<'_>, at: usize) -> Value {
    let each = |member: &'_ Member| {
        let by = |workspace| decided_by(&member.operation, workspace);
        member.target.workspaces.iter().map(by).collect::<Vec<_>>()
    };
    task.members.iter().flat_map(each).nth(at).unwrap_or_default()
}

fn check_digest(request: &CommitRequest, found: &str) -> Result<()> {
    match &request.digest {
        Some(expected) if expected != found => {
            Err(Error::DigestMismatch { expected: expected.clone(), found: found.to_owned() })
        }
        _ => Ok(()),
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
