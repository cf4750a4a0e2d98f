//! Making the difference between a base and its clone real in the original, which others may have changed meanwhile.
//!
//! All of it is one transaction of SQLite: killed at any instant, it happened or it did not. Each row is looked at before it is written:
//! as in the base, it is written; as in the clone, it is done already, so applying again changes nothing; anything else is a
//! conflict. Triggers do not fire, for the clone's rows show what they did there.

mod keyed;
mod loose;
mod references;
mod schema;

use std::collections::BTreeSet;
use std::path::Path;

use sandboxer_core::model::RowChange;
use sandboxer_core::{Error, Result};

use crate::Value;
use crate::clone::PATIENCE;
use crate::connection::{Connection, Mode};
use crate::difference::{Difference, TableDifference, exact_difference};
use crate::schema::{quoted, table_named, tables};

/// What to do with a row that is neither as in the base nor as in the clone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Write nothing at all, and tell every conflict.
    #[default]
    Fail,
    /// Keep what the original has.
    Skip,
    /// Take what the clone has.
    Accept,
}

/// One row or definition that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The kind of the definition; `row` for a row.
    pub kind: String,
    /// The table; the name of the definition, where it is one.
    pub table: String,
    /// The row as it differs between base and clone; `None` for a definition.
    pub change: Option<RowChange>,
    /// What happened in the original.
    pub reason: String,
}

impl Difference {
    /// All of it as conflicts: nothing could be written, for that reason.
    pub fn left_for(&self, reason: &str) -> Vec<Conflict> {
        let conflict = |kind: &str, table: &str, change| Conflict {
            kind: kind.to_owned(),
            table: table.to_owned(),
            change,
            reason: reason.to_owned(),
        };
        let definitions = self.schema.iter().map(|change| conflict(&change.kind, &change.name, None));
        let rows = self.tables.iter().flat_map(|table| {
            let keyed = table.keyed.iter().map(|change| change.row(&table.table));
            keyed.chain(table.loose.iter().map(|change| change.row(&table.table)))
        });
        definitions.chain(rows.map(|row| conflict("row", &row.table.clone(), Some(row)))).collect()
    }

    /// What is left of it without what `conflicts` are about, and what belongs to tables whose definition is among them.
    pub fn without(&self, conflicts: &[Conflict]) -> Self {
        let is_about = |conflict: &Conflict, kind: &str, name: &str| {
            conflict.change.is_none() && conflict.kind == kind && conflict.table == name
        };
        let has = |kind: &str, name: &str| conflicts.iter().any(|conflict| is_about(conflict, kind, name));
        let of_table = |name: &str| {
            let shadows = |conflict: &Conflict| {
                conflict.kind == "table"
                    && name.strip_prefix(&*conflict.table).is_some_and(|rest| rest.starts_with('_'))
            };
            has("table", name) || conflicts.iter().filter(|conflict| conflict.change.is_none()).any(shadows)
        };
        let rows: Vec<&RowChange> =
            conflicts.iter().filter_map(|conflict| conflict.change.as_ref()).collect();
        let mut left = self.clone();
        left.schema.retain(|change| !has(&change.kind, &change.name) && !has("table", &change.table));
        left.tables.retain(|table| !of_table(&table.table.name));
        for table in &mut left.tables {
            let columns = table.table.clone();
            table.keyed.retain(|change| !rows.contains(&&change.row(&columns)));
            table.loose.retain(|change| !rows.contains(&&change.row(&columns)));
        }
        left.tables.retain(|table| !table.keyed.is_empty() || !table.loose.is_empty());
        left
    }
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many rows were written.
    pub rows: u64,
    /// How many definitions were.
    pub definitions: u64,
    /// How many were as in the clone already.
    pub already: u64,
    /// Where both sides changed something, what each of it is: left alone or overruled, as the policy says; with [`Policy::Fail`]
    /// nothing was written where this is not empty.
    pub conflicts: Vec<Conflict>,
    /// What a careful person has to know.
    pub notices: Vec<String>,
}

/// Whether to keep what was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    RollBack,
}

/// Applies the difference between `base` and `clone` to `original`.
pub fn apply(original: &Path, base: &Path, clone: &Path, policy: Policy) -> Result<Applied> {
    apply_difference(original, &exact_difference(base, clone)?, clone, policy)
}

/// What [`apply`] would do; changes nothing.
pub fn check(original: &Path, base: &Path, clone: &Path, policy: Policy) -> Result<Applied> {
    check_difference(original, &exact_difference(base, clone)?, clone, policy)
}

/// Applies a difference that was found before; `clone` is where whole tables are taken from whose definition changed.
pub fn apply_difference(
    original: &Path,
    difference: &Difference,
    clone: &Path,
    policy: Policy,
) -> Result<Applied> {
    run(original, difference, clone, policy, Ending::Commit)
}

/// What [`apply_difference`] would do; changes nothing.
pub fn check_difference(
    original: &Path,
    difference: &Difference,
    clone: &Path,
    policy: Policy,
) -> Result<Applied> {
    run(original, difference, clone, policy, Ending::RollBack)
}

fn run(
    original: &Path,
    difference: &Difference,
    clone: &Path,
    policy: Policy,
    ending: Ending,
) -> Result<Applied> {
    let connection = Connection::open(original, Mode::ReadWrite)?;
    connection.busy_timeout(PATIENCE)?;
    // Neither can be set within a transaction.
    connection.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA recursive_triggers = OFF; PRAGMA synchronous = FULL;",
    )?;
    connection.enable_triggers(false)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut work = Work::new(&connection, clone, policy);
    work.all(difference)?;
    let refused = policy == Policy::Fail && !work.applied.conflicts.is_empty();
    if ending == Ending::RollBack || refused {
        connection.rollback();
    } else {
        connection.execute_batch("COMMIT")?;
    }
    Ok(work.applied)
}

/// One application under way: a transaction is open on the original.
struct Work<'c> {
    original: &'c Connection,
    clone: &'c Path,
    policy: Policy,
    applied: Applied,
    /// Tables whose rows are not looked at one by one: they were made anew with all rows, or left alone.
    settled: BTreeSet<String>,
}

impl<'c> Work<'c> {
    fn new(original: &'c Connection, clone: &'c Path, policy: Policy) -> Self {
        Self { original, clone, policy, applied: Applied::default(), settled: BTreeSet::new() }
    }

    fn all(&mut self, difference: &Difference) -> Result<()> {
        let before = references::violations(self.original, difference)?;
        let numbers = given_numbers(self.original)?;
        let plan = schema::plan(self, difference)?;
        schema::prepare(self, &plan)?;
        for table in &difference.tables {
            if !self.settled.contains(&table.table.name) {
                self.table(table)?;
            }
        }
        schema::complete(self, &plan)?;
        self.sequences(difference, numbers)?;
        references::check(self, difference, &before)
    }

    fn table(&mut self, table: &TableDifference) -> Result<()> {
        let conflicts = self.applied.conflicts.len();
        keyed::apply(self, table)?;
        loose::apply(self, table)?;
        if !table.table.is_ordinary() && self.applied.conflicts.len() > conflicts {
            return Err(Error::Refused {
                reason: format!(
                    "table {} holds the content of a virtual table that was changed in the original, too, and such content cannot be put together",
                    table.table.name
                ),
                hint: Some("roll the sandbox back and repeat the work on the present state".to_owned()),
            });
        }
        Ok(())
    }

    /// Notes a conflict; whether the clone's version is to be written.
    fn conflict(&mut self, conflict: Conflict) -> bool {
        self.applied.conflicts.push(conflict);
        self.policy == Policy::Accept
    }

    /// Numbers that AUTOINCREMENT gave on either side are not given once more.
    fn sequences(&mut self, difference: &Difference, before: Vec<Vec<Value>>) -> Result<()> {
        if difference.is_empty() {
            return Ok(());
        }
        let clone = Connection::open(self.clone, Mode::Confined)?;
        clone.busy_timeout(PATIENCE)?;
        let known: BTreeSet<String> = tables(self.original)?.into_iter().map(|table| table.name).collect();
        let is_known = |row: &Vec<Value>| row[0].as_text().is_some_and(|name| known.contains(&name));
        let given = before.into_iter().chain(given_numbers(&clone)?);
        if !has_sequences(self.original)? {
            return Ok(());
        }
        for row in given.filter(is_known) {
            let raise = "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1";
            if self.original.execute(raise, &row)? == 0 {
                self.original.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", &row)?;
            }
        }
        Ok(())
    }

    /// An error where the original has not the columns that rows are to be written to.
    fn require_columns(&self, table: &crate::Table) -> Result<()> {
        // Not by a statement: SQLite takes a quoted name that no column has for a text.
        let here = match table_named(self.original, &table.name) {
            Ok(here) => here.columns,
            Err(Error::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_here = |name: &&String| here.iter().any(|column| column.eq_ignore_ascii_case(name));
        match table.columns.iter().find(|name| !is_here(name)) {
            None => Ok(()),
            Some(name) => Err(Error::refused(format!(
                "rows of table {} cannot be written to {}: it has no column {} there",
                quoted(&table.name),
                self.original.path().display(),
                quoted(name)
            ))),
        }
    }
}

fn has_sequences(connection: &Connection) -> Result<bool> {
    Ok(connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_sequence'")? > 0)
}

/// The last number that AUTOINCREMENT gave in each table.
fn given_numbers(connection: &Connection) -> Result<Vec<Vec<Value>>> {
    if !has_sequences(connection)? {
        return Ok(Vec::new());
    }
    connection.rows("SELECT name, seq FROM sqlite_sequence", &[])
}
