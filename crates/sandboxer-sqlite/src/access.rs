//! Rows and scripts by way of a connection, whoever's it is: a clone's, or one that holds a transaction.

use std::collections::HashMap;

use data_encoding::BASE64;
use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use crate::connection::Connection;
use crate::schema::{Table, key_condition, quoted};
use crate::statement::Statement;
use crate::value::to_row;
use crate::{Failure, Value};

/// The savepoint that what a caller asks for runs in.
const SAVEPOINT: &str = "sandboxer_unit";

/// Where to go on reading a table: behind this key, each value as text; NULL is `None`.
pub type After<'k> = &'k [Option<String>];

/// The values of a key as texts: what [`row_at`] finds it by. Bytes are in base 64.
pub fn key_texts(key: &[Value]) -> Vec<Option<String>> {
    let text = |value: &Value| match value.to_json() {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Object(object) => {
            let inner = object.get("b64").or(object.get("real"));
            Some(inner.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned())
        }
        other => Some(other.to_string()),
    };
    key.iter().map(text).collect()
}

/// Rows in the order of the primary key (of the rowid, where there is none).
pub fn rows_of(
    connection: &Connection,
    table: &Table,
    after: Option<After<'_>>,
    limit: Option<usize>,
) -> Result<Vec<Row>> {
    let (mut sql, mut values) = (table.select(), Vec::new());
    if let Some(after) = after {
        values = start(connection, table, after)?;
        let columns: Vec<String> = table.key_columns().iter().map(|column| quoted(column)).collect();
        sql += &format!(" WHERE ({}) > ({})", columns.join(", "), vec!["?"; columns.len()].join(", "));
    }
    sql += &format!(" ORDER BY {}", table.order());
    if let Some(limit) = limit {
        sql += &format!(" LIMIT {limit}");
    }
    let rows = connection.rows(&sql, &values)?;
    Ok(rows.iter().map(|row| to_row(&table.columns, row)).collect())
}

/// The typed values of the key that reading goes on behind.
fn start(connection: &Connection, table: &Table, after: After<'_>) -> Result<Vec<Value>> {
    check_key(table, after)?;
    if let Some(row) = values_at(connection, table, after)? {
        return Ok(table.key_of(&row));
    }
    // The row is gone by now.
    let guess = |text: &Option<String>| match text {
        None => Value::Null,
        Some(text) => text.parse().map_or_else(|_| Value::text(text.as_str()), Value::Integer),
    };
    Ok(after.iter().map(guess).collect())
}

fn check_key(table: &Table, key: After<'_>) -> Result<()> {
    if table.key.is_empty() {
        return Err(Error::Usage {
            message: format!("table {} has no primary key, so its rows cannot be named", table.name),
            hint: Some("read it with a query".to_owned()),
        });
    }
    if table.key.len() == key.len() {
        return Ok(());
    }
    let columns = table.key_columns().join(", ");
    Err(Error::usage(format!("the primary key of {} has {} values: {columns}", table.name, table.key.len())))
}

/// The row whose key has these texts.
pub fn row_at(connection: &Connection, table: &Table, key: After<'_>) -> Result<Option<Row>> {
    Ok(values_at(connection, table, key)?.map(|row| to_row(&table.columns, &row)))
}

fn values_at(connection: &Connection, table: &Table, key: After<'_>) -> Result<Option<Vec<Value>>> {
    check_key(table, key)?;
    let mut values = Vec::new();
    let mut conditions = Vec::new();
    for (column, text) in table.key_columns().iter().zip(key) {
        let Some(text) = text else {
            conditions.push(format!("{} IS NULL", quoted(column)));
            continue;
        };
        let forms = forms(text);
        conditions.push(format!("{} IN ({})", quoted(column), vec!["?"; forms.len()].join(", ")));
        values.extend(forms);
    }
    let sql = format!("{} WHERE {}", table.select(), conditions.join(" AND "));
    let rows = connection.rows(&sql, &values)?;
    // A collation finds more than what was asked for.
    Ok(rows.into_iter().find(|row| key_texts(&table.key_of(row)) == key))
}

/// Everything that has this text.
fn forms(text: &str) -> Vec<Value> {
    let mut forms = vec![Value::text(text)];
    forms.extend(text.parse().map(Value::Integer));
    forms.extend(text.parse().map(Value::Real));
    if let Ok(bytes) = BASE64.decode(text.as_bytes()) {
        forms.push(Value::Text(bytes.clone()));
        forms.push(Value::Blob(bytes));
    }
    forms
}

/// Puts a row at a key, or removes the one that is there; whether there was one. Columns that are not named get their
/// defaults, whether the row is new or not.
pub fn put(connection: &Connection, table: &Table, key: After<'_>, row: Option<&Row>) -> Result<bool> {
    let present = values_at(connection, table, key)?;
    let Some(row) = row else {
        if let Some(present) = &present {
            let sql = format!("DELETE FROM {} WHERE {}", quoted(&table.name), key_condition(table));
            connection.execute(&sql, &table.key_of(present))?;
        }
        return Ok(present.is_some());
    };
    let named = named(table, row)?;
    let wanted: Vec<Option<String>> =
        table.key.iter().map(|index| wanted_key(&named, *index, table, key)).collect();
    if wanted != key {
        return Err(Error::usage(format!(
            "the row has another primary key than its name in table {}",
            table.name
        )));
    }
    match &present {
        Some(present) => update(connection, table, present, &named)?,
        None => insert(connection, table, key, &named)?,
    }
    Ok(present.is_some())
}

fn wanted_key(named: &[(usize, Value)], index: usize, table: &Table, key: After<'_>) -> Option<String> {
    let given = named.iter().find(|(column, _)| *column == index);
    match given {
        Some((_, value)) => key_texts(std::slice::from_ref(value)).pop().flatten(),
        None => key[table.key.iter().position(|part| *part == index).unwrap_or_default()].clone(),
    }
}

fn named(table: &Table, row: &Row) -> Result<Vec<(usize, Value)>> {
    let one = |(name, json): &(String, serde_json::Value)| {
        let index = table.columns.iter().position(|column| column == name);
        let index = index.ok_or_else(|| Error::not_found("column", format!("{}.{name}", table.name)))?;
        let value = Value::from_json(json);
        let value = value.ok_or_else(|| Error::usage(format!("{name}: {json} is no value of SQLite")))?;
        Ok((index, value))
    };
    row.0.iter().map(one).collect()
}

fn update(connection: &Connection, table: &Table, present: &[Value], named: &[(usize, Value)]) -> Result<()> {
    let defaults = defaults(connection, table)?;
    let mut values = table.key_of(present);
    let mut sets = Vec::new();
    for (index, column) in table.columns.iter().enumerate().filter(|(index, _)| !table.key.contains(index)) {
        let value = match named.iter().find(|(named, _)| *named == index) {
            Some((_, value)) => {
                values.push(value.clone());
                format!("?{}", values.len())
            }
            None => defaults.get(column).map_or("NULL".to_owned(), |text| format!("({text})")),
        };
        sets.push(format!("{} = {value}", quoted(column)));
    }
    if sets.is_empty() {
        return Ok(());
    }
    let sql =
        format!("UPDATE {} SET {} WHERE {}", quoted(&table.name), sets.join(", "), key_condition(table));
    run(connection, &sql, &values)
}

/// What columns are where nobody says, as SQL, by their names.
fn defaults(connection: &Connection, table: &Table) -> Result<HashMap<String, String>> {
    let sql = "SELECT name, dflt_value FROM pragma_table_xinfo(?) WHERE dflt_value IS NOT NULL";
    let rows = connection.rows(sql, &[Value::text(table.name.as_str())])?;
    Ok(rows.iter().filter_map(|row| Some((row.first()?.as_text()?, row.get(1)?.as_text()?))).collect())
}

fn insert(connection: &Connection, table: &Table, key: After<'_>, named: &[(usize, Value)]) -> Result<()> {
    let mut all: Vec<(usize, Value)> = named.to_vec();
    for (index, text) in table.key.iter().zip(key) {
        if !all.iter().any(|(column, _)| column == index) {
            let value = text.as_ref().map_or(Value::Null, |text| Value::text(text.as_str()));
            all.push((*index, value));
        }
    }
    let columns: Vec<String> = all.iter().map(|(index, _)| quoted(&table.columns[*index])).collect();
    let places = vec!["?"; columns.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({places})", quoted(&table.name), columns.join(", "));
    run(connection, &sql, &all.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
}

fn run(connection: &Connection, sql: &str, values: &[Value]) -> Result<()> {
    let mut statement = connection.prepare(sql)?;
    statement.try_run(values).map_err(|failure| refused(connection, failure))
}

/// What a statement of the caller's own failed with is the caller's to put right.
fn refused(connection: &Connection, failure: Failure) -> Error {
    const CALLERS: [i32; 6] = [1, 18, 19, 20, 23, 25];
    if CALLERS.contains(&(failure.code & 0xff)) {
        return Error::usage(failure.message);
    }
    failure.on("run a statement on", connection.path())
}

/// The rows that a statement gives. Whatever it changes is rolled back.
pub fn query(connection: &Connection, sql: &str) -> Result<Vec<Row>> {
    connection.execute_batch(&format!("SAVEPOINT {SAVEPOINT}"))?;
    connection.guard(true)?;
    let rows = query_rows(connection, sql).map_err(|failure| refused(connection, failure));
    connection.guard(false)?;
    connection.execute_batch(&format!("ROLLBACK TO {SAVEPOINT}; RELEASE {SAVEPOINT}"))?;
    rows
}

fn query_rows(connection: &Connection, sql: &str) -> Result<Vec<Row>, Failure> {
    let mut statement = Statement::prepare(connection, sql)?;
    let columns = statement.column_names();
    let mut rows = Vec::new();
    while statement.try_step()? {
        rows.push(to_row(&columns, &statement.values()));
    }
    Ok(rows)
}

/// Runs all statements of a script, or none: how many there were, and how many rows they changed.
pub fn execute_script(connection: &Connection, script: &str) -> Result<(usize, u64)> {
    let before = connection.total_changes();
    connection.execute_batch(&format!("SAVEPOINT {SAVEPOINT}"))?;
    connection.guard(true)?;
    let done = statements(connection, script);
    connection.guard(false)?;
    match done {
        Ok(statements) => {
            let released = connection.try_execute_batch(&format!("RELEASE {SAVEPOINT}"));
            if let Err(failure) = released {
                undo(connection)?;
                return Err(refused(connection, failure));
            }
            Ok((statements, connection.total_changes() - before))
        }
        Err((number, failure)) => {
            undo(connection)?;
            match refused(connection, failure) {
                Error::Usage { message, hint } => Err(Error::Usage {
                    message: format!("statement {number}: {message}; nothing was done"),
                    hint,
                }),
                other => Err(other),
            }
        }
    }
}

fn undo(connection: &Connection) -> Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.execute_batch(&format!("ROLLBACK TO {SAVEPOINT}; RELEASE {SAVEPOINT}"))
}

fn statements(connection: &Connection, script: &str) -> Result<usize, (usize, Failure)> {
    let (mut rest, mut number) = (script, 0);
    loop {
        let next = Statement::first(connection, rest).map_err(|failure| (number + 1, failure))?;
        let Some((mut statement, tail)) = next else { return Ok(number) };
        number += 1;
        while statement.try_step().map_err(|failure| (number, failure))? {}
        rest = tail;
    }
}
