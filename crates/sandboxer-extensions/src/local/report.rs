//! What is told about a runtime: what holds it, what runs in it, what it used and what it was refused.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::{Deserialize, Serialize};

use super::limits::{Enforcement, Group};
use super::spec::Spec;

/// What a runtime is held by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// The version of Landlock that is in force, if the kernel has it.
    pub landlock: Option<i32>,
}

/// A runtime that is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// What was asked for.
    pub spec: Spec,
    /// What holds it.
    pub confined: Confined,
    /// What enforces each limit.
    pub enforced: Enforcement,
}

/// What was used, and what was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From the start of the runtime.
    pub wall: Duration,
    /// By everything inside.
    pub cpu: Option<Duration>,
    /// At its highest, in bytes.
    pub memory_peak: Option<u64>,
    /// How often something was ended because the memory was used up.
    pub oom_kills: Option<u64>,
    /// How often a new process was refused.
    pub pids_refused: Option<u64>,
    /// Paths outside that somebody tried to write, each once.
    pub writes_refused: Told,
    /// Hosts that were asked for and are not allowed, each once.
    pub hosts_refused: Told,
    /// Files in the home directory that were written and are gone.
    pub home_files: Told,
}

impl Report {
    /// What the cgroup has counted; where there is none, what the kernel has of everything that was waited for.
    pub(crate) fn use_resources(&mut self, group: &Group) {
        let used = group.usage();
        self.cpu = used.cpu;
        self.memory_peak = used.memory_peak;
        self.oom_kills = used.oom_kills;
        self.pids_refused = used.pids_refused;
        let Some(waited_for) = WaitedFor::now() else { return };
        self.cpu = self.cpu.or(Some(waited_for.cpu));
        self.memory_peak = self.memory_peak.or(Some(waited_for.largest));
    }
}

/// What the kernel has of every process that this one has waited for, and of those that they had waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitedFor {
    /// Their processor time together.
    pub cpu: Duration,
    /// The memory of the largest of them, in bytes.
    pub largest: u64,
}

impl WaitedFor {
    /// Up to now; nothing where the kernel does not tell.
    pub fn now() -> Option<Self> {
        let all = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
        let time =
            |value: TimeVal| Duration::from_micros(u64::try_from(value.num_microseconds()).unwrap_or(0));
        let largest = u64::try_from(all.max_rss()).unwrap_or(0) * 1024;
        Some(Self { cpu: time(all.user_time()) + time(all.system_time()), largest })
    }

    /// What came on top since `earlier`. A process that was smaller than one before it leaves no trace of its memory.
    pub fn since(self, earlier: Self) -> (Duration, Option<u64>) {
        let largest = Some(self.largest).filter(|largest| *largest > earlier.largest);
        (self.cpu.saturating_sub(earlier.cpu), largest)
    }
}

/// A list that may be long: how many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How many, as far as they are counted.
    pub count: usize,
    /// The first of them.
    pub first: Vec<String>,
    /// Those that were told, in short: each counts once.
    #[serde(skip)]
    known: HashSet<u64>,
}

impl Told {
    /// How many are named.
    const NAMED: usize = 100;
    /// How many are counted: somebody inside may go on all day.
    const COUNTED: usize = 10_000;

    /// One more. Says whether it is new.
    pub(crate) fn add(&mut self, name: String) -> bool {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        if self.count >= Self::COUNTED || !self.known.insert(hasher.finish()) {
            return false;
        }
        self.count += 1;
        if self.first.len() < Self::NAMED {
            self.first.push(name);
        }
        true
    }
}

/// A process inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id inside.
    pub pid: u32,
    /// Its parent's id inside.
    pub parent: u32,
    /// Its id on the host.
    pub host_pid: u32,
    /// Running, sleeping, stopped: the kernel's letter.
    pub state: char,
    /// What it holds in memory, in bytes.
    pub memory: u64,
    /// What it used of a processor.
    pub cpu: Duration,
    /// Its arguments, or its name where it has none.
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_the_list_ends() {
        let mut told = Told::default();
        assert!(told.add("a".into()) && !told.add("a".into()));
        for number in 0..2 * Told::COUNTED {
            told.add(number.to_string());
            told.add(number.to_string());
        }
        assert_eq!((told.count, told.first.len()), (Told::COUNTED, Told::NAMED));
        assert_eq!(told.first[..2], ["a", "0"]);
    }
}
