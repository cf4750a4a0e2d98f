//! Files of `NAME=value` lines: `.env`, and what `env_file` names.

use std::collections::BTreeMap;

use sandboxer_core::Result;

use crate::at::At;
use crate::interpolate::Variables;

/// How the values of a file are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// With quotes, comments and variables.
    Usual,
    /// Everything after the `=`, as it stands.
    Raw,
}

/// The entries of a file; a name without a value stands for what `variables` know by it.
pub(crate) fn parse(
    text: &str,
    format: Format,
    variables: &Variables,
    at: &At,
) -> Result<BTreeMap<String, String>> {
    let mut entries = BTreeMap::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    if rest.contains('\0') {
        return Err(at.refuse("it holds a NUL character", "remove it"));
    }
    let mut line = 0;
    while !rest.is_empty() {
        let before = rest.len();
        line += 1;
        let (entry, after) = entry(rest, format, at, line)?;
        line += rest[..before - after.len()].matches('\n').count().saturating_sub(1);
        rest = after;
        let Some((name, value)) = entry else { continue };
        let at = at.key(&name);
        let value = match value {
            Some(Written::Open(text)) => Some(variables.expand_beside(&text, &entries, &at)?),
            Some(Written::Literal(text)) => Some(text),
            None => variables.get(&name).map(str::to_owned),
        };
        value.and_then(|value| entries.insert(name, value));
    }
    Ok(entries)
}

/// A value as it was written.
enum Written {
    /// With variables in it.
    Open(String),
    /// As it stands.
    Literal(String),
}

type Entry = Option<(String, Option<Written>)>;

/// The first entry of `text`, and what follows it.
fn entry<'t>(text: &'t str, format: Format, at: &At, number: usize) -> Result<(Entry, &'t str)> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let line = line.strip_suffix('\r').unwrap_or(line);
    let bare = line.trim();
    if bare.is_empty() || bare.starts_with('#') {
        return Ok((None, after));
    }
    let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value)));
    let name = name.trim();
    let name = name.strip_prefix("export ").unwrap_or(name).trim();
    if !crate::read::is_variable(name) {
        let what = format!("line {number} does not begin with a variable's name");
        return Err(at.refuse(what, "write `NAME=value`"));
    }
    let Some(value) = value else { return Ok((Some((name.to_owned(), None)), after)) };
    if format == Format::Raw {
        return Ok((Some((name.to_owned(), Some(Written::Literal(value.to_owned())))), after));
    }
    let (value, after) = usual(&text[offset_in(text, value)..], after, at, number)?;
    Ok((Some((name.to_owned(), Some(value))), after))
}

/// Where `value`, a piece of `text`, begins in it.
fn offset_in(text: &str, value: &str) -> usize {
    value.as_ptr() as usize - text.as_ptr() as usize
}

/// A value that may be quoted, over several lines if so.
fn usual<'t>(text: &'t str, next_line: &'t str, at: &At, number: usize) -> Result<(Written, &'t str)> {
    let begun = text.trim_start_matches([' ', '\t']);
    match begun.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (value, rest) = quoted(&begun[1..], quote)
                .ok_or_else(|| at.refuse(format!("the quote in line {number} is not closed"), "close it"))?;
            let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            Ok((if quote == '"' { Written::Open(value) } else { Written::Literal(value) }, rest))
        }
        _ => {
            let line = begun.split('\n').next().unwrap_or("");
            let line = if line.starts_with('#') { "" } else { line.split(" #").next().unwrap_or("") };
            Ok((Written::Open(line.trim().to_owned()), next_line))
        }
    }
}

/// What stands before the closing quote, and what after it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((index, letter)) = letters.next() {
        match letter {
            '\\' if quote == '"' => value.push_str(&escaped(letters.next()?.1)),
            letter if letter == quote => return Some((value, &text[index + 1..])),
            letter => value.push(letter),
        }
    }
    None
}

fn escaped(letter: char) -> String {
    match letter {
        'n' => "\n".to_owned(),
        'r' => "\r".to_owned(),
        't' => "\t".to_owned(),
        '$' => "$$".to_owned(),
        '"' | '\\' | '\'' => letter.to_string(),
        other => format!("\\{other}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> BTreeMap<String, String> {
        let variables = Variables::new([("GIVEN".to_owned(), "g".to_owned())].into());
        parse(text, Format::Usual, &variables, &At::file(".env")).unwrap()
    }

    #[test]
    fn lines_are_read_as_shells_and_compose_programs_do() {
        let text = "# note\n\nA=1\n export B = two words # said\nC='$A #'\nD=\"x\\ny $A\"\nE=\nF=a#b\nG=${A}${GIVEN}\r\n\
            H=\"more\nthan one\" # line\nI=$ 5\nGIVEN\nGONE\nJ=\"\\$A\"\n";
        let read = read(text);
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "$A #"),
            ("D", "x\ny 1"),
            ("E", ""),
            ("F", "a#b"),
            ("G", "1g"),
            ("H", "more\nthan one"),
            ("I", "$ 5"),
            ("GIVEN", "g"),
            ("J", "$A"),
        ];
        for (name, value) in expected {
            assert_eq!(read.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(read.len(), expected.len());
    }

    #[test]
    fn raw_files_are_taken_as_they_stand() {
        let raw = parse("A='$x' # y\n", Format::Raw, &Variables::default(), &At::file("e")).unwrap();
        assert_eq!(raw["A"], "'$x' # y");
    }

    #[test]
    fn what_is_no_such_file_is_refused_with_its_line() {
        for (text, says) in
            [("A=1\nroot:x:0:0\n", "line 2"), ("A=\"x\n", "line 1"), ("a b=c\n", "line 1"), ("A=\0", "NUL")]
        {
            let error = parse(text, Format::Usual, &Variables::default(), &At::file("e")).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn values_that_double_each_other_are_bounded() {
        let mut text = "X0=0123456789\n".to_owned();
        for level in 1..60 {
            text.push_str(&format!("X{level}=${{X{}}}${{X{}}}\n", level - 1, level - 1));
        }
        assert!(parse(&text, Format::Usual, &Variables::default(), &At::file("e")).is_err());
    }
}
