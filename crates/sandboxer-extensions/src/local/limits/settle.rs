//! Limits written into the directories of a group, and what holds those that could not be.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use rustix::io::Errno;

use super::find::Controller;
use super::plan::{Directory, Version};
use super::{By, Enforcement};
use crate::local::Limits;

/// Processor time is handed out in periods of this many microseconds.
const PERIOD: u64 = 100_000;

/// The kernel takes no smaller share of a period.
const LEAST_QUOTA: u64 = 1_000;

/// Why a cgroup does not hold what it could.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<String>);

impl Refusals {
    pub(super) fn add(&mut self, reason: String) {
        self.0.push(reason);
    }

    pub(super) fn add_missing(&mut self, controller: Controller) {
        self.add(format!("no cgroup within reach has the controller {}", controller.name()));
    }

    fn told(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }
}

pub(super) fn settle(
    directories: &[Directory],
    limits: &Limits,
    superuser: bool,
    refusals: Refusals,
) -> Enforcement {
    let mut settling = Settling { directories, refusals };
    let memory = limits
        .memory
        .map(|bytes| settling.hold(Controller::Memory, |d| memory(d, bytes)).unwrap_or(By::Rlimit));
    let pids = limits
        .pids
        .map(|count| settling.hold(Controller::Pids, |d| pids(d, count)).unwrap_or(pids_without(superuser)));
    let cpus =
        limits.cpus.map(|cpus| settling.hold(Controller::Cpu, |d| cpu(d, cpus)).unwrap_or(By::Affinity));
    let weak = [&memory, &pids, &cpus].into_iter().flatten().any(|by| !by.is_firm());
    Enforcement {
        memory: memory.unwrap_or_default(),
        pids: pids.unwrap_or_default(),
        cpus: cpus.unwrap_or_default(),
        timeout: limits.timeout.map(|_| By::Supervisor).unwrap_or_default(),
        reason: settling.refusals.told().filter(|_| weak),
    }
}

struct Settling<'a> {
    directories: &'a [Directory],
    refusals: Refusals,
}

impl Settling<'_> {
    /// Has a cgroup hold a limit, if there is one for it that takes it.
    fn hold(&mut self, controller: Controller, set: impl FnOnce(&Directory) -> io::Result<()>) -> Option<By> {
        let directory = self.directories.iter().find(|directory| directory.uses.contains(&controller))?;
        match set(directory) {
            Ok(()) => Some(by(directory.version)),
            Err(error) => {
                let (name, path) = (controller.name(), directory.path.display());
                self.refusals.add(format!("the {name} limit of {path} cannot be set: {error}"));
                None
            }
        }
    }
}

fn by(version: Version) -> By {
    match version {
        Version::V1 => By::CgroupV1,
        Version::V2 => By::CgroupV2,
    }
}

fn pids_without(superuser: bool) -> By {
    if superuser { By::Nothing("root's processes are not counted by rlimit".to_owned()) } else { By::Rlimit }
}

/// Without swap, so that a limit on memory is one on all of it; and everything is killed at once, since what is left of a build whose linker
/// was killed is of no use.
fn memory(directory: &Directory, bytes: u64) -> io::Result<()> {
    let path = &directory.path;
    match directory.version {
        Version::V2 => {
            write(path, "memory.max", &bytes.to_string())?;
            where_there(write(path, "memory.swap.max", "0"))?;
            where_there(write(path, "memory.oom.group", "1"))
        }
        Version::V1 => {
            write(path, "memory.limit_in_bytes", &bytes.to_string())?;
            where_there(write(path, "memory.memsw.limit_in_bytes", &bytes.to_string()))
        }
    }
}

fn pids(directory: &Directory, count: u64) -> io::Result<()> {
    write(&directory.path, "pids.max", &count.to_string())
}

fn cpu(directory: &Directory, cpus: f64) -> io::Result<()> {
    let quota = quota(cpus);
    match directory.version {
        Version::V2 => write(&directory.path, "cpu.max", &format!("{quota} {PERIOD}")),
        Version::V1 => {
            write(&directory.path, "cpu.cfs_period_us", &PERIOD.to_string())?;
            write(&directory.path, "cpu.cfs_quota_us", &quota.to_string())
        }
    }
}

/// Microseconds of each period. Conversion from float saturates: an absurd number is one that the kernel refuses.
fn quota(cpus: f64) -> u64 {
    ((cpus * PERIOD as f64).round() as u64).max(LEAST_QUOTA)
}

/// A file that this kernel does not have, or has switched off (swap accounting), is nothing to complain of.
fn where_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// Writes to a file of a cgroup. It is there or it is not: it cannot be made.
pub(super) fn write(directory: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(directory.join(file))?.write_all(text.as_bytes())
}
