//! Texts of plugins are told to people and kept in logs: what is secret in them is taken out, and what is endless is cut.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;

/// Shorter values of variables are words like `1` or `true`, and no secrets.
const SHORTEST: usize = 6;
/// Variables that hold no secrets, and are needed to understand a traceback.
const PLACES: [&str; 2] = ["PATH", "PYTHONPATH"];
/// What is in the names of variables that hold secrets.
const SECRET_NAMES: [&str; 8] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY"];
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
    /// The values of `env`, and those of the `inherited` variables whose names look like secrets. Of a value with several lines, each
    /// line is one: texts are looked at line by line.
    pub fn of(env: &BTreeMap<String, String>, inherited: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let mut env = env.clone();
        env.extend(inherited.filter_map(text).filter(|(name, _)| looks_secret(name)));
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
        in_one_piece(&self.taken_out(text))
    }

    /// Takes them out of every text within a value, and leaves it as it is otherwise: paths and lines of code are among them.
    pub fn take_out_of(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.taken_out(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.take_out_of(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.take_out_of(value)),
            _ => {}
        }
    }
}

/// A sentence for people: in one piece that fits a screen, and harmless on a terminal.
pub fn in_one_piece(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut told: String = text.trim().chars().take(LONGEST_TEXT).map(printable).collect();
    if text.trim().chars().nth(LONGEST_TEXT).is_some() {
        told.push('…');
    }
    told
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(env: &[(&str, &str)]) -> Secrets {
        Secrets::of(
            &env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            std::iter::empty(),
        )
    }

    #[test]
    fn what_is_inherited_is_one_by_its_name() {
        let inherited = [("GITHUB_TOKEN", "gh-12345678"), ("HOME", "/home/somebody")];
        let inherited = inherited.into_iter().map(|(name, value)| (name.into(), value.into()));
        let secrets = Secrets::of(&BTreeMap::new(), inherited);
        assert_eq!(secrets.taken_out("gh-12345678 in /home/somebody"), "[GITHUB_TOKEN] in /home/somebody");
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
    fn nothing_but_secrets_is_taken_out_of_values() {
        let mut value = serde_json::json!({"a": [" lead\nnl", "    x = s3cr3t"], "b": 1});
        secrets(&[("A", "s3cr3t")]).take_out_of(&mut value);
        assert_eq!(value, serde_json::json!({"a": [" lead\nnl", "    x = [A]"], "b": 1}));
    }

    #[test]
    fn what_is_told_is_short_and_harmless() {
        let told = secrets(&[]).told(&format!("\x1b[31mred\n{}", "x".repeat(5_000_000)));
        assert!(
            told.starts_with(" [31mred x") && told.ends_with('…') && told.chars().count() == LONGEST_TEXT + 1
        );
    }
}
