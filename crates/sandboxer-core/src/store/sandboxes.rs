//! Sandboxes and their workspaces.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::{Connection, Params, Row, Rows, Transaction, params};

use super::convert::{from_json, from_word, now, optional_json, optional_time, time, to_json};
use super::environments::set_environment;
use super::events;
use super::moment::Moment;
use super::operations::{self, OperationEnd};
use super::{Store, checkpoints, kept, meters};
use crate::Result;
use crate::model::{PlanId, SandboxId, SandboxRef};
use crate::service::{CheckpointRecord, Limit, Operation, Sandbox, SandboxState, Standing, Workspace};

/// One row per workspace; what comes in between is the condition.
const SELECT: &str = "
    SELECT s.id, s.name, s.plan_id, s.state, s.consumer, s.created_at, s.expires_at,
           w.name, w.resource, w.requested_strategy, w.reason, w.ref, s.environment, s.principal
    FROM sandboxes s JOIN workspaces w ON w.sandbox_id = s.id WHERE ";
const NEWEST_FIRST: &str = " ORDER BY s.created_at DESC, s.seq DESC, w.position";
pub(super) const LIVE: &str = "s.state NOT IN ('destroyed', 'failed', 'parked')";

/// How a new sandbox gets its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// This name or none.
    Exact(String),
    /// This name, with a number where it is taken.
    Derived(String),
}

/// What came of asking for a place in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Reservation {
    /// The row is there, under this name.
    Made(String),
    /// Live sandboxes of the plan are in the way; nothing was written.
    Overlaps(Vec<Sandbox>),
    /// The name is this sandbox's; nothing was written.
    NameTaken(Box<Sandbox>),
    /// A request with the same key was answered, or is about to be, with this sandbox; nothing was written.
    KeyTaken(Box<Sandbox>),
    /// A limit is reached; nothing was written.
    OverQuota(Box<Standing>),
}

/// Open sandboxes whose time is up: those of this boot by its own clock, all others by the one on the wall. Each half is a search in an
/// index.
const EXPIRED: &str = "s.id IN (
    SELECT id FROM sandboxes WHERE boot = ?2 AND expires_in_boot <= ?3 AND state IN ('ready', 'active')
    UNION ALL
    SELECT id FROM sandboxes WHERE expires_at <= ?1 AND boot IS NOT ?2 AND state IN ('ready', 'active'))";

impl Store {
    /// Live sandboxes, newest first; all that ever were, if asked for.
    pub fn sandboxes(&self, all: bool) -> Result<Vec<Sandbox>> {
        self.read("list the sandboxes", |c| select(c, if all { "1" } else { LIVE }, []))
    }

    /// All that are not gone, live or parked, newest first: in one look, for what goes from one to the other meanwhile
    /// would be in neither of two.
    pub fn present(&self) -> Result<Vec<Sandbox>> {
        self.read("list what is there", |c| select(c, "s.state NOT IN ('destroyed', 'failed')", []))
    }

    /// Parked sandboxes, newest first.
    pub fn parked(&self) -> Result<Vec<Sandbox>> {
        self.read("list what is parked", |c| select(c, "s.state = 'parked'", []))
    }

    /// Puts a sandbox away: its name and its plan's place are free, what it keeps is on record, and the operation that
    /// did it is done, in one.
    pub fn park(&self, id: &SandboxId, kind: &str, bytes: u64, end: &OperationEnd) -> Result<()> {
        self.write("park a sandbox", |t| {
            set_state(t, id, SandboxState::Parked)?;
            // Whoever asks again with the key gets another sandbox, and this one may be taken up beside that.
            t.prepare_cached("UPDATE sandboxes SET idempotency_key = NULL WHERE id = ?1")?
                .execute([id.as_str()])?;
            t.prepare_cached("UPDATE workspaces SET live = 0 WHERE sandbox_id = ?1")?
                .execute([id.as_str()])?;
            kept::insert(t, id, kind, id.as_str(), bytes)?;
            operations::end(t, end)
        })
    }

    /// Takes a parked sandbox up again, under a free name and without a time to end, in one. Where another sandbox has its
    /// plan's place by now, it gets a plan of its own; where a limit is reached, it stays parked.
    pub fn unpark(&self, limits: &[Limit], sandbox: &Sandbox, naming: &Naming) -> Result<Reservation> {
        self.write("take up a parked sandbox", |t| {
            if let Some(standing) = meters::reached(t, limits, None, now())? {
                return Ok(Reservation::OverQuota(Box::new(standing)));
            }
            let name = match naming {
                Naming::Derived(stem) => free_name(t, stem)?,
                Naming::Exact(name) => match holder_of(t, name)? {
                    Some(holder) => return Ok(Reservation::NameTaken(Box::new(holder))),
                    None => name.clone(),
                },
            };
            let plan = if is_plan_taken(t, sandbox)? { PlanId::generate() } else { sandbox.plan_id.clone() };
            let sql = "UPDATE sandboxes SET state = 'ready', name = ?2, plan_id = ?3, expires_at = NULL, boot = NULL, expires_in_boot = NULL WHERE id = ?1";
            t.prepare_cached(sql)?.execute(params![sandbox.id.as_str(), name, plan.as_str()])?;
            let sql = "UPDATE workspaces SET live = 1, plan_id = ?2 WHERE sandbox_id = ?1";
            t.prepare_cached(sql)?.execute(params![sandbox.id.as_str(), plan.as_str()])?;
            events::insert(t, &sandbox.id, "ready")?;
            kept::remove(t, &sandbox.id, "parked", sandbox.id.as_str())?;
            kept::remove(t, &sandbox.id, "history", sandbox.id.as_str())?;
            Ok(Reservation::Made(name))
        })
    }

    /// One sandbox, whatever its state.
    pub fn sandbox(&self, id: &SandboxId) -> Result<Option<Sandbox>> {
        self.read("read a sandbox", |c| Ok(select(c, "s.id = ?1", [id.as_str()])?.pop()))
    }

    /// Sandboxes whose id begins like that.
    pub fn sandboxes_by_prefix(&self, prefix: &str, all: bool) -> Result<Vec<Sandbox>> {
        let condition = format!("s.id >= ?1 AND s.id < ?1 || '~' AND ({all} OR {LIVE})");
        self.read("look up a sandbox", |c| select(c, &condition, [prefix]))
    }

    /// The live sandbox of that name; failing that, if `all`, the destroyed ones, newest first.
    pub fn sandboxes_by_name(&self, name: &str, all: bool) -> Result<Vec<Sandbox>> {
        self.read("look up a sandbox", |c| {
            let live = select(c, &format!("s.name = ?1 AND {LIVE}"), [name])?;
            if live.is_empty() && all { select(c, "s.name = ?1", [name]) } else { Ok(live) }
        })
    }

    /// The live sandboxes of a plan.
    pub fn live_of_plan(&self, plan: &PlanId) -> Result<Vec<Sandbox>> {
        self.read("read a plan", |c| live_of_plan(c, plan))
    }

    /// The live sandbox that a request with this key was answered with.
    pub fn sandbox_by_key(&self, key: &str) -> Result<Option<Sandbox>> {
        self.read("look up a request", |c| by_key(c, key))
    }

    /// Open sandboxes whose time is up. Within the boot that their time was set in, the wall clock has no say: it may have been set since.
    pub fn expired(&self, at: &Moment) -> Result<Vec<Sandbox>> {
        let values = params![at.wall.as_microsecond(), at.boot, at.in_boot];
        self.read("look for expired sandboxes", |c| select(c, EXPIRED, values))
    }

    /// Whether one of them is still to be ended, for whoever has looked before and has its lock by now.
    pub fn is_expired(&self, id: &SandboxId, at: &Moment) -> Result<bool> {
        let condition = format!("{EXPIRED} AND s.id = ?4");
        let values = params![at.wall.as_microsecond(), at.boot, at.in_boot, id.as_str()];
        self.read("look at a sandbox's time", |c| Ok(!select(c, &condition, values)?.is_empty()))
    }

    /// Gives an open sandbox another time to end, or none.
    pub fn set_expiry(&self, id: &SandboxId, expires_at: Option<Timestamp>) -> Result<()> {
        self.write("extend a sandbox", |t| {
            set_expiry(t, id, expires_at)?;
            events::insert(t, id, "extended")
        })
    }

    /// Writes the row of a sandbox that is about to be made, with its operation, unless something of the same plan is in
    /// the way (`in_the_way` says so) or the name is taken.
    pub fn reserve(
        &self,
        sandbox: &Sandbox,
        naming: &Naming,
        operation: &Operation,
        in_the_way: &dyn Fn(&Sandbox) -> bool,
    ) -> Result<Reservation> {
        self.reserve_within(&[], sandbox, naming, operation, in_the_way)
    }

    /// The same for one that is held to limits. They are looked at in the transaction that writes the row: of two that come at once, only one
    /// is the last that may.
    pub fn reserve_within(
        &self,
        limits: &[Limit],
        sandbox: &Sandbox,
        naming: &Naming,
        operation: &Operation,
        in_the_way: &dyn Fn(&Sandbox) -> bool,
    ) -> Result<Reservation> {
        // What a power cut takes with this row is an orphan's directory; all else finds the row.
        self.write_unflushed("register a sandbox", |t| {
            let key = sandbox.environment.as_ref().and_then(|e| e.idempotency_key.as_deref());
            if let Some(holder) = key.map(|key| by_key(t, key)).transpose()?.flatten() {
                return Ok(Reservation::KeyTaken(Box::new(holder)));
            }
            let mut overlaps = live_of_plan(t, &sandbox.plan_id)?;
            overlaps.retain(in_the_way);
            if !overlaps.is_empty() {
                return Ok(Reservation::Overlaps(overlaps));
            }
            let price = sandbox.environment.as_ref().and_then(|e| e.route.cost.as_ref());
            if let Some(standing) = meters::reached(t, limits, price, now())? {
                return Ok(Reservation::OverQuota(Box::new(standing)));
            }
            let name = match naming {
                Naming::Derived(stem) => free_name(t, stem)?,
                Naming::Exact(name) => match holder_of(t, name)? {
                    Some(holder) => return Ok(Reservation::NameTaken(Box::new(holder))),
                    None => name.clone(),
                },
            };
            insert(t, sandbox, &name)?;
            if sandbox.expires_at.is_some() {
                set_expiry(t, &sandbox.id, sandbox.expires_at)?;
            }
            if let Some(key) = key {
                let sql = "UPDATE sandboxes SET idempotency_key = ?2 WHERE id = ?1";
                t.prepare_cached(sql)?.execute([sandbox.id.as_str(), key])?;
            }
            operations::insert(t, operation)?;
            events::insert(t, &sandbox.id, "requested")?;
            events::insert(t, &sandbox.id, "provisioning")?;
            Ok(Reservation::Made(name))
        })
    }

    /// Registers a sandbox found on disk, which takes `bytes` there, under a free name. `None` where the store has it
    /// already. One that is parked takes no plan's place, and is on record as work: nobody can tell any more.
    pub fn adopt(
        &self,
        found: &Sandbox,
        checkpoints: &[CheckpointRecord],
        bytes: u64,
    ) -> Result<Option<Sandbox>> {
        self.write("adopt a sandbox", |t| {
            if !select(t, "s.id = ?1", [found.id.as_str()])?.is_empty() {
                return Ok(None);
            }
            let mut adopted = found.clone();
            adopted.name = free_name(t, &found.name)?;
            let is_parked = found.state == SandboxState::Parked;
            if !is_parked && is_plan_taken(t, found)? {
                adopted.plan_id = PlanId::generate();
            }
            insert(t, &adopted, &adopted.name)?;
            events::insert_with(t, &found.id, found.state.as_str(), Some("found on disk and adopted"))?;
            if is_parked {
                kept::insert(t, &found.id, "parked", found.id.as_str(), bytes)?;
            }
            checkpoints.iter().try_for_each(|record| checkpoints::insert(t, &found.id, record))?;
            Ok(Some(adopted))
        })
    }

    /// Remembers what a strategy made, as soon as it is made.
    pub fn set_ref(
        &self,
        id: &SandboxId,
        position: usize,
        sandbox_ref: &SandboxRef,
        reason: &str,
    ) -> Result<()> {
        self.write("remember a workspace", |t| set_ref(t, id, position, sandbox_ref, reason))
    }

    /// Moves a sandbox to another state of its life.
    pub fn set_state(&self, id: &SandboxId, state: SandboxState) -> Result<()> {
        self.write("change a sandbox's state", |t| set_state(t, id, state))
    }

    /// From `ready` to `active`; anything else stays as it is.
    pub fn set_active(&self, id: &SandboxId) -> Result<()> {
        self.write_unflushed("change a sandbox's state", |t| {
            let sql = "UPDATE sandboxes SET state = 'active' WHERE id = ?1 AND state = 'ready'";
            match t.prepare_cached(sql)?.execute([id.as_str()])? {
                0 => Ok(()),
                _ => events::insert(t, id, "active"),
            }
        })
    }

    /// Changes the state and begins the operation that does it, in one.
    pub fn begin_in_state(&self, id: &SandboxId, state: SandboxState, operation: &Operation) -> Result<()> {
        self.write("change a sandbox's state", |t| {
            set_state(t, id, state)?;
            operations::insert(t, operation)
        })
    }

    /// A sandbox that was made is ready, and the operation that made it done, in one.
    pub fn publish(&self, sandbox: &Sandbox, end: &OperationEnd) -> Result<()> {
        self.write("publish a sandbox", |t| publish(t, sandbox, end))
    }

    /// The same for one that nobody looks for after a power cut.
    pub fn publish_unflushed(&self, sandbox: &Sandbox, end: &OperationEnd) -> Result<()> {
        self.write_unflushed("publish a sandbox", |t| publish(t, sandbox, end))
    }

    /// Ends a sandbox's life in the state `destroyed` or `failed`: its name and its plan's place are free. What led there was
    /// flushed before anything was removed: a power cut takes it back to that, and recovery finds nothing left to do.
    pub fn close(&self, id: &SandboxId, state: SandboxState) -> Result<()> {
        self.write_unflushed("close a sandbox", |t| {
            set_state(t, id, state)?;
            t.prepare_cached("UPDATE workspaces SET live = 0 WHERE sandbox_id = ?1")?
                .execute([id.as_str()])?;
            t.prepare_cached("DELETE FROM kept WHERE sandbox_id = ?1")?.execute([id.as_str()])?;
            t.prepare_cached("DELETE FROM checkpoints WHERE sandbox_id = ?1")?
                .execute([id.as_str()])
                .map(drop)
        })
    }
}

fn by_key(connection: &Connection, key: &str) -> rusqlite::Result<Option<Sandbox>> {
    Ok(select(connection, &format!("s.idempotency_key = ?1 AND {LIVE}"), [key])?.pop())
}

fn set_expiry(t: &Transaction<'_>, id: &SandboxId, expires_at: Option<Timestamp>) -> rusqlite::Result<()> {
    let now = Moment::now();
    let in_boot =
        expires_at.map(|at| now.in_boot.saturating_add(at.as_microsecond() - now.wall.as_microsecond()));
    let sql = "UPDATE sandboxes SET expires_at = ?2, boot = ?3, expires_in_boot = ?4 WHERE id = ?1";
    let values = params![id.as_str(), expires_at.map(|at| at.as_microsecond()), now.boot, in_boot];
    t.prepare_cached(sql)?.execute(values).map(drop)
}

fn publish(t: &Transaction<'_>, sandbox: &Sandbox, end: &OperationEnd) -> rusqlite::Result<()> {
    for (position, made) in sandbox.workspaces.iter().enumerate() {
        set_ref(t, &sandbox.id, position, &made.sandbox_ref, &made.reason)?;
    }
    if let Some(environment) = &sandbox.environment {
        set_environment(t, &sandbox.id, environment)?;
    }
    set_state(t, &sandbox.id, SandboxState::Ready)?;
    operations::end(t, end)
}

fn set_ref(
    connection: &Connection,
    id: &SandboxId,
    position: usize,
    sandbox_ref: &SandboxRef,
    reason: &str,
) -> rusqlite::Result<()> {
    let sql = "UPDATE workspaces SET ref = ?3, reason = ?4 WHERE sandbox_id = ?1 AND position = ?2";
    let values = params![id.as_str(), position as i64, to_json(sandbox_ref)?, reason];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

fn live_of_plan(connection: &Connection, plan: &PlanId) -> rusqlite::Result<Vec<Sandbox>> {
    select(connection, &format!("s.plan_id = ?1 AND {LIVE}"), [plan.as_str()])
}

/// What looks for them, whole.
#[cfg(test)]
pub(super) fn expired_sql() -> String {
    format!("{SELECT}{EXPIRED}{NEWEST_FIRST}")
}

pub(super) fn select(
    connection: &Connection,
    condition: &str,
    values: impl Params,
) -> rusqlite::Result<Vec<Sandbox>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT}{condition}{NEWEST_FIRST}"))?;
    group(statement.query(values)?)
}

/// Rows of one sandbox come one after the other.
fn group(mut rows: Rows<'_>) -> rusqlite::Result<Vec<Sandbox>> {
    let mut sandboxes: Vec<Sandbox> = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_str().unwrap_or_default();
        if sandboxes.last().is_none_or(|last| last.id.as_str() != id) {
            sandboxes.push(sandbox(row)?);
        }
        if let Some(last) = sandboxes.last_mut() {
            last.workspaces.push(workspace(row)?);
        }
    }
    Ok(sandboxes)
}

fn sandbox(row: &Row<'_>) -> rusqlite::Result<Sandbox> {
    Ok(Sandbox {
        id: SandboxId::from_string(row.get::<_, String>(0)?),
        name: row.get(1)?,
        plan_id: PlanId::from_string(row.get::<_, String>(2)?),
        state: from_word(row, 3)?,
        consumer: from_json(row, 4)?,
        created_at: time(row, 5)?,
        expires_at: optional_time(row, 6)?,
        workspaces: Vec::new(),
        environment: optional_json(row, 12)?,
        principal: row.get(13)?,
    })
}

fn workspace(row: &Row<'_>) -> rusqlite::Result<Workspace> {
    Ok(Workspace {
        name: row.get(7)?,
        resource: from_json(row, 8)?,
        requested_strategy: row.get(9)?,
        reason: row.get(10)?,
        sandbox_ref: from_json(row, 11)?,
    })
}

fn insert(t: &Transaction<'_>, sandbox: &Sandbox, name: &str) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO sandboxes (id, name, plan_id, state, consumer, created_at, expires_at, environment, principal)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    t.prepare_cached(sql)?.execute(params![
        sandbox.id.as_str(),
        name,
        sandbox.plan_id.as_str(),
        sandbox.state.as_str(),
        to_json(&sandbox.consumer)?,
        sandbox.created_at.as_microsecond(),
        sandbox.expires_at.map(|at| at.as_microsecond()),
        sandbox.environment.as_ref().map(to_json).transpose()?,
        sandbox.principal,
    ])?;
    sandbox.workspaces.iter().enumerate().try_for_each(|(at, w)| insert_workspace(t, sandbox, at, w))
}

fn insert_workspace(
    t: &Transaction<'_>,
    of: &Sandbox,
    position: usize,
    w: &Workspace,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO workspaces
               (sandbox_id, position, name, plan_id, resource_id, resource, requested_strategy, reason, ref, live)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = params![
        of.id.as_str(),
        position as i64,
        w.name,
        of.plan_id.as_str(),
        w.resource.id.as_str(),
        to_json(&w.resource)?,
        w.requested_strategy,
        w.reason,
        to_json(&w.sandbox_ref)?,
        of.state != SandboxState::Parked,
    ];
    t.prepare_cached(sql)?.execute(values).map(drop)
}

/// Another state of its life; that it came to be so is an event, unless it was so before.
pub(super) fn set_state(t: &Transaction<'_>, id: &SandboxId, state: SandboxState) -> rusqlite::Result<()> {
    let sql = "UPDATE sandboxes SET state = ?2 WHERE id = ?1 AND state <> ?2";
    match t.prepare_cached(sql)?.execute([id.as_str(), state.as_str()])? {
        0 => Ok(()),
        _ => events::insert(t, id, state.as_str()),
    }
}

fn holder_of(t: &Transaction<'_>, name: &str) -> rusqlite::Result<Option<Sandbox>> {
    Ok(select(t, &format!("s.name = ?1 AND {LIVE}"), [name])?.pop())
}

/// `stem`, or `stem-2`, `stem-3`, … where that is taken. (`.` follows `-` in ASCII: the range is all of `stem-…`.)
fn free_name(t: &Transaction<'_>, stem: &str) -> rusqlite::Result<String> {
    let sql = format!(
        "SELECT s.name FROM sandboxes s WHERE (s.name = ?1 OR (s.name >= ?1 || '-' AND s.name < ?1 || '.')) AND {LIVE}"
    );
    let mut statement = t.prepare_cached(&sql)?;
    let taken =
        statement.query_map([stem], |row| row.get(0))?.collect::<rusqlite::Result<HashSet<String>>>()?;
    let mut name = stem.to_owned();
    let mut number = 2_u64;
    while taken.contains(&name) {
        name = format!("{stem}-{number}");
        number += 1;
    }
    Ok(name)
}

fn is_plan_taken(t: &Transaction<'_>, found: &Sandbox) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM workspaces WHERE plan_id = ?1 AND resource_id = ?2 AND live = 1)";
    let mut statement = t.prepare_cached(sql)?;
    for workspace in &found.workspaces {
        let values = [found.plan_id.as_str(), workspace.resource.id.as_str()];
        if statement.query_row(values, |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}
