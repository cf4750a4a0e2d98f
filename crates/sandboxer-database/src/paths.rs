//! The paths of a database: what can be read and written of it as if it were files.
//!
//! | path | read | written |
//! |---|---|---|
//! | `schema.sql` | the schema | |
//! | `tables` | the names of the tables, a line each | |
//! | `tables/T.jsonl?limit=N&after=KEY` | rows, a line each | |
//! | `tables/T/rows/KEY.json` | one row | inserts or replaces it; nothing deletes it |
//! | `query?sql=…` | the rows that a statement gives | |
//! | `exec` | | runs a script |
//! | `connection` | how programs connect | |
//! | `changes.jsonl` | the rows that differ | |

use sandboxer_core::model::{Change, DiffKind, RelPath, Row};
use sandboxer_core::{Error, Result};
use serde_json::json;

use crate::engine::{Engine, Page, decode};

/// What a path is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `schema.sql`
    Schema,
    /// `tables`
    Tables,
    /// `tables/T.jsonl`
    Rows(String, Page),
    /// `tables/T/rows/KEY.json`
    Row(String, String),
    /// `query?sql=…`
    Query(String),
    /// `exec`
    Exec,
    /// `connection`
    Connection,
    /// `changes.jsonl`
    Changes,
}

impl Place {
    /// What `path` is about.
    pub fn parse(path: &RelPath) -> Result<Self> {
        let text = std::str::from_utf8(path.as_bytes()).map_err(|_| unknown(path))?;
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let found = match place {
            "schema.sql" => Some(Self::Schema),
            "tables" => Some(Self::Tables),
            "exec" => Some(Self::Exec),
            "connection" => Some(Self::Connection),
            "changes.jsonl" => Some(Self::Changes),
            "query" => return Ok(Self::Query(parameter(query, "sql")?.ok_or_else(|| unknown(path))?)),
            table => table
                .strip_prefix("tables/")
                .and_then(|rest| of_table(rest, query).transpose())
                .transpose()?,
        };
        found.ok_or_else(|| unknown(path))
    }
}

fn of_table(rest: &str, query: &str) -> Result<Option<Place>> {
    if let Some((table, key)) = rest.split_once("/rows/") {
        let place = key.strip_suffix(".json").zip(decode(table));
        return Ok(place.map(|(key, table)| Place::Row(table, key.to_owned())));
    }
    let Some(table) = rest.strip_suffix(".jsonl").filter(|table| !table.contains('/')) else {
        return Ok(None);
    };
    let limit = parameter(query, "limit")?;
    let limit =
        limit.map(|text| text.parse().map_err(|_| Error::usage(format!("limit={text} is no number"))));
    let after = raw_parameter(query, "after").map(str::to_owned);
    let Some(table) = decode(table) else { return Ok(None) };
    Ok(Some(Place::Rows(table, Page { limit: limit.transpose()?, after })))
}

fn raw_parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    // A statement may have an `&` of its own: what is asked for last, and alone, is taken whole.
    if let Some(rest) = query.strip_prefix(name).and_then(|rest| rest.strip_prefix('='))
        && name == "sql"
    {
        return Some(rest);
    }
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn parameter(query: &str, name: &str) -> Result<Option<String>> {
    let Some(raw) = raw_parameter(query, name) else { return Ok(None) };
    // A lone `%`, as in `like 'a%'`, is taken as it stands.
    Ok(Some(decode(raw).unwrap_or_else(|| raw.to_owned())))
}

fn unknown(path: &RelPath) -> Error {
    Error::Usage {
        message: format!("a database has nothing at {path}"),
        hint: Some(
            "there are: schema.sql, tables, tables/T.jsonl?limit=N&after=KEY, tables/T/rows/KEY.json, query?sql=…, exec (to write), connection, changes.jsonl"
                .to_owned(),
        ),
    }
}

/// The content at `path`.
pub fn read(engine: &mut dyn Engine, path: &RelPath) -> Result<Vec<u8>> {
    match Place::parse(path)? {
        Place::Schema => engine.schema().map(String::into_bytes),
        Place::Tables => engine
            .tables()
            .map(|tables| tables.iter().map(|t| format!("{t}\n")).collect::<String>().into_bytes()),
        Place::Rows(table, page) => engine.rows(&table, &page).and_then(|rows| lines(&rows)),
        Place::Row(table, key) => one_row(engine, path, &table, &key),
        Place::Query(sql) => engine.query(&sql).and_then(|rows| lines(&rows)),
        Place::Exec => Err(Error::usage("exec is for writing: what is written to it is run".to_owned())),
        Place::Connection => connection(engine),
        Place::Changes => engine.changes().and_then(|changes| lines(&changes.rows)),
    }
}

fn one_row(engine: &mut dyn Engine, path: &RelPath, table: &str, key: &str) -> Result<Vec<u8>> {
    let row = engine.row(table, key)?.ok_or_else(|| Error::not_found("row", path.to_string()))?;
    let mut text = serde_json::to_vec_pretty(&row).map_err(|e| Error::usage(e.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

fn connection(engine: &mut dyn Engine) -> Result<Vec<u8>> {
    let found = engine.connection().ok_or_else(|| Error::Unsupported {
        strategy: "transaction_rollback".to_owned(),
        what: "be connected to by programs",
        reason: "only PostgreSQL has a protocol that is spoken here; use query, exec and tables".to_owned(),
    })?;
    let text = json!({"url": found.url, "socket_dir": found.socket_dir, "variables": Row(
        found.variables.into_iter().map(|(name, value)| (name, value.into())).collect())});
    Ok(format!("{text:#}\n").into_bytes())
}

fn lines(values: &[impl serde::Serialize]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for value in values {
        serde_json::to_writer(&mut text, value).map_err(|e| Error::usage(e.to_string()))?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Writes `content` to `path`.
pub fn write(engine: &mut dyn Engine, path: &RelPath, content: &[u8]) -> Result<Change> {
    let existed = match Place::parse(path)? {
        Place::Exec => {
            engine.execute(text(content)?)?;
            true
        }
        Place::Row(table, key) => engine.put_row(&table, &key, parsed_row(path, content)?.as_ref())?,
        _ => {
            return Err(Error::Usage {
                message: format!("{path} cannot be written"),
                hint: Some("to change rows: tables/T/rows/KEY.json, or a script to exec".to_owned()),
            });
        }
    };
    let kind = if existed { DiffKind::Modified } else { DiffKind::Created };
    Ok(Change { path: path.clone(), kind, old_size: None, new_size: content.len() as u64 })
}

fn text(content: &[u8]) -> Result<&str> {
    std::str::from_utf8(content).map_err(|e| Error::usage(format!("the script is not UTF-8: {e}")))
}

/// The row to be; `None` where it is to go.
fn parsed_row(path: &RelPath, content: &[u8]) -> Result<Option<Row>> {
    if content.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let row = serde_json::from_slice(content);
    row.map(Some).map_err(|e| Error::Usage {
        message: format!("what is written to {path} is no row: {e}"),
        hint: Some("an object of columns and values; nothing at all deletes the row".to_owned()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place(path: &str) -> Result<Place> {
        Place::parse(&RelPath::parse(path).unwrap())
    }

    #[test]
    fn every_path_means_one_thing() {
        let page = |limit, after: Option<&str>| Page { limit, after: after.map(str::to_owned) };
        for (path, expected) in [
            ("schema.sql", Place::Schema),
            ("tables", Place::Tables),
            ("exec", Place::Exec),
            ("tables/public.users.jsonl", Place::Rows("public.users".into(), page(None, None))),
            ("tables/t.jsonl?limit=5&after=a%2Cb,7", Place::Rows("t".into(), page(Some(5), Some("a%2Cb,7")))),
            ("tables/odd%2Fname/rows/7.json", Place::Row("odd/name".into(), "7".into())),
            ("tables/t/rows/a%2Fb,2.json", Place::Row("t".into(), "a%2Fb,2".into())),
            ("query?sql=select 1 & 2", Place::Query("select 1 & 2".into())),
            ("query?sql=select%201", Place::Query("select 1".into())),
            ("query?sql=select 'a%'", Place::Query("select 'a%'".into())),
            ("changes.jsonl", Place::Changes),
        ] {
            assert_eq!(place(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn other_paths_are_told_what_there_is() {
        for path in
            ["nothing", "tables/t", "tables/t/rows/1", "query", "tables/a/b.jsonl", "tables/t/x/1.json"]
        {
            let error = place(path).unwrap_err();
            assert!(
                matches!(&error, Error::Usage { hint: Some(hint), .. } if hint.contains("schema.sql")),
                "{path}"
            );
        }
        assert!(place("tables/t.jsonl?limit=many").unwrap_err().to_string().contains("limit=many"));
    }

    #[test]
    fn nothing_is_no_row_and_nonsense_is_an_error() {
        let path = RelPath::parse("tables/t/rows/1.json").unwrap();
        assert_eq!(parsed_row(&path, b" \n").unwrap(), None);
        assert!(parsed_row(&path, b"{\"a\": 1}").unwrap().is_some());
        assert!(parsed_row(&path, b"[1]").is_err());
    }
}
