//! Policies in a file of their own, in YAML: `paths`, `not_paths`, `max_files`, `max_bytes`, `kinds`, and `false` for what is
//! not let through at all.

use std::path::Path;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::globs::Globs;
use super::rule::Rule;
use super::{Policy, text};
use crate::config::{Links, located, read_bounded, yaml};
use crate::{Error, Result};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    paths: Option<Spanned<Vec<String>>>,
    not_paths: Option<Spanned<Vec<String>>>,
    max_files: Option<Spanned<u64>>,
    max_bytes: Option<Spanned<Size>>,
    kinds: Option<Spanned<Vec<String>>>,
    deletes: Option<bool>,
    binary: Option<bool>,
    flags: Option<bool>,
    exec: Option<bool>,
    links: Option<bool>,
}

/// A number of bytes, or text with a unit.
struct Size(String);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size such as 500KB or 5MiB")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                Ok(Size(text.to_owned()))
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes.to_string()))
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
                Ok(Size(bytes.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Policy {
    /// Reads a policy file.
    pub fn load(file: &Path) -> Result<Self> {
        Self::from_yaml(&read_bounded(file, Links::Follow)?, file)
    }

    /// Reads `text`, the content of `file`. One that says nothing is an error, since it would let everything pass.
    pub fn from_yaml(text: &str, file: &Path) -> Result<Self> {
        let Some(document) = yaml::parse::<Document>(text, file)? else { return Err(says_nothing(file)) };
        let mut found = Found { file, rules: Vec::new() };
        found.add("paths", document.paths, |list| Ok(Rule::Paths(Globs::new(list)?)))?;
        found.add("not_paths", document.not_paths, |list| Ok(Rule::NotPaths(Globs::new(list)?)))?;
        found.add("max_files", document.max_files, |most| Ok(Rule::MaxFiles(most)))?;
        found.add("max_bytes", document.max_bytes, |most| text::max_bytes(&most.0))?;
        found.add("kinds", document.kinds, |words| text::kinds(&words))?;
        for (allowed, rule) in [
            (document.deletes, Rule::NoDeletes),
            (document.binary, Rule::NoBinary),
            (document.flags, Rule::NoFlags),
            (document.exec, Rule::NoExec),
            (document.links, Rule::NoLinks),
        ] {
            found.rules.extend((allowed == Some(false)).then_some(rule));
        }
        Ok(Self { source: file.display().to_string(), rules: found.rules })
    }
}

struct Found<'a> {
    file: &'a Path,
    rules: Vec<Rule>,
}

impl Found<'_> {
    fn add<T>(
        &mut self,
        key: &str,
        value: Option<Spanned<T>>,
        read: impl FnOnce(T) -> Result<Rule>,
    ) -> Result<()> {
        let Some(spanned) = value else { return Ok(()) };
        let line = Some(spanned.referenced.line()).filter(|line| *line > 0);
        let rule = read(spanned.value).map_err(|error| located(error, key, self.file, line))?;
        self.rules.push(rule);
        Ok(())
    }
}

fn says_nothing(file: &Path) -> Error {
    let hint = "write at least one rule, such as `max_files: 50`";
    Error::Config {
        file: file.to_path_buf(),
        line: None,
        column: None,
        message: "there is no rule".to_owned(),
        hint: Some(hint.to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const EVERYTHING: &str = "\
paths: [\"src/**\", \"tests/**\"]
not_paths:
  - \"*.lock\"
max_files: 50
max_bytes: 1MiB
kinds: [created, modified]
deletes: false
binary: false
flags: false
exec: false
links: false
";

    fn read(text: &str) -> Result<Policy> {
        Policy::from_yaml(text, Path::new("p.yaml"))
    }

    fn complaint(text: &str) -> (Option<u64>, String, Option<String>) {
        match read(text).unwrap_err() {
            Error::Config { line, message, hint, .. } => (line, message, hint),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_says_the_same_as_the_command_line() {
        let written = super::super::text::CLAUSES.iter().map(|(_, example)| *example);
        let typed = Policy::parse(&written.collect::<Vec<_>>().join(";")).unwrap();
        let policy = read(EVERYTHING).unwrap();
        assert_eq!(policy.rules, typed.rules);
        assert_eq!(policy.source, "p.yaml");
    }

    #[test]
    fn true_lets_it_through_and_a_number_is_bytes() {
        assert_eq!(read("deletes: true\nbinary: true\n").unwrap().rules, []);
        assert_eq!(read("max_bytes: 100\n").unwrap().rules, [Rule::MaxBytes(100, "100".into())]);
    }

    #[test]
    fn a_wrong_key_or_value_has_its_line() {
        let (line, message, hint) = complaint("paths: [a]\nmax_file: 3\n");
        assert_eq!((line, message.as_str()), (Some(2), "unknown key \"max_file\""));
        assert_eq!(hint.as_deref(), Some("did you mean \"max_files\"?"));
        for (text, at, says) in [
            ("# x\nmax_bytes: heavy\n", 2, "max_bytes: \"heavy\" is not a size"),
            ("max_bytes: -1\n", 1, "max_bytes: \"-1\" is not a size"),
            ("binary: false\nkinds: [made]\n", 2, "kinds: \"made\" is not a kind of change"),
            ("paths: [\"a[\"]\n", 1, "paths: pattern \"a[\" is not valid"),
            ("paths: []\n", 1, "paths: there is no pattern"),
        ] {
            let (line, message, _) = complaint(text);
            assert_eq!(line, Some(at), "{text:?}");
            assert!(message.starts_with(says), "{text:?}: {message}");
        }
        assert_eq!(complaint("flags: no\n").0, Some(1));
        assert_eq!(complaint("paths: src\n").0, Some(1));
    }

    #[test]
    fn an_empty_file_is_no_policy() {
        for text in ["", "# later\n", "---\n"] {
            assert_eq!(complaint(text).1, "there is no rule");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Policy::load(Path::new("/no/such/policy.yaml")).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if path.ends_with("policy.yaml")), "{error:?}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.yaml");
        std::fs::write(&file, EVERYTHING).unwrap();
        assert_eq!(Policy::load(&file).unwrap().rules.len(), 10);
    }
}
