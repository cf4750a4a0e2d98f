//! The rows of the tables, one comparison a file, and what they share: the settings of the run, the tree under test,
//! and the peaks of memory that processes had on the way.

pub mod apply;
pub mod checkpoints;
pub mod commit;
pub mod compose;
pub mod create;
pub mod db;
pub mod diff;
pub mod environments;
pub mod git;
pub mod hunks;
pub mod memory;
pub mod merge;
pub mod overlay;
pub mod plugins;
pub mod run;
pub mod service;
pub mod startup;
pub mod undo;

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure::{During, Failure, Result};
use crate::interrupt::Interrupt;
use crate::measure::Sample;
use crate::place::{Place, tool};
use crate::report::Row;
use crate::sandbox::SandboxCommand;
use crate::tree::TreeSpec;

/// How many files are changed before a diff or a commit.
pub const CHANGED: usize = 100;

/// The settings of one run.
pub struct Bench {
    /// The `sandbox` that is measured.
    pub binary: PathBuf,
    /// The tree that it is measured on.
    pub spec: TreeSpec,
    /// How many rounds count.
    pub rounds: usize,
    /// Whether the user wants to stop.
    pub interrupt: Interrupt,
    /// The largest memory seen so far.
    pub peaks: Peaks,
}

/// The largest resident memory of each command, in bytes, and of how many runs.
#[derive(Debug, Default)]
pub struct Peaks {
    /// `sandbox create`.
    pub create: Peak,
    /// `sandbox diff`.
    pub diff: Peak,
    /// `sandbox commit`.
    pub commit: Peak,
}

/// The largest value among several.
#[derive(Debug, Default)]
pub struct Peak {
    bytes: Cell<u64>,
    runs: Cell<usize>,
}

impl Peak {
    /// Takes note of a run, and passes its sample on.
    pub fn note(&self, sample: Sample) -> Sample {
        self.bytes.set(self.bytes.get().max(sample.peak));
        self.runs.set(self.runs.get() + 1);
        sample
    }

    /// The largest so far and the number of runs.
    pub fn largest(&self) -> (u64, usize) {
        (self.bytes.get(), self.runs.get())
    }
}

impl Bench {
    /// Runs one comparison; a row that is skipped or fails becomes a line that says so, only Ctrl-C ends the table.
    pub fn row(&self, name: &str, goal: Option<f64>, compare: impl FnOnce() -> Result<Row>) -> Result<Row> {
        self.interrupt.check()?;
        crate::say(name);
        let row = compare();
        self.interrupt.check()?;
        let row = row.unwrap_or_else(|why| Row::without(name, goal, "ms", &why));
        crate::say(&row.summary());
        Ok(row)
    }
}

/// A tree in a place, and a `sandbox` command whose state is in the same place.
pub struct Subject {
    /// The original.
    pub tree: PathBuf,
    /// The command.
    pub sandbox: SandboxCommand,
    /// Where.
    pub place: Place,
}

impl Subject {
    /// Writes the tree into `place`.
    pub fn new(bench: &Bench, place: Place) -> Result<Self> {
        crate::say(&format!("writing {} files on {}", bench.spec.files, place.name));
        let tree = place.root().join("tree");
        bench.spec.write(&tree, &bench.interrupt)?;
        let sandbox = SandboxCommand::new(&bench.binary, place.root());
        Ok(Self { tree, sandbox, place })
    }

    /// A path beside the tree.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.root().join(name)
    }
}

/// The other side of a durable commit: copies `paths` from below `from` into a fresh directory and makes each durable,
/// the directory at the end. The directory is made before and removed after the clock runs.
pub fn copy_and_fsync(from: &Path, paths: &[PathBuf], into: &Path) -> Result<Duration> {
    fs::create_dir(into).during("create directory", into)?;
    let started = Instant::now();
    for (number, path) in paths.iter().enumerate() {
        copy_durably(&from.join(path), &into.join(number.to_string()))?;
    }
    File::open(into).and_then(|directory| directory.sync_all()).during("fsync", into)?;
    let taken = started.elapsed();
    fs::remove_dir_all(into).during("remove", into)?;
    Ok(taken)
}

fn copy_durably(from: &Path, to: &Path) -> Result<()> {
    let mut source = File::open(from).during("open", from)?;
    let mut target = File::create_new(to).during("create", to)?;
    io::copy(&mut source, &mut target).during("copy to", to)?;
    target.sync_all().during("fsync", to)
}

/// Removes a tree outside the timed section.
pub fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_dir_all(path).during("remove", path)
}

/// Skips what compares with git where there is none.
pub fn need_git() -> Result<()> {
    let no_git = |why: Failure| Failure::Skipped(format!("no git to compare with ({why})"));
    tool(Command::new("git").arg("--version")).map_err(no_git)
}

/// Git in `directory`, with nobody's configuration.
pub fn git(directory: &Path, arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    without_configuration(&mut git).current_dir(directory);
    git.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]);
    git.args(arguments);
    git
}

/// Lets a command that is or starts git read no configuration but the repository's.
pub fn without_configuration(command: &mut Command) -> &mut Command {
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
    command.env("GIT_CONFIG_NOSYSTEM", "1")
}

/// A number of files with its thousands apart.
pub fn count(files: usize) -> String {
    match (files / 1_000, files % 1_000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_loop_copies_everything_and_cleans_up() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [PathBuf::from("a"), PathBuf::from("b")];
        paths.iter().for_each(|p| fs::write(scratch.path().join(p), "text").unwrap());
        let into = scratch.path().join("fresh");
        assert!(copy_and_fsync(scratch.path(), &paths, &into).unwrap() > Duration::ZERO);
        assert!(!into.exists());
        let missing = [PathBuf::from("missing")];
        assert!(copy_and_fsync(scratch.path(), &missing, &into).is_err());
    }

    #[test]
    fn a_peak_is_the_largest_of_all_runs() {
        let peak = Peak::default();
        for bytes in [3, 9, 4] {
            peak.note(Sample { wall: Duration::ZERO, peak: bytes });
        }
        assert_eq!(peak.largest(), (9, 3));
    }
    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([7, 1_000, 50_020, 500_000].map(count), ["7", "1,000", "50,020", "500,000"]);
    }
}
