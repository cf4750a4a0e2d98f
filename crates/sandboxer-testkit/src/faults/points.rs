//! Where a command can be hit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::Command;

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

/// The least number of points of a sampled sweep.
const MIN_POINTS: usize = 40;

/// The least share of its points that a sampled sweep takes: one in so many.
const ONE_IN: usize = 20;

/// A sample of the points of a sweep that consists of `parts` such lists: at least 5 % of the points, and at least 40 in
/// the whole sweep. All of them in a full run.
///
/// The points are spread over the whole list; which of its neighbours stands for a stretch of it is decided by
/// `SANDBOXER_TEST_SEED`, so that a run can be repeated and every change tests other points.
pub fn sample<T: Clone>(all: &[T], parts: usize) -> Vec<T> {
    let count = MIN_POINTS.div_ceil(parts).max(all.len().div_ceil(ONE_IN));
    if crate::full() { all.to_vec() } else { spread(all, count) }
}

/// `count` cases of a list that other tests cover case by case. All of them in a full run.
pub fn sample_of<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    if crate::full() { all.to_vec() } else { spread(all, count) }
}

/// Whether the present test belongs to this run's sample of one in `one_in` tests; the error says why it is skipped.
///
/// For suites that repeat the cases of another suite over a variant of the same strategy.
pub fn require_sampled(one_in: u64) -> Result<(), String> {
    let thread = std::thread::current();
    let digest = digest_number(&format!("{} {}", seed(), thread.name().unwrap_or_default()));
    if crate::full() || digest.is_multiple_of(one_in) {
        return Ok(());
    }
    Err(format!("not in this run's sample of one in {one_in}; ./test --full runs it"))
}

/// `count` points, chosen in the same way: for the outer of two nested sweeps, of which even a full run takes no more.
pub fn spread<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    if all.len() <= count {
        return all.to_vec();
    }
    let seed = seed();
    println!("{count} of {} points by SANDBOXER_TEST_SEED={seed}", all.len());
    let start = |part: usize| part * all.len() / count;
    (0..count).map(|part| all[pick(start(part)..start(part + 1), &seed)].clone()).collect()
}

/// A number that follows from the seed of this run and from `name`.
pub fn seed_for(name: &str) -> u64 {
    digest_number(&format!("{} {name}", seed()))
}

/// The seed of this run, from the environment or from the tree of HEAD.
fn seed() -> String {
    std::env::var("SANDBOXER_TEST_SEED").unwrap_or_else(|_| {
        let mut git = Command::new("git");
        git.args(["rev-parse", "--short=12", "HEAD^{tree}"]).current_dir(super::workspace_root());
        let output = git.output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).trim().to_owned()
    })
}

/// A number of `range` that follows from the seed.
fn pick(range: Range<usize>, seed: &str) -> usize {
    let number = digest_number(&format!("{seed} {}", range.start));
    range.start + usize::try_from(number % range.len() as u64).unwrap()
}

fn digest_number(text: &str) -> u64 {
    u64::from_le_bytes(blake3::hash(text.as_bytes()).as_bytes()[..8].try_into().unwrap())
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
    fn a_sample_has_a_twentieth_of_the_points_and_at_least_forty() {
        let all: Vec<usize> = (0..2000).collect();
        assert_eq!(sample(&all[..30], 1), &all[..30]);
        if crate::full() {
            return assert_eq!(sample(&all, 1), all);
        }
        let (small, large, part) = (sample(&all[..100], 1), sample(&all, 1), sample(&all[..100], 4));
        assert_eq!((small.len(), large.len(), part.len()), (40, 100, 10));
        assert!(large.windows(2).all(|pair| pair[0] < pair[1]), "{large:?}");
        assert_eq!(large, sample(&all, 1), "the same seed takes the same points");
    }

    #[test]
    fn another_seed_takes_other_points() {
        let picked = |seed: &str| (0..100).map(|i| pick(i * 20..(i + 1) * 20, seed)).collect::<Vec<_>>();
        assert_ne!(picked("one"), picked("two"));
        assert!(picked("one").iter().enumerate().all(|(i, at)| (i * 20..(i + 1) * 20).contains(at)));
    }
}
