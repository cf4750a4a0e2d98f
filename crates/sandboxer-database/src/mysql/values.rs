//! Values of the server as JSON, and back.
//!
//! They are read by the binary protocol: its numbers are exact, where the textual one rounds a FLOAT to six digits.

use data_encoding::BASE64;
use mysql::Value as Raw;
use mysql::consts::ColumnType;
use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};
use serde_json::{Number, Value, json};

/// The number of the character set that means bytes.
const BINARY: u16 = 63;

/// A row as it came, with the columns' names.
pub(super) fn row_of(row: mysql::Row) -> Row {
    let columns = row.columns();
    let values = row.unwrap();
    columns
        .iter()
        .zip(values)
        .map(|(column, raw)| (column.name_str().into_owned(), value_of(column, raw)))
        .collect()
}

pub(super) fn value_of(column: &mysql::Column, raw: Raw) -> Value {
    match raw {
        Raw::NULL => Value::Null,
        Raw::Int(number) => json!(number),
        Raw::UInt(number) => json!(number),
        Raw::Float(number) => shortest(&number.to_string()),
        Raw::Double(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        Raw::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            let time = format!("{hour:02}:{minute:02}:{second:02}{}", fraction(micros, column.decimals()));
            let is_date =
                matches!(column.column_type(), ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE);
            json!(if is_date { date } else { format!("{date} {time}") })
        }
        Raw::Time(negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (if negative { "-" } else { "" }, days * 24 + u32::from(hours));
            json!(format!(
                "{sign}{hours:02}:{minutes:02}:{seconds:02}{}",
                fraction(micros, column.decimals())
            ))
        }
        Raw::Bytes(bytes) if is_bytes(column) => in_base64(&bytes),
        Raw::Bytes(bytes) => text_or_number(column, bytes),
    }
}

/// A FLOAT as the shortest number that is it again once it is stored, not as the DOUBLE it would become.
fn shortest(text: &str) -> Value {
    text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

fn fraction(micros: u32, decimals: u8) -> String {
    match usize::from(decimals) {
        0 if micros == 0 => String::new(),
        digits @ 1..=6 => format!(".{}", &format!("{micros:06}")[..digits]),
        _ => format!(".{micros:06}"),
    }
}

fn is_bytes(column: &mysql::Column) -> bool {
    use ColumnType::*;
    let can_be = matches!(
        column.column_type(),
        MYSQL_TYPE_TINY_BLOB
            | MYSQL_TYPE_MEDIUM_BLOB
            | MYSQL_TYPE_LONG_BLOB
            | MYSQL_TYPE_BLOB
            | MYSQL_TYPE_STRING
            | MYSQL_TYPE_VAR_STRING
            | MYSQL_TYPE_VARCHAR
    );
    let always = matches!(column.column_type(), MYSQL_TYPE_BIT | MYSQL_TYPE_GEOMETRY);
    always || (can_be && column.character_set() == BINARY)
}

fn in_base64(bytes: &[u8]) -> Value {
    json!({ "b64": BASE64.encode(bytes) })
}

/// Texts, decimals and JSON as text; the textual protocol sends integers this way, too.
fn text_or_number(column: &mysql::Column, bytes: Vec<u8>) -> Value {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return in_base64(error.as_bytes()),
    };
    let is_integer = {
        use ColumnType::*;
        matches!(
            column.column_type(),
            MYSQL_TYPE_TINY
                | MYSQL_TYPE_SHORT
                | MYSQL_TYPE_INT24
                | MYSQL_TYPE_LONG
                | MYSQL_TYPE_LONGLONG
                | MYSQL_TYPE_YEAR
        )
    };
    match text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)) {
        Ok(number) if is_integer => Value::Number(number),
        _ => Value::String(text),
    }
}

/// What is sent for a value of JSON.
pub(super) fn raw_of(value: &Value) -> Result<Raw> {
    Ok(match value {
        Value::Null => Raw::NULL,
        Value::Bool(flag) => Raw::Int(i64::from(*flag)),
        Value::Number(number) => raw_number(number),
        Value::String(text) => Raw::Bytes(text.clone().into_bytes()),
        Value::Object(object) if object.len() == 1 && object.contains_key("b64") => {
            let text = object.get("b64").and_then(Value::as_str).unwrap_or_default();
            Raw::Bytes(bytes_of(text)?)
        }
        other => Raw::Bytes(other.to_string().into_bytes()),
    })
}

pub(super) fn bytes_of(base64: &str) -> Result<Vec<u8>> {
    BASE64.decode(base64.as_bytes()).map_err(|_| Error::usage(format!("{base64:?} is not base64")))
}

fn raw_number(number: &Number) -> Raw {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Raw::Int(number),
        (_, Some(number)) => Raw::UInt(number),
        _ => number.as_f64().map_or(Raw::NULL, Raw::Double),
    }
}
