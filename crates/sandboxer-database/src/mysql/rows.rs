//! Rows of a table: read in the order of the key, found by it, put in its place.

use mysql::prelude::Queryable;
use mysql::{Conn, Params, Value as Raw};
use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::held::Held;
use super::tables::{Table, quoted};
use super::values::{raw_of, row_of};
use crate::engine::{Page, key_parts, key_text};

/// The rows that a statement gives, by the protocol that is exact.
pub(super) fn select(conn: &mut Conn, sql: &str, values: Vec<Raw>) -> mysql::Result<Vec<Row>> {
    let parameters = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let rows: Vec<mysql::Row> = conn.exec(sql, parameters)?;
    Ok(rows.into_iter().map(row_of).collect())
}

pub(super) fn page(held: &mut Held, table: &Table, page: &Page) -> Result<Vec<Row>> {
    let mut sql = format!("SELECT {} FROM {}", table.column_list(), table.sql());
    let mut values = Vec::new();
    if let Some(after) = &page.after {
        let (condition, parts) = key_condition(table, after, ">")?;
        sql += &format!(" WHERE {condition}");
        values = parts;
    }
    if !table.key.is_empty() {
        sql += &format!(" ORDER BY {}", table.key_list());
    }
    if let Some(limit) = page.limit {
        sql += &format!(" LIMIT {limit}");
    }
    let what = format!("reading {}", table.shown);
    held.unit(false, |held| held.run(&what, |conn| select(conn, &sql, values)))
}

pub(super) fn one(held: &mut Held, table: &Table, key: &str) -> Result<Option<Row>> {
    let (condition, values) = key_condition(table, key, "=")?;
    let sql = format!("SELECT {} FROM {} WHERE {condition}", table.column_list(), table.sql());
    let what = format!("reading {}", table.shown);
    let rows = held.unit(false, |held| held.run(&what, |conn| select(conn, &sql, values)))?;
    Ok(rows.into_iter().next())
}

/// Which rows have this key, or come after it.
fn key_condition(table: &Table, key: &str, operator: &str) -> Result<(String, Vec<Raw>)> {
    let columns = table.key_columns();
    if columns.is_empty() {
        return Err(no_key(table));
    }
    let parts = key_parts(key).filter(|parts| parts.len() == columns.len()).ok_or_else(|| {
        Error::usage(format!(
            "{key:?} is no key of {}: it has the columns {}",
            table.shown,
            table.key.join(", ")
        ))
    })?;
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    let places: Vec<&str> = columns.iter().map(|column| column.parameter()).collect();
    let values: Result<Vec<Raw>> =
        columns.iter().zip(&parts).map(|(column, part)| column.raw(part.as_deref())).collect();
    Ok((format!("({}) {operator} ({})", names.join(","), places.join(",")), values?))
}

fn no_key(table: &Table) -> Error {
    Error::Usage {
        message: format!("{} has no primary key, so its rows have no names", table.shown),
        hint: Some("use a query, or a script with UPDATE or DELETE".to_owned()),
    }
}

/// Whether there was one before.
pub(super) fn put(held: &mut Held, table: &Table, key: &str, row: Option<&Row>) -> Result<bool> {
    let there = one(held, table, key)?.is_some();
    let (condition, key_values) = key_condition(table, key, "=")?;
    let (sql, values) = match row {
        None => (format!("DELETE FROM {} WHERE {condition}", table.sql()), key_values),
        Some(row) => {
            let columns = writable(table, key, row)?;
            if there {
                update(table, columns, &condition, key_values)?
            } else {
                insert(table, columns, &key_values)?
            }
        }
    };
    if row.is_none() && !there {
        return Ok(false);
    }
    let what = format!("writing {} {key}", table.shown);
    held.must_fit(&what, sql.len() + values.iter().map(length).sum::<usize>())?;
    held.unit(true, |held| held.run(&what, |conn| conn.exec_drop(&sql, Params::Positional(values))))?;
    Ok(there)
}

fn length(value: &Raw) -> usize {
    match value {
        Raw::Bytes(bytes) => bytes.len() + 9,
        _ => 16,
    }
}

type Columns = Vec<(String, Raw)>;

/// The columns of a row that can be written, without its key; those have to be the ones of the key.
fn writable(table: &Table, key: &str, row: &Row) -> Result<Columns> {
    let mut columns = Vec::new();
    for (name, value) in &row.0 {
        let column = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let column = column.ok_or_else(|| Error::not_found("column", format!("{}.{name}", table.shown)))?;
        if !column.generated && !table.key.contains(&column.name) {
            columns.push((column.name.clone(), raw_of(value)?));
        }
    }
    let given: Vec<_> = table.key.iter().filter_map(|name| row.get(name)).collect();
    if given.len() == table.key.len() && key_text(given) != key {
        return Err(Error::usage(format!("the row says another key than {key:?}, at which it is to be put")));
    }
    Ok(columns)
}

fn update(table: &Table, columns: Columns, condition: &str, key: Vec<Raw>) -> Result<(String, Vec<Raw>)> {
    let mut sets: Vec<String> = columns.iter().map(|(name, _)| format!("{}=?", quoted(name))).collect();
    // What the new row does not say is not what the old one said.
    let unsaid = table.columns.iter().filter(|column| {
        !column.generated
            && !table.key.contains(&column.name)
            && columns.iter().all(|(name, _)| *name != column.name)
    });
    sets.extend(unsaid.map(|column| format!("{}=DEFAULT", quoted(&column.name))));
    if sets.is_empty() {
        let first = table.key.first().map(|name| quoted(name)).unwrap_or_default();
        sets.push(format!("{first}={first}"));
    }
    let values = columns.into_iter().map(|(_, value)| value).chain(key).collect();
    Ok((format!("UPDATE {} SET {} WHERE {condition}", table.sql(), sets.join(",")), values))
}

fn insert(table: &Table, columns: Columns, key: &[Raw]) -> Result<(String, Vec<Raw>)> {
    let keys = table.key_columns().into_iter().filter(|column| !column.generated);
    let (mut names, mut places, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (column, value) in keys.zip(key) {
        names.push(quoted(&column.name));
        places.push(column.parameter());
        values.push(value.clone());
    }
    for (name, value) in columns {
        names.push(quoted(&name));
        places.push("?");
        values.push(value);
    }
    Ok((format!("INSERT INTO {} ({}) VALUES ({})", table.sql(), names.join(","), places.join(",")), values))
}
