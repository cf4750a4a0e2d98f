#![allow(clippy::unwrap_used)]

use super::*;
use crate::import::{NewCommit, commit};
use crate::incoming::deliver;
use crate::oid::ObjectFormat;
use crate::testing::Checkout;

const MAIN: &str = "refs/heads/main";

/// A commit on top of `parents` that is still incoming.
fn made(ledger: &Ledger, parents: &[Oid]) -> Oid {
    let who = "An Agent <agent@example.org>";
    let (author, committer, offset, message) = (who, who, "+0000", "made");
    let changes = Vec::new();
    let new = NewCommit { parents, changes, tree_of: None, author, committer, seconds: 1, offset, message };
    commit(ledger, new).unwrap().commit
}

fn to(name: &str, old: Option<&Oid>, new: &Oid) -> Move {
    Move {
        name: name.to_owned(),
        old: old.cloned(),
        new: new.clone(),
        reason: "sandboxer: commit\nof x".to_owned(),
    }
}

fn locks(repo: &Repository) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![repo.common_dir.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().unwrap().map(|e| e.unwrap().path()) {
            match entry.extension().is_some_and(|e| e == "lock") {
                true => found.push(entry),
                false if entry.is_dir() => dirs.push(entry),
                false => {}
            }
        }
    }
    found
}

#[test]
fn a_branch_is_locked_and_then_moved() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let checkout = Checkout::new(format);
        checkout.plant_hooks();
        let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
        checkout.git(["pack-refs", "--all", "--prune"]);
        let hooked = checkout.hook_ran();
        let new = made(&ledger, std::slice::from_ref(&old));
        let held = HeldRef::prepare(&repo, &ledger, &[to(MAIN, Some(&old), &new)]).unwrap();
        assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(old.clone()));
        assert!(
            repo.git().args(["update-ref", MAIN, old.as_str()]).output().is_err(),
            "nobody else moves it"
        );
        deliver(&ledger).unwrap();
        held.commit().unwrap();
        assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(new.clone()));
        sync(&repo, MAIN).unwrap();
        assert!(locks(&repo).is_empty());
        for name in ["HEAD", "main"] {
            let shown = checkout.git(["log", "-g", "-1", "--format=%gs|%gn|%ge|%H", name]);
            assert_eq!(shown, format!("sandboxer: commit of x|A User|user@example.org|{new}"));
        }
        assert_eq!(hooked, checkout.hook_ran());
    }
}

#[test]
fn no_hook_runs() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.plant_hooks();
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    HeldRef::prepare(&repo, &ledger, &[to(MAIN, Some(&old), &new)]).unwrap().commit().unwrap();
    deliver(&ledger).unwrap();
    assert_eq!(move_now(&repo, &to(MAIN, Some(&new), &old)).unwrap(), Moved::Done);
    assert!(!checkout.hook_ran());
    checkout.git(["update-ref", MAIN, new.as_str()]);
    assert!(checkout.hook_ran(), "a hook that never runs proves nothing");
}

#[test]
fn what_is_given_up_stays_where_it_was() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    let moves = [to(MAIN, Some(&old), &new), to("refs/heads/sandbox/x", None, &new)];
    HeldRef::prepare(&repo, &ledger, &moves).unwrap().abort();
    drop(HeldRef::prepare(&repo, &ledger, &moves).unwrap());
    assert!(locks(&repo).is_empty());
    assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(old));
    assert_eq!(repo.branch_tip("refs/heads/sandbox/x").unwrap(), None);
}

#[test]
fn new_and_unborn_branches_are_made() {
    let checkout = Checkout::unborn(ObjectFormat::Sha256);
    let (repo, ledger) = (checkout.repository(), checkout.ledger());
    let new = made(&ledger, &[]);
    let moves = [to(MAIN, None, &new), to("refs/heads/sandbox/x", None, &new)];
    let held = HeldRef::prepare(&repo, &ledger, &moves).unwrap();
    deliver(&ledger).unwrap();
    held.commit().unwrap();
    assert_eq!(repo.head().unwrap().commit, Some(new.clone()));
    assert_eq!(repo.branch_tip("refs/heads/sandbox/x").unwrap(), Some(new));
    sync(&repo, "refs/heads/sandbox/x").unwrap();
}

#[test]
fn a_detached_head_moves_and_an_attached_one_is_not_torn_off() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    deliver(&ledger).unwrap();
    let one = to("HEAD", Some(&old), &new);
    assert!(matches!(
        HeldRef::prepare(&repo, &ledger, std::slice::from_ref(&one)),
        Err(Error::Refused { .. })
    ));
    assert_eq!(move_now(&repo, &one).unwrap(), Moved::Elsewhere(Some(old.clone())));
    assert_eq!(repo.head().unwrap().branch.unwrap(), MAIN);
    checkout.git(["checkout", "-q", "--detach"]);
    HeldRef::prepare(&repo, &ledger, std::slice::from_ref(&one)).unwrap().commit().unwrap();
    sync(&repo, "HEAD").unwrap();
    assert_eq!(repo.head().unwrap(), crate::repository::Head { branch: None, commit: Some(new.clone()) });
    assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(old));
    assert_eq!(move_now(&repo, &one).unwrap(), Moved::Already);
}

#[test]
fn a_linked_checkout_moves_its_own_branch_and_head() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let linked = checkout.dir.path().join("linked");
    let words = ["worktree", "add", "-qb", "side"];
    checkout.git(words.iter().map(Path::new).chain([linked.as_path()]));
    let (repo, ledger, old) = (Repository::find(&linked).unwrap(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    deliver(&ledger).unwrap();
    let one = to("refs/heads/side", Some(&old), &new);
    HeldRef::prepare(&repo, &ledger, &[one]).unwrap().commit().unwrap();
    sync(&repo, "refs/heads/side").unwrap();
    assert_eq!(repo.head().unwrap().commit, Some(new.clone()));
    assert_eq!(
        checkout.git_in(&linked, ["log", "-g", "-1", "--format=%gs", "HEAD"]),
        "sandboxer: commit of x"
    );
    checkout.git_in(&linked, ["checkout", "-q", "--detach"]);
    assert_eq!(move_now(&repo, &to("HEAD", Some(&new), &old)).unwrap(), Moved::Done);
    sync(&repo, "HEAD").unwrap();
    assert_eq!(checkout.repository().head().unwrap().branch.unwrap(), MAIN);
}

#[test]
fn moved_and_locked_are_told_apart() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    let prepare = |one: Move| HeldRef::prepare(&repo, &ledger, &[one]).err().unwrap();
    for wrong in [to(MAIN, Some(&new), &old), to(MAIN, None, &new), to("refs/heads/none", Some(&old), &new)] {
        let error = prepare(wrong);
        assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("was moved")), "{error:?}");
    }
    let lock = repo.common_dir.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let error = prepare(to(MAIN, Some(&old), &new));
    assert!(matches!(&error, Error::Busy { path, .. } if *path == lock), "{error:?}");
    std::fs::remove_file(&lock).unwrap();
    let error = prepare(to("refs/heads/main/below", None, &new));
    assert!(matches!(&error, Error::Io { .. }), "{error:?}");
    let error = prepare(to(MAIN, Some(&old), &ObjectFormat::Sha1.blob(b"no such commit")));
    assert!(matches!(&error, Error::Io { .. }), "{error:?}");
    assert!(locks(&repo).is_empty());
}

#[test]
fn a_git_that_keeps_its_answers_to_itself_is_understood() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    let start = |moves: &[Move]| HeldRef::start(&repo, Some(&ledger), moves, false);
    let error = start(&[to(MAIN, Some(&new), &old)]).err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let lock = repo.common_dir.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let error = start(&[to(MAIN, Some(&old), &new)]).err().unwrap();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    std::fs::remove_file(&lock).unwrap();
    drop(start(&[to(MAIN, Some(&old), &new)]).unwrap());
    assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(old.clone()));
    let held = start(&[to(MAIN, Some(&old), &new), to("refs/heads/x", None, &new)]).unwrap();
    deliver(&ledger).unwrap();
    held.commit().unwrap();
    assert_eq!(repo.branch_tip(MAIN).unwrap(), Some(new.clone()));
    assert_eq!(repo.branch_tip("refs/heads/x").unwrap(), Some(new));
    assert!(locks(&repo).is_empty());
}

#[test]
fn what_was_decided_is_moved_once_and_only_from_where_it_was() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger, old) = (checkout.repository(), checkout.ledger(), checkout.oid("HEAD"));
    let new = made(&ledger, std::slice::from_ref(&old));
    deliver(&ledger).unwrap();
    let one = to(MAIN, Some(&old), &new);
    assert_eq!(move_now(&repo, &one).unwrap(), Moved::Done);
    assert_eq!(move_now(&repo, &one).unwrap(), Moved::Already);
    let other = checkout.commit_all("on top");
    assert_eq!(move_now(&repo, &one).unwrap(), Moved::Elsewhere(Some(other)));
    let gone = to("refs/heads/gone", Some(&old), &new);
    assert_eq!(move_now(&repo, &gone).unwrap(), Moved::Elsewhere(None));
    std::fs::write(repo.common_dir.join("refs/heads/x.lock"), "").unwrap();
    assert!(matches!(move_now(&repo, &to("refs/heads/x", None, &new)), Err(Error::Busy { .. })));
}

#[test]
fn locks_that_a_killed_git_left_are_removed_and_nobody_elses() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let (repo, ledger) = (checkout.repository(), checkout.ledger());
    let old = repo.branch_tip(MAIN).unwrap().unwrap();
    let one = to(MAIN, Some(&old), &made(&ledger, std::slice::from_ref(&old)));
    let mut held = HeldRef::prepare(&repo, &ledger, std::slice::from_ref(&one)).unwrap();
    held.child.kill().unwrap();
    drop(held);
    assert_eq!(locks(&repo).len(), 2, "a git that is killed leaves its locks: {:?}", locks(&repo));
    let another = to(MAIN, Some(&old), &made(&ledger, &[]));
    release_left(&repo, &another).unwrap();
    assert_eq!(locks(&repo).len(), 2, "these are not those of {another:?}");
    release_left(&repo, &one).unwrap();
    assert_eq!(locks(&repo), Vec::<PathBuf>::new());
    HeldRef::prepare(&repo, &ledger, &[one]).unwrap().abort();
}

#[test]
fn references_in_tables_work_as_well() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let tables = checkout.dir.path().join("tables");
    let words = ["init", "-q", "--ref-format=reftable"];
    let git = Git::at(Place::From(checkout.dir.path())).args(words).arg(&tables);
    if git.try_output().unwrap().is_none() {
        eprintln!("skipped: references_in_tables_work_as_well: this git knows no tables");
        return;
    }
    let repo = Repository::find(&tables).unwrap();
    let ledger = Ledger::create(&checkout.dir.path().join("ledger"), &repo).unwrap();
    let branch = repo.head().unwrap().branch.unwrap();
    let new = made(&ledger, &[]);
    let held = HeldRef::prepare(&repo, &ledger, &[to(&branch, None, &new)]).unwrap();
    deliver(&ledger).unwrap();
    held.commit().unwrap();
    sync(&repo, &branch).unwrap();
    assert_eq!(repo.head().unwrap().commit, Some(new.clone()));
    assert_eq!(repo.under_way(), None);
    repo.git().args(["update-ref", "CHERRY_PICK_HEAD", new.as_str()]).output().unwrap();
    assert_eq!(repo.under_way(), Some("cherry-pick"));
    let error = HeldRef::prepare(&repo, &ledger, &[to(&branch, None, &new)]).err().unwrap();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

#[test]
fn names_of_branches_are_checked() {
    for good in ["x", "sandbox/x", "a.b-c_d", "\u{e9}"] {
        check_branch_name(good).unwrap();
    }
    for bad in ["", "-x", "HEAD", "a..b", "a b", "@{-1}", "x.lock", "/x", "x/", "a\0b", "a\nb", "~", "a//b"] {
        assert!(matches!(check_branch_name(bad), Err(Error::Usage { .. })), "{bad:?}");
    }
}

#[test]
fn a_reason_is_one_line() {
    assert_eq!(clean_reason("a\nb\0c"), "a b c");
    assert_eq!(clean_reason(" \n"), "sandboxer");
}
