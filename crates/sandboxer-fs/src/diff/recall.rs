//! Where the original has moved on and has a history of its own, that history knows what the sandbox was made from.
//!
//! Without it a difference would be one against what the original has now, and take back what was done there.

use sandboxer_core::Result;
use sandboxer_core::model::{DiffEntry, DiffKind, NodeType, RelPath};

use super::{Comparison, original_moved};
use crate::commit::{LABELS, LARGEST, read_file};
use crate::hash::ContentHash;
use crate::manifest::Entry;
use crate::merge;
use crate::patch;
use crate::stamp::Stamp;

/// The base at `path` with its content, where the original has moved and its history has what can be the base; else as it is.
pub fn recall(
    comparison: &Comparison<'_>,
    path: &RelPath,
    base: Option<Entry>,
    buffer: &mut Vec<u8>,
) -> Result<(Option<Entry>, Option<Vec<u8>>)> {
    let (Some(history), Some(entry)) = (comparison.history, &base) else { return Ok((base, None)) };
    let Some(stamp) = entry.base.filter(Stamp::is_file) else { return Ok((base, None)) };
    if original_moved(comparison.original, path, Some(entry), buffer)?.is_none() {
        return Ok((base, None));
    }
    let Some(content) = history.base(path)? else { return Ok((base, None)) };
    let (hash, size) = (ContentHash::of(&content), content.len() as u64);
    let can_be = match entry.hash {
        Some(known) => known == hash,
        None => !stamp.is_known() || stamp.size == size,
    };
    if !can_be {
        return Ok((base, None));
    }
    history.keep(hash, &content)?;
    let entry = Entry { base: Some(Stamp { size, ..stamp }), hash: Some(hash), ..entry.clone() };
    Ok((Some(entry), Some(content)))
}

/// Whether a commit of `entry` goes together with what the original has now, unasked.
pub fn merges(comparison: &Comparison<'_>, entry: &DiffEntry, base: Option<&[u8]>) -> Result<bool> {
    let (Some(history), Some(base)) = (comparison.history, base) else { return Ok(false) };
    let is_text = entry.new.as_ref().is_some_and(|n| n.node_type == NodeType::File && n.size <= LARGEST);
    if !is_text || entry.binary || !matches!(entry.kind, DiffKind::Modified | DiffKind::Metadata) {
        return Ok(false);
    }
    let is_small = |stamp: Stamp| stamp.is_file() && stamp.size <= LARGEST;
    if !comparison.original.stamp(&entry.path)?.is_some_and(is_small) {
        return Ok(false);
    }
    if history.in_the_way(std::slice::from_ref(entry))?.iter().any(Option::is_some) {
        return Ok(false);
    }
    let read = |root| read_file(root, &entry.path).ok().flatten().map(|(content, _)| content);
    let (Some(ours), Some(theirs)) = (read(comparison.original), read(comparison.copy)) else {
        return Ok(false);
    };
    let is_binary = [base, &ours, &theirs].iter().any(|text| patch::is_binary(text));
    Ok(!is_binary && merge::merge(base, &ours, &theirs, &LABELS).conflicts.is_empty())
}
