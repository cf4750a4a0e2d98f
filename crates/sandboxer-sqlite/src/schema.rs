//! What a database has: tables with their columns and keys, and the definitions of everything.

use std::collections::BTreeMap;

use sandboxer_core::{Error, Result};

use crate::Value;
use crate::connection::Connection;

/// What kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// One with rows of its own.
    Ordinary,
    /// One that a virtual table keeps its content in.
    Shadow,
}

/// One table that rows are stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// What kind.
    pub kind: TableKind,
    /// The columns that are stored; generated ones are not.
    pub columns: Vec<String>,
    /// The default of each, as SQL.
    pub defaults: Vec<Option<String>>,
    /// Which columns are the primary key, in its order.
    pub key: Vec<usize>,
    /// Whether the primary key is the rowid.
    pub key_is_rowid: bool,
    /// A name that the rowid goes by; `None` where there is no rowid, or columns have taken all its names.
    pub rowid: Option<&'static str>,
    /// Whether it is a table WITHOUT ROWID.
    pub without_rowid: bool,
    /// The page that its tree begins at.
    pub root: u32,
}

impl Table {
    /// Whether it is not the inside of a virtual table.
    pub fn is_ordinary(&self) -> bool {
        self.kind == TableKind::Ordinary
    }

    /// The names of the key's columns.
    pub fn key_columns(&self) -> Vec<String> {
        self.key.iter().map(|index| self.columns[*index].clone()).collect()
    }

    /// The values of the key in a row.
    pub fn key_of(&self, row: &[Value]) -> Vec<Value> {
        self.key.iter().map(|index| row[*index].clone()).collect()
    }

    /// The columns as SQL.
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ")
    }

    /// `SELECT` of the stored columns.
    pub fn select(&self) -> String {
        format!("SELECT {} FROM {}", self.column_list(), quoted(&self.name))
    }

    /// The order in which rows are stored, as SQL.
    pub(crate) fn natural_order(&self) -> String {
        match self.rowid {
            Some(rowid) => format!(" ORDER BY {rowid}"),
            None if self.without_rowid => format!(" ORDER BY {}", self.order()),
            None => String::new(),
        }
    }

    /// The key's columns as SQL, for ordering; the rowid where there is no key.
    pub fn order(&self) -> String {
        let key: Vec<String> = self.key_columns().iter().map(|column| quoted(column)).collect();
        match (key.is_empty(), self.rowid) {
            (false, _) => key.join(", "),
            (true, Some(rowid)) => rowid.to_owned(),
            (true, None) => "1".to_owned(),
        }
    }
}

/// The condition that a row has a key, with a parameter for each column of it.
pub fn key_condition(table: &Table) -> String {
    let equals = |(position, column): (usize, &String)| format!("{} = ?{}", quoted(column), position + 1);
    table.key_columns().iter().enumerate().map(equals).collect::<Vec<_>>().join(" AND ")
}

/// A name as SQL.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The tables that rows are stored in, by name; neither SQLite's own nor virtual ones.
pub fn tables(connection: &Connection) -> Result<Vec<Table>> {
    let sql = "SELECT l.name, l.type, l.wr, s.rootpage FROM pragma_table_list l JOIN sqlite_schema s
        ON s.name = l.name AND s.type = 'table' WHERE l.schema = 'main' AND l.type IN ('table', 'shadow')
        AND s.rootpage > 0 AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY l.name";
    connection.rows(sql, &[])?.iter().map(|row| table(connection, row)).collect()
}

/// The table of that name.
pub fn table_named(connection: &Connection, name: &str) -> Result<Table> {
    let mut tables = tables(connection)?;
    let found = tables.iter().position(|table| table.name.eq_ignore_ascii_case(name));
    match found {
        Some(index) => Ok(tables.swap_remove(index)),
        None => Err(Error::not_found("table", name)),
    }
}

fn text(value: &Value) -> String {
    value.as_text().unwrap_or_default()
}

fn table(connection: &Connection, listed: &[Value]) -> Result<Table> {
    let name = text(&listed[0]);
    let without_rowid = listed[2] == Value::Integer(1);
    let sql = "SELECT name, dflt_value, pk FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid";
    let rows = connection.rows(sql, &[Value::text(&*name)])?;
    let mut key: Vec<(i64, usize)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        key.extend(row[2].as_integer().filter(|position| *position > 0).map(|position| (position, index)));
    }
    key.sort_unstable();
    let columns: Vec<String> = rows.iter().map(|row| text(&row[0])).collect();
    let sql = "SELECT count(*) FROM pragma_index_list(?1) WHERE origin = 'pk'";
    let has_index = connection.rows(sql, &[Value::text(&*name)])?[0][0] != Value::Integer(0);
    Ok(Table {
        kind: if text(&listed[1]) == "shadow" { TableKind::Shadow } else { TableKind::Ordinary },
        key_is_rowid: key.len() == 1 && !has_index && !without_rowid,
        rowid: if without_rowid { None } else { rowid_name(&columns) },
        key: key.into_iter().map(|(_, index)| index).collect(),
        defaults: rows.iter().map(|row| row[1].as_text()).collect(),
        root: listed[3].as_integer().and_then(|root| u32::try_from(root).ok()).unwrap_or_default(),
        name,
        columns,
        without_rowid,
    })
}

fn rowid_name(columns: &[String]) -> Option<&'static str> {
    let is_free = |name: &&str| !columns.iter().any(|column| column.eq_ignore_ascii_case(name));
    ["rowid", "_rowid_", "oid"].into_iter().find(is_free)
}

/// One definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `table`, `index`, `view`, `trigger`, `pragma`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The table that it belongs to; its own name for tables and views.
    pub table: String,
    /// The SQL that makes it.
    pub sql: String,
    /// Whether it is a virtual table, or one that a virtual table keeps its content in.
    pub is_virtual: bool,
    /// Whether another statement makes it: the virtual table's.
    pub is_shadow: bool,
}

/// Everything that is defined, by kind and name; and the numbers in the header that programs keep their versions in.
pub fn objects(connection: &Connection) -> Result<BTreeMap<(String, String), Object>> {
    let sql =
        "SELECT s.type, s.name, s.tbl_name, s.sql, l.type FROM sqlite_schema s LEFT JOIN pragma_table_list l
        ON l.schema = 'main' AND l.name = s.name AND s.type = 'table'
        WHERE s.sql IS NOT NULL AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY s.type, s.name";
    let object = |row: Vec<Value>| Object {
        kind: text(&row[0]),
        name: text(&row[1]),
        table: text(&row[2]),
        sql: text(&row[3]),
        is_virtual: matches!(row[4].as_text().as_deref(), Some("virtual" | "shadow")),
        is_shadow: row[4].as_text().as_deref() == Some("shadow"),
    };
    let mut objects: Vec<Object> = connection.rows(sql, &[])?.into_iter().map(object).collect();
    for name in ["user_version", "application_id"] {
        let value = connection.integer(&format!("PRAGMA {name}"))?;
        objects.push(pragma(name, value));
    }
    Ok(objects.into_iter().map(|object| ((object.kind.clone(), object.name.clone()), object)).collect())
}

fn pragma(name: &str, value: i64) -> Object {
    Object {
        kind: "pragma".to_owned(),
        name: name.to_owned(),
        table: String::new(),
        sql: format!("PRAGMA {name} = {value}"),
        is_virtual: false,
        is_shadow: false,
    }
}

/// The schema as SQL that can be run: tables, then indexes, views and triggers, each by name.
pub fn schema_text(connection: &Connection) -> Result<String> {
    let objects = objects(connection)?;
    let mut text = String::new();
    for kind in ["pragma", "table", "index", "view", "trigger"] {
        let shown =
            |object: &&Object| object.kind == kind && !object.is_shadow && !object.sql.ends_with(" = 0");
        for object in objects.values().filter(shown) {
            text += &format!("{};\n", object.sql);
        }
    }
    Ok(text)
}
