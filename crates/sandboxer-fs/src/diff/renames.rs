//! Pairing of what went with what came.
//!
//! A moved entry keeps its inode, which its birth time makes certain; that finds moves at no cost, edited ones included. What
//! was copied and removed has the same content under another inode, and is paired by its hash.

use std::collections::HashMap;

use sandboxer_core::model::{DiffKind, NodeType};

use super::Delta;

/// Replaces each pair of a deletion and a creation by one rename. The order of the rest stays.
pub fn pair(deltas: Vec<Delta>) -> Vec<Delta> {
    let pairs = find_pairs(&deltas);
    if pairs.is_empty() {
        return deltas;
    }
    let mut slots: Vec<Option<Delta>> = deltas.into_iter().map(Some).collect();
    for (gone, came) in pairs {
        let (Some(old), Some(new)) = (slots[gone].take(), slots[came].as_mut()) else { continue };
        new.entry.kind = DiffKind::Renamed;
        new.entry.from = Some(old.entry.path);
        new.entry.old = old.entry.old;
        new.entry.moved |= old.entry.moved;
        new.base = old.base;
    }
    slots.into_iter().flatten().collect()
}

fn find_pairs(deltas: &[Delta]) -> Vec<(usize, usize)> {
    let mut by_inode = HashMap::new();
    let mut by_content = HashMap::new();
    for (at, delta) in deltas.iter().enumerate().filter(|(_, d)| d.entry.kind == DiffKind::Deleted) {
        if let Some(copy) = delta.base.as_ref().and_then(|b| b.copy) {
            by_inode.entry((copy.ino, copy.btime, copy.node_type())).or_insert_with(Vec::new).push(at);
        }
        if let Some(key) = delta.entry.old.as_ref().and_then(content_key) {
            by_content.entry(key).or_insert_with(Vec::new).push(at);
        }
    }
    let mut taken = std::collections::HashSet::new();
    let mut pairs = Vec::new();
    let created = || deltas.iter().enumerate().filter(|(_, d)| d.entry.kind == DiffKind::Created);
    let mut settle = |at, found: Option<&Vec<usize>>| {
        let free = found.into_iter().flatten().find(|gone| !taken.contains(*gone)).copied();
        if let Some(gone) = free {
            taken.insert(gone);
            pairs.push((gone, at));
        }
        free.is_some()
    };
    let mut left = Vec::new();
    for (at, delta) in created() {
        let stamp = delta.now.as_ref().map(|s| s.stamp);
        let key = stamp.map(|s| (s.ino, s.btime, s.node_type()));
        if !settle(at, key.and_then(|k| by_inode.get(&k))) {
            left.push(at);
        }
    }
    for at in left {
        let key = deltas[at].entry.new.as_ref().and_then(content_key);
        settle(at, key.and_then(|k| by_content.get(&k)));
    }
    pairs
}

fn content_key(node: &sandboxer_core::model::Node) -> Option<String> {
    (node.node_type == NodeType::File && node.size > 0).then(|| node.digest.clone()).flatten()
}
