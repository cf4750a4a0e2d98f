//! Sandboxes a page at a time, as far as somebody sees them.

use rusqlite::{Connection, OptionalExtension, ToSql};

use super::Store;
use super::sandboxes::{LIVE, select};
use crate::access::Visibility;
use crate::model::SandboxId;
use crate::service::{Sandbox, SandboxState};
use crate::{Error, Result};

/// How many are in a page, unless somebody says otherwise.
pub const PAGE: usize = 100;

/// Which part of the sandboxes is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// Those that were, too.
    pub all: bool,
    /// In this state only.
    pub state: Option<SandboxState>,
    /// Of this plan only.
    pub plan: Option<String>,
    /// Of this project only.
    pub project: Option<String>,
    /// Behind this one.
    pub after: Option<SandboxId>,
    /// At most so many.
    pub limit: usize,
}

impl Default for PageQuery {
    fn default() -> Self {
        Self { all: false, state: None, plan: None, project: None, after: None, limit: PAGE }
    }
}

/// A part of the sandboxes, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The part.
    pub sandboxes: Vec<Sandbox>,
    /// The last of them, where there are more behind it.
    pub next: Option<SandboxId>,
}

/// Whether a sandbox is seen, as [`Visibility::includes`] has it.
const SEEN: &str = "CASE ifnull(x.environment ->> '$.scope', 'consumer')
    WHEN 'host' THEN 1
    WHEN 'project' THEN x.consumer ->> '$.project' = :own_project
    ELSE x.principal = :principal AND x.consumer ->> '$.project' = :own_project
         AND x.consumer ->> '$.actor_type' = :own_actor END";

impl Store {
    /// The part of the sandboxes that is asked for, as far as it is seen.
    pub fn page(&self, query: &PageQuery, visibility: &Visibility) -> Result<Page> {
        let behind = match &query.after {
            Some(id) => Some(self.place(id, visibility)?),
            None => None,
        };
        // One more than asked for tells whether there are more.
        let mut sandboxes = self.read("list the sandboxes", |c| page(c, query, behind, visibility))?;
        let more = sandboxes.len() > query.limit;
        sandboxes.truncate(query.limit);
        let next = sandboxes.last().filter(|_| more).map(|last| last.id.clone());
        Ok(Page { sandboxes, next })
    }

    /// How many sandboxes are in each state that is not an end.
    pub fn count_by_state(&self) -> Result<Vec<(String, u64)>> {
        self.read("count the sandboxes", |c| {
            let sql = "SELECT state, count(*) FROM sandboxes
                       WHERE state NOT IN ('destroyed', 'failed') GROUP BY state";
            let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()));
            c.prepare_cached(sql)?.query_map([], pair)?.collect()
        })
    }

    /// Where a sandbox is in the order. One that is not seen is as one that is not there: a page behind it would tell that it is.
    fn place(&self, id: &SandboxId, visibility: &Visibility) -> Result<i64> {
        let unknown = || Error::not_found("sandbox", id.as_str());
        let seen = self.sandbox(id)?.filter(|sandbox| visibility.includes(&sandbox.owner()));
        let id = seen.ok_or_else(unknown)?.id;
        let place = self.read("look up a sandbox", |c| {
            let sql = "SELECT seq FROM sandboxes WHERE id = ?1";
            c.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0)).optional()
        })?;
        place.ok_or_else(unknown)
    }
}

fn page(
    connection: &Connection,
    query: &PageQuery,
    behind: Option<i64>,
    visibility: &Visibility,
) -> rusqlite::Result<Vec<Sandbox>> {
    let limit = query.limit.saturating_add(1) as i64;
    let state = query.state.map(SandboxState::as_str);
    let mut values: Vec<(&str, &dyn ToSql)> = vec![(":limit", &limit)];
    let mut conditions = Vec::new();
    let live = LIVE.replace("s.", "x.");
    if !query.all && state.is_none() {
        conditions.push(live.as_str());
    }
    for (name, value, condition) in [
        (":behind", behind.as_ref().map(|v| v as &dyn ToSql), "x.seq < :behind"),
        (":state", state.as_ref().map(|v| v as &dyn ToSql), "x.state = :state"),
        (":plan", query.plan.as_ref().map(|v| v as &dyn ToSql), "x.plan_id = :plan"),
        (
            ":project",
            query.project.as_ref().map(|v| v as &dyn ToSql),
            "x.consumer ->> '$.project' = :project",
        ),
    ] {
        if let Some(value) = value {
            values.push((name, value));
            conditions.push(condition);
        }
    }
    if let Visibility::Of { principal, consumer } = visibility {
        conditions.push(SEEN);
        values.extend([
            (":principal", principal as &dyn ToSql),
            (":own_project", &consumer.project),
            (":own_actor", &consumer.actor_type),
        ]);
    }
    let conditions = if conditions.is_empty() { "1".to_owned() } else { conditions.join(" AND ") };
    let condition = format!(
        "s.seq IN (SELECT x.seq FROM sandboxes x WHERE {conditions} ORDER BY x.seq DESC LIMIT :limit)"
    );
    select(connection, &condition, &*values)
}
