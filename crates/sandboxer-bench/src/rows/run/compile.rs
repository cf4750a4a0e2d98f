//! A compile inside a runtime against the same compile outside, each from clean. The command tells the time itself, before and
//! after, so that the start of the runtime does not count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::yard::{Project, Who, Yard};
use super::{Scale, need_tool, sources};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave, run};
use crate::report::Row;

const GOAL: f64 = 1.1;

/// One program, and how it is built.
struct Build<'a> {
    name: &'a str,
    directory: &'static str,
    /// For a shell; `$1` is a directory of programs.
    script: &'static str,
    programs: PathBuf,
    /// Writes its sources, as many files as this.
    write: fn(&Path, usize) -> Result<()>,
    files: usize,
}

/// C by `make`, Rust by `cargo`.
pub fn rows(yard: &Yard<'_>, scale: &Scale) -> Result<Vec<Row>> {
    Ok(vec![c(yard, scale.c_files)?, rust(yard, scale.modules)?])
}

fn c(yard: &Yard<'_>, files: usize) -> Result<Row> {
    let name = format!("make of {files} C files inside vs outside");
    yard.bench.row(&name, Some(GOAL), || {
        need_tool("make")?;
        need_tool("cc")?;
        let (directory, script, write) = ("make", "make -j2 >&2", sources::write_c);
        Build { name: &name, directory, script, programs: "/usr/bin".into(), write, files }.compare(yard)
    })
}

fn rust(yard: &Yard<'_>, modules: usize) -> Result<Row> {
    let name = format!("cargo build of {modules} modules inside vs outside");
    yard.bench.row(&name, Some(GOAL), || {
        let (directory, script) = ("cargo", "PATH=$1:$PATH cargo build --offline --locked >&2");
        let (programs, write) = (toolchain()?, sources::write_rust);
        Build { name: &name, directory, script, programs, write, files: modules }.compare(yard)
    })
}

/// Where cargo and rustc themselves are; what is on the path may choose among several of them by what is in somebody's home.
fn toolchain() -> Result<PathBuf> {
    let missing = |why: String| Failure::Skipped(format!("no rustc here ({why})"));
    let asked =
        Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| missing(e.to_string()))?;
    if !asked.status.success() {
        return Err(missing(String::from_utf8_lossy(&asked.stderr).trim().to_owned()));
    }
    Ok(Path::new(String::from_utf8_lossy(&asked.stdout).trim()).join("bin"))
}

impl Build<'_> {
    fn compare(&self, yard: &Yard<'_>) -> Result<Row> {
        let project = yard.project(self.directory, Who::ourselves())?;
        project.need_strategy()?;
        (self.write)(&project.directory, self.files)?;
        let programs = self.programs.display().to_string();
        let script = timing(self.script);
        let command = ["sh", "-c", &script, "build", &programs];
        let ours = || timed(&project, project.run(&[], &command));
        let theirs = || self.outside(&project, &command);
        let sides = interleave(yard.bench.rounds, &yard.bench.interrupt, ours, theirs)?;
        Ok(Row::timed(self.name, Some(GOAL), &sides))
    }

    /// The same command in a plain directory of new sources.
    fn outside(&self, project: &Project<'_>, command: &[&str]) -> Result<Sample> {
        let fresh = project.beside("plain");
        fs::create_dir(&fresh).during("create directory", &fresh)?;
        (self.write)(&fresh, self.files)?;
        let mut plain = project.plainly(command[0]);
        plain.args(&command[1..]).current_dir(&fresh);
        let sample = timed(project, plain);
        fs::remove_dir_all(&fresh).during("remove", &fresh)?;
        sample
    }
}

/// The script between two looks at the clock; fails where it fails.
fn timing(script: &str) -> String {
    format!("set -e; date +%s%N; {script}; date +%s%N")
}

fn timed(project: &Project<'_>, mut command: Command) -> Result<Sample> {
    project.settle()?;
    let output = project.beside("output");
    let sample = run(&mut command, &output, &[0])?;
    let text = fs::read_to_string(&output).during("read", &output)?;
    let wall = between(&text).ok_or_else(|| Failure::new(format!("no two times in {text:?}")))?;
    Ok(Sample { wall, ..sample })
}

/// The time between the first and the second of two lines of nanoseconds.
fn between(text: &str) -> Option<Duration> {
    let mut lines = text.lines().map(str::parse::<u64>);
    let (before, after) = (lines.next()?.ok()?, lines.next()?.ok()?);
    Some(Duration::from_nanos(after.checked_sub(before)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::place::tool;

    #[test]
    fn the_time_is_what_lies_between_two_lines() {
        assert_eq!(between("1000\n3500\n"), Some(Duration::from_nanos(2_500)));
        assert_eq!(between("1000\n"), None);
        assert_eq!(between("3500\n1000\n"), None);
        let output = Command::new("sh").args(["-c", &timing("true")]).output().unwrap();
        assert!(between(&String::from_utf8(output.stdout).unwrap()).is_some());
        assert!(!Command::new("sh").args(["-c", &timing("false")]).output().unwrap().status.success());
    }

    #[test]
    fn what_is_generated_compiles() {
        let scratch = tempfile::tempdir().unwrap();
        sources::write_rust(scratch.path(), 2).unwrap();
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2021", "--emit", "metadata", "-D", "warnings", "src/main.rs"]);
        tool(rustc.current_dir(scratch.path())).unwrap();
        if need_tool("make").and(need_tool("cc")).is_err() {
            eprintln!("skipped: the generated C is not compiled: no make or no cc");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        sources::write_c(scratch.path(), 2).unwrap();
        tool(Command::new("make").current_dir(scratch.path())).unwrap();
        tool(&mut Command::new(scratch.path().join("program"))).unwrap();
    }
}
