//! The cgroup of one runtime, once it is there.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use sandboxer_core::{Error, Result};

use super::find::Controller;
use super::plan::{Directory, Plan, Version};
use super::settle::write;
use super::{Enforcement, Roots, remove, wait};
use crate::local::Limits;

/// Freezing waits for what is in the middle of a system call, which may be a slow disk's.
const FREEZING: Duration = Duration::from_secs(5);

/// Killing waits until nothing runs.
const DYING: Duration = Duration::from_secs(5);

/// The cgroup of one runtime: the directories that could be had, which may be none.
#[derive(Debug)]
pub struct Group {
    directories: Vec<Directory>,
    enforcement: Enforcement,
}

/// What everything in a group has used. `None` is what nobody counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// The most bytes of memory at one time. Counted where memory is limited.
    pub memory_peak: Option<u64>,
    /// How many processes were killed because they wanted more memory than the limit.
    pub oom_kills: Option<u64>,
    /// How many times a process or thread was refused because of the limit.
    pub pids_refused: Option<u64>,
}

impl Group {
    /// Finds out where the group of a runtime would be, `sandboxer-NAME`, and makes nothing yet. Fails for a name or a limit that makes no sense.
    pub fn plan(name: &str, limits: &Limits, roots: &Roots) -> Result<Plan> {
        Plan::new(name, limits, roots)
    }

    /// Plans and makes, for callers that write nothing down.
    pub fn make(name: &str, limits: &Limits, roots: &Roots) -> Result<Self> {
        Ok(Self::plan(name, limits, roots)?.make())
    }

    pub(super) fn new(directories: Vec<Directory>, enforcement: Enforcement) -> Self {
        Self { directories, enforcement }
    }

    /// What holds each limit.
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Its directories.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.path.clone()).collect()
    }

    /// Its directory in the hierarchy of version 2, to clone a process into (`CLONE_INTO_CGROUP`).
    ///
    /// Moving a process waits for an RCU grace period, 10 ms and more on a machine that has moved none lately; cloning one into
    /// a cgroup costs next to nothing. What was cloned there is moved into the rest by [`Self::add_cloned`].
    pub fn unified(&self) -> Option<&Path> {
        self.of_version_2().map(|directory| directory.path.as_path())
    }

    /// Moves a process in. What it starts from then on is in the group too; what it has started is not.
    pub fn add(&self, pid: Pid) -> Result<()> {
        self.directories.iter().try_for_each(|directory| enter(directory, pid))
    }

    /// Moves a process in that was cloned into [`Self::unified`] and is there already.
    pub fn add_cloned(&self, pid: Pid) -> Result<()> {
        let mut rest = self.directories.iter().filter(|directory| directory.version == Version::V1);
        rest.try_for_each(|directory| enter(directory, pid))
    }

    /// Whether [`Self::freeze`] can work.
    pub fn can_freeze(&self) -> bool {
        self.freezer().is_some()
    }

    /// Stops everything, and returns once nothing runs. What takes too long is let go again, and an error.
    pub fn freeze(&self) -> Result<()> {
        let freezer = self.freezer().ok_or_else(nothing_to_freeze)?;
        let frozen = frozen(freezer).map_err(|e| Error::io("freeze", &freezer.path, e));
        if frozen.is_err() {
            let _ = thaw(freezer);
        }
        frozen
    }

    /// Lets everything go on.
    pub fn thaw(&self) -> Result<()> {
        let freezer = self.freezer().ok_or_else(nothing_to_freeze)?;
        thaw(freezer).map_err(|e| Error::io("thaw", &freezer.path, e))
    }

    /// Kills everything, frozen or not, and returns once nothing runs.
    pub fn kill(&self) -> Result<()> {
        let Some(directory) = self.freezer().or(self.directories.first()) else {
            return Err(nothing_to_freeze());
        };
        let ended = wait::until(DYING, || {
            remove::kill(&directory.path)?;
            Ok(!remove::has_processes(&directory.path)?)
        });
        let ended = ended.and_then(|ended| if ended { Ok(()) } else { Err(ErrorKind::TimedOut.into()) });
        ended.map_err(|e| Error::io("kill everything in", &directory.path, e))
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            cpu: self.cpu(),
            memory_peak: self.number(Controller::Memory, "memory.max_usage_in_bytes", "memory.peak"),
            oom_kills: self.count(Controller::Memory, ["memory.oom_control", "memory.events"], "oom_kill"),
            pids_refused: self.count(Controller::Pids, ["pids.events", "pids.events"], "max"),
        }
    }

    /// Removes its directories. Waits a while for processes that are about to end.
    pub fn remove(&self) -> Result<()> {
        remove::remove_each(self.directories.iter().map(|directory| directory.path.as_path()))
    }

    fn of_version_2(&self) -> Option<&Directory> {
        self.directories.iter().find(|directory| directory.version == Version::V2)
    }

    fn using(&self, controller: Controller) -> Option<&Directory> {
        self.directories.iter().find(|directory| directory.uses.contains(&controller))
    }

    fn freezer(&self) -> Option<&Directory> {
        self.of_version_2().or_else(|| self.using(Controller::Freezer))
    }

    fn cpu(&self) -> Option<Duration> {
        match self.of_version_2() {
            Some(directory) => {
                entry(&directory.path.join("cpu.stat"), "usage_usec").map(Duration::from_micros)
            }
            None => {
                let directory = self.using(Controller::Cpuacct)?;
                number(&directory.path.join("cpuacct.usage")).map(Duration::from_nanos)
            }
        }
    }

    fn number(&self, controller: Controller, v1: &str, v2: &str) -> Option<u64> {
        let directory = self.using(controller)?;
        number(&directory.path.join(if directory.version == Version::V1 { v1 } else { v2 }))
    }

    fn count(&self, controller: Controller, [v1, v2]: [&str; 2], name: &str) -> Option<u64> {
        let directory = self.using(controller)?;
        entry(&directory.path.join(if directory.version == Version::V1 { v1 } else { v2 }), name)
    }
}

fn enter(directory: &Directory, pid: Pid) -> Result<()> {
    let entered = write(&directory.path, "cgroup.procs", &pid.as_raw_nonzero().to_string());
    entered.map_err(|e| Error::io("move a process into", &directory.path, e))
}

fn nothing_to_freeze() -> Error {
    Error::refused("the runtime has no cgroup, so it cannot be frozen or killed by one")
}

/// Version 1 does not go on by itself with what it could not freeze at once: it is asked again each time.
fn frozen(freezer: &Directory) -> io::Result<()> {
    let path = &freezer.path;
    let done = match freezer.version {
        Version::V2 => {
            write(path, "cgroup.freeze", "1")?;
            wait::until(FREEZING, || Ok(entry(&path.join("cgroup.events"), "frozen") == Some(1)))?
        }
        Version::V1 => wait::until(FREEZING, || {
            write(path, "freezer.state", "FROZEN")?;
            Ok(fs::read_to_string(path.join("freezer.state"))?.trim() == "FROZEN")
        })?,
    };
    if done { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
}

fn thaw(freezer: &Directory) -> io::Result<()> {
    match freezer.version {
        Version::V2 => write(&freezer.path, "cgroup.freeze", "0"),
        Version::V1 => write(&freezer.path, "freezer.state", "THAWED"),
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The number after `name` in a file of lines such as `oom_kill 3`.
pub(super) fn entry(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
