//! What the server answers, as errors of ours.

use std::time::Duration;

use sandboxer_core::Error;

use super::location::Server;

/// A lock was waited for in vain.
pub(super) const LOCK_WAIT: u16 = 1205;
/// `NOWAIT` and a lock that is there, on MySQL.
const LOCK_NOWAIT: u16 = 3572;
/// The transaction was chosen to end a deadlock.
pub(super) const DEADLOCK: u16 = 1213;
/// Not in this state of an XA transaction.
pub(super) const XA_STATE: u16 = 1399;
/// No XA transaction of that name.
pub(super) const XA_UNKNOWN: u16 = 1397;
/// `XA_RBROLLBACK`: it was rolled back.
pub(super) const XA_ROLLED_BACK: u16 = 1402;
/// The same, and after a timeout or a deadlock: only rolling back is left.
pub(super) const XA_ROLLBACK_ONLY: [u16; 3] = [XA_ROLLED_BACK, 1613, 1614];
/// The query was empty: a comment for another version of the server.
pub(super) const EMPTY: u16 = 1065;
/// Not supported as a prepared statement.
pub(super) const NOT_PREPARABLE: u16 = 1295;

/// The server's number for an error, if it is one of the server's.
pub(super) fn code(error: &mysql::Error) -> Option<u16> {
    match error {
        mysql::Error::MySqlError(error) => Some(error.code),
        _ => None,
    }
}

/// What to say of an error, without the driver's decoration.
pub(super) fn words(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(error) => format!("{} ({})", error.message, error.code),
        mysql::Error::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Whether the connection is gone, so that its transaction is.
pub(super) fn is_gone(error: &mysql::Error) -> bool {
    // Killed, by an administrator or because the server goes down, also while a statement runs.
    const GONE: [u16; 5] = [1053, 1152, 1927, 2006, 2013];
    match error {
        mysql::Error::MySqlError(error) => GONE.contains(&error.code),
        mysql::Error::IoError(_) | mysql::Error::CodecError(_) => true,
        // A parameter too many, and the like: nothing was sent.
        _ => false,
    }
}

pub(super) fn unreachable(server: &Server, error: &mysql::Error) -> Error {
    Error::Unavailable {
        strategy: "transaction_rollback".to_owned(),
        path: server.path(),
        reason: format!("cannot connect: {}", words(error)),
    }
}

/// The transaction is gone.
pub(super) fn lost(server: &Server, reason: &str) -> Error {
    Error::Unavailable {
        strategy: "transaction_rollback".to_owned(),
        path: server.path(),
        reason: format!(
            "{reason}; what was in it is lost, nothing was committed, and `rollback` begins anew"
        ),
    }
}

/// A statement failed; the transaction is as it was.
pub(super) fn failed(server: &Server, what: &str, error: &mysql::Error, waited: Duration) -> Error {
    match code(error) {
        Some(LOCK_WAIT | LOCK_NOWAIT) => Error::Busy {
            path: server.path(),
            holder: Some(format!("{what} waited {} s for a lock of another transaction", waited.as_secs())),
        },
        Some(XA_STATE) => Error::Refused {
            reason: format!("{what}: {}", super::statements::ddl(None)),
            hint: Some(
                "change the schema outside of the sandbox, or try it on a copy of the database".to_owned(),
            ),
        },
        _ => Error::usage(format!("{what}: {}", words(error))),
    }
}
