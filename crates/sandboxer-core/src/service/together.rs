//! The phases of a commit over everything that takes part in it: prepare, look, decide, finish; or forget.

use serde_json::{Value, json};

use super::commit::{check_digest, did_something, digest_of};
use super::manager::{SandboxManager, failure};
use super::pieces::{Piece, named, pieces_of, pieces_of_plan};
use super::settle::{DECIDED_BY, decided_by};
use super::{Operation, PerWorkspace, Target, TargetCommit};
use crate::model::{CommitRequest, CommitResult, DiffEntry, Phase, PlanId};
use crate::policy::CommitRules;
use crate::store::OperationEnd;
use crate::{Error, Result};

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
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        match (self.plan, &self.members[..]) {
            (None, [only]) => pieces_of(&only.target),
            _ => pieces_of_plan(self.members.iter().map(|member| &member.target)),
        }
    }

    pub fn operations(&self) -> Vec<&Operation> {
        self.members.iter().map(|member| &member.operation).collect()
    }

    /// Results of all pieces, member by member.
    pub fn by_member(&self, results: Vec<CommitResult>) -> Vec<PerWorkspace<CommitResult>> {
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
    /// Commits what has phases.
    pub(super) fn commit_prepared(&self, mut task: Undertaking<'_>) -> Result<Together> {
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
        if let [one] = prepared {
            let finished = self.finish_alone(&task.pieces(), one);
            return finished.or_else(|error| self.settle_failure(task, error));
        }
        task.note_digests(prepared);
        let decider = prepared.iter().position(|result| result.at_decision.is_some());
        let finished = match decider {
            Some(at) => self.decide_by(task, at)?,
            None => self.decide_here(task)?,
        };
        self.finish_rest(&task.pieces(), finished).map_err(|error| unfinished(task, error))
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
                Err(error) if error.is_already_decided() => None,
                // Nobody knows: recovery finds out.
                Err(_) => return Err(error),
            },
        };
        self.store.decide(&task.operations())?;
        Ok(finished)
    }

    /// A workspace that failed to finish decides by itself whether it had begun: what had not is forgotten; what had is
    /// tried once more, and where even that fails, the operation stays `running` and the next command's recovery tries again.
    /// What failed after everything was done, while clearing up, is done.
    fn settle_failure(&self, task: &Undertaking<'_>, error: Error) -> Result<Vec<CommitResult>> {
        let pieces = task.pieces();
        let was_begun = match self.abort_each(&pieces) {
            Ok(()) => false,
            Err(error) if error.is_already_decided() => true,
            // Nobody knows: recovery finds out.
            Err(_) => return Err(error),
        };
        match self.finish_each(&pieces) {
            Ok(results) if was_begun || results.iter().any(did_something) => Ok(results),
            Err(_) if was_begun => Err(unfinished(task, error)),
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
}

/// A commit that is decided, and was stopped by `error`.
fn unfinished(task: &Undertaking<'_>, error: Error) -> Error {
    let names: Vec<&str> = task.members.iter().map(|member| member.target.sandbox.name.as_str()).collect();
    Error::unfinished(&names.join(", "), error)
}

/// What to write down before the piece at `at` decides.
fn decider(task: &Undertaking<'_>, at: usize) -> Value {
    let each = |member: &'_ Member| {
        let by = |workspace| decided_by(&member.operation, workspace);
        member.target.workspaces.iter().map(by).collect::<Vec<_>>()
    };
    task.members.iter().flat_map(each).nth(at).unwrap_or_default()
}

fn named_entries(results: &PerWorkspace<CommitResult>) -> impl Iterator<Item = (&str, &DiffEntry)> {
    results.iter().flat_map(|(name, result)| result.entries.iter().map(move |entry| (name.as_str(), entry)))
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
