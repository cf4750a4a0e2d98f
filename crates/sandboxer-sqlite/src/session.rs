//! Sessions: what one connection changed, recorded while it did.

use std::ffi::{CStr, c_int};
use std::ptr;

use sandboxer_core::model::RowChange;
use sandboxer_core::{Error, Result};

use crate::connection::Connection;
use crate::schema::{Table, key_condition, table_named, tables};
use crate::statement::{bytes, c_name};
use crate::value::to_row;
use crate::{Value, ffi};

/// A connection and the record of what it changes in every table. Respects ROLLBACK TO.
///
/// Sessions leave out tables without a primary key, rows with NULL in it, and virtual tables, without a word; the first
/// are what [`Recorder::unrecorded`] tells. A table that was dropped or whose columns changed after it was written to makes the
/// record unreadable: that is an error of [`Recorder::changeset`].
#[derive(Debug)]
pub struct Recorder {
    session: *mut ffi::Session,
    connection: Connection,
}

// SAFETY: as for the connection: one thread at a time.
unsafe impl Send for Recorder {}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: made by `session_create`, deleted once, and before the connection, whose field is dropped after this.
        unsafe { ffi::session_delete(self.session) };
    }
}

impl Recorder {
    /// Records from now on everything that is changed through `connection`.
    pub fn start(connection: Connection) -> Result<Self> {
        let session = new_session(&connection)?;
        let recorder = Self { session, connection };
        // SAFETY: the session is live; a null name means all tables.
        let code = unsafe { ffi::session_attach(recorder.session, ptr::null()) };
        recorder.connection.check(code, "record what is changed in")?;
        Ok(recorder)
    }

    /// Forgets what was recorded, and records anew.
    pub fn restart(&mut self) -> Result<()> {
        let session = new_session(&self.connection)?;
        // SAFETY: made by `session_create`; replaced at once, so it is not deleted twice.
        unsafe { ffi::session_delete(std::mem::replace(&mut self.session, session)) };
        // SAFETY: the session is live; a null name means all tables.
        let code = unsafe { ffi::session_attach(self.session, ptr::null()) };
        self.connection.check(code, "record what is changed in")
    }

    /// The connection that is recorded.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        // SAFETY: the session is live.
        unsafe { ffi::session_isempty(self.session) != 0 }
    }

    /// What was recorded.
    pub fn changeset(&self) -> Result<Changeset> {
        let what = "read the record of changes of";
        take_changeset(self.session).map_err(|code| failure_of(code).on(what, self.connection.path()))
    }

    /// What was recorded, row by row, with the whole rows on both sides.
    pub fn changes(&self) -> Result<Vec<RowChange>> {
        let mut rows = Vec::new();
        let mut table: Option<Table> = None;
        for change in self.changeset()?.changes()? {
            if table.as_ref().is_none_or(|table| table.name != change.table) {
                table = Some(table_named(&self.connection, &change.table)?);
            }
            let Some(table) = &table else { continue };
            rows.push(whole(&self.connection, table, change)?);
        }
        Ok(rows)
    }

    /// The tables that sessions cannot record, for they have no primary key.
    pub fn unrecorded(&self) -> Result<Vec<String>> {
        let tables = tables(&self.connection)?.into_iter();
        Ok(tables
            .filter(|table| table.key.is_empty() && table.is_ordinary())
            .map(|table| table.name)
            .collect())
    }
}

fn new_session(connection: &Connection) -> Result<*mut ffi::Session> {
    let mut session = ptr::null_mut();
    // SAFETY: the connection is open; `session` takes one pointer.
    let code = unsafe { ffi::session_create(connection.handle(), &mut session) };
    connection.check(code, "record what is changed in")?;
    Ok(session)
}

fn failure_of(code: c_int) -> crate::Failure {
    // SAFETY: SQLite has a constant string for every code.
    let message = unsafe { CStr::from_ptr(ffi::errstr(code)) }.to_string_lossy().into_owned();
    crate::Failure { code, message }
}

fn take_changeset(session: *mut ffi::Session) -> Result<Changeset, c_int> {
    let (mut size, mut pointer) = (0, ptr::null_mut());
    // SAFETY: the session is live; both places are written before the call returns.
    let code = unsafe { ffi::session_changeset(session, &mut size, &mut pointer) };
    if code != ffi::OK {
        return Err(code);
    }
    // SAFETY: SQLite gave `size` bytes at `pointer`, to be freed by us.
    let bytes = unsafe { bytes(pointer, size) };
    // SAFETY: as above; they are copied.
    unsafe { ffi::free(pointer) };
    Ok(Changeset(bytes))
}

/// A record of changes, in SQLite's own format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changeset(pub Vec<u8>);

/// One change of a changeset.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedChange {
    /// In which table.
    pub table: String,
    /// Which columns are the primary key.
    pub key: Vec<bool>,
    /// The values before, as far as they are recorded; `None` for an insert.
    pub old: Option<Vec<Option<Value>>>,
    /// The values after, as far as they are recorded; `None` for a deletion.
    pub new: Option<Vec<Option<Value>>>,
}

struct Iter(*mut ffi::ChangesetIter);

impl Drop for Iter {
    fn drop(&mut self) {
        // SAFETY: made by `changeset_start`, finalized once.
        unsafe { ffi::changeset_finalize(self.0) };
    }
}

impl Changeset {
    /// Every change in it.
    pub fn changes(&self) -> Result<Vec<RecordedChange>> {
        let damaged = || Error::usage("a record of changes cannot be read");
        let size = c_int::try_from(self.0.len()).map_err(|_| damaged())?;
        let mut handle = ptr::null_mut();
        // SAFETY: the bytes outlive the iterator, which is dropped in this function.
        let code = unsafe { ffi::changeset_start(&mut handle, size, self.0.as_ptr().cast()) };
        if code != ffi::OK {
            return Err(damaged());
        }
        let iter = Iter(handle);
        let mut changes = Vec::new();
        loop {
            // SAFETY: the iterator is live.
            match unsafe { ffi::changeset_next(iter.0) } {
                ffi::ROW => changes.push(present(&iter).ok_or_else(damaged)?),
                ffi::DONE => return Ok(changes),
                _ => return Err(damaged()),
            }
        }
    }
}

fn present(iter: &Iter) -> Option<RecordedChange> {
    let (mut table, mut columns, mut op) = (ptr::null(), 0, 0);
    // SAFETY: the iterator stands on a change; the places are written where it succeeds.
    let name = unsafe {
        if ffi::changeset_op(iter.0, &mut table, &mut columns, &mut op) != ffi::OK {
            return None;
        }
        CStr::from_ptr(table).to_string_lossy().into_owned()
    };
    let mut flags = ptr::null_mut();
    // SAFETY: as above; there is one flag for each column.
    let key = unsafe {
        if ffi::changeset_pk(iter.0, &mut flags, &mut columns) != ffi::OK {
            return None;
        }
        bytes(flags.cast_const().cast(), columns)
    };
    let old = (op != ffi::OP_INSERT).then(|| side(iter, columns, ffi::changeset_old));
    let new = (op != ffi::OP_DELETE).then(|| side(iter, columns, ffi::changeset_new));
    Some(RecordedChange { table: name, key: key.iter().map(|flag| *flag != 0).collect(), old, new })
}

type Side = unsafe extern "C" fn(*mut ffi::ChangesetIter, c_int, *mut *mut ffi::Value) -> c_int;

fn side(iter: &Iter, columns: c_int, get: Side) -> Vec<Option<Value>> {
    let value = |column| {
        let mut value = ptr::null_mut();
        // SAFETY: the iterator stands on a change that has this side; the column is in range. What is not recorded is null.
        unsafe {
            let code = get(iter.0, column, &mut value);
            (code == ffi::OK && !value.is_null()).then(|| copy(value))
        }
    };
    (0..columns).map(value).collect()
}

/// # Safety
/// `value` is one that SQLite gave and that is still valid.
unsafe fn copy(value: *mut ffi::Value) -> Value {
    // SAFETY: the caller's promise; text and blob are asked for before their length.
    unsafe {
        match ffi::value_type(value) {
            ffi::INTEGER => Value::Integer(ffi::value_int64(value)),
            ffi::FLOAT => Value::Real(ffi::value_double(value)),
            ffi::TEXT => {
                let text = ffi::value_text(value);
                Value::Text(bytes(text, ffi::value_bytes(value)))
            }
            ffi::BLOB => {
                let blob = ffi::value_blob(value);
                Value::Blob(bytes(blob, ffi::value_bytes(value)))
            }
            _ => Value::Null,
        }
    }
}

/// Fills in what is not recorded of an update, for it was not changed: from the row as it is now.
fn whole(connection: &Connection, table: &Table, change: RecordedChange) -> Result<RowChange> {
    let keyed = change.old.as_ref().or(change.new.as_ref());
    let of_key =
        |index: &usize| keyed.and_then(|side| side.get(*index).cloned().flatten()).unwrap_or(Value::Null);
    let key: Vec<Value> = table.key.iter().map(of_key).collect();
    let present = if change.old.is_some() && change.new.is_some() {
        let sql = format!("{} WHERE {}", table.select(), key_condition(table));
        connection.prepare(&sql)?.first_row(&key)?.unwrap_or_default()
    } else {
        Vec::new()
    };
    let fill = |side: Vec<Option<Value>>| -> Vec<Value> {
        let now = |index| present.get(index).cloned().unwrap_or(Value::Null);
        side.into_iter().enumerate().map(|(index, value)| value.unwrap_or_else(|| now(index))).collect()
    };
    let row = |side: Option<Vec<Option<Value>>>| side.map(|side| to_row(&table.columns, &fill(side)));
    Ok(RowChange {
        table: table.name.clone(),
        key: to_row(&table.key_columns(), &key),
        old: row(change.old),
        new: row(change.new),
    })
}

/// What SQLite's own comparison finds between one table of two files, by reading all of both. How many bytes its changeset has.
/// For measuring against.
pub fn session_diff(base: &std::path::Path, clone: &std::path::Path, table: &str) -> Result<Changeset> {
    let connection = Connection::open(clone, crate::Mode::ReadWrite)?;
    connection.execute("ATTACH ? AS base", &[Value::text(base.to_string_lossy())])?;
    let session = new_session(&connection)?;
    let name = c_name(table)?;
    let from = c"base";
    // SAFETY: the session is live and deleted below; the names outlive the calls.
    let result = unsafe {
        let mut code = ffi::session_attach(session, name.as_ptr());
        if code == ffi::OK {
            code = ffi::session_diff(session, from.as_ptr(), name.as_ptr());
        }
        let result = if code == ffi::OK { take_changeset(session) } else { Err(code) };
        ffi::session_delete(session);
        result
    };
    result.map_err(|code| failure_of(code).on("compare", clone))
}
