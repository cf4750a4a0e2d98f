//! A git checkout from the command line: what is seen inside, what a difference shows, and what a commit is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sandboxer_testkit::git::GitRepo;

use crate::common::Ran;
use crate::common::checkout::{self, Checkout, files};
use crate::common::user;

#[test]
fn a_day_with_a_checkout() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    // Everything is there, as it is in the checkout.
    assert_eq!(files(inside.path()), files(day.repo.path()));
    assert_eq!(inside.status(), day.repo.status());
    assert_eq!(inside.git(&["branch", "--show-current"]), "sandbox/try");
    assert!(day.diff("try").is_empty(), "what was brought along is no change");
    inside.write("hello.txt", "hello\nsandbox\n");
    inside.write("src/new.rs", "mod new;\n");
    inside.write("build/more.o", "ignored\n");
    fs::remove_file(inside.path().join("src/main.rs")).unwrap();
    assert_eq!(day.diff("try"), ["M hello.txt", "D src/main.rs", "A src/new.rs"]);
    let before = day.repo.head();
    let told = day.world.run(&["commit", "try", "-m", "a day's work"]);
    let commit = day.repo.head();
    let expected = format!(
        "committed 3 changes of try as {} on main: 1 created, 1 modified, 1 deleted\n",
        &commit[..10]
    );
    assert_eq!((told.code, told.stdout), (0, expected));
    assert!(told.stderr.contains("sandbox undo try") && told.stderr.contains("sandbox destroy try"));
    // One commit by the user, on the branch that is checked out, of the sandbox's work alone.
    assert_eq!(day.repo.git(&["rev-parse", "HEAD^"]), before);
    assert_eq!(
        day.repo.git(&["log", "-1", "--format=%an %ae %s"]),
        "Tess Tester tess@example.org a day's work"
    );
    let changed = day.repo.git(&["diff", "--name-status", "--no-renames", "HEAD^", "HEAD"]);
    assert_eq!(changed, "M\thello.txt\nD\tsrc/main.rs\nA\tsrc/new.rs");
    // The user is still in the middle of the same thing.
    assert_eq!(day.repo.status(), " M run.sh\n?? notes.txt");
    assert_eq!(day.repo.read("run.sh"), b"#!/bin/sh\necho mine\n");
    assert!(!day.repo.path().join("build/more.o").exists());
    assert_eq!((day.fsck(), day.branches()), (String::new(), "main".to_owned()));
    assert!(day.diff("try").is_empty());
    assert_eq!(inside.head(), commit, "the branch inside goes along");
    assert_eq!(inside.status(), " M run.sh\n?? notes.txt");
}

#[test]
fn git_works_inside_and_nothing_of_it_reaches_the_repository() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = day.everything();
    let inside = day.sandbox();
    inside.write("one", "1\n");
    inside.git(&["add", "one"]);
    assert_eq!(inside.git(&["diff", "--cached", "--name-only"]), "one");
    inside.git(&["commit", "-qm", "one"]);
    inside.git(&["stash", "-q"]);
    assert_eq!(inside.read("run.sh"), b"#!/bin/sh\necho hi\n");
    inside.git(&["stash", "pop", "-q"]);
    inside.git(&["stash", "-q"]);
    inside.git(&["switch", "-qc", "topic", "HEAD^"]);
    inside.write("two", "2\n");
    inside.git(&["add", "two"]);
    inside.git(&["commit", "-qm", "two"]);
    inside.git(&["rebase", "-q", "sandbox/try"]);
    assert_eq!(inside.git(&["log", "--format=%s"]), "two\none\nfirst");
    inside.git(&["merge", "-q", "--no-ff", "-m", "merge", "sandbox/try"]);
    inside.git(&["tag", "v1"]);
    inside.git(&["stash", "pop", "-q"]);
    inside.git(&["gc", "-q", "--prune=now"]);
    inside.git(&["config", "core.hooksPath", "/nowhere"]);
    inside.git(&["branch", "-D", "sandbox/try"]);
    assert_eq!(day.diff("try"), ["A one", "A two"]);
    assert_eq!(day.everything(), before);
    let told = day.world.ok(&["get", "try"]);
    assert!(told.contains("  branch    topic at "), "{told}");
    day.world.ok(&["destroy", "try", "--discard"]);
    assert_eq!(day.everything(), before, "nothing is left of it");
}

/// Everything that a patch can say, with names that are hard to say.
fn difficult_work(inside: &GitRepo) {
    let path = |name: &[u8]| inside.path().join(OsStr::from_bytes(name));
    fs::write(path(b"binary"), [0, 255, 1, 2, 0, 10, 13]).unwrap();
    fs::set_permissions(path(b"hello.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path(b"moved")).unwrap();
    fs::rename(path(b"ten.txt"), path(b"moved/ten.txt")).unwrap();
    symlink("src/main.rs", path(b"link")).unwrap();
    fs::write(path(b"new\nline"), "newline\n").unwrap();
    fs::write(path(b"quo\"te \\ tab\t"), "quote\n").unwrap();
    fs::write(path(b"bad\xff\xfeutf8"), "bytes\n").unwrap();
    fs::write(path(b"no-newline"), "at the end").unwrap();
    fs::write(path(b"empty"), "").unwrap();
}

#[test]
fn a_patch_applies_to_a_clean_clone() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    difficult_work(&inside);
    let patch = day.world.run(&["diff", "try", "--patch"]);
    assert_eq!(patch.code, 0, "{}", patch.stderr);
    let clone = GitRepo::at(day.world.path("clone"));
    day.repo.git(&["clone", "-q", ".", clone.path().to_str().unwrap()]);
    let file = day.world.path("all.patch");
    fs::write(&file, &patch.raw).unwrap();
    clone.git(&["apply", "--index", file.to_str().unwrap()]);
    day.world.ok(&["commit", "try", "--to", "review"]);
    // What the patch makes of the clone is what the commit made of the repository.
    assert_eq!(clone.git(&["write-tree"]), day.repo.git(&["rev-parse", "review^{tree}"]));
}

#[test]
fn difficult_names_and_kinds_are_committed_as_they_are() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    difficult_work(&inside);
    let told = day.world.json(&["commit", "try", "-m", "all of it"]);
    assert_eq!((&told["summary"]["total"], &told["revision"]["branch"]), (&10.into(), &"main".into()));
    assert_eq!(told["revision"]["commit"], day.repo.head());
    assert_eq!(files(inside.path()), files(day.repo.path()));
    assert_eq!(day.repo.status(), " M run.sh\n?? notes.txt");
    let modes = day.repo.git(&["ls-tree", "-r", "HEAD", "hello.txt", "link", "moved/ten.txt"]);
    let modes: Vec<&str> = modes.lines().map(|line| &line[..6]).collect();
    assert_eq!(modes, ["100755", "120000", "100644"]);
    assert_eq!((day.fsck(), day.diff("try")), (String::new(), vec![]));
}

#[test]
fn work_can_be_left_as_a_branch_for_review() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    inside.write("hello.txt", "reviewed\n");
    let (_, untouched) = day.everything();
    let (status, index) = (day.repo.status(), day.repo.read(".git/index"));
    let told = day.world.run(&["commit", "try", "--to", "review", "-m", "for review"]);
    let tip = day.repo.git(&["rev-parse", "review"]);
    let expected =
        format!("left 1 change of try as {} on branch review; the checkout is untouched\n", &tip[..10]);
    assert_eq!((told.code, &told.stdout), (0, &expected));
    assert!(told.stderr.contains("git diff main...review"), "{}", told.stderr);
    assert!(!told.stderr.contains("undo") && !told.stderr.contains("destroy"), "{}", told.stderr);
    assert_eq!((day.subjects("review"), day.subjects("main")), ("for review\nfirst".into(), "first".into()));
    assert_eq!(
        (day.everything().1, day.repo.status(), day.repo.read(".git/index")),
        (untouched, status, index)
    );
    assert_eq!(day.diff("try"), ["M hello.txt"], "it is still pending");
    // A second time there is nothing new, and nothing is written.
    let before = day.everything();
    let again = day.world.run(&["commit", "try", "--to", "review"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, "nothing in try that branch review does not have\n"));
    assert_eq!(day.everything(), before);
    // More work goes on top.
    inside.write("more", "more\n");
    day.world.ok(&["commit", "try", "--to", "review", "-m", "more"]);
    assert_eq!(day.subjects("review"), "more\nfor review\nfirst");
    assert_eq!(day.fsck(), "");
}

#[test]
fn a_branch_for_review_is_no_commit_that_is_taken_back() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("hello.txt", "one\n");
    day.world.ok(&["commit", "try", "-m", "one"]);
    inside.write("hello.txt", "two\n");
    let left = day.world.json(&["commit", "try", "--to", "review"]);
    assert_eq!(
        (&left["revision"]["branch"], &left["undo_bytes"]),
        (&"review".into(), &serde_json::Value::Null)
    );
    let refused = day.world.json_error(&["undo", left["op_id"].as_str().unwrap()], 5);
    assert!(refused["message"].as_str().unwrap().contains("only left branch review"), "{refused}");
    day.world.ok(&["undo"]);
    assert_eq!(
        (day.subjects("main"), day.repo.read("hello.txt")),
        ("first".into(), b"hello\nworld\n".to_vec())
    );
    let log = day.world.ok(&["log", "try"]);
    assert!(log.contains("1 path left on branch review"), "{log}");
}

#[test]
fn branches_that_cannot_be_made_are_refused() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["branch", "old"]);
    let inside = day.sandbox();
    inside.write("hello.txt", "one\n");
    let before = day.everything();
    let checked_out = day.world.json_error(&["commit", "try", "--to", "main"], 5);
    assert!(checked_out["message"].as_str().unwrap().contains("checked out"), "{checked_out}");
    for bad in ["-x", "a b", "a..b", "refs/heads/../x", "x.lock", "", "HEAD"] {
        let ran = day.world.run(&["commit", "try", &format!("--to={bad}")]);
        assert!([2, 5].contains(&ran.code), "{bad:?}: {} {}{}", ran.code, ran.stdout, ran.stderr);
    }
    assert_eq!(day.everything(), before);
    // One that is there and comes from the same commit is moved on.
    day.world.ok(&["commit", "try", "--to", "old", "-m", "on top"]);
    assert_eq!(day.subjects("old"), "on top\nfirst");
}

#[test]
fn commits_that_were_made_inside_can_be_kept() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    for name in ["one", "two"] {
        inside.write(name, "content\n");
        inside.git(&["add", name]);
        inside.git(&["-c", "user.name=Agent", "commit", "-qm", name]);
    }
    inside.write("three", "not committed inside\n");
    let told = day.world.run(&["commit", "try", "--keep-commits", "-m", "the rest"]);
    let expected = format!(
        "committed 3 changes of try as {} on main, keeping 2 commits: 3 created\n",
        &day.repo.head()[..10]
    );
    assert_eq!((told.code, told.stdout), (0, expected));
    assert_eq!(
        day.repo.git(&["log", "--format=%an %s"]),
        "Tess Tester the rest\nAgent two\nAgent one\nTess Tester first"
    );
    assert_eq!((day.repo.status().as_str(), day.fsck().as_str()), (" M run.sh\n?? notes.txt", ""));
    // Where they have everything, no other commit is made.
    inside.write("four", "4\n");
    inside.git(&["add", "four"]);
    inside.git(&["commit", "-qm", "four"]);
    let document = day.world.json(&["commit", "try", "--keep-commits"]);
    assert_eq!(
        (&document["revision"]["kept"], &document["revision"]["commit"]),
        (&1.into(), &inside.head().into())
    );
    assert_eq!(day.subjects("main").lines().next(), Some("four"));
}

#[test]
fn one_commit_is_made_of_all_unless_told_otherwise() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    for name in ["one", "two"] {
        inside.write(name, "content\n");
        inside.commit_all(name);
    }
    day.world.ok(&["commit", "try", "--squash", "-m", "both"]);
    assert_eq!(day.subjects("main"), "both\nfirst");
    assert_eq!(day.world.run(&["commit", "try", "--squash", "--keep-commits"]).code, 2);
}

#[test]
fn commits_with_more_in_them_than_the_difference_shows_are_not_kept() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    inside.write("one", "1\n");
    inside.commit_all("with the user's own changes");
    let before = day.everything();
    let refused = day.world.json_error(&["commit", "try", "--keep-commits"], 5);
    assert!(refused["message"].as_str().unwrap().contains("notes.txt"), "{refused}");
    assert_eq!(day.everything(), before);
    day.world.ok(&["commit", "try", "-m", "only one"]);
    assert_eq!(day.repo.git(&["show", "--format=", "--name-only"]), "one");
    assert_eq!(day.repo.status(), " M run.sh\n?? notes.txt");
}

#[test]
fn chosen_paths_and_hunks_become_a_commit_of_their_own() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.sandbox();
    let text = String::from_utf8(inside.read("ten.txt")).unwrap();
    inside.write("ten.txt", text.replace("line 1\n", "first\n").replace("line 10\n", "last\n"));
    inside.write("other", "other\n");
    let patch = day.world.ok(&["diff", "try", "--patch", "ten.txt"]);
    let second = patch.match_indices("\n@@ ").nth(1).unwrap().0;
    day.world.file("first.patch", format!("{}\n", &patch[..second]));
    let file = day.world.path("first.patch");
    day.world.ok(&["commit", "try", "--hunks", file.to_str().unwrap(), "-m", "first hunk"]);
    let committed = day.repo.git(&["show", "HEAD:ten.txt"]);
    assert!(committed.starts_with("first\n") && committed.ends_with("line 10"), "{committed}");
    assert_eq!(day.diff("try"), ["A other", "M ten.txt"]);
    day.world.ok(&["commit", "try", "other", "-m", "one path"]);
    assert_eq!(day.repo.git(&["show", "--format=%s", "--name-only"]), "one path\n\nother");
    assert_eq!(day.diff("try"), ["M ten.txt"]);
    let digest = day.world.json(&["diff", "try"])["digest"].as_str().unwrap().to_owned();
    inside.write("late", "late\n");
    assert_eq!(day.world.run(&["commit", "try", "--digest", &digest]).code, 5);
    fs::remove_file(inside.path().join("late")).unwrap();
    day.world.ok(&["commit", "try", "--digest", &digest, "-m", "as reviewed"]);
    assert_eq!(day.subjects("main"), "as reviewed\none path\nfirst hunk\nfirst");
    assert_eq!((day.repo.status().as_str(), day.fsck().as_str()), (" M run.sh\n?? notes.txt", ""));
}

#[test]
fn a_commit_is_taken_back_and_made_again() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = (day.repo.head(), day.repo.status(), files(day.repo.path()));
    let inside = day.sandbox();
    inside.write("hello.txt", "changed\n");
    inside.write("new", "new\n");
    fs::remove_file(inside.path().join("src/main.rs")).unwrap();
    day.world.ok(&["commit", "try", "-m", "work"]);
    let after = (day.repo.head(), day.repo.status(), files(day.repo.path()));
    assert_ne!(before, after);
    let undone = day.world.json(&["undo", "try"]);
    assert_eq!((day.repo.head(), day.repo.status(), files(day.repo.path())), before);
    assert_eq!(day.diff("try"), ["M hello.txt", "A new", "D src/main.rs"]);
    assert_eq!(undone["revision"]["commit"], before.0);
    day.world.ok(&["undo", undone["op_id"].as_str().unwrap()]);
    assert_eq!((day.repo.head(), day.repo.status(), files(day.repo.path())), after);
    assert_eq!((day.fsck(), day.diff("try")), (String::new(), vec![]));
}

#[test]
fn what_is_on_top_of_a_commit_is_not_taken_back() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("hello.txt", "changed\n");
    day.world.ok(&["commit", "try", "-m", "work"]);
    day.repo.write("on-top", "");
    day.repo.commit_all("on top");
    let before = day.everything();
    let refused = day.world.json_error(&["undo", "try"], 5);
    assert!(refused["hints"][0].as_str().unwrap().contains("git revert"), "{refused}");
    assert_eq!(day.everything(), before);
}

#[test]
fn checkpoints_hold_the_index_and_the_branches_too() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = day.everything();
    let inside = day.sandbox();
    inside.write("one", "1\n");
    inside.git(&["add", "one"]);
    inside.git(&["commit", "-qm", "one"]);
    inside.write("two", "2\n");
    inside.git(&["add", "two"]);
    let then = (inside.head(), inside.status(), files(inside.path()));
    day.world.ok(&["checkpoint", "try", "then"]);
    inside.write("three", "3\n");
    fs::remove_file(inside.path().join("two")).unwrap();
    inside.git(&["add", "--all"]);
    inside.git(&["commit", "-qm", "worse"]);
    inside.git(&["switch", "-qc", "elsewhere"]);
    let restored = day.world.json(&["restore", "try", "then"]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!((inside.head(), inside.status(), files(inside.path())), then);
    assert_eq!(inside.git(&["branch", "--show-current"]), "sandbox/try");
    assert_eq!(restored["restored_files"], 2, "{restored}");
    assert_eq!(day.diff("try"), ["A one", "A two"]);
    day.world.ok(&["rollback", "try"]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!((inside.head(), inside.status()), (day.repo.head(), day.repo.status()));
    assert_eq!(
        inside.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/sandbox"]),
        "sandbox/try"
    );
    assert_eq!(day.everything(), before);
}

#[test]
fn a_rollback_after_a_commit_goes_back_to_the_commit() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("kept", "kept\n");
    day.world.ok(&["commit", "try", "-m", "kept"]);
    inside.write("lost", "lost\n");
    inside.commit_all("lost");
    day.world.ok(&["rollback", "try"]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!((inside.head(), inside.status()), (day.repo.head(), String::new()));
    assert_eq!(files(inside.path()), files(day.repo.path()));
}

#[test]
fn work_that_is_parked_comes_back_with_its_repository() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = day.everything();
    let inside = day.sandbox();
    inside.write("one", "1\n");
    inside.git(&["add", "one"]);
    inside.git(&["commit", "-qm", "one"]);
    inside.write("two", "2\n");
    inside.git(&["add", "two"]);
    let then = (inside.head(), inside.status());
    assert_eq!(day.world.json(&["destroy", "try"])["state"], "parked");
    assert_eq!(day.everything(), before, "nothing of it is in the repository");
    day.world.ok(&["unpark", "try"]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!((inside.head(), inside.status()), then);
    day.world.ok(&["commit", "try", "--keep-commits", "-m", "two"]);
    assert_eq!(day.subjects("main"), "two\none\nfirst");
    assert_eq!((day.repo.status().as_str(), day.fsck().as_str()), (" M run.sh\n?? notes.txt", ""));
}

#[test]
fn nothing_is_left_in_the_repository() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = day.everything();
    let inside = day.sandbox();
    inside.write("hello.txt", "changed\n");
    inside.commit_all("inside");
    day.world.ok(&["commit", "try", "--dry-run"]);
    assert_eq!(day.world.run(&["commit", "try", "--keep-commits"]).code, 5);
    day.world.ok(&["destroy", "try", "--discard"]);
    assert_eq!(day.everything(), before);
    for left in ["home/scratch", "home/sandboxes"] {
        let count = fs::read_dir(day.world.path(left)).map(Iterator::count).unwrap_or(0);
        assert_eq!(count, 0, "something is left in {left}");
    }
}

#[test]
fn a_checkout_and_a_plain_directory_are_committed_as_one() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.world.file("data/value", "old\n");
    let data = day.world.path("data");
    let flags =
        ["create", "--name", "two", "--input", "code=.", "--input", &format!("data={}", data.display())];
    day.world.ok(&flags);
    let documents = day.world.json(&["get", "two"]);
    assert!(documents["workspaces"][0]["git"]["branch"].is_string() && documents["git"].is_null());
    assert!(documents["workspaces"][1]["git"].is_null());
    for (workspace, name) in [("two:code", "hello.txt"), ("two:data", "value")] {
        fs::write(day.world.inside(workspace).join(name), "new\n").unwrap();
    }
    // Nothing of it, where a part cannot be.
    day.repo.write("hello.txt", "mine\n");
    let before = day.everything();
    assert_eq!(day.world.run(&["commit", "two"]).code, 3);
    assert_eq!((day.everything(), day.world.text("data/value")), (before, "old\n".to_owned()));
    day.repo.git(&["checkout", "-q", "hello.txt"]);
    let told = day.world.json(&["commit", "two", "-m", "both"]);
    let revisions = told["revisions"].as_array().unwrap();
    assert_eq!((revisions.len(), &revisions[0]["workspace"]), (1, &"code".into()));
    assert!(told["revision"].is_null());
    assert_eq!(
        (day.world.text("data/value").as_str(), day.subjects("main").as_str()),
        ("new\n", "both\nfirst")
    );
    assert_eq!(day.repo.status(), "");
    day.world.ok(&["undo", "two"]);
    assert_eq!((day.world.text("data/value").as_str(), day.subjects("main").as_str()), ("old\n", "first"));
}

#[test]
fn get_and_create_tell_where_the_sandbox_stands() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let base = day.repo.head();
    let created = day.world.json(&["create", "--name", "try"]);
    let expected = serde_json::json!({
        "branch": "sandbox/try",
        "head": base,
        "base": base,
        "target": "main",
        "repository": fs::canonicalize(day.repo.path().join(".git")).unwrap(),
    });
    assert_eq!((&created["git"], &created["workspaces"][0]["git"]), (&expected, &expected));
    let inside = GitRepo::at(day.world.inside("try"));
    inside.write("x", "x");
    inside.commit_all("x");
    inside.git(&["switch", "-q", "--detach"]);
    let told = day.world.json(&["get", "try"]);
    assert_eq!(
        (&told["git"]["branch"], &told["git"]["head"]),
        (&serde_json::Value::Null, &inside.head().into())
    );
    let text = day.world.ok(&["get", "try"]);
    assert!(text.contains(&format!("  branch    no branch, at {}\n", &inside.head()[..10])), "{text}");
    fs::remove_dir_all(inside.path().join(".git")).unwrap();
    fs::write(inside.path().join(".git"), "gitdir: /etc").unwrap();
    let text = day.world.ok(&["get", "try"]);
    assert!(text.contains("  branch    cannot be told"), "{text}");
}

#[test]
fn flags_on_branches_are_for_checkouts() {
    let day = Checkout::new();
    day.world.file("plain/file", "");
    let plain = day.world.path("plain");
    let plain = plain.to_str().unwrap();
    for flags in [&["--clean"][..], &["--no-ignored"], &["--from", "main"]] {
        let refused = day.world.json_error(&[&["create", plain], flags].concat(), 2);
        assert!(refused["message"].as_str().unwrap().contains(flags[0]), "{refused}");
        assert!(refused["hints"][0].as_str().unwrap().contains("git_worktree"), "{refused}");
        assert_eq!(day.world.run(&[&["create", "-s", "overlay"], flags].concat()).code, 2);
        let ran = day.world.run(&[&["run", "-C", plain], flags, &["--", "true"]].concat());
        assert_eq!(ran.code, 125, "{}", ran.stderr);
    }
    assert!(day.world.json(&["list"])["sandboxes"].as_array().unwrap().is_empty());
    // Of several, those that have branches take them.
    day.world.ok(&["create", "--no-ignored", ".", plain]);
    day.world.ok(&["create", "--name", "plain", plain]);
    day.world.run_with_input(&["write", "plain", "file"], b"x");
    for flags in [&["--to", "b"][..], &["--keep-commits"]] {
        let refused = day.world.run(&[&["commit", "plain"], flags].concat());
        assert!(refused.code == 1 && refused.stderr.contains("branches"), "{}", refused.stderr);
    }
}

#[test]
fn run_says_once_what_is_not_protected() {
    let day = Checkout::new();
    let told =
        |flags: &[&str]| -> Ran { day.world.run(&[&["run", "--discard"], flags, &["--", "true"]].concat()) };
    let ran = told(&["--isolation", "files"]);
    assert_eq!(ran.stderr.matches("not protected").count(), 1, "{}", ran.stderr);
    for flags in [
        &[][..],
        &["--isolation", "files", "-q"],
        &["--isolation", "files", "--json"],
        &["--isolation", "files", "-s", "overlay"],
    ] {
        let ran = told(flags);
        assert!(!ran.stderr.contains("protected"), "{flags:?}: {}", ran.stderr);
    }
}

#[test]
fn run_commits_to_the_branch() {
    let day = Checkout::dirty();
    let ran =
        day.world.run(&["run", "--commit", "--", "sh", "-c", "git status --short; echo more >> hello.txt"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, " M run.sh\n?? notes.txt\n"));
    assert!(ran.stderr.contains(" on main: 1 modified"), "{}", ran.stderr);
    assert_eq!(day.repo.git(&["show", "--format=", "--name-only"]), "hello.txt");
    day.world.ok(&["undo"]);
    assert_eq!(
        (day.subjects("main").as_str(), day.repo.status().as_str()),
        ("first", " M run.sh\n?? notes.txt")
    );
}

/// The command with no other programs to find than those of `dir`.
fn with_path(day: &Checkout, dir: &Path, arguments: &[&str]) -> Ran {
    Ran::of(day.world.command(arguments).env("PATH", dir).output().unwrap())
}

#[test]
fn a_git_that_is_missing_or_too_old_is_told_of() {
    let day = Checkout::new();
    let (none, old) = (day.world.path("none"), day.world.path("old"));
    fs::create_dir(&none).unwrap();
    day.world.file("old/git", "#!/bin/sh\necho git version 2.20.1\n");
    fs::set_permissions(old.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    for (dir, reason) in [(none, "git is not installed"), (old, "git 2.20 is too old")] {
        let doctor = with_path(&day, &dir, &["doctor"]);
        let line = doctor.stdout.lines().find(|line| line.contains("git_worktree")).unwrap();
        assert!(line.starts_with("no ") && line.contains(reason), "{line}");
        assert!(line.contains("install git 2.30 or newer") && line.contains("--strategy overlay"), "{line}");
        assert_eq!(doctor.code, 0, "other strategies work");
        let refused = with_path(&day, &dir, &["create"]);
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        assert!(
            refused.stderr.contains(reason) && refused.stderr.contains("`--strategy overlay`"),
            "{}",
            refused.stderr
        );
        let made = with_path(&day, &dir, &["create", "-s", "filesystem_copy"]);
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
}

/// What an ordinary user has, whose overlay is in a keeper's namespaces: git works by `sandbox run`.
#[test]
fn everybody_can_work_on_a_checkout() {
    for user in user::overlay_users() {
        let git = |arguments: &[&str]| {
            let output = user.command("git").args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        git(&["init", "-q", "-b", "main"]);
        git(&["config", "user.name", "Tess Tester"]);
        git(&["config", "user.email", "tess@example.org"]);
        git(&["add", "hello.txt", "src"]);
        git(&["commit", "-q", "-m", "first"]);
        let script =
            "git status --short; echo more >> hello.txt; git commit -q -a -m inside; git log --format=%s";
        let ran =
            user.run(&["run", "--plan", "p", "--name", "try", "--keep", "-q", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "?? run.sh\ninside\nfirst\n"), "{}", ran.stderr);
        assert_eq!(user.json(&["get", "try"])["strategy"], "git_worktree");
        assert_eq!(
            (user.diff("try"), git(&["log", "--format=%s"])),
            (vec!["M hello.txt".to_owned()], "first\n".into())
        );
        user.ok(&["commit", "try", "--keep-commits"]);
        assert_eq!(git(&["log", "--format=%s"]), "inside\nfirst\n");
        assert_eq!(git(&["status", "--short"]), "?? run.sh\n");
        user.ok(&["undo", "try"]);
        assert_eq!(
            (git(&["log", "--format=%s"]), git(&["fsck", "--no-dangling"])),
            ("first\n".to_owned(), String::new())
        );
        user.ok(&["destroy", "try", "--discard"]);
    }
}
