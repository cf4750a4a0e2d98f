//! What became of a transaction, as the server tells, and the last word on one that is prepared; for whoever comes after a crash.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::Connection;
use super::target::Target;
use super::values::literal;
use crate::engine::{Outcome, Prepared, Setup};

/// How long a session that lost its keeper is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a commit is noted before it is asked for.
pub const JOURNAL: &str = "commit.json";

/// What identifies a transaction for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The caller's name for the commit.
    pub operation: String,
    /// The number of the transaction.
    pub xid: u64,
    /// What it is prepared as, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<String>,
}

impl Token {
    /// Of something that was prepared, or will be committed at the decision.
    pub fn of(prepared: &Prepared) -> Result<Self> {
        let (Prepared::Durable(token) | Prepared::AtDecision { token, .. }) = prepared;
        serde_json::from_value(token.clone())
            .map_err(|_| Error::usage("the token is not one of PostgreSQL's"))
    }

    /// As the engine hands it out.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Notes it durably: after a crash the server is asked for this transaction.
    pub fn note(&self, dir: &Path) -> Result<()> {
        let (path, fresh) = (dir.join(JOURNAL), dir.join("commit.json.new"));
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(self.to_value().to_string().as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|error| Error::io("write", &path, error))
    }

    /// The one that was noted last in a directory, if any.
    pub fn noted(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(JOURNAL)).ok()?).ok()
    }
}

/// Settles what was prepared, or tells what became of it. `commit` is the decision: `None` asks only, `Some(true)` makes it real,
/// `Some(false)` undoes it. Idempotent. What can only be committed by the session that holds it is [`Outcome::Waiting`] while
/// that session lives.
pub fn settle(setup: &Setup, prepared: &Prepared, commit: Option<bool>) -> Result<Outcome> {
    let target = Target::parse(&setup.location, &setup.user)?;
    let mut connection = Connection::connect(&target, setup.password.as_deref())?;
    settle_on(&mut connection, &Token::of(prepared)?, commit)
}

/// What became of a plain commit that was interrupted: of the one that is noted in the directory, if it is of that operation.
pub fn committed(setup: &Setup, operation: &str) -> Result<Outcome> {
    let Some(token) = Token::noted(&setup.dir).filter(|token| token.operation == operation) else {
        return Ok(Outcome::Aborted);
    };
    let target = Target::parse(&setup.location, &setup.user)?;
    let mut connection = Connection::connect(&target, setup.password.as_deref())?;
    settle_on(&mut connection, &token, None)
}

/// The same on a connection that is there.
pub fn settle_on(connection: &mut Connection, token: &Token, commit: Option<bool>) -> Result<Outcome> {
    if let Some(gid) = &token.gid
        && is_prepared(connection, gid)?
    {
        let verb = match commit {
            None => return Ok(Outcome::Waiting),
            Some(true) => "COMMIT",
            Some(false) => "ROLLBACK",
        };
        match connection.query(&format!("{verb} PREPARED {}", literal(gid))) {
            Ok(_) => {}
            // Somebody else was faster; the number tells how it went.
            Err(failure) if failure.code() == Some("42704") => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    if commit == Some(false) {
        end_session(connection, token.xid)?;
    }
    outcome(connection, token.xid)
}

fn is_prepared(connection: &mut Connection, gid: &str) -> Result<bool> {
    let sql = format!(
        "SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid = {} AND database = current_database()",
        literal(gid)
    );
    Ok(connection.query(&sql)?.single().is_some())
}

/// Asked until it is decided, as a session whose client died takes a moment to go.
fn outcome(connection: &mut Connection, xid: u64) -> Result<Outcome> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = connection.query(&format!("SELECT pg_catalog.txid_status({xid})"))?;
        match answer.single() {
            Some("committed") => return Ok(Outcome::Committed),
            Some("aborted") => return Ok(Outcome::Aborted),
            Some(_) if Instant::now() > end => return Ok(Outcome::Waiting),
            Some(_) => std::thread::sleep(Duration::from_millis(20)),
            None => {
                return Err(Error::Database {
                    database: connection.target().to_string(),
                    message: format!(
                        "transaction {xid} is so old that the server no longer knows what became of it; look for its rows"
                    ),
                    code: None,
                });
            }
        }
    }
}

/// Ends the session that has a transaction, if there is one.
fn end_session(connection: &mut Connection, xid: u64) -> Result<()> {
    connection.query(&format!(
        "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE backend_xid = '{}'::xid",
        xid & 0xffff_ffff
    ))?;
    Ok(())
}
