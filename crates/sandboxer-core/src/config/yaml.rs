//! YAML into types, with limits, and with errors that name file, line and the nearest valid word.
//!
//! Every YAML file read here may come from a stranger's repository, so the limits are those of a configuration file:
//! few anchors, few aliases, and an expansion that stays small whatever they refer to.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Error as YamlError, MessageFormatter, Options, UserMessageFormatter};

use crate::{Error, Result, resolve};

/// Reads `text`, the content of `file`. A file without content is `None`.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Result<Option<T>> {
    serde_saphyr::from_str_with_options::<Option<T>>(text, options()).map_err(|error| explain(&error, file))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000,
            max_nodes: 50_000,
            max_aliases: 100,
            max_anchors: 100,
            max_recorded_anchor_events: 10_000,
            max_recorded_anchor_bytes: 1 << 20,
            max_depth: 32,
            max_documents: 1,
            max_total_scalar_bytes: 4 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 16,
        },
        merge_keys: MergeKeyPolicy::Error,
        no_schema: true,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The parser's answer in our terms.
fn explain(error: &YamlError, file: &Path) -> Error {
    let error = error.without_snippet();
    let (message, hint) = match error {
        YamlError::SerdeUnknownField { field, expected, .. } => unknown_field(field, expected),
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("unknown value {variant:?}"), nearest_word(variant, expected))
        }
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("key {key:?} appears twice"), Some("keep one of the two".to_owned()))
        }
        YamlError::QuotingRequired { value, .. } => {
            (format!("{value} is not text here"), Some(format!("if it is meant as text, write \"{value}\"")))
        }
        YamlError::AliasError { error, .. } => (plain_message(error), None),
        other => (plain_message(other), None),
    };
    let (line, column) = place(error);
    Error::Config { file: file.to_path_buf(), line, column, message, hint }
}

/// Line and column, from 1; what the parser does not know is none.
fn place(error: &YamlError) -> (Option<u64>, Option<u64>) {
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    error.location().map_or((None, None), |at| (known(at.line()), known(at.column())))
}

/// The formatter leaves control characters of the file in place; they must not reach a terminal.
fn plain_message(error: &YamlError) -> String {
    UserMessageFormatter
        .format_message(error)
        .escape_debug()
        .to_string()
        .replace("\\\"", "\"")
        .replace("\\'", "'")
}

fn unknown_field(field: &str, expected: &[&'static str]) -> (String, Option<String>) {
    let message = format!("unknown key {field:?}");
    if let Some((section, rest)) = field.split_once('.')
        && expected.contains(&section)
    {
        return (message, Some(format!("write it nested: {section:?}, and below it {rest:?}")));
    }
    (message, nearest_word(field, expected))
}

/// “did you mean …”, or all valid words where none comes near.
pub(crate) fn nearest_word(word: &str, valid: &[&str]) -> Option<String> {
    let valid: Vec<String> = valid.iter().map(|word| (*word).to_owned()).collect();
    match resolve::nearest(word, valid.iter()).first() {
        Some(nearest) => Some(format!("did you mean {nearest:?}?")),
        None if valid.is_empty() => None,
        None => Some(format!("valid here: {}", valid.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        colour: Option<Colour>,
        size: Option<u32>,
        name: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Colour {
        Green,
        DarkRed,
    }

    /// Line, message and hint of the error that `text` gives.
    fn complaint<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> (Option<u64>, String, Option<String>) {
        match parse::<T>(text, Path::new("/etc/x.yaml")).unwrap_err() {
            Error::Config { file, line, message, hint, .. } => {
                assert_eq!(file, Path::new("/etc/x.yaml"));
                (line, message, hint)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_and_comments_are_no_document() {
        for empty in ["", "\n", "# only a comment\n", "---\n", "null\n"] {
            assert!(parse::<Sample>(empty, Path::new("x")).unwrap().is_none(), "{empty:?}");
        }
        let sample = parse::<Sample>("colour: dark-red\nsize: 3\n", Path::new("x")).unwrap().unwrap();
        assert!(matches!(sample, Sample { colour: Some(Colour::DarkRed), size: Some(3), name: None }));
        let green = parse::<Sample>("colour: green\n", Path::new("x")).unwrap().unwrap();
        assert!(matches!(green.colour, Some(Colour::Green)));
    }

    #[test]
    fn an_unknown_key_has_its_line_and_the_nearest_word() {
        let (line, message, hint) = complaint::<Sample>("# first\nsize: 1\ncolor: green\n");
        assert_eq!(line, Some(3));
        assert_eq!(message, "unknown key \"color\"");
        assert_eq!(hint.as_deref(), Some("did you mean \"colour\"?"));
        let (_, _, hint) = complaint::<Sample>("zzz: 1\n");
        assert_eq!(hint.as_deref(), Some("valid here: colour, size, name"));
    }

    #[test]
    fn the_column_is_told_too() {
        let text = parse::<Sample>("size: 1\ncolour: gren\n", Path::new("x.yaml")).unwrap_err().to_string();
        assert_eq!(text, "x.yaml:2:9: unknown value \"gren\"");
    }

    #[test]
    fn a_dotted_key_is_told_to_nest() {
        let (_, message, hint) = complaint::<Sample>("colour.shade: 1\n");
        assert_eq!(message, "unknown key \"colour.shade\"");
        assert_eq!(hint.as_deref(), Some("write it nested: \"colour\", and below it \"shade\""));
    }

    #[test]
    fn wrong_values_have_their_line() {
        let table = [
            ("size: 1\ncolour: gren\n", 2, "unknown value \"gren\"", Some("did you mean \"green\"?")),
            ("size: 1\nsize: 2\n", 2, "key \"size\" appears twice", Some("keep one of the two")),
            ("\nname: 12\n", 2, "12 is not text here", Some("if it is meant as text, write \"12\"")),
        ];
        for (text, at, says, advises) in table {
            let (line, message, hint) = complaint::<Sample>(text);
            assert_eq!((line, message.as_str(), hint.as_deref()), (Some(at), says, advises), "{text:?}");
        }
        for text in
            ["size: many\n", "size: [1]\n", "name: {a: b}\n", "- 1\n", "size: 1\n: x\n  y", "a: b: c\n"]
        {
            let (line, message, _) = complaint::<Sample>(text);
            assert!(line.is_some() && !message.is_empty(), "{text:?}: {message}");
        }
    }

    #[test]
    fn one_document_without_tags_or_merges() {
        for text in ["size: 1\n---\nsize: 2\n", "size: !custom 1\n", "a: &a {size: 1}\n<<: *a\n"] {
            assert!(parse::<BTreeMap<String, Value>>(text, Path::new("x")).is_err(), "{text:?}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_message() {
        let (_, message, _) = complaint::<Sample>("\"a\\e[31m\": 1\n");
        assert!(!message.contains('\u{1b}'), "{message:?}");
        let (_, message, _) = complaint::<Sample>("size: *\u{9b}x\n");
        assert!(!message.contains('\u{9b}'), "{message:?}");
    }

    #[test]
    fn a_few_aliases_are_fine() {
        let text = "a: &list [x, y]\nb: *list\nc: *list\n";
        let parsed = parse::<BTreeMap<String, Value>>(text, Path::new("x")).unwrap().unwrap();
        assert_eq!(parsed["c"], serde_json::json!(["x", "y"]));
        assert!(complaint::<Sample>("name: &a x\nsize: *a\n").0.is_some());
    }

    /// The most memory this process has had, in KiB.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn an_alias_bomb_is_refused_before_it_grows() {
        let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        let before = peak_memory();
        assert!(parse::<BTreeMap<String, Value>>(&bomb, Path::new("x")).is_err());
        assert!(peak_memory() - before < 100 * 1024);
    }

    #[test]
    fn deep_nesting_is_refused() {
        for deep in ["[".repeat(10_000), "a: ".repeat(3) + &"{a: ".repeat(200)] {
            assert!(parse::<BTreeMap<String, Value>>(&deep, Path::new("x")).is_err());
        }
    }
}
