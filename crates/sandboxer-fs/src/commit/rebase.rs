//! Onto what the original is now: what both sides changed is merged into the copy, or told.

use std::collections::BTreeSet;

use sandboxer_core::Result;
use sandboxer_core::model::{Conflict, RelPath};

use super::prepare::Prepare;
use super::resolve::{Resolved, clean_merge, resolve};
use super::settle;
use crate::diff::{Delta, differences};
use crate::manifest::Entry;

/// What became of the differences.
#[derive(Debug, Default)]
pub struct Rebased {
    /// Every path that differs, whatever became of it.
    pub differing: BTreeSet<RelPath>,
    /// Files that have the changes of both sides now.
    pub merged: Vec<RelPath>,
    /// What is still in conflict.
    pub conflicts: Vec<Conflict>,
    /// The bases of those, by which they stay that.
    pub bases: Vec<(RelPath, Option<Entry>)>,
}

/// Merges what moved in the original into the copy, as far as that goes without asking anybody.
pub fn rebase(job: &Prepare<'_>) -> Result<Rebased> {
    let deltas = differences(&job.comparison)?.deltas;
    let differing = deltas.iter().flat_map(paths_of).collect();
    let before = deltas.clone();
    let Resolved { deltas, conflicts, .. } = resolve(job, deltas)?;
    let clean: Vec<_> = deltas.iter().filter_map(clean_merge).collect();
    settle::mark(job, &clean)?;
    let merged = clean.into_iter().map(|file| file.path).collect();
    let in_conflict = |d: &&Delta| conflicts.iter().any(|c| paths_of(d).any(|path| path == c.path));
    let bases = before.iter().filter(in_conflict).flat_map(base_of).collect();
    Ok(Rebased { differing, merged, conflicts, bases })
}

fn paths_of(delta: &Delta) -> impl Iterator<Item = RelPath> + use<> {
    [Some(delta.entry.path.clone()), delta.entry.from.clone()].into_iter().flatten()
}

/// A rename has its base where it came from, and nothing where it went.
fn base_of(delta: &Delta) -> Vec<(RelPath, Option<Entry>)> {
    match &delta.entry.from {
        Some(from) => vec![(from.clone(), delta.base.clone()), (delta.entry.path.clone(), None)],
        None => vec![(delta.entry.path.clone(), delta.base.clone())],
    }
}
