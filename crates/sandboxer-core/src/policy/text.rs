//! Policies as they are typed: `paths=src/**,tests/**; max-files=50; no-flags`.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::Policy;
use super::globs::Globs;
use super::rule::Rule;
use crate::config::{nearest_word, parse_size};
use crate::model::DiffKind;
use crate::{Error, Result};

/// Where such a policy was written.
const SOURCE: &str = "--if";

/// Every rule by the word it begins with, and an example of it.
pub(super) const CLAUSES: &[(&str, &str)] = &[
    ("paths", "paths=src/**,tests/**"),
    ("not-paths", "not-paths=*.lock"),
    ("max-files", "max-files=50"),
    ("max-bytes", "max-bytes=1MiB"),
    ("kinds", "kinds=created,modified"),
    ("no-deletes", "no-deletes"),
    ("no-binary", "no-binary"),
    ("no-flags", "no-flags"),
    ("no-exec", "no-exec"),
    ("no-links", "no-links"),
];

const KINDS: &[&str] = &["created", "modified", "deleted", "renamed", "metadata", "type"];

impl Policy {
    /// Reads clauses separated by `;`. One that says nothing is an error: it would be an unset variable of a script, and
    /// would let everything pass.
    pub fn parse(text: &str) -> Result<Self> {
        let mut rules = Vec::new();
        let mut seen = Vec::new();
        for clause in text.split(';').map(str::trim).filter(|clause| !clause.is_empty()) {
            let word = clause.split('=').next().unwrap_or_default().trim();
            if seen.contains(&word) {
                let hint = Some("separate several values of one rule by commas".to_owned());
                return Err(Error::Usage { message: format!("{word:?} is given twice"), hint });
            }
            seen.push(word);
            rules.push(clause_of(clause)?);
        }
        if rules.is_empty() {
            let hint = Some(format!("write rules separated by `;`: {}", all_words()));
            return Err(Error::Usage { message: "there is no rule".to_owned(), hint });
        }
        Ok(Self { source: SOURCE.to_owned(), rules })
    }
}

fn clause_of(clause: &str) -> Result<Rule> {
    let (word, value) = match clause.split_once('=') {
        Some((word, value)) => (word.trim(), Some(value.trim())),
        None => (clause, None),
    };
    let simple = match word {
        "no-deletes" => Rule::NoDeletes,
        "no-binary" => Rule::NoBinary,
        "no-flags" => Rule::NoFlags,
        "no-exec" => Rule::NoExec,
        "no-links" => Rule::NoLinks,
        _ => return valued(word, value),
    };
    match value {
        None => Ok(simple),
        Some(_) => Err(misused(word, "takes no value")),
    }
}

fn valued(word: &str, value: Option<&str>) -> Result<Rule> {
    if !CLAUSES.iter().any(|(known, _)| *known == word) {
        return Err(unknown(word));
    }
    let value = value.filter(|value| !value.is_empty()).ok_or_else(|| misused(word, "needs a value"))?;
    match word {
        "paths" => Ok(Rule::Paths(Globs::new(listed(value))?)),
        "not-paths" => Ok(Rule::NotPaths(Globs::new(listed(value))?)),
        "max-bytes" => max_bytes(value),
        "max-files" => value.parse().map(Rule::MaxFiles).map_err(|_| misused(word, "needs a whole number")),
        _ => kinds(&listed(value)),
    }
}

/// The values between commas; those within braces belong to one pattern.
fn listed(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).collect()
}

/// A limit of bytes as it was written.
pub(super) fn max_bytes(text: &str) -> Result<Rule> {
    Ok(Rule::MaxBytes(parse_size(text)?, text.to_owned()))
}

/// The kinds of changes that are let through.
pub(super) fn kinds(words: &[String]) -> Result<Rule> {
    words.iter().map(|word| kind(word)).collect::<Result<_>>().map(Rule::Kinds)
}

fn kind(word: &str) -> Result<DiffKind> {
    let words: StrDeserializer<'_, ValueError> = word.into_deserializer();
    DiffKind::deserialize(words).map_err(|_| Error::Usage {
        message: format!("{word:?} is not a kind of change"),
        hint: nearest_word(word, KINDS),
    })
}

fn misused(word: &str, how: &str) -> Error {
    let example = CLAUSES.iter().find(|(known, _)| *known == word).map_or(word, |(_, example)| example);
    Error::Usage { message: format!("{word:?} {how}"), hint: Some(format!("write it as in `{example}`")) }
}

fn unknown(word: &str) -> Error {
    let words: Vec<&str> = CLAUSES.iter().map(|(word, _)| *word).collect();
    let near = nearest_word(word, &words).filter(|hint| hint.starts_with("did you mean"));
    let list = format!("the rules are {}", all_words());
    let hint = near.map_or(list.clone(), |near| format!("{near} {list}"));
    Error::Usage { message: format!("unknown rule {word:?}"), hint: Some(hint) }
}

fn all_words() -> String {
    CLAUSES.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> (String, String) {
        match Policy::parse(text).unwrap_err() {
            Error::Usage { message, hint } => (message, hint.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_clause_is_read_and_written_alike() {
        for (word, example) in CLAUSES {
            let policy = Policy::parse(example).unwrap();
            assert_eq!(policy.rules.len(), 1);
            assert_eq!(policy.rules[0].to_string(), *example, "{word}");
        }
        let all: Vec<&str> = CLAUSES.iter().map(|(_, example)| *example).collect();
        assert_eq!(Policy::parse(&all.join(" ; ")).unwrap().rules.len(), CLAUSES.len());
    }

    #[test]
    fn spaces_and_a_last_semicolon_are_forgiven() {
        let policy = Policy::parse("  paths = src/** , tests/** ;no-flags; ").unwrap();
        let written: Vec<String> = policy.rules.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["paths=src/**,tests/**", "no-flags"]);
        assert_eq!(policy.source, "--if");
    }

    #[test]
    fn braces_keep_their_commas() {
        assert_eq!(listed("src/*.{rs,toml}, docs"), ["src/*.{rs,toml}", "docs"]);
        assert_eq!(listed("a},b"), ["a}", "b"]);
    }

    #[test]
    fn kinds_are_those_of_a_difference() {
        for word in KINDS {
            let Rule::Kinds(kinds) = kinds(&[(*word).to_owned()]).unwrap() else { panic!("{word}") };
            assert_eq!(super::super::rule::kind_name(kinds[0]), *word);
        }
        let (message, hint) = complaint("kinds=created,modifed");
        assert_eq!(message, "\"modifed\" is not a kind of change");
        assert_eq!(hint, "did you mean \"modified\"?");
    }

    #[test]
    fn an_unknown_clause_gets_the_nearest_word_and_the_list() {
        let (message, hint) = complaint("no-flags; max-file=3");
        assert_eq!(message, "unknown rule \"max-file\"");
        assert!(hint.starts_with("did you mean \"max-files\"? the rules are paths, not-paths,"), "{hint}");
        let (message, hint) = complaint("zzzzzz");
        assert_eq!(message, "unknown rule \"zzzzzz\"");
        assert!(hint.starts_with("the rules are paths"), "{hint}");
    }

    #[test]
    fn a_value_is_there_where_it_belongs() {
        for (text, says) in [
            ("paths", "\"paths\" needs a value"),
            ("paths=", "\"paths\" needs a value"),
            ("max-files=few", "\"max-files\" needs a whole number"),
            ("max-files=-1", "\"max-files\" needs a whole number"),
            ("no-flags=true", "\"no-flags\" takes no value"),
            ("max-bytes=1 parsec", "\"1 parsec\" is not a size"),
            ("paths=a; paths=b", "\"paths\" is given twice"),
            ("paths=a,,b", "\"\" is not a pattern"),
            ("", "there is no rule"),
            (" ; ", "there is no rule"),
        ] {
            let (message, hint) = complaint(text);
            assert_eq!(message, says, "{text:?}");
            assert!(!hint.is_empty(), "{text:?}");
        }
    }
}
