//! YAML into values, with limits.
//!
//! Compose files live from anchors and merge keys, so both are followed, within a budget: what aliases repeat is
//! counted as it is read, by events and by bytes.

use std::cell::Cell;
use std::fmt;

use sandboxer_core::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error as YamlError, MessageFormatter, Options, UserMessageFormatter};

/// How much text and how many values one file may come to when all aliases are followed.
const EXPANDED: usize = 8 << 20;

/// What a value costs beside its text.
const NODE: usize = 64;

/// Reads `text`, the content of `file`.
pub(crate) fn parse(text: &str, file: &str) -> Result<Value> {
    let left = Cell::new(EXPANDED);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |deserializer| {
        Node(&left).deserialize(deserializer)
    });
    read.map_err(|error| explain(&error, file))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 200_000,
            max_nodes: 100_000,
            max_aliases: 2_000,
            max_anchors: 500,
            max_merge_keys: 2_000,
            max_recorded_anchor_events: 50_000,
            max_recorded_anchor_bytes: 4 << 20,
            max_depth: 32,
            max_documents: 1,
            max_total_scalar_bytes: 4 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        // As compose programs read them: `mode: 0440` is octal, and only `true` and `false` are flags.
        legacy_octal_numbers: true,
        strict_booleans: true,
        no_schema: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The parser's answer, with its place.
fn explain(error: &YamlError, file: &str) -> Error {
    let error = error.without_snippet();
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    let (line, column) = error.location().map_or((None, None), |at| (known(at.line()), known(at.column())));
    let (message, hint) = match error {
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("key {:?} appears twice", crate::at::shown(key)), Some("keep one of the two".to_owned()))
        }
        YamlError::QuotingRequired { value, .. } => {
            let value = crate::at::shown(value);
            (format!("{value} is not text here"), Some(format!("if it is meant as text, write \"{value}\"")))
        }
        other => (crate::at::shown(&UserMessageFormatter.format_message(other)), advice(other)),
    };
    Error::Config { file: file.into(), line, column, message, hint }
}

fn advice(error: &YamlError) -> Option<String> {
    let told = error.to_string();
    let of_tags = told.contains("tag");
    let tags = "write it without the tag: `!reset`, `!override` and `!!…` are not followed";
    Some(if of_tags { tags } else { "correct the file there" }.to_owned())
}

/// One value, on account of the file's budget.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Cell<usize>);

impl Node<'_> {
    fn pay<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes.saturating_add(NODE));
        self.0.set(left.ok_or_else(|| E::custom("the file is too large when its aliases are followed"))?);
        Ok(())
    }

    fn text<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        self.pay(text.len())?;
        if text.contains('\0') {
            return Err(E::custom("a NUL character cannot be handed to a container"));
        }
        Ok(text.to_owned())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<Value, E> {
        self.pay(0).map(|()| Value::Bool(flag))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Value, E> {
        self.pay(0).map(|()| number.into())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        self.pay(0).map(|()| number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        self.pay(0)?;
        Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| E::custom("this is not a number to count with"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text).map(Value::String)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.pay(0).map(|()| Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.pay(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    /// The parser refuses equal keys; this refuses keys that are only equal as text.
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.pay(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let key = self.text(&key)?;
            let value = entries.next_value_seed(self)?;
            if map.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("key {key:?} appears twice")));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        parse(text, "x.yml").unwrap()
    }

    fn complaint(text: &str) -> String {
        parse(text, "x.yml").unwrap_err().to_string()
    }

    #[test]
    fn anchors_and_merge_keys_are_followed() {
        let text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\nd:\n  <<: [*a, {z: 1}]\n";
        let value = read(text);
        assert_eq!(value["b"], json!({"x": 1, "y": 3}));
        assert_eq!(value["c"], json!({"x": 1, "y": 2}));
        assert_eq!(value["d"], json!({"x": 1, "y": 2, "z": 1}));
    }

    #[test]
    fn scalars_are_read_as_compose_programs_do() {
        let value = read("a: 0440\nb: yes\nc: true\nd: 22:22\ne: '0440'\nf: ~\ng: 1.5\nh: 0o17\n");
        assert_eq!(
            value,
            json!({"a": 288, "b": "yes", "c": true, "d": "22:22", "e": "0440", "f": null, "g": 1.5, "h": 15})
        );
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        for text in
            ["a: 1\na: 2\n", "a: 1\n'a': 2\n", "8080: 1\n'8080': 2\n", "a: 1\n---\nb: 1\n", "a: .nan\n"]
        {
            assert!(parse(text, "x.yml").is_err(), "{text:?}");
        }
        for tagged in
            ["a: !reset null\n", "a: !override [x]\n", "a: !!python/object:os.system x\n", "a: !x b\n"]
        {
            assert!(parse(tagged, "x.yml").is_err(), "{tagged:?}");
        }
        assert!(complaint("a: \"x\\0y\"\n").contains("NUL"));
        assert!(complaint("a: 1\na: 2\n").contains("x.yml:2"));
    }

    /// The most memory this process has had, in KiB.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn bomb(open: &str, between: &str, close: &str) -> String {
        let mut text = format!("a0: &a0 {open}lol{close}\n");
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 9].join(between);
            text.push_str(&format!("a{level}: &a{level} {open}{inner}{close}\n"));
        }
        text
    }

    #[test]
    fn bombs_are_refused_before_they_grow() {
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(900_000), vec!["*a"; 1900].join(", "));
        let merged: String = (0..1900).map(|n| format!("m{n}: {{<<: *a}}\n")).collect();
        let merged = format!("a: &a {{k: {}}}\n{merged}", "x".repeat(900_000));
        let before = peak_memory();
        for text in [bomb("[", ", ", "]"), long, merged, "[".repeat(100_000), "{a: ".repeat(10_000)] {
            assert!(parse(&text, "x.yml").is_err(), "{}", &text[..40]);
        }
        assert!(peak_memory() - before < 100 * 1024, "{} KiB", peak_memory() - before);
    }
}
