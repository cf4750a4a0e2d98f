//! Hunks: changes with the lines around them, numbered so that some can be chosen and applied without the others.

use std::io::{self, Write};
use std::ops::Range;

use super::align::{LineDiff, Span};
use super::is_binary;

/// How many unchanged lines surround a change.
const CONTEXT: usize = 3;

/// One line of a hunk, its newline included where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// On both sides.
    Context(&'a [u8]),
    /// Only in the old text.
    Removed(&'a [u8]),
    /// Only in the new text.
    Added(&'a [u8]),
}

impl<'a> Line<'a> {
    /// Its text, where the old text has it.
    pub fn in_old(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Context(text) | Self::Removed(text) => Some(text),
            Self::Added(_) => None,
        }
    }

    /// Its text, where the new text has it.
    pub fn in_new(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Context(text) | Self::Added(text) => Some(text),
            Self::Removed(_) => None,
        }
    }

    /// Whether it is on both sides.
    pub fn is_context(&self) -> bool {
        matches!(self, Self::Context(_))
    }
}

/// Neighbouring changes and up to three unchanged lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// Number of its first line in the old text, from 1; 0 where that text is empty.
    pub old_start: usize,
    /// How many lines of the old text it covers.
    pub old_len: usize,
    /// Number of its first line in the new text, from 1; 0 where that text is empty.
    pub new_start: usize,
    /// How many lines of the new text it covers.
    pub new_len: usize,
    /// What it consists of.
    pub lines: Vec<Line<'a>>,
}

/// The hunks that lead from `old` to `new`, in order. Changes closer than twice the context share one.
///
/// Any bytes will do, but lines make sense only for text: ask [`is_binary`] first.
pub fn hunks<'a>(old: &'a [u8], new: &'a [u8]) -> Vec<Hunk<'a>> {
    let diff = LineDiff::compute(old, new);
    hunks_of(&diff).collect()
}

/// The hunks of a comparison, one at a time.
pub(super) fn hunks_of<'d, 'a>(diff: &'d LineDiff<'a>) -> impl Iterator<Item = Hunk<'a>> + use<'d, 'a> {
    diff.changes().chunk_by(are_close).map(|group| hunk_around(diff, group))
}

fn are_close(left: &Span, right: &Span) -> bool {
    right.old.start - left.old.end <= 2 * CONTEXT
}

fn hunk_around<'a>(diff: &LineDiff<'a>, group: &[Span]) -> Hunk<'a> {
    let (first, last) = (&group[0], &group[group.len() - 1]);
    let before = first.old.start.min(CONTEXT);
    let after = (diff.old_line_count() - last.old.end).min(CONTEXT);
    let old = first.old.start - before..last.old.end + after;
    let new = first.new.start - before..last.new.end + after;
    Hunk {
        old_start: printed_start(&old),
        old_len: old.len(),
        new_start: printed_start(&new),
        new_len: new.len(),
        lines: lines_of(diff, group, old),
    }
}

/// The number that a hunk's header shows: an empty range is named by the line before it, and only empty texts have one.
fn printed_start(range: &Range<usize>) -> usize {
    if range.is_empty() { range.start } else { range.start + 1 }
}

fn lines_of<'a>(diff: &LineDiff<'a>, group: &[Span], old: Range<usize>) -> Vec<Line<'a>> {
    let mut lines = Vec::with_capacity(old.len());
    let mut at = old.start;
    for change in group {
        lines.extend(diff.old_lines(at..change.old.start).map(Line::Context));
        lines.extend(diff.old_lines(change.old.clone()).map(Line::Removed));
        lines.extend(diff.new_lines(change.new.clone()).map(Line::Added));
        at = change.old.end;
    }
    lines.extend(diff.old_lines(at..old.end).map(Line::Context));
    lines
}

/// Writes a hunk in the unified format.
pub fn render_hunk(hunk: &Hunk<'_>, out: &mut dyn Write) -> io::Result<()> {
    write_header(out, (hunk.old_start, hunk.old_len), (hunk.new_start, hunk.new_len))?;
    for line in &hunk.lines {
        match line {
            Line::Context(text) => write_line(out, b' ', text)?,
            Line::Removed(text) => write_line(out, b'-', text)?,
            Line::Added(text) => write_line(out, b'+', text)?,
        }
    }
    Ok(())
}

/// Writes the one hunk of a text that appears (`+`) or goes (`-`) as a whole.
pub(super) fn render_whole(text: &[u8], sign: u8, out: &mut dyn Write) -> io::Result<()> {
    let (nothing, all) = ((0, 0), (1, line_count(text)));
    let (old, new) = if sign == b'+' { (nothing, all) } else { (all, nothing) };
    write_header(out, old, new)?;
    lines(text).try_for_each(|line| write_line(out, sign, line))
}

fn write_header(out: &mut dyn Write, old: (usize, usize), new: (usize, usize)) -> io::Result<()> {
    let side = |(start, len)| if len == 1 { format!("{start}") } else { format!("{start},{len}") };
    writeln!(out, "@@ -{} +{} @@", side(old), side(new))
}

fn write_line(out: &mut dyn Write, sign: u8, text: &[u8]) -> io::Result<()> {
    out.write_all(&[sign])?;
    out.write_all(text)?;
    if text.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n\\ No newline at end of file\n") }
}

pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    imara_diff::sources::byte_lines(text)
}

fn line_count(text: &[u8]) -> usize {
    lines(text).count()
}

/// The old text with some of its hunks applied, chosen by their index in `hunks`; an index beyond them chooses nothing.
///
/// `hunks` must be those of [`hunks`] for the same `old`: with all of them chosen the result is the new text, with none
/// the old.
pub fn apply_hunks(old: &[u8], hunks: &[Hunk<'_>], selected: &[usize]) -> Vec<u8> {
    let mut chosen = vec![false; hunks.len()];
    for index in selected {
        if let Some(choice) = chosen.get_mut(*index) {
            *choice = true;
        }
    }
    let mut result = Vec::with_capacity(old.len());
    let (mut rest, mut at) = (old, 0);
    for hunk in hunks.iter().zip(chosen).filter_map(|(hunk, chosen)| chosen.then_some(hunk)) {
        let first = hunk.old_start.saturating_sub(1);
        result.extend_from_slice(take_lines(&mut rest, first - at));
        take_lines(&mut rest, hunk.old_len);
        new_side(hunk).for_each(|line| result.extend_from_slice(line));
        at = first + hunk.old_len;
    }
    result.extend_from_slice(rest);
    result
}

fn new_side<'h, 'a>(hunk: &'h Hunk<'a>) -> impl Iterator<Item = &'a [u8]> + use<'h, 'a> {
    hunk.lines.iter().filter_map(Line::in_new)
}

/// Splits the first `count` lines off `rest`.
fn take_lines<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let length = lines(rest).take(count).map(<[u8]>::len).sum();
    let (taken, left) = rest.split_at(length);
    *rest = left;
    taken
}

/// How many lines were added and removed; nothing for what [`is_binary`].
pub fn line_stat(old: &[u8], new: &[u8]) -> (u64, u64) {
    if is_binary(old) || is_binary(new) {
        return (0, 0);
    }
    if old.is_empty() || new.is_empty() {
        return (line_count(new) as u64, line_count(old) as u64);
    }
    let diff = LineDiff::compute(old, new);
    let count = |lines: fn(&Span) -> usize| diff.changes().iter().map(lines).sum::<usize>() as u64;
    (count(|change| change.new.len()), count(|change| change.old.len()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(old: &[u8], new: &[u8]) -> String {
        let mut out = Vec::new();
        for hunk in hunks(old, new) {
            render_hunk(&hunk, &mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn numbered(count: usize) -> String {
        (1..=count).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn a_change_shows_three_lines_around_it() {
        let old = numbered(9);
        let new = old.replace("5\n", "five\n");
        assert_eq!(
            rendered(old.as_bytes(), new.as_bytes()),
            "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
    }

    #[test]
    fn changes_share_a_hunk_up_to_six_lines_apart() {
        let old = numbered(30);
        let edit =
            |second: usize| old.replacen("10\n", "ten\n", 1).replacen(&format!("{second}\n"), "x\n", 1);
        assert_eq!(hunks(old.as_bytes(), edit(17).as_bytes()).len(), 1);
        assert_eq!(hunks(old.as_bytes(), edit(18).as_bytes()).len(), 2);
    }

    #[test]
    fn empty_texts_and_single_lines_are_numbered_as_in_git() {
        assert_eq!(rendered(b"", b"a\n"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(rendered(b"a\nb\n", b""), "@@ -1,2 +0,0 @@\n-a\n-b\n");
        assert_eq!(rendered(b"", b""), "");
        let mut whole = Vec::new();
        render_whole(b"a\n", b'+', &mut whole).unwrap();
        render_whole(b"a\nb", b'-', &mut whole).unwrap();
        assert_eq!(
            String::from_utf8(whole).unwrap(),
            "@@ -0,0 +1 @@\n+a\n@@ -1,2 +0,0 @@\n-a\n-b\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_missing_final_newline_is_a_difference() {
        assert_eq!(
            rendered(b"a\nb", b"a\nb\n"),
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"
        );
        assert_eq!(rendered(b"a\r\n", b"a\n"), "@@ -1 +1 @@\n-a\r\n+a\n");
    }

    #[test]
    fn chosen_hunks_apply_alone() {
        let old = numbered(40);
        let new = old.replace("10\n", "ten\n").replace("20\n", "").replace("30\n", "30\nand\n");
        let all = hunks(old.as_bytes(), new.as_bytes());
        assert_eq!(all.len(), 3);
        let applied =
            |selected: &[usize]| String::from_utf8(apply_hunks(old.as_bytes(), &all, selected)).unwrap();
        assert_eq!(applied(&[1]), old.replace("20\n", ""));
        assert_eq!(
            applied(&[2, 0, 2, 99]),
            old.replace("10\n", "ten\n").replace("30\n", "30\nand\n"),
            "order, repetition and unknown numbers do not matter"
        );
    }

    #[test]
    fn line_statistics_count_lines_not_hunks() {
        assert_eq!(line_stat(b"a\nb\nc\n", b"a\nx\ny\nc\n"), (2, 1));
        assert_eq!(line_stat(b"", b"a\nb"), (2, 0));
        assert_eq!(line_stat(b"a\n", b""), (0, 1));
        assert_eq!(line_stat(b"a\n", b"a\n"), (0, 0));
        assert_eq!(line_stat(b"a\n", b"\0"), (0, 0));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            4 => "[ab]{0,1}\n".prop_map(String::into_bytes),
            1 => Just(b"same\r\n".to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(line, 0..60).prop_map(|lines| lines.concat())
    }

    proptest! {
        #[test]
        fn all_hunks_give_new_and_none_old(old in text(), new in text(), picks in any::<u64>()) {
            let hunks = hunks(&old, &new);
            let all: Vec<usize> = (0..hunks.len()).collect();
            prop_assert_eq!(&apply_hunks(&old, &hunks, &all), &new);
            prop_assert_eq!(&apply_hunks(&old, &hunks, &[]), &old);
            let some: Vec<usize> = all.into_iter().filter(|i| picks >> (i % 64) & 1 == 1).collect();
            let partly = apply_hunks(&old, &hunks, &some);
            let grown: i64 = some.iter().map(|i| hunks[*i].new_len as i64 - hunks[*i].old_len as i64).sum();
            prop_assert_eq!(line_count(&partly) as i64 - line_count(&old) as i64, grown);
        }

        #[test]
        fn hunks_are_ordered_and_their_numbers_true(old in text(), new in text()) {
            let hunks = hunks(&old, &new);
            let mut end = (0, 0);
            for hunk in &hunks {
                prop_assert!(hunk.old_start.max(1) > end.0 && hunk.new_start.max(1) > end.1);
                let count = |keep: fn(&Line<'_>) -> bool| hunk.lines.iter().filter(|line| keep(line)).count();
                prop_assert_eq!(count(|line| !matches!(line, Line::Added(_))), hunk.old_len);
                prop_assert_eq!(count(|line| !matches!(line, Line::Removed(_))), hunk.new_len);
                end = (hunk.old_start + hunk.old_len - 1.min(hunk.old_len), hunk.new_start + hunk.new_len - 1.min(hunk.new_len));
            }
            let added = hunks.iter().flat_map(|h| &h.lines).filter(|l| matches!(l, Line::Added(_))).count();
            if !is_binary(&old) && !is_binary(&new) {
                prop_assert_eq!(line_stat(&old, &new).0, added as u64);
            }
        }
    }
}
