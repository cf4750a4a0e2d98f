//! A connection to one database file.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use sandboxer_core::{Error, Result};

use crate::statement::Statement;
use crate::{Value, confined, ffi};

/// How to open a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For reading alone. What a crashed writer left cannot be recovered then.
    ReadOnly,
    /// For reading and writing; it must exist.
    ReadWrite,
    /// The same, and made where it does not exist.
    Create,
    /// For reading and writing one that lies where programs can put anything in its place: a link, or anything else that is not a
    /// file of its own, is refused, also beside it.
    Confined,
}

/// What a transaction has of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// Nothing.
    None,
    /// It reads one state of it.
    Read,
    /// It may write.
    Write,
}

/// What SQLite said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The extended result code.
    pub code: i32,
    /// Its message.
    pub message: String,
}

impl Failure {
    /// Whether a constraint was violated.
    pub fn is_constraint(&self) -> bool {
        self.primary() == ffi::CONSTRAINT
    }

    fn primary(&self) -> c_int {
        self.code & 0xff
    }

    /// The error of this library: what was attempted on which file, and what to do about it.
    pub fn on(self, step: &'static str, path: &Path) -> Error {
        match self.primary() {
            ffi::BUSY | ffi::LOCKED => Error::Busy { path: path.to_path_buf(), holder: None },
            ffi::NOTADB => Error::corrupt(path, "it is not an SQLite database, or it is encrypted"),
            ffi::CORRUPT => Error::corrupt(path, self.message),
            ffi::READONLY => Error::io(
                step,
                path,
                std::io::Error::other(format!("{}: it has to be writable", self.message)),
            ),
            _ => Error::io(step, path, std::io::Error::other(self.message)),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// A connection. Closed when dropped; what is not committed then is rolled back.
#[derive(Debug)]
pub struct Connection {
    db: *mut ffi::Db,
    path: PathBuf,
    mode: Mode,
}

// SAFETY: SQLite is compiled for several threads (SQLITE_THREADSAFE 2): a connection may move to another thread, as long as
// one uses it at a time. It is not `Sync`.
unsafe impl Send for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the handle came from `open` and is closed once. Statements, sessions and backups borrow the connection,
        // so none is left.
        unsafe { ffi::close(self.db) };
    }
}

impl Connection {
    /// Opens the database at `path`; symbolic links in it are followed, but with [`Mode::Confined`].
    pub fn open(path: &Path, mode: Mode) -> Result<Self> {
        if mode != Mode::Confined {
            return Self::open_at(path, path, mode);
        }
        let place = confined::place(path)?;
        confined::check(&place)?;
        let connection = Self::open_at(&place, path, mode)?;
        confined::check_opened(path, connection.descriptor())?;
        Ok(connection)
    }

    /// Opens what is at `place`, which is `path` in messages.
    fn open_at(place: &Path, path: &Path, mode: Mode) -> Result<Self> {
        let name = CString::new(place.as_os_str().as_bytes())
            .map_err(|_| Error::usage(format!("{} has a NUL byte in its name", path.display())))?;
        let flags = ffi::OPEN_EXRESCODE
            | match mode {
                Mode::ReadOnly => ffi::OPEN_READONLY,
                Mode::ReadWrite => ffi::OPEN_READWRITE,
                Mode::Create => ffi::OPEN_READWRITE | ffi::OPEN_CREATE,
                Mode::Confined => ffi::OPEN_READWRITE | ffi::OPEN_NOFOLLOW,
            };
        let mut db = ptr::null_mut();
        // SAFETY: the name ends with NUL and outlives the call; `db` is a place for one pointer.
        let code = unsafe { ffi::open(name.as_ptr(), &mut db, flags) };
        if db.is_null() {
            return Err(Error::io("open", path, std::io::Error::from(std::io::ErrorKind::OutOfMemory)));
        }
        let connection = Self { db, path: path.to_path_buf(), mode };
        if code == ffi::OK {
            return Ok(connection);
        }
        Err(connection.failure().on("open the database", path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another connection to the same, opened the same way.
    pub(crate) fn another(&self) -> Result<Self> {
        Self::open(&self.path, self.mode)
    }

    /// The last failure.
    pub fn failure(&self) -> Failure {
        // SAFETY: the handle is open; the message is copied before any other call can replace it.
        unsafe {
            Failure {
                code: ffi::extended_errcode(self.db),
                message: CStr::from_ptr(ffi::errmsg(self.db)).to_string_lossy().into_owned(),
            }
        }
    }

    /// The last failure as an error that names the step and the file.
    pub fn error(&self, step: &'static str) -> Error {
        self.failure().on(step, &self.path)
    }

    /// The same where `code` is one.
    pub(crate) fn check(&self, code: c_int, step: &'static str) -> Result<()> {
        if code == ffi::OK { Ok(()) } else { Err(self.error(step)) }
    }

    /// How long a statement waits for other connections' locks.
    pub fn busy_timeout(&self, timeout: Duration) -> Result<()> {
        let ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the handle is open.
        self.check(unsafe { ffi::busy_timeout(self.db, ms) }, "set the timeout of")
    }

    /// Whether triggers fire.
    pub fn enable_triggers(&self, on: bool) -> Result<()> {
        // SAFETY: the handle is open.
        self.check(unsafe { ffi::enable_triggers(self.db, on.into()) }, "configure")
    }

    /// Refuses from now on what changes content past its tables: pages as such, the text of the schema, the inside of virtual tables.
    pub fn defend(&self) -> Result<()> {
        // SAFETY: the handle is open.
        self.check(unsafe { ffi::defend(self.db) }, "configure")
    }

    /// Whether statements that begin or end transactions and savepoints, or attach files, are refused.
    pub fn guard(&self, on: bool) -> Result<()> {
        // SAFETY: the handle is open; the callback is static and uses nothing of the caller's.
        self.check(unsafe { ffi::guard(self.db, on.into()) }, "configure")
    }

    /// Takes the lock of `flock` on the file, if it is free. Kept until the connection is closed.
    ///
    /// On a descriptor of one's own it could not be given back: closing that drops the locks of every connection of this process.
    pub fn try_flock(&self) -> bool {
        let how = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        self.descriptor().is_some_and(|descriptor| rustix::fs::flock(descriptor, how).is_ok())
    }

    /// Whether it can only be read, for lack of permission, say.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { ffi::db_readonly(self.db) == 1 }
    }

    /// Whether no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { ffi::get_autocommit(self.db) != 0 }
    }

    /// What the present transaction has.
    pub fn transaction_state(&self) -> TransactionState {
        // SAFETY: the handle is open.
        match unsafe { ffi::txn_state(self.db) } {
            1 => TransactionState::Read,
            2 => TransactionState::Write,
            _ => TransactionState::None,
        }
    }

    /// How many rows the last statement changed.
    pub fn changes(&self) -> u64 {
        // SAFETY: the handle is open.
        u64::try_from(unsafe { ffi::changes(self.db) }).unwrap_or_default()
    }

    /// How many rows all statements have changed, those of triggers included.
    pub fn total_changes(&self) -> u64 {
        // SAFETY: the handle is open.
        u64::try_from(unsafe { ffi::total_changes(self.db) }).unwrap_or_default()
    }

    /// Whether the read transaction that is open sees exactly what is in the database file, and keeps it so.
    pub(crate) fn reads_file(&self) -> bool {
        // SAFETY: the handle is open, and "main" always has a pager.
        unsafe { ffi::reads_file(self.db) != 0 }
    }

    /// SQLite's own descriptor of the file. Opening the file once more and closing that would drop all locks of this process.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the handle is open.
        let descriptor = unsafe { ffi::descriptor(self.db) };
        // SAFETY: SQLite keeps the descriptor open for as long as the connection, which is borrowed.
        (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    pub(crate) fn handle(&self) -> *mut ffi::Db {
        self.db
    }

    /// Prepares one statement.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        Statement::prepare(self, sql).map_err(|failure| failure.on("run a statement on", &self.path))
    }

    /// Runs statements without parameters, one after the other, and ignores the rows that they give.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        self.try_execute_batch(sql).map_err(|failure| failure.on("run a statement on", &self.path))
    }

    /// The same, with what SQLite said.
    pub fn try_execute_batch(&self, sql: &str) -> Result<(), Failure> {
        let mut rest = sql;
        while let Some((mut statement, tail)) = Statement::first(self, rest)? {
            while statement.try_step()? {}
            rest = tail;
        }
        Ok(())
    }

    /// Runs one statement; how many rows it changed.
    pub fn execute(&self, sql: &str, values: &[Value]) -> Result<u64> {
        let mut statement = self.prepare(sql)?;
        statement.bind(values)?;
        while statement.step()? {}
        Ok(self.changes())
    }

    /// All rows of a query.
    pub fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut statement = self.prepare(sql)?;
        statement.bind(values)?;
        let mut rows = Vec::new();
        while statement.step()? {
            rows.push(statement.values());
        }
        Ok(rows)
    }

    /// The first value of the first row of a query; NULL where there is none.
    pub fn value(&self, sql: &str) -> Result<Value> {
        let first = self.rows(sql, &[])?.into_iter().next().and_then(|row| row.into_iter().next());
        Ok(first.unwrap_or(Value::Null))
    }

    /// The same as an integer; 0 where it is none.
    pub fn integer(&self, sql: &str) -> Result<i64> {
        Ok(self.value(sql)?.as_integer().unwrap_or_default())
    }

    /// Opens a transaction that reads one state of the file from now on, and returns when that is fixed.
    pub fn begin_read(&self) -> Result<()> {
        self.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")
    }

    /// Ends whatever transaction is open, without its work.
    pub fn rollback(&self) {
        if !self.is_autocommit() {
            // A failure here means that the transaction is over already.
            let _ = self.try_execute_batch("ROLLBACK");
        }
    }

    /// Whether the file is in WAL mode.
    pub fn is_wal(&self) -> Result<bool> {
        Ok(self.value("PRAGMA journal_mode")?.as_text().as_deref() == Some("wal"))
    }
}

/// The version of SQLite in this crate.
pub fn version() -> &'static str {
    // SAFETY: a constant string that ends with NUL.
    unsafe { CStr::from_ptr(ffi::libversion()) }.to_str().unwrap_or_default()
}
