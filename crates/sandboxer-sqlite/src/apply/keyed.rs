//! Rows that are told apart by their primary key.

use sandboxer_core::{Error, Result};

use super::{Conflict, Policy, Work};
use crate::difference::{KeyedChange, TableDifference};
use crate::schema::{Table, key_condition, quoted};
use crate::{Failure, Statement};

/// The statements that one table takes.
struct Statements<'c> {
    table: &'c Table,
    select: Statement<'c>,
    delete: Statement<'c>,
    update: Statement<'c>,
    insert: Statement<'c>,
    replace: Statement<'c>,
}

impl<'c> Statements<'c> {
    fn new(work: &Work<'c>, table: &'c Table) -> Result<Self> {
        let name = quoted(&table.name);
        let key = key_condition(table);
        let first = table.key.len() + 1;
        let set = |(index, column): (usize, &String)| format!("{} = ?{}", quoted(column), first + index);
        let sets: Vec<String> = table.columns.iter().enumerate().map(set).collect();
        let values = placeholders(table.columns.len());
        let insert = format!("INTO {name} ({}) VALUES ({values})", table.column_list());
        let prepare = |sql: String| work.original.prepare(&sql);
        Ok(Self {
            table,
            select: prepare(format!("{} WHERE {key}", table.select()))?,
            delete: prepare(format!("DELETE FROM {name} WHERE {key}"))?,
            update: prepare(format!("UPDATE {name} SET {} WHERE {key}", sets.join(", ")))?,
            insert: prepare(format!("INSERT {insert}"))?,
            replace: prepare(format!("INSERT OR REPLACE {insert}"))?,
        })
    }
}

pub(super) fn apply(work: &mut Work<'_>, table: &TableDifference) -> Result<()> {
    if table.keyed.is_empty() {
        return Ok(());
    }
    work.require_columns(&table.table)?;
    let mut statements = Statements::new(work, &table.table)?;
    let is_deletion = |change: &&KeyedChange| change.new.is_none();
    let is_insertion = |change: &&KeyedChange| change.old.is_none();
    for change in table.keyed.iter().filter(is_deletion) {
        delete(work, &mut statements, change)?;
    }
    // A unique value may go from one row to another that is updated before: such rows are taken out, and put back at the end.
    let mut later = Vec::new();
    for change in table.keyed.iter().filter(|change| !is_deletion(change) && !is_insertion(change)) {
        update(work, &mut statements, change, &mut later)?;
    }
    for change in table.keyed.iter().filter(is_insertion) {
        insert(work, &mut statements, change, &mut later)?;
    }
    for change in later {
        put(work, &mut statements, change)?;
    }
    Ok(())
}

fn conflict(table: &Table, change: &KeyedChange, reason: impl Into<String>) -> Conflict {
    Conflict {
        kind: "row".to_owned(),
        table: table.name.clone(),
        change: Some(change.row(table)),
        reason: reason.into(),
    }
}

fn delete(work: &mut Work<'_>, statements: &mut Statements<'_>, change: &KeyedChange) -> Result<()> {
    let Some(present) = statements.select.first_row(&change.key)? else {
        work.applied.already += 1;
        return Ok(());
    };
    // A key may be found by another that its collation takes for the same; then that row is somebody else's.
    if change.old.as_ref() != Some(&present)
        && !work.conflict(conflict(statements.table, change, "changed in the original"))
    {
        return Ok(());
    }
    statements.delete.try_run(&change.key).map_err(|failure| failed(work, failure))?;
    work.applied.rows += 1;
    Ok(())
}

fn update<'d>(
    work: &mut Work<'_>,
    statements: &mut Statements<'_>,
    change: &'d KeyedChange,
    later: &mut Vec<&'d KeyedChange>,
) -> Result<()> {
    let present = statements.select.first_row(&change.key)?;
    if present == change.new {
        work.applied.already += 1;
        return Ok(());
    }
    if present != change.old {
        let reason = if present.is_some() { "changed in the original" } else { "deleted in the original" };
        if !work.conflict(conflict(statements.table, change, reason)) {
            return Ok(());
        }
    }
    let values = [change.key.as_slice(), change.new.as_deref().unwrap_or_default()].concat();
    let written = if present.is_some() { statements.update.try_run(&values) } else { Ok(()) };
    match written {
        Ok(()) if present.is_some() => work.applied.rows += 1,
        Err(failure) if !failure.is_constraint() => return Err(failed(work, failure)),
        _ => {
            statements.delete.try_run(&change.key).map_err(|failure| failed(work, failure))?;
            later.push(change);
        }
    }
    Ok(())
}

fn insert<'d>(
    work: &mut Work<'_>,
    statements: &mut Statements<'_>,
    change: &'d KeyedChange,
    later: &mut Vec<&'d KeyedChange>,
) -> Result<()> {
    let present = statements.select.first_row(&change.key)?;
    if present == change.new {
        work.applied.already += 1;
        return Ok(());
    }
    if present.is_some() {
        if !work.conflict(conflict(statements.table, change, "inserted in the original")) {
            return Ok(());
        }
        statements.delete.try_run(&change.key).map_err(|failure| failed(work, failure))?;
    }
    later.push(change);
    Ok(())
}

/// Puts a row where none of its key is. What is in its way has a unique value of it, and is the original's own.
fn put(work: &mut Work<'_>, statements: &mut Statements<'_>, change: &KeyedChange) -> Result<()> {
    let row = change.new.as_deref().unwrap_or_default();
    let failure = match statements.insert.try_run(row) {
        Ok(()) => {
            work.applied.rows += 1;
            return Ok(());
        }
        Err(failure) if failure.is_constraint() => failure,
        Err(failure) => return Err(failed(work, failure)),
    };
    let reason = format!("another row of the original is in its way: {failure}");
    if work.conflict(conflict(statements.table, change, reason)) {
        statements.replace.try_run(row).map_err(|failure| failed(work, failure))?;
        work.applied.rows += 1;
    } else if work.policy == Policy::Skip
        && let Some(old) = &change.old
    {
        // It was taken out to be changed. It stays as it was.
        statements.insert.try_run(old).map_err(|failure| failed(work, failure))?;
    }
    Ok(())
}

pub(super) fn failed(work: &Work<'_>, failure: Failure) -> Error {
    if failure.is_constraint() {
        return Error::refused(format!("{} does not allow it: {failure}", work.original.path().display()));
    }
    failure.on("write", work.original.path())
}

/// How a list of values is bound, for those that need only the number of them.
pub(super) fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
