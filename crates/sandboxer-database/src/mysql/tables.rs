//! Tables: their columns, their keys, their names in SQL.

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::{Error, Result};

use super::errors;
use super::location::Server;

/// The server's own.
pub(super) const SYSTEM: [&str; 4] = ["mysql", "information_schema", "performance_schema", "sys"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Without length: `int`, `varchar`.
    pub(super) data_type: String,
    pub(super) unsigned: bool,
    /// Computed from the others; cannot be written.
    pub(super) generated: bool,
}

impl Column {
    pub(super) fn is_integer(&self) -> bool {
        ["tinyint", "smallint", "mediumint", "int", "bigint"].contains(&self.data_type.as_str())
    }

    /// Whether it may be too long to be put together with others in one value; all the rest of a row is at most 64 KB.
    fn is_long(&self) -> bool {
        let long = ["text", "blob", "json", "geometry", "point", "polygon", "linestring", "collection"];
        long.iter().any(|kind| self.data_type.ends_with(kind))
    }

    fn is_bytes(&self) -> bool {
        self.data_type.ends_with("blob") || self.data_type.ends_with("binary") || self.data_type == "bit"
    }

    /// A parameter that stands for a text form of a value of this column.
    pub(super) fn parameter(&self) -> &'static str {
        match (self.is_integer(), self.unsigned) {
            (true, true) => "CAST(? AS UNSIGNED)",
            (true, false) => "CAST(? AS SIGNED)",
            _ => "?",
        }
    }

    /// The value behind a part of a key.
    pub(super) fn raw(&self, part: Option<&str>) -> Result<mysql::Value> {
        match part {
            None => Ok(mysql::Value::NULL),
            Some(text) if self.is_bytes() => super::values::bytes_of(text).map(mysql::Value::Bytes),
            Some(text) => Ok(mysql::Value::Bytes(text.as_bytes().to_vec())),
        }
    }

    /// Something that differs where the value does, of bounded length, and bytes whatever the column's character set is.
    pub(super) fn digest(&self) -> String {
        let name = quoted(&self.name);
        let bytes = match self.data_type.as_str() {
            // As a text, a FLOAT has six digits.
            "float" => format!("CAST(CAST({name} AS DOUBLE) AS BINARY)"),
            // Longer than `max_allowed_packet`, a concatenation would be NULL, and NULL is equal to everything.
            _ if self.is_long() => return format!("IFNULL(MD5(CAST({name} AS BINARY)),'-')"),
            _ => format!("CAST({name} AS BINARY)"),
        };
        format!("IFNULL(QUOTE({bytes}),'-')")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    /// What we call it: without the database, where that is the resource's.
    pub(super) shown: String,
    pub(super) columns: Vec<Column>,
    /// The columns of the primary key, or of a unique one without NULLs; empty if there is neither.
    pub(super) key: Vec<String>,
}

impl Table {
    pub(super) fn sql(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    pub(super) fn key_columns(&self) -> Vec<&Column> {
        self.key.iter().filter_map(|name| self.columns.iter().find(|column| column.name == *name)).collect()
    }

    pub(super) fn key_list(&self) -> String {
        self.key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(",")
    }

    pub(super) fn column_list(&self) -> String {
        self.columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(",")
    }
}

/// A name for use in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Asks the server about its tables.
pub(super) struct Catalogue<'a> {
    pub(super) server: &'a Server,
    pub(super) conn: &'a mut Conn,
}

impl Catalogue<'_> {
    fn database(&self) -> &str {
        &self.server.location.database
    }

    fn failed(&self, what: &str, error: &mysql::Error) -> Error {
        errors::failed(self.server, what, error, std::time::Duration::ZERO)
    }

    /// The names of the base tables of the database.
    pub(super) fn names(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_name";
        let database = self.database().to_owned();
        self.conn.exec(sql, (database,)).map_err(|error| self.failed("listing the tables", &error))
    }

    /// Every table that somebody can work with, of all databases.
    pub(super) fn all(&mut self) -> Result<Vec<(String, String)>> {
        let sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') \
                   AND table_schema NOT IN ('mysql','information_schema','performance_schema','sys') ORDER BY 1, 2";
        self.conn.query(sql).map_err(|error| self.failed("listing all tables", &error))
    }

    /// A table by the name we gave it.
    pub(super) fn named(&mut self, shown: &str) -> Result<Table> {
        let database = self.database().to_owned();
        if let Some(table) = self.find(&database, shown)? {
            return Ok(table);
        }
        if let Some((schema, name)) = shown.split_once('.')
            && let Some(table) = self.find(schema, name)?
        {
            return Ok(table);
        }
        let similar = self.names().unwrap_or_default();
        let similar = similar.into_iter().filter(|name| name.eq_ignore_ascii_case(shown)).collect();
        Err(Error::NotFound { what: "table", name: shown.to_owned(), similar })
    }

    /// `None` if it is not there, or nothing of it can be seen.
    pub(super) fn find(&mut self, schema: &str, name: &str) -> Result<Option<Table>> {
        let columns = self.columns(schema, name)?;
        if columns.is_empty() {
            return Ok(None);
        }
        let shown = if schema == self.database() { name.to_owned() } else { format!("{schema}.{name}") };
        let key = self.key(schema, name)?;
        Ok(Some(Table { schema: schema.to_owned(), name: name.to_owned(), shown, columns, key }))
    }

    fn columns(&mut self, schema: &str, name: &str) -> Result<Vec<Column>> {
        let sql = "SELECT column_name, data_type, column_type, extra FROM information_schema.columns \
                   WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
        let rows: Vec<(String, String, String, String)> = self
            .conn
            .exec(sql, (schema, name))
            .map_err(|error| self.failed("looking at the columns", &error))?;
        let column = |(name, data_type, column_type, extra): (String, String, String, String)| Column {
            name,
            data_type: data_type.to_lowercase(),
            unsigned: column_type.contains("unsigned"),
            generated: ["VIRTUAL", "STORED", "PERSISTENT"]
                .iter()
                .any(|word| extra.to_uppercase().contains(word)),
        };
        Ok(rows.into_iter().map(column).collect())
    }

    fn key(&mut self, schema: &str, name: &str) -> Result<Vec<String>> {
        let sql = "SELECT index_name, column_name, COALESCE(nullable, '') = 'YES' OR sub_part IS NOT NULL OR column_name IS NULL \
                   FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? AND non_unique = 0 \
                   ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index";
        let rows: Vec<(String, Option<String>, bool)> = self
            .conn
            .exec(sql, (schema, name))
            .map_err(|error| self.failed("looking at the keys", &error))?;
        let mut keys: Vec<(String, Vec<String>, bool)> = Vec::new();
        for (index, column, unfit) in rows {
            if keys.last().is_none_or(|(last, _, _)| *last != index) {
                keys.push((index, Vec::new(), true));
            }
            if let Some((_, columns, fit)) = keys.last_mut() {
                columns.extend(column);
                *fit &= !unfit;
            }
        }
        Ok(keys.into_iter().find(|(_, _, fit)| *fit).map(|(_, columns, _)| columns).unwrap_or_default())
    }
}
