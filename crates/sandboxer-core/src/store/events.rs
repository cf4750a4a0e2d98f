//! The outbox: what is told of sandboxes' lives, and how far each subscriber has heard it.
//!
//! An event is written in the transaction of the transition that it tells of, so that neither is there without the other. Who tells it
//! remembers how far it came only after it was told: everybody hears everything at least once, in order.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, params};
use ulid::Ulid;

use super::Store;
use super::convert::{from_json, now, optional_json, optional_time, to_json};
use crate::Result;
use crate::environment::{DEFAULT_PROFILE, Environment, Identity, LOCAL_HOST, LifecycleEvent};
use crate::model::SandboxId;

/// How many events are forgotten in one transaction.
const AT_ONCE: usize = 5_000;

/// What every event says of its sandbox, as that is in the store.
struct Subject {
    name: String,
    consumer: crate::service::Consumer,
    environment: Option<Environment>,
}

/// Writes an event of a sandbox, with what the store knows of it by now.
pub(super) fn insert(t: &Transaction<'_>, id: &SandboxId, kind: &str) -> rusqlite::Result<()> {
    insert_with(t, id, kind, None)
}

/// The same with a reason; without one, a failure's own.
pub(super) fn insert_with(
    t: &Transaction<'_>,
    id: &SandboxId,
    kind: &str,
    reason: Option<&str>,
) -> rusqlite::Result<()> {
    let sql = "SELECT name, consumer, environment FROM sandboxes WHERE id = ?1";
    let subject = t.prepare_cached(sql)?.query_row([id.as_str()], subject)?;
    let event = event(id, kind, reason, subject);
    let sql = "INSERT INTO events (id, sandbox_id, kind, at, data) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![event.id, id.as_str(), kind, event.at.as_microsecond(), to_json(&event)?];
    t.prepare_cached(sql)?.execute(values).map(drop)
}

fn subject(row: &Row<'_>) -> rusqlite::Result<Subject> {
    Ok(Subject { name: row.get(0)?, consumer: from_json(row, 1)?, environment: optional_json(row, 2)? })
}

fn event(id: &SandboxId, kind: &str, reason: Option<&str>, subject: Subject) -> LifecycleEvent {
    let route = subject.environment.as_ref().map(|e| &e.route);
    let failure = subject.environment.as_ref().and_then(|e| e.failure.as_ref()).filter(|_| kind == "failed");
    LifecycleEvent {
        seq: 0,
        id: format!("evt_{}", Ulid::generate().to_string().to_lowercase()),
        sandbox_id: id.clone(),
        name: subject.name,
        kind: kind.to_owned(),
        at: now(),
        profile_id: route.map_or(DEFAULT_PROFILE, |r| &r.profile_id).to_owned(),
        extension_id: route.map_or("ext.local", |r| &r.extension_id).to_owned(),
        host: route.map_or(LOCAL_HOST, |r| &r.host).to_owned(),
        consumer: subject.consumer,
        reason: reason.map(str::to_owned).or_else(|| failure.map(|f| format!("{}: {}", f.step, f.reason))),
        identity: Identity::of(subject.environment.as_ref()),
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<LifecycleEvent> {
    let event: LifecycleEvent = from_json(row, 1)?;
    Ok(LifecycleEvent { seq: row.get::<_, i64>(0)?.unsigned_abs(), ..event })
}

impl Store {
    /// Writes an event that is no transition of the state.
    pub fn tell(&self, id: &SandboxId, kind: &str, reason: Option<&str>) -> Result<()> {
        self.write("write an event", |t| insert_with(t, id, kind, reason))
    }

    /// Events after `seq`, oldest first, of one sandbox or of all.
    pub fn events_after(
        &self,
        seq: u64,
        sandbox: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<LifecycleEvent>> {
        self.read("read events", |c| {
            // Numbers that are never given have nothing behind them.
            let (seq, limit) = (i64::try_from(seq).unwrap_or(i64::MAX), limit as i64);
            match sandbox {
                Some(id) => {
                    let sql = "SELECT seq, data FROM events
                               WHERE sandbox_id = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2";
                    c.prepare_cached(sql)?.query_map(params![seq, limit, id.as_str()], read)?.collect()
                }
                None => {
                    let sql = "SELECT seq, data FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";
                    c.prepare_cached(sql)?.query_map([seq, limit], read)?.collect()
                }
            }
        })
    }

    /// The newest events, oldest of them first, of one sandbox or of all.
    pub fn latest_events(&self, sandbox: Option<&SandboxId>, limit: usize) -> Result<Vec<LifecycleEvent>> {
        let mut newest: Vec<LifecycleEvent> = self.read("read events", |c| {
            let limit = limit as i64;
            match sandbox {
                Some(id) => {
                    let sql = "SELECT seq, data FROM events WHERE sandbox_id = ?2 ORDER BY seq DESC LIMIT ?1";
                    c.prepare_cached(sql)?.query_map(params![limit, id.as_str()], read)?.collect()
                }
                None => {
                    let sql = "SELECT seq, data FROM events ORDER BY seq DESC LIMIT ?1";
                    c.prepare_cached(sql)?.query_map([limit], read)?.collect()
                }
            }
        })?;
        newest.reverse();
        Ok(newest)
    }

    /// How many events are after `seq`, and when the first of them was.
    pub fn waiting_after(&self, seq: u64) -> Result<(u64, Option<Timestamp>)> {
        self.read("read events", |c| {
            let sql = "SELECT count(*), min(at) FROM events WHERE seq > ?1";
            c.query_row(sql, [seq as i64], |row| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), optional_time(row, 1)?))
            })
        })
    }

    /// The place of the newest event; 0 where there is none.
    pub fn last_event(&self) -> Result<u64> {
        self.read("read events", |c| {
            let newest: Option<i64> = c.query_row("SELECT max(seq) FROM events", [], |row| row.get(0))?;
            Ok(newest.unwrap_or(0).unsigned_abs())
        })
    }

    /// How far a subscriber has heard; 0 where it has heard nothing.
    pub fn heard(&self, subscriber: &str) -> Result<u64> {
        self.read("read a subscriber", |c| {
            let sql = "SELECT delivered FROM subscribers WHERE name = ?1";
            let heard: Option<i64> = c.query_row(sql, [subscriber], |row| row.get(0)).optional()?;
            Ok(heard.unwrap_or(0).unsigned_abs())
        })
    }

    /// Remembers how far a subscriber has heard. Never goes back.
    pub fn set_heard(&self, subscriber: &str, seq: u64) -> Result<()> {
        self.write("remember a subscriber", |t| {
            let sql = "INSERT INTO subscribers (name, delivered) VALUES (?1, ?2)
                       ON CONFLICT (name) DO UPDATE SET delivered = max(delivered, excluded.delivered)";
            t.prepare_cached(sql)?.execute(params![subscriber, seq as i64]).map(drop)
        })
    }

    /// Removes events older than `before` that `subscriber` has heard, where there is one; says how many. Nobody else is waited for: one that
    /// is not configured any more would keep them for ever.
    pub fn forget_events(&self, before: Timestamp, subscriber: Option<&str>) -> Result<usize> {
        // Of a state that is not there yet, nothing is made.
        if self.last_event()? == 0 {
            return Ok(0);
        }
        let heard = subscriber.map_or(Ok(i64::MAX as u64), |subscriber| self.heard(subscriber))?;
        // A part at a time, the oldest first: others write in between.
        let mut forgotten = 0;
        loop {
            let some = self.write("forget events", |t| {
                let sql = "DELETE FROM events WHERE at < ?1 AND seq IN
                           (SELECT seq FROM events WHERE seq <= ?2 ORDER BY seq LIMIT ?3)";
                t.prepare_cached(sql)?.execute(params![before.as_microsecond(), heard as i64, AT_ONCE as i64])
            })?;
            forgotten += some;
            if some < AT_ONCE {
                return Ok(forgotten);
            }
        }
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
