//! The tables, and how an older format becomes the present one.
//!
//! `PRAGMA user_version` holds the format. Each step of [`MIGRATIONS`] leads from one format to the next; all steps that
//! are needed run in one transaction with the new number, so that a crash leaves either format and nothing between.

use rusqlite::{Connection, TransactionBehavior};

/// The format this version reads and writes.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// `MIGRATIONS[n]` leads from format n to n + 1. Never change a released one: add another.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE sandboxes (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        state TEXT NOT NULL,
        consumer TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        last_checkpoint INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE UNIQUE INDEX sandboxes_by_live_name ON sandboxes (name) WHERE state NOT IN ('destroyed', 'failed');
    CREATE INDEX sandboxes_by_plan ON sandboxes (plan_id);
    CREATE INDEX sandboxes_unfinished ON sandboxes (id)
        WHERE state IN ('requested', 'provisioning', 'destroying');
    CREATE INDEX sandboxes_expiring ON sandboxes (expires_at)
        WHERE expires_at IS NOT NULL AND state IN ('ready', 'active');

    CREATE TABLE workspaces (
        sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        resource_id TEXT NOT NULL,
        resource TEXT NOT NULL,
        requested_strategy TEXT NOT NULL,
        reason TEXT NOT NULL,
        ref TEXT NOT NULL,
        live INTEGER NOT NULL DEFAULT 1,
        PRIMARY KEY (sandbox_id, position)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX workspaces_one_live_per_plan ON workspaces (plan_id, resource_id) WHERE live = 1;

    CREATE TABLE checkpoints (
        sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
        sequence INTEGER NOT NULL,
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        workspaces TEXT NOT NULL,
        snapshots TEXT NOT NULL,
        PRIMARY KEY (sandbox_id, sequence),
        UNIQUE (sandbox_id, id)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE operations (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        finished_at INTEGER,
        summary TEXT NOT NULL,
        details TEXT NOT NULL
    ) STRICT;
    CREATE INDEX operations_by_sandbox ON operations (sandbox_id);
    CREATE INDEX operations_unfinished ON operations (sandbox_id) WHERE state IN ('running', 'decided');
",
    "
    DROP INDEX sandboxes_by_live_name;
    CREATE UNIQUE INDEX sandboxes_by_live_name ON sandboxes (name)
        WHERE state NOT IN ('destroyed', 'failed', 'parked');
    CREATE TABLE kept (
        seq INTEGER PRIMARY KEY,
        sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
        kind TEXT NOT NULL,
        item TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        UNIQUE (sandbox_id, kind, item)
    ) STRICT;
",
    "
    ALTER TABLE sandboxes ADD COLUMN environment TEXT;
    ALTER TABLE sandboxes ADD COLUMN idempotency_key TEXT;
    ALTER TABLE sandboxes ADD COLUMN boot TEXT;
    ALTER TABLE sandboxes ADD COLUMN expires_in_boot INTEGER;
    CREATE INDEX sandboxes_expiring_in_boot ON sandboxes (boot, expires_in_boot)
        WHERE expires_in_boot IS NOT NULL AND state IN ('ready', 'active');
    CREATE UNIQUE INDEX sandboxes_by_live_key ON sandboxes (idempotency_key)
        WHERE idempotency_key IS NOT NULL AND state NOT IN ('destroyed', 'failed', 'parked');
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        sandbox_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        at INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_sandbox ON events (sandbox_id, seq);
    CREATE TABLE subscribers (
        name TEXT PRIMARY KEY,
        delivered INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE sandboxes ADD COLUMN principal TEXT;
    CREATE INDEX sandboxes_live ON sandboxes (seq) WHERE state NOT IN ('destroyed', 'failed', 'parked');
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        principal TEXT NOT NULL,
        consumer TEXT NOT NULL,
        scopes TEXT NOT NULL,
        resources TEXT NOT NULL,
        secret TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) STRICT, WITHOUT ROWID;
",
    include_str!("meters.sql"),
];

/// The format of the open database; 0 where it is empty.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whether anything is in it.
pub(super) fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Leads from format `found` to the present one. The caller has made sure that nobody else does at the same time.
pub(super) fn migrate(connection: &mut Connection, found: u32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in &MIGRATIONS[found as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// A database of an older format, as an older version would have made it.
#[cfg(test)]
pub(super) fn make_format(file: &std::path::Path, format: u32) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    MIGRATIONS[..format as usize].iter().try_for_each(|step| connection.execute_batch(step))?;
    connection.pragma_update(None, "user_version", format)
}
