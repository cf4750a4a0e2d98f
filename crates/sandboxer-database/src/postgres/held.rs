//! The one session with its one transaction, which only an authorised commit ends.

use std::time::Duration;

use sandboxer_core::{Error, Result};

use super::client::{Canceller, Connection, Failure, Rows};
use super::guard::Guard;
use super::target::Target;
use super::wire;

/// Which of the defences against an end of the transaction are up. All are, but in tests of one of them.
#[derive(Clone, Copy, Debug)]
pub struct Defences {
    /// Transaction statements are found in what clients send.
    pub lexer: bool,
    /// A backend outside of any transaction is cut off.
    pub status: bool,
    /// The server raises at commit.
    pub guard: bool,
}

impl Default for Defences {
    fn default() -> Self {
        Self { lexer: true, status: true, guard: true }
    }
}

/// What a held transaction is begun with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of which database.
    pub target: Target,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// How long a statement waits for a lock that somebody else holds.
    pub lock_timeout: Duration,
    /// For tests only.
    #[doc(hidden)]
    pub defences: Defences,
}

impl Settings {
    /// With the usual timeouts.
    pub fn new(target: Target, password: Option<String>) -> Self {
        Self { target, password, lock_timeout: Duration::from_secs(5), defences: Defences::default() }
    }
}

/// What is still to be sent before anything else is, and its answers to be passed over.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    messages: Vec<u8>,
    readies: usize,
    sql: String,
}

impl Pending {
    /// Messages of the extended protocol, without a `Sync`.
    pub fn push_messages(&mut self, messages: &[u8]) {
        self.close_sql();
        self.messages.extend_from_slice(messages);
        wire::put(&mut self.messages, b'S', |_| {});
        self.readies += 1;
    }

    /// A statement.
    pub fn push_sql(&mut self, sql: &str) {
        let separator = if self.sql.is_empty() { "" } else { ";" };
        self.sql += separator;
        self.sql += sql;
    }

    /// What is sent after it does not share its fate.
    pub fn close_sql(&mut self) {
        let sql = std::mem::take(&mut self.sql);
        if !sql.is_empty() {
            wire::put_query(&mut self.messages, sql);
            self.readies += 1;
        }
    }

    /// All of it, and how often the server will be ready.
    pub fn take(&mut self) -> (Vec<u8>, usize) {
        self.close_sql();
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.readies))
    }
}

/// The savepoint that stands for a client's transaction, or for one autocommit unit.
pub(crate) const UNIT: &str = "sandboxer_unit";

/// The setting that says how strings are read.
pub(crate) const STRINGS: &str = "standard_conforming_strings";

/// A session in a transaction that is held open.
#[derive(Debug)]
pub struct Held {
    settings: Settings,
    connection: Connection,
    guard: Option<Guard>,
    lost: Option<String>,
    /// The number of the transaction.
    xid: String,
    /// It is lost, and was committed, though nobody asked for that here.
    leaked: bool,
    generation: u64,
    pub(crate) depth: usize,
    pub(crate) pending: Pending,
    /// Whose settings the session has: a client of the proxy.
    pub(crate) owner: Option<u64>,
}

impl Held {
    /// Connects, begins, and arms the guard.
    pub fn begin(settings: Settings) -> Result<Self> {
        let connection = connected(&settings)?;
        let mut held = Self {
            settings,
            connection,
            guard: None,
            lost: None,
            xid: String::new(),
            leaked: false,
            generation: 0,
            depth: 0,
            pending: Pending::default(),
            owner: None,
        };
        held.start()?;
        Ok(held)
    }

    /// Throws everything away, and begins anew: in the same session where it is still there, else in a new one.
    pub fn begin_again(&mut self) -> Result<()> {
        if self.lost.is_some() || self.connection.query("ROLLBACK").is_err() {
            self.connection.shutdown();
            self.connection = connected(&self.settings)?;
            self.generation += 1;
        }
        (self.lost, self.leaked) = (None, false);
        self.start()
    }

    fn start(&mut self) -> Result<()> {
        (self.pending, self.owner, self.depth) = (Pending::default(), None, 0);
        self.guard = None;
        self.connection.query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")?;
        if self.settings.defences.guard {
            self.guard = Some(Guard::arm(&mut self.connection)?);
        }
        let number = self.connection.query("SELECT pg_catalog.txid_current()")?;
        self.xid = number.single().unwrap_or_default().to_owned();
        self.check()
    }

    /// Why it is lost; `None` while it is held.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Counts sessions: what was prepared in an earlier one is gone.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The schema that is the guard's and no part of the difference.
    pub fn hidden_schema(&self) -> Option<&str> {
        self.guard.as_ref()?.schema()
    }

    /// Which database.
    pub fn target(&self) -> &Target {
        &self.settings.target
    }

    /// The number of the server's process.
    pub fn backend_pid(&self) -> i32 {
        self.connection.backend_key().0
    }

    /// Something that cancels what runs in it.
    pub fn canceller(&self) -> Canceller {
        self.connection.canceller()
    }

    /// Runs SQL as it is, in the role and with the settings that the session began with. An error outside of [`Held::unit`] ends
    /// the transaction, and it is lost.
    pub fn query(&mut self, sql: &str) -> Result<Rows> {
        self.settle()?;
        if self.owner.take().is_some() {
            self.ask("SET SESSION ROLE NONE; RESET ALL")?;
        }
        self.ask(sql)
    }

    /// Runs `work` in a savepoint of its own, which is kept where `keep` says so of a success, and rolled back otherwise.
    pub fn unit<T>(&mut self, keep: bool, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.query("SAVEPOINT sandboxer_work")?;
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        if self.lost.is_none() {
            let end = "RELEASE SAVEPOINT sandboxer_work";
            if !(keep && result.is_ok()) {
                self.ask("ROLLBACK TO SAVEPOINT sandboxer_work")?;
            }
            self.ask(end)?;
        }
        result
    }

    /// Makes everything real; the transaction is over then, and [`Held::begin_again`] the next thing to do.
    pub fn commit(&mut self) -> Result<()> {
        self.end("COMMIT", "COMMIT")
    }

    /// Makes it survive under that name, which is to be committed or rolled back from any session of the same user. The transaction is over then.
    pub fn prepare(&mut self, name: &str) -> Result<()> {
        self.end(&format!("PREPARE TRANSACTION '{}'", name.replace('\'', "''")), "PREPARE TRANSACTION")
    }

    fn end(&mut self, statement: &str, tag: &str) -> Result<()> {
        self.query("SELECT 1")?;
        if let Some(guard) = self.guard.take() {
            let disarmed = guard.disarm(&mut self.connection);
            self.attempt(disarmed)?;
        }
        let answer = self.connection.query(statement);
        let rows = self.attempt(answer)?;
        self.lost = Some("it was ended, and not begun again".to_owned());
        if rows.tag == tag {
            return Ok(());
        }
        // A transaction that had failed already answers ROLLBACK.
        Err(Error::Database {
            database: self.settings.target.to_string(),
            message: "the held transaction had failed, and was rolled back".to_owned(),
            code: None,
        })
    }

    /// Whether the guard is as it was armed; where it is not, everything is lost.
    pub fn verify(&mut self) -> Result<()> {
        self.query("SELECT 1")?;
        self.verify_guard()
    }

    fn verify_guard(&mut self) -> Result<()> {
        let Some(guard) = self.guard.take() else { return Ok(()) };
        let intact = guard.intact(&mut self.connection);
        self.guard = Some(guard);
        if self.attempt(intact)? {
            return Ok(());
        }
        Err(self.lose("somebody replaced the guard of the held transaction"))
    }

    /// Whether the guard is as it was armed, with the settings that the session has, inside a unit that can still be undone.
    pub(crate) fn is_guarded(&mut self) -> Result<bool> {
        self.settle()?;
        let Some(guard) = self.guard.take() else { return Ok(true) };
        let intact = guard.intact(&mut self.connection);
        self.guard = Some(guard);
        self.attempt(intact)
    }

    /// Whether strings are read as they are in a sandbox; not so where something has switched that off around the lexer.
    pub(crate) fn reads_strings(&self) -> bool {
        self.connection.parameters().get(STRINGS).is_none_or(|value| value == "on")
    }

    /// The session itself. Whoever ends what it does calls [`Held::check`] at each `ReadyForQuery`.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Which defences are up.
    pub(crate) fn defences(&self) -> Defences {
        self.settings.defences
    }

    /// Does what is pending.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.held()?;
        let (messages, readies) = self.pending.take();
        if readies > 0 {
            let sent = self.connection.send(&messages);
            self.attempt(sent)?;
        }
        for _ in 0..readies {
            let answer = self.connection.answer();
            let answer = self.attempt(answer);
            self.check()?;
            answer?;
        }
        Ok(())
    }

    /// An error where it is lost.
    pub(crate) fn held(&self) -> Result<()> {
        self.lost.as_ref().map_or(Ok(()), |reason| Err(self.says(reason)))
    }

    /// A backend that is in no transaction, or in one that failed outside of any savepoint, has lost what was held.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.connection.status() {
            b'I' if self.settings.defences.status => Err(self.lose_ended()),
            b'E' if self.depth == 0 => Err(self.lose("a statement failed outside of any savepoint")),
            _ => Ok(()),
        }
    }

    /// Somebody ended it: whether by a commit, the server tells.
    fn lose_ended(&mut self) -> Error {
        let ended = "the held transaction was ended by somebody; the session was cut off at once";
        self.connection.shutdown();
        let reason = match self.outcome().as_deref() {
            Some("aborted") => format!("{ended}, and the server has rolled it back"),
            Some("committed") => {
                self.leaked = true;
                format!(
                    "{ended}, but it WAS committed as transaction {} by a statement that ran in it: look in {} at what it wrote",
                    self.xid, self.settings.target
                )
            }
            _ => {
                self.leaked = true;
                format!(
                    "{ended}; the server does not say whether transaction {} was committed: look in {} at what it wrote",
                    self.xid, self.settings.target
                )
            }
        };
        self.lose(&reason)
    }

    /// What the server knows of the transaction, over another connection.
    fn outcome(&self) -> Option<String> {
        let mut connection = connected(&self.settings).ok()?;
        let asked = connection.query(&format!("SELECT pg_catalog.txid_status({})", self.xid)).ok()?;
        asked.single().map(str::to_owned)
    }

    /// What is to be said of the loss in one sentence; `None` while it is held.
    pub fn loss(&self) -> Option<String> {
        let reason = self.lost.as_deref()?;
        let rest = if self.leaked { "" } else { ", and nothing of it was committed" };
        Some(format!("the held transaction is lost{rest}: {reason}"))
    }

    /// Whether it is lost, and what was in it is, or may be, real.
    pub fn leaked(&self) -> bool {
        self.leaked
    }

    /// Gives it up: the session is closed, and the server rolls back.
    pub(crate) fn lose(&mut self, reason: &str) -> Error {
        self.connection.shutdown();
        let reason = self.lost.get_or_insert_with(|| reason.to_owned()).clone();
        self.says(&reason)
    }

    /// Runs SQL as it is, whatever the session's settings are.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Rows> {
        self.held()?;
        let answer = self.connection.query(sql);
        let answer = self.attempt(answer);
        self.check()?;
        answer
    }

    /// Runs SQL as it is, in a savepoint of its own and with the settings that the session has.
    pub fn ask_inside(&mut self, sql: &str) -> Result<Rows> {
        self.settle()?;
        self.depth += 1;
        let answer = self.ask(&format!("SAVEPOINT sandboxer_work; {sql}; RELEASE SAVEPOINT sandboxer_work"));
        let undone = match (&answer, self.lost.is_none()) {
            (Err(_), true) => {
                self.ask("ROLLBACK TO SAVEPOINT sandboxer_work; RELEASE SAVEPOINT sandboxer_work").map(drop)
            }
            _ => Ok(()),
        };
        self.depth -= 1;
        undone.and(answer)
    }

    /// Reads in the midst of a client's unit, but in the session's own role, and without names that somebody could put before the
    /// server's. Nothing of it stays.
    pub fn look_inside(&mut self, sql: &str) -> Result<Rows> {
        self.settle()?;
        self.depth += 1;
        let undo = "ROLLBACK TO SAVEPOINT sandboxer_work; RELEASE SAVEPOINT sandboxer_work";
        let answer = self.ask(&format!(
            "SAVEPOINT sandboxer_work; SET LOCAL ROLE NONE; SET LOCAL search_path = pg_catalog, pg_temp; {sql}; {undo}"
        ));
        let undone = if answer.is_err() && self.lost.is_none() { self.ask(undo).map(drop) } else { Ok(()) };
        self.depth -= 1;
        undone.and(answer)
    }

    /// The same as [`Held::verify`] after a client's unit, with its settings.
    pub(crate) fn verify_inside(&mut self) -> Result<()> {
        self.settle()?;
        self.verify_guard()
    }

    /// Takes note of a connection that is lost.
    pub(crate) fn attempt<T>(&mut self, answer: Result<T, Failure>) -> Result<T> {
        answer.map_err(|failure| match &failure {
            Failure::Lost { source, .. } => {
                self.lose(&format!("the connection to the server is lost: {source}"))
            }
            Failure::Server { .. } => failure.into(),
        })
    }

    fn says(&self, reason: &str) -> Error {
        Error::Database {
            database: self.settings.target.to_string(),
            message: self.loss().unwrap_or_else(|| reason.to_owned()),
            code: None,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connection.shutdown();
    }
}

fn connected(settings: &Settings) -> Result<Connection> {
    let lock_timeout = settings.lock_timeout.as_millis().to_string();
    // RESET ALL goes back to these, so no client gets rid of them for another.
    let given = [
        ("lock_timeout", lock_timeout.as_str()),
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("default_transaction_read_only", "off"),
        // Statements are found in what clients send by how strings are read.
        (STRINGS, "on"),
    ];
    let mut connection = Connection::connect_with(&settings.target, settings.password.as_deref(), &given)?;
    // Known since version 17; elsewhere the server says so, and nothing is lost by that.
    let _ = connection.query("SET transaction_timeout = 0");
    Ok(connection)
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
