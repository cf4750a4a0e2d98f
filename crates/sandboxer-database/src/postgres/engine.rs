//! The engine: the held transaction of one PostgreSQL database, everything that is asked of it, and what watches over it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandboxer_core::model::Row;
use sandboxer_core::{Error, Result};

use super::checkpoints::Checkpoints;
use super::client::Connection;
use super::diff::{Base, rows_changed};
use super::engine_commit;
use super::engine_preflight::{Preflight, preflight};
use super::engine_script::{self as script, Rules};
use super::held::{Held, Settings};
use super::proxy::{Options as ProxyOptions, Proxy};
use super::rows::{self, Session};
use super::schema::{self, Definitions};
use super::settle::Token;
use super::target::Target;
use super::unshown;
use super::values::set_text_forms;
use super::watchdog::{Watchdog, Watched};
use crate::engine::{Changes, Engine, Executed, Page, Prepared, Setup, Status, encode};

/// While differences are looked for, the server must not leave out rows that a policy hides from the role: it refuses then, and so do we.
const SEE_EVERYTHING: &str = "SET LOCAL row_security = off";

/// The connection outside reads only, and everything; what it cannot read soon, the held transaction has locked itself.
const OUTSIDE: &str =
    "SET lock_timeout = '1s'; SET default_transaction_read_only = on; SET row_security = off";

/// How long a client that is sent away may take to end what it does.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(10);

/// Opens a database: connects, looks whether it will do, begins.
pub fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    Ok(Box::new(PostgresEngine::open(setup)?))
}

/// The held transaction of one database.
pub struct PostgresEngine {
    pub(super) proxy: Proxy,
    pub(super) inner: Inner,
    held: Arc<Mutex<Held>>,
    /// What was prepared and is neither finished nor aborted.
    pub(super) prepared: Option<Token>,
}

/// Everything but the session itself.
pub(super) struct Inner {
    pub(super) setup: Setup,
    pub(super) target: Target,
    pub(super) base: Base,
    pub(super) preflight: Preflight,
    pub(super) watchdog: Watchdog,
    pub(super) rules: Rules,
    checkpoints: Checkpoints,
    /// The definitions as they were when it began, where it may lock tables against everybody.
    definitions: Option<Definitions>,
    outside: Option<Connection>,
}

impl PostgresEngine {
    /// See [`open`].
    pub fn open(setup: &Setup) -> Result<Self> {
        let target = Target::parse(&setup.location, &setup.user)?;
        let password = setup.password.as_deref();
        let preflight = preflight(&mut Connection::connect(&target, password)?, &setup.options)?;
        let settings = Settings {
            lock_timeout: setup.options.lock_timeout,
            ..Settings::new(target.clone(), setup.password.clone())
        };
        let mut held = Held::begin(settings)?;
        let mut inner = Inner {
            setup: setup.clone(),
            base: base(&mut held)?,
            preflight,
            watchdog: Watchdog::start(&target, password, setup.options.block_limit)?,
            rules: Rules::new(&setup.options),
            checkpoints: Checkpoints::default(),
            definitions: None,
            outside: None,
            target,
        };
        inner.begun(&mut held)?;
        let held = Arc::new(Mutex::new(held));
        let proxy = Proxy::start(Arc::clone(&held), &clients_dir(setup)?, inner.proxy_options())?;
        Ok(Self { proxy, inner, held, prepared: None })
    }

    /// Everything but ending it is refused between preparing and its end.
    pub(super) fn usable(&self) -> Result<()> {
        match &self.prepared {
            None => Ok(()),
            Some(token) => Err(Error::Database {
                database: self.inner.target.to_string(),
                message: format!("it is being committed as {:?}", token.operation),
                code: None,
            }),
        }
    }

    /// Does something between the transactions of clients.
    pub(super) fn turn<T>(&mut self, work: impl FnOnce(&mut Held, &mut Inner) -> Result<T>) -> Result<T> {
        let inner = &mut self.inner;
        self.proxy.with_session(inner.setup.options.turn_timeout, |held| work(held, inner))
    }

    /// What was prepared is finished or aborted: clients get in again.
    pub(super) fn over(&mut self) {
        self.prepared = None;
        self.proxy.keep_turn(false);
    }

    /// Does something in a savepoint of its own, which is kept where `keep` says so.
    fn unit<T>(&mut self, keep: bool, work: impl FnOnce(&mut Held, &mut Inner) -> Result<T>) -> Result<T> {
        self.usable()?;
        self.turn(|held, inner| held.unit(keep, |held| work(held, inner)))
    }

    /// Reads in the held session, with fixed forms of values; nothing of it stays.
    fn look<T>(&mut self, work: impl FnOnce(&mut Held, &mut Inner) -> Result<T>) -> Result<T> {
        self.unit(false, |held, inner| {
            held.query(&set_text_forms("SET LOCAL"))?;
            work(held, inner)
        })
    }

    /// Why it is lost. A session that nobody uses is asked whether it is still there.
    fn lost(&mut self) -> Option<String> {
        let (mut reason, mut leaked) = (None, false);
        if self.prepared.is_none() && self.proxy.holder().is_none() {
            let _ = self.proxy.with_session(Duration::ZERO, |held| {
                let _ = held.query("SELECT 1");
                reason = held.lost().map(ToOwned::to_owned);
                leaked = held.leaked();
                Ok(())
            });
        }
        // What was committed is the more important thing to know.
        if leaked { reason } else { self.inner.watchdog.lost().or(reason) }
    }
}

impl Inner {
    /// Begins anew on what the database is now.
    pub(super) fn begin_again(&mut self, held: &mut Held) -> Result<()> {
        self.watchdog.watch(None);
        self.checkpoints.over();
        self.rules.reset();
        held.begin_again()?;
        self.base = base(held)?;
        self.begun(held)
    }

    fn begun(&mut self, held: &mut Held) -> Result<()> {
        if !self.setup.options.allow_ddl.is_empty() {
            let outside = connected(&mut self.outside, &self.setup, &self.target)?;
            self.definitions = Some(Definitions::read(outside, &self.base.hidden_schema)?);
        }
        self.watchdog.watch(Some(Watched { pid: held.backend_pid(), xid: self.base.xid }));
        Ok(())
    }

    fn proxy_options(&self) -> ProxyOptions {
        let (gate, look) = (self.rules.clone(), self.rules.clone());
        ProxyOptions {
            turn_timeout: self.setup.options.turn_timeout,
            gate: Some(Arc::new(move |held: &mut Held, statement: &str| gate.gate(held, statement))),
            look: Some(Arc::new(move |held: &mut Held| look.look(held))),
            ..ProxyOptions::default()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            connection.query(OUTSIDE)?;
            connection
        }
    };
    Ok(outside.insert(connection))
}

impl Engine for PostgresEngine {
    fn status(&mut self) -> Status {
        if let Some(reason) = self.lost() {
            return Status::Lost { reason };
        }
        let mut notices = self.inner.preflight.notices.clone();
        notices.extend(self.inner.watchdog.notices());
        Status::Held { notices }
    }

    fn connection(&mut self) -> Option<crate::engine::Connection> {
        let (user, database) = (self.proxy.user().to_owned(), self.inner.target.database.clone());
        let variables = [
            ("PGHOST", "{socket_dir}".to_owned()),
            ("PGPORT", "5432".to_owned()),
            ("PGUSER", user.clone()),
            ("PGPASSWORD", self.proxy.password().to_owned()),
            ("PGDATABASE", database.clone()),
            ("PGSSLMODE", "disable".to_owned()),
            ("DATABASE_URL", self.socket_url(&user, &database)),
        ];
        Some(crate::engine::Connection {
            url: self.proxy.url(),
            socket_dir: Some(self.proxy.socket_dir().to_path_buf()),
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }

    fn schema(&mut self) -> Result<String> {
        self.look(|held, inner| schema::schema(held, &inner.base.hidden_schema))
    }

    fn tables(&mut self) -> Result<Vec<String>> {
        self.look(|held, inner| rows::tables(held, &inner.base.hidden_schema))
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
        self.unit(false, |held, inner| script::query(held, sql, &inner.setup.options))
    }

    fn execute(&mut self, text: &str) -> Result<Executed> {
        self.unit(true, |held, inner| script::execute(held, text, &inner.rules))
    }

    fn put_row(&mut self, table: &str, key: &str, row: Option<&Row>) -> Result<bool> {
        self.unit(true, |held, _| {
            let table = held.unit(false, |held| {
                held.query(&set_text_forms("SET LOCAL"))?;
                rows::find(held, table)
            })?;
            rows::put_row(held, &table, key, row)
        })
    }

    fn changes(&mut self) -> Result<Changes> {
        self.look(|held, inner| {
            let outside = connected(&mut inner.outside, &inner.setup, &inner.target)?;
            held.query(SEE_EVERYTHING)?;
            compare(held, outside, &inner.base, inner.definitions.as_ref(), inner.setup.options.max_rows)
                .map_err(explain)
        })
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        self.usable()?;
        self.turn(|held, inner| {
            held.query(&format!("SAVEPOINT {}", inner.checkpoints.next()))?;
            inner.checkpoints.made(name);
            Ok(())
        })
    }

    fn restore(&mut self, name: &str) -> Result<()> {
        self.usable()?;
        self.turn(|held, inner| {
            let savepoint = inner.checkpoints.find(name)?;
            held.query(&format!("ROLLBACK TO SAVEPOINT {savepoint}"))?;
            inner.checkpoints.restored(name);
            Ok(())
        })
    }

    fn rollback(&mut self) -> Result<()> {
        self.usable()?;
        let inner = &mut self.inner;
        let patience = inner.setup.options.turn_timeout.max(ROLLBACK_PATIENCE);
        self.proxy.with_session_now(patience, "the sandbox was rolled back", |held| inner.begin_again(held))
    }

    fn hold(&mut self) -> Result<()> {
        self.proxy.keep_turn(true);
        let taken = self.turn(|_, _| Ok(()));
        if taken.is_err() {
            self.proxy.keep_turn(false);
        }
        taken
    }

    fn release(&mut self) {
        if self.prepared.is_none() {
            self.proxy.keep_turn(false);
        }
    }

    fn intent(&mut self, operation: &str) -> Result<Prepared> {
        engine_commit::intent(self, operation)
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
        self.inner.watchdog.watch(None);
        self.proxy.stop();
        lock(&self.held).lose("it was closed");
        self.inner.outside = None;
    }
}

impl PostgresEngine {
    /// A URL through the socket, wherever its directory will be.
    fn socket_url(&self, user: &str, database: &str) -> String {
        let (password, database) = (self.proxy.password(), encode(database));
        format!("postgres://{user}:{password}@/{database}?host={{socket_dir}}")
    }
}

/// What a server says of a difference that it cannot give, with what helps.
fn explain(error: Error) -> Error {
    let Error::Database { database, message, code: Some(code) } = error else { return error };
    let help = match code.as_str() {
        "55P03" => {
            "somebody outside waits to lock a table that the sandbox has changed (see its status); \
             ask again later, or end the sandbox"
        }
        "42501" if message.contains("row-level security") => {
            "the role may write rows that it may not see, and nobody could review those; \
             use a role that sees all of them (ALTER ROLE … BYPASSRLS)"
        }
        _ => return Error::Database { database, message, code: Some(code) },
    };
    Error::Database { database, message: format!("{message}: {help}"), code: Some(code) }
}

/// A directory that has nothing but the socket for clients: it is shown inside of sandboxes, and the keeper's own socket must not be.
fn clients_dir(setup: &Setup) -> Result<PathBuf> {
    let dir = setup.dir.join("clients");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|error| Error::io("create directory", &dir, error))?;
    Ok(dir)
}

fn compare(
    inside: &mut dyn Session,
    outside: &mut dyn Session,
    base: &Base,
    known: Option<&Definitions>,
    max_rows: usize,
) -> Result<Changes> {
    let rows = rows_changed(inside, outside, base, max_rows)?;
    let mut schema = schema::changed(inside, outside, base, known)?;
    schema.changes.extend(unshown::changes(inside, base)?);
    let notices = [rows.notices, schema.notices].concat();
    Ok(Changes { rows: rows.rows, schema: schema.changes, notices })
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "engine_proxy_tests.rs"]
mod proxy_tests;
