//! Values of a compose file as what they should be, or a refusal that says what was expected.

use sandboxer_core::Result;
use serde_json::{Map, Value};

use crate::at::{At, shown};

/// What a value is, in a word.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn expected(value: &Value, what: &str, at: &At) -> sandboxer_core::Error {
    at.refuse(format!("{what} is expected here, not {}", kind(value)), format!("write {what}"))
}

/// Text; numbers are taken for it.
pub(crate) fn text(value: &Value, at: &At) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(expected(other, "text", at)),
    }
}

/// Text, a number, true or false, as text.
pub(crate) fn scalar(value: &Value, at: &At) -> Result<String> {
    match value {
        Value::Bool(flag) => Ok(flag.to_string()),
        other => text(other, at),
    }
}

/// True or false, also as a variable gives it.
pub(crate) fn flag(value: &Value, at: &At) -> Result<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(expected(other, "true or false", at)),
    }
}

/// A whole number, also as a variable gives it.
pub(crate) fn integer(value: &Value, at: &At) -> Result<i64> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| expected(value, "a whole number", at))
}

/// Any number that can be counted with.
pub(crate) fn number(value: &Value, at: &At) -> Result<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite()).ok_or_else(|| expected(value, "a number", at))
}

/// A mapping.
pub(crate) fn map<'v>(value: &'v Value, at: &At) -> Result<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| expected(value, "a mapping", at))
}

/// A list.
pub(crate) fn list<'v>(value: &'v Value, at: &At) -> Result<&'v [Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| expected(value, "a list", at))
}

/// A list of texts, or one text in place of a list of one.
pub(crate) fn texts(value: &Value, at: &At) -> Result<Vec<String>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| text(item, &at.item(index))).collect()
        }
        one => text(one, at).map(|one| vec![one]),
    }
}

/// Bytes: a number, or one with a unit.
pub(crate) fn bytes(value: &Value, at: &At) -> Result<u64> {
    let text = text(value, at)?;
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    let amount = digits.trim().parse::<f64>().ok().filter(|amount| *amount >= 0.0 && amount.is_finite());
    match (amount, shift) {
        (Some(amount), Some(shift)) if amount * ((1_u64 << shift) as f64) < 1e18 => {
            Ok((amount * (1_u64 << shift) as f64) as u64)
        }
        _ => Err(at.refuse(format!("{:?} is not a size", shown(&text)), "write it as `512m` or `2g`")),
    }
}

/// A length of time, in milliseconds.
pub(crate) fn milliseconds(value: &Value, at: &At) -> Result<u64> {
    let text = text(value, at)?;
    spelled(text.trim()).ok_or_else(|| {
        at.refuse(format!("{:?} is not a length of time", shown(&text)), "write it as `30s` or `1m30s`")
    })
}

fn spelled(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let amount: f64 = rest[..end].parse().ok()?;
        let units =
            [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)];
        let (unit, each) = units.iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        total += amount * each;
        rest = &rest[end + unit.len()..];
    }
    (!text.is_empty() && total < 1e12).then_some(total as u64)
}

/// Whether it can be the name of a variable in a container's environment.
pub(crate) fn is_variable(name: &str) -> bool {
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || matches!(letter, '=' | '$' | ':');
    !name.is_empty() && name.len() <= 256 && !name.starts_with('-') && !name.contains(odd)
}

/// Whether it can be the name of a label.
pub(crate) fn is_label(name: &str) -> bool {
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || matches!(letter, '=' | '$' | '"');
    !name.is_empty() && name.len() <= 256 && !name.starts_with('-') && !name.contains(odd)
}

/// Whether it can be the name of a service, a network, a volume.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(fits)
}

/// Refuses keys beyond the known ones; those for extensions are nobody's business.
pub(crate) fn known_keys(map: &Map<String, Value>, known: &[&str], at: &At) -> Result<()> {
    match map.keys().find(|key| !key.starts_with("x-") && !known.contains(&key.as_str())) {
        Some(odd) => Err(at.unknown("the key", odd, known)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        let at = At::file("x");
        for (value, size) in
            [(json!("512m"), 512 << 20), (json!("1.5g"), 3 << 29), (json!(7), 7), (json!("2KB"), 2048)]
        {
            assert_eq!(bytes(&value, &at).unwrap(), size);
        }
        for wrong in [json!("many"), json!("-1"), json!("1x"), json!(null), json!("9999999t"), json!("1e400")]
        {
            assert!(bytes(&wrong, &at).is_err(), "{wrong}");
        }
        for (value, time) in
            [(json!("1m30s"), 90_000), (json!("500ms"), 500), (json!(3), 3000), (json!("1.5s"), 1500)]
        {
            assert_eq!(milliseconds(&value, &at).unwrap(), time);
        }
        for wrong in [json!("soon"), json!(""), json!("s"), json!("-1s"), json!("1d"), json!("1h2")] {
            assert!(milliseconds(&wrong, &at).is_err(), "{wrong}");
        }
    }
}
