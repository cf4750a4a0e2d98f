//! Which lines of two texts belong together.
//!
//! `imara-diff` compares well, but its time grows with the square of the input for two kinds of it: many changes between
//! unique lines (the histogram), and long runs of a few lines that repeat (its Myers fallback). Both come from agents and
//! from machines that write files. So it only ever sees pieces of bounded size here: a large input is first cut at
//! [anchors](super::anchors), and what has no anchors is worked through in windows. That keeps the cost proportional to the input.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, IndentHeuristic, IndentLevel, Interner, NoSliderHeuristic, Token};

use super::anchors::AnchorFinder;

/// The most lines of either side that are compared in one piece.
const PIECE_LINES: usize = 1024;
/// The same for a window: what comes in windows repeats itself, which is the expensive kind.
const WINDOW_LINES: usize = 512;
/// How much of a window is kept before the next one starts; the rest is look-ahead.
const KEEP_LINES: usize = WINDOW_LINES / 4 * 3;
/// How often pieces between anchors are searched for anchors again: enough for real files, and a limit for made-up ones.
const MAX_DEPTH: usize = 8;
/// How wide a tab is where the placement of a change goes by indentation; git's figure.
const TAB_WIDTH: u8 = 8;

/// A range of lines on either side: something to compare, or lines that replace one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// Where a change goes that could be placed in more than one way, for the lines around it repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// Where a person would expect it, going by indentation.
    Readable,
    /// As far down as it goes: where git has it when it merges.
    Last,
}

impl Span {
    fn is_small(&self) -> bool {
        self.old.len() <= PIECE_LINES && self.new.len() <= PIECE_LINES
    }

    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    fn one_sided(&self) -> bool {
        self.old.is_empty() || self.new.is_empty()
    }

    /// The beginning of this span, at most [`WINDOW_LINES`] of either side.
    fn window(&self) -> Span {
        let cut = |side: &Range<usize>| side.start..side.end.min(side.start + WINDOW_LINES);
        Span { old: cut(&self.old), new: cut(&self.new) }
    }
}

/// Two texts as numbered lines, and the changes that lead from one to the other, in order and never touching.
pub(crate) struct LineDiff<'a> {
    old: Vec<Token>,
    new: Vec<Token>,
    interner: Interner<&'a [u8]>,
    changes: Vec<Span>,
}

impl<'a> LineDiff<'a> {
    /// Compares two texts line by line; a line includes its newline.
    pub(super) fn compute(old: &'a [u8], new: &'a [u8]) -> Self {
        Self::placed(old, new, Placement::Readable)
    }

    /// The same for a merge, which has to put changes of two comparisons together and not to show one of them.
    pub(crate) fn for_merge(old: &'a [u8], new: &'a [u8]) -> Self {
        Self::placed(old, new, Placement::Last)
    }

    fn placed(old: &'a [u8], new: &'a [u8], placement: Placement) -> Self {
        // The crate's own constructor reserves by a guess from the first lines, which a hostile file makes gigabytes.
        let mut interner = Interner::new(0);
        let old = intern_lines(old, &mut interner);
        let new = intern_lines(new, &mut interner);
        let mut aligner = Aligner::new(&old, &new, &interner, placement);
        aligner.align(Span { old: 0..old.len(), new: 0..new.len() }, 0);
        let changes = aligner.changes;
        Self { old, new, interner, changes }
    }

    pub(crate) fn into_changes(self) -> Vec<Span> {
        self.changes
    }

    pub(super) fn changes(&self) -> &[Span] {
        &self.changes
    }

    pub(super) fn old_line_count(&self) -> usize {
        self.old.len()
    }

    pub(super) fn old_lines(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.old[range].iter().map(|token| self.interner[*token])
    }

    pub(super) fn new_lines(&self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.new[range].iter().map(|token| self.interner[*token])
    }
}

fn intern_lines<'a>(text: &'a [u8], interner: &mut Interner<&'a [u8]>) -> Vec<Token> {
    imara_diff::sources::byte_lines(text).map(|line| interner.intern(line)).collect()
}

/// Collects the changes of a comparison from left to right.
struct Aligner<'t, 'a> {
    old: &'t [Token],
    new: &'t [Token],
    interner: &'t Interner<&'a [u8]>,
    anchors: AnchorFinder,
    renumber: Renumber,
    placement: Placement,
    changes: Vec<Span>,
}

impl<'t, 'a> Aligner<'t, 'a> {
    fn new(
        old: &'t [Token],
        new: &'t [Token],
        interner: &'t Interner<&'a [u8]>,
        placement: Placement,
    ) -> Self {
        let distinct = interner.num_tokens() as usize;
        let (anchors, renumber) = (AnchorFinder::new(distinct), Renumber::new(distinct));
        Self { old, new, interner, anchors, renumber, placement, changes: Vec::new() }
    }

    fn align(&mut self, span: Span, depth: usize) {
        if span.one_sided() {
            return self.push(span);
        }
        if span.is_small() {
            let changes = self.compare(&span);
            return changes.into_iter().for_each(|change| self.push(change));
        }
        let anchors =
            if depth < MAX_DEPTH { self.anchors.find(self.old, self.new, &span) } else { Vec::new() };
        if anchors.is_empty() {
            return self.align_in_windows(span);
        }
        self.align_between(span, &anchors, depth + 1);
    }

    /// Aligns the gaps between anchors, which are equal lines themselves. No change could be placed across an anchor, for
    /// a change can only slide over lines that repeat.
    fn align_between(&mut self, span: Span, anchors: &[(usize, usize)], depth: usize) {
        let (mut old_at, mut new_at) = (span.old.start, span.new.start);
        for (old_anchor, new_anchor) in anchors.iter().copied() {
            self.align(Span { old: old_at..old_anchor, new: new_at..new_anchor }, depth);
            (old_at, new_at) = (old_anchor + 1, new_anchor + 1);
        }
        self.align(Span { old: old_at..span.old.end, new: new_at..span.new.end }, depth);
    }

    /// Works through a span piece by piece; each next piece starts where the last one found the sides to agree.
    fn align_in_windows(&mut self, mut rest: Span) {
        while !rest.one_sided() && !rest.is_small() {
            let window = rest.window();
            let changes = self.compare(&window);
            let (old_cut, new_cut) = cut_of(&window, &changes, &rest);
            for change in changes {
                let old = change.old.start.min(old_cut)..change.old.end.min(old_cut);
                let new = change.new.start.min(new_cut)..change.new.end.min(new_cut);
                self.push(Span { old, new });
            }
            rest = Span { old: old_cut..rest.old.end, new: new_cut..rest.new.end };
        }
        self.align(rest, MAX_DEPTH);
    }

    /// Compares a small span in one piece.
    fn compare(&mut self, span: &Span) -> Vec<Span> {
        let (old, new) = (&self.old[span.old.clone()], &self.new[span.new.clone()]);
        let Some(piece) = self.renumber.piece(old, new) else { return vec![span.clone()] };
        let mut diff = self.diff_of(&piece);
        self.place(&mut diff, &piece);
        let shift = |range: Range<u32>, by: usize| range.start as usize + by..range.end as usize + by;
        let placed = |change: imara_diff::Hunk| Span {
            old: shift(change.before, span.old.start),
            new: shift(change.after, span.new.start),
        };
        diff.hunks().map(placed).collect()
    }

    /// The histogram reads best, but where lines repeat it can take a long way round: then Myers' comparison is shown, if a
    /// third fewer lines are changed in it. A merge always takes the histogram, as git does.
    fn diff_of(&self, piece: &Piece) -> Diff {
        let compute = |algorithm| {
            let mut diff = Diff::default();
            diff.compute_with(algorithm, &piece.old, &piece.new, piece.lines.len() as u32);
            diff
        };
        let changed_lines = |diff: &Diff| diff.count_removals() + diff.count_additions();
        let readable = compute(Algorithm::Histogram);
        let is_replacement = readable.count_removals() > 1 && readable.count_additions() > 1;
        if self.placement == Placement::Last || !is_replacement {
            return readable;
        }
        let short = compute(Algorithm::Myers);
        if changed_lines(&short) * 3 <= changed_lines(&readable) * 2 { short } else { readable }
    }

    fn place(&self, diff: &mut Diff, piece: &Piece) {
        let indent = |token: Token| {
            let line = self.interner[piece.lines[token.0 as usize]];
            IndentLevel::for_ascii_line(line.iter().copied(), TAB_WIDTH)
        };
        match self.placement {
            Placement::Readable => {
                diff.postprocess_with(&piece.old, &piece.new, IndentHeuristic::new(indent));
            }
            Placement::Last => diff.postprocess_with(&piece.old, &piece.new, NoSliderHeuristic),
        }
    }

    /// Adds a change, as part of the one before it where they touch.
    fn push(&mut self, change: Span) {
        if change.is_empty() {
            return;
        }
        match self.changes.last_mut() {
            Some(last) if last.old.end == change.old.start && last.new.end == change.new.start => {
                last.old.end = change.old.end;
                last.new.end = change.new.end;
            }
            _ => self.changes.push(change),
        }
    }
}

/// Where the next window starts: after the last pair of equal lines that is far enough from the window's end. If that
/// is hardly any progress, then at the next such pair; and if there is none, past the lines of whichever side goes on
/// beyond the window.
fn cut_of(window: &Span, changes: &[Span], rest: &Span) -> (usize, usize) {
    let (old_limit, new_limit) = (window.old.start + KEEP_LINES, window.new.start + KEEP_LINES);
    let mut cut = (window.old.start, window.new.start);
    let is_far = |cut: (usize, usize)| cut.0 - window.old.start + cut.1 - window.new.start >= KEEP_LINES;
    for equal in equal_runs(window, changes) {
        let fitting =
            old_limit.saturating_sub(equal.old.start).min(new_limit.saturating_sub(equal.new.start));
        let taken = fitting.min(equal.old.len());
        if taken == 0 {
            return if is_far(cut) { cut } else { (equal.old.start, equal.new.start) };
        }
        cut = (equal.old.start + taken, equal.new.start + taken);
    }
    if is_far(cut) {
        return cut;
    }
    let skip = |window: &Range<usize>, rest: &Range<usize>, cut| {
        if window.end == rest.end { cut } else { window.end }
    };
    (skip(&window.old, &rest.old, cut.0), skip(&window.new, &rest.new, cut.1))
}

/// What lies between the changes of a window.
fn equal_runs(window: &Span, changes: &[Span]) -> impl Iterator<Item = Span> {
    let end = Span { old: window.old.end..window.old.end, new: window.new.end..window.new.end };
    let mut at = (window.old.start, window.new.start);
    let runs = changes.iter().cloned().chain([end]).map(move |change| {
        let run = Span { old: at.0..change.old.start, new: at.1..change.new.start };
        at = (change.old.end, change.new.end);
        run
    });
    runs.filter(|run| !run.is_empty())
}

/// Gives the lines of a piece small numbers, since `imara-diff` makes a table of all numbers for each comparison.
struct Renumber {
    numbers: Vec<u32>,
}

struct Piece {
    old: Vec<Token>,
    new: Vec<Token>,
    /// The line of each small number.
    lines: Vec<Token>,
}

const NO_NUMBER: u32 = u32::MAX;

impl Renumber {
    fn new(distinct: usize) -> Self {
        Self { numbers: vec![NO_NUMBER; distinct] }
    }

    /// The piece in small numbers; `None` where the sides have no line in common.
    fn piece(&mut self, old: &[Token], new: &[Token]) -> Option<Piece> {
        let mut lines = Vec::new();
        let old = self.renumbered(old, &mut lines);
        let old_distinct = lines.len() as u32;
        let new = self.renumbered(new, &mut lines);
        for line in &lines {
            self.numbers[line.0 as usize] = NO_NUMBER;
        }
        let in_common = new.iter().any(|token| token.0 < old_distinct);
        in_common.then_some(Piece { old, new, lines })
    }

    fn renumbered(&mut self, tokens: &[Token], lines: &mut Vec<Token>) -> Vec<Token> {
        let number_of = |token: &Token| {
            let number = &mut self.numbers[token.0 as usize];
            if *number == NO_NUMBER {
                *number = lines.len() as u32;
                lines.push(*token);
            }
            Token(*number)
        };
        tokens.iter().map(number_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Follows the changes and checks that everything between them is equal.
    fn rebuild(diff: &LineDiff<'_>) -> (Vec<u8>, Vec<u8>) {
        let (mut old, mut new, mut at) = (Vec::new(), Vec::new(), (0, 0));
        for change in diff.changes() {
            let equal = at.0..change.old.start;
            assert_eq!(equal.len(), change.new.start - at.1);
            assert!(diff.old_lines(equal.clone()).eq(diff.new_lines(at.1..change.new.start)));
            diff.old_lines(equal.start..change.old.end).for_each(|line| old.extend_from_slice(line));
            diff.new_lines(at.1..change.new.end).for_each(|line| new.extend_from_slice(line));
            at = (change.old.end, change.new.end);
        }
        let (old_rest, new_rest) = (at.0..diff.old.len(), at.1..diff.new.len());
        assert!(diff.old_lines(old_rest.clone()).eq(diff.new_lines(new_rest.clone())));
        diff.old_lines(old_rest).for_each(|line| old.extend_from_slice(line));
        diff.new_lines(new_rest).for_each(|line| new.extend_from_slice(line));
        (old, new)
    }

    fn check(old: &[u8], new: &[u8]) -> usize {
        let diff = LineDiff::compute(old, new);
        assert_eq!(rebuild(&diff), (old.to_vec(), new.to_vec()));
        let touching = |pair: &[Span]| pair[0].old.end == pair[1].old.start;
        assert!(!diff.changes().windows(2).any(touching), "changes touch");
        diff.changes().len()
    }

    fn text(lines: impl Iterator<Item = u64>) -> Vec<u8> {
        lines.flat_map(|n| format!("{n}\n").into_bytes()).collect()
    }

    /// A reproducible sequence without pattern.
    fn noise(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed), |n| {
            Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .map(|n| n >> 33)
    }

    #[test]
    fn equal_texts_have_no_changes() {
        assert_eq!(check(b"", b""), 0);
        assert_eq!(check(b"a\nb", b"a\nb"), 0);
        assert_eq!(check(b"a\nb", b"a\nb\n"), 1);
    }

    #[test]
    fn many_changes_between_unique_lines() {
        let old = text(0..100_000);
        let new = text((0..100_000).map(|n| if n % 10 == 5 { n + 1_000_000 } else { n }));
        assert_eq!(check(&old, &new), 10_000);
    }

    #[test]
    fn long_runs_of_few_lines() {
        let old = text((0..50_000).map(|_| 1));
        let new = text((0..60_000).map(|n| u64::from(n % 20 != 3)));
        assert!(check(&old, &new) <= 3_001);
        check(&text(noise(1).map(|n| n % 2).take(20_000)), &text(noise(2).map(|n| n % 2).take(9_000)));
        check(&text(noise(3).map(|n| n % 99).take(20_000)), &text(noise(4).map(|n| n % 99).take(20_000)));
    }

    #[test]
    fn sides_without_anything_in_common_in_reach() {
        let repeated = |n: u64| text((0..6_000).map(move |at| n + at % 3));
        let late = [repeated(50), repeated(0)].concat();
        assert_eq!(check(&repeated(0), &repeated(10)), 1);
        assert_eq!(check(&text([0, 1, 2].into_iter()), &late[..]), 2);
        check(&repeated(0), &late);
        check(&late, &repeated(0));
    }

    #[test]
    fn a_block_that_moved_is_found_again() {
        let (a, b) = (text(0..5_000), text(5_000..9_000));
        assert_eq!(check(&[&a[..], &b].concat(), &[&b[..], &a].concat()), 2);
    }

    #[test]
    fn a_chain_that_reveals_one_anchor_at_a_time_is_cut_off() {
        let old = text((0..6_000).flat_map(|n| [n, n + 2]));
        let new = text((0..6_000).flat_map(|n| [n, n + 2]).filter(|n| n % 7 != 0));
        check(&old, &new);
    }

    proptest! {
        #[test]
        fn small_texts(old in "[ab\n]{0,60}", new in "[ab\n]{0,60}") {
            check(old.as_bytes(), new.as_bytes());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn repetitive_texts_of_several_windows(
            kinds in 1..40u64, seed in any::<u64>(), lengths in (0..7_000usize, 0..7_000usize), keep in 2..100u64,
        ) {
            let old: Vec<u64> = noise(seed).map(|n| n % kinds).take(lengths.0).collect();
            let edits = noise(seed ^ 77).map(|n| n % keep == 0);
            let new = old.iter().copied().zip(edits).filter(|(_, cut)| !cut).map(|(line, _)| line);
            let new = new.chain(noise(seed ^ 99).map(|n| n % kinds).take(lengths.1));
            check(&text(old.iter().copied()), &text(new));
        }
    }
}
