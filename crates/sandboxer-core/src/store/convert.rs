//! Values as columns: times as microseconds, structures as JSON, states as words.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The present, as exactly as the store keeps it, so that a value survives a round trip unchanged.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// A column that holds a time.
pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    let micros: i64 = row.get(column)?;
    Timestamp::from_microsecond(micros).map_err(|error| bad(column, Type::Integer, error))
}

/// A column that holds a time or nothing.
pub(super) fn optional_time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(_) => time(row, column).map(Some),
        None => Ok(None),
    }
}

/// A value as JSON text.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::ToSqlConversionFailure(error.into()))
}

/// A column that holds JSON text.
pub(super) fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str().map_err(|error| bad(column, Type::Text, error))?;
    serde_json::from_str(text).map_err(|error| bad(column, Type::Text, error))
}

/// A column that holds JSON text or nothing.
pub(super) fn optional_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => from_json(row, column).map(Some),
    }
}

/// A column that holds one word of an enumeration.
pub(super) fn from_word<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let word: String = row.get(column)?;
    serde_json::from_value(word.into()).map_err(|error| bad(column, Type::Text, error))
}

fn bad(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::FromSqlConversionFailure(column, kind, Box::new(error))
}
