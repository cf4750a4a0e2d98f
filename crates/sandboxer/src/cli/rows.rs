//! Rows that differ, for people: by table, a line each, values that changed side by side.
//!
//! Values come from programs that nobody vouches for, so each is escaped; one that is long is cut. JSON has them whole.

use sandboxer_core::model::{DiffEntry, Row, RowChange};
use serde_json::Value;

use super::diffs::mark;
use super::error::CliError;
use super::output::{self, Ui, count, style};

/// How much of a value is shown.
const SHOWN: usize = 40;

/// How many columns of a row that is new or gone are shown.
const COLUMNS: usize = 8;

/// The rows among `entries`, table by table.
pub fn show(ui: &mut Ui, entries: &[DiffEntry]) -> Result<(), CliError> {
    let rows: Vec<(&DiffEntry, &RowChange)> =
        entries.iter().filter_map(|entry| Some((entry, entry.row.as_ref()?))).collect();
    for table in rows.chunk_by(|(_, a), (_, b)| a.table == b.table) {
        let name = output::name(&table[0].1.table);
        ui.line(format_args!("{}  {}", ui.paint(style::HEAD, name), count(table.len(), "row")))?;
        show_table(ui, table)?;
    }
    Ok(())
}

fn show_table(ui: &mut Ui, rows: &[(&DiffEntry, &RowChange)]) -> Result<(), CliError> {
    let keys: Vec<String> = rows.iter().map(|(_, row)| key(row)).collect();
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0).min(SHOWN);
    for ((entry, row), key) in rows.iter().zip(&keys) {
        ui.line(format_args!("  {} {key:<width$}  {}", mark(ui, entry.kind), values(row)))?;
    }
    Ok(())
}

/// The primary key; nothing where the table has none.
fn key(row: &RowChange) -> String {
    let parts = row.key.0.iter().map(|(column, value)| format!("{}={}", output::name(column), shown(value)));
    parts.collect::<Vec<_>>().join(" ")
}

fn values(change: &RowChange) -> String {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => changed(old, new),
        (old, new) => new.as_ref().or(old.as_ref()).map(|row| whole(row, &change.key)).unwrap_or_default(),
    }
}

fn changed(old: &Row, new: &Row) -> String {
    let nothing = Value::Null;
    let differing = new.0.iter().filter(|(column, value)| old.get(column) != Some(value));
    let parts = differing.map(|(column, value)| {
        let before = old.get(column).unwrap_or(&nothing);
        format!("{}: {} → {}", output::name(column), shown(before), shown(value))
    });
    parts.collect::<Vec<_>>().join("  ")
}

fn whole(row: &Row, key: &Row) -> String {
    let others: Vec<_> = row.0.iter().filter(|(column, _)| key.get(column).is_none()).collect();
    let parts = others
        .iter()
        .take(COLUMNS)
        .map(|(column, value)| format!("{}={}", output::name(column), shown(value)));
    let mut parts: Vec<String> = parts.collect();
    if others.len() > COLUMNS {
        parts.push(format!("and {}", count(others.len() - COLUMNS, "more column")));
    }
    parts.join("  ")
}

/// A value, escaped and cut.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{:?}", Cut(text)),
        Value::Object(object) if object.contains_key("b64") => {
            let length = object["b64"].as_str().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4);
            format!("<{}>", count(length, "byte"))
        }
        other => other.to_string(),
    };
    output::sentence(&text)
}

/// A text whose end is left out where it is long.
struct Cut<'a>(&'a str);

impl std::fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> Row {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_changed_stands_side_by_side() {
        let change = RowChange {
            table: "t".into(),
            key: row(json!({"id": 7})),
            old: Some(row(json!({"id": 7, "name": "a", "n": 1}))),
            new: Some(row(json!({"id": 7, "name": "b", "n": 1}))),
        };
        assert_eq!(key(&change), "id=7");
        assert_eq!(values(&change), "name: \"a\" → \"b\"");
        let created = RowChange { old: None, ..change.clone() };
        assert_eq!(values(&created), "n=1  name=\"b\"");
        let deleted = RowChange { new: None, ..change };
        assert_eq!(values(&deleted), "n=1  name=\"a\"");
    }

    #[test]
    fn values_are_cut_and_cannot_disturb_a_terminal() {
        assert_eq!(shown(&json!("\u{1b}[2J")), "\"\\u{1b}[2J\"");
        let long = shown(&json!("x".repeat(100)));
        assert!(long.ends_with("\"…") && long.chars().count() == SHOWN + 3, "{long}");
        assert_eq!(shown(&json!({"b64": "AAAA"})), "<3 bytes>");
        assert_eq!(shown(&json!(null)), "null");
        let wide: serde_json::Map<String, Value> = (0..20).map(|n| (format!("c{n:02}"), json!(n))).collect();
        assert!(whole(&row(Value::Object(wide)), &Row::default()).ends_with("and 12 more columns"));
    }
}
