//! Where the directories of a group are to be, decided before one of them is made.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use sandboxer_core::{Error, Result};

use super::find::{self, Controller, Hierarchies, Hierarchy};
use super::remove::PREFIX;
use super::settle::{self, Refusals};
use super::{Group, Roots};
use crate::local::Limits;

/// Which kind of cgroup a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A directory of a group and what it is for. Every directory of version 2 freezes, kills and counts processor time besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) version: Version,
    pub(super) uses: Vec<Controller>,
}

/// What [`Group::plan`] found.
#[derive(Debug)]
#[must_use]
pub struct Plan {
    directories: Vec<Directory>,
    limits: Limits,
    superuser: bool,
    refusals: Refusals,
}

impl Plan {
    pub(super) fn new(name: &str, limits: &Limits, roots: &Roots) -> Result<Self> {
        check_name(name)?;
        check_limits(limits)?;
        let mut plan = Self {
            directories: Vec::new(),
            limits: limits.clone(),
            superuser: roots.superuser,
            refusals: Refusals::default(),
        };
        plan.choose(&find::hierarchies(roots), &format!("{PREFIX}{name}"));
        Ok(plan)
    }

    /// The directories that are going to be made, for [`super::remove_paths`]; none where no cgroup can be had.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.path.clone()).collect()
    }

    /// Makes what can be made and sets the limits. What cannot be is left to the fallback, as [`Group::enforcement`] tells.
    pub fn make(mut self) -> Group {
        self.create();
        self.settle()
    }

    pub(super) fn create(&mut self) {
        let refusals = &mut self.refusals;
        self.directories.retain(|directory| match create(&directory.path) {
            Ok(()) => true,
            Err(error) => {
                refusals.add(format!("{} cannot be made: {error}", directory.path.display()));
                false
            }
        });
    }

    pub(super) fn settle(self) -> Group {
        let enforcement = settle::settle(&self.directories, &self.limits, self.superuser, self.refusals);
        Group::new(self.directories, enforcement)
    }

    /// A controller is in version 1 or in version 2, never in both. One directory of version 2 saves those that version 1 has for freezing and
    /// for counting: entering a directory is what costs time.
    fn choose(&mut self, found: &Hierarchies, name: &str) {
        let wanted = wanted(&self.limits);
        let (mut legacy, unified): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|controller| found.legacy_of(*controller).is_some());
        match &found.unified {
            Some(hierarchy) => self.choose_unified(hierarchy, &unified, name),
            None if found.legacy.is_empty() => self.refusals.add("no cgroup hierarchy is mounted".to_owned()),
            None => unified.iter().for_each(|controller| self.refusals.add_missing(*controller)),
        }
        if self.directories.is_empty() {
            legacy.extend([Controller::Freezer, Controller::Cpuacct]);
        }
        let hierarchies =
            legacy.into_iter().filter_map(|controller| Some((controller, found.legacy_of(controller)?)));
        hierarchies.for_each(|(controller, hierarchy)| self.choose_legacy(controller, hierarchy, name));
    }

    fn choose_unified(&mut self, hierarchy: &Hierarchy, wanted: &[Controller], name: &str) {
        let Some((parent, uses)) = nearest(hierarchy, wanted) else {
            let own = hierarchy.own.display();
            return self.refusals.add(format!("neither {own} nor a cgroup above it is writable"));
        };
        for missing in wanted.iter().filter(|controller| !uses.contains(controller)) {
            self.refusals.add_missing(*missing);
        }
        self.directories.push(Directory { path: parent.join(name), version: Version::V2, uses });
    }

    fn choose_legacy(&mut self, controller: Controller, hierarchy: &Hierarchy, name: &str) {
        let path = hierarchy.own.join(name);
        if let Some(same) = self.directories.iter_mut().find(|directory| directory.path == path) {
            return same.uses.push(controller);
        }
        match access(&hierarchy.own, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => self.directories.push(Directory { path, version: Version::V1, uses: vec![controller] }),
            Err(errno) => self.refusals.add(format!("{} is not writable: {errno}", hierarchy.own.display())),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 200 || name.contains(['/', '\0', '\n']) {
        return Err(Error::usage(format!("{name:?} cannot be a part of a cgroup's name")));
    }
    Ok(())
}

/// A limit of nothing would be no way to run anything, and the kernel takes some of them for no limit.
fn check_limits(limits: &Limits) -> Result<()> {
    let bad_cpus = limits.cpus.is_some_and(|cpus| !cpus.is_finite() || cpus <= 0.0);
    let complaint = match limits {
        Limits { memory: Some(0), .. } => "a memory limit has to leave some memory",
        Limits { pids: Some(0), .. } => "a limit of processes has to leave one process",
        _ if bad_cpus => "a limit of processors has to be a number above zero",
        _ => return Ok(()),
    };
    Err(Error::usage(complaint))
}

fn wanted(limits: &Limits) -> Vec<Controller> {
    let asked = [
        (limits.memory.is_some(), Controller::Memory),
        (limits.pids.is_some(), Controller::Pids),
        (limits.cpus.is_some(), Controller::Cpu),
    ];
    asked.into_iter().filter(|(asked, _)| *asked).map(|(_, controller)| controller).collect()
}

/// The cgroup to make ours in: of our own and those above it that we may write to, the nearest that hands on the most of what is wanted. What is
/// not handed on is not switched on either: whoever made that cgroup decided so, and one that has processes could not do it.
fn nearest(hierarchy: &Hierarchy, wanted: &[Controller]) -> Option<(PathBuf, Vec<Controller>)> {
    let mut best: Option<(PathBuf, Vec<Controller>)> = None;
    let within = hierarchy.own.ancestors().take_while(|directory| directory.starts_with(&hierarchy.mount));
    for directory in within.filter(|directory| may_hold(directory)) {
        let on = handed_on(directory, wanted);
        let complete = on.len() == wanted.len();
        if best.as_ref().is_none_or(|(_, most)| on.len() > most.len()) {
            best = Some((directory.to_path_buf(), on));
        }
        if complete {
            break;
        }
    }
    best
}

/// Making a directory is not enough: a process is moved only by somebody who may write to the list of what both cgroups have in common. And the
/// children of a threaded cgroup take no processes.
fn may_hold(directory: &Path) -> bool {
    let kind = fs::read_to_string(directory.join("cgroup.type"));
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(directory.join("cgroup.procs"), Access::WRITE_OK).is_ok()
        && kind.map_or(true, |kind| kind.trim() == "domain")
}

fn handed_on(directory: &Path, wanted: &[Controller]) -> Vec<Controller> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let on = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    wanted
        .iter()
        .filter(|controller| on.split_whitespace().any(|name| name == controller.name()))
        .copied()
        .collect()
}

/// What is there already is a leftover if it is empty, and not ours to touch if it is not.
fn create(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            fs::remove_dir(path)?;
            fs::create_dir(path)
        }
        result => result,
    }
}
