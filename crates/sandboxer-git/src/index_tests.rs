#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;

use super::*;
use crate::testing::{Checkout, ODD_NAMES, rel, word};

fn add(path: impl AsRef<[u8]>, oid: Oid) -> IndexEdit {
    IndexEdit { path: rel(path), entry: Some((0o100644, oid)), flag: None }
}

fn take_out(path: &str) -> IndexEdit {
    IndexEdit { path: rel(path), entry: None, flag: None }
}

/// Makes and installs a new index.
fn change(repo: &Repository, edits: &[IndexEdit]) {
    let new = NewIndex::place(repo, "test");
    new.make(repo, edits).unwrap();
    assert!(new.is_held().unwrap());
    new.install(repo).unwrap();
    assert_nothing_left(&new);
}

fn assert_nothing_left(new: &NewIndex) {
    let git_dir = new.lock.parent().unwrap();
    let names: Vec<String> =
        git_dir.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("sandboxer") || name.contains(".lock")), "{names:?}");
}

/// A path that is committed and then changed in the work tree by us.
fn written_by_us(checkout: &Checkout, path: &str, text: &str) -> IndexEdit {
    checkout.write(path, text);
    add(path, checkout.repository().format.blob(text.as_bytes()))
}

fn status(checkout: &Checkout) -> String {
    checkout.git(["status", "--porcelain", "--untracked-files=all"])
}

#[test]
fn entries_are_told_apart_whatever_their_names() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let checkout = Checkout::new(format);
        for name in ODD_NAMES {
            checkout.write(word(name), name);
        }
        checkout.commit_all("odd names");
        let repo = checkout.repository();
        let mut paths: Vec<RelPath> = ODD_NAMES.iter().map(rel).collect();
        paths.extend([rel("d"), rel("none"), rel("a/b")]);
        let few = entries(&repo, &paths).unwrap();
        paths.extend((0..100).map(|at| rel(format!("none{at}"))));
        assert_eq!(entries(&repo, &paths).unwrap(), few);
        assert_eq!(few.len(), ODD_NAMES.len());
        for name in ODD_NAMES {
            let entry = IndexEntry { mode: 0o100644, oid: format.blob(name), stage: 0, special: None };
            assert_eq!(few[&rel(name)], entry);
        }
        assert!(entries(&repo, &[]).unwrap().is_empty());
    }
}

#[test]
fn special_entries_are_known() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let checkout = Checkout::new(format);
        for name in ["skipped", "assumed", "both", "empty"] {
            checkout.write(name, "");
        }
        checkout.commit_all("more");
        checkout.write("intended", "");
        checkout.git(["add", "-N", "intended"]);
        checkout.git(["update-index", "--skip-worktree", "skipped", "both"]);
        checkout.git(["update-index", "--assume-unchanged", "assumed", "both"]);
        let names = ["a", "skipped", "assumed", "both", "empty", "intended"];
        let found = entries(&checkout.repository(), &names.map(rel)).unwrap();
        let special = |name: &str| found[&rel(name)].special;
        assert_eq!(special("a"), None);
        assert_eq!(special("empty"), None);
        assert_eq!(special("skipped"), Some("skip-worktree"));
        assert_eq!(special("both"), Some("skip-worktree"));
        assert_eq!(special("assumed"), Some("assume-unchanged"));
        assert_eq!(special("intended"), Some("intent-to-add"));
    }
}

#[test]
fn an_entry_that_is_not_merged_is_known() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let blob = checkout.oid("HEAD:a");
    let rows: String = (1..=3).map(|stage| format!("100644 {blob} {stage}\tu\0")).collect();
    checkout.repository().git().args(["update-index", "-z", "--index-info"]).feed(rows.as_bytes()).unwrap();
    let found = entries(&checkout.repository(), &[rel("u")]).unwrap();
    assert_eq!((found[&rel("u")].stage, found[&rel("u")].special), (1, Some("unmerged")));
}

#[test]
fn the_index_agrees_with_files_and_commit_afterwards() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let checkout = Checkout::new(format);
        checkout.plant_hooks();
        let repo = checkout.repository();
        let mut edits =
            vec![written_by_us(&checkout, "a", "two\n"), written_by_us(&checkout, "new/file", "")];
        for name in ODD_NAMES {
            checkout.write(word(name), name);
            edits.push(add(name, format.blob(name)));
        }
        change(&repo, &edits);
        assert!(!checkout.hook_ran());
        let told = checkout.git(["status", "--porcelain", "-z"]);
        // Staged, and with nothing that differs in the work tree.
        assert!(told.split('\0').filter(|row| !row.is_empty()).all(|row| &row[1..3] == "  "), "{told}");
        assert_eq!(told.split('\0').filter(|row| !row.is_empty()).count(), edits.len());
        checkout.git(["add", "-A"]);
        checkout.git(["fsck"]);
    }
}

#[test]
fn files_and_directories_take_the_place_of_one_another() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.write("d/x", "x");
    checkout.write("d/y", "y");
    checkout.commit_all("a directory");
    let repo = checkout.repository();
    let blob = checkout.oid("HEAD:a");
    let edits =
        [add("a/b", blob.clone()), take_out("a"), add("d", blob.clone()), take_out("d/x"), take_out("d/y")];
    change(&repo, &edits);
    assert_eq!(checkout.git(["ls-files"]), "a/b\nd");
    // A directory that is not taken out goes as well, as it does in a commit.
    change(&repo, &[add("a", blob)]);
    assert_eq!(checkout.git(["ls-files"]), "a\nd");
}

#[test]
fn an_index_that_is_not_there_is_an_empty_one() {
    let checkout = Checkout::unborn(ObjectFormat::Sha1);
    let repo = checkout.repository();
    assert!(!repo.index().exists());
    change(&repo, &[]);
    std::fs::remove_file(repo.index()).unwrap();
    change(&repo, &[written_by_us(&checkout, "first", "1")]);
    checkout.git(["hash-object", "-w", "first"]);
    assert_eq!(status(&checkout), "A  first");
}

#[test]
fn split_compressed_and_sparse_indexes_survive() {
    for words in [
        &["update-index", "--split-index"][..],
        &["update-index", "--index-version", "4"],
        &["update-index", "--force-untracked-cache"],
        &["sparse-checkout", "set", "--cone", "--sparse-index", "in"],
    ] {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        for at in 0..20 {
            checkout.write(format!("in/{at}"), format!("{at}"));
            checkout.write(format!("out/{at}"), format!("{at}"));
        }
        checkout.commit_all("more");
        checkout.git(words);
        let before = checkout.git(["ls-files"]);
        let repo = checkout.repository();
        for text in ["one", "two", "three"] {
            change(&repo, &[written_by_us(&checkout, "in/3", text), written_by_us(&checkout, "a", text)]);
            assert_eq!(checkout.git(["ls-files"]), before, "{words:?}");
            assert_eq!(status(&checkout), "M  a\nM  in/3", "{words:?}");
        }
        checkout.git(["add", "-A"]);
        checkout.git(["commit", "-qm", "after"]);
        assert_eq!(status(&checkout), "", "{words:?}");
        checkout.git(["fsck"]);
    }
}

#[test]
fn a_linked_checkout_has_its_own_index_changed() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let linked = checkout.dir.path().join("linked");
    checkout.git([OsStr::new("worktree"), "add".as_ref(), "-qb".as_ref(), "side".as_ref(), linked.as_ref()]);
    let repo = Repository::find(&linked).unwrap();
    std::fs::write(linked.join("a"), "two\n").unwrap();
    change(&repo, &[add("a", ObjectFormat::Sha1.blob(b"two\n"))]);
    assert_eq!(checkout.git_in(&linked, ["status", "--porcelain"]), "M  a");
    assert_eq!(status(&checkout), "");
}

#[test]
fn a_lock_of_somebody_else_is_respected() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    std::fs::write(&new.lock, "theirs").unwrap();
    let Err(Error::Busy { path, holder }) = new.make(&repo, &[take_out("a")]) else { panic!("it was made") };
    assert_eq!(path, new.lock);
    assert!(holder.unwrap().contains("git is at work"));
    assert!(!new.is_held().unwrap() && !new.temporary.exists());
    new.release().unwrap();
    assert_eq!(std::fs::read(&new.lock).unwrap(), b"theirs");
}

#[test]
fn while_it_is_held_git_changes_nothing() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    new.make(&repo, &[take_out("a")]).unwrap();
    let git = repo.git().args(["update-index", "--force-remove", "a"]);
    assert!(git.output().is_err());
    assert_eq!(checkout.git(["ls-files"]), "a");
    new.release().unwrap();
    assert_nothing_left(&new);
    assert_eq!(checkout.git(["ls-files"]), "a");
}

#[test]
fn whoever_finds_it_after_a_crash_can_finish() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    new.make(&repo, &[take_out("a")]).unwrap();
    let found: NewIndex = serde_json::from_str(&serde_json::to_string(&new).unwrap()).unwrap();
    assert!(found.is_held().unwrap());
    // Killed after the rename.
    std::fs::rename(&new.lock, repo.index()).unwrap();
    for _ in 0..2 {
        found.install(&repo).unwrap();
        assert_eq!(checkout.git(["ls-files"]), "");
        assert_nothing_left(&new);
    }
}

#[test]
fn a_lock_that_was_taken_away_is_not_taken_back() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    new.make(&repo, &[take_out("a")]).unwrap();
    std::fs::remove_file(&new.lock).unwrap();
    std::fs::write(&new.lock, "theirs").unwrap();
    assert_eq!(new.install(&repo).unwrap(), Installed::LockLost);
    assert_eq!(checkout.git(["ls-files"]), "a");
    std::fs::remove_file(&new.lock).unwrap();
    // It can be made again; until it is, whoever comes next is told the same.
    let again = new.again();
    again.make(&repo, &[take_out("a")]).unwrap();
    assert_eq!(new.install(&repo).unwrap(), Installed::LockLost);
    assert_eq!(again.install(&repo).unwrap(), Installed::Done);
    assert_eq!(checkout.git(["ls-files"]), "");
    std::fs::write(&new.lock, "theirs").unwrap();
    new.release().unwrap();
    assert_eq!(std::fs::read(&new.lock).unwrap(), b"theirs");
    std::fs::remove_file(&new.lock).unwrap();
    assert_nothing_left(&new);
}

#[test]
fn what_was_made_again_is_given_up_with_the_first() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    new.make(&repo, &[take_out("a")]).unwrap();
    std::fs::remove_file(&new.lock).unwrap();
    new.again().make(&repo, &[take_out("a")]).unwrap();
    new.release().unwrap();
    assert_nothing_left(&new);
}

#[test]
fn what_a_killed_git_left_beside_it_goes_as_well() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    std::fs::write(&new.temporary, "half").unwrap();
    std::fs::write(new.temporary.with_file_name(".sandboxer-index-test.lock"), "half").unwrap();
    new.release().unwrap();
    assert_nothing_left(&new);
}

#[test]
fn what_git_changes_in_between_is_not_lost() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let blob = checkout.oid("HEAD:a");
    let theirs = |at: usize| {
        let row = format!("100644 {blob} 0\ttheirs{at}\0");
        let add = || repo.git().args(["update-index", "-z", "--index-info"]).feed(row.as_bytes());
        while add().is_err() {}
    };
    let ours = |at: usize| {
        let new = NewIndex::place(&repo, &at.to_string());
        let edits = [add(format!("ours{at}"), blob.clone())];
        while new.make(&repo, &edits).inspect_err(|e| assert!(matches!(e, Error::Busy { .. }))).is_err() {}
        new.install(&repo).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..30).for_each(theirs));
        (0..15).for_each(ours);
    });
    assert_eq!(checkout.git(["ls-files"]).lines().count(), 46);
    assert_nothing_left(&NewIndex::place(&repo, "test"));
}

#[test]
fn an_index_is_made_while_git_changes_it_without_pause() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let blob = checkout.oid("HEAD:a");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Replaces the index as git does, faster than any git.
            let (lock, copy) = (repo.git_dir.join("index.lock"), repo.git_dir.join("copy"));
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::copy(repo.index(), &copy).unwrap();
                if std::fs::hard_link(&copy, &lock).is_ok() {
                    std::fs::copy(repo.index(), &copy).unwrap();
                    std::fs::rename(&lock, repo.index()).unwrap();
                }
                std::fs::remove_file(&copy).unwrap();
            }
        });
        for at in 0..5 {
            let new = NewIndex::place(&repo, "test");
            let made = new.make(&repo, &[add(format!("ours{at}"), blob.clone())]);
            over.store(made.is_err(), std::sync::atomic::Ordering::Relaxed);
            made.unwrap();
            assert!(new.is_held().unwrap());
            assert_eq!(new.install(&repo).unwrap(), Installed::Done);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_nothing_left(&NewIndex::place(&repo, "test"));
    assert_eq!(checkout.git(["ls-files"]).lines().count(), 6);
    assert_eq!(checkout.git(["ls-files", "-s", "ours4"]), format!("100644 {blob} 0\tours4"));
}

#[test]
fn an_index_that_was_not_finished_under_the_lock_is_not_installed() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let new = NewIndex::place(&repo, "test");
    let killed = || {
        let placeholder = repo.git_dir.join(".sandboxer-index-test-placeholder");
        std::fs::write(&placeholder, "").unwrap();
        std::fs::hard_link(&placeholder, &new.lock).unwrap();
        std::fs::write(&new.temporary, "half").unwrap();
        std::fs::hard_link(&new.temporary, repo.git_dir.join(".sandboxer-index-test-second")).unwrap();
    };
    killed();
    assert!(!new.is_held().unwrap());
    assert_eq!(new.install(&repo).unwrap(), Installed::LockLost);
    assert_eq!(checkout.git(["ls-files"]), "a");
    new.release().unwrap();
    assert_nothing_left(&new);
    killed();
    new.make(&repo, &[take_out("a")]).unwrap();
    assert_eq!(new.install(&repo).unwrap(), Installed::Done);
    assert_nothing_left(&new);
    assert_eq!(checkout.git(["ls-files"]), "");
}

#[test]
fn no_filter_runs_over_files_that_git_looks_at_again() {
    for attributes in [".gitattributes", ".git/info/attributes"] {
        let checkout = Checkout::new(ObjectFormat::Sha1);
        let marker = checkout.dir.path().join("filtered");
        let filter = format!(": > '{}'; cat", marker.display());
        checkout.write(attributes, "* filter=planted.one\n");
        checkout.commit_all("attributes");
        checkout.git(["config", "filter.planted.one.clean", &filter]);
        checkout.git(["config", "filter.planted.one.required", "true"]);
        let repo = checkout.repository();
        let blob = checkout.oid("HEAD:a");
        let racy = || {
            let index = File::options().append(true).open(repo.index()).unwrap();
            index
                .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
                .unwrap();
        };
        racy();
        change(&repo, &[add("x", blob.clone())]);
        assert!(!marker.exists(), "{attributes}");
        checkout.git(["reset", "-q", "--hard"]);
        std::fs::remove_file(&marker).ok();
        racy();
        let row = format!("100644 {blob} 0\ty\0");
        repo.git().args(["update-index", "-z", "--index-info"]).feed(row.as_bytes()).unwrap();
        assert!(marker.exists(), "a filter that never runs proves nothing");
    }
}

#[test]
fn an_index_that_is_a_link_is_left_alone() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    std::fs::remove_file(repo.index()).unwrap();
    std::os::unix::fs::symlink("elsewhere", repo.index()).unwrap();
    let new = NewIndex::place(&repo, "test");
    assert!(matches!(new.make(&repo, &[]), Err(Error::Refused { .. })));
    assert_nothing_left(&new);
}

#[test]
fn nothing_gets_into_a_git_directory() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repo = checkout.repository();
    let edit = add(".git/x", ObjectFormat::Sha1.blob(b""));
    assert!(matches!(NewIndex::place(&repo, "test").make(&repo, &[edit]), Err(Error::Refused { .. })));
}

#[test]
fn flags_are_set_whatever_the_names() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, blob) = (checkout.repository(), checkout.oid("HEAD:a"));
    for flag in [Flag::SkipWorktree, Flag::AssumeUnchanged] {
        let edits = ODD_NAMES.map(|name| IndexEdit { flag: Some(flag), ..add(name, blob.clone()) });
        change(&repo, &edits);
        let paths = ODD_NAMES.map(rel);
        let found = entries(&repo, &paths).unwrap();
        assert_eq!(found.len(), paths.len());
        assert!(found.values().all(|entry| Flag::of(entry) == Some(flag)), "{found:?}");
    }
}
