//! What runtimes of a world are there, as the host sees them: processes, cgroups, files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::{World, remains};

/// What ends does so at once; only a test that fails gets there.
const PATIENCE: Duration = Duration::from_secs(60);

/// The supervisors of this world's sandboxes and the inits below them, by process id; supervisors first.
pub fn processes(world: &World) -> Vec<i32> {
    let supervisors = supervisors(world);
    let inits = ids().filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut after_name = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (state, parent) = (after_name.next(), after_name.next().and_then(|pid| pid.parse().ok()));
        state != Some("Z") && parent.is_some_and(|parent| supervisors.contains(&parent))
    });
    let inits: Vec<i32> = inits.filter(|pid| !supervisors.contains(pid)).collect();
    supervisors.iter().copied().chain(inits).collect()
}

/// Who holds the lock of a runtime's directory, as the kernel tells; and, where we may look, who has such a file open that is gone.
fn supervisors(world: &World) -> BTreeSet<i32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let runtimes =
        sandboxes(world).into_iter().map(|id| world.path("home/sandboxes").join(id).join("runtime/lock"));
    let inodes: Vec<String> =
        runtimes.filter_map(|lock| Some(format!(":{} ", fs::metadata(lock).ok()?.ino()))).collect();
    let held = locks.lines().filter(|line| inodes.iter().any(|inode| line.contains(inode.as_str())));
    let holders = held.filter_map(|line| line.split_whitespace().nth(4)?.parse().ok());
    let state = world.path("home");
    let open = ids().filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let is_supervisor =
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sandbox-runtime\0");
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        is_supervisor && targets.any(|target| target.starts_with(&state)) && !is_init(*pid)
    });
    holders.filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).chain(open).collect()
}

/// Init is process 1 of its namespace.
fn is_init(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    ids.split_whitespace().count() > 1
}

/// All processes.
fn ids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes anywhere that sleep for so long.
pub fn asleep(seconds: &str) -> Vec<i32> {
    let line = format!("sleep\0{seconds}\0").into_bytes();
    ids().filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == line)).collect()
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
