//! Holding everything still where no cgroup can: init stops every process of its pid namespace.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// New processes may be made while others are stopped; not for ever.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Stops everything but this process, until nothing else runs. Says whether that is so.
pub(crate) fn stop_everything() -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // There is nobody to stop where this fails.
        let _ = kill(Pid::from_raw(-1), Signal::SIGSTOP);
        if !something_runs() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Lets everything go on.
pub(crate) fn continue_everything() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGCONT);
}

fn something_runs() -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| name != "1" && name.parse::<u32>().is_ok())
        })
        .filter_map(|entry| state(&entry.path()))
        .any(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The kernel's letter for what a process does. Its name, in parentheses before it, may hold anything.
pub(crate) fn state(process: &Path) -> Option<char> {
    let stat = std::fs::read(process.join("stat")).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(after_name + 2).map(|byte| char::from(*byte))
}
