//! Tables as the catalog describes them, and their rows: read in the order of the key, one by its key, written at its key.

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::client::{Connection, Rows};
use super::values::{from_json, from_key, ident, literal, to_json};
use crate::engine::{Page, key_parts};

/// Where SQL can be asked: the held session in its turn, or a connection of our own.
pub trait Session: Send {
    /// Runs one statement (or several, of which the last one's rows are given).
    fn query(&mut self, sql: &str) -> Result<Rows>;
}

impl Session for Connection {
    fn query(&mut self, sql: &str) -> Result<Rows> {
        Ok(Self::query(self, sql)?)
    }
}

/// A table: an ordinary one, or the root of a partitioned one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its number in `pg_class`.
    pub oid: u32,
    /// Schema and name.
    pub schema: String,
    /// Without the schema.
    pub name: String,
    /// Whether its rows are in partitions.
    pub partitioned: bool,
    /// In the order of their numbers.
    pub columns: Vec<Column>,
    /// The columns of the primary key, in its order, as places in `columns`.
    pub key: Vec<usize>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the catalog writes it, with the schema where it is not the server's own.
    pub type_name: String,
    /// Whether it is computed (`GENERATED ALWAYS AS (…) STORED`).
    pub generated: bool,
    /// Whether it is `GENERATED ALWAYS AS IDENTITY`.
    pub identity: bool,
    /// Whether its type is compared by operators that are found without any schema but the server's own.
    pub plain: bool,
}

impl Table {
    /// As in `public.users`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// In quotes, for SQL.
    pub fn quoted(&self) -> String {
        format!("{}.{}", ident(&self.schema), ident(&self.name))
    }

    /// What to read from: this table without those that inherit from it, but with partitions.
    fn source(&self) -> String {
        if self.partitioned { self.quoted() } else { format!("ONLY {}", self.quoted()) }
    }

    /// All columns, for a select list.
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|column| ident(&column.name)).collect::<Vec<_>>().join(", ")
    }

    /// The columns of the key.
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().map(|&place| &self.columns[place])
    }

    fn key_list(&self) -> String {
        self.key_columns().map(|column| ident(&column.name)).collect::<Vec<_>>().join(", ")
    }

    /// The values of a row that are its key.
    pub fn key_of(&self, row: &Row) -> Row {
        Row(self.key.iter().filter_map(|&place| row.0.get(place).cloned()).collect())
    }

    /// The literals of a key that is given as text.
    fn key_literals(&self, key: &str) -> Result<Vec<String>> {
        self.need_key()?;
        let parts = key_parts(key).filter(|parts| parts.len() == self.key.len());
        let parts = parts.ok_or_else(|| self.bad_key(key))?;
        let literals = self.key_columns().zip(parts).map(|(column, part)| match part {
            Some(text) => from_key(&text, &column.type_name),
            None => Err(self.bad_key(key)),
        });
        literals.collect()
    }

    fn bad_key(&self, key: &str) -> Error {
        Error::Usage {
            message: format!("{key:?} is no key of {}", self.full_name()),
            hint: Some(format!("a key gives {}, joined by commas", self.key_list())),
        }
    }

    fn need_key(&self) -> Result<()> {
        if !self.key.is_empty() {
            return Ok(());
        }
        Err(Error::Usage {
            message: format!("{} has no primary key, so its rows have no names", self.full_name()),
            hint: Some("use a query, or a script of SQL".to_owned()),
        })
    }

    fn at_key(&self, key: &str) -> Result<String> {
        let literals = self.key_literals(key)?;
        let terms =
            self.key_columns().zip(literals).map(|(c, value)| format!("{} = {value}", ident(&c.name)));
        Ok(terms.collect::<Vec<_>>().join(" AND "))
    }
}

/// The names of the user's tables: ordinary ones and partitioned ones, without their partitions.
pub fn tables(session: &mut dyn Session, hidden_schema: &str) -> Result<Vec<String>> {
    let rows = session.query(&format!(
        "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {} ORDER BY 1",
        user_schema(hidden_schema)
    ))?;
    Ok(rows.rows.into_iter().filter_map(|mut row| row.remove(0)).collect())
}

/// The condition that `n` in `pg_namespace` is a schema of the user's.
pub fn user_schema(hidden_schema: &str) -> String {
    format!(
        "n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND n.nspname <> {}",
        literal(hidden_schema)
    )
}

/// The table of that name, with its schema or, where that leaves no doubt, without.
pub fn find(session: &mut dyn Session, name: &str) -> Result<Table> {
    let found = session.query(&format!(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' \
         AND (n.nspname || '.' || c.relname = {0} OR c.relname = {0}) ORDER BY c.relname = {0} LIMIT 3",
        literal(name)
    ))?;
    match found.rows.as_slice() {
        [] => Err(Error::not_found("table", name)),
        [row, rest @ ..] if rest.is_empty() || name.contains('.') => describe(session, number(row, 0)?),
        _ => Err(Error::Usage {
            message: format!("more than one table is called {name:?}"),
            hint: Some("say which, as schema.table".to_owned()),
        }),
    }
}

/// What the catalog says of a table.
pub fn describe(session: &mut dyn Session, oid: u32) -> Result<Table> {
    let head = session.query(&format!(
        "SELECT n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = {oid}"
    ))?;
    let head = head.rows.into_iter().next().ok_or_else(|| Error::not_found("table", oid.to_string()))?;
    let columns = session.query(&columns_query(oid))?.rows;
    Ok(Table {
        oid,
        schema: text(&head, 0),
        name: text(&head, 1),
        partitioned: text(&head, 2) == "p",
        key: key_places(&columns),
        columns: columns.iter().map(|row| column(row)).collect(),
    })
}

fn columns_query(oid: u32) -> String {
    format!(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', a.attidentity = 'a', \
         coalesce(b.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace OR t.typtype = 'e', \
         (SELECT k.place FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(number, place) \
          WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.number = a.attnum AND k.place <= i.indnkeyatts) \
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
         LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype \
         WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
}

fn column(row: &[Option<String>]) -> Column {
    Column {
        name: text(row, 0),
        type_name: text(row, 1),
        generated: text(row, 2) == "t",
        identity: text(row, 3) == "t",
        plain: text(row, 4) == "t",
    }
}

fn key_places(columns: &[Vec<Option<String>>]) -> Vec<usize> {
    let numbered = columns
        .iter()
        .enumerate()
        .filter_map(|(place, row)| row.get(5)?.as_ref()?.parse::<usize>().ok().map(|in_key| (in_key, place)));
    let mut places: Vec<_> = numbered.collect();
    places.sort_unstable();
    places.into_iter().map(|(_, place)| place).collect()
}

/// A column of an answer as text; empty for NULL.
pub fn text(row: &[Option<String>], place: usize) -> String {
    row.get(place).cloned().flatten().unwrap_or_default()
}

/// A column of an answer as a number.
pub fn number<T: std::str::FromStr>(row: &[Option<String>], place: usize) -> Result<T> {
    let value = text(row, place);
    value.parse().map_err(|_| Error::usage(format!("the server answered {value:?} where a number was due")))
}

/// An answer as rows of JSON.
pub fn to_rows(answer: &Rows) -> Vec<Row> {
    answer.rows.iter().map(|values| to_row(answer, values, 0)).collect()
}

/// One row of an answer as JSON, without its first columns.
pub fn to_row(answer: &Rows, values: &[Option<String>], skip: usize) -> Row {
    let named = answer.columns.iter().zip(values).skip(skip);
    Row(named
        .map(|(column, value)| (column.name.clone(), to_json(column.type_oid, value.as_deref())))
        .collect())
}

/// Rows of a table in the order of its key; in the order of their text where it has none.
pub fn rows(session: &mut dyn Session, table: &Table, page: &Page) -> Result<Vec<Row>> {
    let mut sql = format!("SELECT {} FROM {} AS t", table.column_list(), table.source());
    if let Some(after) = &page.after {
        let literals = table.key_literals(after)?.join(", ");
        sql += &format!(" WHERE ROW({}) > ROW({literals})", table.key_list());
    }
    sql += " ORDER BY ";
    sql += &if table.key.is_empty() { "t::text COLLATE \"C\"".to_owned() } else { table.key_list() };
    if let Some(limit) = page.limit {
        sql += &format!(" LIMIT {limit}");
    }
    Ok(to_rows(&session.query(&sql)?))
}

/// The row at a key.
pub fn row(session: &mut dyn Session, table: &Table, key: &str) -> Result<Option<Row>> {
    let at_key = table.at_key(key)?;
    let answer =
        session.query(&format!("SELECT {} FROM {} WHERE {at_key}", table.column_list(), table.source()))?;
    Ok(to_rows(&answer).into_iter().next())
}

/// Writes the row at a key, or deletes it; whether there was one. Columns that `row` does not name get their default.
pub fn put_row(session: &mut dyn Session, table: &Table, key: &str, row: Option<&Row>) -> Result<bool> {
    let at_key = table.at_key(key)?;
    let Some(row) = row else {
        let deleted = session.query(&format!("DELETE FROM {} WHERE {at_key} RETURNING 1", table.source()))?;
        return Ok(!deleted.rows.is_empty());
    };
    check_columns(table, row)?;
    let found = session.query(&format!("SELECT 1 FROM {} WHERE {at_key} FOR UPDATE", table.source()))?;
    let there = !found.rows.is_empty();
    let sql = if there { update(table, row, key, &at_key)? } else { insert(table, row, key)? };
    if let Some(sql) = sql {
        session.query(&sql)?;
    }
    Ok(there)
}

fn check_columns(table: &Table, row: &Row) -> Result<()> {
    let unknown = row.0.iter().find(|(name, _)| !table.columns.iter().any(|column| column.name == *name));
    let Some((name, _)) = unknown else { return Ok(()) };
    Err(Error::Usage {
        message: format!("{} has no column {name:?}", table.full_name()),
        hint: Some(format!("it has {}", table.column_list())),
    })
}

/// The literal for each column of the key that comes from the row's name, after a look at whether the row agrees.
fn key_values(table: &Table, row: &Row, key: &str) -> Result<Vec<(usize, String)>> {
    let named = table.key.iter().copied().zip(table.key_literals(key)?);
    let values: Vec<_> = named.collect();
    let own: Vec<_> = table.key_columns().filter_map(|column| row.get(&column.name)).collect();
    if own.len() == values.len() && crate::engine::key_text(own.iter().copied()) != key {
        return Err(Error::Usage {
            message: format!("the row says it has another key than {key:?}"),
            hint: Some("leave the key out of the row, or delete the old row and write a new one".to_owned()),
        });
    }
    Ok(values)
}

fn update(table: &Table, row: &Row, key: &str, at_key: &str) -> Result<Option<String>> {
    key_values(table, row, key)?;
    let mut set = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        if table.key.contains(&place) || column.generated || column.identity {
            continue;
        }
        let value = row.get(&column.name).map(|value| from_json(value, &column.type_name)).transpose()?;
        set.push(format!("{} = {}", ident(&column.name), value.as_deref().unwrap_or("DEFAULT")));
    }
    let sql = format!("UPDATE {} SET {} WHERE {at_key}", table.source(), set.join(", "));
    Ok((!set.is_empty()).then_some(sql))
}

fn insert(table: &Table, row: &Row, key: &str) -> Result<Option<String>> {
    let keys = key_values(table, row, key)?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (place, column) in table.columns.iter().enumerate().filter(|(_, column)| !column.generated) {
        let value = match keys.iter().find(|(key_place, _)| *key_place == place) {
            Some((_, literal)) => literal.clone(),
            None => match row.get(&column.name) {
                Some(value) => from_json(value, &column.type_name)?,
                None => continue,
            },
        };
        names.push(ident(&column.name));
        values.push(value);
    }
    Ok(Some(format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})",
        table.quoted(),
        names.join(", "),
        values.join(", ")
    )))
}
