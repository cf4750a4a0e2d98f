//! Taking a commit back, where nothing came on top of it.

use std::path::Path;

use sandboxer_core::model::{Conflict, Notice, OpId, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_git::index;
use sandboxer_git::refs::Move;

use super::making::short;
use super::spec::{Edit, GitSpec, Plan};

/// The way back: the branch and the index as they were, where nothing came on top.
pub fn plan_undo(home: &Path, spec: &GitSpec, undone: &OpId) -> Result<Option<(Plan, Vec<Notice>)>> {
    let Some(done) = Plan::kept(home, undone)? else { return Ok(None) };
    let branch = short(&done.moves.name).to_owned();
    let commit = done.moves.new.short().to_owned();
    let Some(back) = done.moves.old.clone() else {
        return Err(Error::Refused {
            reason: format!(
                "{commit} is the first commit of {branch}, and a branch cannot be without one again"
            ),
            hint: Some(format!("`git update-ref -d {}` does that", done.moves.name)),
        });
    };
    if spec.repository.branch_tip(&done.moves.name)?.as_ref() != Some(&done.moves.new) {
        return Err(Error::Refused {
            reason: format!("{branch} is not at {commit} any more"),
            hint: Some(format!("`git revert {commit}` takes it back with a commit of its own")),
        });
    }
    let paths: Vec<RelPath> = done.edits.iter().map(|edit| edit.path.clone()).collect();
    let now = index::entries(&spec.repository, &paths)?;
    let is_staged = |edit: &&Edit| now.get(&edit.path).map(|e| (e.mode, e.oid.clone())) != edit.after;
    let staged = done.edits.iter().filter(is_staged);
    let conflicts: Vec<Conflict> =
        staged.map(|edit| Conflict::new(edit.path.clone(), "staged in the checkout since")).collect();
    if !conflicts.is_empty() {
        return Err(Error::Conflict { conflicts });
    }
    let reason = format!("sandbox undo: back from {commit}");
    let moves = Move { old: Some(done.moves.new), new: back, reason, ..done.moves };
    let (base_before, base_after) = (done.base_after, done.base_before);
    let edits = done.edits.into_iter().map(Edit::reversed).collect();
    let own = done.own.filter(|_| done.kept > 0);
    let (index, not_indexed) = (None, Vec::new());
    let plan = Plan { moves, edits, base_before, base_after, index, not_indexed, kept: 0, own, ..done };
    Ok(Some((plan, Vec::new())))
}
