//! Looks, over a connection of its own, whom the held transaction keeps waiting, and ends it when that takes too long.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandboxer_core::Result;

use super::client::Connection;
use super::rows::text;
use super::target::Target;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How much of a statement is shown.
const SHOWN: usize = 80;

/// The session that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The number of the server's process.
    pub pid: i32,
    /// The number of the transaction.
    pub xid: u64,
}

/// What it saw last.
#[derive(Debug, Default)]
struct Seen {
    watched: Option<Watched>,
    notices: Vec<String>,
    lost: Option<String>,
}

/// A thread that watches; dropped, it ends.
#[derive(Debug)]
pub struct Watchdog {
    seen: Arc<Mutex<Seen>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch; nothing before [`Watchdog::watch`] says what.
    pub fn start(target: &Target, password: Option<&str>, block_limit: Option<Duration>) -> Result<Self> {
        let connection = Connection::connect(target, password)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = mpsc::channel();
        let mut patrol = Patrol {
            target: target.clone(),
            password: password.map(ToOwned::to_owned),
            connection: Some(connection),
            seen: Arc::clone(&seen),
            block_limit,
            waiting: HashMap::new(),
        };
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                patrol.round();
            }
        });
        Ok(Self { seen, stop: Some(stop), thread: Some(thread) })
    }

    /// What is watched from now on; `None` while the transaction is ended on purpose. What was seen before is forgotten.
    pub fn watch(&self, watched: Option<Watched>) {
        *lock(&self.seen) = Seen { watched, ..Seen::default() };
    }

    /// Whom it keeps waiting, at the last look.
    pub fn notices(&self) -> Vec<String> {
        lock(&self.seen).notices.clone()
    }

    /// Why the transaction is gone, where that was seen or done here.
    pub fn lost(&self) -> Option<String> {
        lock(&self.seen).lost.clone()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Patrol {
    target: Target,
    password: Option<String>,
    connection: Option<Connection>,
    seen: Arc<Mutex<Seen>>,
    block_limit: Option<Duration>,
    waiting: HashMap<(String, String), Instant>,
}

/// Somebody who waits.
struct Waiting {
    told: String,
    since: Instant,
}

impl Patrol {
    fn round(&mut self) {
        let Some(watched) = lock(&self.seen).watched else {
            self.waiting.clear();
            return;
        };
        match self.look(watched) {
            Ok(None) => self.report(watched, |seen| {
                seen.notices.clear();
                seen.lost.get_or_insert_with(|| "the server ended its session, or was restarted".to_owned());
            }),
            Ok(Some(waiting)) => self.judge(watched, &waiting),
            Err(problem) => {
                self.connection = None;
                self.report(watched, |seen| {
                    seen.notices = vec![format!("the server does not answer: {problem}")]
                });
            }
        }
    }

    /// Takes note of something, unless it is about a transaction that is over.
    fn report(&self, watched: Watched, note: impl FnOnce(&mut Seen)) {
        let mut seen = lock(&self.seen);
        if seen.watched == Some(watched) {
            note(&mut seen);
        }
    }

    /// Who waits; `None` where the transaction is no longer there.
    fn look(&mut self, watched: Watched) -> Result<Option<Vec<Waiting>>> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::connect(&self.target, self.password.as_deref())?,
        };
        let connection = self.connection.insert(connection);
        let status = connection.query(&format!("SELECT pg_catalog.txid_status({})", watched.xid))?;
        if status.single() != Some("in progress") {
            return Ok(None);
        }
        let answer = connection.query(&blocked_query(watched.pid))?;
        let now = Instant::now();
        let known = std::mem::take(&mut self.waiting);
        let mut waiting = Vec::new();
        for row in &answer.rows {
            let who = (text(row, 0), text(row, 1));
            let since = known.get(&who).copied().unwrap_or(now);
            waiting.push(Waiting { told: tell(row, now - since), since });
            self.waiting.insert(who, since);
        }
        Ok(Some(waiting))
    }

    fn judge(&mut self, watched: Watched, waiting: &[Waiting]) {
        let notices: Vec<_> = waiting.iter().map(|who| format!("it keeps {}", who.told)).collect();
        self.report(watched, |seen| seen.notices = notices);
        let Some(limit) = self.block_limit else { return };
        let Some(longest) = waiting.iter().find(|who| who.since.elapsed() >= limit) else { return };
        let reason = format!(
            "it kept {}, and the limit is {} s: it was rolled back",
            longest.told,
            limit.as_secs_f32()
        );
        self.end(watched, reason);
    }

    /// Ends the session. The reason is there before anybody can notice.
    fn end(&mut self, watched: Watched, reason: String) {
        self.report(watched, |seen| {
            seen.lost.get_or_insert(reason);
        });
        if lock(&self.seen).watched == Some(watched)
            && let Some(connection) = &mut self.connection
        {
            let _ = connection.query(&format!("SELECT pg_catalog.pg_terminate_backend({})", watched.pid));
        }
    }
}

fn tell(row: &[Option<String>], waited: Duration) -> String {
    let application = Some(text(row, 3)).filter(|name| !name.is_empty());
    format!(
        "process {} of {}{} waiting, for {} s by now, with {:?}",
        text(row, 0),
        text(row, 2),
        application.map(|name| format!(" ({name})")).unwrap_or_default(),
        waited.as_secs(),
        text(row, 4)
    )
}

/// Not by what each is waiting for: an ordinary role does not see that of others. Who waits for a lock, everybody sees.
fn blocked_query(pid: i32) -> String {
    format!(
        "SELECT a.pid, a.query_start, coalesce(a.usename, ''), a.application_name, \
         pg_catalog.left(pg_catalog.regexp_replace(a.query, '\\s+', ' ', 'g'), {SHOWN}) \
         FROM pg_catalog.pg_stat_activity a \
         WHERE a.pid IN (SELECT l.pid FROM pg_catalog.pg_locks l WHERE NOT l.granted) \
         AND {pid} = ANY(pg_catalog.pg_blocking_pids(a.pid)) \
         ORDER BY a.query_start"
    )
}
