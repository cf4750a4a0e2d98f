//! Rows from end to end, with a `sandbox` that is a shell script and contains nothing.
#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::rows::{Bench, Peaks};
use crate::tree::TreeSpec;

/// Runs what it is given, and answers as far as anybody looks. `CREATE` is replaced.
const SCRIPT: &str = r#"#!/bin/sh -e
case "$1" in
create) CREATE; echo '{"sandbox_id": "s", "sandbox_path": "/p", "strategy": "overlay", "workspaces": []}' ;;
run|exec) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
list) echo '{"sandboxes": []}' ;;
esac
"#;

/// The rows of these groups, which leave nothing in the place.
fn measured(create: &str, groups: &[&str]) -> Vec<Row> {
    let program = tempfile::tempdir().unwrap();
    let (text, binary) = (program.path().join("text"), program.path().join("sandbox"));
    fs::write(&text, SCRIPT.replace("CREATE", create)).unwrap();
    yard::copy_program(&text, &binary).unwrap();
    let (interrupt, peaks) = (Interrupt::default(), Peaks::default());
    let bench = Bench { binary, spec: TreeSpec::tiny(FILES), rounds: 1, interrupt, peaks };
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let yard = Yard::new(&bench, Place::disk(scratch.path(), 1).unwrap()).unwrap();
    let scale = Scale { c_files: 1, modules: 1, crowd: 2, download: 1 };
    let rows = rows(&yard, &scale, |group| groups.contains(&group)).unwrap();
    drop(yard);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "something is left");
    rows
}

fn has_a_number_or_says_why_not(row: &Row) -> bool {
    row.goal.is_some() && (row.ratio.is_some() || row.note.starts_with("skipped: "))
}

#[test]
fn every_row_has_a_number_or_says_why_not() {
    let rows = measured(":", &["run-start", "run-compile"]);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(has_a_number_or_says_why_not), "{rows:?}");
}

#[test]
fn without_an_overlay_every_row_is_skipped() {
    let refuses = r#"echo '{"error": {"message": "not on this kernel"}}' >&2; exit 6"#;
    for row in measured(refuses, &GROUPS) {
        assert!(row.ratio.is_none() && row.note.starts_with("skipped: "), "{row:?}");
    }
}

#[test]
fn memory_of_what_is_not_ours_is_no_number() {
    for row in measured(":", &["run-memory"]) {
        assert!(row.ratio.is_none(), "{row:?}");
    }
}

#[test]
fn a_download_has_a_goal_that_is_to_be_reached() {
    let rows = measured("exit 6", &["run-proxy"]);
    assert!(rows[0].at_least && rows[0].goal.is_some(), "{rows:?}");
}

#[test]
fn a_tool_that_is_not_there_skips() {
    let why = need_tool("/no/such/tool").unwrap_err();
    assert!(matches!(&why, Failure::Skipped(text) if text.starts_with("no /no/such/tool here")), "{why}");
}
