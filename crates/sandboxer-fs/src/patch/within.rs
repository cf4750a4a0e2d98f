//! Whether hunks do nothing but what a sandbox did: a selection from its changes, not an edit of somebody else's making.

use std::ops::Range;

use super::align::{LineDiff, Span};
use super::exact::Places;
use super::hunk::lines;
use super::text::{HunkText, PatchError, ended, read_hunks};

/// Checks that each of `hunks`, which apply to `base`, is part of what leads from `base` to `new`; the error names the
/// first that is not.
///
/// A hunk is part of it if the lines that it adds and removes are among those that were added and removed at that place, in that
/// order, some perhaps left out; or if it turns its whole stretch of `base` into what stands there in `new`, however the tool that wrote it has
/// aligned the two.
pub fn check_part_of(base: &[u8], new: &[u8], hunks: &[u8]) -> Result<(), PatchError> {
    let text = ended(hunks);
    let hunks = read_hunks(&text)?;
    let (base_lines, new_lines): (Vec<&[u8]>, Vec<&[u8]>) = (lines(base).collect(), lines(new).collect());
    let whole = Whole { diff: LineDiff::compute(base, new), old_len: base_lines.len(), new: &new_lines };
    let mut places = Places::in_text(&base_lines);
    for hunk in &hunks {
        let start = places.of(hunk)?;
        if !whole.has_changes_of(hunk, start) && !whole.has_result_of(hunk, start) {
            return Err(hunk.error("is no part of the difference"));
        }
    }
    Ok(())
}

/// The whole difference that hunks are selected from.
struct Whole<'a> {
    diff: LineDiff<'a>,
    old_len: usize,
    new: &'a [&'a [u8]],
}

impl Whole<'_> {
    /// Whether every change of the hunk lies within one of ours.
    fn has_changes_of(&self, hunk: &HunkText<'_>, start: usize) -> bool {
        changes_of(hunk, start).iter().all(|(old, added)| {
            let ours = self.first_ending_at_or_after(old.start).filter(|ours| ours.old.start <= old.start);
            ours.is_some_and(|ours| old.end <= ours.old.end && self.added_has(ours, added))
        })
    }

    fn first_ending_at_or_after(&self, line: usize) -> Option<&Span> {
        let changes = self.diff.changes();
        changes.get(changes.partition_point(|change| change.old.end < line))
    }

    /// Whether `wanted` are among the lines that a change adds, in that order.
    fn added_has(&self, change: &Span, wanted: &[&[u8]]) -> bool {
        let mut added = self.new[change.new.clone()].iter();
        wanted.iter().all(|line| added.any(|ours| ours == line))
    }

    /// Whether what the hunk's stretch of the old text became is what the hunk makes of it.
    fn has_result_of(&self, hunk: &HunkText<'_>, start: usize) -> bool {
        let (result, end) = (hunk.new_side(), start + hunk.old_side().len());
        let starts = self.counterparts(start);
        let pairs = starts.iter().flat_map(|start| self.counterparts(end).into_iter().map(|end| *start..end));
        pairs.filter(|range| range.start <= range.end).any(|range| self.new[range] == result[..])
    }

    /// Where the gap before an old line is in the new text; both ends of what was inserted there, and nowhere if the gap
    /// lies inside a change.
    fn counterparts(&self, line: usize) -> Vec<usize> {
        let Some(change) = self.first_ending_at_or_after(line) else {
            return vec![self.new.len() - (self.old_len - line)];
        };
        let before = change.old.start.checked_sub(line).map(|distance| change.new.start - distance);
        let after = (change.old.end == line).then_some(change.new.end);
        before.into_iter().chain(after).collect()
    }
}

/// The changes of a hunk that was found at `start`: which old lines go, and what comes there.
fn changes_of<'p>(hunk: &HunkText<'p>, start: usize) -> Vec<(Range<usize>, Vec<&'p [u8]>)> {
    let mut at = start;
    let mut changes = Vec::new();
    for run in hunk.lines.chunk_by(|a, b| a.is_context() == b.is_context()) {
        let old = at..at + run.iter().filter(|line| line.in_old().is_some()).count();
        at = old.end;
        if !run[0].is_context() {
            let added = run.iter().filter(|line| line.in_old().is_none());
            changes.push((old, added.filter_map(|line| line.in_new()).collect()));
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patch::{hunks, render_hunk, split};

    const BASE: &str = "1\n2\n3\n4\n5\n6\n";
    const NEW: &str = "1\ntwo\nand\n3\n4\n6\n";

    fn check(hunks: &str) -> Result<(), PatchError> {
        check_part_of(BASE.as_bytes(), NEW.as_bytes(), hunks.as_bytes())
    }

    #[test]
    fn lines_may_be_left_out() {
        check("@@ -1,3 +1,4 @@\n 1\n-2\n+two\n+and\n 3\n").unwrap();
        check("@@ -1,3 +1,4 @@\n 1\n 2\n+and\n 3\n").unwrap();
        check("@@ -1,3 +1,4 @@\n 1\n-2\n 3\n").unwrap();
        check("@@ -5 +4,0 @@\n-5\n").unwrap();
        check("").unwrap();
    }

    #[test]
    fn nothing_may_be_made_up() {
        for made_up in [
            "@@ -1,3 +1,4 @@\n 1\n-2\n+TWO\n 3\n",
            "@@ -1,3 +1,4 @@\n 1\n-2\n+and\n+two\n 3\n",
            "@@ -3,2 +3 @@\n-3\n 4\n",
            "@@ -3,2 +3 @@\n 3\n+two\n 4\n",
            "@@ -4,3 +4,2 @@\n 4\n 5\n-6\n",
        ] {
            assert!(check(made_up).unwrap_err().hunk.is_some(), "{made_up}");
        }
    }

    #[test]
    fn another_alignment_of_the_same_result_is_fine() {
        let base = b"{\n a\n}\n";
        let new = b"{\n a\n}\n{\n b\n}\n";
        for patch in
            ["@@ -1,3 +1,6 @@\n {\n  a\n+}\n+{\n+ b\n }\n", "@@ -1,3 +1,6 @@\n {\n  a\n }\n+{\n+ b\n+}\n"]
        {
            check_part_of(base, new, patch.as_bytes()).unwrap();
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec("[abc]{0,1}\n", 0..40).prop_map(|lines| lines.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn every_selection_of_parts_is_part_of_it(old in text(), new in text(), picks in any::<u64>(), whole in any::<bool>()) {
            let all = hunks(&old, &new);
            let parts = if whole { all } else { all.iter().flat_map(split).collect() };
            let mut patch = Vec::new();
            let some = parts.iter().enumerate().filter(|(i, _)| picks >> (i % 64) & 1 == 1);
            some.for_each(|(_, part)| render_hunk(part, &mut patch).unwrap());
            prop_assert_eq!(check_part_of(&old, &new, &patch), Ok(()));
        }

        #[test]
        fn a_line_that_nobody_wrote_is_found_out(old in text(), new in text()) {
            for hunk in hunks(&old, &new) {
                let mut patch = Vec::new();
                render_hunk(&hunk, &mut patch).unwrap();
                patch.extend_from_slice(b"+made up\n");
                prop_assert!(check_part_of(&old, &new, &patch).is_err());
            }
        }

        #[test]
        fn nothing_panics(old in text(), new in text(), soup in "(@@ -[0-9],[0-9] \\+[0-9] @@\n|[-+ ][abc]\n|\n){0,12}") {
            let _ = check_part_of(&old, &new, soup.as_bytes());
        }
    }
}
