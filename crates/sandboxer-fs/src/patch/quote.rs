//! Path names as git writes them in a patch: bare where every byte is harmless, otherwise between double quotes with
//! C escapes, so that a name with a newline or a stray byte can neither break the patch nor be lost in it.

use std::io::{self, Write};

/// Writes `prefix` and `path` as one name that ends with its line; quoted if any byte of the path asks for it, or a space
/// at its end, which `patch` would drop.
pub(super) fn write_name(out: &mut dyn Write, prefix: &str, path: &[u8]) -> io::Result<()> {
    let quoted = path.ends_with(b" ") || path.iter().any(|byte| needs_escape(*byte));
    write_quoted_if(quoted, out, prefix, path)
}

/// The same for a name that more follows on its line: a space asks for quotes too.
pub(super) fn write_word(out: &mut dyn Write, prefix: &str, path: &[u8]) -> io::Result<()> {
    write_quoted_if(path.iter().any(|byte| *byte == b' ' || needs_escape(*byte)), out, prefix, path)
}

fn write_quoted_if(quoted: bool, out: &mut dyn Write, prefix: &str, path: &[u8]) -> io::Result<()> {
    let quote: &[u8] = if quoted { b"\"" } else { b"" };
    out.write_all(quote)?;
    out.write_all(prefix.as_bytes())?;
    path.iter().try_for_each(|byte| write_escaped(out, *byte))?;
    out.write_all(quote)
}

/// What git quotes with `core.quotePath` on, its default: control bytes, `"`, `\`, and all that is not ASCII.
fn needs_escape(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || byte == b'"' || byte == b'\\'
}

fn write_escaped(out: &mut dyn Write, byte: u8) -> io::Result<()> {
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        _ if needs_escape(byte) => return write!(out, "\\{byte:03o}"),
        _ => return out.write_all(&[byte]),
    };
    out.write_all(&[b'\\', letter])
}

/// Reads a name that ends with its line, in quotes or bare; `None` if its quotes do not close or hold an unknown escape.
pub(super) fn read_name(text: &[u8]) -> Option<Vec<u8>> {
    if !text.starts_with(b"\"") {
        return Some(text.to_vec());
    }
    read_word(text).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name)
}

/// Reads a name in quotes, and gives what follows them too.
pub(super) fn read_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (byte, after) = read_escaped(rest)?;
                name.push(byte);
                rest = after;
            }
            plain => name.push(*plain),
        }
    }
}

/// Reads what follows a backslash: a letter, or three octal digits.
fn read_escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (letter, rest) = text.split_first()?;
    let byte = match letter {
        b'"' | b'\\' => *letter,
        b'a' => 0x07,
        b'b' => 0x08,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'r' => b'\r',
        b'0'..=b'3' => {
            let digits = std::str::from_utf8(text.get(..3)?).ok()?;
            return Some((u8::from_str_radix(digits, 8).ok()?, &text[3..]));
        }
        _ => return None,
    };
    Some((byte, rest))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_that_make_no_sense_are_no_name() {
        for bad in [r#""open"#, r#""a\q""#, r#""\40""#, r#""\4"#, r#""\"#, r#""a" b"#, r#""\1+1""#] {
            assert_eq!(read_name(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(read_word(br#""a b" c"#), Some((b"a b".to_vec(), &b" c"[..])));
    }

    proptest! {
        #[test]
        fn every_name_is_read_back(name in proptest::collection::vec(any::<u8>(), 1..20), quoted in any::<bool>()) {
            let mut out = Vec::new();
            write_quoted_if(quoted || name.iter().any(|b| needs_escape(*b)), &mut out, "", &name).unwrap();
            prop_assert_eq!(read_name(&out), Some(name));
        }
    }

    fn quoted(prefix: &str, path: &[u8]) -> String {
        let mut out = Vec::new();
        write_name(&mut out, prefix, path).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_names_stay_bare() {
        assert_eq!(quoted("a/", b"src/with space.rs"), "a/src/with space.rs");
        assert_eq!(quoted("", b"~!@#$%^&*()'`"), "~!@#$%^&*()'`");
    }

    #[test]
    fn a_word_cannot_hold_a_space() {
        let mut out = Vec::new();
        write_word(&mut out, "a/", b"with space").unwrap();
        write_word(&mut out, "b/", b"without").unwrap();
        assert_eq!(out, b"\"a/with space\"b/without");
    }

    #[test]
    fn odd_names_are_quoted_as_git_does() {
        assert_eq!(quoted("a/", b"x\ty"), r#""a/x\ty""#);
        assert_eq!(quoted("", b"q\"b\\n\n"), r#""q\"b\\n\n""#);
        assert_eq!(quoted("b/", b"\x07\x08\x0b\x0c\r"), r#""b/\a\b\v\f\r""#);
        assert_eq!(quoted("", b"\x01\x1b\x7f"), r#""\001\033\177""#);
        assert_eq!(quoted("", "é".as_bytes()), r#""\303\251""#);
        assert_eq!(quoted("", b"\xff z"), r#""\377 z""#);
        assert_eq!(quoted("b/", b"end "), r#""b/end ""#);
    }
}
