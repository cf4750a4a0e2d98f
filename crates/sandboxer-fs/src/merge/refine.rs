//! Conflicts made small, then readable: only lines in which the sides differ stay in a conflict, and conflicts that
//! hardly anything separates become one again.

use std::ops::Range;

use super::Texts;
use super::lines::Lines;
use super::regions::{Kind, Region};
use crate::patch::Span;

/// Up to this many lines between two conflicts are shorter to read inside them; git's figure.
const SHORT_GAP: usize = 3;

/// What each side changed in the base.
pub(super) struct Changes<'c> {
    pub(super) ours: &'c [Span],
    pub(super) theirs: &'c [Span],
}

/// Compares the sides of every conflict and keeps what differs; where nothing does, it is none.
pub(super) fn split(
    regions: Vec<Region>,
    texts: &Texts<'_>,
    changes: &Changes<'_>,
    align: impl Fn(&[u8], &[u8]) -> Vec<Span>,
) -> Vec<Region> {
    let mut refined = Vec::with_capacity(regions.len());
    for region in regions {
        if region.kind != Kind::Conflict || region.ours.is_empty() || region.theirs.is_empty() {
            refined.push(region);
            continue;
        }
        let differing = align(texts.ours.slice(&region.ours), texts.theirs.slice(&region.theirs));
        if differing.is_empty() {
            refined.push(Region { kind: Kind::Same, ..region });
        } else {
            push_pieces(&region, &differing, changes, &mut refined);
        }
    }
    refined
}

/// The pieces of a conflict. Each line of the base goes to the first piece that it can belong to.
fn push_pieces(whole: &Region, differing: &[Span], changes: &Changes<'_>, into: &mut Vec<Region>) {
    let mut base_at = whole.base.start;
    for piece in differing {
        let ours = whole.ours.start + piece.old.start..whole.ours.start + piece.old.end;
        let theirs = whole.theirs.start + piece.new.start..whole.theirs.start + piece.new.end;
        let (left, right) = (in_base(changes.ours, &ours), in_base(changes.theirs, &theirs));
        let start = left.start.max(right.start).clamp(base_at, whole.base.end);
        let end = left.end.min(right.end).clamp(start, whole.base.end);
        base_at = end;
        into.push(Region { kind: Kind::Conflict, base: start..end, ours, theirs });
    }
}

/// What some lines of a side were in the base, with all that was deleted at their edges.
fn in_base(changes: &[Span], lines: &Range<usize>) -> Range<usize> {
    let (start, end) = (lines.start, lines.end);
    let is_before = |c: &Span| c.new.end < start || c.new.end == start && !c.new.is_empty();
    let first = changes.partition_point(is_before);
    let base_start = match changes.get(first) {
        Some(change) if change.new.start <= start => change.old.start,
        _ => after(changes[..first].last(), start),
    };
    let begins_within = |c: &Span| c.new.start < end || c.new.start == end && c.new.is_empty();
    let past = changes.partition_point(begins_within);
    base_start..after(changes[..past].last(), end)
}

/// The base's number of the line `at` of a side, or of the end of the change that it is in.
fn after(last_change: Option<&Span>, at: usize) -> usize {
    last_change.map_or(at, |change| change.old.end + at.saturating_sub(change.new.end))
}

/// Makes one of conflicts that follow each other closely: a few lines apart, or lines without a letter or digit.
pub(super) fn join(regions: Vec<Region>, ours: &Lines<'_>) -> Vec<Region> {
    let mut joined: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions {
        match joined.last_mut() {
            Some(last) if belong_together(last, &region, ours) => {
                last.base.end = region.base.end.max(last.base.end);
                last.ours.end = region.ours.end;
                last.theirs.end = region.theirs.end;
            }
            _ => joined.push(region),
        }
    }
    joined
}

fn belong_together(last: &Region, next: &Region, ours: &Lines<'_>) -> bool {
    let gap = last.ours.end..next.ours.start;
    last.kind == Kind::Conflict
        && next.kind == Kind::Conflict
        && (gap.len() <= SHORT_GAP || !ours.slice(&gap).iter().any(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(old: Range<usize>, new: Range<usize>) -> Span {
        Span { old, new }
    }

    fn conflict(at: Range<usize>) -> Region {
        Region { kind: Kind::Conflict, base: at.clone(), ours: at.clone(), theirs: at }
    }

    #[test]
    fn lines_find_their_way_back_to_the_base() {
        let changes = [span(2..4, 2..3), span(6..6, 5..8), span(9..12, 11..11)];
        assert_eq!(in_base(&changes, &(0..1)), 0..1);
        assert_eq!(in_base(&changes, &(2..3)), 2..4);
        assert_eq!(in_base(&changes, &(3..5)), 4..6);
        assert_eq!(in_base(&changes, &(5..8)), 6..6);
        assert_eq!(in_base(&changes, &(6..7)), 6..6);
        assert_eq!(in_base(&changes, &(11..11)), 9..12);
        assert_eq!(in_base(&changes, &(10..11)), 8..12);
        assert_eq!(in_base(&changes, &(11..12)), 9..13);
        assert_eq!(in_base(&[], &(3..4)), 3..4);
    }

    #[test]
    fn pieces_share_the_base_out_among_them() {
        let whole = Region { kind: Kind::Conflict, base: 0..4, ours: 0..3, theirs: 0..3 };
        let changes = Changes { ours: &[span(0..4, 0..3)], theirs: &[span(0..4, 0..3)] };
        let mut pieces = Vec::new();
        push_pieces(&whole, &[span(0..1, 0..1), span(2..3, 2..3)], &changes, &mut pieces);
        let bases: Vec<_> = pieces.iter().map(|piece| piece.base.clone()).collect();
        assert_eq!(bases, [0..4, 4..4]);
    }

    #[test]
    fn conflicts_a_few_lines_apart_are_one() {
        let lines = Lines::new(b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        assert_eq!(join(vec![conflict(0..1), conflict(4..5)], &lines), [conflict(0..5)]);
        assert_eq!(join(vec![conflict(0..1), conflict(5..6)], &lines).len(), 2);
        let between = Region { kind: Kind::Ours, ..conflict(2..3) };
        assert_eq!(join(vec![conflict(0..1), between, conflict(4..5)], &lines).len(), 3);
    }

    #[test]
    fn lines_without_letters_do_not_keep_conflicts_apart() {
        let lines = Lines::new(b"0\n}\n\n\n  }\n)\n6\n");
        assert_eq!(join(vec![conflict(0..1), conflict(6..7)], &lines), [conflict(0..7)]);
    }
}
