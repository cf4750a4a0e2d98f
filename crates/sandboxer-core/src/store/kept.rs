//! What is kept of what was, and may be removed for want of room: undo data, checkpoints, parked work.

use rusqlite::{Row, Transaction, params};

use super::Store;
use super::convert::{now, time};
use crate::Result;
use crate::model::SandboxId;
use crate::service::KeptItem;

impl Store {
    /// Everything that is kept, in the order in which it goes: undo data and checkpoints before parked work, the oldest
    /// first.
    pub fn kept(&self) -> Result<Vec<KeptItem>> {
        let sql = "SELECT sandbox_id, kind, item, bytes, created_at, pinned FROM kept
                   ORDER BY kind = 'parked', created_at, seq";
        self.read("list what is kept", |c| {
            let mut statement = c.prepare_cached(sql)?;
            statement.query_map([], item)?.collect()
        })
    }

    /// Writes down that something is kept, or how large it has become.
    pub fn keep(&self, sandbox: &SandboxId, kind: &str, item: &str, bytes: u64) -> Result<()> {
        self.write("remember what is kept", |t| insert(t, sandbox, kind, item, bytes))
    }

    /// Writes down that something is kept no longer.
    pub fn forget(&self, sandbox: &SandboxId, kind: &str, item: &str) -> Result<()> {
        self.write("forget what was kept", |t| remove(t, sandbox, kind, item))
    }

    /// Marks something as what budgets leave alone, or takes the mark away. False where there is no such thing.
    pub fn pin(&self, sandbox: &SandboxId, kind: &str, item: &str, pinned: bool) -> Result<bool> {
        self.write("pin what is kept", |t| {
            let sql = "UPDATE kept SET pinned = ?4 WHERE sandbox_id = ?1 AND kind = ?2 AND item = ?3";
            Ok(t.prepare_cached(sql)?.execute(params![sandbox.as_str(), kind, item, pinned])? > 0)
        })
    }
}

fn item(row: &Row<'_>) -> rusqlite::Result<KeptItem> {
    Ok(KeptItem {
        sandbox_id: SandboxId::from_string(row.get::<_, String>(0)?),
        kind: row.get(1)?,
        item: row.get(2)?,
        bytes: row.get::<_, i64>(3)?.unsigned_abs(),
        created_at: time(row, 4)?,
        pinned: row.get(5)?,
    })
}

pub(super) fn insert(
    t: &Transaction<'_>,
    sandbox: &SandboxId,
    kind: &str,
    item: &str,
    bytes: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO kept (sandbox_id, kind, item, bytes, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (sandbox_id, kind, item) DO UPDATE SET bytes = excluded.bytes";
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    t.prepare_cached(sql)?
        .execute(params![sandbox.as_str(), kind, item, bytes, now().as_microsecond()])
        .map(drop)
}

pub(super) fn remove(
    t: &Transaction<'_>,
    sandbox: &SandboxId,
    kind: &str,
    item: &str,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM kept WHERE sandbox_id = ?1 AND kind = ?2 AND item = ?3";
    t.prepare_cached(sql)?.execute(params![sandbox.as_str(), kind, item]).map(drop)
}
