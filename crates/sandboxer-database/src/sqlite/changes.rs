//! What differs from what is in the file.
//!
//! Nobody else can write while the transaction is held, so the file is the base. Rows come from the record of the session where that is complete; tables that it
//! leaves out, or may be wrong about, are compared as a whole.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::model::RowChange;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{Connection, Table, compare_whole, objects, quoted, tables};

use super::held::Held;
use crate::engine::{Changes, SchemaChange, key_text};

pub(super) fn of(held: &Held, max_rows: usize) -> Result<Changes> {
    let schema = schema(held)?;
    let (old, new) = (by_name(held.outside())?, by_name(held.inside())?);
    let recorded = recorded(held);
    let mut changes = Changes { schema, ..Changes::default() };
    if recorded.is_none() {
        changes
            .notices
            .push("a table was dropped or altered, so all tables were compared as a whole".to_owned());
    }
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        match (&recorded, old.get(name), new.get(name)) {
            (Some(rows), Some(before), Some(now)) if is_recorded(held, before, now, &changes.schema)? => {
                changes.rows.extend(rows.get(name).cloned().unwrap_or_default());
            }
            (_, before, now) => compared(held, before, now, &mut changes)?,
        }
    }
    if changes.rows.len() > max_rows {
        return Err(Error::Refused {
            reason: format!("the difference has more than {max_rows} rows"),
            hint: Some("set max_rows higher, or roll back a part".to_owned()),
        });
    }
    changes.rows.sort_by_cached_key(|change| {
        (change.table.clone(), key_text(change.key.0.iter().map(|(_, value)| value)))
    });
    Ok(changes)
}

fn by_name(connection: &Connection) -> Result<BTreeMap<String, Table>> {
    Ok(tables(connection)?.into_iter().map(|table| (table.name.clone(), table)).collect())
}

/// The record by tables; `None` where it cannot be relied upon.
fn recorded(held: &Held) -> Option<BTreeMap<String, Vec<RowChange>>> {
    if held.is_incomplete() {
        return None;
    }
    let mut tables: BTreeMap<String, Vec<RowChange>> = BTreeMap::new();
    for change in held.recorder().changes().ok()? {
        tables.entry(change.table.clone()).or_default().push(change);
    }
    Some(tables)
}

/// Sessions leave out tables without a key, and rows with NULL in it.
fn is_recorded(held: &Held, before: &Table, now: &Table, schema: &[SchemaChange]) -> Result<bool> {
    let altered = schema.iter().any(|change| change.kind == "table" && change.name == now.name);
    if altered || now.key.is_empty() || before.key != now.key {
        return Ok(false);
    }
    if now.key_is_rowid || now.without_rowid {
        return Ok(true);
    }
    let nulls: Vec<String> =
        now.key_columns().iter().map(|column| format!("{} IS NULL", quoted(column))).collect();
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {} WHERE {})", quoted(&now.name), nulls.join(" OR "));
    Ok(held.inside().integer(&sql)? == 0 && held.outside().integer(&sql)? == 0)
}

fn compared(held: &Held, before: Option<&Table>, now: Option<&Table>, changes: &mut Changes) -> Result<()> {
    let Some(found) = compare_whole(held.outside(), held.inside(), before, now)? else { return Ok(()) };
    let rows = found.rows();
    if before.is_some() && !rows.is_empty() && (found.table.key.is_empty() || !found.loose.is_empty()) {
        let name = &found.table.name;
        changes.notices.push(format!("{name} has rows without a primary key and was compared as a whole"));
    }
    changes.rows.extend(rows);
    Ok(())
}

fn schema(held: &Held) -> Result<Vec<SchemaChange>> {
    let (old, new) = (objects(held.outside())?, objects(held.inside())?);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut changes = Vec::new();
    for key in keys {
        let sql =
            |side: &BTreeMap<_, sandboxer_sqlite::Object>| side.get(key).map(|object| object.sql.clone());
        let (old, new) = (sql(&old), sql(&new));
        if old != new {
            changes.push(SchemaChange { kind: key.0.clone(), name: key.1.clone(), old, new });
        }
    }
    Ok(changes)
}
