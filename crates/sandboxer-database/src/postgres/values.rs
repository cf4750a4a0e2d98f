//! Values as text, as the server writes them, to JSON and back; names and literals that cannot break out of their quotes.

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use sandboxer_core::{Error, Result};
use serde_json::{Number, Value, json};

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;

/// What a session has to have set while values are read, so that the same value is always the same text: on a connection of our
/// own as `SET`, in the held session as `SET LOCAL` in a savepoint that is rolled back.
pub const TEXT_FORMS: [(&str, &str); 13] = [
    ("search_path", "pg_catalog"),
    ("datestyle", "ISO, YMD"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
    ("client_encoding", "UTF8"),
    ("lc_monetary", "C"),
    ("xmlbinary", "base64"),
    ("quote_all_identifiers", "off"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("role", "none"),
];

/// The statements that set [`TEXT_FORMS`], for this session (`SET`) or this savepoint (`SET LOCAL`).
pub fn set_text_forms(command: &str) -> String {
    TEXT_FORMS.map(|(name, value)| format!("{command} {name} = {}", literal(value))).join("; ")
}

/// The same in the held session for statements of a user, whose names are found as usual.
pub fn set_value_forms() -> String {
    let forms = TEXT_FORMS.iter().filter(|(name, _)| !["search_path", "role"].contains(name));
    forms.map(|(name, value)| format!("SET LOCAL {name} = {}", literal(value))).collect::<Vec<_>>().join("; ")
}

/// A value of a type, given by the type's number in a row description, as JSON. What JSON cannot say exactly stays text.
pub fn to_json(type_oid: u32, text: Option<&str>) -> Value {
    let Some(text) = text else { return Value::Null };
    known(type_oid, text).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn known(type_oid: u32, text: &str) -> Option<Value> {
    match type_oid {
        BOOL => Some(Value::Bool(text == "t" || text == "true")),
        INT2 | INT4 | INT8 | OID => text.parse::<i64>().ok().map(Value::from),
        FLOAT4 | FLOAT8 => text.parse().ok().and_then(Number::from_f64).map(Value::Number),
        BYTEA => {
            HEXLOWER.decode(text.strip_prefix("\\x")?.as_bytes()).ok().map(|bytes| bytes_to_json(&bytes))
        }
        _ => None,
    }
}

fn bytes_to_json(bytes: &[u8]) -> Value {
    json!({ "b64": BASE64.encode(bytes) })
}

/// A JSON value as a literal of a type, which is written as the catalog writes it (`character varying(20)`).
pub fn from_json(value: &Value, type_name: &str) -> Result<String> {
    match value {
        Value::Null => Ok(format!("NULL::{type_name}")),
        Value::String(text) => typed(text, type_name),
        Value::Object(object) => match object.get("b64").and_then(Value::as_str) {
            Some(text) if object.len() == 1 => bytes_literal(text, type_name),
            _ => typed(&value.to_string(), type_name),
        },
        other => typed(&other.to_string(), type_name),
    }
}

/// A part of a key in its text form as a literal of a type.
pub fn from_key(text: &str, type_name: &str) -> Result<String> {
    if type_name == "bytea" { bytes_literal(text, type_name) } else { typed(text, type_name) }
}

fn bytes_literal(base64: &str, type_name: &str) -> Result<String> {
    let bytes = BASE64.decode(base64.as_bytes()).map_err(|problem| Error::Usage {
        message: format!("{base64:?} is not base64: {problem}"),
        hint: Some("write bytes as {\"b64\": \"…\"}".to_owned()),
    })?;
    typed(&format!("\\x{}", HEXLOWER_PERMISSIVE.encode(&bytes)), type_name)
}

fn typed(text: &str, type_name: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::usage("PostgreSQL keeps no text with a zero byte in it"));
    }
    Ok(format!("{}::{type_name}", literal(text)))
}

/// A text as a literal that means the same whatever `standard_conforming_strings` is.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// A name in quotes.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
