//! The file that is handed over: JSON, which every YAML parser reads alike.

use serde_json::{Map, Value};

/// Largest file that is handed over.
const LARGEST: usize = 8 << 20;

/// The text of the whole file.
pub(super) fn file(
    services: Map<String, Value>,
    networks: &Map<String, Value>,
    volumes: &Map<String, Value>,
) -> Result<String, String> {
    let mut whole = Map::new();
    whole.insert("services".to_owned(), services.into());
    for (section, entries) in [("networks", networks), ("volumes", volumes)] {
        if !entries.is_empty() {
            whole.insert(section.to_owned(), entries.clone().into());
        }
    }
    let whole = sorted(&Value::Object(whole));
    let text = serde_json::to_string_pretty(&whole).map_err(|error| error.to_string())?;
    if text.len() > LARGEST {
        return Err(format!("the resolved file is larger than {} MiB", LARGEST >> 20));
    }
    Ok(printable(&text) + "\n")
}

/// The value with keys in order, whatever maps are made of, and nothing in it left to interpolate.
fn sorted(value: &Value) -> Value {
    match value {
        Value::String(text) => text.replace('$', "$$").into(),
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        other => other.clone(),
    }
}

/// JSON leaves characters as they are that YAML takes for the end of a line, or does not take at all.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_text_survives_every_parser() {
        let odd =
            "yes 22:22 0o17 ~ null \u{85}\u{2028}\u{7f}\u{feff} 😀 é \t \n \" \\ # : - 'x' {a} !t &a *b";
        for text in [odd, "yes", "22:22", "0o17", "", "null", "1e3", "!!str", "<<", "\u{1}"] {
            let services = json!({"a": {"command": [text, "x"]}});
            let written = file(services.as_object().unwrap().clone(), &Map::new(), &Map::new()).unwrap();
            let read = crate::yaml::parse(&written, "x").unwrap();
            assert_eq!(read["services"]["a"]["command"][0], text);
        }
    }

    #[test]
    fn nothing_is_left_to_interpolate() {
        let services = json!({"a": {"image": "$A ${B:-c} $$"}});
        let written = file(services.as_object().unwrap().clone(), &Map::new(), &Map::new()).unwrap();
        assert!(written.contains("\"$$A $${B:-c} $$$$\""), "{written}");
    }
}
