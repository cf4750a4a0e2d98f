//! The resolved values, ready for use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use super::custom_strategy::CustomStrategy;
use super::database::DatabaseSettings;
use super::events::EventsSettings;
use super::keys::KEYS;
use super::quotas::Quotas;
use super::run::RunSettings;
use super::size::parse_size;
use crate::{Error, Result};

/// How long a command waits for another process that holds a lock, unless told otherwise.
const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(10);

/// What checkpoints, undo data and parked work may take together, unless told otherwise.
const DEFAULT_MAX_SIZE: u64 = 20 << 30;

/// How much of a filesystem is left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of its size.
    Percent(u8),
}

impl MinFree {
    /// Reads `5%` or a size.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let Some(number) = text.trim().strip_suffix('%') else { return parse_size(text).map(Self::Bytes) };
        match number.trim().parse() {
            Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
            _ => Err(Error::usage(format!("{text:?} is not a share from 0% to 100%"))),
        }
    }

    /// In bytes, of a filesystem of `size` bytes.
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => size / 100 * u64::from(percent),
        }
    }
}

impl std::fmt::Display for MinFree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Percent(percent) => write!(f, "{percent}% of the filesystem"),
        }
    }
}

/// What an overlay does about a machine that may go down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is flushed on the sandbox's behalf: what was written last may be incomplete then.
    #[default]
    Volatile,
    /// What programs flush is flushed, as in any directory.
    Strict,
}

impl Durability {
    /// The word for it, in files and as the strategies' option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::Strict => "strict",
        }
    }
}

/// Every setting, resolved over all layers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `sandbox.strategy`: the strategy where neither the caller nor the resource's type asks for one.
    pub sandbox_strategy: Option<String>,
    /// `sandbox.custom_strategies`, by name.
    pub custom_strategies: BTreeMap<String, CustomStrategy>,
    /// `sandbox.default_ttl`: how long a sandbox lives that was made without a time to live.
    pub default_ttl: Option<SignedDuration>,
    /// `state.lock_wait`: how long to wait for another process.
    pub lock_wait: Duration,
    /// `copy.include`: the patterns that a copy is limited to; empty means everything.
    pub include: Vec<String>,
    /// `copy.exclude`: the patterns that a copy leaves out.
    pub exclude: Vec<String>,
    /// `copy.threads`: how many threads copy; `None` leaves it to the strategy.
    pub threads: Option<usize>,
    /// `copy.keep_base`: how many bytes of base content a workspace keeps for merging; `None` leaves it to the strategy.
    pub keep_base: Option<u64>,
    /// `state.max_size`: how many bytes checkpoints, undo data and parked work may take together.
    pub max_size: u64,
    /// `state.min_free`: how much of the filesystem they leave free.
    pub min_free: MinFree,
    /// `overlay.durability`: what an overlay does about a machine that may go down.
    pub durability: Durability,
    /// `state.scratch`: where workspaces are kept, instead of the choice by filesystem.
    pub scratch: Option<PathBuf>,
    /// `commit.policy`: policy files that every commit is held to.
    pub policies: Vec<PathBuf>,
    /// `actor_type`: who asks, `adm`, `agt` or `atm`.
    pub actor_type: Option<String>,
    /// `project`: the calling project's id.
    pub project: Option<String>,
    /// Everything below `database`: how held transactions treat others.
    pub database: DatabaseSettings,
    /// Everything below `events`: whom lifecycle events are told to.
    pub events: EventsSettings,
    /// `quotas`: how much each consumer may have.
    pub quotas: Quotas,
    /// Everything below `run`: how commands are contained.
    pub run: RunSettings,
    /// For each key, the layer that decided, in words.
    pub origins: BTreeMap<String, String>,
    /// The untrusted project file that chose [`Self::sandbox_strategy`], if one did. Resolution then refuses a
    /// strategy that does not isolate, whatever name it goes by.
    pub untrusted_strategy: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sandbox_strategy: None,
            custom_strategies: BTreeMap::new(),
            default_ttl: None,
            lock_wait: DEFAULT_LOCK_WAIT,
            include: Vec::new(),
            exclude: Vec::new(),
            threads: None,
            keep_base: None,
            max_size: DEFAULT_MAX_SIZE,
            min_free: MinFree::Percent(1),
            durability: Durability::default(),
            scratch: None,
            policies: Vec::new(),
            actor_type: None,
            project: None,
            database: DatabaseSettings::default(),
            events: EventsSettings::default(),
            quotas: Quotas::default(),
            run: RunSettings::default(),
            origins: KEYS.iter().map(|key| (key.name.to_owned(), "default".to_owned())).collect(),
            untrusted_strategy: None,
        }
    }
}

impl Settings {
    /// Which layer decided `key`.
    pub fn origin(&self, key: &str) -> &str {
        self.origins.get(key).map_or("default", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn defaults_wait_and_say_that_they_are_defaults() {
        let settings = Settings::default();
        assert_eq!(settings.lock_wait, Duration::from_secs(10));
        assert_eq!(settings.durability.as_str(), "volatile");
        assert_eq!(settings.origins.len(), KEYS.len());
        assert_eq!(settings.origin("copy.exclude"), "default");
        assert_eq!(settings.origin("no.such.key"), "default");
    }

    #[test]
    fn a_floor_is_a_share_or_a_size() {
        assert_eq!(MinFree::parse("2%").unwrap().of(1000), 20);
        assert_eq!(MinFree::parse("1KiB").unwrap().of(1), 1024);
        assert_eq!(MinFree::parse("0").unwrap().of(1000), 0);
        assert!(MinFree::parse("200%").is_err() && MinFree::parse("much").is_err());
    }
}
