//! What was used, by whom: sums over the meters, within a period, beside the limits that hold.
//!
//! The store keeps the meters: when a sandbox existed by its state, processors and memory by what commands report, disk by what was last
//! measured. A bill is read from them; nothing here fails a command.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manager::SandboxManager;
use super::quotas::{UsageLimit, limits_for, limits_of_project};
use super::{Consumer, SandboxDisk};
use crate::model::SandboxId;
use crate::store::now;
use crate::{Error, Result};

/// What one row of a report stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageBy {
    /// Who asked: `ACTOR:PROJECT`.
    #[default]
    Consumer,
    /// All consumers of a project.
    Project,
    /// What sandboxes were made from.
    Profile,
    /// What made their environments.
    Extension,
    /// Each for itself, by id.
    Sandbox,
}

/// What is asked of the meters. Without anything, it is all that was ever used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// What a row stands for.
    pub by: UsageBy,
    /// From when on. Processors are counted by days of UTC: the day that this is in counts whole.
    pub since: Option<Timestamp>,
    /// Up to when, exclusive.
    pub until: Option<Timestamp>,
    /// Only this consumer's sandboxes: whoever may see no others.
    pub consumer: Option<Consumer>,
    /// Only this project's sandboxes.
    pub project: Option<String>,
    /// Only this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only what this principal asked for.
    pub principal: Option<String>,
}

/// What was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Used {
    /// How many sandboxes there were.
    pub sandboxes: u64,
    /// How many of them are live now.
    pub live: u64,
    /// How long they existed and were not put away, added up.
    pub wall_seconds: f64,
    /// Processor time of the commands in them.
    pub cpu_seconds: f64,
    /// The most memory that commands in one of them had at a time, in bytes, if any reported it.
    pub memory_peak: Option<u64>,
    /// On disk now, in bytes, as last measured; nothing where none of them ever was.
    pub disk: Option<u64>,
    /// What it cost, by currency. Amounts in different currencies are never added.
    pub cost: BTreeMap<String, f64>,
}

impl Used {
    fn add(&mut self, other: &Self) {
        self.sandboxes += other.sandboxes;
        self.live += other.live;
        self.wall_seconds += other.wall_seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.memory_peak = self.memory_peak.max(other.memory_peak);
        if let Some(bytes) = other.disk {
            *self.disk.get_or_insert(0) += bytes;
        }
        for (currency, amount) in &other.cost {
            *self.cost.entry(currency.clone()).or_default() += amount;
        }
    }
}

/// One row of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    /// Whose or of what: a consumer, a project, a profile, an extension, or a sandbox's id.
    pub key: String,
    /// The sandbox's name, where a row is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was used.
    #[serde(flatten)]
    pub used: Used,
    /// The limits that hold for it, each with what is used of it in its own period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<UsageLimit>,
}

/// What was used, by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageReport {
    /// What a row stands for.
    pub by: UsageBy,
    /// From when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// Up to when: the end that was asked for, or the moment of the report.
    #[schemars(with = "String")]
    pub until: Timestamp,
    /// The longest time first.
    pub rows: Vec<UsageRow>,
    /// All rows together.
    pub total: Used,
}

impl SandboxManager {
    /// What was used in a period, by whom, beside the limits that hold.
    pub fn usage(&self, query: &UsageQuery) -> Result<UsageReport> {
        if query.since.zip(query.until).is_some_and(|(since, until)| since > until) {
            return Err(Error::usage("the period ends before it begins"));
        }
        let now = now();
        let mut rows = self.store.usage(query, now)?;
        for row in &mut rows {
            row.limits = self.limits_beside(query.by, &row.key, now)?;
        }
        rows.sort_by(|a, b| b.used.wall_seconds.total_cmp(&a.used.wall_seconds).then(a.key.cmp(&b.key)));
        let mut total = Used::default();
        rows.iter().for_each(|row| total.add(&row.used));
        let until = query.until.unwrap_or(now);
        Ok(UsageReport { by: query.by, since: query.since, until, rows, total })
    }

    fn limits_beside(&self, by: UsageBy, key: &str, now: Timestamp) -> Result<Vec<UsageLimit>> {
        let quotas = &self.parts.settings.quotas;
        let limits = match (by, key.split_once(':')) {
            (UsageBy::Consumer, Some((actor, project))) => {
                limits_for(quotas, &Consumer { actor_type: actor.to_owned(), project: project.to_owned() })
            }
            (UsageBy::Project, _) => limits_of_project(quotas, key),
            _ => Vec::new(),
        };
        let standings = self.store.standings(&limits, now)?;
        Ok(standings.iter().map(UsageLimit::from).collect())
    }

    /// Adds what a command used to its sandbox's meter, on this day.
    pub fn add_use(&self, id: &SandboxId, cpu: Duration, memory_peak: Option<u64>) -> Result<()> {
        self.store.add_use(id, cpu, memory_peak, now())
    }

    /// Puts what was measured on the meters.
    pub(super) fn note_disk(&self, measured: &[SandboxDisk]) -> Result<()> {
        let sizes: Vec<(&SandboxId, u64)> = measured.iter().map(|d| (&d.sandbox_id, d.total)).collect();
        self.store.set_disk(&sizes, now())
    }
}
