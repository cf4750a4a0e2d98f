//! The keys below `run`: how commands are contained, and what they may use.

use std::path::{Component, Path};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration::parse_ttl;
use super::keys::{add, word};
use super::settings::MinFree;
use super::size::parse_size;
use super::yaml::nearest_word;
use crate::{Error, Result};

/// The kernel has no more process ids than this.
const MOST_PIDS: u64 = 1 << 22;

/// The smallest share of a processor that the kernel hands out, and more processors than any machine has.
const CPUS: std::ops::RangeInclusive<f64> = 0.01..=8192.0;

/// No program starts with less.
const LEAST_MEMORY: u64 = 1 << 20;

/// How much is kept from a command. A larger one keeps more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Only the workspace's files.
    Files,
    /// Nothing outside the workspace can be written, no credential read and no network reached.
    #[default]
    Standard,
    /// Everything that this program knows of, and no second best.
    Strict,
}

impl Isolation {
    const ALL: [Self; 3] = [Self::Strict, Self::Standard, Self::Files];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Standard => "standard",
            Self::Files => "files",
        }
    }

    /// Reads the word for it.
    pub fn parse(text: &str) -> Result<Self> {
        one_of(text, "an isolation", &Self::ALL.map(|known| (known, known.as_str())))
    }
}

/// What of the network a command can reach, besides the hosts that are allowed by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// Nothing.
    #[default]
    None,
    /// Whatever the host can.
    Host,
}

impl NetworkAccess {
    const ALL: [Self; 2] = [Self::None, Self::Host];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }

    /// Reads the word for it.
    pub fn parse(text: &str) -> Result<Self> {
        one_of(text, "a network", &Self::ALL.map(|known| (known, known.as_str())))
    }
}

/// Everything below `run`, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// `run.isolation`: how much is kept from a command.
    pub isolation: Isolation,
    /// `run.network`: what of the network it can reach.
    pub network: NetworkAccess,
    /// `run.allow_hosts`: the hosts that it can reach where the network is `none`.
    pub allow_hosts: Vec<String>,
    /// `run.hide`: what is hidden besides the built-in list, `~/x` or absolute.
    pub hide: Vec<String>,
    /// `run.show`: what is shown though a list hides it.
    pub show: Vec<String>,
    /// `run.env`: variables that are passed on though they are on no list, or look like secrets.
    pub env: Vec<String>,
    /// `run.memory`: bytes of memory.
    pub memory: Option<u64>,
    /// `run.pids`: processes and threads.
    pub pids: Option<u64>,
    /// `run.cpus`: processors, in parts of one.
    pub cpus: Option<f64>,
    /// `run.timeout`: wall time of each command.
    pub timeout: Option<Duration>,
    /// `run.disk_reserve`: how much of the workspace's filesystem is left when a command that fills it is ended.
    pub disk_reserve: MinFree,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            network: NetworkAccess::default(),
            allow_hosts: Vec::new(),
            hide: Vec::new(),
            show: Vec::new(),
            env: Vec::new(),
            memory: None,
            pids: None,
            cpus: None,
            timeout: None,
            // As much as what is kept leaves. A larger share would end commands on disks that people work on every day.
            disk_reserve: MinFree::Percent(1),
        }
    }
}

/// One value for one key below `run`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunSetting {
    Isolation(Isolation),
    Network(NetworkAccess),
    AllowHosts(Vec<String>),
    Hide(Vec<String>),
    Show(Vec<String>),
    Env(Vec<String>),
    Memory(u64),
    Pids(u64),
    Cpus(f64),
    Timeout(Duration),
    DiskReserve(MinFree),
}

impl RunSetting {
    /// The key's name.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Isolation(_) => "run.isolation",
            Self::Network(_) => "run.network",
            Self::AllowHosts(_) => "run.allow_hosts",
            Self::Hide(_) => "run.hide",
            Self::Show(_) => "run.show",
            Self::Env(_) => "run.env",
            Self::Memory(_) => "run.memory",
            Self::Pids(_) => "run.pids",
            Self::Cpus(_) => "run.cpus",
            Self::Timeout(_) => "run.timeout",
            Self::DiskReserve(_) => "run.disk_reserve",
        }
    }

    /// Reads a value as a flag or a variable gives it; nothing where `key` is none of these. Hosts have ports, so that commas separate them.
    pub(super) fn from_text(key: &str, text: &str) -> Result<Option<Self>> {
        let split = |separator| text.split(separator).map(|item| item.trim().to_owned()).collect::<Vec<_>>();
        Ok(Some(match key {
            "run.isolation" => Self::Isolation(Isolation::parse(text)?),
            "run.network" => Self::Network(NetworkAccess::parse(text)?),
            "run.allow_hosts" => return Self::from_list(key, split(',')),
            "run.hide" | "run.show" | "run.env" => return Self::from_list(key, split(':')),
            "run.memory" => Self::Memory(memory(text)?),
            "run.pids" => Self::Pids(pids(text)?),
            "run.cpus" => Self::Cpus(cpus(text)?),
            "run.timeout" => Self::Timeout(parse_ttl(text)?.unsigned_abs()),
            "run.disk_reserve" => Self::DiskReserve(MinFree::parse(text)?),
            _ => return Ok(None),
        }))
    }

    /// Reads a list as a file gives it; nothing where `key` is none of the lists here.
    pub(super) fn from_list(key: &str, list: Vec<String>) -> Result<Option<Self>> {
        Ok(Some(match key {
            "run.allow_hosts" => Self::AllowHosts(each(list, host)?),
            "run.hide" => Self::Hide(each(list, place)?),
            "run.show" => Self::Show(each(list, place)?),
            "run.env" => Self::Env(each(list, variable)?),
            _ => return Ok(None),
        }))
    }

    /// Puts the value where it belongs. What is hidden adds up over the layers (`true`); everything else replaces what was there.
    pub(super) fn apply(self, run: &mut RunSettings) -> bool {
        match self {
            Self::Isolation(isolation) => run.isolation = isolation,
            Self::Network(network) => run.network = network,
            Self::AllowHosts(hosts) => run.allow_hosts = hosts,
            Self::Hide(places) => {
                add(&mut run.hide, places);
                return true;
            }
            Self::Show(places) => run.show = places,
            Self::Env(names) => run.env = names,
            Self::Memory(bytes) => run.memory = Some(bytes),
            Self::Pids(count) => run.pids = Some(count),
            Self::Cpus(cpus) => run.cpus = Some(cpus),
            Self::Timeout(timeout) => run.timeout = Some(timeout),
            Self::DiskReserve(reserve) => run.disk_reserve = reserve,
        }
        false
    }

    /// What an untrusted project's value would loosen, compared with `own`. Whether the key is for it at all is asked elsewhere.
    pub(super) fn loosens(&self, own: &RunSettings) -> Option<&'static str> {
        const HIGHER: Option<&str> = Some("is higher than your own");
        match self {
            Self::Isolation(isolation) if *isolation < own.isolation => {
                Some("keeps less from commands than your own")
            }
            Self::Network(NetworkAccess::Host) => Some("lets commands reach whatever this machine can"),
            Self::Memory(bytes) if own.memory.is_some_and(|own| *bytes > own) => HIGHER,
            Self::Pids(count) if own.pids.is_some_and(|own| *count > own) => HIGHER,
            Self::Cpus(cpus) if own.cpus.is_some_and(|own| *cpus > own) => HIGHER,
            Self::Timeout(timeout) if own.timeout.is_some_and(|own| *timeout > own) => {
                Some("is longer than your own")
            }
            _ => None,
        }
    }
}

fn one_of<T: Copy, const N: usize>(text: &str, what: &str, all: &[(T, &'static str); N]) -> Result<T> {
    let found = all.iter().find(|(_, known)| *known == text).map(|(value, _)| *value);
    found.ok_or_else(|| Error::Usage {
        message: format!("{text:?} is not {what}"),
        hint: nearest_word(text, &all.map(|(_, known)| known)),
    })
}

fn each(list: Vec<String>, check: impl Fn(&str) -> Result<()>) -> Result<Vec<String>> {
    list.iter().try_for_each(|item| check(item))?;
    Ok(list)
}

/// Whether it is a rule that makes sense is for whoever enforces it to say; here it only has to be one word.
fn host(text: &str) -> Result<()> {
    if word(text).is_err() || text.contains([' ', ',']) {
        return Err(Error::usage(format!("{text:?} is not a host")));
    }
    Ok(())
}

/// A place is compared by its name, so that there has to be one name for it.
fn place(text: &str) -> Result<()> {
    let path = Path::new(text.strip_prefix('~').unwrap_or(text));
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let somewhere = path.components().any(|part| matches!(part, Component::Normal(_)));
    if path.is_absolute() && plain && somewhere && !text.contains('\0') {
        return Ok(());
    }
    Err(Error::Usage {
        message: format!("{text:?} is not a place to hide or show"),
        hint: Some("write an absolute path, or one that begins with ~/, without `..`".to_owned()),
    })
}

fn variable(text: &str) -> Result<()> {
    if text.is_empty() || text.contains(['=', '\0']) || text.contains(char::is_whitespace) {
        return Err(Error::usage(format!("{text:?} is not the name of a variable")));
    }
    Ok(())
}

fn memory(text: &str) -> Result<u64> {
    match parse_size(text)? {
        bytes if bytes < LEAST_MEMORY => {
            Err(Error::usage(format!("{text:?} is less memory than any program needs")))
        }
        bytes => Ok(bytes),
    }
}

fn pids(text: &str) -> Result<u64> {
    let count = text.parse().ok().filter(|count| (1..=MOST_PIDS).contains(count));
    count.ok_or_else(|| Error::usage(format!("{text:?} is not a number of processes from 1 to {MOST_PIDS}")))
}

fn cpus(text: &str) -> Result<f64> {
    let cpus = text.parse().ok().filter(|cpus| CPUS.contains(cpus));
    cpus.ok_or_else(|| {
        Error::usage(format!(
            "{text:?} is not a number of processors from {} to {}",
            CPUS.start(),
            CPUS.end()
        ))
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
