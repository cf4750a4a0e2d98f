//! Rows and queries.

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{put, query, row_at, rows_of, table_named};

use super::held::Held;
use super::statements::judge;
use crate::engine::{Page, key_parts};

fn parts(key: &str) -> Result<Vec<Option<String>>> {
    key_parts(key)
        .ok_or_else(|| Error::usage(format!("{key:?} is no key: its percent-encoding is malformed")))
}

pub(super) fn page(held: &Held, table: &str, page: &Page) -> Result<Vec<Row>> {
    let table = table_named(held.inside(), table)?;
    let after = page.after.as_deref().map(parts).transpose()?;
    rows_of(held.inside(), &table, after.as_deref(), page.limit)
}

pub(super) fn one(held: &Held, table: &str, key: &str) -> Result<Option<Row>> {
    let table = table_named(held.inside(), table)?;
    row_at(held.inside(), &table, &parts(key)?)
}

pub(super) fn put_one(held: &Held, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
    let table = table_named(held.inside(), table)?;
    let parts = parts(key)?;
    held.unit(true, |held| put(held.inside(), &table, &parts, row))
}

/// What a statement gives; whatever it changes is rolled back.
pub(super) fn ask(held: &Held, sql: &str) -> Result<Vec<Row>> {
    if sql.contains('\0') {
        return Err(Error::usage("a query cannot have NUL bytes in it"));
    }
    judge(sql)?;
    query(held.inside(), sql)
}
