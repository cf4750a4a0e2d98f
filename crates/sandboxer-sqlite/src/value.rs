//! Values as SQLite has them, and as JSON says them.

use std::hash::{Hash, Hasher};

use data_encoding::BASE64;
use sandboxer_core::model::Row;
use serde_json::{Value as Json, json};

/// One value, with the type that SQLite stores it with. Equal means the same in every bit: `1` is not `1.0`.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A floating-point number; never NaN, which SQLite stores as NULL.
    Real(f64),
    /// Text as its bytes: nothing in SQLite makes sure that they are UTF-8.
    Text(Vec<u8>),
    /// Bytes.
    Blob(Vec<u8>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) | (Self::Blob(a), Self::Blob(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Integer(value) => value.hash(state),
            Self::Real(value) => value.to_bits().hash(state),
            Self::Text(bytes) | Self::Blob(bytes) => bytes.hash(state),
        }
    }
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into().into_bytes())
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The integer that it is.
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(value) = self { Some(*value) } else { None }
    }

    /// The text that it is; lossy where that is not UTF-8.
    pub fn as_text(&self) -> Option<String> {
        if let Self::Text(bytes) = self { Some(String::from_utf8_lossy(bytes).into_owned()) } else { None }
    }

    /// As JSON: bytes are `{"b64": …}`, text that is not UTF-8 is `{"b64": …, "type": "text"}`, and an infinite number is
    /// `{"real": "Infinity"}` or `{"real": "-Infinity"}`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Integer(value) => json!(value),
            Self::Real(value) if value.is_finite() => json!(value),
            Self::Real(value) => json!({"real": if *value > 0.0 { "Infinity" } else { "-Infinity" }}),
            Self::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => json!(text),
                Err(_) => json!({"b64": BASE64.encode(bytes), "type": "text"}),
            },
            Self::Blob(bytes) => json!({"b64": BASE64.encode(bytes)}),
        }
    }

    /// The value that some JSON says; `None` where it says none. The inverse of [`Value::to_json`]; booleans are 0 and 1.
    pub fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::Null => Some(Self::Null),
            Json::Bool(value) => Some(Self::Integer((*value).into())),
            Json::Number(number) => {
                number.as_i64().map(Self::Integer).or_else(|| number.as_f64().map(Self::Real))
            }
            Json::String(text) => Some(Self::text(text.as_str())),
            Json::Object(object) => from_object(object),
            Json::Array(_) => None,
        }
    }
}

fn from_object(object: &serde_json::Map<String, Json>) -> Option<Value> {
    match object.get("real").and_then(Json::as_str) {
        Some("Infinity") => return Some(Value::Real(f64::INFINITY)),
        Some("-Infinity") => return Some(Value::Real(f64::NEG_INFINITY)),
        _ => {}
    }
    let bytes = BASE64.decode(object.get("b64")?.as_str()?.as_bytes()).ok()?;
    let is_text = object.get("type").and_then(Json::as_str) == Some("text");
    Some(if is_text { Value::Text(bytes) } else { Value::Blob(bytes) })
}

/// A row of named columns as JSON has it.
pub fn to_row(columns: &[String], values: &[Value]) -> Row {
    columns.iter().cloned().zip(values.iter().map(Value::to_json)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_says_every_value_exactly() {
        let values = [
            Value::Null,
            Value::Integer(i64::MAX),
            Value::Integer((1 << 53) + 1),
            Value::Real(0.1),
            Value::Real(1.0),
            Value::Real(-0.0),
            Value::Real(f64::INFINITY),
            Value::Real(f64::NEG_INFINITY),
            Value::text("a\0b"),
            Value::Text(vec![0xff, 0x61]),
            Value::Blob(vec![0, 1, 255]),
            Value::Blob(Vec::new()),
        ];
        for value in values {
            let text = serde_json::to_string(&value.to_json()).unwrap();
            let json: Json = serde_json::from_str(&text).unwrap();
            assert_eq!(Value::from_json(&json).unwrap(), value, "{text}");
        }
        assert_ne!(Value::Integer(1), Value::Real(1.0));
        assert_eq!(Value::from_json(&json!([1])), None);
    }
}
