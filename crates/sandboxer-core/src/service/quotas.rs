//! Which limits hold for whom, and what is said where one is reached.
//!
//! The limits are looked at in the transaction that reserves a sandbox's row, so that of two creates at once only one can be the last.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::measure;
use super::manager::SandboxManager;
use super::{Consumer, Sandbox};
use crate::config::{Quota, QuotaFor, QuotaPeriod, Quotas};
use crate::store::now;
use crate::{Error, Result};

/// How long a measured size is believed: walking through everything for each of a hundred creates would help nobody.
const MEASURED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Sandboxes that are live at a time.
    Sandboxes,
    /// Hours of a processor.
    CpuHours,
    /// Hours that sandboxes exist.
    WallHours,
    /// Bytes on disk.
    Disk,
    /// Money.
    Cost,
}

impl Measure {
    /// The key of the configuration that limits it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::CpuHours => "cpu_hours",
            Self::WallHours => "wall_hours",
            Self::Disk => "disk",
            Self::Cost => "cost",
        }
    }

    /// Whether it is used up with time, and counted anew.
    fn is_per_period(self) -> bool {
        matches!(self, Self::CpuHours | Self::WallHours | Self::Cost)
    }
}

/// One limit that holds for somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The entry that says it.
    pub entry: QuotaFor,
    /// Whose sandboxes count: those of one kind of actor, or of all.
    pub actor_type: Option<String>,
    /// In which project.
    pub project: String,
    /// What is limited.
    pub measure: Measure,
    /// To how much.
    pub of: f64,
    /// Within which period.
    pub per: QuotaPeriod,
}

/// How much of a limit is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The limit.
    pub limit: Limit,
    /// How much.
    pub used: f64,
    /// In what, where it is money.
    pub currency: Option<String>,
}

/// A limit beside what is used of it, as it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageLimit {
    /// The entry of `quotas` that says it.
    pub entry: String,
    /// What is limited.
    pub limit: Measure,
    /// How much is used: a number, hours, bytes or money.
    pub used: f64,
    /// Of how much.
    pub of: f64,
    /// Within which period, where it is counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<QuotaPeriod>,
    /// In what, where it is money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

impl From<&Standing> for UsageLimit {
    fn from(standing: &Standing) -> Self {
        let limit = &standing.limit;
        Self {
            entry: limit.entry.to_string(),
            limit: limit.measure,
            used: standing.used,
            of: limit.of,
            per: Some(limit.per).filter(|_| limit.measure.is_per_period()),
            currency: standing.currency.clone(),
        }
    }
}

/// Every limit that holds for a consumer: its own entry or `*`, limit by limit, and its project's.
pub(super) fn limits_for(quotas: &Quotas, consumer: &Consumer) -> Vec<Limit> {
    let Consumer { actor_type, project } = consumer.clone();
    let own = QuotaFor::Consumer { actor_type: actor_type.clone(), project };
    let mut limits: Vec<Limit> = Vec::new();
    for entry in [own, QuotaFor::Everybody] {
        for mut limit in limits_of(quotas, &entry, &consumer.project) {
            limit.actor_type = Some(actor_type.clone());
            if !limits.iter().any(|known| known.measure == limit.measure) {
                limits.push(limit);
            }
        }
    }
    limits.extend(limits_of_project(quotas, &consumer.project));
    limits
}

/// The limits of a project as a whole.
pub(super) fn limits_of_project(quotas: &Quotas, project: &str) -> Vec<Limit> {
    limits_of(quotas, &QuotaFor::Project(project.to_owned()), project)
}

fn limits_of(quotas: &Quotas, entry: &QuotaFor, project: &str) -> Vec<Limit> {
    let Some(quota) = quotas.entries.get(entry) else { return Vec::new() };
    let limit = |(measure, of): (Measure, f64)| Limit {
        entry: entry.clone(),
        actor_type: None,
        project: project.to_owned(),
        measure,
        of,
        per: quota.per,
    };
    amounts(quota).into_iter().map(limit).collect()
}

fn amounts(quota: &Quota) -> Vec<(Measure, f64)> {
    let all = [
        (Measure::Sandboxes, quota.sandboxes.map(|count| count as f64)),
        (Measure::CpuHours, quota.cpu_hours),
        (Measure::WallHours, quota.wall_hours),
        (Measure::Disk, quota.disk.map(|bytes| bytes as f64)),
        (Measure::Cost, quota.cost),
    ];
    all.into_iter().filter_map(|(measure, of)| Some((measure, of?))).collect()
}

impl SandboxManager {
    /// The limits for a consumer's next sandbox, with sizes that are fresh enough to be held to them.
    pub(super) fn limits_now(&self, consumer: &Consumer) -> Result<Vec<Limit>> {
        let limits = limits_for(&self.parts.settings.quotas, consumer);
        if let Some(limit) = limits.iter().find(|limit| limit.measure == Measure::Disk) {
            self.measure_project(&limit.project)?;
        }
        Ok(limits)
    }

    /// The limits for taking up what is parked: how many may be live. Nobody is kept from their own work by what they have used.
    pub(super) fn limits_on_taking_up(&self, consumer: &Consumer) -> Vec<Limit> {
        let mut limits = limits_for(&self.parts.settings.quotas, consumer);
        limits.retain(|limit| limit.measure == Measure::Sandboxes);
        limits
    }

    /// Measures what a project has on disk, but for what was measured just now.
    fn measure_project(&self, project: &str) -> Result<()> {
        let fresh = self.store.measured_since(now() - MEASURED_FOR)?;
        let is_stale = |s: &Sandbox| s.consumer.project == project && !fresh.contains(s.id.as_str());
        let stale = self.store.present()?.into_iter().filter(is_stale);
        self.note_disk(&stale.map(|sandbox| measure(&sandbox)).collect::<Vec<_>>())
    }

    /// What is said where a limit is reached.
    pub(super) fn over_quota(&self, standing: &Standing, consumer: &Consumer) -> Error {
        let key = format!("quotas.{}.{}", standing.limit.entry, standing.limit.measure.key());
        let whose = match standing.limit.entry {
            QuotaFor::Everybody => format!(" for {}:{}", consumer.actor_type, consumer.project),
            _ => String::new(),
        };
        let file = &self.parts.settings.quotas.file;
        let file = file.as_ref().map_or_else(|| "your configuration".to_owned(), |f| f.display().to_string());
        let way_out = way_out(standing.limit.measure);
        // Where a server has its configuration is nobody's affair who asks it.
        let hint = match self.permissions.caller() {
            Some(_) => format!("{way_out}; or have whoever runs the server raise it"),
            None => format!("{way_out}; or raise `{key}` in {file}"),
        };
        Error::Refused {
            reason: format!("the limit `{key}` is reached{whose}: {}", told(standing, now())),
            hint: Some(hint),
        }
    }
}

/// How much is used of how much.
fn told(standing: &Standing, now: Timestamp) -> String {
    let (used, of) = (amount(standing.used), amount(standing.limit.of));
    let currency = standing.currency.as_deref().unwrap_or_default();
    let what = match standing.limit.measure {
        Measure::Sandboxes => return format!("{used} of {of} sandboxes are live"),
        Measure::Disk => return format!("{used} of {of} bytes are on disk"),
        Measure::CpuHours => "processor hours are used".to_owned(),
        Measure::WallHours => "hours are used".to_owned(),
        Measure::Cost => format!("{currency} are spent"),
    };
    let since = standing.limit.per.began(now).map(|from| format!(" since {from}")).unwrap_or_default();
    format!("{used} of {of} {what}{since}")
}

/// What makes room.
fn way_out(measure: Measure) -> &'static str {
    match measure {
        Measure::Sandboxes => "destroy what is not needed any more: `sandbox list` shows what there is",
        Measure::Disk => {
            "destroy what is not needed any more: `sandbox list` and `sandbox parked` show what there is"
        }
        Measure::CpuHours | Measure::WallHours | Measure::Cost => {
            "`sandbox usage` shows who used it, `sandbox list` what could be destroyed so that no more is used"
        }
    }
}

/// A number without decimals that say nothing.
fn amount(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
