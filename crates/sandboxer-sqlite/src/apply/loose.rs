//! Rows that nothing but their content tells apart: what counts is how often each is there.

use std::collections::HashMap;

use sandboxer_core::Result;

use super::keyed::{failed, placeholders};
use super::{Conflict, Work};
use crate::Value;
use crate::connection::{Connection, Mode};
use crate::difference::{LooseChange, TableDifference};
use crate::schema::{Table, quoted};

type Counts<'d> = HashMap<&'d [Value], i64>;
type Rowids<'d> = HashMap<&'d [Value], Vec<Value>>;

pub(super) fn apply(work: &mut Work<'_>, table: &TableDifference) -> Result<()> {
    if table.loose.is_empty() {
        return Ok(());
    }
    work.require_columns(&table.table)?;
    let clone = Connection::open(work.clone, Mode::Confined)?;
    clone.busy_timeout(crate::clone::PATIENCE)?;
    let (there, _) = count(&clone, table)?;
    let (here, rowids) = count(work.original, table)?;
    for change in &table.loose {
        let target = there.get(change.row.as_slice()).copied().unwrap_or_default();
        let present = here.get(change.row.as_slice()).copied().unwrap_or_default();
        one(work, &table.table, change, (present, target), rowids.get(change.row.as_slice()))?;
    }
    Ok(())
}

/// How often each row that differs is there, and under which rowids.
fn count<'d>(connection: &Connection, table: &'d TableDifference) -> Result<(Counts<'d>, Rowids<'d>)> {
    let mut counts: Counts<'d> = table.loose.iter().map(|change| (change.row.as_slice(), 0)).collect();
    let mut rowids: Rowids<'d> = HashMap::new();
    let known: HashMap<Vec<Value>, &'d [Value]> =
        table.loose.iter().map(|change| (change.row.clone(), change.row.as_slice())).collect();
    let rowid = table.table.rowid.unwrap_or("NULL");
    let sql = format!("SELECT {}, {rowid} FROM {}", table.table.column_list(), quoted(&table.table.name));
    let mut statement = connection.prepare(&sql)?;
    while statement.step()? {
        let mut row = statement.values();
        let id = row.pop().unwrap_or(Value::Null);
        if let Some(row) = known.get(&row) {
            *counts.entry(row).or_default() += 1;
            rowids.entry(row).or_default().push(id);
        }
    }
    Ok((counts, rowids))
}

fn one(
    work: &mut Work<'_>,
    table: &Table,
    change: &LooseChange,
    (present, target): (i64, i64),
    rowids: Option<&Vec<Value>>,
) -> Result<()> {
    if present == target {
        work.applied.already += change.more.unsigned_abs();
        return Ok(());
    }
    let base = target - change.more;
    if present != base && !work.conflict(conflict(table, change, present, base)) {
        return Ok(());
    }
    if present < target {
        insert(work, table, &change.row, target - present)?;
    } else {
        remove(work, table, rowids.map(Vec::as_slice).unwrap_or_default(), present - target)?;
    }
    work.applied.rows += present.abs_diff(target);
    Ok(())
}

fn conflict(table: &Table, change: &LooseChange, present: i64, base: i64) -> Conflict {
    let what = if present < base { "deleted" } else { "inserted" };
    Conflict {
        kind: "row".to_owned(),
        table: table.name.clone(),
        change: Some(change.row(table)),
        reason: format!("{what} in the original, which has it {present} times instead of {base}"),
    }
}

fn insert(work: &Work<'_>, table: &Table, row: &[Value], times: i64) -> Result<()> {
    let values = placeholders(table.columns.len());
    let sql = format!("INSERT INTO {} ({}) VALUES ({values})", quoted(&table.name), table.column_list());
    let mut statement = work.original.prepare(&sql)?;
    for _ in 0..times {
        statement.try_run(row).map_err(|failure| failed(work, failure))?;
    }
    Ok(())
}

fn remove(work: &Work<'_>, table: &Table, rowids: &[Value], times: i64) -> Result<()> {
    let Some(rowid) = table.rowid else {
        return Err(sandboxer_core::Error::refused(format!(
            "rows of table {} cannot be told apart: it has no primary key, and columns have taken every name of the rowid",
            table.name
        )));
    };
    let mut statement =
        work.original.prepare(&format!("DELETE FROM {} WHERE {rowid} = ?1", quoted(&table.name)))?;
    for id in rowids.iter().take(usize::try_from(times).unwrap_or_default()) {
        statement.try_run(std::slice::from_ref(id)).map_err(|failure| failed(work, failure))?;
    }
    Ok(())
}
