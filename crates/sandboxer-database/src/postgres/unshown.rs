//! What the held transaction changed outside of tables and definitions: it cannot be shown in detail, so it is shown that it is there.
//!
//! Nobody may approve a difference that leaves something out. Roles, databases and their settings belong to the whole server;
//! their catalogs stay locked by whoever changed them. The others have rows with our numbers.

use sandboxer_core::Result;

use super::diff::Base;
use super::rows::{Session, text};
use crate::engine::SchemaChange;

/// Catalogs of the whole server, and what is in them.
const SHARED: [(&str, &str); 6] = [
    ("pg_authid", "roles, or passwords of roles"),
    ("pg_auth_members", "memberships of roles"),
    ("pg_database", "databases"),
    ("pg_db_role_setting", "settings of roles or databases"),
    ("pg_tablespace", "tablespaces"),
    ("pg_subscription", "subscriptions"),
];

/// Catalogs of this database whose rows are compared nowhere else, and what is in them.
const UNCOMPARED: [(&str, &str); 12] = [
    ("pg_default_acl", "default privileges"),
    ("pg_language", "languages"),
    ("pg_foreign_data_wrapper", "wrappers of foreign data"),
    ("pg_collation", "collations"),
    ("pg_conversion", "conversions"),
    ("pg_opclass", "operator classes"),
    ("pg_am", "access methods"),
    ("pg_transform", "transforms"),
    ("pg_statistic_ext", "extended statistics"),
    ("pg_ts_config", "configurations of text search"),
    ("pg_ts_dict", "dictionaries of text search"),
    ("pg_largeobject_metadata", "large objects"),
];

/// One change for each catalog that was written to.
pub(super) fn changes(inside: &mut dyn Session, base: &Base) -> Result<Vec<SchemaChange>> {
    let shared = SHARED.map(|(catalog, what)| {
        format!(
            "SELECT '{catalog}', '{what}' FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid() AND granted \
             AND database = 0 AND relation = to_regclass('pg_catalog.{catalog}') \
             AND mode NOT IN ('AccessShareLock', 'RowShareLock')"
        )
    });
    let own = UNCOMPARED.map(|(catalog, what)| {
        let written = base.written("x");
        format!("SELECT '{catalog}', '{what}' FROM pg_catalog.{catalog} x WHERE {written}")
    });
    let answer = inside.query(&[&shared[..], &own[..]].concat().join(" UNION "))?;
    Ok(answer.rows.iter().map(|row| change(&text(row, 0), &text(row, 1))).collect())
}

fn change(catalog: &str, what: &str) -> SchemaChange {
    let told = format!("-- {what} were changed, in a way that cannot be shown here\n");
    SchemaChange { kind: "catalog".to_owned(), name: catalog.to_owned(), old: None, new: Some(told) }
}
