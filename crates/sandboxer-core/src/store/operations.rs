//! The operation log: what was begun, decided and done.

use jiff::Timestamp;
use rusqlite::{Connection, Params, Row, Transaction, params};
use serde_json::Value;

use super::convert::{from_json, now, optional_time, time, to_json};
use super::{Store, kept};
use crate::Result;
use crate::model::{OpId, SandboxId};
use crate::service::Operation;

const SELECT: &str =
    "SELECT id, sandbox_id, kind, state, started_at, finished_at, summary, details FROM operations ";

/// The conditions are those of the partial indexes, word by word.
pub(super) const UNFINISHED: &str = "
    SELECT sandbox_id FROM operations WHERE state IN ('running', 'decided')
    UNION SELECT id FROM sandboxes WHERE state IN ('requested', 'provisioning', 'destroying')";

/// How an operation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationEnd {
    /// Which.
    pub id: OpId,
    /// `done`, `failed`, `aborted` or `recovered`.
    pub state: &'static str,
    /// One sentence for a person.
    pub summary: String,
    /// Particulars; these replace the ones it began with.
    pub details: Value,
}

impl Store {
    /// Writes an operation down before it begins (or after, if it is over already).
    pub fn begin(&self, operation: &Operation) -> Result<()> {
        self.write("log an operation", |t| insert(t, operation))
    }

    /// The same for operations that are one, each of another sandbox.
    pub fn begin_all(&self, operations: &[&Operation]) -> Result<()> {
        self.write("log an operation", |t| operations.iter().try_for_each(|operation| insert(t, operation)))
    }

    /// The decision of a commit over several workspaces, of one sandbox or of several: from here on it is finished, whatever
    /// happens. The particulars are replaced.
    pub fn decide(&self, operations: &[&Operation]) -> Result<()> {
        self.write("record the decision", |t| {
            let sql = "UPDATE operations SET state = 'decided', details = ?2 WHERE id = ?1";
            each(t, sql, operations)
        })
    }

    /// Makes sure that a decision which could not be recorded is none.
    pub fn undecide(&self, operations: &[&Operation]) -> Result<()> {
        self.write("withdraw the decision", |t| {
            let sql = "UPDATE operations SET state = 'running', details = ?2 WHERE id = ?1";
            each(t, sql, operations)
        })
    }

    /// Replaces the particulars of operations that are under way.
    pub fn note(&self, operations: &[&Operation]) -> Result<()> {
        let sql = "UPDATE operations SET details = ?2 WHERE id = ?1 AND state = 'running'";
        self.write("record who decides", |t| each(t, sql, operations))
    }

    /// Writes down what came of the question who decided, for those of the operations that are still under way: they are
    /// decided, or the question (`key` of the particulars) is gone.
    pub fn settle(&self, operations: &[OpId], key: &str, decided: bool) -> Result<()> {
        let sql = match decided {
            true => "UPDATE operations SET state = 'decided' WHERE id = ?1 AND state = 'running' AND ?2 = ?2",
            false => {
                "UPDATE operations SET details = json_remove(details, '$.' || ?2)
                 WHERE id = ?1 AND state = 'running'"
            }
        };
        self.write("record the decision", |t| {
            let mut statement = t.prepare_cached(sql)?;
            operations.iter().try_for_each(|id| statement.execute([id.as_str(), key]).map(drop))
        })
    }

    /// Writes down how an operation ended.
    pub fn end(&self, operation: &OperationEnd) -> Result<()> {
        self.write("log an operation", |t| end(t, operation))
    }

    /// Writes down how a commit or an undo of `sandbox` ended, and what is kept for taking it back. What an undo took
    /// back is marked so (or, if that was an undo itself, what it had taken back is there again).
    pub fn end_commit(
        &self,
        operation: &OperationEnd,
        sandbox: &SandboxId,
        undo_bytes: Option<u64>,
        undone: Option<&OpId>,
    ) -> Result<()> {
        self.write("log an operation", |t| {
            end(t, operation)?;
            if let Some(bytes) = undo_bytes {
                kept::insert(t, sandbox, "undo", operation.id.as_str(), bytes)?;
            }
            let Some(undone) = undone else { return Ok(()) };
            kept::remove(t, sandbox, "undo", undone.as_str())?;
            let sql = "UPDATE operations SET state = 'undone' WHERE id IN
                       (?1, (SELECT details ->> 'redoes' FROM operations WHERE id = ?1))";
            t.prepare_cached(sql)?.execute([undone.as_str()])?;
            let sql = "UPDATE operations SET state = 'done' WHERE id =
                       (SELECT details ->> 'redoes' FROM operations WHERE id = ?1)";
            t.prepare_cached(sql)?.execute([operation.id.as_str()]).map(drop)
        })
    }

    /// The operation that made the commit `operation` again after it was taken back, if one did and still stands.
    pub fn redo_of(&self, operation: &OpId) -> Result<Option<Operation>> {
        let condition = "WHERE details ->> 'redoes' = ?1 AND state IN ('done', 'recovered')
                         ORDER BY seq DESC LIMIT 1";
        let found = self.read("read the log", |c| select(c, condition, [operation.as_str()]))?;
        Ok(found.into_iter().next())
    }

    /// The operations whose id begins with `prefix`, oldest first; no more than `limit`.
    pub fn operations_called(&self, prefix: &str, limit: usize) -> Result<Vec<Operation>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let condition = "WHERE substr(id, 1, length(?1)) = ?1 ORDER BY seq LIMIT ?2";
        self.read("read the log", |c| select(c, condition, params![prefix, limit]))
    }

    /// The newest commit that can still be taken back: of one sandbox, or of any.
    pub fn last_commit(&self, sandbox: Option<&SandboxId>) -> Result<Option<Operation>> {
        let condition = "WHERE kind = 'commit' AND state IN ('done', 'recovered')
                         AND (?1 IS NULL OR sandbox_id = ?1) AND json_array_length(details, '$.paths') > 0
                         AND json_extract(details, '$.branch') IS NULL
                         ORDER BY seq DESC LIMIT 1";
        let found =
            self.read("read the log", |c| select(c, condition, params![sandbox.map(SandboxId::as_str)]))?;
        Ok(found.into_iter().next())
    }

    /// Commits and undos that ended after `operation`, oldest first; not those that only left a branch.
    pub fn commits_since(&self, operation: &OpId) -> Result<Vec<Operation>> {
        let condition = "WHERE kind IN ('commit', 'undo') AND state IN ('done', 'recovered')
                         AND json_extract(details, '$.branch') IS NULL
                         AND seq > (SELECT seq FROM operations WHERE id = ?1) ORDER BY seq";
        self.read("read the log", |c| select(c, condition, [operation.as_str()]))
    }

    /// Writes down how several operations ended, in one. One whose end is lost is ended once more.
    pub fn end_all(&self, operations: &[OperationEnd]) -> Result<()> {
        self.write_unflushed("log operations", |t| {
            operations.iter().try_for_each(|operation| end(t, operation))
        })
    }

    /// The log, newest first.
    pub fn operations(&self, sandbox: Option<&SandboxId>, limit: usize) -> Result<Vec<Operation>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read("read the log", |c| match sandbox {
            Some(id) => {
                select(c, "WHERE sandbox_id = ?1 ORDER BY seq DESC LIMIT ?2", params![id.as_str(), limit])
            }
            None => select(c, "ORDER BY seq DESC LIMIT ?1", [limit]),
        })
    }

    /// What was begun in one sandbox and not ended, oldest first.
    pub fn unfinished_operations(&self, sandbox: &SandboxId) -> Result<Vec<Operation>> {
        let condition = "WHERE state IN ('running', 'decided') AND sandbox_id = ?1 ORDER BY seq";
        self.read("look for unfinished operations", |c| select(c, condition, [sandbox.as_str()]))
    }

    /// The sandboxes in which something was begun and not ended. Two index look-ups, empty as a rule.
    pub fn unfinished(&self) -> Result<Vec<SandboxId>> {
        self.read("look for unfinished operations", |c| {
            let mut statement = c.prepare_cached(UNFINISHED)?;
            let ids = statement.query_map([], |row| Ok(SandboxId::from_string(row.get::<_, String>(0)?)))?;
            ids.collect()
        })
    }
}

fn select(connection: &Connection, condition: &str, values: impl Params) -> rusqlite::Result<Vec<Operation>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT}{condition}"))?;
    statement.query_map(values, operation)?.collect()
}

fn operation(row: &Row<'_>) -> rusqlite::Result<Operation> {
    Ok(Operation {
        id: OpId::from_string(row.get::<_, String>(0)?),
        sandbox_id: SandboxId::from_string(row.get::<_, String>(1)?),
        kind: row.get(2)?,
        state: row.get(3)?,
        started_at: time(row, 4)?,
        finished_at: optional_time(row, 5)?,
        summary: row.get(6)?,
        details: from_json(row, 7)?,
    })
}

pub(super) fn insert(t: &Transaction<'_>, operation: &Operation) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO operations (id, sandbox_id, kind, state, started_at, finished_at, summary, details)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        operation.id.as_str(),
        operation.sandbox_id.as_str(),
        operation.kind,
        operation.state,
        operation.started_at.as_microsecond(),
        operation.finished_at.map(Timestamp::as_microsecond),
        operation.summary,
        to_json(&operation.details)?,
    ];
    t.prepare_cached(sql)?.execute(values).map(drop)
}

/// One statement of an id and particulars, over all of them.
fn each(t: &Transaction<'_>, sql: &str, operations: &[&Operation]) -> rusqlite::Result<()> {
    let mut statement = t.prepare_cached(sql)?;
    for operation in operations {
        statement.execute(params![operation.id.as_str(), to_json(&operation.details)?])?;
    }
    Ok(())
}

pub(super) fn end(t: &Transaction<'_>, operation: &OperationEnd) -> rusqlite::Result<()> {
    let sql = "UPDATE operations SET state = ?2, finished_at = ?3, summary = ?4, details = ?5 WHERE id = ?1";
    let values = params![
        operation.id.as_str(),
        operation.state,
        now().as_microsecond(),
        operation.summary,
        to_json(&operation.details)?
    ];
    t.prepare_cached(sql)?.execute(values).map(drop)
}
