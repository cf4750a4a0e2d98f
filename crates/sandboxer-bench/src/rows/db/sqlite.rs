//! The difference of two SQLite files, and what it costs to record what a transaction changes.

use std::path::{Path, PathBuf};

use sandboxer_sqlite::{Connection, Mode, Recorder, clone, difference, session_diff};

use super::{Scale, grouped, timed};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave};
use crate::place::Place;
use crate::report::Row;
use crate::rows::Bench;

const DIFF_GOAL: f64 = 0.05;
const RECORD_GOAL: f64 = 3.5;
/// What a row takes in a file at most, and what its change takes in the WAL.
const ROW_BYTES: u64 = 400;

/// The difference of rows that are far apart, by the pages that differ, against SQLite's own comparison of the whole table.
pub fn diff(bench: &Bench, scale: &Scale) -> Result<Row> {
    let (changed, all) = (grouped(scale.changed), grouped(scale.rows));
    let name = format!("SQLite diff of {changed} rows among {all} vs session_diff of the table");
    bench.row(&name, Some(DIFF_GOAL), || {
        let place = Place::tmpfs(2 * room(scale.rows))?;
        let base = filled(&place, scale.rows)?;
        let changed = place.root().join("changed.db");
        clone(&base, &changed).during("clone", &base)?;
        let every = scale.rows / scale.changed;
        open(&changed)?
            .execute_batch(&format!("UPDATE items SET price = price + 1 WHERE id % {every} = 0"))
            .during("change", &changed)?;
        let ours = || {
            let (sample, found) =
                timed(|| difference(&base, &changed).during("compare the pages of", &changed))?;
            expect("the difference", found.rows.len(), scale.changed).map(|()| sample)
        };
        let theirs = || whole(&base, &changed, scale.changed);
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        Ok(Row::timed(&name, Some(DIFF_GOAL), &sides))
    })
}

/// SQLite's own comparison, until it has its changeset.
fn whole(base: &Path, changed: &Path, expected: usize) -> Result<Sample> {
    let (sample, found) =
        timed(|| session_diff(base, changed, "items").during("compare the rows of", changed))?;
    let found = found.changes().during("understand the changeset of", changed)?;
    expect("session_diff", found.len(), expected).map(|()| sample)
}

fn expect(what: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{what} found {found} changed rows where there are {expected}")))
}

/// One statement that writes many rows in a transaction that is held, recorded and not.
pub fn recording(bench: &Bench, scale: &Scale) -> Result<Vec<Row>> {
    let bulk = scale.bulk;
    let update = format!("UPDATE items SET price = price + 1 WHERE id <= {bulk}");
    [("insert", insert(bulk, 2 * bulk)), ("update", update)]
        .into_iter()
        .map(|(what, statement)| recorded(bench, bulk, what, &statement))
        .collect()
}

fn recorded(bench: &Bench, bulk: usize, what: &str, statement: &str) -> Result<Row> {
    let name = format!("SQLite {what} of {} rows, recorded vs not", grouped(bulk));
    bench.row(&name, Some(RECORD_GOAL), || {
        let place = Place::tmpfs(4 * room(bulk))?;
        let path = filled(&place, bulk)?;
        open(&path)?.execute_batch("PRAGMA journal_mode = WAL").during("set the journal of", &path)?;
        let ours = || {
            let recorder = Recorder::start(open(&path)?).during("record", &path)?;
            let sample = written(recorder.connection(), statement)?;
            recorder.connection().rollback();
            Ok(sample)
        };
        let theirs = || {
            let connection = open(&path)?;
            let sample = written(&connection, statement)?;
            connection.rollback();
            Ok(sample)
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        Ok(Row::timed(&name, Some(RECORD_GOAL), &sides))
    })
}

/// The transaction stays open, as it does in a sandbox: ending it is not timed.
fn written(connection: &Connection, statement: &str) -> Result<Sample> {
    let path = connection.path();
    connection.execute_batch("BEGIN IMMEDIATE").during("begin a transaction on", path)?;
    let (sample, ()) = timed(|| connection.execute_batch(statement).during("write to", path))?;
    Ok(sample)
}

/// A new database with so many rows of some hundred bytes.
fn filled(place: &Place, rows: usize) -> Result<PathBuf> {
    let path = place.root().join("items.db");
    let connection = Connection::open(&path, Mode::Create).during("create", &path)?;
    let table = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL, note TEXT)";
    connection.execute_batch(table).during("make a table in", &path)?;
    connection.execute_batch(&insert(0, rows)).during("fill", &path)?;
    Ok(path)
}

/// Inserts the rows after the first and up to the last number.
fn insert(after: usize, last: usize) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT {after} + 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last}) \
         INSERT INTO items SELECT i, 'item number ' || i, i * 0.25, hex(randomblob(30)) FROM n"
    )
}

fn open(path: &Path) -> Result<Connection> {
    Connection::open(path, Mode::ReadWrite).during("open", path)
}

fn room(rows: usize) -> u64 {
    rows as u64 * ROW_BYTES + (64 << 20)
}
