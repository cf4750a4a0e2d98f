//! Rows from end to end, with a `sandbox` that is a shell script: clients of it are clients of the server.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use super::*;
use crate::interrupt::Interrupt;
use crate::place::tool;
use crate::rows::Peaks;
use crate::tree::TreeSpec;

const TINY: Scale =
    Scale { pgbench: 1, selects: 10, transactions: 8, rows: 5_000, changed: 5, bulk: 100, clone: 2_000_000 };

/// Remembers the URL that it is given, and answers as far as anybody looks.
const SCRIPT: &str = r#"#!/bin/sh -e
mkdir -p "$SANDBOXER_HOME"
case "$1" in
create) eval "echo \"\${$#}\"" > "$SANDBOXER_HOME/url"; echo '{"sandbox_id": "s"}' ;;
path) echo "{\"url\": \"$(cat "$SANDBOXER_HOME/url")\"}" ;;
diff) echo '{"entries": [{}, {}, {}, {}, {}]}' ;;
list) echo '{"sandboxes": []}' ;;
esac
"#;

fn measured(groups: &[&str]) -> Vec<Row> {
    let program = tempfile::tempdir().unwrap();
    let (text, binary) = (program.path().join("text"), program.path().join("sandbox"));
    fs::write(&text, SCRIPT).unwrap();
    // Written by another process: a file that a child of some parallel test inherited open could not be executed.
    tool(Command::new("install").args(["-m", "755"]).arg(&text).arg(&binary)).unwrap();
    let (interrupt, peaks) = (Interrupt::default(), Peaks::default());
    let bench = Bench { binary, spec: TreeSpec::tiny(1), rounds: 1, interrupt, peaks };
    rows(&bench, &TINY, |group| groups.contains(&group)).unwrap()
}

fn has_a_number_or_says_why_not(row: &Row) -> bool {
    row.ratio.is_some() || row.note.starts_with("skipped: ")
}

#[test]
fn every_row_of_sqlite_has_a_number_or_says_why_not() {
    let rows = measured(&GROUPS[3..]);
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(has_a_number_or_says_why_not), "{rows:?}");
}

#[test]
fn every_row_of_a_server_has_a_number_or_says_why_not() {
    let rows = measured(&GROUPS[..2]);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(has_a_number_or_says_why_not), "{rows:?}");
    assert!(rows[2].at_least && rows[2].goal == Some(1.0) && rows[3].goal.is_none());
}

#[test]
fn sides_that_do_not_differ_are_no_number() {
    // This sandbox isolates nothing.
    let rows = measured(&["postgres-diff"]);
    let note = &rows[0].note;
    assert!(rows[0].ratio.is_none(), "{rows:?}");
    assert!(note.contains("the same where rows differ") || note.starts_with("skipped: "), "{note}");
}

#[test]
fn large_numbers_are_told_in_groups() {
    assert_eq!([7, 1_000, 50_020, 1_000_000].map(grouped), ["7", "1,000", "50,020", "1,000,000"]);
}
