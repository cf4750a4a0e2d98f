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
use super::manager::{SandboxManager, Still, explain, new_operation};
use super::pieces::{Piece, pieces_of};
use super::together::{Member, Together, Undertaking};
use super::{Operation, PerWorkspace, Target, TargetCommit, Workspace};
use crate::contract::Capabilities;
use crate::model::{CommitRequest, CommitResult, History, OnConflict, OpId, Phase};
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
        let (mut still, target) = self.lock_still(target)?;
        self.check_abilities(&pieces_of(&target), request, dry_run)?;
        self.check_paths(&target, &request.paths)?;
        let operation =
            new_operation(&target.sandbox.id, "commit", commit_details(&target, mode_of(&target), request));
        let logged = logged_as(target.clone(), &operation.id, None);
        let members = vec![Member { target: logged, operation }];
        let task = Undertaking { members, plan: None, request, rules, dry_run };
        only(self.undertake_and_send(std::slice::from_mut(&mut still), &[target], task)?)
    }

    /// The same as [`Self::undertake`]; copies of the workspaces that it changes are sent. What is committed is committed: one that cannot be told is said,
    /// and told by the next command.
    pub(super) fn undertake_and_send(
        &self,
        stills: &mut [Still],
        targets: &[Target],
        task: Undertaking<'_>,
    ) -> Result<Together> {
        if task.dry_run {
            return self.undertake(task);
        }
        let (done, sent) = self.sending(stills, targets, || self.undertake(task));
        let (digest, mut commits) = done?;
        if let Err(error) = sent {
            commits.iter_mut().for_each(|commit| commit.unsent = Some(explain(&error)));
        }
        Ok((digest, commits))
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
            } else if !can_resolve(request.on_conflict, abilities) {
                Some(("resolve conflicts", "it does not keep what it was made from"))
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
    pub(super) fn differences(&self, workspace: &Workspace, request: &CommitRequest) -> Result<CommitResult> {
        let view = self.strategy_of(workspace)?.diff(&workspace.sandbox_ref)?.select(&request.paths);
        let (digest, entries, at_decision) = (view.digest, view.entries, view.at_decision);
        Ok(CommitResult { digest, entries, at_decision, ..CommitResult::default() })
    }

    /// The end of a dry run.
    pub(super) fn end_trial(
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
            commits.push(TargetCommit {
                op_id: member.operation.id.clone(),
                digest: own,
                workspaces,
                unsent: None,
            });
        }
        Ok((digest, commits))
    }

    pub(super) fn end_commit(
        &self,
        task: &Undertaking<'_>,
        digest: String,
        done: Vec<CommitResult>,
    ) -> Result<Together> {
        let mut commits = Vec::with_capacity(task.members.len());
        for (member, workspaces) in task.members.iter().zip(task.by_member(done)) {
            let (operation, own) = (&member.operation, digest_of(&workspaces));
            self.end_logged(operation, &commit_end(operation, "done", &own, &workspaces))?;
            commits.push(TargetCommit { op_id: operation.id.clone(), digest: own, workspaces, unsent: None });
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

/// Nothing else is committed than what was reviewed.
pub(super) fn check_digest(request: &CommitRequest, found: &str) -> Result<()> {
    match &request.digest {
        Some(expected) if expected != found => {
            Err(Error::DigestMismatch { expected: expected.clone(), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Whether conflicts can be treated in that way.
fn can_resolve(way: OnConflict, abilities: &Capabilities) -> bool {
    match way {
        OnConflict::Fail => true,
        OnConflict::Ours | OnConflict::Theirs => abilities.keeps_base || abilities.resolves,
        OnConflict::Merge | OnConflict::Mark => abilities.keeps_base,
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

/// One digest over results.
pub(super) fn digest_of(results: &PerWorkspace<CommitResult>) -> String {
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
