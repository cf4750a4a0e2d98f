//! The engine: the held transaction of one PostgreSQL database, everything that is asked of it, and what watches over it.

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::checkpoints::Checkpoints;
use super::client::Connection;
use super::ddl::Locks;
use super::diff::{Base, rows_changed};
use super::engine_commit;
use super::engine_preflight::{Preflight, preflight};
use super::engine_script as script;
use super::held::{Held, Settings};
use super::rows::{self, Session};
use super::schema::{self, Definitions};
use super::settle::Token;
use super::target::Target;
use super::values::set_text_forms;
use super::watchdog::{Watchdog, Watched};
use crate::engine::{Changes, Engine, Executed, Page, Prepared, Setup, Status};

/// How long the connection outside waits for a lock: what it cannot read soon, the held transaction has locked itself.
const OUTSIDE_LOCK_TIMEOUT: &str = "SET lock_timeout = '1s'; SET default_transaction_read_only = on";

/// Opens a database: connects, looks whether it will do, begins.
pub fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    Ok(Box::new(PostgresEngine::open(setup)?))
}

/// The held transaction of one database.
pub struct PostgresEngine {
    pub(super) setup: Setup,
    pub(super) target: Target,
    pub(super) held: Held,
    pub(super) work: Work,
    pub(super) preflight: Preflight,
    pub(super) watchdog: Watchdog,
    /// What was prepared and is neither finished nor aborted.
    pub(super) prepared: Option<Token>,
}

/// What belongs to one transaction, and what is needed to compare it.
pub(super) struct Work {
    pub(super) base: Base,
    pub(super) checkpoints: Checkpoints,
    pub(super) locks: Locks,
    /// Whether something was run that the server cannot prepare, and would not tell.
    pub(super) notified: bool,
    /// The definitions as they were when it began, where it may lock tables against everybody.
    definitions: Option<Definitions>,
    outside: Option<Connection>,
}

impl PostgresEngine {
    /// See [`open`].
    pub fn open(setup: &Setup) -> Result<Self> {
        let target = Target::parse(&setup.location, "postgres")?;
        let password = setup.password.as_deref();
        let preflight = preflight(&mut Connection::connect(&target, password)?, &setup.options)?;
        let settings = Settings {
            lock_timeout: setup.options.lock_timeout,
            ..Settings::new(target.clone(), setup.password.clone())
        };
        let mut held = Held::begin(settings)?;
        let base = base(&mut held)?;
        let mut outside = None;
        let definitions = definitions(&mut outside, setup, &target, &base)?;
        let watchdog = Watchdog::start(&target, password, setup.options.block_limit)?;
        watchdog.watch(Some(Watched { pid: held.backend_pid(), xid: base.xid }));
        let (checkpoints, locks) = (Checkpoints::default(), Locks::default());
        let work = Work { base, checkpoints, locks, notified: false, definitions, outside };
        Ok(Self { setup: setup.clone(), target, held, work, preflight, watchdog, prepared: None })
    }

    /// Everything but ending it is refused between preparing and its end.
    pub(super) fn usable(&self) -> Result<()> {
        match &self.prepared {
            None => Ok(()),
            Some(token) => Err(Error::Database {
                database: self.target.to_string(),
                message: format!("it is being committed as {:?}", token.operation),
                code: None,
            }),
        }
    }

    /// Reads in the held session, with fixed forms of values; nothing of it stays.
    fn look<T>(&mut self, work: impl FnOnce(&mut Held, &mut Work) -> Result<T>) -> Result<T> {
        self.usable()?;
        let own = &mut self.work;
        self.held.unit(false, |held| {
            held.query(&set_text_forms("SET LOCAL"))?;
            work(held, own)
        })
    }

    /// Begins anew on what the database is now.
    pub(super) fn begin_again(&mut self) -> Result<()> {
        self.watchdog.watch(None);
        self.work.checkpoints.over();
        self.work.locks = Locks::default();
        self.work.notified = false;
        self.held.begin_again()?;
        self.work.base = base(&mut self.held)?;
        let Work { base, outside, .. } = &mut self.work;
        self.work.definitions = definitions(outside, &self.setup, &self.target, base)?;
        self.prepared = None;
        self.watchdog.watch(Some(Watched { pid: self.held.backend_pid(), xid: self.work.base.xid }));
        Ok(())
    }

    /// Why it is lost. A session that nobody uses is asked whether it is still there.
    fn lost(&mut self) -> Option<String> {
        if self.held.lost().is_none() && self.prepared.is_none() {
            let _ = self.held.query("SELECT 1");
        }
        let reason = self.held.lost().filter(|_| self.prepared.is_none());
        self.watchdog.lost().or_else(|| reason.map(ToOwned::to_owned))
    }
}

fn base(held: &mut Held) -> Result<Base> {
    let hidden = held.hidden_schema().unwrap_or_default().to_owned();
    Base::read(held, &hidden)
}

/// The connection outside, as others see the database.
fn connected<'a>(
    outside: &'a mut Option<Connection>,
    setup: &Setup,
    target: &Target,
) -> Result<&'a mut Connection> {
    let alive =
        outside.take().and_then(|mut connection| connection.query("SELECT 1").ok().map(|_| connection));
    let connection = match alive {
        Some(connection) => connection,
        None => {
            let mut connection = Connection::connect(target, setup.password.as_deref())?;
            connection.query(&set_text_forms("SET"))?;
            connection.query(OUTSIDE_LOCK_TIMEOUT)?;
            connection
        }
    };
    Ok(outside.insert(connection))
}

fn definitions(
    outside: &mut Option<Connection>,
    setup: &Setup,
    target: &Target,
    base: &Base,
) -> Result<Option<Definitions>> {
    if setup.options.allow_ddl.is_empty() {
        return Ok(None);
    }
    Definitions::read(connected(outside, setup, target)?, &base.hidden_schema).map(Some)
}

impl Engine for PostgresEngine {
    fn status(&mut self) -> Status {
        if let Some(reason) = self.lost() {
            return Status::Lost { reason };
        }
        let mut notices = self.preflight.notices.clone();
        notices.extend(self.watchdog.notices());
        Status::Held { notices }
    }

    fn schema(&mut self) -> Result<String> {
        self.look(|held, work| schema::schema(held, &work.base.hidden_schema))
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        self.look(|held, work| rows::tables(held, &work.base.hidden_schema))
    }

    fn rows(&mut self, table: &str, page: &Page) -> Result<Vec<Row>> {
        self.look(|held, _| {
            let table = rows::find(held, table)?;
            rows::rows(held, &table, page)
        })
    }

    fn row(&mut self, table: &str, key: &str) -> Result<Option<Row>> {
        self.look(|held, _| {
            let table = rows::find(held, table)?;
            rows::row(held, &table, key)
        })
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        self.usable()?;
        let options = &self.setup.options;
        self.held.unit(false, |held| script::query(held, sql, options))
    }

    fn execute(&mut self, text: &str) -> Result<Executed> {
        self.usable()?;
        self.work.notified |= script::notifies(text);
        let (options, locks) = (&self.setup.options, &mut self.work.locks);
        self.held.unit(true, |held| script::execute(held, text, options, locks))
    }

    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
        let table = self.look(|held, _| rows::find(held, table))?;
        self.held.unit(true, |held| rows::put_row(held, &table, key, row))
    }

    fn changes(&mut self) -> Result<Changes> {
        let (setup, target) = (self.setup.clone(), self.target.clone());
        self.look(|held, work| {
            let outside = connected(&mut work.outside, &setup, &target)?;
            let known = work.definitions.as_ref();
            compare(held, outside, &work.base, known, setup.options.max_rows)
        })
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        self.usable()?;
        self.held.query(&format!("SAVEPOINT {}", self.work.checkpoints.next()))?;
        self.work.checkpoints.made(name);
        Ok(())
    }

    fn restore(&mut self, name: &str) -> Result<()> {
        self.usable()?;
        let savepoint = self.work.checkpoints.find(name)?;
        self.held.query(&format!("ROLLBACK TO SAVEPOINT {savepoint}"))?;
        self.work.checkpoints.restored(name);
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        self.usable()?;
        self.begin_again()
    }

    fn commit(&mut self, operation: &str) -> Result<()> {
        engine_commit::commit(self, operation)
    }

    fn prepare(&mut self, operation: &str) -> Result<Prepared> {
        engine_commit::prepare(self, operation)
    }

    fn finish(&mut self, prepared: &Prepared) -> Result<()> {
        engine_commit::finish(self, prepared)
    }

    fn abort(&mut self, prepared: &Prepared) -> Result<bool> {
        engine_commit::abort(self, prepared)
    }

    fn close(&mut self) {
        self.watchdog.watch(None);
        self.held.lose("it was closed");
        self.work.outside = None;
    }
}

fn compare(
    inside: &mut dyn Session,
    outside: &mut dyn Session,
    base: &Base,
    known: Option<&Definitions>,
    max_rows: usize,
) -> Result<Changes> {
    let rows = rows_changed(inside, outside, base, max_rows)?;
    let schema = schema::changed(inside, outside, base, known)?;
    let notices = [rows.notices, schema.notices].concat();
    Ok(Changes { rows: rows.rows, schema: schema.changes, notices })
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
