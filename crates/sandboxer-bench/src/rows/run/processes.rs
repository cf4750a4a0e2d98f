//! Processes that run while something is measured: commands that sleep inside a runtime, found from outside by what they sleep, and
//! every process of a binary with the memory that it has.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{During, Failure, Result};
use crate::interrupt::Interrupt;

/// How long a command may take until it sleeps, and until it has ended; many start at once.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// What nobody ends by mistake ends by itself.
const SECONDS: u32 = 3_600;

static SLEEPERS: AtomicUsize = AtomicUsize::new(0);

/// A `sandbox` command whose command inside sleeps. Ended when this value goes, by the signal that it passes on.
pub struct Sleeper {
    child: Child,
    argument: String,
    errors: File,
}

impl Sleeper {
    /// Starts what `command` makes of the argument of `sleep`, which no other process has.
    pub fn start(command: impl FnOnce(&str) -> Command) -> Result<Self> {
        let number = SLEEPERS.fetch_add(1, Ordering::Relaxed);
        let argument = format!("{SECONDS}.{:07}{number:04}", std::process::id());
        let mut command = command(&argument);
        let program = PathBuf::from(command.get_program());
        let errors = tempfile::tempfile().during("make a file for what is said by", &program)?;
        let said = errors.try_clone().during("share the file of", &program)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().during("start", &program)?;
        Ok(Self { child, argument, errors })
    }

    /// Waits until it sleeps; its process, as the host numbers it.
    pub fn asleep(&mut self, interrupt: &Interrupt) -> Result<u32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            interrupt.check()?;
            if let Some(pid) = process_with(&["sleep", &self.argument]) {
                return Ok(pid);
            }
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(Failure::new(format!("a command ended before it slept: {}", self.said())));
            }
            thread::sleep(PAUSE);
        }
        Err(Failure::new(format!("a command did not come to sleep in {} s", PATIENCE.as_secs())))
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        let read = self.errors.rewind().and_then(|()| self.errors.read_to_string(&mut text));
        read.map_or_else(|why| why.to_string(), |_| text.trim().to_owned())
    }

    /// Tells it to end, without waiting.
    pub fn tell_to_end(&self) {
        // It has not been waited for, so its number is still its own; where it is gone already that is just as well.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn has_ended(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            thread::sleep(PAUSE);
        }
        false
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.tell_to_end();
        }
        if !self.has_ended() {
            crate::say(&format!("process {} did not end when told to; killing it", self.child.id()));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The process with exactly these words on its command line.
fn process_with(words: &[&str]) -> Option<u32> {
    let line: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    processes().find(|pid| fs::read(of(*pid, "cmdline")).is_ok_and(|found| found == line))
}

/// How many processes of which kind there are, and how much memory is theirs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, (usize, u64)>);

impl Tally {
    /// Of everything that runs the file `binary`. Shared memory counts in parts (PSS).
    pub fn of(binary: &Path) -> Result<Self> {
        let file = fs::metadata(binary).during("look at", binary)?;
        // What is in another mount namespace has another path, and the same file.
        let runs_it = |pid: &u32| {
            fs::metadata(of(*pid, "exe")).is_ok_and(|exe| (exe.dev(), exe.ino()) == (file.dev(), file.ino()))
        };
        let mut tally = Self::default();
        for pid in processes().filter(runs_it) {
            let path = of(pid, "smaps_rollup");
            let rollup = fs::read_to_string(&path).during("read", &path)?;
            let bytes = in_bytes(&rollup, "Pss:").ok_or_else(|| Failure::new("no Pss in smaps_rollup"))?;
            tally.add(kind(pid), bytes);
        }
        Ok(tally)
    }

    fn add(&mut self, kind: &'static str, bytes: u64) {
        let (processes, sum) = self.0.entry(kind).or_default();
        *processes += 1;
        *sum += bytes;
    }

    /// How many processes of a kind there are.
    pub fn count(&self, kind: &str) -> usize {
        self.0.get(kind).map_or(0, |(processes, _)| *processes)
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|(_, bytes)| bytes).sum()
    }

    /// What one process of each kind has, in words.
    pub fn describe(&self) -> String {
        let one = |(kind, (processes, bytes)): (&&str, &(usize, u64))| {
            format!("{processes} × {kind} of {:.2} MB", *bytes as f64 / *processes as f64 / 1e6)
        };
        if self.0.is_empty() {
            return "no process".to_owned();
        }
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Which of our processes this is.
fn kind(pid: u32) -> &'static str {
    let line = fs::read(of(pid, "cmdline")).unwrap_or_default();
    let status = fs::read_to_string(of(pid, "status")).unwrap_or_default();
    // A process that has a second number is in a namespace of processes; there we are process 1.
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    match line {
        _ if numbers.split_whitespace().count() > 1 => "init",
        line if line.starts_with(b"sandbox-runtime") => "supervisor",
        line if line.starts_with(b"sandbox-keeper") => "keeper",
        _ => "command line",
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn of(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn in_bytes(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sleep(argument: &str) -> Command {
        let mut sleep = Command::new("sleep");
        sleep.arg(argument);
        sleep
    }

    #[test]
    fn a_sleeper_is_found_and_ends_when_it_goes() {
        let mut sleeper = Sleeper::start(sleep).unwrap();
        assert_eq!(sleeper.asleep(&Interrupt::default()).unwrap(), sleeper.child.id());
        let pid = sleeper.child.id();
        drop(sleeper);
        assert!(!of(pid, "exe").exists());
    }

    #[test]
    fn a_command_that_does_not_come_to_sleep_is_quoted() {
        let mut fails = Sleeper::start(|_| {
            let mut fails = Command::new("/bin/sh");
            fails.args(["-c", "echo no luck >&2; exit 6"]);
            fails
        })
        .unwrap();
        let message = fails.asleep(&Interrupt::default()).unwrap_err().to_string();
        assert!(message.ends_with("before it slept: no luck"), "{message}");
    }

    #[test]
    fn our_own_memory_is_counted_under_its_file() {
        let tally = Tally::of(&std::env::current_exe().unwrap()).unwrap();
        let (processes, bytes) = tally.0["command line"];
        assert!(processes >= 1 && bytes > 100_000, "{tally:?}");
        assert_eq!(tally.bytes(), bytes);
        assert_eq!(Tally::of(Path::new("/proc/version")).unwrap(), Tally::default());
    }

    #[test]
    fn a_tally_tells_what_one_of_each_kind_has() {
        let mut tally = Tally::default();
        for bytes in [1_000_000, 3_000_000] {
            tally.add("init", bytes);
        }
        tally.add("keeper", 500_000);
        assert_eq!(tally.describe(), "2 × init of 2.00 MB, 1 × keeper of 0.50 MB");
        assert_eq!(tally.bytes(), 4_500_000);
        assert_eq!((tally.count("init"), tally.count("supervisor")), (2, 0));
    }
}
