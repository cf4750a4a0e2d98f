//! Chosen hunks are applied as `git apply --recount` does it.

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use sandboxer_fs::patch::{Hunk, apply_exactly, apply_hunks, hunks, render_hunk};

fn git_is_there() -> bool {
    let there = Command::new("git").arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: git is not installed");
    }
    there
}

/// The chosen hunks with counts that are wrong, as an editor leaves them. Git goes by the new side's position, so that is
/// made right for this choice.
fn rendered(all: &[Hunk<'_>], some: &[usize]) -> Vec<u8> {
    let (mut patch, mut grown) = (Vec::new(), 0);
    for hunk in some.iter().map(|index| &all[*index]) {
        let new_first = hunk.old_start as i64 + i64::from(hunk.old_len == 0) + grown;
        let new_start = new_first as usize - usize::from(hunk.new_len == 0);
        grown += hunk.new_len as i64 - hunk.old_len as i64;
        let wrong = |len: usize| if len == 0 { 0 } else { len + 7 };
        let (old_len, new_len) = (wrong(hunk.old_len), wrong(hunk.new_len));
        render_hunk(&Hunk { new_start, old_len, new_len, ..hunk.clone() }, &mut patch).unwrap();
    }
    patch
}

/// What git makes of it.
fn applied_by_git(old: &[u8], hunks: &[u8]) -> Vec<u8> {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("f"), old).unwrap();
    let patch = [&b"diff --git a/f b/f\n--- a/f\n+++ b/f\n"[..], hunks].concat();
    fs::write(temp.path().join("patch"), patch).unwrap();
    let mut git = Command::new("git");
    git.args(["apply", "--recount", "--whitespace=nowarn", "patch"]).current_dir(temp.path());
    let ran = git.env("GIT_CEILING_DIRECTORIES", "/").output().unwrap();
    assert!(
        ran.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&ran.stderr),
        String::from_utf8_lossy(hunks)
    );
    fs::read(temp.path().join("f")).unwrap()
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        6 => "[abc]{1,2}\n".prop_map(String::into_bytes),
        2 => "[0-9]{4}\n".prop_map(String::into_bytes),
        1 => Just(b"\n".to_vec()),
        1 => Just(b"-- a/f\n".to_vec()),
    ];
    (proptest::collection::vec(line, 0..80), "x{0,1}")
        .prop_map(|(lines, end)| [lines.concat(), end.into_bytes()].concat())
}

/// A text and another that differs in some lines.
fn pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let edits = proptest::collection::vec((0usize..80, "(new\n){0,2}"), 1..8);
    (text(), edits).prop_map(|(old, edits)| {
        let mut lines: Vec<Vec<u8>> = old.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        for (at, replacement) in edits {
            if at + 1 < lines.len() {
                lines[at] = replacement.into_bytes();
            }
        }
        (old, lines.concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn git_agrees_on_any_choice((old, new) in pair(), picks in any::<u64>()) {
        let all = hunks(&old, &new);
        let some: Vec<usize> = (0..all.len()).filter(|i| picks >> (i % 64) & 1 == 1).collect();
        if some.is_empty() || !git_is_there() { return Ok(()); }
        let patch = rendered(&all, &some);
        let expected = apply_hunks(&old, &all, &some);
        prop_assert_eq!(&apply_exactly(&old, &patch).unwrap(), &expected);
        prop_assert_eq!(&applied_by_git(&old, &patch), &expected);
    }
}
