//! Rows from end to end: the transfers on a real machine, the stacks with a `sandbox` that makes none.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::interrupt::Interrupt;
use crate::rows::Peaks;

fn measured(groups: &[&str]) -> Vec<Row> {
    let scratch = tempfile::tempdir().unwrap();
    let scale = Scale { tree: TreeSpec::sources(300, 100), crowd: 2 };
    let (interrupt, peaks) = (Interrupt::default(), Peaks::default());
    let bench = Bench { binary: "/bin/false".into(), spec: scale.tree, rounds: 1, interrupt, peaks };
    let rows = rows(&bench, scratch.path(), Program::Alone, &scale, |group| groups.contains(&group)).unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "something is left");
    rows
}

#[test]
fn every_transfer_has_a_number_or_says_why_not() {
    let rows = measured(&["compose-transfer"]);
    assert_eq!(rows.iter().map(|row| row.goal).collect::<Vec<_>>(), [Some(1.2), Some(0.1), None]);
    assert!(rows.iter().all(|row| row.ratio.is_some() || row.note.starts_with("skipped: ")), "{rows:?}");
}

#[test]
fn a_sandbox_that_makes_no_stack_fails_every_row() {
    let rows = measured(&GROUPS[..3]);
    assert_eq!(rows.len(), 5);
    let told = |row: &Row| row.ratio.is_none() && (row.has_failed() || row.note.starts_with("skipped: "));
    assert!(rows.iter().all(told), "{rows:?}");
}
