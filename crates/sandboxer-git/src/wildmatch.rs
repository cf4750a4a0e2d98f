//! Matching of names against the wildcards of ignore files, byte by byte as git does it: `{` means itself, classes have names, and `**` crosses
//! directories only where it stands alone between slashes.

/// How to match.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// `*` and `?` stop at a slash.
    pub(crate) path: bool,
    /// Letters match in both cases.
    pub(crate) fold: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    No,
    /// No star can help.
    Abort,
    /// Only a `**` further out can help.
    AbortToStars,
}

/// How many beginnings are tried for one match: a pattern can be written that has more than anyone can wait for.
const TRIES: u32 = 50_000;

/// Whether the whole of `text` matches `pattern`; `None` where that would take too long to find out.
pub(crate) fn matches(pattern: &[u8], text: &[u8], how: How) -> Option<bool> {
    let mut left = TRIES;
    let outcome = walk(pattern, text, how, &mut left);
    (left > 0).then_some(outcome == Outcome::Match)
}

fn folded(byte: u8, how: How) -> u8 {
    if how.fold { byte.to_ascii_lowercase() } else { byte }
}

fn walk(pattern: &[u8], text: &[u8], how: How, left: &mut u32) -> Outcome {
    *left = left.saturating_sub(1);
    if *left == 0 {
        return Outcome::Abort;
    }
    let (mut p, mut t) = (0, 0);
    while p < pattern.len() {
        let Some(byte) = text.get(t).map(|b| folded(*b, how)) else {
            if pattern[p] != b'*' {
                return Outcome::Abort;
            }
            return star(pattern, p, &text[t..], how, left);
        };
        match pattern[p] {
            b'*' => return star(pattern, p, &text[t..], how, left),
            b'?' if how.path && byte == b'/' => return Outcome::No,
            b'?' => {}
            b'[' => match class(pattern, p + 1, byte, how) {
                None => return Outcome::Abort,
                Some((false, _)) => return Outcome::No,
                Some((true, _)) if how.path && byte == b'/' => return Outcome::No,
                Some((true, end)) => p = end,
            },
            literal => {
                let literal = if literal == b'\\' {
                    p += 1;
                    pattern.get(p).copied().unwrap_or(0)
                } else {
                    literal
                };
                if folded(literal, how) != byte {
                    return Outcome::No;
                }
            }
        }
        p += 1;
        t += 1;
    }
    if t == text.len() { Outcome::Match } else { Outcome::No }
}

/// What a star at `p` of the pattern can make of the text.
fn star(pattern: &[u8], p: usize, text: &[u8], how: How, left: &mut u32) -> Outcome {
    let mut next = p;
    while pattern.get(next) == Some(&b'*') {
        next += 1;
    }
    let alone = (p == 0 || pattern[p - 1] == b'/')
        && (matches!(pattern.get(next), None | Some(b'/')) || pattern[next..].starts_with(b"\\/"));
    let crosses = !how.path || (next - p >= 2 && alone);
    let (rest, mut text) = (&pattern[next..], text);
    if how.path && next - p >= 2 && alone && rest.first() == Some(&b'/') {
        // Between two slashes it matches nothing at all, too.
        if walk(&rest[1..], text, how, left) == Outcome::Match {
            return Outcome::Match;
        }
    }
    if rest.is_empty() {
        return if crosses || !text.contains(&b'/') { Outcome::Match } else { Outcome::AbortToStars };
    }
    if !crosses && rest[0] == b'/' {
        // One star before a slash stands for the rest of a name.
        let Some(slash) = text.iter().position(|b| *b == b'/') else { return Outcome::Abort };
        return walk(&rest[1..], &text[slash + 1..], how, left);
    }
    while !text.is_empty() {
        match walk(rest, text, how, left) {
            Outcome::No if !crosses && text[0] == b'/' => return Outcome::AbortToStars,
            Outcome::No => {}
            Outcome::AbortToStars if crosses => {}
            decided => return decided,
        }
        text = &text[1..];
    }
    Outcome::Abort
}

/// Whether `byte` is in the class that begins at `at`, and where its bracket is; `None` where it has none.
fn class(pattern: &[u8], at: usize, byte: u8, how: How) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    let first = at + usize::from(negated);
    let (mut p, mut found, mut previous) = (first, false, None);
    loop {
        let current = *pattern.get(p)?;
        if current == b']' && p > first {
            return Some((found != negated, p));
        }
        if current == b'[' && pattern.get(p + 1) == Some(&b':') {
            match named(pattern, p, byte, how)? {
                Named::Class(inside, end) => {
                    found |= inside;
                    (p, previous) = (end + 1, None);
                    continue;
                }
                Named::Bracket => {}
            }
        }
        if let (b'-', Some(low), Some(next)) = (current, previous, pattern.get(p + 1).filter(|b| **b != b']'))
        {
            let escaped = usize::from(*next == b'\\');
            let high = *pattern.get(p + 1 + escaped)?;
            found |= in_range(low, high, byte, how);
            (p, previous) = (p + 2 + escaped, None);
            continue;
        }
        let escaped = usize::from(current == b'\\');
        let literal = *pattern.get(p + escaped)?;
        found |= literal == byte;
        (p, previous) = (p + 1 + escaped, Some(literal));
    }
}

fn in_range(low: u8, high: u8, byte: u8, how: How) -> bool {
    let within = |byte: u8| (low..=high).contains(&byte);
    within(byte) || (how.fold && within(byte.to_ascii_uppercase()))
}

enum Named {
    /// Whether the byte is in it, and where its last bracket is.
    Class(bool, usize),
    /// It only looked like one.
    Bracket,
}

/// A class such as `[:alpha:]` at `at`; `None` where the pattern is broken.
fn named(pattern: &[u8], at: usize, byte: u8, how: How) -> Option<Named> {
    let start = at + 2;
    let end = start + pattern.get(start..)?.iter().position(|b| *b == b']')?;
    if end == start || pattern[end - 1] != b':' {
        return Some(Named::Bracket);
    }
    let inside = match &pattern[start..end - 1] {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase() || (how.fold && byte.is_ascii_lowercase()),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    };
    Some(Named::Class(inside, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_as_in_git() {
        let path = How { path: true, fold: false };
        let cases: [(&str, &str, bool); 28] = [
            ("foo", "foo", true),
            ("*", "foo", true),
            ("*", "foo/bar", false),
            ("**", "foo/bar", true),
            ("**/bar", "bar", true),
            ("**/bar", "a/b/bar", true),
            ("foo/**/bar", "foo/bar", true),
            ("foo/**/bar", "foo/a/b/bar", true),
            ("foo/*/bar", "foo/bar", false),
            ("foo/*/bar", "foo/a/bar", true),
            ("foo/**", "foo", false),
            ("a**b", "a/b", false),
            ("a**b", "axxb", true),
            ("f?o", "f/o", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[[:digit:]]x", "5x", true),
            ("[[:nonsense:]]", "n", false),
            ("[abc", "a", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("*/*.c", "x/y.c", true),
            ("**/a/*b*/c", "x/a/1b2/c", true),
        ];
        for (pattern, text, expected) in cases {
            let found = matches(pattern.as_bytes(), text.as_bytes(), path);
            assert_eq!(found, Some(expected), "{pattern} on {text}");
        }
    }

    #[test]
    fn letters_match_in_both_cases_where_they_should() {
        let fold = How { path: false, fold: true };
        for pattern in ["*.log", "X.LOG", "[w-y].l?g", "[W-Y].lo[[:upper:]]"] {
            assert_eq!(matches(pattern.as_bytes(), b"X.LOG", fold), Some(true), "{pattern}");
        }
        assert_eq!(matches(b"*.log", b"X.LOG", How::default()), Some(false));
    }

    #[test]
    fn a_pattern_made_to_last_is_given_up() {
        let path = How { path: true, fold: false };
        let pattern = b"*a*a*a*a*a*a*a*a*a*a*b";
        assert_ne!(matches(pattern, &[b'a'; 60], path), Some(true));
        let pattern = "**/a/".repeat(20) + "b";
        let text = "a/".repeat(60);
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), path), None);
    }
}
