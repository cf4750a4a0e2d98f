//! SQLite as sandboxer needs it: clones of live databases, differences by page, changesets.
//!
//! This is a copy of SQLite of its own, all of it static but what this crate calls, so a binary may link another. One process
//! must not open one file through both: closing it in one drops the locks of the other.

mod access;
mod apply;
mod backup;
mod btree;
mod clone;
mod confined;
mod connection;
mod difference;
mod ffi;
mod pages;
mod schema;
mod session;
mod statement;
mod value;

pub use access::{After, execute_script, key_texts, put, query, row_at, rows_of};
pub use apply::{Applied, Conflict, Policy, apply, apply_difference, check, check_difference};
pub use backup::copy_content;
pub use clone::{Way, clone, clone_confined, companions};
pub use connection::{Connection, Failure, Mode, TransactionState, version};
pub use difference::{
    Changes, Difference, KeyedChange, LooseChange, SchemaChange, TableDifference, compare_whole, difference,
    exact_difference, naive_difference,
};
pub use schema::{
    Object, Table, TableKind, key_condition, objects, quoted, schema_text, table_named, tables,
};
pub use session::{Changeset, RecordedChange, Recorder, session_diff};
pub use statement::Statement;
pub use value::{Value, to_row};
