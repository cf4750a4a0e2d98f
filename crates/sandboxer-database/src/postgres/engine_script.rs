//! Scripts and single statements that come through the API: taken apart, checked, and run one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::client::Rows;
use super::ddl::{self, Locks};
use super::held::Held;
use super::lexer;
use super::rows::{Session, to_rows};
use super::statement::{self, Kind};
use super::values::set_value_forms;
use crate::engine::{Executed, Options};

/// How much of a statement an error shows.
const SHOWN: usize = 60;

impl Session for Held {
    fn query(&mut self, sql: &str) -> Result<Rows> {
        Self::query(self, sql)
    }
}

/// The rows that one statement gives.
pub fn query(held: &mut Held, sql: &str, options: &Options) -> Result<Vec<Row>> {
    held.query(&set_value_forms())?;
    let (statement, rest) = next_piece(sql, held.reads_strings())?;
    let (Some(statement), 0) =
        (statement, statement::statements(rest.as_bytes(), held.reads_strings()).len())
    else {
        return Err(Error::Usage {
            message: "a query is one statement, and this is none, or several".to_owned(),
            hint: Some("run a script to have several".to_owned()),
        });
    };
    checked(held, statement, options)?;
    let rows = held.query(statement)?;
    guarded(held)?;
    Ok(to_rows(&rows))
}

/// Whether a statement may send or await notifications, which cannot be prepared.
fn notifies(statement: &str) -> bool {
    let text = statement.to_lowercase();
    ["notify", "listen"].iter().any(|word| text.contains(word))
}

/// All statements of a script, each after a look at what it would lock.
pub fn execute(held: &mut Held, script: &str, rules: &Rules) -> Result<Executed> {
    rules.notified.fetch_or(notifies(script), Ordering::SeqCst);
    let mut executed = Executed::default();
    let mut rest = script;
    refuse_all(script, held.reads_strings())?;
    while let (Some(statement), after) = next_piece(rest, held.reads_strings())? {
        rest = after;
        executed.statements += 1;
        let rows =
            run(held, statement, rules).map_err(|e| name_statement(e, executed.statements, statement))?;
        executed.rows += touched(&rows.tag);
    }
    guarded(held)?;
    // What a script sets is its own.
    held.query("SET SESSION ROLE NONE; RESET ALL")?;
    Ok(executed)
}

fn run(held: &mut Held, statement: &str, rules: &Rules) -> Result<Rows> {
    checked(held, statement, &rules.options)?;
    let rows = held.query(statement)?;
    read_as_before(held)?;
    if ddl::wants_look(statement) || calls(statement) {
        guarded(held)?;
        let hidden = held.hidden_schema().unwrap_or_default().to_owned();
        if let Some(refusal) = rules.locks().look(held, statement, &rules.options, &hidden)? {
            return Err(refused(refusal));
        }
    }
    Ok(rows)
}

/// Whether a statement may call something, which may do anything.
fn calls(text: &str) -> bool {
    statement::statements(text.as_bytes(), true).iter().any(|statement| statement.calls)
}

/// A function may set what a statement may not; it is undone then.
fn read_as_before(held: &Held) -> Result<()> {
    if held.reads_strings() {
        return Ok(());
    }
    let reason = "standard_conforming_strings is always on in a sandbox".to_owned();
    Err(Error::Refused { reason, hint: Some("write such strings as E'…'".to_owned()) })
}

/// Whether the guard is what it was; what touched it is undone.
fn guarded(held: &mut Held) -> Result<()> {
    if held.is_guarded()? {
        return Ok(());
    }
    let reason = "this touched what keeps the sandbox's transaction from being committed".to_owned();
    Err(Error::Refused { reason, hint: Some("it was undone".to_owned()) })
}

/// What the engine and the proxy's clients have in common about statements.
#[derive(Clone)]
pub struct Rules {
    pub options: Options,
    pub locks: Arc<Mutex<Locks>>,
    /// Whether something was run that the server cannot prepare, and would not tell.
    pub notified: Arc<AtomicBool>,
}

impl Rules {
    /// Rules for a transaction that begins.
    pub fn new(options: &Options) -> Self {
        Self { options: options.clone(), locks: Arc::default(), notified: Arc::default() }
    }

    /// Another transaction begins.
    pub fn reset(&self) {
        *self.locks() = Locks::default();
        self.notified.store(false, Ordering::SeqCst);
    }

    pub fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the proxy asks before it sends a definition for a client.
    pub fn gate(&self, held: &mut Held, statement: &str) -> Result<(), (String, String)> {
        self.notified.fetch_or(notifies(statement), Ordering::SeqCst);
        self.locks().expect(statement, &self.options);
        let mut older = |name: &str| {
            held.ask_inside(&ddl::older_query(name)).map_or(true, |rows| rows.single() == Some("t"))
        };
        ddl::check(statement, &self.options, &mut older).map_err(told)
    }

    /// What the proxy asks before a client's unit with definitions in it is kept.
    pub fn look(&self, held: &mut Held) -> Result<(), (String, String)> {
        let hidden = held.hidden_schema().unwrap_or_default().to_owned();
        let mut locks = self.locks();
        let name = locks.expected();
        match locks.look(&mut Inside(held), &name, &self.options, &hidden) {
            Ok(None) => Ok(()),
            Ok(Some(refusal)) => Err(told(refusal)),
            Err(error) => Err(("XX000".to_owned(), error.to_string())),
        }
    }
}

fn told(refusal: ddl::Refusal) -> (String, String) {
    (refusal.sqlstate.to_owned(), format!("{}; {}", refusal.message, refusal.hint))
}

/// The held session in the midst of a client's unit.
struct Inside<'h>(&'h mut Held);

impl Session for Inside<'_> {
    fn query(&mut self, sql: &str) -> Result<Rows> {
        self.0.look_inside(sql)
    }
}

fn checked(held: &mut Held, statement: &str, options: &Options) -> Result<()> {
    let mut failed = None;
    let mut older = |name: &str| match held.query(&ddl::older_query(name)) {
        Ok(rows) => rows.single() == Some("t"),
        Err(error) => {
            failed = Some(error);
            true
        }
    };
    let checked = ddl::check(statement, options, &mut older);
    match failed {
        Some(error) => Err(error),
        None => checked.map_err(refused),
    }
}

fn refused(refusal: ddl::Refusal) -> Error {
    Error::Refused { reason: refusal.message, hint: Some(refusal.hint) }
}

/// The next statement, which neither begins nor ends a transaction, and what comes after it. To be asked again after each one: a
/// statement may change how the next is read.
fn next_piece(sql: &str, standard_strings: bool) -> Result<(Option<&str>, &str)> {
    let Some(piece) = lexer::first(sql.as_bytes(), standard_strings) else { return Ok((None, "")) };
    let (text, after) =
        (sql.get(piece.clone()).unwrap_or_default(), sql.get(piece.end..).unwrap_or_default());
    refuse_all(text, standard_strings)?;
    Ok((Some(text), after))
}

/// Nothing of a script is run where something in it is refused.
fn refuse_all(sql: &str, standard_strings: bool) -> Result<()> {
    for statement in statement::statements(sql.as_bytes(), standard_strings) {
        let text = sql.get(statement.range).unwrap_or_default();
        match statement.kind {
            Kind::Refused(refusal) => {
                return Err(Error::Refused {
                    reason: refusal.message,
                    hint: refusal.hint.map(ToOwned::to_owned),
                });
            }
            Kind::Other | Kind::Definition | Kind::Set { .. } | Kind::ResetAll | Kind::Ignored { .. } => {}
            _ => {
                return Err(Error::Refused {
                    reason: format!(
                        "{:?} is not for scripts: a script is one unit, all of it or nothing",
                        short(text)
                    ),
                    hint: Some("leave BEGIN, COMMIT and the like out".to_owned()),
                });
            }
        }
    }
    Ok(())
}

fn short(statement: &str) -> String {
    let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN { line } else { line.chars().take(SHOWN).chain(['…']).collect() }
}

fn name_statement(error: Error, number: usize, statement: &str) -> Error {
    match error {
        Error::Database { database, message, code } => {
            let message = format!("statement {number} ({}): {message}", short(statement));
            Error::Database { database, message, code }
        }
        Error::Refused { reason, hint } => {
            Error::Refused { reason: format!("statement {number}: {reason}"), hint }
        }
        other => other,
    }
}

/// The number at the end of a tag (`INSERT 0 3`) of a statement that writes.
fn touched(tag: &str) -> u64 {
    let writes = ["INSERT", "UPDATE", "DELETE", "MERGE", "COPY"].iter().any(|verb| tag.starts_with(verb));
    tag.rsplit(' ').next().filter(|_| writes).and_then(|count| count.parse().ok()).unwrap_or(0)
}
