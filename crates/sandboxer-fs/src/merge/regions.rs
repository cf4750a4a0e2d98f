//! Where the sides changed the base, and whose change it is.
//!
//! Changes of either side that overlap or merely touch in the base belong to one region, for which of two adjacent edits
//! comes first is not for us to guess. Between two regions there is always at least one line that nobody changed.

use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;

use super::Texts;
use crate::patch::Span;

/// What becomes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only our side changed it.
    Ours,
    /// Only their side changed it.
    Theirs,
    /// Both came to the same text, by different changes.
    Same,
    /// Both changed it, each in its own way.
    Conflict,
}

/// Lines that were changed, as they are in each of the three texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) kind: Kind,
    pub(super) base: Range<usize>,
    pub(super) ours: Range<usize>,
    pub(super) theirs: Range<usize>,
}

/// The regions from top to bottom. What both sides changed in the same way is not among them: it stands in our text.
pub(super) fn find(texts: &Texts<'_>, ours: &[Span], theirs: &[Span]) -> Vec<Region> {
    let (mut ours, mut theirs) = (Side::new(ours), Side::new(theirs));
    let mut found = Vec::new();
    while let Some(start) = first(ours.next_start(), theirs.next_start()) {
        let region = next_region(start, &mut ours, &mut theirs);
        if region.kind != Kind::Conflict || !is_identical(&region, texts, &ours, &theirs) {
            found.push(region);
        }
    }
    found
}

fn first(left: Option<usize>, right: Option<usize>) -> Option<usize> {
    left.into_iter().chain(right).min()
}

/// Takes every change that belongs to the region beginning at `start` of the base.
fn next_region(start: usize, ours: &mut Side<'_>, theirs: &mut Side<'_>) -> Region {
    let (ours_start, theirs_start) = (ours.begin(start), theirs.begin(start));
    let mut end = start;
    while ours.take_touching(&mut end) || theirs.take_touching(&mut end) {}
    let kind = match (ours.taken, theirs.taken) {
        (_, 0) => Kind::Ours,
        (0, _) => Kind::Theirs,
        _ => Kind::Conflict,
    };
    Region {
        kind,
        base: start..end,
        ours: ours_start..ours.line_of(end),
        theirs: theirs_start..theirs.line_of(end),
    }
}

/// Whether either side made one change, and the same one.
fn is_identical(region: &Region, texts: &Texts<'_>, ours: &Side<'_>, theirs: &Side<'_>) -> bool {
    let covers = |side: &Side<'_>| side.taken == 1 && side.last_taken == region.base;
    covers(ours) && covers(theirs) && texts.ours.slice(&region.ours) == texts.theirs.slice(&region.theirs)
}

/// The changes of one side that are still to come, and how base lines after those that were taken are numbered there.
struct Side<'c> {
    rest: Peekable<Iter<'c, Span>>,
    /// After the last change: this line of the base…
    base_at: usize,
    /// …is this line here.
    own_at: usize,
    /// How many changes belong to the present region.
    taken: usize,
    /// The base's lines of the last of them.
    last_taken: Range<usize>,
}

impl<'c> Side<'c> {
    fn new(changes: &'c [Span]) -> Self {
        Self { rest: changes.iter().peekable(), base_at: 0, own_at: 0, taken: 0, last_taken: 0..0 }
    }

    fn next_start(&mut self) -> Option<usize> {
        self.rest.peek().map(|change| change.old.start)
    }

    /// Begins a region at a line of the base; that line's number here.
    fn begin(&mut self, base: usize) -> usize {
        self.taken = 0;
        self.line_of(base)
    }

    /// The number here of a line of the base that no change lies before, except those taken.
    fn line_of(&self, base: usize) -> usize {
        base - self.base_at + self.own_at
    }

    /// Takes the next change if it starts at or before `end`, which it then moves.
    fn take_touching(&mut self, end: &mut usize) -> bool {
        let Some(change) = self.rest.next_if(|change| change.old.start <= *end) else { return false };
        *end = change.old.end.max(*end);
        (self.base_at, self.own_at) = (change.old.end, change.new.end);
        self.last_taken = change.old.clone();
        self.taken += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(old: Range<usize>, new: Range<usize>) -> Span {
        Span { old, new }
    }

    fn found(ours: &[Span], theirs: &[Span]) -> Vec<Region> {
        let base: Vec<u8> = (0..20u8).flat_map(|n| [b'a' + n, b'\n']).collect();
        let ours_text: Vec<u8> = (0..40).flat_map(|_| *b"o\n").collect();
        let theirs_text: Vec<u8> = (0..40).flat_map(|_| *b"t\n").collect();
        find(&Texts::new(&base, &ours_text, &theirs_text), ours, theirs)
    }

    #[test]
    fn lines_of_the_other_side_are_counted_past_its_own_changes() {
        let regions = found(&[span(0..0, 0..3)], &[span(5..6, 5..5), span(9..9, 8..9)]);
        let theirs = Kind::Theirs;
        assert_eq!(
            regions,
            [
                Region { kind: Kind::Ours, base: 0..0, ours: 0..3, theirs: 0..0 },
                Region { kind: theirs, base: 5..6, ours: 8..9, theirs: 5..5 },
                Region { kind: theirs, base: 9..9, ours: 12..12, theirs: 8..9 },
            ]
        );
    }

    #[test]
    fn touching_changes_chain_into_one_conflict() {
        let regions = found(&[span(2..4, 2..4), span(6..8, 6..7)], &[span(4..6, 4..9)]);
        assert_eq!(regions, [Region { kind: Kind::Conflict, base: 2..8, ours: 2..7, theirs: 2..11 }]);
    }

    #[test]
    fn one_line_between_keeps_changes_apart() {
        let kinds = |regions: Vec<Region>| regions.into_iter().map(|r| r.kind).collect::<Vec<_>>();
        assert_eq!(kinds(found(&[span(2..4, 2..4)], &[span(5..6, 5..6)])), [Kind::Ours, Kind::Theirs]);
        assert_eq!(kinds(found(&[span(2..4, 2..4)], &[span(4..4, 4..5)])), [Kind::Conflict]);
    }

    #[test]
    fn the_same_deletion_is_no_region() {
        assert_eq!(found(&[span(2..4, 2..2)], &[span(2..4, 2..2)]), []);
        assert_eq!(found(&[span(2..4, 2..2)], &[span(2..5, 2..2)]).len(), 1);
    }
}
