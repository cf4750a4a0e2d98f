//! Checkpoints: their names, their order, and which are pinned. The content is the strategies' business.

use rusqlite::{Row, Transaction, params};

use super::Store;
use super::convert::{from_json, time, to_json};
use crate::Result;
use crate::model::{CheckpointId, SandboxId};
use crate::service::CheckpointRecord;

impl Store {
    /// The checkpoints of a sandbox, oldest first.
    pub fn checkpoints(&self, sandbox: &SandboxId) -> Result<Vec<CheckpointRecord>> {
        let sql = "SELECT id, sequence, created_at, workspaces, pinned, snapshots
                   FROM checkpoints WHERE sandbox_id = ?1 ORDER BY sequence";
        self.read("list the checkpoints", |c| {
            let mut statement = c.prepare_cached(sql)?;
            statement.query_map([sandbox.as_str()], record)?.collect()
        })
    }

    /// The number that the last checkpoint of a sandbox had, pruned ones included; 0 where there was none.
    pub fn last_checkpoint(&self, sandbox: &SandboxId) -> Result<u64> {
        let sql = "SELECT COALESCE(MAX(last_checkpoint), 0) FROM sandboxes WHERE id = ?1";
        self.read("number a checkpoint", |c| {
            c.prepare_cached(sql)?
                .query_row([sandbox.as_str()], |row| row.get::<_, i64>(0))
                .map(i64::unsigned_abs)
        })
    }

    /// Writes a checkpoint down once it is taken.
    pub fn add_checkpoint(&self, sandbox: &SandboxId, record: &CheckpointRecord) -> Result<()> {
        self.write("record a checkpoint", |t| insert(t, sandbox, record))
    }

    /// Forgets checkpoints.
    pub fn remove_checkpoints(&self, sandbox: &SandboxId, ids: &[CheckpointId]) -> Result<()> {
        self.write("forget checkpoints", |t| {
            let mut statement =
                t.prepare_cached("DELETE FROM checkpoints WHERE sandbox_id = ?1 AND id = ?2")?;
            ids.iter().try_for_each(|id| statement.execute([sandbox.as_str(), id.as_str()]).map(drop))
        })
    }

    /// Marks a checkpoint as one that pruning leaves alone, or takes the mark away. False where there is no such one.
    pub fn pin_checkpoint(&self, sandbox: &SandboxId, id: &CheckpointId, pinned: bool) -> Result<bool> {
        self.write("pin a checkpoint", |t| {
            let sql = "UPDATE checkpoints SET pinned = ?3 WHERE sandbox_id = ?1 AND id = ?2";
            Ok(t.prepare_cached(sql)?.execute(params![sandbox.as_str(), id.as_str(), pinned])? > 0)
        })
    }
}

pub(super) fn insert(
    t: &Transaction<'_>,
    sandbox: &SandboxId,
    record: &CheckpointRecord,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO checkpoints (sandbox_id, sequence, id, created_at, pinned, workspaces, snapshots)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let sequence = record.sequence as i64;
    t.prepare_cached(sql)?.execute(params![
        sandbox.as_str(),
        sequence,
        record.id.as_str(),
        record.created_at.as_microsecond(),
        record.pinned,
        to_json(&record.workspaces)?,
        to_json(&record.snapshots)?,
    ])?;
    let sql = "UPDATE sandboxes SET last_checkpoint = MAX(last_checkpoint, ?2) WHERE id = ?1";
    t.prepare_cached(sql)?.execute(params![sandbox.as_str(), sequence]).map(drop)
}

fn record(row: &Row<'_>) -> rusqlite::Result<CheckpointRecord> {
    Ok(CheckpointRecord {
        id: CheckpointId::from_string(row.get::<_, String>(0)?),
        sequence: row.get::<_, i64>(1)?.unsigned_abs(),
        created_at: time(row, 2)?,
        workspaces: from_json(row, 3)?,
        pinned: row.get(4)?,
        snapshots: from_json(row, 5)?,
    })
}
