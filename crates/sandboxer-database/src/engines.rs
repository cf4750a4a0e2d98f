//! Which engine is for what.

use sandboxer_core::{Error, Result};

use crate::credentials::Account;
use crate::engine::{Engine, Outcome, Prepared, Setup};
use crate::{mysql, postgres, sqlite};

/// The resource types that transactions can be held of.
pub(crate) const KINDS: [&str; 3] = ["mysql", "postgres", "sqlite"];

/// Opens what `setup` says, and begins a transaction in it.
pub(crate) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    match setup.kind.as_str() {
        "mysql" => mysql::open(setup),
        "postgres" => postgres::open(setup),
        "sqlite" => sqlite::open(setup),
        other => Err(no_engine(other)),
    }
}

/// Asks the database itself what became of something that was prepared, and with a `decision` sees to it.
pub(crate) fn settle(setup: &Setup, prepared: &Prepared, decision: Option<bool>) -> Result<Outcome> {
    match setup.kind.as_str() {
        "mysql" => mysql::settle(setup, prepared, decision),
        "postgres" => postgres::settle(setup, prepared, decision),
        "sqlite" => sqlite::settle(setup, prepared, decision),
        other => Err(no_engine(other)),
    }
}

/// Whose password is needed; `None` where none is.
pub(crate) fn account(kind: &str, location: &str, user: &str) -> Result<Option<Account>> {
    match kind {
        "mysql" => mysql::account(location, user).map(Some),
        "postgres" => postgres::account(location, user).map(Some),
        _ => Ok(None),
    }
}

fn no_engine(kind: &str) -> Error {
    Error::Unsupported {
        strategy: "transaction_rollback".to_owned(),
        what: "hold a transaction",
        reason: format!("{kind} has no transactions that are known here; it is for {}", KINDS.join(", ")),
    }
}
