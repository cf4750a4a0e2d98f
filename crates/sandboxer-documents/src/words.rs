//! Words that sentences and hints are made of: names that can do no harm, counts, sizes, and what a shell takes as one word.

use std::fmt::Write as _;
use std::io;

/// A hostile name for the screen: control characters, invisible and direction-changing ones, and bytes that are not UTF-8
/// become escapes; so does the backslash, so that no name can pretend to hold an escape.
pub fn name(bytes: impl AsRef<[u8]>) -> String {
    escape(bytes.as_ref(), true)
}

/// A sentence that may have a hostile name in it. Like [`name`], but a backslash stays.
pub fn sentence(text: &str) -> String {
    escape(text.as_bytes(), false)
}

/// One line of file content for the screen: tabs and backslashes stay, the rest is escaped as in [`name`].
pub fn content(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|b| *b == b'\t').map(|part| escape(part, false)).collect();
    parts.join("\t")
}

fn escape(bytes: &[u8], backslash: bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut shown, c, backslash);
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

fn push_escaped(shown: &mut String, c: char, backslash: bool) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        '\\' if backslash => shown.push_str("\\\\"),
        c if c.is_ascii_control() => {
            let _ = write!(shown, "\\x{:02x}", c as u32);
        }
        c if c.is_control() || deceives(c) => {
            let _ = write!(shown, "\\u{{{:x}}}", c as u32);
        }
        c => shown.push(c),
    }
}

/// Characters that are not seen or change how others are seen.
fn deceives(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A size in the unit that reads best.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 file`, `2 files`, `2 sandboxes`, `2 processes`, `2 directories`.
pub fn count(n: usize, one: &str) -> String {
    if n == 1 {
        return format!("1 {one}");
    }
    match one.strip_suffix('y') {
        Some(stem) => format!("{n} {stem}ies"),
        None if one.ends_with(['x', 's']) => format!("{n} {one}es"),
        None => format!("{n} {one}s"),
    }
}

/// A word for a shell, quoted if it needs to be: hints are meant to be pasted.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./@:=+,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.chars().any(|c| c.is_control() || deceives(c)) {
        return format!("$'{}'", name(word).replace('\'', "\\'"));
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The system's words without ` (os error 2)`.
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_visible() {
        assert_eq!(name("plain é.txt"), "plain é.txt");
        assert_eq!(name("a\nb\tc\rd"), "a\\nb\\tc\\rd");
        assert_eq!(name("\x1b[2Jx\x7f"), "\\x1b[2Jx\\x7f");
        assert_eq!(name("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(name("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(name("a\u{200b}b\u{2066}c\u{feff}"), "a\\u{200b}b\\u{2066}c\\u{feff}");
        assert_eq!(name(b"bad\xff\xfe!"), "bad\\xff\\xfe!");
        assert_eq!(name("back\\slash"), "back\\\\slash");
        assert_eq!(sentence("no \"a\\n\"\x1b"), "no \"a\\n\"\\x1b");
        assert_eq!(content(b"a\tb\x1b\\"), "a\tb\\x1b\\");
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(2, "directory"), "2 directories");
        assert_eq!(count(0, "sandbox"), "0 sandboxes");
        assert_eq!(count(2, "process"), "2 processes");
    }

    #[test]
    fn shell_words_can_be_pasted() {
        assert_eq!(shell_word("my-proj_1"), "my-proj_1");
        assert_eq!(shell_word("two words"), "'two words'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word("a\nb"), "$'a\\nb'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn sizes_take_one_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
    }
}
