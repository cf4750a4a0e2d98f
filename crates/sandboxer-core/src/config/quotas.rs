//! The key `quotas`: how much each consumer, or a project as a whole, may have.
//!
//! An entry is for one consumer (`ACTOR:PROJECT`), for a project's consumers together (`project:ID`), or for everybody, each consumer
//! for itself (`*`). What a consumer's own entry says counts for it instead of what `*` says, limit by limit; a project's entry holds
//! besides. Only the user says these: whoever is limited would raise them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use super::keys::{actor_type, word};
use super::schema::located;
use super::size::parse_size;
use crate::{Error, Result};

/// The key's name.
pub(super) const KEY: &str = "quotas";

/// More than anybody has; what is above cannot be counted exactly.
const MOST: f64 = 1e15;

/// All entries of the key `quotas`, and the file that says them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas {
    /// Where they are written, for whoever has to raise one.
    pub file: Option<PathBuf>,
    /// By whom they are for.
    pub entries: BTreeMap<QuotaFor, Quota>,
}

/// Whom an entry is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaFor {
    /// `*`: every consumer, each for itself.
    Everybody,
    /// `project:ID`: all consumers of a project together.
    Project(String),
    /// `ACTOR:PROJECT`.
    Consumer {
        /// `adm`, `agt` or `atm`.
        actor_type: String,
        /// The project's id.
        project: String,
    },
}

/// What may be had; what is not set is not limited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// How many sandboxes may be live at a time.
    pub sandboxes: Option<u64>,
    /// Hours of a processor within [`Self::per`].
    pub cpu_hours: Option<f64>,
    /// Hours that sandboxes exist within [`Self::per`], added up.
    pub wall_hours: Option<f64>,
    /// Bytes on disk, as last measured.
    pub disk: Option<u64>,
    /// Money within [`Self::per`], in each currency for itself.
    pub cost: Option<f64>,
    /// When the hours and the money are counted anew.
    pub per: QuotaPeriod,
}

/// When a limit is counted anew; days and months are those of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuotaPeriod {
    /// Every day.
    Day,
    /// On the first of each month.
    #[default]
    Month,
    /// Never.
    Ever,
}

impl QuotaPeriod {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Ever => "ever",
        }
    }

    /// When the period began that `now` lies in; `None` where everything counts.
    pub fn began(self, now: Timestamp) -> Option<Timestamp> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let first = match self {
            Self::Day => today,
            Self::Month => today.first_of_month(),
            Self::Ever => return None,
        };
        first.to_zoned(TimeZone::UTC).ok().map(|midnight| midnight.timestamp())
    }
}

impl fmt::Display for QuotaFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("*"),
            Self::Project(project) => write!(f, "project:{project}"),
            Self::Consumer { actor_type, project } => write!(f, "{actor_type}:{project}"),
        }
    }
}

impl QuotaFor {
    /// Reads `ACTOR:PROJECT`, `project:ID` or `*`.
    fn parse(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "*" => Ok(Self::Everybody),
            Some(("project", project)) => Ok(Self::Project(word(project)?)),
            Some((actor, project)) => {
                Ok(Self::Consumer { actor_type: actor_type(actor)?, project: word(project)? })
            }
            None => Err(Error::Usage {
                message: format!("{text:?} is nobody that a quota can be for"),
                hint: Some("write ACTOR:PROJECT, such as agt:shop, or project:ID, or \"*\"".to_owned()),
            }),
        }
    }
}

/// An entry as a file has it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Written {
    sandboxes: Option<u64>,
    cpu_hours: Option<Spanned<f64>>,
    wall_hours: Option<Spanned<f64>>,
    disk: Option<Spanned<String>>,
    cost: Option<Spanned<f64>>,
    per: QuotaPeriod,
}

impl Quotas {
    /// Reads what `file` says. A complaint is about the line of its entry, or of the limit itself.
    pub(super) fn read(written: BTreeMap<String, Spanned<Written>>, file: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for (whom, entry) in written {
            let key = format!("{KEY}.{whom}");
            let line = Some(entry.referenced.line()).filter(|line| *line > 0);
            let whom = QuotaFor::parse(&whom).map_err(|error| located(error, KEY, file, line))?;
            entries.insert(whom, entry.value.read(&key, file)?);
        }
        Ok(Self { file: Some(file.to_path_buf()), entries })
    }
}

impl Written {
    fn read(self, key: &str, file: &Path) -> Result<Quota> {
        let amount = |name: &str, value: Option<Spanned<f64>>| {
            limit(value, |number| check_amount(*number), &format!("{key}.{name}"), file)
        };
        Ok(Quota {
            sandboxes: self.sandboxes,
            cpu_hours: amount("cpu_hours", self.cpu_hours)?,
            wall_hours: amount("wall_hours", self.wall_hours)?,
            disk: limit(self.disk, |text| parse_size(text), &format!("{key}.disk"), file)?,
            cost: amount("cost", self.cost)?,
            per: self.per,
        })
    }
}

fn limit<T, V>(
    value: Option<Spanned<T>>,
    read: impl FnOnce(&T) -> Result<V>,
    key: &str,
    file: &Path,
) -> Result<Option<V>> {
    let Some(spanned) = value else { return Ok(None) };
    let line = Some(spanned.referenced.line()).filter(|line| *line > 0);
    read(&spanned.value).map(Some).map_err(|error| located(error, key, file, line))
}

fn check_amount(number: f64) -> Result<f64> {
    if (0.0..=MOST).contains(&number) {
        return Ok(number);
    }
    Err(Error::usage(format!("{number} is not an amount from 0 on")))
}

#[cfg(test)]
#[path = "quotas_tests.rs"]
mod tests;
