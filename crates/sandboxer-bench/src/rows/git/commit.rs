//! `sandbox commit` of a hundred changes into the checkout against `git commit -a` in a worktree and `git merge --ff-only` in
//! the checkout. Both end with the branch one commit further on, the checkout's files and index up to date, and all of git's own
//! files flushed (`core.fsync=all`). Not timed: the sandbox and the changes of a round, git's `add --all` of them, and the way
//! back to the start. Ours still looks for its changes and flushes the files of the checkout, which git does not.

use std::cell::{Cell, RefCell};
use std::process::Command;

use super::checkout::{Checkout, Worktree, answer};
use crate::failure::{Failure, Result};
use crate::measure::{Sample, interleave, run};
use crate::place::tool;
use crate::report::Row;
use crate::rows::{CHANGED, count, git, without_configuration};

const GOAL: f64 = 3.0;
/// The branch and the checkout come as arguments, since a name in the script would be a word of the shell.
const SCRIPT: &str = r#"git commit --quiet -a -m bench && git -C "$1" merge --quiet --ff-only "$2""#;
/// The first git that can be told to flush everything.
const FLUSHES_ALL: (u32, u32) = (2, 36);

/// The comparison.
pub fn row(checkout: &Checkout<'_>) -> Result<Row> {
    let files = count(checkout.bench.spec.files);
    let name =
        format!("git commit of {CHANGED} changes among {files} files vs git commit and git merge --ff-only");
    checkout.bench.row(&name, Some(GOAL), || {
        need_flushes(&answer(Command::new("git").arg("version"))?)?;
        let worktree = checkout.worktree("worktree")?;
        let round = Cell::new(0);
        let next = || {
            round.set(round.get() + 1);
            round.get()
        };
        let committed = RefCell::new(String::new());
        let ours = || {
            let sample = commit_by_sandbox(checkout, next())?;
            committed.replace(checkout.committed()?);
            Ok(sample)
        };
        let theirs = || {
            let sample = commit_by_git(checkout, &worktree, next())?;
            expect_same(&committed.borrow(), &checkout.committed()?)?;
            Ok(sample)
        };
        let sides = interleave(checkout.bench.rounds, &checkout.bench.interrupt, ours, theirs);
        checkout.back_to_start(&checkout.path)?;
        Ok(Row::timed(&name, Some(GOAL), &sides?))
    })
}

/// A new sandbox each round.
fn commit_by_sandbox(checkout: &Checkout<'_>, round: usize) -> Result<Sample> {
    checkout.back_to_start(&checkout.path)?;
    let (_, created) = checkout.create()?;
    checkout.changes.make(&created.sandbox_path, round)?;
    checkout.place.settle()?;
    let sample = checkout.sandbox.commit(&created, CHANGED)?;
    checkout.sandbox.destroy(&created)?;
    Ok(sample)
}

fn commit_by_git(checkout: &Checkout<'_>, worktree: &Worktree<'_>, round: usize) -> Result<Sample> {
    checkout.back_to_start(&checkout.path)?;
    checkout.back_to_start(&worktree.path)?;
    checkout.changes.make(&worktree.path, round)?;
    tool(&mut git(&worktree.path, &["add", "--all"]))?;
    checkout.place.settle()?;
    let mut shell = Command::new("/bin/sh");
    without_configuration(&mut shell).args(["-c", SCRIPT, "sh"]).arg(&checkout.path).arg(&worktree.branch);
    shell.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "core.fsync").env("GIT_CONFIG_VALUE_0", "all");
    run(shell.current_dir(&worktree.path), &checkout.beside("output"), &[0])
}

/// Numbers of two different results would say nothing.
fn expect_same(ours: &str, theirs: &str) -> Result<()> {
    let (found, expected) = (ours.lines().count(), theirs.lines().count());
    if ours == theirs && found == CHANGED {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the sandbox's commit changes {found} paths in another way than git's of {expected}"
    )))
}

/// Skips where git would not flush what ours does; `version` is what `git version` prints.
fn need_flushes(version: &str) -> Result<()> {
    let mut numbers =
        version.trim_start_matches("git version ").split('.').map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= FLUSHES_ALL => Ok(()),
        _ => Err(Failure::Skipped(format!("{version} has no core.fsync=all; 2.36 has"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_git_that_cannot_flush_everything_is_not_compared_with() {
        need_flushes("git version 2.47.3").unwrap();
        need_flushes("git version 2.36.0 (Apple Git-1)").unwrap();
        for old in ["git version 2.35.9", "git version 1.99.0", "hello"] {
            assert!(matches!(need_flushes(old), Err(Failure::Skipped(_))), "{old}");
        }
    }

    #[test]
    fn only_the_same_hundred_paths_count() {
        let paths = |kind: &str| (0..CHANGED).map(|n| format!("{kind}\tfile{n}\n")).collect::<String>();
        expect_same(&paths("M"), &paths("M")).unwrap();
        assert!(expect_same(&paths("M"), &paths("D")).is_err() && expect_same("", "").is_err());
    }
}
