//! Fixed points for an alignment: lines that occur exactly once on either side, as many of them as stand in the same
//! order on both (the idea of the patience diff). Between two of them the two sides can be compared on their own.

use imara_diff::Token;

use super::align::Span;

/// Finds anchors; keeps its tables, one slot for each distinct line, from one search to the next.
pub(super) struct AnchorFinder {
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    old: u32,
    new: u32,
    new_at: u32,
}

impl Seen {
    fn is_unique(self) -> bool {
        self.old == 1 && self.new == 1
    }
}

impl AnchorFinder {
    pub(super) fn new(distinct: usize) -> Self {
        Self { seen: vec![Seen::default(); distinct] }
    }

    /// The anchors within `span` as pairs of line numbers, rising on both sides.
    pub(super) fn find(&mut self, old: &[Token], new: &[Token], span: &Span) -> Vec<(usize, usize)> {
        self.count(old, new, span);
        let pairs = self.unique_pairs(old, span);
        self.forget(old, new, span);
        longest_rising(&pairs)
    }

    fn count(&mut self, old: &[Token], new: &[Token], span: &Span) {
        for token in &old[span.old.clone()] {
            self.seen[token.0 as usize].old += 1;
        }
        for at in span.new.clone() {
            let seen = &mut self.seen[new[at].0 as usize];
            seen.new += 1;
            seen.new_at = at as u32;
        }
    }

    fn unique_pairs(&self, old: &[Token], span: &Span) -> Vec<(usize, usize)> {
        let pair = |at: usize| {
            let seen = self.seen[old[at].0 as usize];
            seen.is_unique().then_some((at, seen.new_at as usize))
        };
        span.old.clone().filter_map(pair).collect()
    }

    fn forget(&mut self, old: &[Token], new: &[Token], span: &Span) {
        for token in old[span.old.clone()].iter().chain(&new[span.new.clone()]) {
            self.seen[token.0 as usize] = Seen::default();
        }
    }
}

/// A longest subsequence of `pairs` (which rise on the left) that rises on the right too, by patience sorting.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut pile_tops: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let pile = pile_tops.partition_point(|top| pairs[*top].1 < pair.1);
        previous.push(pile.checked_sub(1).map(|below| pile_tops[below]));
        match pile_tops.get_mut(pile) {
            Some(top) => *top = index,
            None => pile_tops.push(index),
        }
    }
    let last = pile_tops.last().copied();
    let mut chain: Vec<_> = std::iter::successors(last, |at| previous[*at]).map(|at| pairs[at]).collect();
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(numbers: &[u32]) -> Vec<Token> {
        numbers.iter().copied().map(Token).collect()
    }

    #[test]
    fn only_lines_that_are_unique_on_both_sides_count() {
        let (old, new) = (tokens(&[1, 2, 2, 3, 4]), tokens(&[1, 2, 3, 3, 4, 5]));
        let mut finder = AnchorFinder::new(6);
        let whole = Span { old: 0..5, new: 0..6 };
        assert_eq!(finder.find(&old, &new, &whole), [(0, 0), (4, 4)]);
        assert_eq!(finder.find(&old, &new, &whole), [(0, 0), (4, 4)], "tables were left dirty");
        assert_eq!(finder.find(&old, &new, &Span { old: 2..4, new: 1..3 }), [(2, 1), (3, 2)]);
    }

    #[test]
    fn the_longest_common_order_wins() {
        assert_eq!(longest_rising(&[]), []);
        assert_eq!(longest_rising(&[(0, 9), (1, 1), (2, 2), (3, 0), (4, 3)]), [(1, 1), (2, 2), (4, 3)]);
        assert_eq!(longest_rising(&[(0, 2), (1, 1), (2, 0)]).len(), 1);
    }
}
