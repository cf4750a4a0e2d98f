//! Words for a shell on the other side.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use sandboxer_core::{Error, Result};

/// `word` such that a shell makes exactly this one word of it: all of it in single quotes, save quotes and backslashes, which stand between
/// them behind a backslash. (In POSIX shells a backslash could stay inside; fish, which some log in to, takes it for an escape even there.)
/// A NUL cannot be in a word, and is refused.
pub fn quote(word: impl AsRef<OsStr>) -> Result<OsString> {
    let word = word.as_ref();
    if word.as_bytes().contains(&0) {
        return Err(Error::usage(format!("{word:?} has a NUL byte and can be no word of a command")));
    }
    Ok(quoted(word))
}

/// The same for words that go to the system as arguments, which refuses a NUL by itself.
pub(crate) fn quoted(word: &OsStr) -> OsString {
    let mut quoted = Vec::with_capacity(word.len() + 2);
    quoted.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' | b'\\' => quoted.extend([b'\'', b'\\', *byte, b'\'']),
            plain => quoted.push(*plain),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

/// Several words as one line for a shell.
pub(crate) fn line<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> OsString {
    let words: Vec<OsString> = words.into_iter().map(quoted).collect();
    words.join(OsStr::new(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What a shell makes of the quoted words, each ended by a NUL.
    fn through_a_shell(words: &[Vec<u8>]) -> Vec<u8> {
        let mut script = OsString::from("printf '%s\\0' ");
        script.push(line(words.iter().map(|word| OsStr::from_bytes(word))));
        Command::new("sh").arg("-c").arg(script).output().unwrap().stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_words_come_through_a_shell_as_they_are(
            words in prop::collection::vec(prop::collection::vec(1_u8..=255, 0..40), 1..6)
        ) {
            let expected: Vec<u8> = words.iter().flat_map(|w| w.iter().copied().chain([0])).collect();
            prop_assert_eq!(through_a_shell(&words), expected);
        }
    }

    #[test]
    fn what_shells_look_for_is_nothing_special() {
        let words =
            ["", "'", "\\", "\\'", "$(id)", "`id`", "a\nb", "-n", "!!", "~", "*", "\"", "%s", "a b", "'\\''"];
        let words: Vec<Vec<u8>> = words.iter().map(|w| w.as_bytes().to_vec()).collect();
        let expected: Vec<u8> = words.iter().flat_map(|w| w.iter().copied().chain([0])).collect();
        assert_eq!(through_a_shell(&words), expected);
        assert_eq!(quote("it's\\").unwrap(), "'it'\\''s'\\\\''");
    }

    #[test]
    fn a_nul_is_refused() {
        assert!(quote("a\0b").is_err());
    }
}
