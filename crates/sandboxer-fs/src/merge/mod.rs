//! Three-way merging of text: what two sides made of a common base, put together where they kept out of each other's way.
//!
//! Everything here is a pure function over bytes. The two sides are compared with the base, line by line; changes that
//! do not touch each other are all taken (`regions`), what remains is compared side against side so that only lines that
//! really differ are in conflict (`refine`), and the outcome is written with conflict markers where it has to be
//! (`render`). The result is what `git merge-file` gives for the same comparison, to the byte: a line is what ends with a
//! newline, so carriage returns, a missing last newline and bytes that are no UTF-8 pass through as they are.

mod lines;
mod refine;
mod regions;
mod render;

#[cfg(test)]
mod git_tests;

use sandboxer_core::model::ConflictHunk;

use crate::patch::{LineDiff, Span};
use lines::Lines;

/// Names that stand after the markers, each without a line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels<'a> {
    /// After `<<<<<<<`.
    pub ours: &'a str,
    /// After `>>>>>>>`.
    pub theirs: &'a str,
}

/// What came of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The text, with conflict markers where there are conflicts.
    pub content: Vec<u8>,
    /// Where the sides disagree, from top to bottom; empty where the merge is clean.
    pub conflicts: Vec<ConflictHunk>,
}

/// Merges what `ours` and `theirs` made of `base`.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8], labels: &Labels<'_>) -> Merged {
    let align = |old: &[u8], new: &[u8]| LineDiff::for_merge(old, new).into_changes();
    merge_aligned(&Texts::new(base, ours, theirs), align, labels)
}

/// Whether a text still has conflict markers: one line with these labels, or all three lines that git writes, in their order. The
/// separator alone does not count, because some formats underline headings with it.
pub fn has_markers(content: &[u8], labels: &Labels<'_>) -> bool {
    let own = [render::opening(labels), render::closing(labels)];
    let mut expected = 0;
    for line in content.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_expected = match expected {
            0 => line.starts_with(b"<<<<<<< "),
            1 => line == b"=======",
            _ => line.starts_with(b">>>>>>> "),
        };
        expected += u8::from(is_expected);
        if expected == 3 || own.iter().any(|marker| marker.as_bytes() == line) {
            return true;
        }
    }
    false
}

/// The three texts of a merge, by lines.
struct Texts<'a> {
    base: Lines<'a>,
    ours: Lines<'a>,
    theirs: Lines<'a>,
}

impl<'a> Texts<'a> {
    fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Self {
        Self { base: Lines::new(base), ours: Lines::new(ours), theirs: Lines::new(theirs) }
    }
}

/// Merges by the changes that `align` finds between two texts. More than one comparison is right where lines repeat, and
/// which one it is decides what touches; tests bring the one that git made.
fn merge_aligned(
    texts: &Texts<'_>,
    align: impl Fn(&[u8], &[u8]) -> Vec<Span>,
    labels: &Labels<'_>,
) -> Merged {
    let ours = align(texts.base.all(), texts.ours.all());
    let theirs = align(texts.base.all(), texts.theirs.all());
    let found = regions::find(texts, &ours, &theirs);
    let refined = refine::split(found, texts, &refine::Changes { ours: &ours, theirs: &theirs }, align);
    render::merged(texts, &refine::join(refined, &texts.ours), labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels<'_> = Labels { ours: "original", theirs: "sandbox" };

    fn merged(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
        merge(base, ours, theirs, &LABELS)
    }

    fn clean(base: &str, ours: &str, theirs: &str) -> String {
        let merged = merged(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        assert_eq!(merged.conflicts, []);
        String::from_utf8_lossy(&merged.content).into_owned()
    }

    fn conflicting(base: &str, ours: &str, theirs: &str) -> String {
        let merged = merged(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        assert!(!merged.conflicts.is_empty());
        assert!(has_markers(&merged.content, &LABELS));
        String::from_utf8_lossy(&merged.content).into_owned()
    }

    #[test]
    fn changes_apart_from_each_other_are_both_taken() {
        assert_eq!(clean("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n"), "A\nb\nC\n");
        assert_eq!(clean("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n"), "b\nc\nd\n");
        assert_eq!(clean("a\nb\nc\n", "a\nb\nc\n", ""), "");
    }

    #[test]
    fn the_same_change_is_taken_once() {
        assert_eq!(clean("a\nb\n", "a\nX\nb\n", "a\nX\nb\n"), "a\nX\nb\n");
        assert_eq!(clean("a\nb\nc\nd\n", "a\nd\nours\n", "a\nd\nours\n"), "a\nd\nours\n");
        assert_eq!(clean("", "new\n", "new\n"), "new\n");
    }

    #[test]
    fn changes_that_touch_are_a_conflict() {
        let text = conflicting("a\nb\nc\n", "A\nb\nc\n", "a\nB\nc\n");
        assert_eq!(text, "<<<<<<< original\nA\nb\n=======\na\nB\n>>>>>>> sandbox\nc\n");
    }

    #[test]
    fn lines_that_both_sides_share_are_pulled_out_of_a_conflict() {
        let text = conflicting("x\n", "1\n2\nA\n3\n", "1\n2\nB\n3\n");
        assert_eq!(text, "1\n2\n<<<<<<< original\nA\n=======\nB\n>>>>>>> sandbox\n3\n");
    }

    #[test]
    fn a_change_of_what_the_other_side_deleted_is_a_conflict() {
        let text = conflicting("a\nb\nc\n", "a\nc\n", "a\nB\nc\n");
        assert_eq!(text, "a\n<<<<<<< original\n=======\nB\n>>>>>>> sandbox\nc\n");
    }

    #[test]
    fn a_missing_last_newline_is_kept_and_made_up_for_before_a_marker() {
        assert_eq!(clean("a\nb\nc", "A\nb\nc", "a\nb\nc"), "A\nb\nc");
        assert_eq!(clean("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc"), "A\nb\nc");
        let text = conflicting("a", "b", "c");
        assert_eq!(text, "<<<<<<< original\nb\n=======\nc\n>>>>>>> sandbox\n");
    }

    #[test]
    fn markers_end_as_the_lines_around_them_do() {
        let text = conflicting("a\r\nb\r\n", "a\r\nX\r\n", "a\r\nY");
        assert_eq!(text, "a\r\n<<<<<<< original\r\nX\r\n=======\r\nY\r\n>>>>>>> sandbox\r\n");
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let merged = merged(b"a\n\xff\nb\n", b"\xfe\n\xff\nb\n", b"a\n\xff\n\xfd");
        assert_eq!(merged, Merged { content: b"\xfe\n\xff\n\xfd".to_vec(), conflicts: Vec::new() });
    }

    #[test]
    fn a_conflict_tells_where_and_what() {
        let merged = merged(b"1\n2\n3\n4\n5\n", b"0\n1\n2\n\xff\n4\n5\n", b"1\n2\nC\nD\n4\n5\n");
        let hunk = ConflictHunk {
            ours_start: 4,
            ours: vec!["\u{fffd}".to_owned()],
            base: vec!["3".to_owned()],
            theirs_start: 3,
            theirs: vec!["C".to_owned(), "D".to_owned()],
        };
        assert_eq!(merged.conflicts, [hunk]);
        assert!(merged.content.starts_with(b"0\n1\n2\n<<<<<<< original\n\xff\n=======\nC\n"));
    }

    #[test]
    fn own_markers_and_complete_git_conflicts_are_found() {
        let has = |text: &[u8]| has_markers(text, &LABELS);
        assert!(has(b"<<<<<<< original\n") && has(b"x\r\n>>>>>>> sandbox\r\n") && has(b">>>>>>> sandbox"));
        assert!(!has(b"Heading\n=======\n") && !has(b"") && !has(b" <<<<<<< original\n"));
        assert!(!has(b"<<<<<<< HEAD\n") && !has(b"<<<<<<< originals\n"));
        assert!(has(b"<<<<<<< HEAD\r\na\r\n=======\r\nb\r\n>>>>>>> 1234567 (rebased)\r\n"));
        assert!(!has(b">>>>>>> a\n=======\n<<<<<<< b\n"));
    }

    #[test]
    fn a_hundred_thousand_lines_with_changes_all_over() {
        let text = |changed: usize, word: &str| -> Vec<u8> {
            let line = |n: usize| if n % 10 == changed { format!("{word} {n}\n") } else { format!("{n}\n") };
            (0..100_000).flat_map(|n| line(n).into_bytes()).collect()
        };
        let base = text(99, "");
        let apart = merged(&base, &text(2, "ours"), &text(7, "theirs"));
        assert!(apart.conflicts.is_empty());
        let mut lines = apart.content.split(|byte| *byte == b'\n');
        assert!(lines.any(|line| line == b"ours 50002") && lines.any(|line| line == b"theirs 50007"));
        assert_eq!(merged(&base, &text(2, "ours"), &text(2, "theirs")).conflicts.len(), 10_000);
    }
}
