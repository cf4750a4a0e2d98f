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
const EMPTYING: Duration = Duration::from_secs(2);

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

/// Removes those of the cgroups that are there, each as soon as nothing is in it, all within one wait. One that cannot be removed keeps no other.
pub(super) fn remove_each<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut left: Vec<(&Path, io::Error)> = paths.map(|path| (path, Errno::BUSY.into())).collect();
    let _ = wait::until(EMPTYING, || {
        left = std::mem::take(&mut left).into_iter().filter_map(|(path, _)| still_there(path)).collect();
        Ok(left.iter().all(|(_, error)| error.kind() != ErrorKind::ResourceBusy))
    });
    match left.into_iter().next() {
        Some((path, error)) => Err(Error::io("remove the cgroup", path, error)),
        None => Ok(()),
    }
}

/// Tries to remove one cgroup, and returns why it is still there.
fn still_there(path: &Path) -> Option<(&Path, io::Error)> {
    let error = fs::remove_dir(path).err().filter(|error| error.kind() != ErrorKind::NotFound)?;
    Some((path, error))
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
