//! What is remembered of a sandbox's environment: the intent before anything is made, each step, and what came of it.

use rusqlite::{Transaction, params};

use super::convert::to_json;
use super::{Store, events};
use crate::Result;
use crate::environment::Environment;
use crate::model::SandboxId;

impl Store {
    /// Remembers how far an environment has come. Durable when it returns.
    pub fn set_environment(&self, id: &SandboxId, environment: &Environment) -> Result<()> {
        self.write("remember an environment", |t| set_environment(t, id, environment))
    }

    /// Every extension that an environment was ever asked of, and the host.
    pub fn used_extensions(&self) -> Result<Vec<(String, String)>> {
        self.read("read the extensions in use", |c| {
            let sql = "SELECT DISTINCT environment ->> '$.route.extension_id', environment ->> '$.route.host' FROM sandboxes
                       WHERE environment IS NOT NULL";
            c.prepare_cached(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// Remembers that an environment was lost, or found again, with the event that tells of it, in one.
    pub fn tell_of_environment(
        &self,
        id: &SandboxId,
        environment: &Environment,
        kind: &str,
        reason: Option<&str>,
    ) -> Result<()> {
        self.write("remember an environment", |t| {
            set_environment(t, id, environment)?;
            events::insert_with(t, id, kind, reason)
        })
    }
}

pub(super) fn set_environment(
    t: &Transaction<'_>,
    id: &SandboxId,
    environment: &Environment,
) -> rusqlite::Result<()> {
    let sql = "UPDATE sandboxes SET environment = ?2 WHERE id = ?1";
    t.prepare_cached(sql)?.execute(params![id.as_str(), to_json(environment)?]).map(drop)
}
