//! Whether a Dockerfile makes the engine itself fetch from the network.
//!
//! `RUN` happens in a container, which can be left without a network. `ADD https://…` happens in the engine, and a
//! `# syntax=` line replaces the program that reads the file. The file is a stranger's, so this does not try to be the
//! engine's parser: a line counts as an instruction wherever one could begin, and what is in doubt counts as fetching.

/// How many lines one instruction may be continued over.
const CONTINUED: usize = 1000;

/// What would be fetched, by which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub line: usize,
    pub what: &'static str,
}

/// The first thing in a Dockerfile that would make the engine fetch.
pub(crate) fn fetch(text: &str) -> Option<Fetch> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').collect();
    (0..lines.len()).find_map(|index| {
        let what = directive(lines[index]).or_else(|| instruction(&lines[index..]))?;
        Some(Fetch { line: index + 1, what })
    })
}

/// A line that tells how the file is to be read.
fn directive(line: &str) -> Option<&'static str> {
    let line = line.trim();
    if line.starts_with("//") || line.starts_with('{') {
        return Some("a line that can replace the program which reads the file");
    }
    let (name, _) = line.strip_prefix('#')?.split_once('=')?;
    match name.trim().to_ascii_lowercase().as_str() {
        "syntax" => Some("`# syntax=`, which fetches the program that reads the file"),
        "escape" => Some("`# escape=`, which hides where lines end"),
        _ => None,
    }
}

/// The instruction that begins with the first of `lines`.
fn instruction(lines: &[&str]) -> Option<&'static str> {
    let first = lines.first()?.trim_start();
    if !first.starts_with(['a', 'A', 'o', 'O', '\\']) {
        return None;
    }
    let Some(whole) = continued(lines) else { return Some("an instruction of more than a thousand lines") };
    let mut words = whole.split_whitespace().peekable();
    let mut word = words.next()?.to_ascii_uppercase();
    while word == "ONBUILD" {
        word = words.next()?.to_ascii_uppercase();
    }
    if word != "ADD" {
        return None;
    }
    while words.next_if(|word| word.starts_with("--")).is_some() {}
    words.any(is_remote).then_some("`ADD` of what may be an address")
}

/// The first of `lines` with those that continue it; comments and empty lines between them do not count.
pub(crate) fn continued(lines: &[&str]) -> Option<String> {
    let mut whole = String::new();
    for (count, line) in lines.iter().enumerate() {
        if count > CONTINUED {
            return None;
        }
        let bare = line.trim();
        if count > 0 && (bare.is_empty() || bare.starts_with('#')) {
            continue;
        }
        let line = if count > 0 { line.trim_end() } else { bare };
        match line.strip_suffix('\\') {
            Some(part) => whole.push_str(part),
            None => {
                whole.push_str(line);
                break;
            }
        }
    }
    Some(whole)
}

/// Whether a source of `ADD` may be an address, once quotes and variables are taken care of.
fn is_remote(word: &str) -> bool {
    let bare: String =
        word.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\' | '[' | ']' | ',')).collect();
    let login = bare.split_once(':').is_some_and(|(before, _)| before.contains('@'));
    word.contains('$') || word.contains("\\u") || bare.contains("://") || login
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_comes_from_the_context_is_not_fetched() {
        let text = "# a comment = nothing\nFROM alpine:3\nARG X=1\nADD --chown=a:b src /x\nADD [\"a b\", \"/x\"]\n\
            COPY . /app\nRUN apk add curl \\\n  && curl https://example.org\nENV ADD=https://x\nADDITION x\nRUN <<EOF\nls\nEOF\n";
        assert_eq!(fetch(text), None);
    }

    #[test]
    fn every_disguise_is_seen_through() {
        let table = [
            ("FROM a\nADD https://x/y /\n", 2),
            ("FROM a\n\n\tadd HTTP://x /\n", 3),
            ("ADD git@github.com:a/b.git /x", 1),
            ("ADD $URL /", 1),
            ("ADD --chown=a:b ${URL} /", 1),
            ("ADD ht\"tp:/\"/x /", 1),
            ("ADD [\"http:\\u002f/x\", \"/\"]", 1),
            ("AD\\\nD http://x /", 1),
            ("ADD a \\\n # said\n\n  http://x /", 1),
            ("ADD a htt\\\np://x /", 1),
            ("ONBUILD ADD http://x /", 1),
            ("onbuild onbuild add http://x /", 1),
            ("#syntax=docker/dockerfile:1\nFROM a", 1),
            ("\u{feff}# SYNTAX = x/y\n", 1),
            ("#!/bin/x\n# syntax=x\n", 2),
            ("// syntax=x\n", 1),
            ("{\"syntax\": \"x\"}", 1),
            ("# escape=`\n", 1),
            ("ADD a\rhttp://x /\r", 1),
            ("AD\\ \r\nD http://x /", 1),
            ("RUN <<E\nx \\\nE\nAD\\\nD http://x /\n", 4),
            ("RUN <<A <<B\nB\nADD http://x /\nA\n", 3),
            ("\\\nADD http://x /", 1),
        ];
        for (text, line) in table {
            assert_eq!(fetch(text).map(|found| found.line), Some(line), "{text:?}");
        }
    }

    #[test]
    fn a_file_of_continuations_is_refused_and_not_read_forever() {
        assert!(fetch(&"\\\n".repeat(400_000)).is_some());
        assert!(fetch(&"ADD a \\\n".repeat(100_000)).is_some());
    }
}
