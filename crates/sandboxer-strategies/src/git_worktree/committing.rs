//! A commit to the repository: made ready beside the engine's, locked, and carried out by the [`Sequel`].

use std::path::Path;
use std::sync::Arc;

use sandboxer_core::model::{
    CommitRequest, CommitResult, Conflict, Notice, OnConflict, Phase, RelPath, Revision, SandboxRef,
};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::{self, Journal, OnFailure, Step};
use sandboxer_fs::lock::ResourceLock;
use sandboxer_fs::root::Root;
use sandboxer_fs::space::{Logged, Means, Space};
use sandboxer_fs::stamp::Stamp;
use sandboxer_git::incoming;
use sandboxer_git::index::{self, NewIndex};
use sandboxer_git::refs::{self, HeldRef, Moved};
use ulid::Ulid;

use super::GitWorktree;
use super::knowledge::{InBase, Memory, View};
use super::making::short;
use super::sequel::Sequel;
use super::spec::{Edit, GitSpec, Plan};
use super::undoing::plan_undo;
use crate::copies::home_of;

impl GitWorktree {
    /// The engine's means, with the repository among those that hear of a commit.
    fn means_of_commit(&self) -> Means {
        let plain = self.files.means();
        let neighbours = Arc::new(Sequel { neighbours: plain.neighbours.clone(), held: self.held.clone() });
        Means { neighbours, ..plain }
    }

    /// Opens the workspace to make a commit ready: what git hides is hidden, and its history is asked. What is known of the branch is known
    /// under the lock, as other sandboxes commit to it too.
    fn open_for_commit(&self, home: &Path) -> Result<(ResourceLock, Box<dyn Space>, Arc<Memory>)> {
        let mut space = self.files.open_space(home, self.means_of_commit())?;
        let lock = space.lock()?;
        if commit::is_decided(&space.pair().files()) {
            space.carry_out(OnFailure::Stop)?;
        }
        let memory = Arc::new(Memory::of(home, GitSpec::load(home)?)?);
        space.pair_mut().means.history = Some(memory.clone());
        let space = self.screened(space, &memory.spec, memory.base.clone())?;
        Ok((lock, space, memory))
    }

    /// Lets a difference show what git shows.
    pub(super) fn screened(
        &self,
        mut space: Box<dyn Space>,
        spec: &GitSpec,
        base: InBase,
    ) -> Result<Box<dyn Space>> {
        let pair = space.pair_mut();
        let view = View::of(spec, &pair.home, pair.copy.path(), base)?;
        pair.shown = pair.shown.screened(Arc::new(view));
        Ok(space)
    }

    /// Does what `request` asks for.
    pub(super) fn commit_phase(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let home = home_of(sandbox)?;
        match request.phase {
            Phase::Whole => {
                self.prepare(sandbox, &home, request)?;
                self.finish(sandbox, &home, Phase::Finish)
            }
            Phase::Prepare => self.prepare(sandbox, &home, request),
            Phase::Finish | Phase::FinishPossible => self.finish(sandbox, &home, request.phase),
            Phase::Abort => self.abort(sandbox, &home),
        }
    }

    /// Makes a commit ready; once more from the beginning where somebody who asks for no lock of ours has moved the branch meanwhile.
    fn prepare(&self, sandbox: &SandboxRef, home: &Path, request: &CommitRequest) -> Result<CommitResult> {
        let branch = request.branch.as_deref().map(|branch| short(branch).to_owned());
        let request = &CommitRequest { branch, ..request.clone() };
        let (lock, space, memory) = self.open_for_commit(home)?;
        let prepared = self.prepare_once(sandbox, (lock, space.as_ref(), &memory), request);
        let has_moved =
            || Ok::<_, Error>(memory.spec.repository.branch_tip(memory.spec.moves())? != memory.tip);
        match prepared {
            Err(Error::Refused { .. } | Error::Conflict { .. }) if has_moved()? => {
                let (lock, space, memory) = self.open_for_commit(home)?;
                self.prepare_once(sandbox, (lock, space.as_ref(), &memory), request)
            }
            prepared => prepared,
        }
    }

    fn prepare_once(
        &self,
        sandbox: &SandboxRef,
        (lock, space, memory): (ResourceLock, &dyn Space, &Memory),
        request: &CommitRequest,
    ) -> Result<CommitResult> {
        let home = &memory.home;
        if let Some(branch) = &request.branch {
            self.check_branch(memory, branch)?;
        } else {
            check_target(&memory.spec)?;
        }
        let on_conflict = if request.branch.is_some() { OnConflict::Theirs } else { request.on_conflict };
        let asked = CommitRequest { phase: Phase::Prepare, on_conflict, ..request.clone() };
        let logged = Logged { operation: sandbox.operation(), undo: sandbox.undo(), ..Logged::default() };
        let prepared = self.phases.prepare_holding(lock, space, &asked, &logged)?;
        let planned = self.plan(sandbox, home, space, memory, request, &prepared);
        match planned {
            Ok(more) => Ok(CommitResult { notices: [prepared.notices, more].concat(), ..prepared }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.abort(sandbox, home);
                Err(error)
            }
        }
    }

    /// Makes the commit and locks what it moves. Returns what a careful person wants to know.
    fn plan(
        &self,
        sandbox: &SandboxRef,
        home: &Path,
        space: &dyn Space,
        memory: &Memory,
        request: &CommitRequest,
        prepared: &CommitResult,
    ) -> Result<Vec<Notice>> {
        self.forget_plan(home)?;
        // Of a commit that was given up before it was planned.
        incoming::discard(&memory.ledger)?;
        let Some(journal) = Journal::load(&space.pair().files().prepared())? else { return Ok(Vec::new()) };
        let plan = match sandbox.undo() {
            Some(undone) => plan_undo(home, &memory.spec, &undone)?,
            None => self.plan_commit(home, space, memory, request, &journal)?,
        };
        let Some((mut plan, notices)) = plan else {
            // The branch has it all: what is staged is for no checkout.
            if request.branch.is_some() {
                space.abort()?;
            }
            return Ok(Vec::new());
        };
        (plan.operation, plan.digest) = (sandbox.operation(), journal.digest.clone());
        if request.branch.is_some() {
            let revision = Some(revision_of(&plan));
            plan.result = Some(CommitResult { revision, ..prepared.clone() });
            space.abort()?;
        } else {
            plan.index = Some(NewIndex::place(&memory.spec.repository, &Ulid::generate().to_string()));
        }
        // What is made in the user's repository is written down first, so that somebody can clear it up.
        plan.store(home)?;
        if let Some(index) = &plan.index {
            index.make(&memory.spec.repository, &plan.index_edits())?;
        }
        let held =
            HeldRef::prepare(&memory.spec.repository, &memory.ledger, std::slice::from_ref(&plan.moves))?;
        if plan.index.is_some() {
            check_again(&memory.spec, &plan)?;
            check_files(&space.pair().original, &journal)?;
        }
        self.held.keep(home, held);
        Ok(notices)
    }

    fn finish(&self, sandbox: &SandboxRef, home: &Path, phase: Phase) -> Result<CommitResult> {
        let planned = match Plan::load(home)? {
            Some(plan) if plan.result.is_some() => return self.finish_branch(home, plan),
            planned => planned,
        };
        let space = self.files.open_space(home, self.means_of_commit())?;
        let finish = CommitRequest { phase, ..CommitRequest::default() };
        let mut result = self.phases.commit(space.as_ref(), sandbox, &finish)?;
        // Nothing was decided, and nothing will be.
        self.forget_plan(home)?;
        let done = match sandbox.operation() {
            Some(operation) => Plan::kept(home, &operation)?,
            None => planned.filter(|_| !result.entries.is_empty()),
        };
        if let Some(plan) = done {
            result.conflicts.extend(plan.not_indexed.iter().map(not_indexed));
            result.conflicts.extend(moved_aside(&GitSpec::load(home)?, &plan, &result));
            result.revision = Some(revision_of(&plan));
            let _ = self.advance(home, &space.pair().copy, &plan);
        }
        Ok(result)
    }

    /// Only a branch is made; nothing else of the resource is touched.
    fn finish_branch(&self, home: &Path, plan: Plan) -> Result<CommitResult> {
        let spec = GitSpec::load(home)?;
        incoming::deliver(&spec.ledger(home)?)?;
        let moved = match self.held.take(home) {
            Some(held) => held.commit().map(|()| Moved::Done)?,
            None => refs::move_now(&spec.repository, &plan.moves)?,
        };
        self.phases.let_go(home);
        if let Moved::Elsewhere(_) = moved {
            self.forget_plan(home)?;
            return Err(branch_moved(&plan.moves.name));
        }
        incoming::make_sure(&spec.ledger(home)?)?;
        refs::sync(&spec.repository, &plan.moves.name)?;
        self.forget_plan(home)?;
        Ok(plan.result.unwrap_or_default())
    }

    fn abort(&self, sandbox: &SandboxRef, home: &Path) -> Result<CommitResult> {
        if let Some(plan) = Plan::load(home)?.filter(|plan| plan.result.is_some()) {
            let spec = GitSpec::load(home)?;
            if spec.repository.branch_tip(&plan.moves.name)?.as_ref() == Some(&plan.moves.new) {
                return Err(Error::already_decided(format!("of branch {}", plan.moves.name)));
            }
        }
        let abort = CommitRequest { phase: Phase::Abort, ..CommitRequest::default() };
        let aborted = match self.files.open_space(home, self.files.means()) {
            Ok(space) => self.phases.commit(space.as_ref(), sandbox, &abort)?,
            Err(_) => self.phases.abort_unopened(home)?,
        };
        self.forget_plan(home)?;
        Ok(aborted)
    }

    /// Lets go of everything that a plan holds, and of the plan.
    pub(super) fn forget_plan(&self, home: &Path) -> Result<()> {
        drop(self.held.take(home));
        if let Some(plan) = Plan::load(home)? {
            let mut spec = GitSpec::load(home)?;
            if let Some(index) = &plan.index {
                index.release()?;
            }
            refs::release_left(&spec.repository, &plan.moves)?;
            if plan.result.is_some()
                && spec.repository.branch_tip(&plan.moves.name)? == Some(plan.moves.new.clone())
            {
                spec.left.insert(plan.moves.name, plan.moves.new);
                spec.store(home)?;
            }
            incoming::discard(&spec.ledger(home)?)?;
        }
        Plan::forget(home)
    }

    fn check_branch(&self, memory: &Memory, branch: &str) -> Result<()> {
        refs::check_branch_name(branch)?;
        refs::refuse_crowded(&memory.spec.repository, branch)?;
        let full = format!("refs/heads/{branch}");
        if !memory.spec.repository.is_checked_out(&full)? {
            return Ok(());
        }
        Err(Error::Refused {
            reason: format!(
                "the branch {branch} is checked out, and moving it would not change the files there"
            ),
            hint: Some("name another branch, or leave `--to` out to commit to the checkout".to_owned()),
        })
    }
}

/// Now that the index and the branch are locked: both are still what the plan was made for. Somebody may have switched or staged in between.
fn check_again(spec: &GitSpec, plan: &Plan) -> Result<()> {
    check_target(spec)?;
    let paths: Vec<RelPath> = plan.edits.iter().map(|edit| edit.path.clone()).collect();
    let now = index::entries(&spec.repository, &paths)?;
    let is_staged = |edit: &&Edit| now.get(&edit.path).map(|e| (e.mode, e.oid.clone())) != edit.before;
    let staged = plan.edits.iter().filter(is_staged).map(|edit| edit.path.clone());
    let conflicts: Vec<Conflict> =
        staged.map(|path| Conflict::new(path, "staged in the checkout in this very moment")).collect();
    if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict { conflicts }) }
}

/// And so are the files, which a `git switch` there and back has replaced by others.
fn check_files(original: &Root, journal: &Journal) -> Result<()> {
    let mut conflicts = Vec::new();
    for (path, old) in journal.steps.iter().filter_map(replaced) {
        let is_as_planned = match (old, original.stamp(path)?) {
            (Some(old), Some(now)) => old.same_inode(&now) && old.same_state(&now),
            (None, Some(now)) => now.is_dir(),
            (Some(_), None) => false,
            (None, None) => true,
        };
        if !is_as_planned {
            conflicts.push(Conflict::new(path.clone(), "changed in the checkout in this very moment"));
        }
    }
    if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict { conflicts }) }
}

/// The file that a step finds, or that there must be none. Directories are the engine's affair.
fn replaced(step: &Step) -> Option<(&RelPath, Option<Stamp>)> {
    let old = match step {
        Step::Place { old, .. } => *old,
        Step::Delete { old, .. } | Step::Dress { old, .. } => Some(*old),
    };
    let is_file = old.is_none_or(|old| !old.is_dir() && old.ino != 0);
    is_file.then(|| (step.path(), old))
}

/// Refuses if the checkout is on another branch now, or in the middle of a merge, a rebase or the like.
fn check_target(spec: &GitSpec) -> Result<()> {
    let to = "`--to BRANCH` leaves the work as a branch of its own";
    if !spec.has_target {
        return Err(Error::Refused {
            reason: "the sandbox was made from another commit than the one that is checked out".to_owned(),
            hint: Some(to.to_owned()),
        });
    }
    if let Some(what) = spec.repository.under_way() {
        return Err(Error::Refused {
            reason: format!("a {what} is in progress in {}", spec.repository.work_tree.display()),
            hint: Some(format!("finish it, or `git {what} --abort`; {to}")),
        });
    }
    let head = spec.repository.head()?;
    if head.branch == spec.target {
        return Ok(());
    }
    let name = |branch: &Option<String>| branch.as_deref().map_or("no branch", short).to_owned();
    let (now, then) = (name(&head.branch), name(&spec.target));
    let way_back = match spec.target.as_deref() {
        Some(branch) if spec.repository.branch_tip(branch)?.is_some() => {
            format!("`git switch {then}`, or {to}")
        }
        Some(_) => format!("that branch is gone: `--to {then}` makes it again, with the work in it"),
        None => to.to_owned(),
    };
    Err(Error::Refused {
        reason: format!("the checkout is on {now} now, and the sandbox was made from {then}"),
        hint: Some(way_back),
    })
}

fn revision_of(plan: &Plan) -> Revision {
    let branch = plan.moves.name.strip_prefix("refs/heads/").map(str::to_owned);
    Revision { commit: plan.moves.new.to_string(), branch, kept: plan.kept }
}

fn branch_moved(name: &str) -> Error {
    Error::Refused {
        reason: format!("the branch {} was moved by somebody else in this very moment", short(name)),
        hint: Some("look at what it has now, and commit again".to_owned()),
    }
}

/// The user's index was unlocked by force after the files were decided.
fn not_indexed(path: &RelPath) -> Conflict {
    let reason = "committed, but the checkout's index was changed or locked meanwhile and has it as it was \
                  (`git reset` brings it up to date)";
    Conflict::new(path.clone(), reason)
}

/// A branch that was moved by force after the files were decided: its commit is elsewhere.
fn moved_aside(spec: &GitSpec, plan: &Plan, result: &CommitResult) -> Option<Conflict> {
    let aside = plan.moves.name == format!("refs/heads/{}", spec.branch);
    let path = result.entries.first().filter(|_| aside)?.path.clone();
    let reason = format!(
        "{} was moved by somebody else while the files were put in place; the commit is the branch {}",
        short(spec.moves()),
        spec.branch
    );
    Some(Conflict::new(path, reason))
}
