//! One ignore file: its lines, and what the last one that matches says.

use crate::wildmatch::{How, matches};

/// What an ignore file says of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is left out.
    Ignored,
    /// It is not, whatever was said before.
    Kept,
}

/// The patterns of one ignore file.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    lines: Vec<Pattern>,
    fold: bool,
}

#[derive(Debug)]
struct Pattern {
    text: Vec<u8>,
    /// How much of it, from its start, means itself.
    literal: usize,
    kept: bool,
    only_dirs: bool,
    /// It has no slash, and is about the last component alone.
    name_only: bool,
}

impl Patterns {
    /// Reads the content of an ignore file. `fold`: names match in any case.
    pub(crate) fn parse(content: &[u8], fold: bool) -> Self {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let lines = content.split(|b| *b == b'\n');
        Self { lines: lines.filter_map(Pattern::parse).collect(), fold }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What the last pattern that matches says; `path` is relative to where the file is. What takes too long to find out is kept.
    pub(crate) fn verdict(&self, path: &[u8], is_dir: bool) -> Option<Verdict> {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        for pattern in self.lines.iter().rev() {
            match pattern.matches(path, name, is_dir, self.fold) {
                Some(false) => {}
                Some(true) if !pattern.kept => return Some(Verdict::Ignored),
                Some(true) | None => return Some(Verdict::Kept),
            }
        }
        None
    }
}

impl Pattern {
    fn parse(line: &[u8]) -> Option<Self> {
        if line.is_empty() || line[0] == b'#' {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // To git a line ends at a NUL.
        let line = line.split(|b| *b == 0).next().unwrap_or(line);
        let line = without_trailing_spaces(line);
        let (kept, text) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let (only_dirs, text) = text.strip_suffix(b"/").map_or((false, text), |rest| (true, rest));
        let name_only = !text.contains(&b'/');
        let text = text.strip_prefix(b"/").unwrap_or(text);
        let special = |b: &u8| matches!(b, b'*' | b'?' | b'[' | b'\\');
        let literal = text.iter().position(special).unwrap_or(text.len());
        Some(Self { text: text.to_vec(), literal, kept, only_dirs, name_only })
    }

    /// Whether it matches; `None` where that cannot be told.
    fn matches(&self, path: &[u8], name: &[u8], is_dir: bool, fold: bool) -> Option<bool> {
        if self.only_dirs && !is_dir {
            return Some(false);
        }
        let how = How { path: !self.name_only, fold };
        let subject = if self.name_only { name } else { path };
        let (literal, wild) = self.text.split_at(self.literal);
        let Some((start, rest)) = subject.split_at_checked(literal.len()) else { return Some(false) };
        let same = if fold { start.eq_ignore_ascii_case(literal) } else { start == literal };
        if !same || wild.is_empty() {
            return Some(same && rest.is_empty());
        }
        // To git, what follows the literal beginning of a path is a pattern of its own: `a**/b` is `a` and then `**/b`.
        matches(wild, rest, how)
    }
}

/// A backslash keeps a space.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while at < line.len() {
        match line[at] {
            b' ' => {}
            b'\\' => {
                at += 1;
                end = (at + 1).min(line.len());
            }
            _ => end = at + 1,
        }
        at += 1;
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(content: &str, path: &str, is_dir: bool) -> Option<Verdict> {
        Patterns::parse(content.as_bytes(), false).verdict(path.as_bytes(), is_dir)
    }

    #[test]
    fn the_last_match_counts() {
        assert_eq!(says("*.log\n!keep.log\n", "a/keep.log", false), Some(Verdict::Kept));
        assert_eq!(says("!keep.log\n*.log", "keep.log", false), Some(Verdict::Ignored));
        assert_eq!(says("*.log", "a.txt", false), None);
    }

    #[test]
    fn a_slash_ties_a_pattern_to_its_place() {
        assert_eq!(says("/a", "a", false), Some(Verdict::Ignored));
        assert_eq!(says("/a", "b/a", false), None);
        assert_eq!(says("b/a", "b/a", false), Some(Verdict::Ignored));
        assert_eq!(says("b/a", "c/b/a", false), None);
        assert_eq!(says("a/", "b/a", true), Some(Verdict::Ignored));
        assert_eq!(says("a/", "a", false), None);
    }

    #[test]
    fn comments_spaces_and_line_ends_are_read_as_git_reads_them() {
        assert_eq!(says("# a\n\\#b\n", "#b", false), Some(Verdict::Ignored));
        assert_eq!(says("# a", "# a", false), None);
        assert_eq!(says("a  \r\n", "a", false), Some(Verdict::Ignored));
        assert_eq!(says("a  \n", "a", false), Some(Verdict::Ignored));
        assert_eq!(says("a\\ \n", "a ", false), Some(Verdict::Ignored));
        assert_eq!(says("\u{feff}a\r\n", "a", false), Some(Verdict::Ignored));
        assert_eq!(says("\\!a", "!a", false), Some(Verdict::Ignored));
    }
}
