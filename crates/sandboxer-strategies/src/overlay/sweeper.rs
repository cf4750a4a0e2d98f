//! Removing what a workspace has left behind, without anybody waiting for it: however much it is, going back costs the same.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use sandboxer_core::Result;
use sandboxer_fs::overlay::stack::Places;

/// What a process that sweeps is called.
const NAME: &str = "sandbox-sweeper";

/// Has everything removed that the workspace left. What cannot be removed is tried again the next time, and with the workspace.
pub fn start(program: Option<&Path>, places: &Places) {
    let leavings = places.leavings();
    if leavings.is_empty() {
        return;
    }
    let started = program.map(|program| {
        let mut sweeper = Command::new(program);
        sweeper.arg0(NAME).args(&leavings).env_clear().current_dir("/").process_group(0);
        sweeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    if started.is_none_or(|started| started.is_err()) {
        let _ = finish(places);
    }
}

/// Removes everything that the workspace left, here and now; a sweeper may be at it too.
pub fn finish(places: &Places) -> Result<()> {
    for leaving in places.leavings() {
        let mut removed = sandboxer_fs::remove_tree(&leaving);
        for _ in 0..100 {
            if removed.is_ok() || !leaving.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            removed = sandboxer_fs::remove_tree(&leaving);
        }
        if leaving.exists() {
            removed?;
        }
    }
    Ok(())
}

/// First thing in main: sweeps and exits if this process was started for that.
pub fn sweep_if_asked() {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != NAME) {
        return;
    }
    wait_for_parent();
    for leaving in arguments {
        let leaving = Path::new(&leaving);
        // Only what was thrown away, whoever asks.
        if leaving.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gone-ws_")) {
            let _ = sandboxer_fs::remove_tree(leaving);
        }
    }
    std::process::exit(0);
}

/// Removing much keeps the disk busy, and whoever started this waits for the disk too: they come first.
fn wait_for_parent() {
    let parent = rustix::process::getppid();
    for _ in 0..200 {
        if rustix::process::getppid() != parent {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
