//! What a test leaves behind, gone: keepers, mounts, and directories that even their owner cannot read.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

/// Ends every keeper and courier whose directory is below `root`, unmounts what is mounted there, and removes all of it.
pub fn clear(root: &Path) {
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf());
    keepers(&root).into_iter().for_each(end);
    for mount in mounts(&root).iter().rev() {
        let _ = rustix::mount::unmount(mount, UnmountFlags::DETACH);
    }
    let _ = sandboxer::fs::remove_tree(&root);
}

/// The process ids of the keepers whose directory is below `root`.
pub fn keepers(root: &Path) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|pid| is_keeper(*pid, root)).collect()
}

fn is_keeper(pid: i32, root: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    let (name, dir) = (words.next(), words.next().map(|dir| Path::new(std::ffi::OsStr::from_bytes(dir))));
    let is_one =
        [b"sandbox-keeper".as_slice(), b"sandbox-database", b"sandbox-courier"].map(Some).contains(&name);
    is_one && dir.is_some_and(|dir| dir.starts_with(root))
}

/// Kills the process, and waits until its mounts are gone with it.
pub fn end(pid: i32) {
    let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
    let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A process that nobody has waited for yet has let go of everything already.
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    };
    while !gone() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Everything that is mounted below `root`, in the order in which it was mounted.
pub fn mounts(root: &Path) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points =
        table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescaped).filter(|path| path.starts_with(root)).collect()
}

/// The table writes what would disturb it as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let octal =
            more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}
