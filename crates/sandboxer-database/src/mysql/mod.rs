//! MariaDB and MySQL: one connection that is held in an XA transaction.
//!
//! Never `BEGIN`: a dozen kinds of statements commit what was begun that way, without a word. In an XA transaction the server refuses each of them. Savepoints inside are
//! what units of work and checkpoints are made of, and `XA PREPARE` makes the work ready to become real whatever happens.

mod changes;
mod errors;
mod execution;
mod guard;
mod held;
mod lexer;
mod location;
mod rows;
mod schema;
mod statements;
mod tables;
mod touched;
mod transaction;
mod two_phase;
mod values;
mod watch;

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;

use sandboxer_core::Result;

pub use two_phase::settle;

use crate::credentials::Account;
use crate::engine::{Engine, Setup};

/// Whose password is needed at `location`; `user` is whom to be where it does not say.
pub fn account(location: &str, user: &str) -> Result<Account> {
    let found = location::parse(location)?;
    Ok(Account {
        kind: "mysql".to_owned(),
        host: found.host,
        port: found.port,
        database: found.database,
        user: found.user.unwrap_or_else(|| user.to_owned()),
    })
}

/// Connects, and begins a transaction that is held until the engine is closed or dropped.
pub fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    Ok(Box::new(transaction::Transaction::open(setup)?))
}
