//! Hunks applied to a text, exactly: lines may have moved, their text may not differ.
//!
//! Each hunk is looked for where its header says, moved by as much as the hunk before it was; only if it is not there, the
//! nearest place is searched. So ten thousand hunks cost what ten thousand comparisons do. The search has a budget: a
//! patch that was made to be slow is refused instead of worked through.

use super::hunk::lines;
use super::text::{HunkText, PatchError, ended, read_hunks};

/// How many lines may be compared while searching for hunks that are not where they should be, over a whole patch.
const SEARCH_BUDGET: usize = 50_000_000;

/// `base` with `hunks` applied: a text of `@@` headers and lines, in the order of the file.
///
/// The counts in the headers are ignored; the lines are counted. Neighbours may share unchanged lines, as the parts of a
/// [split](super::split) hunk do. A hunk whose unchanged and removed lines are found nowhere behind its predecessor is an error that
/// names it.
pub fn apply_exactly(base: &[u8], hunks: &[u8]) -> Result<Vec<u8>, PatchError> {
    let text = ended(hunks);
    let hunks = read_hunks(&text)?;
    let base: Vec<&[u8]> = lines(base).collect();
    let mut places = Places::in_text(&base);
    let mut output = Output::default();
    let mut at = 0;
    for hunk in &hunks {
        let first_change = places.of(hunk)? + hunk.leading();
        output.push(&base[at..first_change], hunk)?;
        let changed: Vec<&[u8]> = hunk.core().iter().filter_map(|line| line.in_new()).collect();
        output.push(&changed, hunk)?;
        at = first_change + hunk.core().iter().filter(|line| line.in_old().is_some()).count();
    }
    if let Some(last) = hunks.last() {
        output.push(&base[at..], last)?;
        return Ok(output.bytes);
    }
    Ok(base.concat())
}

/// The text that comes to be.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
}

impl Output {
    /// Adds lines. A line without newline can only be the last: two lines must not become one in silence.
    fn push(&mut self, lines: &[&[u8]], hunk: &HunkText<'_>) -> Result<(), PatchError> {
        for line in lines {
            if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
                return Err(hunk.error("puts a line without newline before other lines"));
            }
            self.bytes.extend_from_slice(line);
        }
        Ok(())
    }
}

/// Finds hunk after hunk in the old text, front to back.
pub(super) struct Places<'b> {
    base: &'b [&'b [u8]],
    /// How far the last hunk was from where its header says.
    moved: isize,
    /// Behind the last line that the hunks so far change: none may begin before it.
    changed_to: usize,
    /// Behind the last line that they show: none may change anything before it.
    shown_to: usize,
    budget: usize,
}

impl<'b> Places<'b> {
    pub(super) fn in_text(base: &'b [&'b [u8]]) -> Self {
        Self { base, moved: 0, changed_to: 0, shown_to: 0, budget: SEARCH_BUDGET }
    }

    /// The line, from 0, that the next hunk begins at.
    pub(super) fn of(&mut self, hunk: &HunkText<'_>) -> Result<usize, PatchError> {
        let old_side = hunk.old_side();
        let stated = hunk.header.old_index();
        let first = self.changed_to.max(self.shown_to.saturating_sub(hunk.leading()));
        let expected = stated.saturating_add_signed(self.moved);
        let mut search =
            Search { text: self.base, wanted: &old_side, first, expected, budget: &mut self.budget };
        let start = search.run().map_err(|reason| hunk.error(reason))?;
        self.moved = start as isize - stated as isize;
        self.shown_to = start + old_side.len();
        self.changed_to = self.shown_to - hunk.trailing();
        Ok(start)
    }
}

/// The search for a run of lines in a text.
struct Search<'s> {
    text: &'s [&'s [u8]],
    wanted: &'s [&'s [u8]],
    /// The first line that it may begin at.
    first: usize,
    /// Where it is looked for first.
    expected: usize,
    /// How many more lines may be compared.
    budget: &'s mut usize,
}

impl Search<'_> {
    /// The place nearest to the expected one; of two equally near the later.
    fn run(&mut self) -> Result<usize, String> {
        let last = self.text.len().checked_sub(self.wanted.len()).filter(|last| *last >= self.first);
        let last = last.ok_or("does not match: the file has not that many lines left")?;
        if (self.first..=last).contains(&self.expected) && self.matches(self.expected) {
            return Ok(self.expected);
        }
        if self.wanted.is_empty() {
            return Err("has nothing but added lines, and there is no such place in the file".to_owned());
        }
        let allowed = self.first..=last;
        let expected = self.expected.clamp(self.first, last);
        for distance in 0..=(last - self.first) {
            let places = [expected.checked_add(distance), expected.checked_sub(distance)];
            for place in places.into_iter().flatten().filter(|place| allowed.contains(place)) {
                if self.matches(place) {
                    return Ok(place);
                }
            }
            if *self.budget == 0 {
                return Err("is not where its header says, and too much to search for".to_owned());
            }
        }
        Err("does not match: its unchanged and removed lines are not in the file like this".to_owned())
    }

    fn matches(&mut self, place: usize) -> bool {
        let pairs = self.wanted.iter().zip(&self.text[place..]);
        let equal = pairs.take_while(|(wanted, found)| wanted == found).count();
        *self.budget = self.budget.saturating_sub(equal + 1);
        equal == self.wanted.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patch::{apply_hunks, hunks, render_hunk, reverse_hunks};

    fn applied(base: &str, hunks: &str) -> Result<String, PatchError> {
        apply_exactly(base.as_bytes(), hunks.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn rendered(old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        hunks(old, new).iter().for_each(|hunk| render_hunk(hunk, &mut out).unwrap());
        out
    }

    #[test]
    fn wrong_counts_do_not_matter() {
        assert_eq!(
            applied("a\nb\nc\n", "@@ -1,9 +1,1 @@\n a\n-b\n+B\n+and\n c\n").unwrap(),
            "a\nB\nand\nc\n"
        );
        assert_eq!(applied("a\n\nc\n", "@@ -1,3 +1,3 @@\n a\n\n-c\n+C").unwrap(), "a\n\nC\n");
        assert_eq!(applied("a\n", "").unwrap(), "a\n");
        assert_eq!(applied("a\n", "@@ -1 +1 @@\n a\n").unwrap(), "a\n");
    }

    #[test]
    fn lines_may_have_moved_but_not_changed() {
        assert_eq!(applied("new\nnew\na\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n").unwrap(), "new\nnew\na\nB\n");
        let error = applied("a \nb\n", "@@ -1,2 +1,2 @@ text\n a\n-b\n+B\n").unwrap_err();
        assert_eq!((error.hunk.as_deref(), error.line), (Some("@@ -1,2 +1,2 @@"), 1));
    }

    #[test]
    fn the_nearest_place_is_taken_and_never_one_before_the_last_hunk() {
        let base = "x\n1\nx\n2\nx\n3\n";
        assert_eq!(applied(base, "@@ -4 +4 @@\n-x\n+y\n").unwrap(), "x\n1\nx\n2\ny\n3\n");
        let twice = "@@ -5 +5 @@\n-x\n+y\n@@ -1 +1 @@\n-x\n+z\n";
        assert!(applied(base, twice).is_err());
        assert!(applied(base, "@@ -900 +900 @@\n-x\n+y\n").unwrap().ends_with("2\ny\n3\n"));
    }

    #[test]
    fn an_insertion_alone_goes_where_its_header_says() {
        assert_eq!(applied("a\nb\n", "@@ -1,0 +2 @@\n+x\n").unwrap(), "a\nx\nb\n");
        assert_eq!(applied("", "@@ -0,0 +1 @@\n+x\n").unwrap(), "x\n");
        assert!(applied("a\n", "@@ -7,0 +8 @@\n+x\n").is_err());
    }

    #[test]
    fn neighbours_may_share_unchanged_lines_but_not_change_them() {
        let base = "a\nm\nb\n";
        let first = "@@ -1,2 +1,2 @@\n-a\n+A\n m\n";
        assert_eq!(applied(base, &format!("{first}@@ -2,2 +2,2 @@\n m\n-b\n+B\n")).unwrap(), "A\nm\nB\n");
        assert!(applied(base, &format!("{first}@@ -2,2 +2,2 @@\n-m\n+M\n b\n")).is_err());
    }

    #[test]
    fn a_missing_newline_is_a_matter_of_exactness() {
        let add = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
        assert_eq!(applied("a", add).unwrap(), "a\n");
        assert!(applied("a\n", add).is_err());
        let drop = "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n";
        assert_eq!(applied("a\n", drop).unwrap(), "a");
        assert!(applied("a\nb\n", drop).is_err(), "a and b would become one line");
    }

    #[test]
    fn ten_thousand_moved_hunks_are_found_by_the_first() {
        let old: Vec<u8> = (0..100_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let changed = |n: u32| if n % 10 == 5 { format!("{n} new\n") } else { format!("{n}\n") };
        let new: Vec<u8> = (0..100_000).flat_map(|n| changed(n).into_bytes()).collect();
        let patch = rendered(&old, &new);
        let moved = |text: &[u8]| [&b"head\n".repeat(50_000)[..], text].concat();
        let base: Vec<u8> = moved(&old);
        let lines: Vec<&[u8]> = lines(&base).collect();
        let mut places = Places::in_text(&lines);
        for hunk in &read_hunks(&patch).unwrap() {
            places.of(hunk).unwrap();
        }
        assert!(SEARCH_BUDGET - places.budget < 1_000_000, "{}", SEARCH_BUDGET - places.budget);
        assert_eq!(apply_exactly(&base, &patch).unwrap(), moved(&new));
    }

    #[test]
    fn a_search_that_never_ends_is_given_up() {
        let base = "x\n".repeat(20_000);
        let hunk = format!("@@ -1 +1 @@\n{}-y\n", " x\n".repeat(10_000));
        assert!(applied(&base, &hunk).unwrap_err().reason.contains("too much"));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            4 => "[ab]{0,1}\n".prop_map(String::into_bytes),
            1 => Just(b"-- a\n".to_vec()),
            1 => Just(b"@@ -1 +1 @@\r\n".to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(line, 0..60).prop_map(|lines| lines.concat())
    }

    /// Text that hunks are made of, mostly.
    fn hunk_soup() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            1 => (0usize..9, 0usize..9).prop_map(|(a, b)| format!("@@ -{a},{b} +{b},{a} @@\n").into_bytes()),
            6 => "[-+ ][ab]{0,1}\n".prop_map(String::into_bytes),
            1 => Just(b"\\ No newline at end of file\n".to_vec()),
            1 => Just(b"\n".to_vec()),
        ];
        proptest::collection::vec(line, 0..30)
            .prop_map(|lines| [vec![b"@@ -1 +1 @@\n".to_vec()], lines].concat().concat())
    }

    proptest! {
        #[test]
        fn any_subset_of_hunks_applies(old in text(), new in text(), picks in any::<u64>()) {
            let all = hunks(&old, &new);
            let some: Vec<usize> = (0..all.len()).filter(|i| picks >> (i % 64) & 1 == 1).collect();
            let mut patch = Vec::new();
            some.iter().for_each(|i| render_hunk(&all[*i], &mut patch).unwrap());
            prop_assert_eq!(apply_exactly(&old, &patch).unwrap(), apply_hunks(&old, &all, &some));
        }

        #[test]
        fn the_reverse_leads_back(old in text(), new in text()) {
            let back = reverse_hunks(&rendered(&old, &new)).unwrap();
            prop_assert_eq!(apply_exactly(&new, &back).unwrap(), old);
        }

        #[test]
        fn hunks_find_themselves_behind_a_prefix(old in text(), new in text(), prefix in "(p\n){0,9}") {
            let patch = rendered(&old, &new);
            let moved = |text: &[u8]| [prefix.as_bytes(), text].concat();
            if !old.is_empty() {
                prop_assert_eq!(apply_exactly(&moved(&old), &patch).unwrap(), moved(&new));
            }
        }

        #[test]
        fn nothing_panics(base in text(), soup in hunk_soup(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = apply_exactly(&base, &soup);
            let _ = apply_exactly(&base, &bytes);
        }
    }
}
