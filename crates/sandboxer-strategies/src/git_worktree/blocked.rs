//! New paths in the place of something that only git knows.
//!
//! A file cannot be where a directory is, nor below a file. The engine sees to that as far as files are there; but git also tracks what is not: files outside a sparse
//! checkout, submodules that nobody fetched, what was staged and deleted. To put a path there would drop all that without a word.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use sandboxer_core::Result;
use sandboxer_core::model::{Conflict, DiffEntry, RelPath};
use sandboxer_git::index;
use sandboxer_git::objects;
use sandboxer_git::oid::Oid;

use super::changes::is_kept;
use super::knowledge::{Facts, Memory, is_tree};

/// New paths, each with what it would take the place of.
pub struct Blocked(BTreeMap<RelPath, RelPath>);

impl Blocked {
    /// Of the new paths among `entries`, those that `tip` has something else in the place of, or the user's index, where that counts.
    pub fn of(
        memory: &Memory,
        tip: Option<&Oid>,
        facts: &Facts,
        index_counts: bool,
        entries: &[DiffEntry],
    ) -> Result<Self> {
        let gone: BTreeSet<&RelPath> = entries.iter().flat_map(goes).collect();
        let puts = entries.iter().filter(|entry| is_kept(&entry.new)).map(|entry| &entry.path);
        let (mut blocked, puts) = (BTreeMap::new(), puts.collect::<Vec<_>>());
        if let Some(tip) = tip {
            let is_new = |path: &&&RelPath| facts.tip.get(**path).is_none_or(is_tree);
            let new: Vec<&RelPath> = puts.iter().filter(is_new).copied().collect();
            find(&new, &tracked_around(memory, tip, facts, &new)?, &gone, &mut blocked);
        }
        let new: Vec<&RelPath> = puts.into_iter().filter(|path| !facts.index.contains_key(path)).collect();
        if index_counts && !new.is_empty() {
            find(&new, &index::names(&memory.spec.repository)?, &gone, &mut blocked);
        }
        Ok(Self(blocked))
    }

    /// The conflict at an entry, if it is one of them.
    pub fn conflict(&self, entry: &DiffEntry) -> Option<Conflict> {
        let by = self.0.get(&entry.path)?;
        let reason =
            format!("would take the place of {by}, which git tracks and which is not there to be looked at");
        Some(Conflict::new(entry.path.clone(), reason))
    }
}

/// The files that a difference removes.
fn goes(entry: &DiffEntry) -> impl Iterator<Item = &RelPath> {
    let own = (is_kept(&entry.old) && !is_kept(&entry.new) && entry.from.is_none()).then_some(&entry.path);
    entry.from.iter().chain(own)
}

/// What a commit has below and above the paths.
fn tracked_around(
    memory: &Memory,
    tip: &Oid,
    facts: &Facts,
    paths: &[&RelPath],
) -> Result<BTreeSet<RelPath>> {
    let above: BTreeSet<RelPath> =
        paths.iter().flat_map(|path| std::iter::successors(path.parent(), RelPath::parent)).collect();
    let above: Vec<RelPath> = above.into_iter().collect();
    let found = objects::tree_entries(&memory.ledger, tip, &above)?;
    let mut tracked: BTreeSet<RelPath> =
        found.into_iter().filter(|(_, entry)| !is_tree(entry)).map(|(path, _)| path).collect();
    for path in paths.iter().filter(|path| facts.tip.get(**path).is_some_and(is_tree)) {
        tracked.extend(objects::files_below(&memory.ledger, tip, path)?);
    }
    Ok(tracked)
}

fn find(
    paths: &[&RelPath],
    tracked: &BTreeSet<RelPath>,
    gone: &BTreeSet<&RelPath>,
    blocked: &mut BTreeMap<RelPath, RelPath>,
) {
    for path in paths {
        let stays = |other: &&RelPath| !gone.contains(*other);
        let from = (Bound::Excluded((*path).clone()), Bound::Unbounded);
        // Between a directory and what it holds lie only names that begin as its own does.
        let beside = tracked.range(from).take_while(|other| other.as_bytes().starts_with(path.as_bytes()));
        let below = beside.filter(|other| other.is_within(path)).find(stays);
        let above = std::iter::successors(path.parent(), RelPath::parent);
        let above = above.filter_map(|dir| tracked.get(&dir)).find(stays);
        if let Some(by) = below.or(above) {
            blocked.entry((*path).clone()).or_insert_with(|| by.clone());
        }
    }
}
