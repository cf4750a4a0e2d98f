//! PostgreSQL: one backend session in one transaction, which programs reach through the wire protocol.
//!
//! [`client`] speaks to the server. [`held`] keeps the transaction, [`guard`] lets the server itself refuse to commit it.
//! [`proxy`] gives clients what looks like a server: their transactions are savepoints of the one that is held.

pub mod client;
pub mod ddl;
mod ddl_text;
pub mod diff;
pub mod rows;
pub mod schema;
mod schema_sql;
pub mod target;
pub mod values;
pub mod wire;
