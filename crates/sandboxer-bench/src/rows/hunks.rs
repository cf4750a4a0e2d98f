//! How soon `sandbox commit -p` asks its first question over ten thousand hunks, against `git diff` of the same two trees.
//! Ours runs on a terminal of its own and is timed until the question is on it; git until it has ended.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Bench, Subject, remove};
use crate::failure::{During, Failure, Result};
use crate::measure::{Sample, interleave, run};
use crate::place::tool;
use crate::report::Row;

const NAME: &str = "first question of commit -p over 10,000 hunks vs git diff of the same, disk";
const GOAL: f64 = 2.0;
const FILES: usize = 100;
const HUNKS: usize = 100;
/// Unchanged lines between two changes: more than the context that a hunk has around it.
const APART: usize = 10;

/// The comparison on the subject's place.
pub fn row(bench: &Bench, subject: &Subject) -> Result<Row> {
    bench.row(NAME, Some(GOAL), || {
        for program in ["git", "setsid"] {
            let missing = |why: Failure| Failure::Skipped(format!("no {program} ({why})"));
            tool(Command::new(program).arg("--version")).map_err(missing)?;
        }
        let directory = subject.beside("hunks");
        let (base, changed) = (directory.join("base"), directory.join("changed"));
        write_tree(&base, false)?;
        write_tree(&changed, true)?;
        let (_, created) = subject.sandbox.create(&base, "filesystem_copy")?;
        write_files(&created.sandbox_path, true)?;
        let output = subject.beside("output");
        let ours = || first_question(subject, &created.sandbox_id);
        let theirs = || {
            let mut diff = Command::new("git");
            diff.args(["diff", "--no-index", "--"]).arg(&base).arg(&changed).current_dir("/");
            run(&mut diff, &output, &[1])
        };
        let sides = interleave(bench.rounds, &bench.interrupt, ours, theirs)?;
        let found = fs::read_to_string(&output).during("read", &output)?.matches("\n@@ ").count();
        subject.sandbox.destroy(&created)?;
        remove(&directory)?;
        if found != FILES * HUNKS {
            return Err(Failure::new(format!("git found {found} hunks where there are {}", FILES * HUNKS)));
        }
        Ok(Row::timed(NAME, Some(GOAL), &sides))
    })
}

/// From the start of the command until its first question is on the terminal. It is answered with `q`.
fn first_question(subject: &Subject, id: &str) -> Result<Sample> {
    let (mut screen, slave) = terminal()?;
    let on_it = || slave.try_clone().map(Stdio::from).during("open", Path::new("the terminal"));
    let mut command = subject.sandbox.on_terminal(&["commit", "-p", id]);
    command.stdin(on_it()?).stdout(on_it()?).stderr(on_it()?);
    let started = Instant::now();
    let mut child = command.spawn().during("start", Path::new("setsid"))?;
    drop((command, slave));
    let asked = read_until(&mut screen, b"[y,n,q");
    let taken = started.elapsed();
    let _ = screen.write_all(b"q\n");
    // What is left on the terminal has to be read, or the command could wait for that.
    let _ = read_until(&mut screen, b"never on a screen");
    child.wait().during("wait for", Path::new("setsid"))?;
    if asked { Ok(Sample::in_process(taken)) } else { Err(Failure::new("commit -p asked nothing")) }
}

/// A pseudo-terminal: our end, and the command's.
fn terminal() -> Result<(File, File)> {
    let failed = |e: rustix::io::Errno| Failure::new(format!("no terminal ({e})"));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(failed)?;
    grantpt(&master).map_err(failed)?;
    unlockpt(&master).map_err(failed)?;
    let name = ptsname(&master, Vec::new()).map_err(failed)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).map_err(failed)?;
    Ok((File::from(master), File::from(slave)))
}

/// Whether that appeared before the terminal was hung up.
fn read_until(screen: &mut File, wanted: &[u8]) -> bool {
    let (mut seen, mut buffer) = (Vec::new(), [0; 65_536]);
    loop {
        match screen.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(got) => seen.extend_from_slice(&buffer[..got]),
        }
        if seen.windows(wanted.len()).any(|part| part == wanted) {
            return true;
        }
    }
}

fn write_tree(root: &Path, changed: bool) -> Result<()> {
    fs::create_dir_all(root).during("create directory", root)?;
    write_files(root, changed)
}

fn write_files(root: &Path, changed: bool) -> Result<()> {
    for number in 0..FILES {
        let path: PathBuf = root.join(format!("file{number:03}.txt"));
        fs::write(&path, text(number, changed)).during("write", &path)?;
    }
    Ok(())
}

fn text(number: usize, changed: bool) -> String {
    let mut text = String::new();
    for line in 0..HUNKS * APART {
        let other = if changed && line % APART == APART / 2 { " changed" } else { "" };
        let _ = writeln!(text, "line {line} of file {number}{other}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_line_differs() {
        let (old, new) = (text(3, false), text(3, true));
        let different = old.lines().zip(new.lines()).filter(|(a, b)| a != b).count();
        assert_eq!((old.lines().count(), different), (HUNKS * APART, HUNKS));
    }
}
