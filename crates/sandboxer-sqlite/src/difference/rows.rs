//! Comparing rows: those that may differ, or all.

use std::cmp::Ordering;
use std::collections::HashMap;

use sandboxer_core::Result;

use super::candidates::{candidates, is_untouched};
use super::{Difference, KeyedChange, LooseChange, Sides, TableDifference};
use crate::Value;
use crate::connection::Connection;
use crate::schema::{Table, quoted};
use crate::statement::Statement;

type Row = Vec<Value>;

/// Compares one table that at least one side has, and adds what differs.
pub(super) fn compare(
    sides: &Sides<'_>,
    old: Option<&Table>,
    new: Option<&Table>,
    altered: bool,
    difference: &mut Difference,
) -> Result<()> {
    let Some(table) = new.or(old) else { return Ok(()) };
    let (removed, added) = match (old, new, &sides.dirty) {
        (Some(old), Some(new), Some(dirty)) if !altered && old.rowid.is_some() => {
            match candidates(sides, dirty, old, new)? {
                Some(rowids) => by_rowid(sides, new, &rowids)?,
                None => whole(sides.base, sides.clone, Some(old), Some(new))?,
            }
        }
        (Some(old), Some(new), Some(dirty)) if !altered && is_untouched(sides, dirty, old, new)? => {
            return Ok(());
        }
        _ => whole(sides.base, sides.clone, old, new)?,
    };
    let found = pair(table, removed, added);
    if found.keyed.is_empty() && found.loose.is_empty() {
        return Ok(());
    }
    difference.notices.extend(notices(&found, old, altered && new.is_some()));
    difference.tables.push(found);
    Ok(())
}

fn notices(found: &TableDifference, old: Option<&Table>, altered: bool) -> Vec<String> {
    let name = &found.table.name;
    let mut notices = Vec::new();
    if found.table.key.is_empty() {
        notices
            .push(format!("table {name} has no primary key: its rows are compared by their whole content"));
    } else if !found.loose.is_empty() {
        notices.push(format!(
            "table {name}: rows with NULL in their primary key are compared by their whole content"
        ));
    }
    if found.table.without_rowid {
        notices.push(format!("table {name} is WITHOUT ROWID: all its rows were read to compare them"));
    }
    if altered && old.is_some() {
        notices.push(format!(
            "table {name} has another definition: its old rows are shown with the columns and defaults that it has now"
        ));
    }
    if !found.table.is_ordinary() {
        notices.push(format!("table {name} holds the content of a virtual table"));
    }
    notices
}

/// The rows that only one side has in this form, among those with the given rowids.
fn by_rowid(sides: &Sides<'_>, table: &Table, rowids: &[i64]) -> Result<(Vec<Row>, Vec<Row>)> {
    let mut pool = Pool::default();
    if rowids.is_empty() {
        return Ok(pool.sides());
    }
    let sql = format!("{} WHERE {} = ?1", table.select(), table.rowid.unwrap_or("rowid"));
    let (mut old, mut new) = (sides.base.prepare(&sql)?, sides.clone.prepare(&sql)?);
    for rowid in rowids {
        let rowid = [Value::Integer(*rowid)];
        pool.add(old.first_row(&rowid)?, new.first_row(&rowid)?);
    }
    Ok(pool.sides())
}

/// How the rows of one table differ, by reading all; `None` where neither side has it.
pub fn compare_whole(
    base: &Connection,
    clone: &Connection,
    old: Option<&Table>,
    new: Option<&Table>,
) -> Result<Option<TableDifference>> {
    let Some(table) = new.or(old) else { return Ok(None) };
    let (removed, added) = whole(base, clone, old, new)?;
    Ok(Some(pair(table, removed, added)))
}

/// The rows that only one side has in this form, of all.
fn whole(
    base: &Connection,
    clone: &Connection,
    old: Option<&Table>,
    new: Option<&Table>,
) -> Result<(Vec<Row>, Vec<Row>)> {
    let mut old = match old {
        Some(old) => Some(base.prepare(&projection(old, new.unwrap_or(old)))?),
        None => None,
    };
    let mut new = match new {
        Some(new) => Some(clone.prepare(&projection(new, new))?),
        None => None,
    };
    let mut pool = Pool::default();
    loop {
        let (a, b) = (next(&mut old)?, next(&mut new)?);
        if a.is_none() && b.is_none() {
            return Ok(pool.sides());
        }
        pool.add(a, b);
    }
}

fn next(statement: &mut Option<Statement<'_>>) -> Result<Option<Row>> {
    let Some(running) = statement else { return Ok(None) };
    if running.step()? {
        return Ok(Some(running.values()));
    }
    *statement = None;
    Ok(None)
}

/// All rows of `table` with the columns of `shape`: one that it does not have has its default.
fn projection(table: &Table, shape: &Table) -> String {
    let column = |(index, name): (usize, &String)| {
        let has = table.columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        let default = shape.defaults[index].as_ref().map_or("NULL".to_owned(), |sql| format!("({sql})"));
        if has { quoted(name) } else { default }
    };
    let columns: Vec<String> = shape.columns.iter().enumerate().map(column).collect();
    format!("SELECT {} FROM {}{}", columns.join(", "), quoted(&table.name), table.natural_order())
}

/// Rows that only one side has so far. Both sides come in about the same order, so there are never many more than differ in
/// the end.
#[derive(Default)]
struct Pool {
    old: HashMap<Row, usize>,
    new: HashMap<Row, usize>,
}

impl Pool {
    fn add(&mut self, old: Option<Row>, new: Option<Row>) {
        if old == new {
            return;
        }
        if let Some(row) = old {
            settle(row, &mut self.new, &mut self.old);
        }
        if let Some(row) = new {
            settle(row, &mut self.old, &mut self.new);
        }
    }

    fn sides(self) -> (Vec<Row>, Vec<Row>) {
        let rows = |side: HashMap<Row, usize>| -> Vec<Row> {
            side.into_iter().flat_map(|(row, count)| std::iter::repeat_n(row, count)).collect()
        };
        (rows(self.old), rows(self.new))
    }
}

fn settle(row: Row, other: &mut HashMap<Row, usize>, own: &mut HashMap<Row, usize>) {
    match other.get_mut(&row) {
        Some(1) => _ = other.remove(&row),
        Some(count) => *count -= 1,
        None => *own.entry(row).or_default() += 1,
    }
}

/// Tells which of the rows are the same row, changed.
fn pair(table: &Table, removed: Vec<Row>, added: Vec<Row>) -> TableDifference {
    let mut keyed: HashMap<Row, KeyedChange> = HashMap::new();
    let mut loose: HashMap<Row, i64> = HashMap::new();
    let is_old = std::iter::repeat_n(true, removed.len()).chain(std::iter::repeat(false));
    for (row, is_old) in removed.into_iter().chain(added).zip(is_old) {
        let key = table.key_of(&row);
        if key.is_empty() || key.iter().any(Value::is_null) {
            *loose.entry(row).or_default() += if is_old { -1 } else { 1 };
            continue;
        }
        let change = keyed.entry(key.clone()).or_insert(KeyedChange { key, old: None, new: None });
        *(if is_old { &mut change.old } else { &mut change.new }) = Some(row);
    }
    let mut keyed: Vec<KeyedChange> = keyed.into_values().collect();
    keyed.sort_by(|a, b| compare_rows(&a.key, &b.key));
    let mut loose: Vec<LooseChange> =
        loose.into_iter().map(|(row, more)| LooseChange { row, more }).collect();
    loose.retain(|change| change.more != 0);
    loose.sort_by(|a, b| compare_rows(&a.row, &b.row));
    TableDifference { table: table.clone(), keyed, loose }
}

fn compare_rows(a: &[Value], b: &[Value]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
    unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// SQLite's own order, as far as it matters for one that is always the same.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    let class = |value: &Value| match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    };
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Real(a), Value::Real(b)) => a.total_cmp(b),
        (Value::Integer(a), Value::Real(b)) => (*a as f64).total_cmp(b).then(Ordering::Less),
        (Value::Real(a), Value::Integer(b)) => a.total_cmp(&(*b as f64)).then(Ordering::Greater),
        (Value::Text(a), Value::Text(b)) | (Value::Blob(a), Value::Blob(b)) => a.cmp(b),
        _ => class(a).cmp(&class(b)),
    }
}
