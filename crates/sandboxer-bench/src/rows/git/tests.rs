//! The rows from end to end, with a `sandbox` that is a shell script around git's own worktrees.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::interrupt::Interrupt;
use crate::place::{Place, tool};
use crate::rows::{Bench, CHANGED, Peaks, need_git};

/// Does what is measured, and answers as far as anybody looks. `OVERLAY` and `COMMIT` are replaced.
const SCRIPT: &str = r#"#!/bin/sh -e
mkdir -p "$SANDBOXER_HOME"
tree="$SANDBOXER_HOME/tree"
repository="$SANDBOXER_HOME/../checkout"
entries() { printf '{"entries": ['; i=1; while [ $i -lt 100 ]; do printf '{},'; i=$((i + 1)); done; echo '{}]}'; }
case "$1 $2 $3" in
"create --strategy overlay") OVERLAY ;;
esac
case "$1 $2" in
"create --strategy")
    git -C "$repository" worktree add -q "$tree" -b sandbox
    echo "{\"sandbox_id\": \"s\", \"sandbox_path\": \"$tree\", \"strategy\": \"fake\", \"workspaces\": []}" ;;
"diff --patch") cd "$tree"; git add -A; git diff --cached ;;
"diff --json") entries ;;
"commit --json") cd "$tree"; git add -A; COMMIT; entries ;;
"destroy --discard") git -C "$repository" worktree remove -f "$tree"; git -C "$repository" branch -q -D sandbox ;;
"list --json") echo '{"sandboxes": []}' ;;
esac
"#;
const COMMITS: &str = r#"git commit -q -m x; git -C "$repository" merge -q --ff-only sandbox"#;

struct Fixture {
    /// Where the place is: in memory if possible, since a place is flushed before everything that is timed.
    scratch: tempfile::TempDir,
    _program: tempfile::TempDir,
    bench: Bench,
}

impl Fixture {
    fn new(overlay: &str, commit: &str) -> Self {
        let program = tempfile::tempdir().unwrap();
        let (text, binary) = (program.path().join("text"), program.path().join("sandbox"));
        fs::write(&text, SCRIPT.replace("OVERLAY", overlay).replace("COMMIT", commit)).unwrap();
        // Written by another process: a file that a child of some parallel test inherited open could not be executed.
        tool(Command::new("install").args(["-m", "755"]).arg(&text).arg(&binary)).unwrap();
        let (interrupt, peaks) = (Interrupt::default(), Peaks::default());
        let bench = Bench { binary, spec: History::TINY.spec, rounds: 1, interrupt, peaks };
        let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { scratch, _program: program, bench }
    }

    fn checkout(&self) -> Checkout<'_> {
        let place = Place::disk(self.scratch.path(), 1).unwrap();
        Checkout::new(&self.bench, STRATEGY, History::TINY, place).unwrap()
    }

    fn rows(&self, group: &str) -> Vec<Row> {
        let checkout = self.checkout();
        let rows = rows(&checkout, |name| name.starts_with(group)).unwrap();
        let said = |arguments| checkout::answer(&mut crate::rows::git(&checkout.path, arguments)).unwrap();
        assert_eq!(said(&["branch", "--format=%(refname:short)"]), "main", "a worktree's branch is left");
        assert_eq!(said(&["rev-parse", "HEAD"]), checkout.start);
        rows
    }
}

fn git_is_missing() -> bool {
    need_git().inspect_err(|why| eprintln!("skipped: the git rows from end to end: {why}")).is_err()
}

#[test]
fn every_row_has_a_number_and_nothing_is_left() {
    if git_is_missing() {
        return;
    }
    let fixture = Fixture::new(":", COMMITS);
    let rows = fixture.rows("git");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.ratio.is_some() && row.goal.is_some() && row.rounds == 1), "{rows:?}");
    let left: Vec<PathBuf> =
        fs::read_dir(fixture.scratch.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 0, "{left:?}");
}

#[test]
fn without_an_overlay_create_is_skipped_and_says_why() {
    if git_is_missing() {
        return;
    }
    let refuses = r#"echo '{"error": {"message": "not on this kernel"}}' >&2; exit 6"#;
    let rows = Fixture::new(refuses, COMMITS).rows("git-create");
    assert_eq!(rows[0].note, "skipped: no overlay here (not on this kernel)");
    assert!(rows[0].ratio.is_none() && !rows[0].has_failed());
}

#[test]
fn a_commit_that_does_not_do_the_same_has_no_number() {
    if git_is_missing() {
        return;
    }
    let rows = Fixture::new(":", "true").rows("git-commit");
    assert!(rows[0].has_failed() && rows[0].note.contains("one commit further on"), "{rows:?}");
    let partly = COMMITS.replace("-m x", "-m x -- dir0001");
    let rows = Fixture::new(":", &partly).rows("git-commit");
    assert!(rows[0].has_failed() && rows[0].note.contains(&format!("git's of {CHANGED}")), "{rows:?}");
}
