//! Definitions: what is dropped and made before rows are written, and what after.

use sandboxer_core::{Error, Result};

use super::keyed::placeholders;
use super::{Conflict, Work};
use crate::Value;
use crate::clone::PATIENCE;
use crate::connection::{Connection, Mode};
use crate::difference::{Difference, SchemaChange, TableDifference, compare_whole};
use crate::schema::{Object, Table, objects, quoted, table_named, tables};

/// What is to be done, in the order of its being done.
#[derive(Default)]
pub(super) struct Plan {
    /// `DROP` statements.
    drops: Vec<String>,
    /// Tables that are made, and virtual ones.
    tables: Vec<String>,
    /// Tables that are filled with all rows of the clone.
    filled: Vec<String>,
    /// Tables of a new virtual table, which fills them by itself at first.
    emptied: Vec<String>,
    /// What is made when the rows are there.
    last: Vec<String>,
}

/// Decides what is to be done of each definition that differs.
pub(super) fn plan(work: &mut Work<'_>, difference: &Difference) -> Result<Plan> {
    let present = objects(work.original)?;
    let mut plan = Plan::default();
    let mut changes: Vec<&SchemaChange> =
        difference.schema.iter().filter(|change| !change.is_shadow).collect();
    // Tables first: what belongs to one that is left alone is left alone, too.
    changes.sort_by_key(|change| order(&change.kind));
    for change in changes {
        let here = present.get(&(change.kind.clone(), change.name.clone()));
        if work.settled.contains(&change.table)
            && change.kind != "table"
            && !plan.filled.contains(&change.table)
        {
            work.applied
                .notices
                .push(format!("{} {} was left alone with its table", change.kind, change.name));
            continue;
        }
        if decide(work, change, here, difference)? {
            work.applied.definitions += 1;
            add(work, &mut plan, change, here, difference)?;
        }
    }
    for name in plan.filled.clone() {
        let belongs = |object: &&Object| {
            object.table == name && object.kind != "table" && !is_changed(difference, object)
        };
        plan.last.extend(present.values().filter(belongs).map(|object| object.sql.clone()));
    }
    Ok(plan)
}

fn order(kind: &str) -> usize {
    ["table", "index", "view", "trigger", "pragma"].iter().position(|known| *known == kind).unwrap_or(9)
}

fn is_changed(difference: &Difference, object: &Object) -> bool {
    difference.schema.iter().any(|change| change.kind == object.kind && change.name == object.name)
}

/// Whether a definition is to be written.
fn decide(
    work: &mut Work<'_>,
    change: &SchemaChange,
    here: Option<&Object>,
    difference: &Difference,
) -> Result<bool> {
    let present = here.map(|object| &object.sql);
    if present == change.new.as_ref() {
        work.applied.already += 1;
        return Ok(false);
    }
    let reason = if present != change.old.as_ref() {
        match (present, &change.old) {
            (None, _) => "deleted in the original",
            (_, None) => "inserted in the original",
            _ => "changed in the original",
        }
    } else if change.kind == "table"
        && change.old.is_some()
        && !rows_are_as_in_base(work, change, difference)?
    {
        "its rows were changed in the original, and its definition in the sandbox"
    } else {
        return Ok(true);
    };
    let conflict = Conflict {
        kind: change.kind.clone(),
        table: change.name.clone(),
        change: None,
        reason: reason.to_owned(),
    };
    let accepted = work.conflict(conflict);
    if !accepted && change.kind == "table" {
        work.settled.insert(change.name.clone());
        work.settled.extend(shadows(change, difference).map(|shadow| shadow.name.clone()));
    }
    Ok(accepted)
}

/// The tables that a virtual table keeps its content in, among those that differ.
fn shadows<'d>(change: &SchemaChange, difference: &'d Difference) -> impl Iterator<Item = &'d SchemaChange> {
    let prefix = format!("{}_", change.name);
    difference.schema.iter().filter(move |other| other.is_shadow && other.name.starts_with(&prefix))
}

/// Whether a table that is to be dropped or made anew has the rows that the base has: compared with the clone it differs in
/// the same rows.
fn rows_are_as_in_base(work: &Work<'_>, change: &SchemaChange, difference: &Difference) -> Result<bool> {
    let clone = Connection::open(work.clone, Mode::Confined)?;
    clone.busy_timeout(PATIENCE)?;
    let find = |tables: Vec<Table>, name: &str| tables.into_iter().find(|table| table.name == name);
    let names = std::iter::once(&change.name).chain(shadows(change, difference).map(|shadow| &shadow.name));
    for name in names {
        let (old, new) = (find(tables(work.original)?, name), find(tables(&clone)?, name));
        let Some(found) = compare_whole(work.original, &clone, old.as_ref(), new.as_ref())? else { continue };
        let expected = difference.tables.iter().find(|table| table.table.name == *name);
        let same =
            |expected: &TableDifference| expected.keyed == found.keyed && expected.loose == found.loose;
        if !expected.map_or(found.keyed.is_empty() && found.loose.is_empty(), same) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn add(
    work: &mut Work<'_>,
    plan: &mut Plan,
    change: &SchemaChange,
    here: Option<&Object>,
    difference: &Difference,
) -> Result<()> {
    if change.kind == "pragma" {
        plan.last.extend(change.new.clone());
        return Ok(());
    }
    if here.is_some() {
        // What belongs to a table goes before the table.
        let at = if change.kind == "table" { plan.drops.len() } else { 0 };
        plan.drops.insert(at, format!("DROP {} IF EXISTS {}", change.kind, quoted(&change.name)));
    }
    let Some(sql) = &change.new else {
        if change.kind == "table" {
            work.settled.insert(change.name.clone());
            work.settled.extend(shadows(change, difference).map(|shadow| shadow.name.clone()));
        }
        return Ok(());
    };
    if change.kind != "table" {
        plan.last.push(sql.clone());
        return Ok(());
    }
    plan.tables.push(sql.clone());
    plan.emptied.extend(shadows(change, difference).map(|shadow| shadow.name.clone()));
    let is_virtual = sql.get(..14).is_some_and(|start| start.eq_ignore_ascii_case("CREATE VIRTUAL"));
    if here.is_some() && !is_virtual {
        plan.filled.push(change.name.clone());
        work.settled.insert(change.name.clone());
        let notice = "was made anew, with all rows of the sandbox, for its definition changed";
        work.applied.notices.push(format!("table {} {notice}", change.name));
    }
    Ok(())
}

/// Before rows are written.
pub(super) fn prepare(work: &mut Work<'_>, plan: &Plan) -> Result<()> {
    for sql in plan.drops.iter().chain(&plan.tables) {
        run(work, sql)?;
    }
    for table in &plan.emptied {
        run(work, &format!("DELETE FROM {}", quoted(table)))?;
    }
    for table in &plan.filled {
        fill(work, table)?;
    }
    Ok(())
}

/// When the rows are written.
pub(super) fn complete(work: &mut Work<'_>, plan: &Plan) -> Result<()> {
    plan.last.iter().try_for_each(|sql| run(work, sql))
}

fn run(work: &Work<'_>, sql: &str) -> Result<()> {
    work.original.try_execute_batch(sql).map_err(|failure| {
        let path = work.original.path().display();
        Error::refused(format!("{path} cannot be changed by {sql:?}: {failure}"))
    })
}

/// Copies all rows of a table from the clone.
fn fill(work: &mut Work<'_>, name: &str) -> Result<()> {
    let clone = Connection::open(work.clone, Mode::Confined)?;
    clone.busy_timeout(PATIENCE)?;
    let table = table_named(&clone, name)?;
    let own_rowid = table.rowid.filter(|_| !table.key_is_rowid);
    let columns =
        own_rowid.map(str::to_owned).into_iter().chain([table.column_list()]).collect::<Vec<_>>().join(", ");
    let count = table.columns.len() + usize::from(own_rowid.is_some());
    let mut rows = clone.prepare(&format!("SELECT {columns} FROM {}", quoted(name)))?;
    let sql = format!("INSERT INTO {} ({columns}) VALUES ({})", quoted(name), placeholders(count));
    let mut insert = work.original.prepare(&sql)?;
    while rows.step()? {
        let row: Vec<Value> = rows.values();
        insert.try_run(&row).map_err(|failure| super::keyed::failed(work, failure))?;
        work.applied.rows += 1;
    }
    Ok(())
}
