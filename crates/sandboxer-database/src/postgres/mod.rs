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
pub mod rows;
pub mod schema;
mod schema_sql;
pub mod settle;
pub mod statement;
pub mod target;
pub mod values;
pub mod watchdog;
pub mod wire;

pub use engine::open;
pub use settle::settle;

/// Whose password is needed.
pub fn account(location: &str, user: &str) -> sandboxer_core::Result<crate::credentials::Account> {
    let target = target::Target::parse(location, user)?;
    let host = match &target.host {
        target::Host::Tcp(name) => name.clone(),
        target::Host::Socket(_) => "localhost".to_owned(),
    };
    Ok(crate::credentials::Account { kind: "postgres".to_owned(), host, port: target.port, database: target.database, user: target.user })
}
