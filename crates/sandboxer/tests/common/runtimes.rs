//! What runtimes of a world are there, as the host sees them: processes, cgroups, files.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::common::{World, remains};

/// What ends does so at once; only a test that fails gets there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The supervisors of this world's sandboxes and the inits below them, by process id.
pub fn processes(world: &World) -> Vec<i32> {
    let state = world.path("home").display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("sandbox-runtime\0") && line.contains(&state)
    };
    let mut found: Vec<i32> = ids.filter(is_ours).collect();
    found.sort_unstable();
    found
}

/// Processes anywhere that sleep for so long.
pub fn asleep(seconds: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sleeps = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == format!("sleep\0{seconds}\0").into_bytes()
    };
    ids.filter(sleeps).collect()
}

/// The ids of the sandboxes that the state has a directory for.
pub fn sandboxes(world: &World) -> BTreeSet<String> {
    let entries = fs::read_dir(world.path("home/sandboxes")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The cgroups of these sandboxes.
pub fn cgroups(ids: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().into_string().unwrap_or_default();
            if ids.iter().any(|id| name.contains("sandboxer-") && name.contains(id.as_str())) {
                found.push(entry.path());
            }
            pending.push(entry.path());
        }
    }
    found
}

/// Waits until something is so; says whether it became so.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    is_so()
}

/// Kills a process of this world, without a chance to say anything.
pub fn kill(pid: i32) {
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// Nothing runs in this world, and none of these sandboxes has a cgroup or a socket.
pub fn nothing_runs(world: &World, ids: &BTreeSet<String>) {
    assert!(eventually(|| processes(world).is_empty()), "runtimes are left: {:?}", processes(world));
    assert_eq!(cgroups(ids), Vec::<PathBuf>::new(), "cgroups are left");
    for id in ids {
        let socket = world.path("home/sandboxes").join(id).join("runtime/socket");
        assert!(!socket.exists(), "{} is left", socket.display());
    }
}

/// Nothing is left of any sandbox of this world: mounts, keepers, files.
pub fn nothing_is_left(world: &World, ids: &BTreeSet<String>) {
    nothing_runs(world, ids);
    let root = fs::canonicalize(world.path("")).unwrap();
    assert_eq!(remains::mounts(&root), Vec::<PathBuf>::new(), "mounts are left");
    assert!(eventually(|| remains::keepers(&root).is_empty()), "keepers are left");
    for dir in ["home/sandboxes", "home/scratch"] {
        assert_eq!(entries(&world.path(dir)), Vec::<PathBuf>::new(), "files are left");
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
