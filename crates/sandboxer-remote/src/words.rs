//! What programs say, fit to be quoted in an error.

/// How much of what a program complains of is quoted.
const QUOTED: usize = 2_000;

/// The end of what a program said, in one line, without anything that a terminal would obey.
pub(crate) fn last_words(said: &[u8]) -> String {
    lines(said).join("; ")
}

/// The last line that a program has said so far, as tame; as much of it as is complete.
pub fn last_line(said: &[u8]) -> Option<String> {
    let whole = said.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'))?;
    // What is drawn over is one line after the other.
    lines(&said[..whole].iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect::<Vec<_>>())
        .pop()
}

fn lines(said: &[u8]) -> Vec<String> {
    let end = &said[said.len().saturating_sub(QUOTED)..];
    let text = String::from_utf8_lossy(end);
    tame(&text).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Without colours and the like, and without anything else that a terminal would obey.
fn tame(text: &str) -> String {
    let mut tame = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.as_str().starts_with('[') => {
                letters.next();
                letters.find(|letter| ('@'..='~').contains(letter));
            }
            '\n' => tame.push('\n'),
            letter => tame.push(if letter.is_control() { ' ' } else { letter }),
        }
    }
    tame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_tame_and_short() {
        assert_eq!(last_words(b"a\x1b[31mb\r\n\n c\x1b\x07d\x1b[9"), "ab; c  d");
        assert_eq!(last_words(&[b'x'; 5_000]).len(), QUOTED);
    }

    #[test]
    fn the_last_line_is_the_last_whole_one() {
        let last = |said: &str| last_line(said.as_bytes());
        assert_eq!(
            last("Creating a ... \r\n\x1b[1ACreating a ... done\n\nCreat").unwrap(),
            "Creating a ... done"
        );
        assert_eq!(last("10 %\r20 %\r30").unwrap(), "20 %");
        assert_eq!((last("begun"), last("\n"), last("")), (None, None, None));
    }
}
