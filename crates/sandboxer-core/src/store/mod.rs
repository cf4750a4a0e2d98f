//! What is remembered between commands: one SQLite database, `state.db`, in the state directory.
//!
//! Nobody runs a daemon, so any number of processes may hold the database open at once. Every read-modify-write is one
//! `BEGIN IMMEDIATE` transaction, durable when it returns (WAL, `synchronous=FULL`). Nothing is created by looking: a
//! state directory that does not exist reads as empty, and the first write makes it. The format is checked by one read
//! of `user_version`; see [`schema`] for what happens when it is not the present one.

mod checkpoints;
mod convert;
mod environments;
mod events;
mod kept;
mod meters;
mod moment;
mod operations;
mod pages;
mod sandboxes;
mod schema;
mod tokens;

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::{Error, Result};

pub(crate) use convert::now;
pub use moment::Moment;
pub use operations::OperationEnd;
pub use pages::{Page, PageQuery};
pub use sandboxes::{Naming, Reservation};
pub use schema::FORMAT;

/// How many pages the log holds before it is folded into the database.
const LOG_PAGES: u32 = 100;

/// How long SQLite waits for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The state database. Shared between threads; each call is one statement or one transaction.
pub struct Store {
    home: PathBuf,
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
    /// For readers who come while another thread writes and flushes; as many as there ever were at once.
    readers: Mutex<Vec<Connection>>,
}

impl Store {
    /// Opens the database of the state directory `home`. Where there is none yet, nothing is made until the first write.
    pub fn open(home: &Path) -> Result<Self> {
        let store = Self {
            home: home.to_path_buf(),
            path: home.join("state.db"),
            connection: Mutex::new(None),
            readers: Mutex::default(),
        };
        drop(store.existing()?);
        Ok(store)
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a query; without a database there is nothing to find.
    fn read<T: Default>(
        &self,
        step: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let guard = match self.connection.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => self.anew(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return self.read_beside(step, query),
        };
        match &*self.opened(guard)? {
            Some(connection) => query(connection).map_err(|error| self.failed(step, error)),
            None => Ok(T::default()),
        }
    }

    /// The same on a connection of its own: what is written is seen when it is committed, and nobody is waited for.
    fn read_beside<T: Default>(
        &self,
        step: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None if self.is_there()? => self.connect()?,
            None => return Ok(T::default()),
        };
        let found = query(&connection).map_err(|error| self.failed(step, error));
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        found
    }

    /// Runs a read-modify-write as one durable transaction, which no other process's can come between.
    fn write<T>(
        &self,
        step: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut guard = self.existing()?;
        Self::transact(self.made(&mut guard)?, change).map_err(|error| self.failed(step, error))
    }

    /// The same, but durable only with the next one: for what a power cut may take as if it had never been.
    fn write_unflushed<T>(
        &self,
        step: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        // Held from the first to the last: what another thread writes in between would be flushed as little.
        let mut guard = self.existing()?;
        let connection = self.made(&mut guard)?;
        let failed = |error| self.failed("change how to flush", error);
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        let written = Self::transact(connection, change).map_err(|error| self.failed(step, error));
        if let Err(error) = connection.pragma_update(None, "synchronous", "FULL") {
            // One that would not flush any more is not used any more.
            *guard = None;
            return Err(failed(error));
        }
        written
    }

    /// The connection, to a database that is made now if there was none.
    fn made<'c>(&self, connection: &'c mut Option<Connection>) -> Result<&'c mut Connection> {
        match connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(self.create()?)),
        }
    }

    fn transact<T>(
        connection: &mut Connection,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = change(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// The connection, opened now if it was not and the file is there.
    fn existing(&self) -> Result<MutexGuard<'_, Option<Connection>>> {
        self.opened(self.connection.lock().unwrap_or_else(|poisoned| self.anew(poisoned.into_inner())))
    }

    /// A connection in which somebody panicked may be in the middle of anything.
    fn anew<'c>(&self, mut guard: MutexGuard<'c, Option<Connection>>) -> MutexGuard<'c, Option<Connection>> {
        *guard = None;
        self.connection.clear_poison();
        guard
    }

    fn opened<'c>(
        &self,
        mut guard: MutexGuard<'c, Option<Connection>>,
    ) -> Result<MutexGuard<'c, Option<Connection>>> {
        if guard.is_none() && self.is_there()? {
            *guard = Some(self.connect()?);
        }
        Ok(guard)
    }

    fn is_there(&self) -> Result<bool> {
        self.path.try_exists().map_err(|error| Error::io("look for", &self.path, error))
    }

    fn create(&self) -> Result<Connection> {
        make_private_dir(&self.home)?;
        self.begin_anew()?;
        self.connect()
    }

    /// Makes the file, empty. A log that was left of another database would be taken for its.
    fn begin_anew(&self) -> Result<()> {
        let _directory = self.lock_home()?;
        if self.is_there()? {
            return Ok(());
        }
        for suffix in ["-wal", "-shm"] {
            let mut log = self.path.clone().into_os_string();
            log.push(suffix);
            match std::fs::remove_file(&log) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", PathBuf::from(log), error));
                }
                _ => {}
            }
        }
        let mut options = File::options();
        let made = options.write(true).create(true).truncate(false).mode(0o600).open(&self.path);
        made.map(drop).map_err(|error| Error::io("create", &self.path, error))
    }

    fn lock_home(&self) -> Result<File> {
        let directory = File::open(&self.home).map_err(|error| Error::io("open", &self.home, error))?;
        directory.lock().map_err(|error| Error::io("lock", &self.home, error))?;
        Ok(directory)
    }

    fn connect(&self) -> Result<Connection> {
        let mut connection = self.open_file().map_err(|error| self.failed("begin reading", error))?;
        let found = schema::version(&connection).map_err(|error| self.failed("read the format", error))?;
        if found != FORMAT {
            self.migrate(&mut connection)?;
        }
        Ok(connection)
    }

    fn open_file(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Every command is a process: one that folded the log into the database when it ends, and made it anew when it
        // begins, would flush four times more. A log of a hundred pages is read back in no time.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        // Else a statement that a partial index might serve is compiled anew with each value: most of the time that a read takes.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(connection)
    }

    /// Brings the format up to date. Two processes may want to at once, and changing to WAL does not wait for a busy
    /// database, so they take turns by a lock on the state directory itself.
    fn migrate(&self, connection: &mut Connection) -> Result<()> {
        let directory = self.lock_home()?;
        let found = schema::version(connection).map_err(|error| self.failed("read the format", error))?;
        if found > FORMAT {
            return Err(Error::NewerState { path: self.path.clone(), found, supported: FORMAT });
        }
        if found == 0
            && schema::has_tables(connection).map_err(|error| self.failed("read the schema", error))?
        {
            return Err(self.corrupt("it is some other program's database"));
        }
        schema::migrate(connection, found).map_err(|error| self.failed("update the format", error))?;
        directory.sync_all().map_err(|error| Error::io("sync", &self.home, error))
    }

    /// Waits for other processes for another time than usual.
    #[cfg(test)]
    pub(crate) fn set_busy_timeout(&self, wait: Duration) {
        let guard = self.existing().expect("it opened before");
        guard.as_ref().expect("it is open").busy_timeout(wait).expect("any time will do");
    }

    /// Puts SQLite's answer into our terms.
    fn failed(&self, step: &'static str, error: rusqlite::Error) -> Error {
        match &error {
            rusqlite::Error::SqliteFailure(failure, text) => match failure.code {
                ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => self.corrupt(&error.to_string()),
                ErrorCode::DatabaseBusy => Error::Busy { path: self.path.clone(), holder: None },
                ErrorCode::Unknown if text.as_deref().is_some_and(|t| t.starts_with("no such")) => {
                    self.corrupt(&error.to_string())
                }
                _ => Error::Store { step, path: self.path.clone(), source: error },
            },
            rusqlite::Error::SqlInputError { msg, .. } if msg.starts_with("no such") => self.corrupt(msg),
            rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) => {
                self.corrupt(&error.to_string())
            }
            _ => Error::Store { step, path: self.path.clone(), source: error },
        }
    }

    fn corrupt(&self, what: &str) -> Error {
        let advice = "move the file away, and `sandbox adopt` registers the sandboxes on disk anew";
        Error::corrupt(&self.path, format!("{what}; {advice}"))
    }
}

/// Makes a directory that is nobody else's business, with its parents.
pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(|error| Error::io("create directory", path, error))
}

#[cfg(test)]
mod expiry_tests;
#[cfg(test)]
mod pages_tests;
#[cfg(test)]
mod tests;
