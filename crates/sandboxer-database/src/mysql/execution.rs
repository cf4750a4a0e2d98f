//! Scripts and queries.

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::errors;
use super::guard::Guard;
use super::held::Held;
use super::lexer::{Mode, Script, Statement};
use super::rows::select;
use super::statements::{Kind, SETTINGS, judge};
use crate::engine::Executed;

/// Runs a script as one unit.
pub(super) fn execute(held: &mut Held, script: &str) -> Result<Executed> {
    let guard = guard(held)?;
    let before = settings(held)?;
    let mut changed = false;
    let result = held.unit(true, |held| run(held, script, &guard, &mut changed));
    if changed && held.lost().is_none() {
        put_back(held, &before)?;
    }
    result
}

fn guard(held: &mut Held) -> Result<Guard> {
    let loaded = Guard::load(held.outside()?);
    loaded.map_err(|error| held.failed("looking for tables without transactions", &error))
}

fn run(held: &mut Held, script: &str, guard: &Guard, changed: &mut bool) -> Result<Executed> {
    let mut script = Script::new(script);
    let mut done = Executed::default();
    let mut reading = reading(held)?;
    while let Some(statement) = script.next(reading.mode)? {
        let number = done.statements + 1;
        let judged = reading.must_be_clear(&statement).and_then(|()| allowed(&statement, guard));
        let kind = judged.map_err(|error| numbered(error, number))?;
        // Even one that fails may have changed something.
        *changed |= kind == Kind::Set;
        let what = format!("statement {number} ({})", statement.short());
        held.must_fit(&what, statement.text.len())?;
        done.rows += held.run(&what, |conn| affected(conn, &statement, kind))?;
        done.statements = number;
        if kind == Kind::Set {
            reading = self::reading(held).map_err(|error| numbered(error, number))?;
        }
    }
    Ok(done)
}

fn allowed(statement: &Statement, guard: &Guard) -> Result<Kind> {
    let kind = judge(statement)?;
    guard.check(statement, kind)?;
    Ok(kind)
}

fn numbered(error: Error, number: usize) -> Error {
    match error {
        Error::Refused { reason, hint } => {
            Error::Refused { reason: format!("statement {number} ({reason})"), hint }
        }
        other => other,
    }
}

/// Prepared, because what is prepared is one statement and no more, wherever we think it ends.
fn affected(conn: &mut Conn, statement: &Statement, kind: Kind) -> mysql::Result<u64> {
    if kind == Kind::Savepoint {
        return conn.query_drop(&statement.text).map(|()| 0);
    }
    match drained(conn.exec_iter(statement.text.as_str(), ())) {
        Err(error) if errors::code(&error) == Some(errors::EMPTY) => Ok(0),
        Err(error) if may_be_sent_whole(&error, statement) => drained(conn.query_iter(&statement.text)),
        other => other,
    }
}

/// A few statements cannot be prepared on MySQL.
fn may_be_sent_whole(error: &mysql::Error, statement: &Statement) -> bool {
    errors::code(error) == Some(errors::NOT_PREPARABLE) && !statement.text.contains(';')
}

/// A procedure may give several results, and an error only in the last.
fn drained<P: mysql::prelude::Protocol>(
    result: mysql::Result<mysql::QueryResult<'_, '_, '_, P>>,
) -> mysql::Result<u64> {
    let mut result = result?;
    let mut rows = 0;
    while let Some(set) = result.iter() {
        rows += set.affected_rows();
        for row in set {
            row?;
        }
    }
    Ok(rows)
}

/// The rows that one reading statement gives.
pub(super) fn query(held: &mut Held, sql: &str) -> Result<Vec<Row>> {
    let guard = guard(held)?;
    let mode = reading(held)?.mode;
    let mut script = Script::new(sql);
    let statement = script.next(mode)?.ok_or_else(|| Error::usage("the query is empty"))?;
    if script.next(mode)?.is_some() {
        return Err(Error::usage("a query is one statement; run several as a script"));
    }
    if allowed(&statement, &guard)? != Kind::Read {
        return Err(Error::Usage {
            message: format!("{}: this is no query", statement.short()),
            hint: Some("run it as a script".to_owned()),
        });
    }
    held.must_fit("the query", statement.text.len())?;
    held.unit(false, |held| held.run(&statement.short(), |conn| rows(conn, &statement)))
}

fn rows(conn: &mut Conn, statement: &Statement) -> mysql::Result<Vec<Row>> {
    match select(conn, &statement.text, Vec::new()) {
        Err(error) if may_be_sent_whole(&error, statement) => {
            let rows: Vec<mysql::Row> = conn.query(&statement.text)?;
            Ok(rows.into_iter().map(super::values::row_of).collect())
        }
        other => other,
    }
}

/// Character sets in which no character has a byte that means something of its own, as it does in ours. In others (sjis, gbk, big5) the
/// last byte of a character may be a backslash: the server ends a string where we do not, and what follows is hidden from us.
const WHOLE: [&str; 4] = ["utf8", "utf8mb3", "utf8mb4", "binary"];

/// The same, as long as a text is plain ASCII: else its letters are others to the server, and so are the names of tables.
const PLAIN: [&str; 2] = ["latin1", "ascii"];

/// How the server reads what it is sent.
struct Reading {
    mode: Mode,
    characters: String,
}

impl Reading {
    fn must_be_clear(&self, statement: &Statement) -> Result<()> {
        if statement.text.is_ascii() || WHOLE.contains(&self.characters.as_str()) {
            return Ok(());
        }
        Err(not_read(&self.characters, &statement.short()))
    }
}

fn not_read(characters: &str, what: &str) -> Error {
    Error::Refused {
        reason: format!(
            "{what}: the server would read it as {characters}, in which it may mean something else"
        ),
        hint: Some("scripts are UTF-8: write SET NAMES utf8mb4, or leave it out".to_owned()),
    }
}

fn reading(held: &mut Held) -> Result<Reading> {
    let asked = "SELECT @@sql_mode, @@character_set_client";
    let settings: Option<(String, String)> =
        held.run("asking for the mode", |conn| conn.query_first(asked))?;
    let (mode, characters) = settings.unwrap_or_default();
    if mode.split(',').any(|word| word == "ORACLE") {
        return Err(Error::refused("scripts in sql_mode ORACLE cannot be read here"));
    }
    if !WHOLE.iter().chain(&PLAIN).any(|known| *known == characters) {
        return Err(not_read(&characters, "what follows"));
    }
    Ok(Reading { mode: Mode::of(&mode), characters })
}

/// What a script may change, as it is: the names that this server has, and their values.
fn settings(held: &mut Held) -> Result<Vec<(String, String)>> {
    let names = SETTINGS.iter().filter(|name| !["insert_id", "last_insert_id", "timestamp"].contains(name));
    let list = names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    let sql = format!("SHOW SESSION VARIABLES WHERE Variable_name IN ({list})");
    held.run("keeping the settings", |conn| conn.query(sql))
}

/// A script's settings end with it.
fn put_back(held: &mut Held, settings: &[(String, String)]) -> Result<()> {
    // Whatever the mode is, quotes are doubled and there is no backslash.
    let value = |text: &String| match text.as_str() {
        number if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty() => number.to_owned(),
        text => format!("'{}'", text.replace('\'', "''")),
    };
    let mut sets: Vec<String> =
        settings.iter().map(|(name, text)| format!("SESSION {name} = {}", value(text))).collect();
    sets.push("SESSION timestamp = DEFAULT".to_owned());
    held.say("putting settings back", &format!("SET {}", sets.join(", ")))
}

/// Refuses a table whose rows would be written for good.
pub(super) fn must_be_writable(held: &mut Held, table: &super::tables::Table) -> Result<()> {
    let guard = guard(held)?;
    let statement = Script::new(&format!("UPDATE {}", table.sql())).next(Mode::default())?;
    statement.map_or(Ok(()), |statement| guard.check(&statement, Kind::Write))
}
