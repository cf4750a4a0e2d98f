//! A clone, asked for the same things as a held transaction.

use std::path::Path;

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite as sqlite;
use sandboxer_sqlite::{Connection, Mode, Table};

use super::place::Place;
use crate::engine::{Changes, Engine, Executed, Page, Prepared, SchemaChange, Status, key_parts};

/// How long a statement waits for programs that have the clone open.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The clone of one workspace.
pub(super) struct SnapshotEngine {
    place: Place,
    strategy: String,
}

impl SnapshotEngine {
    pub fn new(place: Place, strategy: &str) -> Self {
        Self { place, strategy: strategy.to_owned() }
    }

    fn open(&self) -> Result<Connection> {
        let connection = Connection::open(&self.place.clone, Mode::Confined)?;
        connection.busy_timeout(PATIENCE)?;
        Ok(connection)
    }

    fn table(&self, name: &str) -> Result<(Connection, Table)> {
        let connection = self.open()?;
        let table = sqlite::table_named(&connection, name)?;
        Ok((connection, table))
    }

    fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        let reason = "that is the strategy's own business".to_owned();
        Err(Error::Unsupported { strategy: self.strategy.clone(), what, reason })
    }
}

fn parts(key: &str) -> Result<Vec<Option<String>>> {
    key_parts(key).ok_or_else(|| Error::usage(format!("{key:?} is not the text of a key")))
}

/// What differs between two databases.
pub(super) fn changes_between(base: &Path, clone: &Path) -> Result<Changes> {
    Ok(converted(sqlite::difference(base, clone)?))
}

/// The same in this crate's words.
pub(super) fn converted(changes: sqlite::Changes) -> Changes {
    let definition = |change: sqlite::SchemaChange| SchemaChange {
        kind: change.kind,
        name: change.name,
        old: change.old,
        new: change.new,
    };
    Changes {
        rows: changes.rows,
        schema: changes.schema.into_iter().map(definition).collect(),
        notices: changes.notices,
    }
}

impl Engine for SnapshotEngine {
    fn status(&mut self) -> Status {
        Status::Held { notices: Vec::new() }
    }

    fn schema(&mut self) -> Result<String> {
        sqlite::schema_text(&self.open()?)
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        Ok(sqlite::tables(&self.open()?)?.into_iter().map(|table| table.name).collect())
    }

    fn rows(&mut self, table: &str, page: &Page) -> Result<Vec<Row>> {
        let (connection, table) = self.table(table)?;
        let after = page.after.as_deref().map(parts).transpose()?;
        sqlite::rows_of(&connection, &table, after.as_deref(), page.limit)
    }

    fn row(&mut self, table: &str, key: &str) -> Result<Option<Row>> {
        let (connection, table) = self.table(table)?;
        sqlite::row_at(&connection, &table, &parts(key)?)
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        sqlite::query(&self.open()?, sql)
    }

    fn execute(&mut self, script: &str) -> Result<Executed> {
        let (statements, rows) = sqlite::execute_script(&self.open()?, script)?;
        Ok(Executed { statements, rows })
    }

    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
        let (connection, table) = self.table(table)?;
        sqlite::put(&connection, &table, &parts(key)?, row)
    }

    fn changes(&mut self) -> Result<Changes> {
        changes_between(&self.place.base(), &self.place.clone)
    }

    fn checkpoint(&mut self, _: &str) -> Result<()> {
        self.unsupported("take a checkpoint by its engine")
    }

    fn restore(&mut self, _: &str) -> Result<()> {
        self.unsupported("restore a checkpoint by its engine")
    }

    fn rollback(&mut self) -> Result<()> {
        self.unsupported("roll back by its engine")
    }

    fn intent(&mut self, _: &str) -> Result<Prepared> {
        self.unsupported("prepare by its engine")
    }

    fn commit(&mut self, _: &str) -> Result<()> {
        self.unsupported("commit by its engine")
    }

    fn prepare(&mut self, _: &str) -> Result<Prepared> {
        self.unsupported("prepare by its engine")
    }

    fn finish(&mut self, _: &Prepared) -> Result<()> {
        self.unsupported("finish by its engine")
    }

    fn abort(&mut self, _: &Prepared) -> Result<bool> {
        self.unsupported("abort by its engine")
    }

    fn close(&mut self) {}
}
