//! All open sandboxes of a plan as one: diff, commit, rollback.
//!
//! A plan's sandboxes are locked in the order of their ids, and what is committed is prepared in the order of the resources, so two
//! commits never wait for each other in a circle. All of it is decided at once: after a crash, either every sandbox's part is
//! finished or none is. Each part is an operation of its sandbox, and is taken back by itself.

use std::time::Instant;

use serde_json::json;

use super::commit::{PLAN_COMMIT, TWO_PHASE, commit_details, logged_as, mode_of};
use super::content::combined_digest;
use super::manager::{SandboxManager, Still, new_operation};
use super::pieces::{pieces_of_plan, plan_label};
use super::together::{Member, Undertaking};
use super::{PlanCommit, PlanDiff, RollbackResults, Sandbox, Target, TargetDiff};
use crate::model::{CommitRequest, Phase, PlanId};
use crate::policy::CommitRules;
use crate::{Error, Result, resolve};

/// So often the sandboxes of a plan may change between looking and locking, even where nobody is to wait for a lock.
const TRIES: usize = 5;

/// All open sandboxes of a plan, locked, with nothing moving in them.
type LockedPlan = (Vec<Still>, Vec<Target>);

impl SandboxManager {
    /// The open sandboxes of a plan, in the order of their ids; at least one.
    pub fn sandboxes_of_plan(&self, plan: &PlanId) -> Result<Vec<Sandbox>> {
        let mut open = self.store.live_of_plan(plan)?;
        open.retain(|sandbox| sandbox.state.is_open() && self.sees(sandbox));
        open.sort_by(|a, b| a.id.cmp(&b.id));
        if open.is_empty() { Err(self.unknown_plan(plan)?) } else { Ok(open) }
    }

    /// Everything that differs in any of them.
    pub fn diff_plan(&self, plan: &PlanId) -> Result<PlanDiff> {
        let (mut sandboxes, mut digests) = (Vec::new(), Vec::new());
        for target in self.sandboxes_of_plan(plan)?.into_iter().map(whole) {
            let diff = self.diff(&target, &[]).map_err(in_sandbox(&target.sandbox))?;
            digests.extend(own_digests(&target.sandbox, &diff));
            sandboxes.push((target.sandbox, diff));
        }
        Ok(PlanDiff { digest: combined_digest(&digests), sandboxes })
    }

    /// Makes the differences of all of them real, if `rules` allow them: all or nothing, over all sandboxes of the plan.
    pub fn commit_plan(
        &self,
        plan: &PlanId,
        request: &CommitRequest,
        rules: &CommitRules,
    ) -> Result<PlanCommit> {
        self.commit_or_try_plan(plan, request, rules, false)
    }

    /// What a commit of the plan would do, as far as that can be known without doing it.
    pub fn try_commit_plan(
        &self,
        plan: &PlanId,
        request: &CommitRequest,
        rules: &CommitRules,
    ) -> Result<PlanCommit> {
        self.commit_or_try_plan(plan, request, rules, true)
    }

    /// Throws the differences of all of them away. There is no all or nothing to it: one that fails does not keep the others,
    /// and calling again does the rest.
    pub fn rollback_plan(&self, plan: &PlanId) -> Result<Vec<(Sandbox, RollbackResults)>> {
        let (mut stills, targets) = self.lock_plan(plan, "rollback")?;
        let (mut results, mut first_failure) = (Vec::with_capacity(targets.len()), Ok(()));
        for (still, target) in stills.iter_mut().zip(targets) {
            match self.sending_one(still, &target, || self.rollback_logged(&target, &[])) {
                Ok(result) => results.push((target.sandbox, result)),
                Err(error) => first_failure = first_failure.and(Err(in_sandbox(&target.sandbox)(error))),
            }
        }
        first_failure.map(|()| results)
    }

    fn commit_or_try_plan(
        &self,
        plan: &PlanId,
        request: &CommitRequest,
        rules: &CommitRules,
        dry_run: bool,
    ) -> Result<PlanCommit> {
        check_request(request)?;
        let (mut stills, targets) = self.lock_plan(plan, "commit")?;
        self.check_abilities(&pieces_of_plan(targets.iter()), request, dry_run)?;
        let sandboxes: Vec<Sandbox> = targets.iter().map(|target| target.sandbox.clone()).collect();
        let members = members(plan, targets.clone(), request);
        let task = Undertaking { members, plan: Some(plan), request, rules, dry_run };
        let (digest, commits) = self.undertake_and_send(&mut stills, &targets, task)?;
        Ok(PlanCommit { digest, sandboxes: sandboxes.into_iter().zip(commits).collect() })
    }

    /// Locks all open sandboxes of a plan, with whatever runs in them held still. Where one ends or begins while we wait for
    /// another, we look again: how often that happens is up to others and to how slow this machine is, so it is bounded by
    /// time, as waiting for any lock is.
    fn lock_plan(&self, plan: &PlanId, action: &str) -> Result<LockedPlan> {
        let (begun, mut tries) = (Instant::now(), 0);
        while tries < TRIES || begun.elapsed() < self.parts.settings.lock_wait {
            if let Some(locked) = self.try_lock_plan(plan, action)? {
                return Ok(locked);
            }
            self.parts.cancel.check()?;
            tries += 1;
        }
        let holder = Some(format!("sandboxes of plan {plan} come and go"));
        Err(Error::Busy { path: self.sandboxes_dir(), holder })
    }

    /// One try. `None` where a sandbox of the plan has ended or begun since we looked.
    fn try_lock_plan(&self, plan: &PlanId, action: &str) -> Result<Option<LockedPlan>> {
        let found = self.sandboxes_of_plan(plan)?;
        let targets: Vec<Target> = found.into_iter().map(whole).collect();
        targets.iter().try_for_each(|target| self.permit_on(target, action))?;
        let locked: Result<Vec<_>> = targets.iter().map(|target| self.lock_still(target)).collect();
        let (still, locked): LockedPlan = match locked {
            Err(Error::NotFound { what: "sandbox", .. }) => return Ok(None),
            locked => locked?.into_iter().unzip(),
        };
        let now = self.sandboxes_of_plan(plan)?;
        let is_all = now.iter().map(|s| &s.id).eq(locked.iter().map(|target| &target.sandbox.id));
        Ok(is_all.then_some((still, locked)))
    }

    fn unknown_plan(&self, plan: &PlanId) -> Result<Error> {
        let live = self.list(false)?;
        let mut plans: Vec<String> = live.into_iter().map(|sandbox| sandbox.plan_id.to_string()).collect();
        plans.sort();
        plans.dedup();
        let similar = resolve::nearest(plan.as_str(), plans.iter());
        Ok(Error::NotFound { what: "open sandbox of plan", name: plan.to_string(), similar })
    }
}

/// A sandbox with all its workspaces.
fn whole(sandbox: Sandbox) -> Target {
    Target { workspaces: sandbox.workspaces.clone(), sandbox }
}

fn members(plan: &PlanId, targets: Vec<Target>, request: &CommitRequest) -> Vec<Member> {
    let mode = match &targets[..] {
        [only] => mode_of(only),
        _ => TWO_PHASE,
    };
    let begin = |target: Target| {
        let details = commit_details(&target, mode, request);
        let operation = new_operation(&target.sandbox.id, "commit", details);
        Member { target: logged_as(target, &operation.id, None), operation }
    };
    let mut members: Vec<Member> = targets.into_iter().map(begin).collect();
    let all: Vec<_> = members.iter().map(|member| member.operation.id.clone()).collect();
    let plan = json!({"plan_id": plan, "operations": all});
    members.iter_mut().for_each(|member| member.operation.details[PLAN_COMMIT] = plan.clone());
    members
}

fn own_digests(sandbox: &Sandbox, diff: &TargetDiff) -> Vec<(String, String)> {
    diff.workspaces.iter().map(|w| (plan_label(sandbox, &w.workspace), w.digest.clone())).collect()
}

/// Says which sandbox of several an error is about, unless it says so already.
fn in_sandbox(sandbox: &Sandbox) -> impl FnOnce(Error) -> Error {
    let name = sandbox.name.clone();
    move |error| match error {
        Error::Workspace { workspace, source } => {
            Error::Workspace { workspace: format!("{name}:{workspace}"), source }
        }
        other => Error::Workspace { workspace: name, source: Box::new(other) },
    }
}

fn check_request(request: &CommitRequest) -> Result<()> {
    if !request.paths.is_empty() || !request.hunks.is_empty() {
        return Err(Error::Usage {
            message: "a path lies in one workspace, and a plan is committed as a whole".to_owned(),
            hint: Some("commit a part of one sandbox: `sandbox commit ID PATH…`".to_owned()),
        });
    }
    if request.phase == Phase::Whole {
        return Ok(());
    }
    Err(Error::usage("the phases of a commit are the coordinator's business; ask for a whole one"))
}
