//! Directories that are gone from the copy, but hold what a difference does not show: they stay where they are.
//!
//! Whoever deletes a directory in a sandbox deletes what is shown of it. A directory that had to go as a whole could never go, as what is hidden in it
//! is not the sandbox's to remove.

use std::collections::BTreeSet;

use sandboxer_core::Result;
use sandboxer_core::model::{DiffKind, NodeType, RelPath};

use super::{Comparison, Delta};
use crate::list;

/// Takes their deletions out of `deltas`, which are sorted by path.
pub fn take(comparison: &Comparison<'_>, deltas: &mut Vec<Delta>) -> Result<Vec<RelPath>> {
    if !comparison.filter.is_screened() {
        return Ok(Vec::new());
    }
    let is_gone = |delta: &&Delta| delta.entry.kind == DiffKind::Deleted;
    let going: BTreeSet<&RelPath> = deltas.iter().filter(is_gone).map(|d| &d.entry.path).collect();
    let mut staying = BTreeSet::new();
    // What is below a directory comes after it, and has to be decided first.
    for delta in deltas.iter().rev().filter(is_gone).filter(|d| is_directory(d)) {
        if stays(comparison, &delta.entry.path, &going, &staying)? {
            staying.insert(delta.entry.path.clone());
        }
    }
    deltas.retain(|delta| !staying.contains(&delta.entry.path));
    Ok(staying.into_iter().collect())
}

fn is_directory(delta: &Delta) -> bool {
    delta.entry.old.as_ref().is_some_and(|node| node.node_type == NodeType::Directory)
}

/// Whether something is left in the directory, and all of it is hidden or stays itself.
fn stays(
    comparison: &Comparison<'_>,
    dir: &RelPath,
    going: &BTreeSet<&RelPath>,
    staying: &BTreeSet<RelPath>,
) -> Result<bool> {
    let Ok(open) = comparison.original.open_dir(dir) else { return Ok(false) };
    let mut is_left = false;
    for listed in list::names_and_types(&open)? {
        let path = dir.join(&listed.name);
        if going.contains(&path) && !staying.contains(&path) {
            continue;
        }
        let is_dir = || comparison.original.stamp(&path).ok().flatten().is_some_and(|s| s.is_dir());
        if !staying.contains(&path) && !comparison.filter.hides(&path, is_dir()) {
            return Ok(false);
        }
        is_left = true;
    }
    Ok(is_left)
}
