//! A text and where its lines begin, so that any run of lines is a slice of it.

use std::ops::Range;

/// The lines of a text; each includes its newline, which the last one may lack.
pub(super) struct Lines<'a> {
    text: &'a [u8],
    /// Where each line begins, and where the text ends.
    bounds: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut bounds = vec![0];
        bounds.extend(text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1));
        if text.last().is_some_and(|byte| *byte != b'\n') {
            bounds.push(text.len());
        }
        Self { text, bounds }
    }

    pub(super) fn all(&self) -> &'a [u8] {
        self.text
    }

    pub(super) fn count(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The bytes of some lines, one after the other as they stand.
    pub(super) fn slice(&self, lines: &Range<usize>) -> &'a [u8] {
        &self.text[self.bounds[lines.start]..self.bounds[lines.end]]
    }

    pub(super) fn line(&self, at: usize) -> &'a [u8] {
        self.slice(&(at..at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_newlines_and_the_last_may_have_none() {
        let lines = Lines::new(b"a\r\n\nb");
        assert_eq!(lines.count(), 3);
        assert_eq!((lines.line(0), lines.line(1), lines.line(2)), (&b"a\r\n"[..], &b"\n"[..], &b"b"[..]));
        assert_eq!(lines.slice(&(1..3)), b"\nb");
        assert_eq!(lines.slice(&(3..3)), b"");
        assert_eq!(Lines::new(b"a\n").count(), 1);
        assert_eq!(Lines::new(b"").count(), 0);
    }
}
