//! The three-way merge against `git merge-file -p` as the oracle.
//!
//! Where no line repeats, a comparison of two texts has one answer, and the merge must be git's to the byte, whichever of
//! git's algorithms is asked. Where lines repeat, several comparisons are right, and which one is taken decides what
//! touches: ours is git's in most cases and not in all. There the merge must nearly always be what one of git's algorithms
//! gives, and always fulfil what any merge has to. (The unit tests of the merge hold it to git's bytes there, too, by
//! merging over the comparison that git made.)
//!
//! The cases are the same each time; `SANDBOXER_TEST_FULL=1` tries many more, and new ones.

use std::cell::Cell;
use std::fs;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use sandboxer_fs::merge::{Labels, Merged, has_markers, merge};
use tempfile::TempDir;

const LABELS: Labels<'_> = Labels { ours: "the original", theirs: "the sandbox" };

fn merged(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    merge(base, ours, theirs, &LABELS)
}

/// A base and what two sides made of it.
#[derive(Clone, Debug)]
struct Case {
    base: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Case {
    fn merged(&self) -> Merged {
        merged(&self.base, &self.ours, &self.theirs)
    }
}

struct Git {
    directory: TempDir,
}

impl Git {
    /// `None`, and a word about it, where there is no git.
    fn find() -> Option<Self> {
        let there =
            Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        if !there {
            eprintln!("skipped: git is not installed");
        }
        there.then(|| Self { directory: TempDir::new().unwrap() })
    }

    /// What git makes of a case and how many conflicts it counts; `None` for an algorithm that it cannot be told.
    fn merge(&self, case: &Case, algorithm: Option<&str>) -> Option<(Vec<u8>, usize)> {
        for (name, text) in [("base", &case.base), ("ours", &case.ours), ("theirs", &case.theirs)] {
            fs::write(self.directory.path().join(name), text).unwrap();
        }
        let mut command = Command::new("git");
        command.args(["merge-file", "-p", "-q", "-L", LABELS.ours, "-L", "base", "-L", LABELS.theirs]);
        command.args(algorithm.map(|name| format!("--diff-algorithm={name}")));
        command.args(["ours", "base", "theirs"]).current_dir(self.directory.path());
        command.env("GIT_CEILING_DIRECTORIES", self.directory.path().parent().unwrap()).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR");
        let output = command.stdin(Stdio::null()).output().unwrap();
        // Its exit code is the number of conflicts, 127 for more; beyond that are errors.
        let code = output.status.code().filter(|code| (0..128).contains(code))?;
        Some((output.stdout, code as usize))
    }

    fn all_merges(&self, case: &Case) -> Vec<(Vec<u8>, usize)> {
        let algorithms = [None, Some("histogram"), Some("minimal"), Some("patience")];
        algorithms.into_iter().filter_map(|name| self.merge(case, name)).collect()
    }
}

/// One edit: where (as a part of the text's length), how many lines go, what comes instead.
type Edit<L> = (u16, usize, Vec<L>);

fn edits<L: Clone + std::fmt::Debug>(line: impl Strategy<Value = L>) -> impl Strategy<Value = Vec<Edit<L>>> {
    prop::collection::vec((any::<u16>(), 0..5usize, prop::collection::vec(line, 0..4)), 0..6)
}

fn edited<L: Clone>(lines: &[L], edits: &[Edit<L>]) -> Vec<L> {
    let mut lines = lines.to_vec();
    for (place, removed, added) in edits {
        let start = usize::from(*place) % (lines.len() + 1);
        let end = (start + removed).min(lines.len());
        lines.splice(start..end, added.iter().cloned());
    }
    lines
}

fn text(lines: &[Vec<u8>], has_last_newline: bool) -> Vec<u8> {
    let text = lines.concat();
    if has_last_newline { text } else { text.strip_suffix(b"\n").unwrap_or(&text).to_vec() }
}

fn last_newlines() -> impl Strategy<Value = [bool; 3]> {
    prop_oneof![4 => Just([true; 3]), 1 => any::<[bool; 3]>()]
}

/// Texts of few different lines: everything overlaps, and much can be compared in more than one way.
fn repetitive() -> impl Strategy<Value = Case> {
    let lines = [&b"a\n"[..], b"b\n", b"c\n", b"}\n", b"\n", b"a\r\n", b"\tb\r\n", b"\xff\xfe\n"];
    let line = || proptest::sample::select(lines.to_vec()).prop_map(<[u8]>::to_vec);
    let base = prop::collection::vec(line(), 0..30);
    let new = || prop_oneof![3 => line(), 1 => Just(b"x\n".to_vec()), 1 => Just(b"y\n".to_vec())];
    (base, edits(new()), edits(new()), last_newlines()).prop_map(|(base, ours, theirs, last)| Case {
        ours: text(&edited(&base, &ours), last[1]),
        theirs: text(&edited(&base, &theirs), last[2]),
        base: text(&base, last[0]),
    })
}

/// A line that is nowhere else in its text; of the same number on both sides, the same line.
fn unique_line(number: usize) -> Vec<u8> {
    let end = ["\n", "\r\n"][number / 7 % 2];
    match number % 5 {
        0 => format!("{:>number$}}}{end}", "").into_bytes(),
        1 => [&b"\xff"[..], format!("{number}{end}").as_bytes()].concat(),
        _ => format!("line {number}{end}").into_bytes(),
    }
}

/// Texts in which no line occurs twice, and both sides often add the same.
fn unique() -> impl Strategy<Value = Case> {
    let new = || 100..130usize;
    (0..40usize, edits(new()), edits(new()), last_newlines()).prop_map(|(count, ours, theirs, last)| {
        let base: Vec<usize> = (0..count).collect();
        let side = |edits: &[Edit<usize>], newline: bool| {
            let mut seen = std::collections::BTreeSet::new();
            let lines = edited(&base, edits).into_iter().filter(|number| seen.insert(*number));
            text(&lines.map(unique_line).collect::<Vec<_>>(), newline)
        };
        let base_lines: Vec<Vec<u8>> = base.iter().copied().map(unique_line).collect();
        Case { base: text(&base_lines, last[0]), ours: side(&ours, last[1]), theirs: side(&theirs, last[2]) }
    })
}

/// The same cases each time, so that a failure is a failure of the change at hand.
fn run(cases: u32, strategy: impl Strategy<Value = Case>, check: impl Fn(Case) -> Result<(), TestCaseError>) {
    let full = std::env::var_os("SANDBOXER_TEST_FULL").is_some_and(|value| value == "1");
    let config = Config {
        cases: if full { cases * 20 } else { cases },
        rng_seed: if full { RngSeed::Random } else { RngSeed::Fixed(20_261_116) },
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(failure) = TestRunner::new(config).run(&strategy, check) {
        panic!("{failure}");
    }
}

#[test]
fn texts_without_repeated_lines_merge_as_in_git() {
    let Some(git) = Git::find() else { return };
    let clean = Cell::new(0);
    run(300, unique(), |case| {
        let (merged, (expected, conflicts)) = (case.merged(), git.merge(&case, None).unwrap());
        let shown = (String::from_utf8_lossy(&merged.content), String::from_utf8_lossy(&expected));
        prop_assert!(merged.content == expected, "ours:\n{}\ngit's:\n{}", shown.0, shown.1);
        prop_assert_eq!(merged.conflicts.len(), conflicts);
        clean.set(clean.get() + usize::from(conflicts == 0));
        Ok(())
    });
    assert!(clean.get() > 30, "only {} cases were clean", clean.get());
}

/// Ours may be a comparison that none of git's algorithms makes; that is rare, or something is wrong with ours.
#[test]
fn repetitive_texts_merge_as_one_of_gits_comparisons_has_it() {
    let Some(git) = Git::find() else { return };
    let nothing = Case { base: Vec::new(), ours: Vec::new(), theirs: Vec::new() };
    if git.merge(&nothing, Some("histogram")).is_none() {
        eprintln!("skipped: before 2.44, git merge-file has no --diff-algorithm");
        return;
    }
    let (cases, different) = (Cell::new(0), Cell::new(0));
    run(150, repetitive(), |case| {
        let merged = case.merged();
        let ours = (merged.content, merged.conflicts.len());
        cases.set(cases.get() + 1);
        different.set(different.get() + usize::from(!git.all_merges(&case).contains(&ours)));
        Ok(())
    });
    assert!(different.get() * 25 <= cases.get(), "{} of {} differ", different.get(), cases.get());
}

fn count(text: &[u8], line: &[u8]) -> usize {
    text.split_inclusive(|byte| *byte == b'\n').filter(|other| *other == line).count()
}

/// Whatever the comparison: a line that the base has not is a change, one that a side has no more is a deletion, and a
/// clean merge loses neither.
#[test]
fn a_clean_merge_has_the_changes_of_both_sides() {
    let clean = Cell::new(0);
    run(500, repetitive(), |case| {
        let Merged { content, conflicts } = case.merged();
        for line in case.base.split_inclusive(|byte| *byte == b'\n').chain([&b"x\n"[..], b"y\n"]) {
            let [base, ours, theirs] = [&case.base, &case.ours, &case.theirs].map(|text| count(text, line));
            let merged = count(&content, line);
            if !conflicts.is_empty() {
                break;
            }
            prop_assert!(base > 0 || (ours.max(theirs)..=ours + theirs).contains(&merged));
            prop_assert!(ours > 0 || merged <= theirs);
            prop_assert!(theirs > 0 || merged <= ours);
        }
        clean.set(clean.get() + usize::from(conflicts.is_empty()));
        Ok(())
    });
    assert!(clean.get() > 100, "only {} cases were clean", clean.get());
}

#[test]
fn a_side_that_changed_nothing_takes_the_other_side() {
    run(500, repetitive(), |Case { base, ours, theirs }| {
        prop_assert_eq!(merged(&base, &ours, &base), Merged { content: ours.clone(), conflicts: Vec::new() });
        prop_assert_eq!(merged(&base, &base, &theirs), Merged { content: theirs, conflicts: Vec::new() });
        prop_assert_eq!(merged(&base, &ours, &ours), Merged { content: ours, conflicts: Vec::new() });
        Ok(())
    });
}

#[test]
fn sides_can_be_exchanged() {
    run(500, repetitive(), |case| {
        let (merged, exchanged) = (case.merged(), merged(&case.base, &case.theirs, &case.ours));
        prop_assert_eq!(merged.conflicts.is_empty(), exchanged.conflicts.is_empty());
        if merged.conflicts.is_empty() {
            prop_assert_eq!(merged.content, exchanged.content);
        }
        Ok(())
    });
}

#[test]
fn markers_are_there_exactly_where_conflicts_are() {
    run(500, repetitive(), |case| {
        let merged = case.merged();
        prop_assert_eq!(has_markers(&merged.content, &LABELS), !merged.conflicts.is_empty());
        Ok(())
    });
}
