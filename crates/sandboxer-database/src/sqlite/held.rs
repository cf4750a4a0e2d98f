//! The transaction that is held: one connection after `BEGIN IMMEDIATE`, and one that sees what everybody else sees.

use std::cell::Cell;
use std::path::PathBuf;

use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{Connection, Failure, Mode, Recorder, Statement, TransactionState};
use ulid::Ulid;

use super::statements::{Kind, judge, short};
use crate::engine::{Executed, Setup};

pub(super) struct Held {
    pub(super) path: PathBuf,
    /// A name of this transaction that no other has; savepoints begin with it, so that no script can name them.
    pub(super) name: String,
    recorder: Recorder,
    outside: Connection,
    /// Whether the record may lack something.
    incomplete: Cell<bool>,
}

impl Held {
    pub(super) fn begin(setup: &Setup) -> Result<Self> {
        let path = PathBuf::from(&setup.location);
        let connect = || {
            let connection = Connection::open(&path, Mode::ReadWrite)?;
            connection.busy_timeout(setup.options.lock_timeout)?;
            Ok::<_, Error>(connection)
        };
        let (connection, outside) = (connect()?, connect()?);
        if connection.is_read_only() {
            return Err(Error::Unavailable {
                strategy: "transaction_rollback".to_owned(),
                path,
                reason: "the file cannot be written to".to_owned(),
            });
        }
        // Without a WAL, pages that leave the cache for the file would lock all readers out.
        if !connection.is_wal()? {
            connection.execute_batch("PRAGMA cache_spill = OFF")?;
        }
        // What is written to pages is not recorded, and would be committed without having been seen.
        connection.defend()?;
        let recorder = Recorder::start(connection)?;
        recorder.connection().execute_batch("BEGIN IMMEDIATE")?;
        let name = format!("sandboxer_{}", Ulid::generate().to_string().to_lowercase());
        Ok(Self { path, name, recorder, outside, incomplete: Cell::new(false) })
    }

    pub(super) fn inside(&self) -> &Connection {
        self.recorder.connection()
    }

    pub(super) fn outside(&self) -> &Connection {
        &self.outside
    }

    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Why it is held no longer, if so.
    pub(super) fn lost(&self) -> Option<String> {
        let held =
            !self.inside().is_autocommit() && self.inside().transaction_state() == TransactionState::Write;
        (!held).then(|| "SQLite rolled the transaction back by itself (a conflict clause ROLLBACK, a full disk, or an error of the disk)".to_owned())
    }

    pub(super) fn say(&self, sql: &str) -> Result<()> {
        self.inside().execute_batch(sql)
    }

    /// Does something as a whole: an error takes back all of it. If it is not to be kept, nothing of it stays in any case.
    pub(super) fn unit<T>(&self, keep: bool, action: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let savepoint = format!("{}_unit", self.name);
        self.say(&format!("SAVEPOINT {savepoint}"))?;
        let result = action(self);
        if self.lost().is_some() {
            return result;
        }
        if result.is_err() || !keep {
            self.say(&format!("ROLLBACK TO {savepoint}"))?;
        }
        self.say(&format!("RELEASE {savepoint}"))?;
        result
    }

    /// Runs the statements of a script, one after the other.
    pub(super) fn run(&self, script: &str) -> Result<Executed> {
        // SQLite ends a statement there, and a comment, too: what it sees would not be what was judged.
        if script.contains('\0') {
            return Err(Error::usage("a script cannot have NUL bytes in it"));
        }
        let before = self.inside().total_changes();
        // The second defence: SQLite's own parser tells what a statement is.
        self.inside().guard(true)?;
        let done = self.run_guarded(script);
        self.inside().guard(false)?;
        let rows = self.inside().total_changes().saturating_sub(before);
        done.map(|statements| Executed { statements, rows })
    }

    fn run_guarded(&self, script: &str) -> Result<usize> {
        let (mut rest, mut statements) = (script, 0);
        loop {
            let kind = judge(rest).map_err(|error| numbered(error, statements + 1))?;
            let failed = |failure| self.failed(statements + 1, rest, failure);
            let next = Statement::first(self.inside(), rest).map_err(failed)?;
            let Some((mut statement, tail)) = next else { return Ok(statements) };
            self.incomplete.set(self.incomplete.get() || kind == Kind::Unrecorded);
            while statement.try_step().map_err(failed)? {}
            (rest, statements) = (tail, statements + 1);
        }
    }

    /// Whether the record may lack what became of rows in tables that were dropped or altered.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.get()
    }

    fn failed(&self, number: usize, rest: &str, failure: Failure) -> Error {
        match failure.on("run a statement on", &self.path) {
            Error::Io { source, .. } => {
                Error::usage(format!("statement {number} ({}): {source}", short(rest)))
            }
            other => other,
        }
    }
}

fn numbered(error: Error, number: usize) -> Error {
    match error {
        Error::Refused { reason, hint } => {
            Error::Refused { reason: format!("statement {number} ({reason})"), hint }
        }
        other => other,
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inside().rollback();
    }
}
