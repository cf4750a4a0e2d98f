//! The merge against `git merge-file`, byte for byte, over the comparison that git itself made.
//!
//! Where lines repeat, there are several right comparisons of two texts, and ours is not always git's. To hold the merge
//! itself to git's in every case, the comparisons come from `git diff` here. Where ours happens to be the same, the public
//! function is held to the same bytes.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tempfile::TempDir;

use super::*;

const LABELS: Labels<'_> = Labels { ours: "ours", theirs: "theirs" };

/// A directory for the texts, and the algorithm that git compares with.
struct Git {
    directory: TempDir,
    algorithm: &'static str,
}

impl Git {
    /// `None`, and a word about it, where this git is missing or too old to be told how `merge-file` compares.
    fn with(algorithm: &'static str) -> Option<Self> {
        let git = Self { directory: TempDir::new().unwrap(), algorithm };
        let fine =
            Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success())
                && git.merge(b"a\n", b"a\n", b"a\n").is_some();
        if !fine {
            eprintln!("skipped: no git whose merge-file knows --diff-algorithm={algorithm}");
        }
        fine.then_some(git)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("GIT_CEILING_DIRECTORIES", self.directory.path().parent().unwrap()).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR");
        command.output().unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.directory.path(), name)
    }

    /// The merged text, and how many conflicts it has; `None` for an error.
    fn merge(&self, base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<(Vec<u8>, i32)> {
        for (name, text) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            fs::write(self.path(name), text).unwrap();
        }
        let algorithm = format!("--diff-algorithm={}", self.algorithm);
        let output = self.run(&["merge-file", "-p", "-q", &algorithm, "ours", "base", "theirs"]);
        output.status.code().filter(|code| *code < 128).map(|code| (output.stdout, code))
    }

    /// The changes that git finds. One line of context keeps it from cutting off the common end first, which it does not do
    /// for a merge.
    fn align(&self, old: &[u8], new: &[u8]) -> Vec<Span> {
        fs::write(self.path("old"), old).unwrap();
        fs::write(self.path("new"), new).unwrap();
        let algorithm = format!("--diff-algorithm={}", self.algorithm);
        let fixed =
            ["diff", "--no-index", "--no-indent-heuristic", "--text", "--no-color", "--no-ext-diff", "-U1"];
        let output = self.run(&[&fixed[..], &[&algorithm, "old", "new"]].concat());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        changes_in(&output.stdout)
    }
}

/// Reads the changes out of a unified diff.
fn changes_in(diff: &[u8]) -> Vec<Span> {
    let mut changes: Vec<Span> = Vec::new();
    let mut at = None;
    for line in diff.split(|byte| *byte == b'\n') {
        if line.starts_with(b"@@ ") {
            at = Some(hunk_start(std::str::from_utf8(line).unwrap()));
            continue;
        }
        let Some((old, new)) = &mut at else { continue };
        let (from_old, to_new) = match line.first() {
            Some(b'-') => (1, 0),
            Some(b'+') => (0, 1),
            Some(b' ') => {
                (*old, *new) = (*old + 1, *new + 1);
                continue;
            }
            _ => continue,
        };
        match changes.last_mut() {
            Some(last) if last.old.end == *old && last.new.end == *new => {
                last.old.end += from_old;
                last.new.end += to_new;
            }
            _ => changes.push(Span { old: *old..*old + from_old, new: *new..*new + to_new }),
        }
        (*old, *new) = (*old + from_old, *new + to_new);
    }
    changes
}

/// Where a hunk starts on either side, counted from 0; of an empty side the header names the line before.
fn hunk_start(header: &str) -> (usize, usize) {
    let side = |word: &str| {
        let (start, count) = word[1..].split_once(',').unwrap_or((&word[1..], "1"));
        start.parse::<usize>().unwrap() - usize::from(count != "0")
    };
    let words: Vec<&str> = header.split(' ').collect();
    (side(words[1]), side(words[2]))
}

/// Lines that repeat often, some without a letter, some with a carriage return or without being UTF-8.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let lines = [&b"a\n"[..], b"b\n", b"c\n", b"d\n", b"e\n", b"}\n", b"\n", b"a\r\n", b"b\r\n", b"\xff\n"];
    proptest::sample::select(lines.to_vec()).prop_map(<[u8]>::to_vec)
}

/// One edit: where (as a part of the text's length), how many lines go, what comes instead.
type Edit = (u16, usize, Vec<Vec<u8>>);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((any::<u16>(), 0..4usize, prop::collection::vec(line(), 0..4)), 0..5)
}

fn edited(lines: &[Vec<u8>], edits: &[Edit]) -> Vec<Vec<u8>> {
    let mut lines = lines.to_vec();
    for (place, removed, added) in edits {
        let start = usize::from(*place) % (lines.len() + 1);
        let end = (start + removed).min(lines.len());
        lines.splice(start..end, added.iter().cloned());
    }
    lines
}

fn ended(lines: &[Vec<u8>], ends: bool) -> Vec<u8> {
    let text = lines.concat();
    if ends { text } else { text.strip_suffix(b"\n").unwrap_or(&text).to_vec() }
}

/// A base and what two sides made of it; all three may end without a newline.
fn texts() -> impl Strategy<Value = [Vec<u8>; 3]> {
    let base = prop::collection::vec(line(), 0..24);
    let last = prop_oneof![4 => Just([true; 3]), 1 => any::<[bool; 3]>()];
    (base, edits(), edits(), edits(), last).prop_map(|(base, shared, ours, theirs, last)| {
        let common = edited(&base, &shared[..shared.len() / 3]);
        let (ours, theirs) = (edited(&common, &ours), edited(&common, &theirs));
        [ended(&base, last[0]), ended(&ours, last[1]), ended(&theirs, last[2])]
    })
}

/// How often our own comparison was git's, of how many cases.
#[derive(Default)]
struct Tally {
    cases: Cell<u32>,
    agreed: Cell<u32>,
    clean: Cell<u32>,
}

fn check(git: &Git, [base, ours, theirs]: &[Vec<u8>; 3], tally: &Tally) -> Result<(), TestCaseError> {
    let (expected, conflicts) = git.merge(base, ours, theirs).unwrap();
    let texts = Texts::new(base, ours, theirs);
    let merged = merge_aligned(&texts, |old, new| git.align(old, new), &LABELS);
    let shown = String::from_utf8_lossy(&expected);
    prop_assert_eq!(String::from_utf8_lossy(&merged.content), shown);
    prop_assert_eq!(&merged.content, &expected);
    prop_assert_eq!(merged.conflicts.len(), conflicts as usize);
    let same = Cell::new(true);
    let ours_as_gits = |old: &[u8], new: &[u8]| {
        let own = LineDiff::for_merge(old, new).into_changes();
        same.set(same.get() && own == git.align(old, new));
        own
    };
    let own = merge_aligned(&texts, ours_as_gits, &LABELS);
    prop_assert_eq!(&own, &merge(base, ours, theirs, &LABELS));
    if same.get() {
        prop_assert_eq!(own, merged);
    }
    let count = |cell: &Cell<u32>, yes: bool| cell.set(cell.get() + u32::from(yes));
    count(&tally.cases, true);
    count(&tally.agreed, same.get());
    count(&tally.clean, conflicts == 0);
    Ok(())
}

/// The same cases each time, so that a failure is a failure of the change at hand.
fn run(algorithm: &'static str) {
    let Some(git) = Git::with(algorithm) else { return };
    let config = Config {
        cases: CASES,
        rng_seed: RngSeed::Fixed(20_261_116),
        failure_persistence: None,
        ..Config::default()
    };
    let tally = Tally::default();
    let result = TestRunner::new(config).run(&texts(), |texts| check(&git, &texts, &tally));
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(
        tally.agreed.get() * 4 > tally.cases.get() * 3,
        "our comparison is git's in {}",
        tally.agreed.get()
    );
    assert!((CASES / 10..CASES * 9 / 10).contains(&tally.clean.get()), "{} are clean", tally.clean.get());
}

const CASES: u32 = 200;

#[test]
fn merges_as_git_does_over_its_histogram() {
    run("histogram");
}

#[test]
fn merges_as_git_does_over_its_default() {
    run("myers");
}
