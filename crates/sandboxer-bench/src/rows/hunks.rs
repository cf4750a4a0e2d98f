//! How soon `sandbox commit -p` asks its first question over ten thousand hunks, against `git diff` of the same two trees.
//! Ours runs on a terminal made by `script`, and is told to stop at the first question: its whole run is timed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        for program in ["git", "script"] {
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
        let ours = || first_question(subject, &created.sandbox_id, &output);
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

/// From the start of the command to its end, with `q` as the answer to the first question.
fn first_question(subject: &Subject, id: &str, output: &Path) -> Result<Sample> {
    let answer = output.with_extension("answer");
    fs::write(&answer, "q\n").during("write", &answer)?;
    let mut command = subject.sandbox.on_terminal(&format!("commit -p {id}"), &answer);
    let sample = run(&mut command, output, &[0])?;
    let said = fs::read(output).during("read", output)?;
    if String::from_utf8_lossy(&said).contains("[y,n,q") {
        return Ok(sample);
    }
    Err(Failure::new(format!("commit -p asked nothing: {}", String::from_utf8_lossy(&said))))
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
