//! Databases as resources: work in a transaction that nobody commits by accident, or in a clone.
//!
//! An [`Engine`](engine::Engine) holds one transaction of one database (`postgres`, `mysql`, `sqlite`) or one clone. What is held
//! has to outlive the command that began it, so an engine lives in a process of its own, the [`keeper`], which answers one
//! request after the other. The strategy [`transaction`] speaks to keepers; the strategy [`snapshot`] needs none.

pub mod credentials;
pub mod engine;
mod engines;
mod keeper;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(not(feature = "mysql"))]
#[path = "mysql_left_out.rs"]
mod mysql;
mod paths;
pub mod postgres;
pub mod snapshot;
pub mod sqlite;
pub mod transaction;
mod view;

pub use keeper::serve_if_asked;
