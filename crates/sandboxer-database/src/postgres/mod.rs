//! PostgreSQL: one backend session in one transaction, which programs reach through the wire protocol.
//!
//! [`client`] speaks to the server. [`held`] keeps the transaction, [`guard`] lets the server itself refuse to commit it.
//! [`proxy`] gives clients what looks like a server: their transactions are savepoints of the one that is held.

pub mod checkpoints;
pub mod client;
pub mod ddl;
mod ddl_text;
pub mod diff;
pub mod engine;
mod engine_commit;
mod engine_preflight;
mod engine_script;
pub mod guard;
pub mod held;
pub mod lexer;
pub mod proxy;
pub mod rows;
pub mod schema;
mod schema_sql;
pub mod settle;
pub mod statement;
pub mod target;
mod unshown;
pub mod values;
pub mod watchdog;
pub mod wire;

use sandboxer_core::Result;

pub use engine::open;
pub use settle::settle;

use crate::credentials::Account;
use target::{Host, Target};

/// Whose password is needed at `location`; `user` is whom to be where it does not say.
pub fn account(location: &str, user: &str) -> Result<Account> {
    let Target { host, port, user, database } = Target::parse(location, user)?;
    // What libpq calls a socket in its file of passwords.
    let host = match host {
        Host::Tcp(name) => name,
        Host::Socket(_) => "localhost".to_owned(),
    };
    Ok(Account { kind: "postgres".to_owned(), host, port, database, user })
}
