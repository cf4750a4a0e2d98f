//! Rows of a database: what a strategy without files shows of its differences.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Columns and their values in the table's own order. In JSON, an object.
///
/// What JSON cannot say exactly is said as text: decimal numbers, dates, and so on. Bytes are `{"b64": …}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(pub Vec<(String, Value)>);

impl Row {
    /// The value of a column.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }
}

impl Eq for Row {}

impl FromIterator<(String, Value)> for Row {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(columns: I) -> Self {
        Self(columns.into_iter().collect())
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, value) in &self.0 {
            map.serialize_entry(column, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Columns;
        impl<'de> Visitor<'de> for Columns {
            type Value = Row;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of columns and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(Row(columns))
            }
        }
        deserializer.deserialize_map(Columns)
    }
}

impl JsonSchema for Row {
    fn schema_name() -> Cow<'static, str> {
        "Row".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, Value>::json_schema(generator)
    }
}

/// One row that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RowChange {
    /// The table, with its schema where the database has schemas.
    pub table: String,
    /// The primary key; empty where the table has none.
    pub key: Row,
    /// The row in the base; `None` if it was inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Row>,
    /// The row in the sandbox; `None` if it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Row>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_keeps_the_order_of_its_columns() {
        let text = r#"{"z":1,"a":null,"m":"x"}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!((row.get("m"), row.get("n")), (Some(&json!("x")), None));
        assert!(serde_json::from_str::<Row>("[1]").unwrap_err().to_string().contains("columns and values"));
    }
}
