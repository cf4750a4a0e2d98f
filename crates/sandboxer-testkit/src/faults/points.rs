//! Where a command can be hit.

use std::collections::{BTreeMap, BTreeSet};

/// One system call of a command: the `nth` of that name within its thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The system call.
    pub name: String,
    /// Counted from one, thread by thread, as `strace` counts.
    pub nth: usize,
    /// Whether it changes what is on disk. Being killed before one that does not is the same as being killed before
    /// the next one that does.
    pub changes: bool,
}

/// Calls that change what is on disk whatever their arguments.
const CHANGING: [&str; 38] = [
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "copy_file_range",
    "sendfile",
    "splice",
    "fallocate",
    "truncate",
    "ftruncate",
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "mknodat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fsetxattr",
    "lsetxattr",
    "setxattr",
    "utimensat",
];

/// The points of a log that `strace -f -o` wrote, in order, each once.
pub(super) fn parse(log: &str) -> Vec<Point> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut points = Vec::new();
    for line in log.lines() {
        let Some((thread, name, rest)) = call(line) else { continue };
        let nth = counts.entry((thread, name)).or_default();
        *nth += 1;
        let point = Point { name: name.to_owned(), nth: *nth, changes: changes(name, rest) };
        if name != "execve" && seen.insert((point.name.clone(), point.nth)) {
            points.push(point);
        }
    }
    points
}

/// Thread, name and arguments of a line that begins a call.
fn call(line: &str) -> Option<(&str, &str, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (name, arguments) = rest.trim_start().split_once('(')?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && !name.is_empty()).then_some((thread, name, arguments))
}

fn changes(name: &str, arguments: &str) -> bool {
    match name {
        "open" | "openat" | "openat2" | "creat" => {
            arguments.contains("O_CREAT") || arguments.contains("O_TRUNC")
        }
        "ioctl" => arguments.contains("FICLONE"),
        _ => CHANGING.contains(&name),
    }
}

/// `count` of `all`, spread evenly; all of them where the sweeps run whole.
pub fn sample<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    if crate::full() || all.len() <= count {
        return all.to_vec();
    }
    (0..count).map(|i| all[i * all.len() / count].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_points() {
        let log = "10 execve(\"x\") = 0\n\
                   10 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n\
                   11 openat(AT_FDCWD, \"b\", O_WRONLY|O_CREAT) = 4\n\
                   10 openat(AT_FDCWD, \"c\", O_WRONLY|O_CREAT <unfinished ...>\n\
                   11 write(4, \"(\", 1) = 1\n\
                   10 <... openat resumed>) = 5\n\
                   11 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
                   10 ioctl(5, BTRFS_IOC_CLONE or FICLONE, 4) = 0\n\
                   10 +++ exited with 0 +++\n";
        let points: Vec<_> = parse(log).into_iter().map(|p| (p.name, p.nth, p.changes)).collect();
        let expected = [("openat", 1, false), ("openat", 2, true), ("write", 1, true), ("ioctl", 1, true)];
        assert_eq!(points, expected.map(|(name, nth, changes)| (name.to_owned(), nth, changes)));
    }

    #[test]
    fn a_sample_is_spread_evenly() {
        let all: Vec<usize> = (0..100).collect();
        if !crate::full() {
            assert_eq!(sample(&all, 4), [0, 25, 50, 75]);
        }
        assert_eq!(sample(&all, 200), all);
    }
}
