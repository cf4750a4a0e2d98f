//! Prepared statements.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use sandboxer_core::{Error, Result};

use crate::connection::{Connection, Failure};
use crate::{Value, ffi};

/// One prepared statement.
#[derive(Debug)]
pub struct Statement<'c> {
    connection: &'c Connection,
    handle: *mut ffi::Stmt,
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `prepare` and is finalized once, before the connection that is borrowed.
        unsafe { ffi::finalize(self.handle) };
    }
}

impl<'c> Statement<'c> {
    /// Prepares the one statement that `sql` is.
    pub fn prepare(connection: &'c Connection, sql: &str) -> Result<Self, Failure> {
        let first = Self::first(connection, sql)?;
        let empty = || Failure { code: 1, message: "there is no statement".to_owned() };
        let (statement, tail) = first.ok_or_else(empty)?;
        if Self::first(connection, tail)?.is_some() {
            return Err(Failure { code: 1, message: "there is more than one statement".to_owned() });
        }
        Ok(statement)
    }

    /// Prepares the first statement of `sql`, and gives what comes after it; `None` where there is none.
    pub fn first<'s>(connection: &'c Connection, sql: &'s str) -> Result<Option<(Self, &'s str)>, Failure> {
        let mut rest = sql;
        while !rest.trim().is_empty() {
            let (handle, tail) = prepare(connection, rest)?;
            if !handle.is_null() {
                return Ok(Some((Self { connection, handle }, tail)));
            }
            rest = tail;
        }
        Ok(None)
    }

    /// Whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: the statement is prepared.
        unsafe { ffi::stmt_readonly(self.handle) != 0 }
    }

    /// Sets all parameters, and makes it ready to run from the start.
    pub fn bind(&mut self, values: &[Value]) -> Result<()> {
        self.try_bind(values).map_err(|failure| failure.on("run a statement on", self.connection.path()))
    }

    /// The same, with what SQLite said.
    pub fn try_bind(&mut self, values: &[Value]) -> Result<(), Failure> {
        // SAFETY: the statement is prepared. What it returns is the failure of the run before, which was reported then.
        unsafe { ffi::reset(self.handle) };
        for (index, value) in (1..).zip(values) {
            if self.bind_one(index, value) != ffi::OK {
                return Err(self.connection.failure());
            }
        }
        Ok(())
    }

    fn bind_one(&mut self, index: c_int, value: &Value) -> c_int {
        let handle = self.handle;
        // SAFETY: the statement is prepared and reset; SQLite copies text and bytes before the call returns. An empty slice
        // has a pointer that is not null, so an empty blob does not become NULL.
        unsafe {
            match value {
                Value::Null => ffi::bind_null(handle, index),
                Value::Integer(value) => ffi::bind_int64(handle, index, *value),
                Value::Real(value) => ffi::bind_double(handle, index, *value),
                Value::Text(text) => ffi::bind_text(handle, index, text.as_ptr().cast(), text.len() as u64),
                Value::Blob(blob) => ffi::bind_blob(handle, index, blob.as_ptr().cast(), blob.len() as u64),
            }
        }
    }

    /// Goes to the next row; whether there is one.
    pub fn step(&mut self) -> Result<bool> {
        self.try_step().map_err(|failure| failure.on("run a statement on", self.connection.path()))
    }

    /// The same, with what SQLite said.
    pub fn try_step(&mut self) -> Result<bool, Failure> {
        // SAFETY: the statement is prepared.
        match unsafe { ffi::step(self.handle) } {
            ffi::ROW => Ok(true),
            ffi::DONE => Ok(false),
            _ => Err(self.connection.failure()),
        }
    }

    /// Sets all parameters and runs it to its end.
    pub fn try_run(&mut self, values: &[Value]) -> Result<(), Failure> {
        self.try_bind(values)?;
        while self.try_step()? {}
        Ok(())
    }

    /// Sets all parameters and gives the first row.
    pub fn first_row(&mut self, values: &[Value]) -> Result<Option<Vec<Value>>> {
        self.bind(values)?;
        let row = if self.step()? { Some(self.values()) } else { None };
        // SAFETY: the statement is prepared. Left in the midst of its rows it would keep its transaction open.
        unsafe { ffi::reset(self.handle) };
        Ok(row)
    }

    /// How many columns its rows have.
    pub fn column_count(&self) -> usize {
        // SAFETY: the statement is prepared.
        usize::try_from(unsafe { ffi::column_count(self.handle) }).unwrap_or_default()
    }

    /// Their names.
    pub fn column_names(&self) -> Vec<String> {
        (0..self.column_count() as c_int).map(|index| self.column_name(index)).collect()
    }

    fn column_name(&self, index: c_int) -> String {
        // SAFETY: the statement is prepared and the index in range; a name is NULL where memory is short.
        unsafe {
            let name = ffi::column_name(self.handle, index);
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
        }
    }

    /// The present row.
    pub fn values(&self) -> Vec<Value> {
        (0..self.column_count()).map(|index| self.value(index)).collect()
    }

    /// One value of the present row.
    pub fn value(&self, index: usize) -> Value {
        let (handle, index) = (self.handle, index as c_int);
        // SAFETY: the statement stands on a row or gives NULL for all; the bytes are copied before another call can move
        // them. Text and blob are asked for before their length, as SQLite demands.
        unsafe {
            match ffi::column_type(handle, index) {
                ffi::INTEGER => Value::Integer(ffi::column_int64(handle, index)),
                ffi::FLOAT => Value::Real(ffi::column_double(handle, index)),
                ffi::TEXT => {
                    let text = ffi::column_text(handle, index);
                    Value::Text(bytes(text, ffi::column_bytes(handle, index)))
                }
                ffi::BLOB => {
                    let blob = ffi::column_blob(handle, index);
                    Value::Blob(bytes(blob, ffi::column_bytes(handle, index)))
                }
                _ => Value::Null,
            }
        }
    }

    /// Copies the bytes at `index` of the present row into `buffer`; how many there are.
    pub(crate) fn copy_blob(&self, index: c_int, buffer: &mut [u8]) -> usize {
        // SAFETY: as in `value`; no more is copied than both sides have.
        unsafe {
            let blob = ffi::column_blob(self.handle, index);
            let length = usize::try_from(ffi::column_bytes(self.handle, index)).unwrap_or_default();
            let copied = if blob.is_null() { 0 } else { length.min(buffer.len()) };
            ptr::copy_nonoverlapping(blob.cast::<u8>(), buffer.as_mut_ptr(), copied);
            copied
        }
    }
}

/// # Safety
/// `pointer` is null or points to `length` bytes.
pub(crate) unsafe fn bytes(pointer: *const c_void, length: c_int) -> Vec<u8> {
    let length = usize::try_from(length).unwrap_or_default();
    if pointer.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) }.to_vec()
}

fn prepare<'s>(connection: &Connection, sql: &'s str) -> Result<(*mut ffi::Stmt, &'s str), Failure> {
    let too_long = |_| Failure { code: 18, message: "the statement is too long".to_owned() };
    let length = c_int::try_from(sql.len()).map_err(too_long)?;
    let (mut handle, mut tail) = (ptr::null_mut(), ptr::null());
    // SAFETY: `sql` has `length` bytes and outlives the call; both places take one pointer.
    let code =
        unsafe { ffi::prepare(connection.handle(), sql.as_ptr().cast(), length, &mut handle, &mut tail) };
    if code != ffi::OK {
        return Err(connection.failure());
    }
    let used = (tail as usize).saturating_sub(sql.as_ptr() as usize);
    // A NUL byte ends a statement for SQLite; what is behind it would never be reached.
    let rest = sql.get(used..).unwrap_or_default().trim_start_matches('\0');
    Ok((handle, rest))
}

/// A name as C has it.
pub(crate) fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::usage(format!("{name:?} has a NUL byte in it")))
}
