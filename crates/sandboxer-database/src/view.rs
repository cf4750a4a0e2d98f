//! What differs in a database, as everybody sees differences: entries with paths.

use std::collections::HashMap;

use sandboxer_core::Result;
use sandboxer_core::model::{DiffEntry, DiffKind, DiffView, RelPath, RowChange};
use sandboxer_fs::patch::{hunks, render_hunk};

use crate::engine::{Changes, SchemaChange, encode, key_text};

/// The entries of `changes`: a row is a file in its table, an object of the schema a file in its kind.
pub fn view(changes: &Changes) -> Result<DiffView> {
    let mut entries = Vec::with_capacity(changes.rows.len() + changes.schema.len());
    for change in &changes.schema {
        entries.push(schema_entry(change)?);
    }
    let mut twins = HashMap::new();
    for change in &changes.rows {
        entries.push(row_entry(change, &mut twins)?);
    }
    Ok(DiffView { notices: changes.notices.clone(), ..DiffView::new(entries) })
}

fn row_entry(change: &RowChange, twins: &mut HashMap<String, usize>) -> Result<DiffEntry> {
    let kind = kind_of(change.old.is_some(), change.new.is_some());
    let name = match change.key.0.is_empty() {
        true => keyless_name(change, twins),
        false => key_text(change.key.0.iter().map(|(_, value)| value)),
    };
    let path = RelPath::parse(format!("tables/{}/rows/{name}.json", encode(&change.table)))?;
    Ok(DiffEntry { row: Some(change.clone()), ..DiffEntry::new(path, kind) })
}

/// A row without a key is called by what is in it; of several that are alike, each has a number.
fn keyless_name(change: &RowChange, twins: &mut HashMap<String, usize>) -> String {
    let content = serde_json::to_vec(&(&change.table, &change.old, &change.new)).unwrap_or_default();
    let name = format!("~{}", &blake3::hash(&content).to_hex()[..16]);
    let count = twins.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}.{count}") }
}

fn schema_entry(change: &SchemaChange) -> Result<DiffEntry> {
    let path = RelPath::parse(format!("schema/{}/{}.sql", encode(&change.kind), encode(&change.name)))?;
    let kind = kind_of(change.old.is_some(), change.new.is_some());
    let text = unified(&path, change.old.as_deref(), change.new.as_deref());
    Ok(DiffEntry { text: Some(text), ..DiffEntry::new(path, kind) })
}

fn kind_of(was: bool, is: bool) -> DiffKind {
    match (was, is) {
        (false, _) => DiffKind::Created,
        (true, false) => DiffKind::Deleted,
        (true, true) => DiffKind::Modified,
    }
}

/// Both definitions as a unified difference.
fn unified(path: &RelPath, old: Option<&str>, new: Option<&str>) -> String {
    let name = |side: &str, text: Option<&str>| match text {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let lines = |text: Option<&str>| text.map(|text| format!("{}\n", text.trim_end())).unwrap_or_default();
    let mut rendered = format!("--- {}\n+++ {}\n", name("a", old), name("b", new)).into_bytes();
    let (old, new) = (lines(old), lines(new));
    for hunk in hunks(old.as_bytes(), new.as_bytes()) {
        // Writing to memory does not fail.
        let _ = render_hunk(&hunk, &mut rendered);
    }
    String::from_utf8_lossy(&rendered).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sandboxer_core::model::Row;
    use serde_json::json;

    use super::*;

    fn row(value: serde_json::Value) -> Row {
        serde_json::from_value(value).unwrap()
    }

    fn change(key: serde_json::Value, old: Option<Row>, new: Option<Row>) -> RowChange {
        RowChange { table: "public.t".into(), key: row(key), old, new }
    }

    #[test]
    fn rows_are_files_of_their_table() {
        let one = row(json!({"id": 1, "v": "x"}));
        let rows = vec![
            change(json!({"id": 1}), None, Some(one.clone())),
            change(json!({"id": "a/b"}), Some(one.clone()), None),
            change(json!({}), Some(one.clone()), None),
            change(json!({}), Some(one.clone()), None),
        ];
        let view = view(&Changes { rows, notices: vec!["n".into()], ..Changes::default() }).unwrap();
        let paths: Vec<String> = view.entries.iter().map(|e| e.path.to_string()).collect();
        assert!(paths.contains(&"tables/public.t/rows/1.json".to_owned()), "{paths:?}");
        assert!(paths.contains(&"tables/public.t/rows/a%2Fb.json".to_owned()), "{paths:?}");
        let twins: Vec<&String> = paths.iter().filter(|p| p.contains('~')).collect();
        assert!(twins.len() == 2 && twins[0] != twins[1], "{paths:?}");
        assert_eq!(view.notices, ["n"]);
    }

    #[test]
    fn the_digest_is_of_what_will_be() {
        let of = |old, new| {
            let rows =
                vec![change(json!({"id": 1}), Some(row(json!({"v": old}))), Some(row(json!({"v": new}))))];
            view(&Changes { rows, ..Changes::default() }).unwrap().digest
        };
        assert_eq!(of(1, 2), of(3, 2));
        assert_ne!(of(1, 2), of(1, 3));
    }

    #[test]
    fn the_schema_is_told_line_by_line() {
        let schema = vec![
            SchemaChange {
                kind: "table".into(),
                name: "t".into(),
                old: Some("a\nb".into()),
                new: Some("a\nc".into()),
            },
            SchemaChange { kind: "view".into(), name: "v".into(), old: None, new: Some("x".into()) },
        ];
        let view = view(&Changes { schema, ..Changes::default() }).unwrap();
        let text = view.entries[0].text.as_deref().unwrap();
        assert!(text.contains("-b\n+c\n") && text.starts_with("--- a/schema/table/t.sql\n"), "{text}");
        assert!(view.entries[1].text.as_deref().unwrap().starts_with("--- /dev/null\n"));
    }
}
