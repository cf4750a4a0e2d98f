//! What follows a commit of files: the branch moves, the user's index takes its place.
//!
//! It happens inside the engine's own commit. What comes before the decision can still stop it; what comes after is repeated until it is done, also by
//! another process. So every step here can be told from having been done.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use sandboxer_fs::commit::Journal;
use sandboxer_fs::root::Root;
use sandboxer_fs::space::Neighbours;
use sandboxer_git::incoming;
use sandboxer_git::index::{self, Installed, NewIndex};
use sandboxer_git::refs::{self, HeldRef, Moved};
use sandboxer_git::repository::Repository;

use super::spec::{Edit, GitSpec, Plan};

/// How often an index whose lock was lost is made again.
const ATTEMPTS: usize = 3;

/// The branches that this process holds locked, by workspace.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<HashMap<PathBuf, HeldRef>>>);

impl Held {
    /// Holds one until it is taken.
    pub fn keep(&self, home: &Path, held: HeldRef) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(home.to_path_buf(), held);
    }

    /// Takes it, if this process holds it.
    pub fn take(&self, home: &Path) -> Option<HeldRef> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(home)
    }
}

/// The neighbours of a commit, with the repository among them.
pub struct Sequel {
    /// The others.
    pub neighbours: Arc<dyn Neighbours>,
    /// What is locked.
    pub held: Held,
}

impl Neighbours for Sequel {
    fn keep_old(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()> {
        if let Some(plan) = plan_of(committer, journal)? {
            self.lock_again(committer, &plan)?;
            incoming::deliver(&GitSpec::load(committer)?.ledger(committer)?)?;
        }
        self.neighbours.keep_old(committer, original, journal)
    }

    fn hide_new(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()> {
        self.neighbours.hide_new(committer, original, journal)?;
        match plan_of(committer, journal)? {
            Some(plan) => self.carry_out(committer, &plan),
            None => Ok(()),
        }
    }
}

impl Sequel {
    /// Another process prepared it: its lock of the branch went with it.
    fn lock_again(&self, home: &Path, plan: &Plan) -> Result<()> {
        if let Some(held) = self.held.take(home) {
            self.held.keep(home, held);
            return Ok(());
        }
        let spec = GitSpec::load(home)?;
        let held =
            HeldRef::prepare(&spec.repository, &spec.ledger(home)?, std::slice::from_ref(&plan.moves))?;
        if let Some(index) = plan.index.as_ref().filter(|index| !index.is_held().unwrap_or(false)) {
            index.make(&spec.repository, &plan.index_edits())?;
        }
        self.held.keep(home, held);
        Ok(())
    }

    /// Moves the branch, then the index; then the workspace is told.
    fn carry_out(&self, home: &Path, plan: &Plan) -> Result<()> {
        let mut spec = GitSpec::load(home)?;
        let ledger = spec.ledger(home)?;
        // Nothing referred to the commit so far: a clean-up of the user's may have taken it away, and does so no more once the branch is there.
        incoming::make_sure(&ledger)?;
        let moved = match self.held.take(home) {
            Some(held) => held.commit().map(|()| Moved::Done),
            None => refs::move_now(&spec.repository, &plan.moves),
        }?;
        incoming::make_sure(&ledger)?;
        if let Moved::Elsewhere(_) = moved {
            return self.leave_aside(home, &spec, plan);
        }
        refs::sync(&spec.repository, &plan.moves.name)?;
        let not_indexed = install_index(&spec.repository, plan)?;
        spec.base.clone_from(&plan.base_after);
        spec.store(home)?;
        Plan { not_indexed, ..plan.clone() }.keep(home)?;
        incoming::discard(&spec.ledger(home)?)?;
        Plan::forget(home)
    }

    /// Somebody moved the branch by force while the commit was being carried out. The files are in place; the commit is kept as a branch.
    fn leave_aside(&self, home: &Path, spec: &GitSpec, plan: &Plan) -> Result<()> {
        let aside = format!("refs/heads/{}", spec.branch);
        let moves = refs::Move { name: aside, old: None, ..plan.moves.clone() };
        let kept_there = refs::move_now(&spec.repository, &moves)?;
        if let Some(index) = &plan.index {
            index.release()?;
        }
        if matches!(kept_there, Moved::Done | Moved::Already) {
            refs::sync(&spec.repository, &moves.name)?;
        }
        Plan { moves, ..plan.clone() }.keep(home)?;
        incoming::discard(&spec.ledger(home)?)?;
        Plan::forget(home)
    }
}

/// Puts the user's index in its place. Returns what it could not take any more: the files are in place, so that is no reason to stop.
fn install_index(repo: &Repository, plan: &Plan) -> Result<Vec<RelPath>> {
    let Some(index) = &plan.index else { return Ok(Vec::new()) };
    if index.install(repo)? == Installed::Done {
        return Ok(Vec::new());
    }
    let left = (0..ATTEMPTS).find_map(|_| remake_index(repo, &index.again(), &plan.edits).ok().flatten());
    index.release()?;
    Ok(left.unwrap_or_else(|| plan.edits.iter().map(|edit| edit.path.clone()).collect()))
}

/// Makes the index again from what it is by now; what the user has staged since stays. `None` where it was changed in the meantime.
fn remake_index(repo: &Repository, again: &NewIndex, edits: &[Edit]) -> Result<Option<Vec<RelPath>>> {
    again.release()?;
    let paths: Vec<RelPath> = edits.iter().map(|edit| edit.path.clone()).collect();
    let found = index::entries(repo, &paths)?;
    let now = |edit: &Edit| found.get(&edit.path).map(|entry| (entry.mode, entry.oid.clone()));
    let (open, rest): (Vec<&Edit>, Vec<&Edit>) = edits.iter().partition(|edit| now(edit) == edit.before);
    again.make(repo, &open.into_iter().map(Edit::in_index).collect::<Vec<_>>())?;
    // Under the lock nobody else changes it.
    if index::entries(repo, &paths)? != found {
        return again.release().map(|()| None);
    }
    again.install(repo)?;
    let staged = rest.into_iter().filter(|edit| now(edit) != edit.after);
    Ok(Some(staged.map(|edit| edit.path.clone()).collect()))
}

/// The plan that belongs to a journal: one that an interrupted commit left belongs to none.
fn plan_of(home: &Path, journal: &Journal) -> Result<Option<Plan>> {
    let plan = Plan::load(home)?;
    Ok(plan.filter(|plan| plan.digest == journal.digest && plan.operation == journal.operation))
}
