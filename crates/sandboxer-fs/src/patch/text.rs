//! Hunks as text, read back: what a person may have edited, and what a stranger may have made up.
//!
//! The lines decide how long a hunk is, not the counts in its header, which are wrong as soon as somebody deletes a line in
//! an editor. Nothing here is believed beyond its own length: a header can claim what it likes and costs nothing.

use std::borrow::Cow;
use std::fmt;

use super::hunk::Line;

/// What is wrong with a patch, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchError {
    /// The line of the patch, from 1.
    pub line: usize,
    /// The header of the hunk that it is about, without the text that may follow the second `@@`.
    pub hunk: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl PatchError {
    pub(super) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, hunk: None, reason: reason.into() }
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hunk {
            Some(hunk) => write!(f, "hunk `{hunk}` (line {} of the patch) {}", self.line, self.reason),
            None => write!(f, "line {} of the patch: {}", self.line, self.reason),
        }
    }
}

impl std::error::Error for PatchError {}

/// The numbers of a hunk's header, as they stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) old: (usize, usize),
    pub(super) new: (usize, usize),
}

impl Header {
    /// Reads `@@ -1,2 +3,4 @@ anything`; `None` if it is not one.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"@@ -")?;
        let (old, rest) = parse_range(rest)?;
        let (new, rest) = parse_range(rest.strip_prefix(b" +")?)?;
        rest.starts_with(b" @@").then_some(Self { old, new })
    }

    /// Where its first line is expected among the old text's lines, from 0. An empty range is named by the line before it.
    pub(super) fn old_index(&self) -> usize {
        let (start, len) = self.old;
        if len == 0 { start } else { start.saturating_sub(1) }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |(start, len)| if len == 1 { format!("{start}") } else { format!("{start},{len}") };
        write!(f, "@@ -{} +{} @@", side(self.old), side(self.new))
    }
}

fn parse_range(text: &[u8]) -> Option<((usize, usize), &[u8])> {
    let (start, rest) = parse_number(text)?;
    let Some(rest) = rest.strip_prefix(b",") else { return Some(((start, 1), rest)) };
    let (len, rest) = parse_number(rest)?;
    Some(((start, len), rest))
}

/// Line numbers beyond this are nonsense, and would only make sums overflow.
const MAX_NUMBER: usize = u32::MAX as usize;

fn parse_number(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    (number <= MAX_NUMBER).then_some((number, rest))
}

/// One hunk of a text of hunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HunkText<'p> {
    /// The line of the patch that its header is on, from 1.
    pub(super) line: usize,
    pub(super) header: Header,
    pub(super) lines: Vec<Line<'p>>,
}

impl<'p> HunkText<'p> {
    /// The lines that must be in the old text, one after the other.
    pub(super) fn old_side(&self) -> Vec<&'p [u8]> {
        self.lines.iter().filter_map(|line| line.in_old()).collect()
    }

    /// The lines that stand in their place in the new text.
    pub(super) fn new_side(&self) -> Vec<&'p [u8]> {
        self.lines.iter().filter_map(|line| line.in_new()).collect()
    }

    /// How many unchanged lines come before the first change; all of them where there is none.
    pub(super) fn leading(&self) -> usize {
        self.lines.iter().take_while(|line| line.is_context()).count()
    }

    /// How many unchanged lines come after the last change; none where there is no change.
    pub(super) fn trailing(&self) -> usize {
        let unchanged = self.lines.iter().rev().take_while(|line| line.is_context()).count();
        if unchanged == self.lines.len() { 0 } else { unchanged }
    }

    /// From the first change to the last.
    pub(super) fn core(&self) -> &[Line<'p>] {
        &self.lines[self.leading()..self.lines.len() - self.trailing()]
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> PatchError {
        PatchError { line: self.line, hunk: Some(self.header.to_string()), reason: reason.into() }
    }
}

/// The text with a newline at its end: an editor may have dropped the last one, which says nothing about the file.
pub(super) fn ended(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_empty() || text.ends_with(b"\n") {
        return Cow::Borrowed(text);
    }
    let mut owned = text.to_vec();
    owned.push(b'\n');
    Cow::Owned(owned)
}

/// Reads a text that consists of hunks and nothing else. Every line of it must end with a newline.
pub(super) fn read_hunks(text: &[u8]) -> Result<Vec<HunkText<'_>>, PatchError> {
    let mut hunks: Vec<HunkText<'_>> = Vec::new();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        if line.starts_with(b"@@") {
            let header = Header::parse(line).ok_or_else(|| bad_header(number))?;
            hunks.push(HunkText { line: number, header, lines: Vec::new() });
            continue;
        }
        let hunk =
            hunks.last_mut().ok_or_else(|| PatchError::new(number, "there is no `@@` line before it"))?;
        push_line(hunk, number, line)?;
    }
    Ok(hunks)
}

pub(super) fn bad_header(line: usize) -> PatchError {
    PatchError::new(line, "it is not a hunk header like `@@ -1,2 +1,3 @@`")
}

fn push_line<'p>(hunk: &mut HunkText<'p>, number: usize, line: &'p [u8]) -> Result<(), PatchError> {
    let added = match line[0] {
        b' ' => Line::Context(&line[1..]),
        b'-' => Line::Removed(&line[1..]),
        b'+' => Line::Added(&line[1..]),
        // An unchanged empty line whose space an editor has trimmed.
        b'\n' => Line::Context(line),
        b'\\' => return end_without_newline(hunk, number),
        _ => return Err(PatchError::new(number, "a line of a hunk begins with a space, `-`, `+` or `\\`")),
    };
    hunk.lines.push(added);
    Ok(())
}

/// What `\ No newline at end of file` says of the line before it.
fn end_without_newline(hunk: &mut HunkText<'_>, number: usize) -> Result<(), PatchError> {
    let misplaced = || PatchError::new(number, "there is no line before it that could lack its newline");
    let last = hunk.lines.last_mut().ok_or_else(misplaced)?;
    let (Line::Context(text) | Line::Removed(text) | Line::Added(text)) = last;
    *text = text.strip_suffix(b"\n").ok_or_else(misplaced)?;
    if text.is_empty() { Err(misplaced()) } else { Ok(()) }
}

/// Cuts a text of hunks into the hunks, each with its header; concatenated they are the text again.
pub fn hunk_texts(text: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"@@") && at > start {
            parts.push(&text[start..at]);
            start = at;
        }
        at += line.len();
    }
    if at > start {
        parts.push(&text[start..at]);
    }
    parts
}

/// The hunks that lead back: what was added is removed, and the other way round.
pub fn reverse_hunks(hunks: &[u8]) -> Result<Vec<u8>, PatchError> {
    let text = ended(hunks);
    read_hunks(&text)?;
    let mut reversed = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(header) = Header::parse(line) {
            let swapped = Header { old: header.new, new: header.old };
            reversed.extend_from_slice(format!("{swapped}\n").as_bytes());
            continue;
        }
        let sign = match line[0] {
            b'-' => b'+',
            b'+' => b'-',
            other => other,
        };
        reversed.push(sign);
        reversed.extend_from_slice(&line[1..]);
    }
    Ok(reversed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_are_read_with_and_without_counts() {
        let header = Header::parse(b"@@ -1,2 +3 @@ fn main() {\n").unwrap();
        assert_eq!(header, Header { old: (1, 2), new: (3, 1) });
        assert_eq!(header.to_string(), "@@ -1,2 +3 @@");
        assert_eq!(header.old_index(), 0);
        assert_eq!(Header::parse(b"@@ -5,0 +6,2 @@").unwrap().old_index(), 5);
        for bad in ["@@ -1 +1", "@@ 1 +1 @@", "@@ -x +1 @@", "@@@ -1 -1 +1 @@@", "@@ -99999999999 +1 @@", ""]
        {
            assert_eq!(Header::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn lines_count_themselves() {
        let hunks = read_hunks(b"@@ -1,99 +1,99 @@\n a\n\n-b\n+c\n d\n@@ -9 +9 @@\n-x\n").unwrap();
        assert_eq!(hunks.len(), 2);
        assert_eq!(hunks[0].old_side(), [&b"a\n"[..], b"\n", b"b\n", b"d\n"]);
        assert_eq!(hunks[0].new_side(), [&b"a\n"[..], b"\n", b"c\n", b"d\n"]);
        assert_eq!((hunks[0].leading(), hunks[0].trailing(), hunks[0].core().len()), (2, 1, 2));
        assert_eq!((hunks[1].line, hunks[1].leading(), hunks[1].trailing()), (7, 0, 0));
    }

    #[test]
    fn a_hunk_without_changes_is_all_leading() {
        let hunks = read_hunks(b"@@ -1 +1 @@\n a\n b\n").unwrap();
        assert_eq!((hunks[0].leading(), hunks[0].trailing()), (2, 0));
        assert!(hunks[0].core().is_empty());
    }

    #[test]
    fn the_newline_marker_belongs_to_the_line_before() {
        let hunks = read_hunks(b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n").unwrap();
        assert_eq!(hunks[0].lines, [Line::Removed(b"a"), Line::Added(b"a\n")]);
        for bad in ["@@ -1 +1 @@\n\\ No", "@@ -1 +1 @@\n-a\n\\ No\n\\ No\n", "@@ -1 +1 @@\n-\n\\ No\n"] {
            assert!(read_hunks(&ended(bad.as_bytes())).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| read_hunks(text.as_bytes()).unwrap_err();
        assert_eq!(error("a\n").line, 1);
        assert_eq!(error("@@ -1 +1 @@\n a\n?\n").line, 3);
        assert_eq!(error("@@ -1 +1 @@\n a\n@@ nonsense\n").line, 3);
        assert!(error("@@ x\n").to_string().starts_with("line 1 of the patch: "));
    }

    #[test]
    fn a_text_is_cut_into_its_hunks() {
        let text = b"@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-x\n+@@\n";
        assert_eq!(hunk_texts(text).len(), 2);
        assert_eq!(hunk_texts(text).concat(), text);
        assert!(hunk_texts(b"").is_empty());
    }

    #[test]
    fn reversing_swaps_sides() {
        let text = b"@@ -1,2 +3 @@ fn\n a\n-b\n+c\n\\ No newline at end of file";
        let reversed = b"@@ -3 +1,2 @@\n a\n+b\n-c\n\\ No newline at end of file\n";
        assert_eq!(reverse_hunks(text).unwrap(), reversed);
        assert!(reverse_hunks(b"?").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_hunks(&ended(&bytes));
            let _ = reverse_hunks(&bytes);
            prop_assert_eq!(hunk_texts(&bytes).concat(), bytes);
        }
    }
}
