//! What programs say, fit to be quoted in an error.

/// How much of what a program complains of is quoted.
const QUOTED: usize = 2_000;

/// The end of what a program said, in one line, without anything that a terminal would obey.
pub(crate) fn last_words(said: &[u8]) -> String {
    let end = &said[said.len().saturating_sub(QUOTED)..];
    let text = String::from_utf8_lossy(end);
    let tame: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    let lines: Vec<&str> = tame.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_tame_and_short() {
        assert_eq!(last_words(b"a\x1b[31mb\r\n\n c\n"), "a [31mb; c");
        assert_eq!(last_words(&[b'x'; 5_000]).len(), QUOTED);
    }
}
