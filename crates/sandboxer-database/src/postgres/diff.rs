//! What the held transaction changed, row by row, without triggers and without reading both sides whole.
//!
//! *Which tables*: a statement that writes to a table holds a lock on it until the transaction ends; what was rolled back to a
//! savepoint has let go of it. *New rows*, from inside: those whose `xmin` is one of our transaction's numbers (each savepoint has
//! its own; all are at least the first). Others' rows that we see are committed, so "in progress" means ours. *Old rows*, from
//! a connection outside: rows whose `xmax` may be ours (a number of a transaction, or of a group of lockers: the two cannot be
//! told apart) are asked for inside by their place; what is still there was only locked, or is being changed by somebody else. What
//! is gone inside, and afterwards still there outside, was taken away by us: nobody else can have committed that.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use sandboxer_core::model::{Row, RowChange};
use sandboxer_core::{Error, Result};
use serde_json::Value;

use super::client::Rows;
use super::rows::{self, Session, Table, number, text, to_row};
use super::values::ident;
use crate::engine::key_text;

/// How many rows are asked for in one statement by their place or key.
const BATCH: usize = 5_000;

/// Where the held transaction began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The number of the transaction; those of its savepoints are larger.
    pub xid: u64,
    /// The number that the next group of lockers got then.
    pub multixact: u32,
    /// A schema of the sandbox's own on the server, which is not shown.
    pub hidden_schema: String,
    /// Whether what the server counts for the session could be switched off in it.
    pub uncounted: bool,
}

impl Base {
    /// Asked for inside the held transaction, before anything is done in it.
    pub fn read(inside: &mut dyn Session, hidden_schema: &str) -> Result<Self> {
        let answer = inside.query("SELECT txid_current(), mxid_age('1'::xid)")?;
        let row = answer.rows.first().map(Vec::as_slice).unwrap_or_default();
        let since_first: i32 = number(row, 1)?;
        let multixact = since_first.cast_unsigned().wrapping_add(1);
        let (xid, hidden_schema) = (number(row, 0)?, hidden_schema.to_owned());
        Ok(Self { xid, multixact, hidden_schema, uncounted: may_be_wrong(inside)? })
    }

    /// The condition, inside, that a row of a catalog or a table was written by the held transaction.
    pub fn written(&self, alias: &str) -> String {
        format!("age({alias}.xmin) <= 0 AND txid_status(txid_current() - age({alias}.xmin)) = 'in progress'")
    }

    /// The condition, outside, that a row may have been changed or locked by the held transaction.
    pub fn perhaps_changed(&self, alias: &str) -> String {
        format!(
            "{alias}.xmax <> '0'::xid AND (age({alias}.xmax) BETWEEN 0 AND age('{}'::xid) \
             OR mxid_age({alias}.xmax) BETWEEN 0 AND mxid_age('{}'::xid))",
            self.xid & 0xffff_ffff,
            self.multixact
        )
    }
}

/// The rows that differ, and what there is to know about them.
#[derive(Debug, Default)]
pub struct RowChanges {
    /// Sorted by table and key.
    pub rows: Vec<RowChange>,
    /// What could not be compared row by row, and why.
    pub notices: Vec<String>,
}

/// A table that was written to; a partition, if it has partitions.
struct Touched {
    oid: u32,
    name: String,
    root: u32,
    exclusive: bool,
    updated: bool,
    deleted: bool,
    filenode: String,
}

/// All tables of one name that rows can move between: a table, or a root with its partitions.
#[derive(Default)]
struct Sides {
    old: Vec<Row>,
    new: Vec<Row>,
}

/// What differs between inside and outside, at most `max_rows` of them.
pub fn rows_changed(
    inside: &mut dyn Session,
    outside: &mut dyn Session,
    base: &Base,
    max_rows: usize,
) -> Result<RowChanges> {
    let touched = touched(inside, base)?;
    let outside_nodes = filenodes(outside, &touched)?;
    let mut diff = Diff { inside, outside, base, left: max_rows, notices: Vec::new() };
    diff.notices = diff.unlisted()?;
    let mut tables: BTreeMap<u32, (Table, Sides)> = BTreeMap::new();
    for part in &touched {
        let table = rows::describe(diff.inside, part.root)?;
        let (table, sides) = tables.entry(part.root).or_insert_with(|| (table, Sides::default()));
        match outside_nodes.get(&part.oid) {
            None => sides.new.extend(diff.new_rows(table, part, max_rows)?),
            Some(node) if part.exclusive => diff.locked_out(table, part, node, sides)?,
            Some(_) => diff.compare(table, part, sides)?,
        }
    }
    let mut changed = RowChanges { rows: Vec::new(), notices: diff.notices };
    for (table, sides) in tables.into_values() {
        pair(&table, sides, &mut changed);
    }
    changed.rows.sort_by(|a, b| a.table.cmp(&b.table).then_with(|| by_key(a, b)));
    Ok(changed)
}

/// Whether the session may have switched the counters of the transaction off for a while: by a role that it can become, by a right to that setting,
/// or by a function that acts for somebody who has either. (`pg_parameter_acl` is there from version 15 on.)
const MAY_SWITCH: &str = "EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolsuper AND pg_catalog.pg_has_role(session_user, r.oid, 'member')) \
    OR EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_roles o ON o.oid = p.proowner \
      WHERE p.prosecdef AND o.rolsuper OR pg_catalog.array_to_string(p.proconfig, ' ') ~ 'track_counts')";

const GRANTED: &str = "EXISTS (SELECT FROM pg_catalog.pg_parameter_acl a WHERE a.parname = 'track_counts')";

/// Whether the counters may be wrong by what is true now.
fn may_be_wrong(inside: &mut dyn Session) -> Result<bool> {
    let grants = inside.query("SELECT pg_catalog.to_regclass('pg_catalog.pg_parameter_acl')")?;
    let granted = if grants.single().is_some() { GRANTED } else { "false" };
    let answer = inside.query(&format!(
        "SELECT NOT pg_catalog.current_setting('track_counts')::bool OR {MAY_SWITCH} OR {granted}"
    ))?;
    Ok(answer.single() != Some("f"))
}

fn touched(inside: &mut dyn Session, base: &Base) -> Result<Vec<Touched>> {
    // A right that was there at the beginning may have been taken back since.
    let uncounted = base.uncounted || may_be_wrong(inside)?;
    let counted = "pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid) \
                   + pg_stat_get_xact_tuples_deleted(c.oid) > 0";
    let answer = inside.query(&format!(
        "SELECT c.oid, format('%I.%I', n.nspname, c.relname), coalesce(pg_partition_root(c.oid)::oid, c.oid), \
         bool_or(l.mode = 'AccessExclusiveLock'), \
         pg_stat_get_xact_tuples_updated(c.oid) > 0 OR {uncounted}, \
         pg_stat_get_xact_tuples_deleted(c.oid) > 0 OR {uncounted}, \
         pg_relation_filenode(c.oid) \
         FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid() AND l.granted AND c.relkind = 'r' \
         AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
         AND {} \
         GROUP BY c.oid, n.nspname, c.relname \
         HAVING bool_or(l.mode = 'AccessExclusiveLock') OR {counted} OR {uncounted} \
         ORDER BY c.oid",
        rows::user_schema(&base.hidden_schema)
    ))?;
    answer.rows.iter().map(|row| touched_of(row)).collect()
}

fn touched_of(row: &[Option<String>]) -> Result<Touched> {
    Ok(Touched {
        oid: number(row, 0)?,
        name: text(row, 1),
        root: number(row, 2)?,
        exclusive: text(row, 3) == "t",
        updated: text(row, 4) == "t",
        deleted: text(row, 5) == "t",
        filenode: text(row, 6),
    })
}

/// Where each of the tables is stored as others see it; nothing for one that was made inside.
fn filenodes(outside: &mut dyn Session, touched: &[Touched]) -> Result<HashMap<u32, String>> {
    if touched.is_empty() {
        return Ok(HashMap::new());
    }
    let oids: Vec<_> = touched.iter().map(|part| part.oid.to_string()).collect();
    let answer = outside.query(&format!(
        "SELECT oid, pg_relation_filenode(oid) FROM pg_class WHERE oid IN ({})",
        oids.join(", ")
    ))?;
    answer.rows.iter().map(|row| Ok((number(row, 0)?, text(row, 1)))).collect()
}

struct Diff<'a> {
    inside: &'a mut dyn Session,
    outside: &'a mut dyn Session,
    base: &'a Base,
    left: usize,
    notices: Vec<String>,
}

impl Diff<'_> {
    /// What was written to and cannot be listed.
    fn unlisted(&mut self) -> Result<Vec<String>> {
        let answer = self.inside.query(&format!(
            "SELECT c.relkind, format('%I.%I', n.nspname, c.relname) \
             FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid() AND l.granted \
             AND l.mode IN ('RowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
             AND (c.relkind IN ('m', 'f') OR c.oid = 'pg_largeobject'::regclass) \
             UNION SELECT 'r', 'pg_catalog.pg_largeobject' FROM pg_largeobject_metadata x WHERE {} \
             ORDER BY 2",
            self.base.written("x")
        ))?;
        Ok(answer.rows.iter().map(|row| unlisted(&text(row, 0), &text(row, 1))).collect())
    }

    fn new_rows(&mut self, table: &Table, part: &Touched, limit: usize) -> Result<Vec<Row>> {
        let answer = self.inside.query(&self.written_query(table, part, limit))?;
        self.count(answer.rows.len(), table)?;
        Ok(rows::to_rows(&answer))
    }

    fn compare(&mut self, table: &Table, part: &Touched, sides: &mut Sides) -> Result<()> {
        let lookup = !part.deleted && !table.key.is_empty() && table.key_columns().all(|column| column.plain);
        if !lookup {
            return self.compare_by_place(table, part, sides);
        }
        let new = self.new_rows(table, part, self.left)?;
        let found = self.old_by_key(table, &new)?;
        // A row whose key was updated has its old version under a key that no new row has.
        let all_found = !part.updated || found.len() == new.len();
        let old = if all_found { found } else { self.old_by_place(table, part)? };
        sides.old.extend(old);
        sides.new.extend(new);
        Ok(())
    }

    /// Both sides are searched at once: each takes as long as reading the table.
    fn compare_by_place(&mut self, table: &Table, part: &Touched, sides: &mut Sides) -> Result<()> {
        let (inside_sql, outside_sql) =
            (self.written_query(table, part, self.left), self.candidates_query(table, part));
        let (inside, outside) = (&mut *self.inside, &mut *self.outside);
        let (new, candidates) = std::thread::scope(|scope| {
            let candidates = scope.spawn(|| outside.query(&outside_sql));
            (inside.query(&inside_sql), candidates.join())
        });
        let candidates = candidates.map_err(|_| Error::usage("comparing failed: a thread ended early"))?;
        let (new, candidates) = (new?, candidates?);
        self.count(new.rows.len(), table)?;
        sides.new.extend(rows::to_rows(&new));
        sides.old.extend(self.ours_of(table, part, &candidates)?);
        Ok(())
    }

    fn written_query(&self, table: &Table, part: &Touched, limit: usize) -> String {
        format!(
            "SELECT {} FROM ONLY {} t WHERE {} LIMIT {}",
            table.column_list(),
            part.name,
            self.base.written("t"),
            limit.saturating_add(1)
        )
    }

    fn candidates_query(&self, table: &Table, part: &Touched) -> String {
        format!(
            "SELECT t.ctid, t.xmin, {} FROM ONLY {} t WHERE {}",
            table.column_list(),
            part.name,
            self.base.perhaps_changed("t")
        )
    }

    fn old_by_key(&mut self, table: &Table, new: &[Row]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for batch in new.chunks(BATCH) {
            let keys: Vec<_> = batch.iter().map(|row| key_literals(table, row)).collect::<Result<_>>()?;
            let columns: Vec<_> = table.key_columns().map(|column| ident(&column.name)).collect();
            let answer = self.outside.query(&format!(
                "SELECT {} FROM {}{} WHERE ({}) IN (VALUES {})",
                table.column_list(),
                if table.partitioned { "" } else { "ONLY " },
                table.quoted(),
                columns.join(", "),
                keys.join(", ")
            ))?;
            found.extend(rows::to_rows(&answer));
        }
        Ok(found)
    }

    fn old_by_place(&mut self, table: &Table, part: &Touched) -> Result<Vec<Row>> {
        let candidates = self.outside.query(&self.candidates_query(table, part))?;
        self.ours_of(table, part, &candidates)
    }

    /// The rows among the candidates that are gone inside and there outside.
    fn ours_of(&mut self, table: &Table, part: &Touched, candidates: &Rows) -> Result<Vec<Row>> {
        let mut old = Vec::new();
        for batch in candidates.rows.chunks(BATCH) {
            let inside = versions(self.inside, part, batch.iter())?;
            let gone: Vec<_> = batch.iter().filter(|row| !inside.contains(&version(row))).collect();
            let outside = versions(self.outside, part, gone.iter().copied())?;
            let ours = gone.into_iter().filter(|row| outside.contains(&version(row)));
            old.extend(ours.map(|row| to_row(candidates, row, 2)));
        }
        self.count(old.len(), table)?;
        Ok(old)
    }

    /// A table that nobody outside can read: its old rows stay unknown.
    fn locked_out(&mut self, table: &Table, part: &Touched, node: &str, sides: &mut Sides) -> Result<()> {
        if part.filenode != node {
            let count = self.inside.query(&format!("SELECT count(*) FROM ONLY {}", part.name))?;
            let count = count.rows.first().map(|row| text(row, 0)).unwrap_or_default();
            self.notices.push(format!(
                "{} was emptied or written anew as a whole (TRUNCATE, ALTER TABLE, CLUSTER): its rows are not compared; \
                 it has {count} now",
                part.name
            ));
            return Ok(());
        }
        let new = self.new_rows(table, part, self.left)?;
        self.notices.push(format!(
            "{} is locked against all others by a change of its definition, so its rows cannot be read as they are outside: rows \
             that were written are shown as new, and deleted ones are not shown",
            part.name
        ));
        sides.new.extend(new);
        Ok(())
    }

    fn count(&mut self, rows: usize, table: &Table) -> Result<()> {
        self.left = self.left.checked_sub(rows).ok_or_else(|| Error::Refused {
            reason: format!(
                "more rows differ than a difference may list; the last ones are of {}",
                table.full_name()
            ),
            hint: Some("raise max_rows for this resource type".to_owned()),
        })?;
        Ok(())
    }
}

fn unlisted(kind: &str, name: &str) -> String {
    match kind {
        "m" => format!("the materialized view {name} was refreshed; its rows are not compared"),
        "f" => format!("rows of the foreign table {name} were written; they are not compared"),
        _ => "large objects were written; they are not compared".to_owned(),
    }
}

fn key_literals(table: &Table, row: &Row) -> Result<String> {
    let values = table.key.iter().map(|&place| {
        let column = &table.columns[place];
        super::values::from_json(&row.0[place].1, &column.type_name)
    });
    Ok(format!("({})", values.collect::<Result<Vec<_>>>()?.join(", ")))
}

/// The place of a version of a row, and who wrote it: no other version has both.
type Version = (String, String);

fn version(row: &[Option<String>]) -> Version {
    (text(row, 0), text(row, 1))
}

/// Which of these versions a session sees.
fn versions<'r>(
    session: &mut dyn Session,
    part: &Touched,
    rows: impl Iterator<Item = &'r Vec<Option<String>>>,
) -> Result<HashSet<Version>> {
    let places: Vec<_> = rows.map(|row| format!("\"{}\"", text(row, 0))).collect();
    if places.is_empty() {
        return Ok(HashSet::new());
    }
    let answer: Rows = session.query(&format!(
        "SELECT ctid, xmin FROM ONLY {} WHERE ctid = ANY('{{{}}}'::tid[])",
        part.name,
        places.join(",")
    ))?;
    Ok(answer.rows.iter().map(|row| version(row)).collect())
}

fn pair(table: &Table, sides: Sides, changed: &mut RowChanges) {
    if table.key.is_empty() {
        changed.notices.push(format!(
            "{} has no primary key: its rows are compared as a whole, an update is a deletion and an insertion",
            table.full_name()
        ));
        return pair_whole(table, sides, changed);
    }
    let key = |row: &Row| key_text(table.key.iter().map(|&place| &row.0[place].1));
    let mut old: HashMap<String, Row> = sides.old.into_iter().map(|row| (key(&row), row)).collect();
    for new in sides.new {
        let before = old.remove(&key(&new));
        if before.as_ref() != Some(&new) {
            changed.rows.push(change(table, before, Some(new)));
        }
    }
    changed.rows.extend(old.into_values().map(|row| change(table, Some(row), None)));
}

fn pair_whole(table: &Table, sides: Sides, changed: &mut RowChanges) {
    let whole = |row: &Row| row.0.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>();
    let mut old: HashMap<Vec<String>, Vec<Row>> = HashMap::new();
    for row in sides.old {
        old.entry(whole(&row)).or_default().push(row);
    }
    for new in sides.new {
        if old.get_mut(&whole(&new)).and_then(Vec::pop).is_none() {
            changed.rows.push(change(table, None, Some(new)));
        }
    }
    changed.rows.extend(old.into_values().flatten().map(|row| change(table, Some(row), None)));
}

fn change(table: &Table, old: Option<Row>, new: Option<Row>) -> RowChange {
    let key = old.as_ref().or(new.as_ref()).map(|row| table.key_of(row)).unwrap_or_default();
    RowChange { table: table.full_name(), key, old, new }
}

fn by_key(a: &RowChange, b: &RowChange) -> Ordering {
    let whole = |change: &RowChange| change.new.clone().or(change.old.clone()).unwrap_or_default();
    let (mut left, mut right) = (a.key.clone(), b.key.clone());
    if left.0.is_empty() && right.0.is_empty() {
        (left, right) = (whole(a), whole(b));
    }
    let values = left.0.iter().zip(&right.0).map(|((_, x), (_, y))| by_value(x, y));
    values.fold(Ordering::Equal, Ordering::then).then_with(|| b.old.is_some().cmp(&a.old.is_some()))
}

fn by_value(a: &Value, b: &Value) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(x), Some(y)) => x.cmp(&y),
        _ => key_text([a]).cmp(&key_text([b])),
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
