//! What a commit of a checkout meets: work of the user's that is in the way, a branch that has moved, another sandbox.

use sandboxer_testkit::git::GitRepo;
use serde_json::Value;

use crate::common::checkout::{self, Checkout};

/// The text of ten lines, with some of them replaced.
fn ten(replaced: &[(usize, &str)]) -> String {
    let line = |n: usize| match replaced.iter().find(|(at, _)| *at == n) {
        Some((_, text)) => format!("{text}\n"),
        None => format!("line {n}\n"),
    };
    (1..=10).map(line).collect()
}

/// Commits, expects a conflict over exactly `paths` and that nothing was written. Gives the error.
fn conflict(day: &Checkout, flags: &[&str], paths: &[&str]) -> Value {
    let before = day.everything();
    let error = day.world.json_error(&[&["commit", "try"], flags].concat(), 3);
    let named: Vec<&str> =
        error["paths"].as_array().unwrap().iter().map(|d| d["path"].as_str().unwrap()).collect();
    assert_eq!(named, paths, "{error}");
    assert_eq!(day.everything(), before, "a conflict writes nothing");
    error
}

fn reason(error: &Value) -> &str {
    error["paths"][0]["reason"].as_str().unwrap()
}

#[test]
fn uncommitted_work_is_never_written_over() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    inside.write("hello.txt", "fine\n");
    day.repo.write("ten.txt", ten(&[(10, "user")]));
    let error = conflict(&day, &["-m", "x"], &["ten.txt"]);
    assert!(error["hints"].to_string().contains("--on-conflict merge"), "{error}");
    // The rest can be had.
    day.world.ok(&["commit", "try", "hello.txt", "-m", "the rest"]);
    assert_eq!(
        (day.repo.status().as_str(), day.diff("try")),
        (" M ten.txt", vec!["M ten.txt  (changed in the original too: a commit would conflict)".to_owned()])
    );
}

#[test]
fn uncommitted_work_is_merged_and_stays_uncommitted() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    day.repo.write("ten.txt", ten(&[(10, "user")]));
    day.world.ok(&["commit", "try", "--on-conflict", "merge", "-m", "merged"]);
    assert_eq!(day.repo.git(&["show", "HEAD:ten.txt"]) + "\n", ten(&[(1, "sandbox")]));
    assert_eq!(day.repo.read("ten.txt"), ten(&[(1, "sandbox"), (10, "user")]).as_bytes());
    assert_eq!((day.repo.status().as_str(), day.fsck().as_str()), (" M ten.txt", ""));
    let own = day.repo.git(&["diff", "-U0"]);
    assert!(own.contains("+user") && !own.contains("sandbox"), "{own}");
}

#[test]
fn uncommitted_work_on_the_same_lines_is_not_merged() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(5, "sandbox")]));
    day.repo.write("ten.txt", ten(&[(5, "user")]));
    conflict(&day, &["--on-conflict", "merge"], &["ten.txt"]);
}

#[test]
fn what_was_brought_along_uncommitted_stays_uncommitted() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.write("ten.txt", ten(&[(10, "user")]));
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox"), (10, "user")]));
    assert!(!day.world.ok(&["diff", "try", "--patch"]).contains("+user"));
    conflict(&day, &[], &["ten.txt"]);
    day.world.ok(&["commit", "try", "--on-conflict", "merge", "-m", "only the sandbox's"]);
    assert_eq!(day.repo.git(&["show", "HEAD:ten.txt"]) + "\n", ten(&[(1, "sandbox")]));
    assert_eq!(day.repo.status(), " M ten.txt");
    assert_eq!(day.repo.read("ten.txt"), ten(&[(1, "sandbox"), (10, "user")]).as_bytes());
}

#[test]
fn what_is_staged_is_in_the_way() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    // Without a touch of the file itself.
    day.repo.write(".git/staged", ten(&[(10, "user")]));
    let blob = day.repo.git(&["hash-object", "-w", ".git/staged"]);
    day.repo.git(&["update-index", "--cacheinfo", &format!("100644,{blob},ten.txt")]);
    let error = conflict(&day, &[], &["ten.txt"]);
    assert!(reason(&error).contains("staged"), "{error}");
    // What is staged elsewhere stays staged.
    day.repo.git(&["reset", "-q"]);
    day.repo.write("hello.txt", "staged\n");
    day.repo.git(&["add", "hello.txt"]);
    day.world.ok(&["commit", "try", "-m", "past the staged"]);
    assert_eq!(day.repo.status(), "M  hello.txt");
    assert_eq!(day.repo.git(&["show", "--format=", "--name-only"]), "ten.txt");
}

#[test]
fn files_that_both_made_or_removed_are_in_the_way() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("new", "sandbox\n");
    inside.write("hello.txt", "sandbox\n");
    day.repo.write("new", "user\n");
    std::fs::remove_file(day.repo.path().join("hello.txt")).unwrap();
    conflict(&day, &[], &["hello.txt", "new"]);
    conflict(&day, &["--on-conflict", "merge"], &["hello.txt", "new"]);
}

#[test]
fn a_branch_that_moved_elsewhere_in_the_file_is_merged_with() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    inside.write("new", "new\n");
    day.repo.write("ten.txt", ten(&[(10, "user")]));
    day.repo.write("users", "users\n");
    let tip = day.repo.commit_all("meanwhile");
    let told = day.world.run(&["commit", "try", "-m", "merged"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains("main has moved"), "{}", told.stderr);
    assert_eq!(day.repo.git(&["rev-parse", "HEAD^"]), tip);
    assert_eq!(day.repo.read("ten.txt"), ten(&[(1, "sandbox"), (10, "user")]).as_bytes());
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
    assert!(day.repo.path().join("users").exists());
}

#[test]
fn a_branch_that_moved_on_the_same_lines_is_a_conflict() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(5, "sandbox")]));
    day.repo.write("ten.txt", ten(&[(5, "user")]));
    day.repo.commit_all("meanwhile");
    conflict(&day, &[], &["ten.txt"]);
    let error = conflict(&day, &["--on-conflict", "merge"], &["ten.txt"]);
    let hunk = &error["paths"][0]["hunks"][0];
    assert_eq!((&hunk["ours"][0], &hunk["theirs"][0]), (&"user".into(), &"sandbox".into()), "{error}");
    day.world.ok(&["commit", "try", "--on-conflict", "theirs", "-m", "mine"]);
    assert_eq!(day.repo.read("ten.txt"), ten(&[(5, "sandbox")]).as_bytes());
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
}

#[test]
fn commits_are_kept_with_a_merge_where_the_branch_has_moved() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("one", "1\n");
    let own = inside.commit_all("one");
    day.repo.write("users", "users\n");
    let tip = day.repo.commit_all("meanwhile");
    day.world.ok(&["commit", "try", "--keep-commits", "-m", "both"]);
    assert_eq!(day.repo.git(&["log", "-1", "--format=%P %s"]), format!("{tip} {own} both"));
    assert_eq!(day.repo.git(&["ls-files", "one", "users"]), "one\nusers");
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
}

#[test]
fn another_branch_in_the_checkout_is_refused() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("hello.txt", "sandbox\n");
    day.repo.git(&["switch", "-qc", "other"]);
    let before = day.everything();
    let refused = day.world.json_error(&["commit", "try"], 5);
    let hints = refused["hints"].to_string();
    assert!(hints.contains("git switch main") && hints.contains("--to BRANCH"), "{refused}");
    assert_eq!(day.everything(), before);
    day.world.ok(&["commit", "try", "--to", "review", "-m", "review"]);
    assert_eq!((day.subjects("review").as_str(), day.repo.status().as_str()), ("review\nfirst", ""));
    day.repo.git(&["switch", "-q", "main"]);
    day.world.ok(&["commit", "try", "-m", "on main"]);
    assert_eq!((day.subjects("main").as_str(), day.subjects("other").as_str()), ("on main\nfirst", "first"));
}

#[test]
fn of_two_sandboxes_the_second_merges_or_is_a_conflict() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let [one, two, three] = ["one", "two", "try"].map(|name| day.create(name, &[]));
    one.write("ten.txt", ten(&[(1, "one")]));
    two.write("ten.txt", ten(&[(10, "two")]));
    three.write("ten.txt", ten(&[(1, "three")]));
    day.world.ok(&["commit", "one", "-m", "one"]);
    // Neither of the others sees it.
    assert_eq!(two.read("ten.txt"), ten(&[(10, "two")]).as_bytes());
    assert_eq!(day.diff("two").len(), 1);
    day.world.ok(&["commit", "two", "-m", "two"]);
    assert_eq!(day.repo.read("ten.txt"), ten(&[(1, "one"), (10, "two")]).as_bytes());
    assert_eq!(day.subjects("main"), "two\none\nfirst");
    conflict(&day, &[], &["ten.txt"]);
    assert_eq!(
        (day.repo.status(), day.fsck(), day.branches()),
        (String::new(), String::new(), "main".into())
    );
}

#[test]
fn an_index_that_somebody_holds_is_waited_for_and_named() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    inside.write("hello.txt", "sandbox\n");
    day.repo.write(".git/index.lock", "");
    let before = day.everything();
    let ran = day.world.run(&["commit", "try"]);
    assert!(ran.code == 1 && ran.stderr.contains("index.lock"), "{}: {}", ran.code, ran.stderr);
    assert_eq!(day.everything(), before);
    std::fs::remove_file(day.repo.path().join(".git/index.lock")).unwrap();
    day.world.ok(&["commit", "try", "-m", "then"]);
    assert_eq!((day.subjects("main").as_str(), day.repo.status().as_str()), ("then\nfirst", ""));
}

#[test]
fn hooks_filters_and_settings_of_the_inside_run_nowhere_else() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let inside = day.sandbox();
    let marker = day.world.path("ran");
    let program = format!("#!/bin/sh\necho ran >> '{}'\ncat\n", marker.display());
    day.world.file("evil.sh", &program);
    let evil = day.world.path("evil.sh");
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let evil = evil.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.smudge",
        "diff.external",
        "core.sshCommand",
        "core.editor",
        "gpg.program",
    ] {
        inside.command(&["config", key, evil]).status().unwrap();
    }
    inside.command(&["config", "commit.gpgSign", "true"]).status().unwrap();
    for hook in ["pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change"] {
        inside.write(format!(".git/hooks/{hook}"), &program);
        let path = inside.path().join(".git/hooks").join(hook);
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    inside.write(".git/info/attributes", "* filter=x\n");
    inside.write("hello.txt", "sandbox\n");
    day.world.ok(&["get", "try"]);
    assert_eq!(day.diff("try"), ["M hello.txt"]);
    day.world.ok(&["diff", "try", "--patch"]);
    day.world.ok(&["commit", "try", "--to", "review"]);
    day.world.ok(&["commit", "try", "-m", "plain"]);
    day.world.ok(&["undo", "try"]);
    day.world.ok(&["rollback", "try"]);
    day.world.ok(&["destroy", "try", "--discard"]);
    assert!(!marker.exists(), "{}", std::fs::read_to_string(&marker).unwrap_or_default());
    assert!(GitRepo::at(day.repo.path()).status().is_empty());
}

#[test]
fn files_that_were_changed_and_put_back_are_not_in_the_way() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.write("binary", [0, 1, 2]);
    day.repo.commit_all("binary");
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    inside.write("binary", [0, 9, 9]);
    std::fs::remove_file(inside.path().join("hello.txt")).unwrap();
    std::fs::rename(inside.path().join("src/main.rs"), inside.path().join("src/moved.rs")).unwrap();
    for name in ["ten.txt", "binary", "hello.txt", "src/main.rs"] {
        day.repo.write(name, "user\n");
    }
    day.repo.git(&["stash", "-q"]);
    day.world.ok(&["commit", "try", "-m", "past a stash"]);
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
    assert_eq!(checkout::files(inside.path()), checkout::files(day.repo.path()));
    assert_eq!(day.repo.git(&["stash", "list"]).lines().count(), 1);
}

#[test]
fn what_the_branch_did_elsewhere_does_not_touch_a_binary_file() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.write("binary", [0, 1, 2]);
    day.repo.commit_all("binary");
    let inside = day.sandbox();
    inside.write("binary", [0, 9, 9]);
    day.repo.git(&["switch", "-q", "-c", "aside"]);
    day.repo.write("binary", [0, 7]);
    day.repo.commit_all("aside");
    day.repo.git(&["switch", "-q", "main"]);
    day.repo.write("elsewhere", "");
    day.repo.commit_all("elsewhere");
    day.world.ok(&["commit", "try", "-m", "binary"]);
    assert_eq!((day.repo.read("binary"), day.repo.status()), (vec![0, 9, 9], String::new()));
    // Where the branch itself changed it, it is a conflict.
    inside.write("binary", [0, 8]);
    day.repo.write("binary", [0, 7]);
    day.repo.commit_all("changed too");
    conflict(&day, &[], &["binary"]);
}

#[test]
fn commit_is_refused_during_a_cherry_pick() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["switch", "-q", "-c", "side"]);
    day.repo.write("ten.txt", ten(&[(1, "side")]));
    day.repo.git(&["commit", "-qam", "side"]);
    day.repo.git(&["switch", "-q", "-"]);
    let inside = day.sandbox();
    inside.write("hello.txt", "fine\n");
    day.repo.git(&["cherry-pick", "--no-commit", "side"]);
    let picked = day.repo.git(&["rev-parse", "side"]);
    day.repo.git(&["update-ref", "CHERRY_PICK_HEAD", picked.trim()]);
    let before = day.everything();
    let error = day.world.json_error(&["commit", "try", "-m", "x"], 5);
    assert!(error["message"].to_string().contains("a cherry-pick is in progress"), "{error}");
    assert!(error["hints"].to_string().contains("git cherry-pick --abort"), "{error}");
    assert_eq!(day.everything(), before);
    day.repo.git(&["cherry-pick", "--quit"]);
    day.world.ok(&["commit", "try", "-m", "x"]);
}

#[test]
fn commit_keeps_files_assumed_unchanged() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["update-index", "--assume-unchanged", "ten.txt"]);
    let inside = day.sandbox();
    inside.write("ten.txt", ten(&[(1, "sandbox")]));
    day.world.ok(&["commit", "try", "-m", "x"]);
    assert!(day.repo.git(&["ls-files", "-v", "ten.txt"]).starts_with('h'));
    day.world.ok(&["undo", "try"]);
    assert!(day.repo.git(&["ls-files", "-v", "ten.txt"]).starts_with('h'));
    assert_eq!(day.repo.read("ten.txt"), ten(&[]).as_bytes());
}
