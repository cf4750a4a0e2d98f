//! SQLite: one connection in this process that holds `BEGIN IMMEDIATE`, and records what it changes.
//!
//! No other process can join it. While it is held, other writers to the file are told that it is locked; readers go on, and see what was there before.

mod changes;
mod held;
mod outcome;
mod rows;
mod statements;
mod transaction;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

use sandboxer_core::Result;

pub use outcome::settle;

use crate::engine::{Engine, Setup};

/// Opens the file, and begins a transaction that is held until the engine is closed or dropped.
pub fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    Ok(Box::new(transaction::Transaction::open(setup)?))
}
