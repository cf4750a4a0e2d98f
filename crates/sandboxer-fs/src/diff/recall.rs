//! Where the original has moved on and has a history of its own, that history knows what the sandbox was made from.
//!
//! Without it a difference would be one against what the original has now, and take back what was done there.

use sandboxer_core::Result;
use sandboxer_core::model::{DiffEntry, DiffKind, NodeType, RelPath};

use super::{Comparison, Delta, original_moved};
use crate::commit::{LABELS, LARGEST, read_file};
use crate::hash::ContentHash;
use crate::manifest::Entry;
use crate::merge;
use crate::patch;
use crate::space::History;
use crate::stamp::Stamp;

/// The base at `path` with its content, where the original has moved and its history has what can be the base; else as it is.
pub fn recall(
    comparison: &Comparison<'_>,
    path: &RelPath,
    base: Option<Entry>,
    buffer: &mut Vec<u8>,
) -> Result<Option<Entry>> {
    let (Some(history), Some(entry)) = (comparison.history, &base) else { return Ok(base) };
    let Some(stamp) = entry.base.filter(Stamp::is_file) else { return Ok(base) };
    if original_moved(comparison.original, path, Some(entry), buffer)?.is_none() {
        return Ok(base);
    }
    // Of what is gone, only the sandbox's own version is left to tell what it was: too little to say that it is unchanged.
    if !stamp.is_known() && !comparison.original.stamp(path)?.is_some_and(|now| now.is_file()) {
        return Ok(base);
    }
    let Some(content) = history.base(path)? else { return Ok(base) };
    let (hash, size) = (ContentHash::of(&content), content.len() as u64);
    let can_be = match entry.hash {
        Some(known) => known == hash,
        None => !stamp.is_known() || stamp.size == size,
    };
    if !can_be {
        return Ok(base);
    }
    history.keep(hash, &content)?;
    Ok(Some(Entry { base: Some(Stamp { size, ..stamp }), hash: Some(hash), ..entry.clone() }))
}

/// Tells which of the deltas that the original has moved under go together with what it has now, unasked.
pub fn settle_moved(comparison: &Comparison<'_>, deltas: &mut [Delta]) -> Result<()> {
    let Some(history) = comparison.history else { return Ok(()) };
    let asked: Vec<usize> = (0..deltas.len()).filter(|at| may_merge(&deltas[*at])).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let entries: Vec<DiffEntry> = asked.iter().map(|at| deltas[*at].entry.clone()).collect();
    for (at, way) in asked.into_iter().zip(history.in_the_way(&entries)?) {
        let delta = &mut deltas[at];
        delta.entry.moved = way.is_some() || !merges(comparison, history, delta)?;
    }
    Ok(())
}

fn may_merge(delta: &Delta) -> bool {
    let entry = &delta.entry;
    let is_text = entry.new.as_ref().is_some_and(|n| n.node_type == NodeType::File && n.size <= LARGEST);
    let is_change = matches!(entry.kind, DiffKind::Modified | DiffKind::Metadata);
    entry.moved && is_text && is_change && !entry.binary
}

/// Whether both sides' changes since the base, where that is known, can be made.
fn merges(comparison: &Comparison<'_>, history: &dyn History, delta: &Delta) -> Result<bool> {
    let path = &delta.entry.path;
    let is_small = |stamp: Stamp| stamp.is_file() && stamp.size <= LARGEST;
    if !comparison.original.stamp(path)?.is_some_and(is_small) {
        return Ok(false);
    }
    let known = delta.base.as_ref().and_then(|base| base.hash);
    let base = history.base(path)?.filter(|content| known == Some(ContentHash::of(content)));
    let read = |root| read_file(root, path).ok().flatten().map(|(content, _)| content);
    let (Some(base), Some(ours), Some(theirs)) = (base, read(comparison.original), read(comparison.copy))
    else {
        return Ok(false);
    };
    let is_binary = [&base, &ours, &theirs].iter().any(|text| patch::is_binary(text));
    Ok(!is_binary && merge::merge(&base, &ours, &theirs, &LABELS).conflicts.is_empty())
}
