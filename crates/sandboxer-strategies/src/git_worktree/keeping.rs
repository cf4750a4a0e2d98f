//! The private repository with checkpoints, rollbacks and parking.
//!
//! In an overlay it is part of the layers, and goes where they go. In a copy it is left out of the tree that is compared, so it is kept beside.

use std::path::{Path, PathBuf};

use sandboxer_core::contract::{CancelFlag, SandboxStrategy};
use sandboxer_core::model::{CheckpointId, CommitRequest, Part, Phase, RelPath, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::overlay::layer::{Layer, Marks};
use sandboxer_fs::overlay::transfer::copy_layer;
use sandboxer_fs::remove_tree;
use sandboxer_fs::root::Root;
use sandboxer_git::index;
use sandboxer_git::ledger::Ledger;
use sandboxer_git::objects;
use sandboxer_git::oid::Oid;
use sandboxer_git::private::{self, Advance, AgentHead};

use super::making::tree_of;
use super::spec::{GitSpec, Plan, place};
use super::{GitWorktree, PRIVATE};
use crate::copies::home_of;
use crate::overlay::is_overlay;

/// The private repository of a copy.
fn private_of(home: &Path) -> PathBuf {
    home.join("tree").join(PRIVATE)
}

fn kept(home: &Path, name: &str) -> PathBuf {
    place(home).join("kept").join(name)
}

/// Keeps it with the checkpoint `id`.
pub fn keep(home: &Path, id: &CheckpointId) -> Result<()> {
    if is_overlay(home) {
        return Ok(());
    }
    copy(&private_of(home), &kept(home, id.as_str()))
}

/// Brings back what was kept with `id`.
pub fn bring_back(home: &Path, id: &CheckpointId) -> Result<()> {
    if is_overlay(home) {
        return Ok(());
    }
    copy(&kept(home, id.as_str()), &private_of(home))
}

/// Puts a copy of `from` in the place of `to`, whatever is there.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let fresh = to.with_extension("new");
    if let Some(parent) = fresh.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Error::io("create directory", parent, e))?;
    }
    remove_tree(&fresh)?;
    // What the agent made of it may be no directory at all any more.
    if from.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        std::fs::create_dir(&fresh).map_err(|e| Error::io("create directory", &fresh, e))?;
        copy_layer(&Layer::open(from, Marks::User)?, &fresh, &CancelFlag::default())?;
    }
    remove_tree(to)?;
    match std::fs::rename(&fresh, to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("rename into place", to, e)),
        _ => Ok(()),
    }
}

/// What goes with a part of the workspace.
pub fn clean_up(home: &Path, part: &Part) -> Result<()> {
    match part {
        Part::Undo(operation) => Plan::forget_kept(home, operation),
        Part::Checkpoint(id) => remove_tree(&kept(home, id.as_str())),
        Part::Unchanged => park(home),
    }
}

/// The tree of a copy is made anew when it is taken up again.
fn park(home: &Path) -> Result<()> {
    let (from, to) = (private_of(home), kept(home, "parked"));
    if is_overlay(home) || from.symlink_metadata().is_err() {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Error::io("create directory", parent, e))?;
    }
    remove_tree(&to)?;
    std::fs::rename(&from, &to).map_err(|e| Error::io("put away", from, e))
}

/// Takes it up again.
pub fn unpark(home: &Path) -> Result<()> {
    let (from, to) = (kept(home, "parked"), private_of(home));
    if is_overlay(home) || from.symlink_metadata().is_err() {
        return Ok(());
    }
    remove_tree(&to)?;
    std::fs::rename(&from, &to).map_err(|e| Error::io("take up", to, e))
}

fn phase(phase: Phase) -> CommitRequest {
    CommitRequest { phase, ..CommitRequest::default() }
}

impl GitWorktree {
    /// After a rollback: the repository as it was made, on what the base is now.
    pub(super) fn reset_private(&self, sandbox: &SandboxRef) -> Result<()> {
        let home = home_of(sandbox)?;
        let spec = GitSpec::load(&home)?;
        if !is_overlay(&home) {
            copy(&kept(&home, "seed"), &private_of(&home))?;
        }
        let tree = Root::open(tree_of(sandbox)?)?;
        let state = private::read(&tree, spec.repository.format)?;
        let (Some(base), Some(state)) = (&spec.base, state) else { return Ok(()) };
        if state.commit.as_ref() == Some(base) {
            return Ok(());
        }
        let job = Advance {
            work: &place(&home),
            objects: &spec.repository.objects(),
            format: spec.repository.format,
            from: state.commit.as_ref(),
            to: base,
            edits: &index_between(&spec.ledger(&home)?, state.commit.as_ref(), base)?,
        };
        private::advance(&tree, &job).map(drop)
    }

    /// Moves the branch inside along, if it is where the base was: what was committed is not a change any more. It is a convenience, and
    /// whatever is odd inside is left alone. Where commits that were kept are taken back, the branch inside still has them.
    pub(super) fn advance(&self, home: &Path, tree: &Root, plan: &Plan) -> Result<()> {
        let spec = GitSpec::load(home)?;
        let goes_to = plan.own.as_ref().filter(|_| plan.kept == 0).or(plan.base_after.as_ref());
        let (Some(to), Some(state)) = (goes_to, private::read(tree, spec.repository.format)?) else {
            return Ok(());
        };
        let is_ours = matches!(&state.head, AgentHead::Branch(name) if *name == spec.branch);
        if !is_ours || (state.commit != plan.base_before && plan.kept == 0) {
            return Ok(());
        }
        let job = Advance {
            work: &place(home),
            objects: &spec.repository.objects(),
            format: spec.repository.format,
            from: state.commit.as_ref(),
            to,
            edits: &index_between(&spec.ledger(home)?, plan.base_before.as_ref(), to)?,
        };
        private::advance(tree, &job).map(drop)
    }

    /// Keeps a copy's private repository as it was made.
    pub(super) fn keep_seed(&self, home: &Path) -> Result<()> {
        if is_overlay(home) { Ok(()) } else { copy(&private_of(home), &kept(home, "seed")) }
    }

    /// A decided commit is finished, and anything else of one forgotten.
    fn end_commit(&self, sandbox: &SandboxRef, home: &Path) -> Result<()> {
        let ended = match self.commit_phase(sandbox, &phase(Phase::Abort)) {
            Err(error) if error.is_already_decided() => {
                self.commit_phase(sandbox, &phase(Phase::Finish)).map(drop)
            }
            aborted => aborted.map(drop),
        };
        // A workspace whose original is gone has nothing that could be finished; one without a tree was ended when that was removed.
        let has_tree = tree_of(sandbox)?.symlink_metadata().is_ok();
        match ended {
            Err(error)
                if has_tree && GitSpec::load(home).is_ok_and(|spec| spec.repository.git_dir.exists()) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Everything goes: what a commit under way holds in the user's repository first.
    pub(super) fn clean_up_all(&self, sandbox: &SandboxRef, home: &Path) -> Result<()> {
        if home.exists() {
            self.end_commit(sandbox, home)?;
        }
        drop(self.phases.let_go(home));
        self.files.cleanup(sandbox)
    }
}

/// What an index has to be told when its commit changes.
fn index_between(ledger: &Ledger, from: Option<&Oid>, to: &Oid) -> Result<IndexEdits> {
    let from = from.cloned().map_or_else(|| index::empty_tree(ledger.format()).parse(), Ok)?;
    let paths = objects::changed_paths(ledger, &from, to)?;
    let mut entries = objects::tree_entries(ledger, to, &paths)?;
    let edit = |path: RelPath| {
        let now = entries.remove(&path).map(|entry| (entry.mode, entry.oid));
        (path, now)
    };
    Ok(paths.into_iter().map(edit).collect())
}

/// Paths, with mode and object or nothing.
type IndexEdits = Vec<(RelPath, Option<(u32, Oid)>)>;
