//! Making real what was prepared, by this process or by another one after a crash.
//!
//! The server forgets an XA transaction once it is committed or rolled back, so that "unknown" says neither. Hence the word is written down before it is given to the server:
//! a transaction that is unknown and has a word on record became what the word says, one without was never prepared or rolled back by an administrator.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::{Error, Result};
use serde_json::{Value, json};

use super::errors;
use super::held::Xid;
use super::location::Server;
use crate::engine::{Outcome, Prepared, Setup};

/// How long the server may take to notice that the connection that prepared is closed; until then nobody else can settle it.
const DETACH: Duration = Duration::from_secs(10);
/// While it notices, the transaction is in nobody's hands, and for an instant not on the list either: one that is not seen is looked for
/// this often, this long apart, before it counts as settled.
const LOOKS: (usize, Duration) = (25, Duration::from_millis(20));

impl Xid {
    pub(super) fn token(&self) -> Value {
        json!({ "global": self.global, "branch": self.branch })
    }

    pub(super) fn of(prepared: &Prepared) -> Result<Self> {
        let (Prepared::Durable(token) | Prepared::AtDecision { token, .. }) = prepared;
        let part = |name: &str| token.get(name).and_then(Value::as_str).map(str::to_owned);
        let fit = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (part("global").filter(fit), part("branch").filter(fit)) {
            (Some(global), Some(branch)) => Ok(Self { global, branch }),
            _ => Err(Error::usage(format!("{token} names no XA transaction"))),
        }
    }
}

/// What was decided, as it is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Commit,
    RollBack,
    /// Committed without having been prepared: begun, and not known to be done.
    Trying,
}

impl Word {
    fn verb(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::RollBack => "ROLLBACK",
            Self::Trying => "TRYING",
        }
    }

    fn outcome(self) -> Result<Outcome> {
        match self {
            Self::Commit => Ok(Outcome::Committed),
            Self::RollBack => Ok(Outcome::Aborted),
            Self::Trying => Err(Error::Usage {
                message:
                    "it broke off in the middle of a commit, and this server cannot tell what became of it"
                        .to_owned(),
                hint: Some(
                    "look at the database itself, then `sandbox destroy --force ID`; use a server that keeps prepared transactions"
                        .to_owned(),
                ),
            }),
        }
    }
}

fn record(dir: &Path, xid: &Xid) -> PathBuf {
    dir.join(format!("xa-{}", xid.branch))
}

pub(super) fn write_down(dir: &Path, xid: &Xid, word: Word) -> Result<()> {
    let path = record(dir, xid);
    let temporary = path.with_extension("new");
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(word.verb().as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| File::open(dir)?.sync_all());
    written.map_err(|error| Error::io("record the decision in", &path, error))
}

pub(super) fn on_record(dir: &Path, xid: &Xid) -> Result<Option<Word>> {
    let path = record(dir, xid);
    match fs::read_to_string(&path) {
        Ok(text) if text == "COMMIT" => Ok(Some(Word::Commit)),
        Ok(text) if text == "ROLLBACK" => Ok(Some(Word::RollBack)),
        Ok(text) if text == "TRYING" => Ok(Some(Word::Trying)),
        Ok(_) => Err(Error::corrupt(path, "it says nothing that is known")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// Settles what somebody prepared who is no more: commits it, rolls it back, or (`None`) only looks.
///
/// Idempotent: what was settled before stays what it became, and asking for the opposite is an error.
pub fn settle(setup: &Setup, prepared: &Prepared, commit: Option<bool>) -> Result<Outcome> {
    let server = Server::of(setup)?;
    let xid = Xid::of(prepared)?;
    let mut conn = server.connect()?;
    let waiting = is_waiting(&server, &mut conn, &xid)?;
    let word = commit.map(|commit| if commit { Word::Commit } else { Word::RollBack });
    match (waiting, word, on_record(&setup.dir, &xid)?) {
        (true, None, _) => Ok(Outcome::Waiting),
        (true, Some(word), _) => give(&server, &mut conn, &setup.dir, &xid, word),
        (false, None, recorded) => recorded.map_or(Ok(Outcome::Aborted), Word::outcome),
        (false, Some(_), Some(Word::Trying)) => Word::Trying.outcome(),
        (false, Some(word), Some(recorded)) if word == recorded => word.outcome(),
        (false, Some(Word::RollBack), None) => Ok(Outcome::Aborted),
        // Decided, and not there: nobody but us commits, but nobody but an administrator removes it either. Whoever finished it had no time to
        // tell us; if nobody did, this does.
        (false, Some(word @ Word::Commit), None) if matches!(prepared, Prepared::Durable(_)) => {
            give(&server, &mut conn, &setup.dir, &xid, word)
        }
        (false, Some(_), recorded) => Err(Error::usage(format!(
            "the transaction {} was settled otherwise before: {recorded:?}",
            xid.sql()
        ))),
    }
}

/// Gives the word to the server, from whichever connection is allowed to.
pub(super) fn give(server: &Server, conn: &mut Conn, dir: &Path, xid: &Xid, word: Word) -> Result<Outcome> {
    match write_down(dir, xid, word) {
        // Of what is rolled back no word is needed, as long as there is no other.
        Err(_) if word == Word::RollBack && on_record(dir, xid)?.is_none() => {}
        written => written?,
    }
    let deadline = Instant::now() + DETACH;
    loop {
        let Err(error) = conn.query_drop(format!("XA {} {}", word.verb(), xid.sql())) else {
            return word.outcome();
        };
        match errors::code(&error) {
            Some(errors::XA_UNKNOWN) => {}
            // Said of a transaction in which nothing was written, once its connection is closed: there is nothing to keep.
            Some(errors::XA_ROLLED_BACK) => return word.outcome(),
            _ => return Err(failed(server, &error)),
        }
        // Unknown means settled, or still in the hands of the connection that prepared it.
        if !is_waiting(server, conn, xid)? {
            return word.outcome();
        }
        if Instant::now() > deadline {
            let holder = Some("the connection that prepared the transaction is still open".to_owned());
            return Err(Error::Busy { path: server.path(), holder });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the server has it among what is prepared. Not to be seen once means nothing: whoever concludes from that instant that it
/// was committed leaves it waiting for ever.
pub(super) fn is_waiting(server: &Server, conn: &mut Conn, xid: &Xid) -> Result<bool> {
    for _ in 0..LOOKS.0 {
        if is_listed(server, conn, xid)? {
            return Ok(true);
        }
        std::thread::sleep(LOOKS.1);
    }
    Ok(false)
}

fn is_listed(server: &Server, conn: &mut Conn, xid: &Xid) -> Result<bool> {
    let rows: Vec<(i64, i64, i64, Vec<u8>)> =
        conn.query("XA RECOVER").map_err(|error| failed(server, &error))?;
    let name = format!("{}{}", xid.global, xid.branch).into_bytes();
    Ok(rows.into_iter().any(|(_, _, _, data)| data == name))
}

fn failed(server: &Server, error: &mysql::Error) -> Error {
    if errors::is_gone(error) {
        return errors::unreachable(server, error);
    }
    errors::failed(server, "settling the prepared transaction", error, Duration::ZERO)
}
