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
    let line = error.location().map(|at| at.line()).filter(|line| *line > 0);
    Error::Config { file: file.to_path_buf(), line, message, hint }
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
pub(crate) fn nearest_word(word: &str, valid: &[&'static str]) -> Option<String> {
    let valid: Vec<String> = valid.iter().map(|word| (*word).to_owned()).collect();
    match resolve::nearest(word, valid.iter()).first() {
        Some(nearest) => Some(format!("did you mean {nearest:?}?")),
        None if valid.is_empty() => None,
        None => Some(format!("valid here: {}", valid.join(", "))),
    }
}
