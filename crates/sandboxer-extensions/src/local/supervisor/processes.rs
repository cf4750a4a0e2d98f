//! What runs in a runtime: init's descendants, and nothing else can be in its pid namespace.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::local::report::Process;

/// An argument list longer than this is cut.
const MAX_COMMAND: usize = 4096;

/// A line of `/proc/PID/stat`, as far as it is used.
struct Stat {
    name: String,
    state: char,
    parent: u32,
    ticks: u64,
    pages: u64,
}

/// Everything that init has started, directly or not, by process id inside. Not init itself.
pub(super) fn inside(init: u32) -> Vec<Process> {
    let all = stats();
    let mut found: Vec<Process> = all
        .iter()
        .filter(|(pid, _)| **pid != init && descends(**pid, init, &all))
        .filter_map(|(pid, stat)| describe(*pid, stat, &all))
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn stats() -> BTreeMap<u32, Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// The name, in parentheses, may hold anything.
fn stat(line: &[u8]) -> Option<Stat> {
    let (open, close) = (line.iter().position(|b| *b == b'(')?, line.iter().rposition(|b| *b == b')')?);
    let rest = std::str::from_utf8(line.get(close + 2..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        name: String::from_utf8_lossy(&line[open + 1..close]).into_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        pages: number(21)?,
    })
}

fn descends(pid: u32, from: u32, all: &BTreeMap<u32, Stat>) -> bool {
    // The table is no snapshot: a loop in it must not be one of ours.
    let mut at = pid;
    for _ in 0..all.len() {
        match all.get(&at).map(|stat| stat.parent) {
            Some(parent) if parent == from => return true,
            Some(0) | None => return false,
            Some(parent) => at = parent,
        }
    }
    false
}

fn describe(host_pid: u32, stat: &Stat, all: &BTreeMap<u32, Stat>) -> Option<Process> {
    let parent = all.contains_key(&stat.parent).then(|| inner_pid(stat.parent)).flatten();
    let ticks = clock_ticks_per_second().max(1);
    Some(Process {
        pid: inner_pid(host_pid)?,
        parent: parent.unwrap_or(0),
        host_pid,
        state: stat.state,
        memory: stat.pages * rustix::param::page_size() as u64,
        cpu: Duration::from_millis(stat.ticks * 1000 / ticks),
        command: command_of(host_pid).unwrap_or_else(|| format!("[{}]", stat.name)),
    })
}

/// The last of a process's ids is the one in its own namespace.
fn inner_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok())
}

fn command_of(pid: u32) -> Option<String> {
    let mut line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).ok()?;
    line.truncate(MAX_COMMAND);
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let text = words.join(" ").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trap() {
        let line = b"7 (a) R (b)) S 3 7 7 0 -1 4194560 1 2 3 4 10 5 0 0 20 0 1 0 9 1000 25 0";
        let stat = stat(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) R (b)", 'S', 3));
        assert_eq!((stat.ticks, stat.pages), (15, 25));
        assert!(super::stat(b"garbage").is_none());
    }

    #[test]
    fn descendants_are_found_and_others_are_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = inside(std::process::id());
        let ours = found.iter().find(|process| process.host_pid == child.id()).unwrap();
        assert_eq!(ours.command, "sleep 60");
        assert!(found.iter().all(|process| process.host_pid != 1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
