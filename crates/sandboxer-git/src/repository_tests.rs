#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::Checkout;

const FORMATS: [ObjectFormat; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

fn refusal(path: &Path) -> (String, String) {
    match Repository::find(path).unwrap_err() {
        Error::Refused { reason, hint } => (reason, hint.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkout_is_found_with_all_its_places() {
    for format in FORMATS {
        let checkout = Checkout::new(format);
        let link = checkout.dir.path().join("link");
        std::os::unix::fs::symlink(checkout.path(), &link).unwrap();
        for path in [checkout.path(), link] {
            let found = Repository::find(&path).unwrap();
            let git_dir = checkout.path().join(".git");
            let common_dir = git_dir.clone();
            assert_eq!(found, Repository { work_tree: checkout.path(), git_dir, common_dir, format });
        }
    }
}

#[test]
fn a_linked_checkout_shares_objects_and_has_its_own_index() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let linked = checkout.dir.path().canonicalize().unwrap().join("linked\nname");
    checkout.git([OsStr::new("worktree"), "add".as_ref(), "-qb".as_ref(), "side".as_ref(), linked.as_ref()]);
    let found = Repository::find(&linked).unwrap();
    let main = checkout.repository();
    assert_eq!(found.common_dir, main.git_dir);
    assert_eq!(found.objects(), main.objects());
    assert!(found.git_dir.starts_with(main.git_dir.join("worktrees")), "{:?}", found.git_dir);
    assert!(found.index().exists() && found.index() != main.index());
    assert_eq!(found.head().unwrap().branch.unwrap(), "refs/heads/side");
    assert_eq!(main.head().unwrap().branch.unwrap(), "refs/heads/main");
    for repository in [&found, &main] {
        assert!(repository.is_checked_out("refs/heads/side").unwrap());
        assert!(repository.is_checked_out("refs/heads/main").unwrap());
        assert!(!repository.is_checked_out("refs/heads/mai").unwrap());
    }
}

#[test]
fn a_checkout_of_a_bare_repository_is_a_checkout() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let bare = checkout.dir.path().canonicalize().unwrap().join("bare.git");
    std::fs::rename(checkout.path().join(".git"), &bare).unwrap();
    let run = |words: &[&str]| checkout.git_in(&bare, words);
    run(&["config", "core.bare", "true"]);
    let (reason, hint) = refusal(&bare);
    assert!(reason.ends_with("is a bare repository, which has no files"), "{reason}");
    assert!(hint.contains("git clone"), "{hint}");
    run(&["worktree", "add", "-q", "../linked", "-b", "side"]);
    let found = Repository::find(&bare.with_file_name("linked")).unwrap();
    assert_eq!(found.common_dir, bare);
    assert_eq!(found.head().unwrap().commit, found.branch_tip("refs/heads/main").unwrap());
}

#[test]
fn what_is_no_top_of_a_checkout_is_refused_with_what_to_do() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.write("d/e/f", "");
    let (reason, hint) = refusal(&checkout.path().join("d/e"));
    assert!(reason.ends_with("d/e is not the top of its checkout"), "{reason}");
    assert_eq!(hint, format!("name the top: {}", checkout.path().display()));
    assert!(refusal(&checkout.path().join(".git")).0.ends_with("is not in a checkout"));
    let (reason, hint) = refusal(checkout.dir.path());
    assert!(reason.ends_with("is not a git repository"), "{reason}");
    assert!(hint.contains("git init"), "{hint}");
    assert!(matches!(Repository::find(Path::new("/nonexistent/x")), Err(Error::Io { .. })));
}

#[test]
fn an_owner_that_git_does_not_trust_is_passed_on() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let stranger = [checkout.path(), checkout.path().join(".git")];
    let given = stranger.iter().all(|path| std::os::unix::fs::chown(path, Some(4711), None).is_ok());
    if !given || Repository::find(&checkout.path()).is_ok() {
        eprintln!(
            "skipped: an_owner_that_git_does_not_trust_is_passed_on: not root, or git trusts everybody here"
        );
        return;
    }
    let (reason, hint) = refusal(&checkout.path());
    assert!(reason.contains("does not trust"), "{reason}");
    assert!(hint.contains("safe.directory"), "{hint}");
}

#[test]
fn head_is_on_a_branch_detached_or_unborn() {
    for format in FORMATS {
        let checkout = Checkout::unborn(format);
        let repository = checkout.repository();
        let main = Some("refs/heads/main".to_owned());
        assert_eq!(repository.head().unwrap(), Head { branch: main.clone(), commit: None });
        let commit = Some(checkout.commit_all("first"));
        assert_eq!(repository.head().unwrap(), Head { branch: main.clone(), commit: commit.clone() });
        checkout.git(["pack-refs", "--all", "--prune"]);
        assert_eq!(repository.head().unwrap(), Head { branch: main, commit: commit.clone() });
        checkout.git(["checkout", "-q", "--detach"]);
        assert_eq!(repository.head().unwrap(), Head { branch: None, commit });
    }
}

#[test]
fn a_branch_is_where_exactly_its_name_is() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    checkout.git(["branch", "x/y"]);
    checkout.git(["branch", "refs/heads/z"]);
    let repository = checkout.repository();
    assert_eq!(repository.branch_tip("refs/heads/x/y").unwrap(), Some(checkout.oid("HEAD")));
    for none in ["refs/heads/x", "refs/heads/z", "refs/heads/none", "main"] {
        assert_eq!(repository.branch_tip(none).unwrap(), None, "{none}");
    }
}

#[test]
fn a_commit_is_found_by_whatever_a_user_calls_it() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let first = checkout.oid("HEAD");
    checkout.git(["tag", "-a", "-m", "a tag", "v1"]);
    checkout.commit_all("second");
    let repository = checkout.repository();
    for rev in ["v1", "HEAD~1", "main^", first.as_str(), first.short(), "HEAD@{1}"] {
        assert_eq!(repository.resolve(rev).unwrap(), first, "{rev}");
    }
    let blob = checkout.oid("HEAD:a");
    for none in ["nothing", blob.as_str(), "HEAD:a", "main..v1"] {
        assert!(matches!(repository.resolve(none), Err(Error::NotFound { what: "commit", .. })), "{none}");
    }
    for bad in ["", "-x", "--all", "a\0b"] {
        assert!(matches!(repository.resolve(bad), Err(Error::Usage { .. })), "{bad:?}");
    }
}

#[test]
fn what_is_under_way_has_a_name() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repository = checkout.repository();
    assert_eq!(repository.under_way(), None);
    checkout.git(["checkout", "-qb", "side"]);
    checkout.write("a", "side\n");
    checkout.commit_all("side");
    checkout.git(["checkout", "-q", "main"]);
    checkout.write("a", "main\n");
    checkout.commit_all("main");
    let mut tried = 0;
    for (words, what) in [
        (["merge", "side"], "merge"),
        (["cherry-pick", "side"], "cherry-pick"),
        (["rebase", "side"], "rebase"),
        (["revert", "HEAD~1"], "revert"),
    ] {
        let tried_it = Git::at(Place::From(&checkout.path())).args(words).try_output().unwrap();
        assert!(tried_it.is_none(), "{words:?} has to stop");
        assert_eq!(repository.under_way(), Some(what), "{words:?}");
        checkout.git([words[0], "--abort"]);
        assert_eq!(repository.under_way(), None, "{words:?}");
        tried += 1;
    }
    assert_eq!(tried, 4);
    checkout.git(["bisect", "start"]);
    assert_eq!(repository.under_way(), None);
}

#[test]
fn settings_and_the_user_are_those_of_the_configuration() {
    let checkout = Checkout::new(ObjectFormat::Sha1);
    let repository = checkout.repository();
    if std::env::var_os("GIT_COMMITTER_NAME").is_none() && std::env::var_os("GIT_COMMITTER_EMAIL").is_none() {
        assert_eq!(repository.identity().unwrap().unwrap(), "A User <user@example.org>");
    } else {
        eprintln!("skipped: settings_and_the_user: the environment says who the user is");
    }
    checkout.git(["config", "x.y", "two\nlines "]);
    assert_eq!(repository.setting("x.y").unwrap().unwrap(), "two\nlines ");
    assert_eq!(repository.setting("x.none").unwrap(), None);
    assert!(repository.setting("not a key").is_err() || repository.setting("not a key").unwrap().is_none());
}
