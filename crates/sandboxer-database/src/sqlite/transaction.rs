//! The engine: what is asked of the held transaction.

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};
use sandboxer_sqlite::{schema_text, tables};

use super::held::Held;
use super::outcome::{self, Token};
use super::{changes, rows};
use crate::engine::{Changes, Engine, Executed, Outcome, Page, Prepared, Setup, Status};

pub(super) struct Transaction {
    setup: Setup,
    /// `None` once it is lost.
    held: Option<Held>,
    /// Why it is lost.
    lost: String,
    /// In the order in which they were made: the caller's name, and the savepoint.
    checkpoints: Vec<(String, String)>,
    /// Names of those that are no more.
    gone: Vec<String>,
    savepoints: u64,
    /// Whether somebody is about to commit it.
    prepared: bool,
    /// What went wrong after a commit that is real all the same.
    unrecorded: Option<String>,
}

impl Transaction {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        Ok(Self {
            held: Some(Held::begin(setup)?),
            setup: setup.clone(),
            lost: String::new(),
            checkpoints: Vec::new(),
            gone: Vec::new(),
            savepoints: 0,
            prepared: false,
            unrecorded: None,
        })
    }

    fn error_of_loss(&self) -> Error {
        Error::Unavailable {
            strategy: "transaction_rollback".to_owned(),
            path: self.setup.location.clone().into(),
            reason: format!("{}; `rollback` begins anew", self.lost),
        }
    }

    fn lose(&mut self, reason: &str) {
        self.held = None;
        self.lost = reason.to_owned();
        self.gone.extend(self.checkpoints.drain(..).map(|(name, _)| name));
    }

    /// Looks at what is held, and whether it still is afterwards.
    fn with<T>(&mut self, action: impl FnOnce(&Held) -> Result<T>) -> Result<T> {
        if self.prepared {
            return Err(Error::Busy {
                path: self.setup.location.clone().into(),
                holder: Some("its commit is prepared, and waits for being finished or aborted".to_owned()),
            });
        }
        self.with_prepared(action)
    }

    fn with_prepared<T>(&mut self, action: impl FnOnce(&Held) -> Result<T>) -> Result<T> {
        let Some(held) = &self.held else { return Err(self.error_of_loss()) };
        let result = action(held);
        let Some(mut reason) = held.lost() else { return result };
        if let Err(error) = result {
            reason = format!("{reason}: {error}");
        }
        self.lose(&format!("{reason}; what was in it is lost, and nothing was committed"));
        Err(self.error_of_loss())
    }

    fn begin_anew(&mut self) -> Result<()> {
        self.lose("the transaction was ended");
        self.prepared = false;
        self.held = Some(Held::begin(&self.setup)?);
        Ok(())
    }

    fn is_current(&self, token: &Token) -> bool {
        self.held.as_ref().is_some_and(|held| held.name == token.transaction)
    }

    /// Commits. What goes wrong when the rows are real does not make it fail: that it could not be recorded, and that nothing new can be begun,
    /// are told by the status.
    fn make_real(&mut self) -> Result<()> {
        let Some(held) = &self.held else { return Err(self.error_of_loss()) };
        let name = held.name.clone();
        if let Err(failure) = held.inside().try_execute_batch("COMMIT") {
            let what = failure.to_string();
            let error = if failure.is_constraint() {
                Error::usage(format!("cannot commit: {what}"))
            } else {
                failure.on("commit", &held.path)
            };
            // Still held, unless SQLite has rolled it back.
            return self.with_prepared(|_| Err(error));
        }
        self.unrecorded = outcome::write_down(&self.setup.dir, &name).err().map(|error| {
            format!("the last commit is real, but could not be recorded: {}", explained(&error))
        });
        if let Err(error) = self.begin_anew() {
            self.lost = format!("the last one was committed, and no new one could be begun: {error}");
        }
        Ok(())
    }

    fn notices(&self) -> Vec<String> {
        let locked = format!(
            "other writers to {} are told that it is locked, for as long as this sandbox is there",
            self.setup.location
        );
        std::iter::once(locked).chain(self.unrecorded.clone()).collect()
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

/// An error with what it comes from.
fn explained(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Engine for Transaction {
    fn status(&mut self) -> Status {
        match self.with_prepared(|_| Ok(())) {
            Ok(()) => Status::Held { notices: self.notices() },
            Err(_) => Status::Lost { reason: self.lost.clone() },
        }
    }

    fn schema(&mut self) -> Result<String> {
        self.with(|held| schema_text(held.inside()))
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        let names = |held: &Held| {
            tables(held.inside()).map(|all| all.into_iter().filter(|table| table.is_ordinary()))
        };
        self.with(|held| Ok(names(held)?.map(|table| table.name).collect()))
    }

    fn rows(&mut self, table: &str, page: &Page) -> Result<Vec<Row>> {
        self.with(|held| rows::page(held, table, page))
    }

    fn row(&mut self, table: &str, key: &str) -> Result<Option<Row>> {
        self.with(|held| rows::one(held, table, key))
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        self.with(|held| rows::ask(held, sql))
    }

    fn execute(&mut self, script: &str) -> Result<Executed> {
        self.with(|held| held.unit(true, |held| held.run(script)))
    }

    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
        self.with(|held| rows::put_one(held, table, key, row))
    }

    fn changes(&mut self) -> Result<Changes> {
        let max_rows = self.setup.options.max_rows;
        self.with(|held| changes::of(held, max_rows))
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        self.savepoints += 1;
        let number = self.savepoints;
        let savepoint = self.with(|held| {
            let savepoint = format!("{}_checkpoint_{number}", held.name);
            held.say(&format!("SAVEPOINT {savepoint}")).map(|()| savepoint)
        })?;
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
        self.with(|held| held.say(&format!("ROLLBACK TO {savepoint}")))?;
        self.gone.extend(self.checkpoints.drain(at + 1..).map(|(name, _)| name));
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        if self.prepared {
            return Err(Error::usage("its commit is prepared: finish or abort that first"));
        }
        self.begin_anew()
    }

    fn commit(&mut self, _operation: &str) -> Result<()> {
        self.with(|_| Ok(()))?;
        self.make_real()
    }

    fn intent(&mut self, _operation: &str) -> Result<Prepared> {
        let max_rows = self.setup.options.max_rows;
        let token = self.with(|held| Token::new(held, &changes::of(held, max_rows)?))?;
        let reason = "SQLite has no prepared transactions".to_owned();
        Ok(Prepared::AtDecision { reason, token: token.value() })
    }

    fn prepare(&mut self, operation: &str) -> Result<Prepared> {
        let prepared = self.intent(operation)?;
        self.prepared = true;
        Ok(prepared)
    }

    fn finish(&mut self, prepared: &Prepared) -> Result<()> {
        let token = Token::of(prepared)?;
        if self.is_current(&token) {
            return self.make_real();
        }
        match outcome::settle(&self.setup, prepared, Some(true))? {
            Outcome::Committed => Ok(()),
            _ => Err(Error::usage("the transaction was rolled back, and cannot be committed any more")),
        }
    }

    fn abort(&mut self, prepared: &Prepared) -> Result<bool> {
        let token = Token::of(prepared)?;
        if self.is_current(&token) {
            self.prepared = false;
            return Ok(true);
        }
        match outcome::settle(&self.setup, prepared, Some(false))? {
            Outcome::Committed => {
                Err(Error::usage("the transaction was committed, and cannot be aborted any more"))
            }
            _ => Ok(false),
        }
    }

    fn close(&mut self) {
        self.lose("it was closed");
    }
}
