//! What differs between two databases, row by row, where nothing was recorded.
//!
//! One file began as a clone of the other, so most of their pages are the same, byte by byte. Only rows on pages that differ are looked
//! at. Where that cannot be done (another page size, a clone that was vacuumed, a table that was altered) all rows are read.

mod candidates;
mod rows;
mod schema;

use std::collections::BTreeMap;
use std::path::Path;

use sandboxer_core::Result;
use sandboxer_core::model::RowChange;

use crate::clone::PATIENCE;
use crate::connection::{Connection, Mode};
use crate::pages::{PageSet, Pages, differing};
use crate::schema::{Table, objects, tables};
use crate::value::to_row;
use crate::{Value, btree};

pub use rows::compare_whole;
pub use schema::SchemaChange;

/// Everything that differs, in words that JSON has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Row by row, sorted by table and key.
    pub rows: Vec<RowChange>,
    /// What differs of the schema.
    pub schema: Vec<SchemaChange>,
    /// What a careful person has to know of it.
    pub notices: Vec<String>,
}

/// Everything that differs, exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// What differs of the schema.
    pub schema: Vec<SchemaChange>,
    /// The tables that differ in rows, by name.
    pub tables: Vec<TableDifference>,
    /// What a careful person has to know of it.
    pub notices: Vec<String>,
}

/// How the rows of one table differ.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDifference {
    /// The table as the clone has it; as the base has it, where it was dropped.
    pub table: Table,
    /// Rows that are told apart by their primary key.
    pub keyed: Vec<KeyedChange>,
    /// Rows that nothing but their content tells apart.
    pub loose: Vec<LooseChange>,
}

/// How the row of one key differs.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedChange {
    /// The key.
    pub key: Vec<Value>,
    /// In the base; `None` if it was inserted.
    pub old: Option<Vec<Value>>,
    /// In the clone; `None` if it was deleted.
    pub new: Option<Vec<Value>>,
}

/// How often the clone has a row more than the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooseChange {
    /// The row.
    pub row: Vec<Value>,
    /// Positive where the clone has it more often.
    pub more: i64,
}

/// What differs in `clone` from `base`. Changes neither; programs may be writing to the clone: one state of it is compared.
pub fn difference(base: &Path, clone: &Path) -> Result<Changes> {
    Ok(exact_difference(base, clone)?.changes())
}

/// The same with exact values.
pub fn exact_difference(base: &Path, clone: &Path) -> Result<Difference> {
    let (base, clone) = (open(base)?, open(clone)?);
    between(&base, &clone, true)
}

/// The same by reading every row of both: for checking the other, and for measuring against.
pub fn naive_difference(base: &Path, clone: &Path) -> Result<Difference> {
    let (base, clone) = (open(base)?, open(clone)?);
    between(&base, &clone, false)
}

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path, Mode::Confined)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// Both sides in one state each, with the pages that differ where they can be told.
pub(crate) struct Sides<'c> {
    pub base: &'c Connection,
    pub clone: &'c Connection,
    pub base_pages: Pages<'c>,
    pub clone_pages: Pages<'c>,
    pub dirty: Option<Dirty>,
}

/// The pages that differ.
pub(crate) struct Dirty {
    pub pages: PageSet,
    /// Those among them that may be overflow pages.
    pub overflow: PageSet,
    /// The size of a page without what is reserved.
    pub usable: usize,
}

fn between(base: &Connection, clone: &Connection, by_page: bool) -> Result<Difference> {
    let (base_pages, clone_pages) = (Pages::of(base)?, Pages::of(clone)?);
    let dirty = if by_page { dirty(&base_pages, &clone_pages)? } else { None };
    let sides = Sides { base, clone, base_pages, clone_pages, dirty };
    let (old, new) = (objects(base)?, objects(clone)?);
    let mut difference = Difference { schema: schema::changes(&old, &new), ..Difference::default() };
    let by_name = |tables: Vec<Table>| tables.into_iter().map(|table| (table.name.clone(), table));
    let old_tables: BTreeMap<String, Table> = by_name(tables(base)?).collect();
    let new_tables: BTreeMap<String, Table> = by_name(tables(clone)?).collect();
    for (name, table) in &new_tables {
        let is_altered =
            |key| old.get(key).map(|object| &object.sql) != new.get(key).map(|object| &object.sql);
        let altered = is_altered(&("table".to_owned(), name.clone()));
        rows::compare(&sides, old_tables.get(name), Some(table), altered, &mut difference)?;
    }
    for (_, table) in old_tables.iter().filter(|(name, _)| !new_tables.contains_key(*name)) {
        rows::compare(&sides, Some(table), None, true, &mut difference)?;
    }
    difference.tables.sort_by(|a, b| a.table.name.cmp(&b.table.name));
    Ok(difference)
}

/// `None` where pages cannot be compared with one another.
fn dirty(base: &Pages<'_>, clone: &Pages<'_>) -> Result<Option<Dirty>> {
    if base.size != clone.size || base.count == 0 || clone.count == 0 {
        return Ok(None);
    }
    // The bytes at 16 to 24 are the size of a page, the versions, what is reserved, and fixed fractions; at 56 is the encoding of text.
    // The versions at 18 and 19 are the journal's and have no meaning here.
    let (old, new) = (base.page(1)?, clone.page(1)?);
    if old[20..24] != new[20..24] || old[56..60] != new[56..60] {
        return Ok(None);
    }
    let pages = differing(base, clone)?;
    let overflow = btree::maybe_overflow(base, clone, &pages)?;
    let usable = base.size - usize::from(old[20]);
    Ok((usable >= 480).then_some(Dirty { pages, overflow, usable }))
}

impl Difference {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.schema.is_empty() && self.tables.is_empty()
    }

    /// In words that JSON has.
    pub fn changes(&self) -> Changes {
        let rows = self.tables.iter().flat_map(TableDifference::rows).collect();
        Changes { rows, schema: self.schema.clone(), notices: self.notices.clone() }
    }
}

impl TableDifference {
    /// Row by row, sorted by key.
    pub fn rows(&self) -> Vec<RowChange> {
        let mut rows: Vec<RowChange> = self.keyed.iter().map(|one| one.row(&self.table)).collect();
        for one in &self.loose {
            rows.extend(std::iter::repeat_n(one.row(&self.table), one.more.unsigned_abs() as usize));
        }
        rows
    }
}

impl KeyedChange {
    /// In words that JSON has.
    pub fn row(&self, table: &Table) -> RowChange {
        row_change(table, &self.key, self.old.as_deref(), self.new.as_deref())
    }
}

impl LooseChange {
    /// In words that JSON has, as if it were once.
    pub fn row(&self, table: &Table) -> RowChange {
        let row = Some(self.row.as_slice());
        let (old, new) = if self.more < 0 { (row, None) } else { (None, row) };
        row_change(table, &table.key_of(&self.row), old, new)
    }
}

fn row_change(table: &Table, key: &[Value], old: Option<&[Value]>, new: Option<&[Value]>) -> RowChange {
    RowChange {
        table: table.name.clone(),
        key: to_row(&table.key_columns(), key),
        old: old.map(|row| to_row(&table.columns, row)),
        new: new.map(|row| to_row(&table.columns, row)),
    }
}
