//! Ending what is in a cgroup, and removing it: ours at its end, and what a crash has left.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use sandboxer_core::{Error, Result};

use super::group::entry;
use super::settle::write;
use super::wait;

/// What the name of each cgroup of ours begins with.
pub(super) const PREFIX: &str = "sandboxer-";

/// How long processes that have ended may stay in a cgroup.
const EMPTYING: Duration = Duration::from_secs(5);

/// Removes what a runtime that is no more has left: the cgroups at `paths`, with whatever still runs in them. Those that are gone already are
/// passed over; a path that is none of ours is refused, and nothing is touched then.
pub fn remove_paths(paths: &[PathBuf]) -> Result<()> {
    if let Some(stranger) = paths.iter().find(|path| !is_ours(path)) {
        return Err(Error::refused(format!("{} is not a cgroup of a sandbox", stranger.display())));
    }
    // A frozen process of version 1 ends only once the freezer lets it, and that may be the last of the paths.
    paths.iter().filter(|path| fs::remove_dir(path).is_err()).for_each(|path| drop(kill(path)));
    remove_each(paths.iter().map(PathBuf::as_path))
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    path.is_absolute() && name.is_some_and(|name| name.starts_with(PREFIX))
}

/// Removes them all, also where one cannot be removed, and tells of the first that could not.
pub(super) fn remove_each<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let results: Vec<Result<()>> = paths.map(remove).collect();
    results.into_iter().collect()
}

/// Removes one cgroup, if it is there, as soon as nothing is in it.
fn remove(path: &Path) -> Result<()> {
    let removed = wait::until(EMPTYING, || match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(false),
        Err(error) => Err(error),
    });
    match removed {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::io("remove the cgroup", path, Errno::BUSY)),
        Err(error) => Err(Error::io("remove the cgroup", path, error)),
    }
}

/// Kills what is in a cgroup of either version. Kernels before 5.14 and version 1 leave it to us to find everything; what is started meanwhile is
/// found by asking again.
pub(super) fn kill(path: &Path) -> io::Result<()> {
    match write(path, "cgroup.kill", "1") {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        result => return result,
    }
    let _ = write(path, "freezer.state", "FROZEN");
    let processes = fs::read_to_string(path.join("cgroup.procs"))?;
    for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        // One that has ended since is what we want.
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = write(path, "freezer.state", "THAWED");
    let _ = write(path, "cgroup.freeze", "0");
    Ok(())
}

/// Whether something in a cgroup has not ended. Version 2 knows without listing.
pub(super) fn has_processes(path: &Path) -> io::Result<bool> {
    match entry(&path.join("cgroup.events"), "populated") {
        Some(populated) => Ok(populated > 0),
        None => Ok(!fs::read_to_string(path.join("cgroup.procs"))?.trim().is_empty()),
    }
}
