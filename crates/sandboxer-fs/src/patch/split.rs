//! A hunk cut into its smallest parts.

use super::hunk::{Hunk, Line};

/// Cuts a hunk wherever unchanged lines lie between two changes. The parts share these lines: each shows all that was
/// around its change, so that each applies with or without the others.
///
/// The numbers of a part's old side are those of the old text, those of its new side hold if all parts before it are applied too.
/// A hunk that cannot be cut comes back alone.
pub fn split<'a>(hunk: &Hunk<'a>) -> Vec<Hunk<'a>> {
    let mut parts = Vec::new();
    let (mut from, mut first_old, mut first_new) =
        (0, first_line(hunk.old_start, hunk.old_len), first_line(hunk.new_start, hunk.new_len));
    for gap in inner_gaps(&hunk.lines) {
        parts.push(part(&hunk.lines[from..gap.end], first_old, first_new));
        let before_gap = &hunk.lines[from..gap.start];
        first_old += before_gap.iter().filter(|line| line.in_old().is_some()).count();
        first_new += before_gap.iter().filter(|line| line.in_new().is_some()).count();
        from = gap.start;
    }
    parts.push(part(&hunk.lines[from..], first_old, first_new));
    parts
}

/// A hunk's first line, from 0; see [`Hunk::old_start`].
fn first_line(start: usize, len: usize) -> usize {
    if len == 0 { start } else { start.saturating_sub(1) }
}

fn part<'a>(lines: &[Line<'a>], first_old: usize, first_new: usize) -> Hunk<'a> {
    let old_len = lines.iter().filter(|line| line.in_old().is_some()).count();
    let new_len = lines.iter().filter(|line| line.in_new().is_some()).count();
    Hunk {
        old_start: first_old + old_len.min(1),
        old_len,
        new_start: first_new + new_len.min(1),
        new_len,
        lines: lines.to_vec(),
    }
}

/// The runs of unchanged lines that have changes on both sides.
fn inner_gaps<'h>(lines: &'h [Line<'_>]) -> impl Iterator<Item = std::ops::Range<usize>> + 'h {
    let first = lines.iter().position(|line| !line.is_context()).unwrap_or(lines.len());
    let last = lines.iter().rposition(|line| !line.is_context()).unwrap_or(0);
    let mut at = 0;
    let runs = lines.chunk_by(|a, b| a.is_context() == b.is_context()).map(move |run| {
        at += run.len();
        (at - run.len()..at, run[0].is_context())
    });
    runs.filter(move |(run, unchanged)| *unchanged && run.start > first && run.end <= last)
        .map(|(run, _)| run)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patch::{apply_exactly, hunks, render_hunk};

    fn rendered(parts: &[Hunk<'_>]) -> String {
        let mut out = Vec::new();
        parts.iter().for_each(|part| render_hunk(part, &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn parts_share_what_lies_between_them() {
        let all = hunks(b"a\nm\nb\nc\nz\n", b"A\nm\nb2\nb3\nc\nz\nlast\n");
        assert_eq!(all.len(), 1);
        let parts = split(&all[0]);
        assert_eq!(
            rendered(&parts),
            "@@ -1,2 +1,2 @@\n-a\n+A\n m\n@@ -2,4 +2,5 @@\n m\n-b\n+b2\n+b3\n c\n z\n@@ -4,2 +5,3 @@\n c\n z\n+last\n"
        );
    }

    #[test]
    fn one_change_is_one_part() {
        for (old, new) in
            [(&b"a\nb\n"[..], &b"a\nc\n"[..]), (b"", b"x\n"), (b"x\n", b""), (b"a\nb\nc\n", b"b\n")]
        {
            let all = hunks(old, new);
            let parts = split(&all[0]);
            if parts.len() == 1 {
                assert_eq!(parts, all);
            } else {
                assert_eq!(rendered(&parts), "@@ -1,2 +1 @@\n-a\n b\n@@ -2,2 +1 @@\n b\n-c\n");
            }
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            6 => "[abc]{0,1}\n".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(line, 0..50).prop_map(|lines| lines.concat())
    }

    /// The old text with the changes that `picks` chooses, without hunks: the changes counted over the whole file.
    fn model(old: &[u8], all: &[Hunk<'_>], picks: u64) -> Vec<u8> {
        let old: Vec<&[u8]> = super::super::hunk::lines(old).collect();
        let (mut result, mut at, mut change, mut within) = (Vec::new(), 0, 0, false);
        for hunk in all {
            let first = first_line(hunk.old_start, hunk.old_len);
            result.extend_from_slice(&old[at..first].concat());
            for line in &hunk.lines {
                if line.is_context() && within {
                    change += 1;
                }
                within = !line.is_context();
                let chosen = picks >> (change % 64) & 1 == 1;
                let kept = if within && chosen {
                    line.in_new()
                } else if within {
                    line.in_old()
                } else {
                    line.in_new()
                };
                result.extend_from_slice(kept.unwrap_or_default());
            }
            change += usize::from(std::mem::take(&mut within));
            at = first + hunk.old_len;
        }
        result.extend_from_slice(&old[at..].concat());
        result
    }

    proptest! {
        #[test]
        fn any_subset_of_parts_applies(old in text(), new in text(), picks in any::<u64>()) {
            let all = hunks(&old, &new);
            let parts: Vec<Hunk<'_>> = all.iter().flat_map(split).collect();
            let chosen = |index: &usize| picks >> (index % 64) & 1 == 1;
            let mut patch = Vec::new();
            let some = (0..parts.len()).filter(chosen);
            some.for_each(|index| render_hunk(&parts[index], &mut patch).unwrap());
            prop_assert_eq!(apply_exactly(&old, &patch).unwrap(), model(&old, &all, picks));
        }

        #[test]
        fn parts_cannot_be_cut_again(old in text(), new in text()) {
            for part in hunks(&old, &new).iter().flat_map(split) {
                prop_assert_eq!(split(&part), vec![part]);
            }
        }
    }
}
