//! The C side, as `c/sqlite.c` exports it. What each function does is SQLite's documentation of the name after the prefix.

#![allow(missing_docs, reason = "a list of foreign functions; SQLite documents them")]

use std::ffi::{c_char, c_double, c_int, c_longlong, c_uchar, c_ulonglong, c_void};

macro_rules! handles {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub struct $name { _private: [u8; 0] }
    )* };
}

handles!(Db, Stmt, Backup, Session, ChangesetIter, Value);

pub const OK: c_int = 0;
pub const ROW: c_int = 100;
pub const DONE: c_int = 101;
pub const BUSY: c_int = 5;
pub const LOCKED: c_int = 6;
pub const READONLY: c_int = 8;
pub const CORRUPT: c_int = 11;
pub const CONSTRAINT: c_int = 19;
pub const NOTADB: c_int = 26;

pub const OPEN_READONLY: c_int = 0x1;
pub const OPEN_READWRITE: c_int = 0x2;
pub const OPEN_CREATE: c_int = 0x4;
pub const OPEN_NOFOLLOW: c_int = 0x0100_0000;
pub const OPEN_EXRESCODE: c_int = 0x0200_0000;

pub const INTEGER: c_int = 1;
pub const FLOAT: c_int = 2;
pub const TEXT: c_int = 3;
pub const BLOB: c_int = 4;

pub const OP_DELETE: c_int = 9;
pub const OP_INSERT: c_int = 18;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" { $(
            #[link_name = $symbol]
            pub fn $name($($arg: $type),*) $(-> $result)?;
        )* }
    };
}

functions! {
    libversion = "sandboxer_sqlite3_libversion"() -> *const c_char;
    open = "sandboxer_sqlite3_open"(path: *const c_char, db: *mut *mut Db, flags: c_int) -> c_int;
    close = "sandboxer_sqlite3_close"(db: *mut Db) -> c_int;
    errmsg = "sandboxer_sqlite3_errmsg"(db: *mut Db) -> *const c_char;
    errstr = "sandboxer_sqlite3_errstr"(code: c_int) -> *const c_char;
    extended_errcode = "sandboxer_sqlite3_extended_errcode"(db: *mut Db) -> c_int;
    busy_timeout = "sandboxer_sqlite3_busy_timeout"(db: *mut Db, ms: c_int) -> c_int;
    get_autocommit = "sandboxer_sqlite3_get_autocommit"(db: *mut Db) -> c_int;
    txn_state = "sandboxer_sqlite3_txn_state"(db: *mut Db) -> c_int;
    db_readonly = "sandboxer_sqlite3_db_readonly"(db: *mut Db) -> c_int;
    changes = "sandboxer_sqlite3_changes"(db: *mut Db) -> c_longlong;
    total_changes = "sandboxer_sqlite3_total_changes"(db: *mut Db) -> c_longlong;
    enable_triggers = "sandboxer_sqlite3_enable_triggers"(db: *mut Db, on: c_int) -> c_int;
    defend = "sandboxer_sqlite3_defend"(db: *mut Db) -> c_int;
    guard = "sandboxer_sqlite3_guard"(db: *mut Db, on: c_int) -> c_int;
    prepare = "sandboxer_sqlite3_prepare"(db: *mut Db, sql: *const c_char, length: c_int, stmt: *mut *mut Stmt, tail: *mut *const c_char) -> c_int;
    step = "sandboxer_sqlite3_step"(stmt: *mut Stmt) -> c_int;
    reset = "sandboxer_sqlite3_reset"(stmt: *mut Stmt) -> c_int;
    finalize = "sandboxer_sqlite3_finalize"(stmt: *mut Stmt) -> c_int;
    stmt_readonly = "sandboxer_sqlite3_stmt_readonly"(stmt: *mut Stmt) -> c_int;
    bind_null = "sandboxer_sqlite3_bind_null"(stmt: *mut Stmt, index: c_int) -> c_int;
    bind_int64 = "sandboxer_sqlite3_bind_int64"(stmt: *mut Stmt, index: c_int, value: c_longlong) -> c_int;
    bind_double = "sandboxer_sqlite3_bind_double"(stmt: *mut Stmt, index: c_int, value: c_double) -> c_int;
    bind_text = "sandboxer_sqlite3_bind_text"(stmt: *mut Stmt, index: c_int, text: *const c_char, length: c_ulonglong) -> c_int;
    bind_blob = "sandboxer_sqlite3_bind_blob"(stmt: *mut Stmt, index: c_int, blob: *const c_void, length: c_ulonglong) -> c_int;
    column_count = "sandboxer_sqlite3_column_count"(stmt: *mut Stmt) -> c_int;
    column_name = "sandboxer_sqlite3_column_name"(stmt: *mut Stmt, index: c_int) -> *const c_char;
    column_type = "sandboxer_sqlite3_column_type"(stmt: *mut Stmt, index: c_int) -> c_int;
    column_int64 = "sandboxer_sqlite3_column_int64"(stmt: *mut Stmt, index: c_int) -> c_longlong;
    column_double = "sandboxer_sqlite3_column_double"(stmt: *mut Stmt, index: c_int) -> c_double;
    column_text = "sandboxer_sqlite3_column_text"(stmt: *mut Stmt, index: c_int) -> *const c_void;
    column_blob = "sandboxer_sqlite3_column_blob"(stmt: *mut Stmt, index: c_int) -> *const c_void;
    column_bytes = "sandboxer_sqlite3_column_bytes"(stmt: *mut Stmt, index: c_int) -> c_int;
    backup_init = "sandboxer_sqlite3_backup_init"(to: *mut Db, from: *mut Db) -> *mut Backup;
    backup_step = "sandboxer_sqlite3_backup_step"(backup: *mut Backup, pages: c_int) -> c_int;
    backup_finish = "sandboxer_sqlite3_backup_finish"(backup: *mut Backup) -> c_int;
    session_create = "sandboxer_sqlite3_session_create"(db: *mut Db, session: *mut *mut Session) -> c_int;
    session_delete = "sandboxer_sqlite3_session_delete"(session: *mut Session);
    session_attach = "sandboxer_sqlite3_session_attach"(session: *mut Session, table: *const c_char) -> c_int;
    session_isempty = "sandboxer_sqlite3_session_isempty"(session: *mut Session) -> c_int;
    session_changeset = "sandboxer_sqlite3_session_changeset"(session: *mut Session, size: *mut c_int, bytes: *mut *mut c_void) -> c_int;
    session_diff = "sandboxer_sqlite3_session_diff"(session: *mut Session, from: *const c_char, table: *const c_char) -> c_int;
    changeset_start = "sandboxer_sqlite3_changeset_start"(iter: *mut *mut ChangesetIter, size: c_int, bytes: *const c_void) -> c_int;
    changeset_next = "sandboxer_sqlite3_changeset_next"(iter: *mut ChangesetIter) -> c_int;
    changeset_op = "sandboxer_sqlite3_changeset_op"(iter: *mut ChangesetIter, table: *mut *const c_char, columns: *mut c_int, op: *mut c_int) -> c_int;
    changeset_pk = "sandboxer_sqlite3_changeset_pk"(iter: *mut ChangesetIter, pk: *mut *mut c_uchar, columns: *mut c_int) -> c_int;
    changeset_old = "sandboxer_sqlite3_changeset_old"(iter: *mut ChangesetIter, column: c_int, value: *mut *mut Value) -> c_int;
    changeset_new = "sandboxer_sqlite3_changeset_new"(iter: *mut ChangesetIter, column: c_int, value: *mut *mut Value) -> c_int;
    changeset_finalize = "sandboxer_sqlite3_changeset_finalize"(iter: *mut ChangesetIter) -> c_int;
    free = "sandboxer_sqlite3_free"(pointer: *mut c_void);
    value_type = "sandboxer_sqlite3_value_type"(value: *mut Value) -> c_int;
    value_int64 = "sandboxer_sqlite3_value_int64"(value: *mut Value) -> c_longlong;
    value_double = "sandboxer_sqlite3_value_double"(value: *mut Value) -> c_double;
    value_text = "sandboxer_sqlite3_value_text"(value: *mut Value) -> *const c_void;
    value_blob = "sandboxer_sqlite3_value_blob"(value: *mut Value) -> *const c_void;
    value_bytes = "sandboxer_sqlite3_value_bytes"(value: *mut Value) -> c_int;
    descriptor = "sandboxer_sqlite3_descriptor"(db: *mut Db) -> c_int;
    reads_file = "sandboxer_sqlite3_reads_file"(db: *mut Db) -> c_int;
}
