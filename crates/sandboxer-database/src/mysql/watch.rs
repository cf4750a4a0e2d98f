//! Looks after production: who waits for the held transaction, and for how long.
//!
//! A thread with a connection of its own. Where somebody waited for longer than the limit, it ends the held connection, and the server rolls the work back.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;

use super::location::Server;

const INTERVAL: Duration = Duration::from_secs(1);

const MARIADB: &str = "SELECT r.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, r.trx_wait_started, NOW()) \
    FROM information_schema.innodb_lock_waits w JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id \
    JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id WHERE b.trx_mysql_thread_id = ?";
const MYSQL: &str = "SELECT waiting_pid, wait_age_secs FROM sys.innodb_lock_waits WHERE blocking_pid = ?";

#[derive(Default)]
struct Seen {
    /// Connections that wait, and for how many seconds.
    waiting: Vec<(u64, i64)>,
    ended: Option<String>,
    /// The server does not tell.
    blind: bool,
}

pub(super) struct Watch {
    seen: Arc<Mutex<Seen>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(server: Server, held: u32, limit: Option<Duration>, mariadb: bool) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = channel();
        let shared = Arc::clone(&seen);
        let look = move || {
            let mut conn = None;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
                let sql = if mariadb { MARIADB } else { MYSQL };
                if !look_once(&server, &mut conn, &shared, (held, limit, sql)) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch over production".to_owned()).spawn(look).ok();
        Self { seen, stop: Some(stop), thread }
    }

    /// Why it was rolled back, if it was.
    pub(super) fn ended(&self) -> Option<String> {
        locked(&self.seen).ended.clone()
    }

    pub(super) fn notices(&self) -> Vec<String> {
        let seen = locked(&self.seen);
        let waits = |(id, seconds): &(u64, i64)| {
            format!("connection {id} has waited {seconds} s for rows that this sandbox has locked")
        };
        let mut notices: Vec<String> = seen.waiting.iter().map(waits).collect();
        if seen.blind {
            notices.push(
                "whom this sandbox blocks is not known: its user lacks the PROCESS privilege".to_owned(),
            );
        }
        notices
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether to go on.
fn look_once(
    server: &Server,
    conn: &mut Option<Conn>,
    seen: &Mutex<Seen>,
    (held, limit, sql): (u32, Option<Duration>, &str),
) -> bool {
    if conn.is_none() {
        *conn = server.connect().ok();
    }
    let Some(connection) = conn else { return true };
    let waiting: mysql::Result<Vec<(u64, i64)>> = connection.exec(sql, (held,));
    let Ok(waiting) = waiting else {
        locked(seen).blind = matches!(waiting, Err(mysql::Error::MySqlError(_)));
        *conn = None;
        return true;
    };
    let longest = waiting.iter().map(|(_, seconds)| *seconds).max().unwrap_or(0);
    let mut seen = locked(seen);
    (seen.waiting, seen.blind) = (waiting, false);
    let Some(limit) =
        limit.filter(|limit| longest > 0 && Duration::from_secs(longest.unsigned_abs()) >= *limit)
    else {
        return true;
    };
    seen.ended =
        Some(format!("it was rolled back because it kept production waiting for {} s", limit.as_secs()));
    let _ = connection.query_drop(format!("KILL {held}"));
    false
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
