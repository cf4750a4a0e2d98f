//! The engine: what is asked of the held transaction.

use std::path::PathBuf;

use mysql::prelude::Queryable;
use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::held::{Held, Xid};
use super::statements::OWN;
use super::tables::{Catalogue, Table};
use super::two_phase::{self, Word};
use super::watch::Watch;
use super::{changes, errors, execution, rows, schema};
use crate::engine::{Changes, Engine, Executed, Outcome, Page, Prepared, Setup, Status};

pub(super) struct Transaction {
    setup: Setup,
    held: Held,
    watch: Option<Watch>,
    /// In the order in which they were made: the caller's name, and the savepoint.
    checkpoints: Vec<(String, String)>,
    /// Names of those that are no more.
    gone: Vec<String>,
    savepoints: u64,
    /// What is prepared, until it is settled.
    prepared: Option<Xid>,
    /// What went wrong after a commit was made.
    remark: Option<String>,
}

impl Transaction {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        let held = Held::begin(setup)?;
        let mut transaction = Self {
            setup: setup.clone(),
            held,
            watch: None,
            checkpoints: Vec::new(),
            gone: Vec::new(),
            savepoints: 0,
            prepared: None,
            remark: None,
        };
        transaction.watch_over();
        Ok(transaction)
    }

    fn watch_over(&mut self) {
        self.watch = self.held.connection_id().map(|id| {
            Watch::start(
                self.held.server.clone(),
                id,
                self.setup.options.block_limit,
                self.held.flavour.mariadb,
            )
        });
    }

    fn begin_anew(&mut self) -> Result<()> {
        self.watch = None;
        self.gone.extend(self.checkpoints.drain(..).map(|(name, _)| name));
        self.held.begin_anew()?;
        self.prepared = None;
        self.watch_over();
        Ok(())
    }

    /// After a commit. That nothing new can be begun does not make the commit fail; it is told by the status.
    fn go_on(&mut self) {
        drop(self.held.let_go("the last one was committed, and no new one has begun"));
        self.prepared = None;
        if let Err(error) = self.begin_anew() {
            self.held.lose(&format!("the last one was committed, and no new one could be begun: {error}"));
        }
    }

    /// Refuses while it is prepared, and when it is lost.
    fn check(&mut self) -> Result<()> {
        if self.prepared.is_some() {
            return Err(Error::Busy {
                path: self.held.server.path(),
                holder: Some("its commit is prepared, and waits for being finished or aborted".to_owned()),
            });
        }
        if self.held.lost().is_none()
            && let Some(reason) = self.watch.as_ref().and_then(Watch::ended)
        {
            self.held.lose(&reason);
        }
        self.held.lost().map_or(Ok(()), |reason| Err(errors::lost(&self.held.server, reason)))
    }

    /// Does something, and says why it was not possible where the watch knows better than the connection.
    fn with<T>(&mut self, action: impl FnOnce(&mut Held) -> Result<T>) -> Result<T> {
        self.check()?;
        let result = action(&mut self.held);
        match (result, self.watch.as_ref().and_then(Watch::ended)) {
            (Err(_), Some(reason)) => {
                self.held.lose(&reason);
                Err(errors::lost(&self.held.server, &reason))
            }
            (result, _) => result,
        }
    }

    fn table(&mut self, name: &str) -> Result<Table> {
        let server = self.held.server.clone();
        Catalogue { server: &server, conn: self.held.outside()? }.named(name)
    }

    fn dir(&self) -> PathBuf {
        self.setup.dir.clone()
    }

    /// `XA END` is where a transaction that can only be rolled back says so.
    fn end_work(&mut self) -> Result<String> {
        let xid = self.held.xid.sql();
        self.with(|held| held.say("ending the transaction", &format!("XA END {xid}")))?;
        Ok(xid)
    }

    /// The connection that prepared the transaction hears what becomes of it. From any other, a transaction that the server is
    /// about to detach from its closed connection looks like one that was settled.
    fn settle(&mut self, prepared: &Prepared, word: Word) -> Result<Outcome> {
        let xid = Xid::of(prepared)?;
        if self.prepared.as_ref() == Some(&xid)
            && let Some(mut conn) = self.held.let_go("its commit was prepared")
            && let Ok(outcome) = two_phase::give(&self.held.server, &mut conn, &self.dir(), &xid, word)
        {
            return Ok(outcome);
        }
        two_phase::settle(&self.setup, prepared, Some(word == Word::Commit))
    }

    fn cannot_prepare(&mut self) -> Result<Option<String>> {
        if !self.held.flavour.keeps_prepared() {
            return Ok(Some(
                "this version of the server forgets what was prepared when a connection ends".to_owned(),
            ));
        }
        let asked = self.held.outside()?.query_drop("XA RECOVER");
        Ok(asked
            .err()
            .map(|error| format!("prepared transactions cannot be listed: {}", errors::words(&error))))
    }
}

impl Engine for Transaction {
    fn status(&mut self) -> Status {
        let alive = match &self.prepared {
            Some(_) => Ok(()),
            None => self.with(|held| held.say("looking whether it is held", "DO 0")),
        };
        match (alive, self.held.lost()) {
            (Ok(()), _) => {
                let mut notices = self.held.notices();
                notices.extend(self.watch.as_ref().map(Watch::notices).unwrap_or_default());
                notices.extend(self.remark.clone());
                Status::Held { notices }
            }
            (Err(_), Some(reason)) => Status::Lost { reason: reason.to_owned() },
            (Err(error), None) => Status::Lost { reason: error.to_string() },
        }
    }

    fn schema(&mut self) -> Result<String> {
        let database = self.held.server.location.database.clone();
        let script = schema::script(self.held.outside()?, &database);
        script.map_err(|error| self.held.failed("reading the schema", &error))
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        let server = self.held.server.clone();
        Catalogue { server: &server, conn: self.held.outside()? }.names()
    }

    fn rows(&mut self, table: &str, page: &Page) -> Result<Vec<Row>> {
        let table = self.table(table)?;
        self.with(|held| rows::page(held, &table, page))
    }

    fn row(&mut self, table: &str, key: &str) -> Result<Option<Row>> {
        let table = self.table(table)?;
        self.with(|held| rows::one(held, &table, key))
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        self.with(|held| execution::query(held, sql))
    }

    fn execute(&mut self, script: &str) -> Result<Executed> {
        self.with(|held| execution::execute(held, script))
    }

    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
        let table = self.table(table)?;
        self.with(|held| {
            execution::must_be_writable(held, &table)?;
            rows::put(held, &table, key, row)
        })
    }

    fn changes(&mut self) -> Result<Changes> {
        let max_rows = self.setup.options.max_rows;
        self.with(|held| changes::of(held, max_rows))
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        self.savepoints += 1;
        let savepoint = format!("{OWN}checkpoint_{}", self.savepoints);
        self.with(|held| held.say("setting a checkpoint", &format!("SAVEPOINT {savepoint}")))?;
        self.checkpoints.retain(|(known, _)| known != name);
        self.gone.retain(|known| known != name);
        self.checkpoints.push((name.to_owned(), savepoint));
        Ok(())
    }

    fn restore(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.checkpoints.iter().position(|(known, _)| known == name) else {
            return Err(self.no_checkpoint(name));
        };
        let savepoint = self.checkpoints[at].1.clone();
        self.with(|held| held.say("restoring a checkpoint", &format!("ROLLBACK TO SAVEPOINT {savepoint}")))?;
        self.gone.extend(self.checkpoints.drain(at + 1..).map(|(name, _)| name));
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        self.check_not_prepared()?;
        self.begin_anew()
    }

    fn intent(&mut self, _operation: &str) -> Result<Prepared> {
        self.check()?;
        let token = self.held.xid.token();
        Ok(match self.cannot_prepare()? {
            Some(reason) => Prepared::AtDecision { reason, token },
            None => Prepared::Durable(token),
        })
    }

    /// Prepared first, where the server can: a connection that breaks in between leaves no doubt then.
    fn commit(&mut self, operation: &str) -> Result<()> {
        let prepared = self.prepare(operation)?;
        let Err(error) = self.finish(&prepared) else { return Ok(()) };
        self.undecided(&prepared, error)
    }

    fn prepare(&mut self, operation: &str) -> Result<Prepared> {
        let Prepared::Durable(token) = self.intent(operation)? else { return self.intent(operation) };
        let xid = self.end_work()?;
        self.with(|held| held.say("preparing", &format!("XA PREPARE {xid}")))?;
        self.prepared = Some(self.held.xid.clone());
        self.watch = None;
        Ok(Prepared::Durable(token))
    }

    fn finish(&mut self, prepared: &Prepared) -> Result<()> {
        let xid = Xid::of(prepared)?;
        match prepared {
            Prepared::AtDecision { .. } if self.held.xid == xid && self.prepared.is_none() => {
                two_phase::write_down(&self.dir(), &xid, Word::Trying)?;
                self.commit_at_once()?;
                self.remark = two_phase::write_down(&self.dir(), &xid, Word::Commit).err().map(unmarked);
                Ok(())
            }
            _ => {
                self.settle(prepared, Word::Commit)?;
                if self.prepared.as_ref() == Some(&xid) {
                    self.go_on();
                }
                Ok(())
            }
        }
    }

    fn abort(&mut self, prepared: &Prepared) -> Result<bool> {
        let xid = Xid::of(prepared)?;
        if self.held.xid == xid && self.prepared.is_none() && self.held.lost().is_none() {
            return Ok(true);
        }
        self.settle(prepared, Word::RollBack)?;
        if self.prepared.as_ref() == Some(&xid) {
            self.prepared = None;
            self.begin_anew()?;
        }
        Ok(false)
    }

    fn close(&mut self) {
        self.watch = None;
        match self.prepared {
            // What is prepared waits for its word, whoever gives it.
            Some(_) => drop(self.held.let_go("its commit was prepared")),
            None => self.held.end(),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.close();
    }
}

impl Transaction {
    fn commit_at_once(&mut self) -> Result<()> {
        let xid = self.end_work()?;
        let done = self.with(|held| held.say("committing", &format!("XA COMMIT {xid} ONE PHASE")));
        done.map_err(|error| self.unknown(error))?;
        self.go_on();
        Ok(())
    }

    /// A commit that failed when everything was prepared. The server knows what became of it. What waits is taken back, for nobody would give it its word, and
    /// what it has locked would stay locked; but not once the server may have heard that it is to be committed: that is said again.
    fn undecided(&mut self, prepared: &Prepared, error: Error) -> Result<()> {
        let said = two_phase::on_record(&self.dir(), &Xid::of(prepared)?)?;
        match two_phase::settle(&self.setup, prepared, None) {
            Ok(Outcome::Waiting) if said == Some(Word::Commit) => drop(self.settle(prepared, Word::Commit)?),
            Ok(Outcome::Waiting) => {
                self.settle(prepared, Word::RollBack)?;
                self.prepared = None;
                self.held.lose(&format!("it could not be committed, and was rolled back: {error}"));
                return Err(error);
            }
            Ok(Outcome::Committed) if self.prepared.is_some() => {}
            _ => return Err(error),
        }
        self.go_on();
        Ok(())
    }

    /// A connection that breaks while the server commits does not tell whether it did.
    fn unknown(&self, error: Error) -> Error {
        let Some(reason) = self.held.lost() else { return error };
        let reason = format!(
            "{reason} while it was committed; look at the database whether it was, then `rollback` begins anew"
        );
        Error::Unavailable {
            strategy: "transaction_rollback".to_owned(),
            path: self.held.server.path(),
            reason,
        }
    }

    fn check_not_prepared(&self) -> Result<()> {
        match self.prepared {
            None => Ok(()),
            Some(_) => Err(Error::usage("its commit is prepared: finish or abort that first")),
        }
    }

    fn no_checkpoint(&self, name: &str) -> Error {
        if !self.gone.iter().any(|gone| gone == name) {
            return Error::not_found("checkpoint", name);
        }
        Error::Usage {
            message: format!(
                "the checkpoint {name:?} is gone: an earlier one was restored, or the transaction ended"
            ),
            hint: self.checkpoints.last().map(|(name, _)| format!("the latest there is is {name:?}")),
        }
    }
}

/// Real all the same.
fn unmarked(error: Error) -> String {
    format!("the last one was committed, but that could not be written down: {error}")
}
