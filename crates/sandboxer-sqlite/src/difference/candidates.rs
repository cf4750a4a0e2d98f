//! The rows of one table that may differ, told by the pages that do.

use std::collections::BTreeSet;

use sandboxer_core::Result;

use super::{Dirty, Sides};
use crate::btree::{Cell, all_index_pages, cells, leaves, overflow_differs};
use crate::pages::{PageSet, Pages};
use crate::schema::Table;

/// The rowids of all rows that may differ; `None` where the trees cannot be read.
pub(super) fn candidates(
    sides: &Sides<'_>,
    dirty: &Dirty,
    old: &Table,
    new: &Table,
) -> Result<Option<Vec<i64>>> {
    let (Some(old_leaves), Some(new_leaves)) =
        (leaves(&sides.base_pages, old.root)?, leaves(&sides.clone_pages, new.root)?)
    else {
        return Ok(None);
    };
    let shared = shared(&old_leaves, &new_leaves, sides, dirty);
    let pages_of =
        |all: &[u32]| all.iter().copied().filter(|leaf| !shared.contains(*leaf)).collect::<Vec<_>>();
    let old_pages = read(&sides.base_pages, &pages_of(&old_leaves))?;
    let new_pages = read(&sides.clone_pages, &pages_of(&new_leaves))?;
    let (Some(old_cells), Some(new_cells)) =
        (all_cells(&old_pages, dirty.usable), all_cells(&new_pages, dirty.usable))
    else {
        return Ok(None);
    };
    let mut rowids = unequal(sides, dirty, &old_cells, &new_cells)?;
    if !dirty.overflow.is_empty() {
        let shared: Vec<u32> = new_leaves.into_iter().filter(|leaf| shared.contains(*leaf)).collect();
        match with_overflow(sides, dirty, &shared)? {
            Some(more) => rowids.extend(more),
            None => return Ok(None),
        }
    }
    Ok(Some(rowids.into_iter().collect()))
}

/// Whether the tree of a table WITHOUT ROWID is the same on both sides, page by page.
pub(super) fn is_untouched(sides: &Sides<'_>, dirty: &Dirty, old: &Table, new: &Table) -> Result<bool> {
    if old.root != new.root || !new.without_rowid || !dirty.overflow.is_empty() {
        return Ok(false);
    }
    let common = sides.base_pages.count;
    all_index_pages(&sides.clone_pages, new.root, |page| page <= common && !dirty.pages.contains(page))
}

/// The leaves that both trees have and that are the same: so are all their rows, but for what is in overflow pages.
fn shared(old: &[u32], new: &[u32], sides: &Sides<'_>, dirty: &Dirty) -> PageSet {
    let room = sides.base_pages.count.max(sides.clone_pages.count);
    let (mut in_old, mut shared) = (PageSet::with_room_for(room), PageSet::with_room_for(room));
    old.iter().for_each(|leaf| in_old.insert(*leaf));
    let is_shared = |leaf: &&u32| in_old.contains(**leaf) && !dirty.pages.contains(**leaf);
    new.iter().filter(is_shared).for_each(|leaf| shared.insert(*leaf));
    shared
}

fn read(pages: &Pages<'_>, numbers: &[u32]) -> Result<Vec<(u32, Vec<u8>)>> {
    numbers.iter().map(|number| Ok((*number, pages.page(*number)?))).collect()
}

fn all_cells(pages: &[(u32, Vec<u8>)], usable: usize) -> Option<Vec<Cell<'_>>> {
    let mut all = Vec::new();
    for (number, page) in pages {
        all.extend(cells(page, *number, usable)?);
    }
    // Leaves come in the order of their rows. If these do not, the file is not what it should be.
    all.is_sorted_by_key(|cell| cell.rowid).then_some(all)
}

/// The rows that only one side has, or that are not the same on both.
fn unequal(sides: &Sides<'_>, dirty: &Dirty, old: &[Cell<'_>], new: &[Cell<'_>]) -> Result<BTreeSet<i64>> {
    let mut rowids = BTreeSet::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let (a, b) = match (old.peek(), new.peek()) {
            (None, None) => return Ok(rowids),
            (Some(a), Some(b)) if a.rowid == b.rowid => (old.next(), new.next()),
            (Some(a), Some(b)) if a.rowid < b.rowid => (old.next(), None),
            (Some(_), None) => (old.next(), None),
            _ => (None, new.next()),
        };
        if let (Some(a), Some(b)) = (a, b)
            && a.bytes == b.bytes
            && !spilled(sides, dirty, b)?
        {
            continue;
        }
        rowids.extend(a.or(b).map(|cell| cell.rowid));
    }
}

fn spilled(sides: &Sides<'_>, dirty: &Dirty, cell: &Cell<'_>) -> Result<bool> {
    match cell.overflow {
        Some(overflow) if !dirty.overflow.is_empty() => {
            overflow_differs(&sides.clone_pages, overflow, &dirty.pages, dirty.usable)
        }
        _ => Ok(false),
    }
}

/// The rows on leaves that are the same, whose overflow pages are not.
fn with_overflow(sides: &Sides<'_>, dirty: &Dirty, shared: &[u32]) -> Result<Option<Vec<i64>>> {
    let mut rowids = Vec::new();
    let mut page = vec![0; sides.clone_pages.size];
    for leaf in shared {
        sides.clone_pages.read(*leaf, &mut page)?;
        let Some(cells) = cells(&page, *leaf, dirty.usable) else { return Ok(None) };
        for cell in cells.iter().filter(|cell| cell.overflow.is_some()) {
            if spilled(sides, dirty, cell)? {
                rowids.push(cell.rowid);
            }
        }
    }
    Ok(Some(rowids))
}
