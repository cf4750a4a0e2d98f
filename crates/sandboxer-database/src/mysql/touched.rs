//! Which tables the transaction may have written to.

use std::collections::BTreeSet;

use mysql::Conn;
use mysql::prelude::Queryable;
use sandboxer_core::Result;

use super::held::Held;
use super::tables::Catalogue;

/// Database and name.
pub(super) type Name = (String, String);

const PLUGIN: &str = "SELECT DISTINCT table_schema, table_name FROM information_schema.metadata_lock_info \
    WHERE thread_id = ? AND lock_type = 'Table metadata lock' AND lock_mode NOT IN \
    ('MDL_INTENTION_EXCLUSIVE', 'MDL_SHARED', 'MDL_SHARED_HIGH_PRIO', 'MDL_SHARED_READ')";
const PERFORMANCE: &str = "SELECT DISTINCT m.object_schema, m.object_name FROM performance_schema.metadata_locks m \
    JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id \
    WHERE t.processlist_id = ? AND m.object_type = 'TABLE' AND m.lock_type NOT IN \
    ('INTENTION_EXCLUSIVE', 'SHARED', 'SHARED_HIGH_PRIO', 'SHARED_READ') AND EXISTS (SELECT 1 FROM performance_schema.setup_instruments \
    WHERE name = 'wait/lock/metadata/sql/mdl' AND enabled = 'YES')";
/// Nobody who cannot see the instrument can tell "no locks" from "not recorded".
const PERFORMANCE_IS_ON: &str = "SELECT @@performance_schema AND EXISTS (SELECT 1 FROM performance_schema.setup_instruments \
    WHERE name = 'wait/lock/metadata/sql/mdl' AND enabled = 'YES')";

/// The tables, and what to tell of how they were found.
pub(super) fn tables(held: &mut Held) -> Result<(Vec<Name>, Option<String>)> {
    let id = held.connection_id().unwrap_or_default();
    let known = locked(held.outside()?, id);
    if let Some(names) = known {
        return Ok((names, None));
    }
    let server = held.server.clone();
    let all = Catalogue { server: &server, conn: held.outside()? }.all()?;
    let notice = format!(
        "the server does not tell which tables were written to, so all {} were compared; INSTALL SONAME 'metadata_lock_info' makes it faster",
        all.len()
    );
    Ok((all, Some(notice)))
}

/// A table that was written to stays locked against changes of its schema.
fn locked(conn: &mut Conn, id: u32) -> Option<Vec<Name>> {
    let names = match conn.exec::<Name, _, _>(PLUGIN, (id,)) {
        Ok(names) => names,
        Err(_) => {
            let on: Option<bool> = conn.query_first(PERFORMANCE_IS_ON).ok().flatten();
            on.filter(|on| *on)?;
            conn.exec(PERFORMANCE, (id,)).ok()?
        }
    };
    let mut names: BTreeSet<Name> = names.into_iter().collect();
    with_cascades(conn, &mut names)?;
    Some(names.into_iter().collect())
}

/// Foreign keys carry deletions and updates on to other tables.
fn with_cascades(conn: &mut Conn, names: &mut BTreeSet<Name>) -> Option<()> {
    let sql = "SELECT k.referenced_table_schema, k.referenced_table_name, k.table_schema, k.table_name \
        FROM information_schema.key_column_usage k JOIN information_schema.referential_constraints r \
        ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name \
        WHERE k.referenced_table_name IS NOT NULL AND (r.delete_rule IN ('CASCADE', 'SET NULL') OR r.update_rule IN ('CASCADE', 'SET NULL'))";
    let edges: Vec<(String, String, String, String)> = conn.query(sql).ok()?;
    loop {
        let before = names.len();
        for (schema, name, child_schema, child) in &edges {
            if names.contains(&(schema.clone(), name.clone())) {
                names.insert((child_schema.clone(), child.clone()));
            }
        }
        if names.len() == before {
            return Some(());
        }
    }
}
