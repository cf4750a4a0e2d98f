//! Texts of plugins are told to people and kept in logs: what is secret in them is taken out, and what is endless is cut.

use std::collections::BTreeMap;

use serde_json::Value;

/// Shorter values of variables are words like `1` or `true`, and no secrets.
const SHORTEST: usize = 6;
/// Variables that hold no secrets, and are needed to understand a traceback.
const PLACES: [&str; 2] = ["PATH", "PYTHONPATH"];
/// How much of a text is told.
const LONGEST_TEXT: usize = 2_000;

/// How much of what makes no sense is quoted.
const QUOTED: usize = 60;

/// What may not be told: the values of the variables that a plugin is given.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Value and name, the longest first: one may be part of another.
    values: Vec<(String, String)>,
}

impl Secrets {
    /// The values of `env`. Of a value with several lines, each line is one: texts are looked at line by line.
    pub fn of(env: &BTreeMap<String, String>) -> Self {
        let is_secret = |(name, _): &(&String, &String)| !PLACES.contains(&name.as_str());
        let lines = |(name, value): (&String, &String)| {
            value.lines().map(|line| (line.trim().to_owned(), name.clone())).collect::<Vec<_>>()
        };
        let mut values: Vec<_> = env.iter().filter(is_secret).flat_map(lines).collect();
        values.retain(|(value, _)| value.len() >= SHORTEST);
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// The length of the longest.
    pub fn longest(&self) -> usize {
        self.values.first().map_or(0, |(value, _)| value.len())
    }

    /// The text without them.
    pub fn taken_out(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (value, name) in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), &format!("[{name}]"));
            }
        }
        text
    }

    /// The beginning of a text without them, as a quotation.
    pub fn quoted(&self, text: &str) -> String {
        self.taken_out(text).chars().take(QUOTED).collect()
    }

    /// The text as it is told to people: without secrets, in one piece that fits a screen, and harmless on a terminal.
    pub fn told(&self, text: &str) -> String {
        let text = self.taken_out(text);
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let mut told: String = text.trim().chars().take(LONGEST_TEXT).map(printable).collect();
        if text.trim().chars().nth(LONGEST_TEXT).is_some() {
            told.push('…');
        }
        told
    }

    /// The same for every text within a value.
    pub fn told_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.told(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.told_in(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.told_in(value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(env: &[(&str, &str)]) -> Secrets {
        Secrets::of(&env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn values_are_taken_out_by_name_the_longest_first() {
        let secrets =
            secrets(&[("A", "s3cr3t"), ("B", "s3cr3t-and-more"), ("C", "1"), ("PYTHONPATH", "/opt/modules")]);
        assert_eq!(secrets.taken_out("s3cr3t-and-more s3cr3t 1 /opt/modules"), "[B] [A] 1 /opt/modules");
        assert_eq!(secrets.longest(), 15);
    }

    #[test]
    fn every_line_of_a_key_is_one() {
        let secrets = secrets(&[("KEY", "-----BEGIN-----\nabcdefgh\n-----END-----\n")]);
        assert_eq!(secrets.taken_out("it is abcdefgh"), "it is [KEY]");
    }

    #[test]
    fn what_is_told_is_short_and_harmless() {
        let told = secrets(&[]).told(&format!("\x1b[31mred\n{}", "x".repeat(5_000_000)));
        assert!(
            told.starts_with(" [31mred x") && told.ends_with('…') && told.chars().count() == LONGEST_TEXT + 1
        );
        let mut value = serde_json::json!({"a": ["\u{7}x"], "b": 1});
        secrets(&[]).told_in(&mut value);
        assert_eq!(value, serde_json::json!({"a": [" x"], "b": 1}));
    }
}
