//! However things were moved about, a difference has all of it: what is committed is what was there.

use crate::common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandboxer_core::model::CommitRequest;
use sandboxer_testkit::conformance::Open;
use sandboxer_testkit::manifest::Facets;
use sandboxer_testkit::skip;

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn one_of(&mut self, paths: &[PathBuf]) -> PathBuf {
        paths[self.below(paths.len())].clone()
    }
}

/// Everything below `dir`, itself not among it.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.symlink_metadata().unwrap().is_dir() {
            found.extend(below(&entry));
        }
        found.push(entry);
    }
    found.sort();
    found
}

fn directories(root: &Path) -> Vec<PathBuf> {
    let is_dir = |path: &PathBuf| path.symlink_metadata().unwrap().is_dir();
    [root.to_path_buf()].into_iter().chain(below(root).into_iter().filter(is_dir)).collect()
}

/// One step. What cannot be done (a directory into itself, a link to a directory) is none.
fn step(dice: &mut Dice, root: &Path, number: usize) {
    let dir = dice.one_of(&directories(root));
    let fresh = dir.join(format!("{number} \n"));
    let all = below(root);
    if all.is_empty() {
        return fs::create_dir(fresh).unwrap();
    }
    let (one, other) = (dice.one_of(&all), dice.one_of(&all));
    let is_file = |path: &Path| path.symlink_metadata().unwrap().is_file();
    match dice.below(10) {
        0 => fs::create_dir(fresh).unwrap(),
        1 | 2 => fs::write(fresh, number.to_string()).unwrap(),
        3 => symlink("nowhere", fresh).unwrap(),
        4 if is_file(&one) => fs::hard_link(one, fresh).unwrap(),
        5 if is_file(&one) => fs::write(one, format!("edit {number}")).unwrap(),
        6 if is_file(&one) => fs::set_permissions(one, fs::Permissions::from_mode(0o600)).unwrap(),
        7 => drop(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)),
        8 => drop(fs::remove_dir_all(&one).or_else(|_| fs::remove_file(&one))),
        _ => drop(fs::rename(&one, if number.is_multiple_of(2) { other } else { fresh })),
    }
}

/// Commits what lies in one place, if that can be had by itself.
fn commit_some(dice: &mut Dice, open: &Open<'_>) {
    let entries = open.diff().entries;
    if entries.is_empty() {
        return;
    }
    let path = entries[dice.below(entries.len())].path.clone();
    let (before, request) =
        (open.manifest(), CommitRequest { paths: vec![path.clone()], ..CommitRequest::default() });
    let done = open.try_commit(&request);
    before.assert_same(&open.manifest(), Facets::UNTOUCHED, "a commit changed the sandbox");
    if done.is_ok() {
        let left = open.diff().entries;
        assert!(
            !left.iter().any(|entry| entry.is_selected(std::slice::from_ref(&path))),
            "{path} was committed: {left:?}"
        );
    }
}

fn try_seed(seed: u64) {
    let fixture = match common::fixture() {
        Ok(fixture) => fixture,
        Err(reason) => return skip(&reason),
    };
    let open = fixture.open();
    let mut dice = Dice(seed);
    for round in 0..4 {
        for number in 0..30 {
            step(&mut dice, &open.path(""), round * 100 + number);
        }
        let expected = open.manifest();
        commit_some(&mut dice, &open);
        open.commit();
        let what = format!("seed {seed}, round {round}: the original");
        // A touch is no difference; and links have a test of their own.
        expected.assert_same(&fixture.manifest(), Facets::CONTENT, &what);
        open.assert_clean();
    }
}

#[test]
fn moved_about() {
    (1..=6).for_each(try_seed);
}

/// The original's files are other inodes than the sandbox's, once they were committed.
#[test]
fn a_new_name_of_a_committed_file_is_a_link() {
    let fixture = match common::fixture() {
        Ok(fixture) => fixture,
        Err(reason) => return skip(&reason),
    };
    let open = fixture.open();
    open.write("new", "new\n");
    open.commit();
    fs::hard_link(open.path("new"), open.path("dir/second")).unwrap();
    let expected = open.manifest();
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "the second name is no link");
    fs::write(open.path("new"), "edited through one name\n").unwrap();
    let expected = open.manifest();
    open.commit();
    expected.assert_same(&fixture.manifest(), Facets::WRITTEN, "the names are apart");
}
