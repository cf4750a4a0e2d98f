//! The transaction that is held: one connection between `XA START` and its end.
//!
//! It reads what is committed (READ COMMITTED). So a row that it has not written is the same inside and outside, and a row that it has written is locked, and
//! outside stays what it was: whatever differs is the sandbox's. A read view that is kept (REPEATABLE READ) would need a base of the very same
//! instant, would hold back the server's purge, and would lock the gaps between rows against production.

use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::{Error, Result};
use ulid::Ulid;

use super::errors;
use super::location::Server;
use super::statements::OWN;
use crate::engine::Setup;

/// The longest that a server keeps an idle connection for: a year.
const IDLE: u32 = 31_536_000;

/// The name of an XA transaction; both parts need no quoting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Xid {
    pub(super) global: String,
    pub(super) branch: String,
}

impl Xid {
    /// One that nobody had before, of at most 64 bytes each.
    fn new(workspace: &str) -> Self {
        let name: String =
            workspace.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
        Self { global: format!("sandboxer_{name}"), branch: Ulid::generate().to_string() }
    }

    pub(super) fn sql(&self) -> String {
        format!("'{}','{}'", self.global, self.branch)
    }
}

/// What the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flavour {
    pub(super) mariadb: bool,
    pub(super) version: (u16, u16, u16),
}

impl Flavour {
    pub(super) fn of(text: &str) -> Self {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let mut number = || numbers.next().unwrap_or(0);
        let version = (number(), number(), number());
        Self { mariadb: text.to_lowercase().contains("mariadb"), version }
    }

    /// Whether what is prepared outlives the connection that prepared it.
    pub(super) fn keeps_prepared(&self) -> bool {
        if self.mariadb { self.version >= (10, 5, 0) } else { self.version >= (5, 7, 7) }
    }
}

pub(super) struct Held {
    pub(super) server: Server,
    pub(super) flavour: Flavour,
    pub(super) xid: Xid,
    workspace: String,
    lock_timeout: Duration,
    /// How many bytes the server takes at once. It hangs up on those who send more.
    longest: usize,
    /// Whether the user may see the triggers of the database; they are hidden from others.
    sees_triggers: bool,
    conn: Option<Conn>,
    outside: Option<Conn>,
    lost: Option<String>,
}

impl Held {
    pub(super) fn begin(setup: &Setup) -> Result<Self> {
        let server = Server::of(setup)?;
        let mut held = Self {
            server,
            flavour: Flavour::of(""),
            xid: Xid::new(&setup.workspace),
            workspace: setup.workspace.clone(),
            lock_timeout: setup.options.lock_timeout,
            longest: 0,
            sees_triggers: true,
            conn: None,
            outside: None,
            lost: None,
        };
        held.begin_anew()?;
        Ok(held)
    }

    /// Ends what there is, if anything, and begins on a new connection.
    pub(super) fn begin_anew(&mut self) -> Result<()> {
        self.end();
        let mut conn = self.server.connect()?;
        let xid = Xid::new(&self.workspace);
        let flavour = set_up(&mut conn, self.lock_timeout, &xid);
        self.flavour = flavour.map_err(|error| self.failed("beginning the transaction", &error))?;
        self.must_log_rows(&mut conn)?;
        let longest = conn.query_first("SELECT @@max_allowed_packet");
        self.longest =
            longest.map_err(|error| self.failed("beginning the transaction", &error))?.unwrap_or(0);
        self.sees_triggers = sees_triggers(&mut conn, &self.server.location.database);
        (self.conn, self.xid, self.lost) = (Some(conn), xid, None);
        Ok(())
    }

    /// A server that logs statements cannot log those of this isolation level.
    fn must_log_rows(&self, conn: &mut Conn) -> Result<()> {
        let log = conn.query_first::<(bool, String), _>("SELECT @@log_bin, @@binlog_format");
        let logs_statements = matches!(log, Ok(Some((true, format))) if format == "STATEMENT");
        if !logs_statements {
            return Ok(());
        }
        Err(Error::Unavailable {
            strategy: "transaction_rollback".to_owned(),
            path: self.server.path(),
            reason: "the server logs statements; set binlog_format to MIXED or ROW".to_owned(),
        })
    }

    /// Rolls back. What cannot be said to the server, it does by itself once the connection is closed.
    pub(super) fn end(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            let _ = conn.query_drop(format!("XA END {}", self.xid.sql()));
            let _ = conn.query_drop(format!("XA ROLLBACK {}", self.xid.sql()));
        }
        self.lost.get_or_insert_with(|| "the transaction was ended".to_owned());
    }

    /// Forgets the connection: what is on it belongs to somebody else now.
    pub(super) fn let_go(&mut self, reason: &str) -> Option<Conn> {
        self.lost = Some(reason.to_owned());
        self.conn.take()
    }

    pub(super) fn lose(&mut self, reason: &str) {
        self.lost = Some(reason.to_owned());
        self.end();
    }

    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Does something on the held connection. What its failing means for the transaction is seen here.
    pub(super) fn run<T>(
        &mut self,
        what: &str,
        action: impl FnOnce(&mut Conn) -> mysql::Result<T>,
    ) -> Result<T> {
        let lost = self.lost.clone();
        let conn = match (&mut self.conn, lost) {
            (Some(conn), None) => conn,
            (_, reason) => return Err(errors::lost(&self.server, &reason.unwrap_or_default())),
        };
        action(conn).map_err(|error| self.examined(what, &error))
    }

    fn examined(&mut self, what: &str, error: &mysql::Error) -> Error {
        let code = errors::code(error);
        let reason = if errors::is_gone(error) {
            format!("the connection to the server broke ({})", errors::words(error))
        } else if code == Some(errors::DEADLOCK) {
            format!("{what} met a deadlock with another transaction, and the server rolled this one back")
        } else if code.is_some_and(|code| errors::XA_ROLLBACK_ONLY.contains(&code)) {
            format!("the server rolled the transaction back ({})", errors::words(error))
        } else {
            return self.failed(what, error);
        };
        self.lose(&reason);
        errors::lost(&self.server, &reason)
    }

    pub(super) fn failed(&self, what: &str, error: &mysql::Error) -> Error {
        errors::failed(&self.server, what, error, self.lock_timeout)
    }

    pub(super) fn say(&mut self, what: &str, sql: &str) -> Result<()> {
        self.run(what, |conn| conn.query_drop(sql))
    }

    /// Does something as a whole: an error takes back all of it. If it is not to be kept, nothing of it stays in any case.
    pub(super) fn unit<T>(&mut self, keep: bool, action: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.say("setting a savepoint", &format!("SAVEPOINT {OWN}unit"))?;
        let result = action(self);
        if self.lost.is_some() {
            return result;
        }
        if result.is_err() || !keep {
            self.close_unit("ROLLBACK TO")?;
        }
        // Savepoints end with their transaction, so this tells that it is still the same.
        self.close_unit("RELEASE")?;
        result
    }

    fn close_unit(&mut self, verb: &str) -> Result<()> {
        let ended = self.run("leaving a savepoint", |conn| {
            match conn.query_drop(format!("{verb} SAVEPOINT {OWN}unit")) {
                Err(mysql::Error::MySqlError(error)) => Ok(Some(error.message)),
                other => other.map(|()| None),
            }
        })?;
        let Some(message) = ended else { return Ok(()) };
        let reason = format!("the server ended the transaction by itself ({message})");
        self.lose(&reason);
        Err(errors::lost(&self.server, &reason))
    }

    /// A connection that sees what everybody else sees.
    pub(super) fn outside(&mut self) -> Result<&mut Conn> {
        if self.outside.as_mut().is_none_or(|conn| conn.ping().is_err()) {
            let mut conn = self.server.connect()?;
            set_up_reader(&mut conn).map_err(|error| self.failed("looking from outside", &error))?;
            self.outside = Some(conn);
        }
        self.outside.as_mut().ok_or_else(|| errors::lost(&self.server, "there is no connection"))
    }

    /// What its user should know of what cannot be made sure.
    pub(super) fn notices(&self) -> Vec<String> {
        let blind = "its user lacks the TRIGGER privilege: triggers that write to tables without transactions (MyISAM, Aria) cannot be seen, and what they write is real at once";
        if self.sees_triggers { Vec::new() } else { vec![blind.to_owned()] }
    }

    /// Refuses what is too long to be sent.
    pub(super) fn must_fit(&self, what: &str, bytes: usize) -> Result<()> {
        // A little is added to it on the way.
        if bytes.saturating_add(1024) < self.longest {
            return Ok(());
        }
        Err(Error::Usage {
            message: format!("{what} has {bytes} bytes, and the server takes {} at once", self.longest),
            hint: Some("cut it into several, or set max_allowed_packet higher on the server".to_owned()),
        })
    }

    /// The number that the server knows the held connection by.
    pub(super) fn connection_id(&self) -> Option<u32> {
        self.conn.as_ref().map(Conn::connection_id)
    }
}

/// By a privilege on everything, or on the whole database.
fn sees_triggers(conn: &mut Conn, database: &str) -> bool {
    let grants: Vec<String> = conn.query("SHOW GRANTS").unwrap_or_default();
    let scopes = [
        "ON *.*".to_owned(),
        format!("ON `{database}`.*"),
        format!("ON `{}`.*", database.replace('_', "\\_")),
    ];
    let tells = |grant: &String| grant.contains("ALL PRIVILEGES") || grant.contains("TRIGGER");
    grants.iter().any(|grant| tells(grant) && scopes.iter().any(|scope| grant.contains(scope)))
}

/// Both connections must show values alike.
fn set_up_reader(conn: &mut Conn) -> mysql::Result<()> {
    conn.query_drop("SET NAMES utf8mb4")?;
    conn.query_drop(format!("SET SESSION wait_timeout = {IDLE}"))?;
    conn.query_drop("SET SESSION autocommit = 1")?;
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
}

fn set_up(conn: &mut Conn, lock_timeout: Duration, xid: &Xid) -> mysql::Result<Flavour> {
    set_up_reader(conn)?;
    let seconds = lock_timeout.as_secs().max(1);
    conn.query_drop(format!(
        "SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"
    ))?;
    // Only some servers have these: they would end a transaction that rests.
    for name in
        ["idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"]
    {
        let _ = conn.query_drop(format!("SET SESSION {name} = 0"));
    }
    let version: Option<String> = conn.query_first("SELECT VERSION()")?;
    conn.query_drop(format!("XA START {}", xid.sql()))?;
    Ok(Flavour::of(&version.unwrap_or_default()))
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_tells_whether_prepared_work_is_kept() {
        for (text, keeps) in [
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("10.4.30-MariaDB", false),
            ("5.5.5-10.4.1-MariaDB", false),
            ("8.0.36", true),
            ("5.7.6-log", false),
        ] {
            assert_eq!(Flavour::of(text).keeps_prepared(), keeps, "{text}");
        }
    }

    #[test]
    fn a_name_of_a_transaction_fits_and_needs_no_quotes() {
        let xid = Xid::new(&"w'_9".repeat(40));
        assert!(xid.global.len() <= 64 && xid.branch.len() <= 64);
        assert!(!xid.global.contains('\''));
        assert_ne!(Xid::new("w"), Xid::new("w"));
    }
}
