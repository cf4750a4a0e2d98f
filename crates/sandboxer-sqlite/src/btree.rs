//! As much of SQLite's file format as it takes to find rows that differ: the trees of tables, and the cells on their leaves.
//!
//! Everything here answers `None` where the pages are not what they should be; the rows are then compared without it.

use sandboxer_core::Result;

use crate::pages::{PageSet, Pages};

const INTERIOR: u8 = 5;
const LEAF: u8 = 13;
const INDEX_INTERIOR: u8 = 2;
const INDEX_LEAF: u8 = 10;
const DEEPEST: usize = 20;

/// One row on a leaf.
pub(crate) struct Cell<'p> {
    pub rowid: i64,
    /// Everything of it that is on the leaf, the number of the first overflow page included.
    pub bytes: &'p [u8],
    /// The first overflow page and how many bytes lie there.
    pub overflow: Option<(u32, u64)>,
}

/// The leaves of the tree that begins at `root`, in the order of their rows.
pub(crate) fn leaves(pages: &Pages<'_>, root: u32) -> Result<Option<Vec<u32>>> {
    let mut level = vec![root];
    for _ in 0..DEEPEST {
        let Some(first) = level.first().copied() else { return Ok(None) };
        if level.len() > pages.count as usize || level.iter().any(|page| *page == 0 || *page > pages.count) {
            return Ok(None);
        }
        match page_type(&pages.page(first)?, first) {
            Some(LEAF) => return Ok(Some(level)),
            Some(INTERIOR) => {}
            _ => return Ok(None),
        }
        let mut below = Vec::new();
        for number in &level {
            let Some(children) = children(&pages.page(*number)?, *number, INTERIOR) else { return Ok(None) };
            below.extend(children);
        }
        level = below;
    }
    Ok(None)
}

/// Whether all pages of the tree of an index, or of a table WITHOUT ROWID, are as `is_fine` wants them.
pub(crate) fn all_index_pages(pages: &Pages<'_>, root: u32, is_fine: impl Fn(u32) -> bool) -> Result<bool> {
    let mut level = vec![root];
    for _ in 0..DEEPEST {
        if level.is_empty()
            || level.len() > pages.count as usize
            || !level.iter().all(|page| *page > 0 && is_fine(*page))
        {
            return Ok(false);
        }
        match page_type(&pages.page(level[0])?, level[0]) {
            Some(INDEX_LEAF) => return Ok(true),
            Some(INDEX_INTERIOR) => {}
            _ => return Ok(false),
        }
        let mut below = Vec::new();
        for number in &level {
            let Some(children) = children(&pages.page(*number)?, *number, INDEX_INTERIOR) else {
                return Ok(false);
            };
            below.extend(children);
        }
        level = below;
    }
    Ok(false)
}

/// Where the header of a page is: the first has that of the file before it.
fn header_at(number: u32) -> usize {
    if number == 1 { 100 } else { 0 }
}

fn page_type(page: &[u8], number: u32) -> Option<u8> {
    page.get(header_at(number)).copied()
}

fn children(page: &[u8], number: u32, kind: u8) -> Option<Vec<u32>> {
    let header = header_at(number);
    if page.get(header) != Some(&kind) {
        return None;
    }
    let count = usize::from(u16_at(page, header + 3)?);
    let mut children = Vec::with_capacity(count + 1);
    for index in 0..count {
        children.push(u32_at(page, usize::from(u16_at(page, header + 12 + 2 * index)?))?);
    }
    children.push(u32_at(page, header + 8)?);
    Some(children)
}

/// The rows on a leaf, in order. `usable` is the size of a page without what is reserved at its end.
pub(crate) fn cells(page: &[u8], number: u32, usable: usize) -> Option<Vec<Cell<'_>>> {
    let header = header_at(number);
    if page.get(header) != Some(&LEAF) {
        return None;
    }
    let count = usize::from(u16_at(page, header + 3)?);
    (0..count).map(|index| cell(page, usize::from(u16_at(page, header + 8 + 2 * index)?), usable)).collect()
}

fn cell(page: &[u8], at: usize, usable: usize) -> Option<Cell<'_>> {
    let (payload, used) = varint(page.get(at..)?)?;
    let (rowid, more) = varint(page.get(at + used..)?)?;
    let head = used + more;
    let local = local_size(payload, usable);
    let spills = local < payload;
    let length = head + local as usize + if spills { 4 } else { 0 };
    let bytes = page.get(at..at + length)?;
    let overflow = if spills { Some((u32_at(bytes, length - 4)?, payload - local)) } else { None };
    Some(Cell { rowid: rowid as i64, bytes, overflow })
}

/// How many bytes of a payload are on the leaf itself.
fn local_size(payload: u64, usable: usize) -> u64 {
    let usable = usable as u64;
    let most = usable - 35;
    if payload <= most {
        return payload;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let kept = least + (payload - least) % (usable - 4);
    if kept <= most { kept } else { least }
}

/// Whether one of the overflow pages of a row differs. The row's cell is the same on both sides, so the chain is, up to there.
pub(crate) fn overflow_differs(
    pages: &Pages<'_>,
    overflow: (u32, u64),
    dirty: &PageSet,
    usable: usize,
) -> Result<bool> {
    let (mut page, bytes) = overflow;
    for _ in 0..bytes.div_ceil(usable as u64 - 4) {
        if page == 0 || page > pages.count || dirty.contains(page) {
            return Ok(true);
        }
        page = u32_at(&pages.page(page)?, 0).unwrap_or_default();
    }
    Ok(false)
}

/// The pages that list what is free.
pub(crate) fn free_lists(pages: &Pages<'_>) -> Result<Vec<u32>> {
    let mut lists = Vec::new();
    let mut next = u32_at(&pages.page(1)?, 32).unwrap_or_default();
    while next != 0 && next <= pages.count && lists.len() < pages.count as usize {
        lists.push(next);
        next = u32_at(&pages.page(next)?, 0).unwrap_or_default();
    }
    Ok(lists)
}

/// The pages that differ and may be overflow pages on both sides: their first word is the number of another page, or zero.
pub(crate) fn maybe_overflow(base: &Pages<'_>, clone: &Pages<'_>, dirty: &PageSet) -> Result<PageSet> {
    let mut suspects = PageSet::with_room_for(base.count.min(clone.count));
    for number in dirty.iter().filter(|number| *number > 1) {
        let looks = |pages: &Pages<'_>| -> Result<bool> {
            Ok(u32_at(&pages.page(number)?, 0).is_some_and(|next| next <= pages.count))
        };
        if looks(base)? && looks(clone)? {
            suspects.insert(number);
        }
    }
    if !suspects.is_empty() {
        for list in [free_lists(base)?, free_lists(clone)?].concat() {
            suspects.remove(list);
        }
    }
    Ok(suspects)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of one to nine bytes, and how many.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        if index == 8 {
            return Some((value << 8 | u64::from(*byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read() {
        assert_eq!(varint(&[0x7f]), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80]), None);
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn a_page_that_is_none_of_a_table_has_no_rows() {
        assert!(cells(&[0; 512], 2, 512).is_none());
        assert!(children(&[LEAF; 512], 2, INTERIOR).is_none());
        let mut page = [0xff_u8; 512];
        page[0] = LEAF;
        assert!(cells(&page, 2, 512).is_none());
    }
}
