//! Repositories of every shape: which are worked with, which are refused, and what is said then.

use std::fs;

use sandboxer_testkit::git::GitRepo;

use crate::common::World;
use crate::common::checkout::{self, Checkout, files};

#[test]
fn a_detached_head_moves_by_itself() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["switch", "-q", "--detach"]);
    let inside = day.sandbox();
    assert!(day.world.json(&["get", "try"])["git"]["target"].is_null());
    inside.write("hello.txt", "detached\n");
    let told = day.world.ok(&["commit", "try", "-m", "detached"]);
    assert!(told.contains(" on the detached HEAD: 1 modified"), "{told}");
    assert_eq!((day.subjects("HEAD").as_str(), day.subjects("main").as_str()), ("detached\nfirst", "first"));
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
    day.world.ok(&["undo", "try"]);
    assert_eq!((day.subjects("HEAD").as_str(), day.repo.status().as_str()), ("first", ""));
}

#[test]
fn the_first_commit_of_all() {
    if !checkout::git_works_inside() {
        return;
    }
    let world = World::new();
    let repo = GitRepo::new(world.project());
    repo.write("mine", "untracked\n");
    let untracked = repo.status();
    let day = Checkout { world, repo };
    let inside = day.sandbox();
    assert_eq!(inside.status(), untracked);
    inside.write("first", "first\n");
    assert_eq!(day.diff("try"), ["A first"]);
    day.world.ok(&["commit", "try", "-m", "the very first"]);
    assert_eq!(day.repo.git(&["log", "--format=%P%s", "--name-only"]), "the very first\n\nfirst");
    assert_eq!((day.repo.status(), day.fsck()), (untracked, String::new()));
    inside.write("second", "second\n");
    day.world.ok(&["commit", "try", "-m", "second"]);
    assert_eq!(day.subjects("main"), "second\nthe very first");
}

#[test]
fn objects_named_by_sha256() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::of(GitRepo::new_sha256);
    let inside = day.sandbox();
    inside.write("hello.txt", "sha256\n");
    inside.write("kept", "kept\n");
    let own = inside.commit_all("inside");
    assert_eq!(own.len(), 64);
    let told = day.world.json(&["commit", "try", "--keep-commits"]);
    assert_eq!((&told["revision"]["commit"], day.repo.head()), (&own.clone().into(), own));
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
}

#[test]
fn a_repository_inside_the_repository_is_shown_and_refused() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let before = day.everything();
    let inside = day.sandbox();
    let nested = GitRepo::new(inside.path().join("vendor"));
    nested.write("lib.c", "int x;\n");
    nested.commit_all("nested");
    inside.write("hello.txt", "fine\n");
    assert!(day.diff("try").iter().any(|line| line.contains("vendor")), "{:?}", day.diff("try"));
    let refused = day.world.json_error(&["commit", "try"], 5);
    assert!(refused.to_string().contains("repository of its own"), "{refused}");
    assert_eq!(day.everything(), before);
    day.world.ok(&["commit", "try", "hello.txt", "-m", "the rest"]);
    assert_eq!(day.repo.git(&["show", "--format=", "--name-only"]), "hello.txt");
}

#[test]
fn a_repository_of_the_users_inside_his_own_stays_as_it_is() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let nested = GitRepo::new(day.repo.path().join("vendor"));
    nested.write("lib.c", "int x;\n");
    nested.commit_all("nested");
    let before = nested.hash_of_git_dir();
    let inside = day.sandbox();
    assert!(day.diff("try").is_empty());
    inside.write("hello.txt", "fine\n");
    day.world.ok(&["commit", "try", "-m", "fine"]);
    assert_eq!((nested.hash_of_git_dir(), day.repo.status()), (before, "?? vendor/".to_owned()));
}

#[test]
fn a_linked_worktree_is_a_checkout_like_any_other() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    let linked = day.world.path("linked");
    day.repo.git(&["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    let linked = GitRepo::at(linked);
    linked.write("run.sh", "mine\n");
    let main = (files(day.repo.path()), day.repo.status());
    day.world.ok(&["create", "--name", "try", linked.path().to_str().unwrap()]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!(inside.status(), " M run.sh");
    inside.write("hello.txt", "side\n");
    inside.write("new", "new\n");
    inside.git(&["add", "new"]);
    inside.git(&["commit", "-qm", "inside"]);
    let told = day.world.ok(&["commit", "try", "--keep-commits", "-m", "rest"]);
    assert!(told.contains(" on side, keeping 1 commit: "), "{told}");
    assert_eq!(
        (linked.status().as_str(), day.subjects("side").as_str()),
        (" M run.sh", "rest\ninside\nfirst")
    );
    assert_eq!((files(day.repo.path()), day.repo.status()), main);
    assert_eq!((day.subjects("main").as_str(), day.fsck().as_str()), ("first", ""));
    day.world.ok(&["destroy", "try"]);
    assert_eq!(day.repo.git(&["worktree", "list"]).lines().count(), 2);
}

#[test]
fn a_bare_repository_has_no_files_to_work_on() {
    let day = Checkout::new();
    let bare = day.world.path("bare.git");
    day.repo.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let refused = day.world.json_error(&["create", bare.to_str().unwrap()], 5);
    assert!(refused["message"].as_str().unwrap().contains("bare"), "{refused}");
    assert!(refused["hints"][0].as_str().unwrap().contains("git clone"), "{refused}");
}

/// A checkout with a submodule `sub`, as its own repository has it.
fn with_submodule() -> (Checkout, GitRepo) {
    let day = Checkout::new();
    let library = GitRepo::new(day.world.path("library"));
    library.write("lib.c", "int x;\n");
    library.commit_all("library");
    let from = library.path().to_str().unwrap().to_owned();
    day.repo.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &from, "sub"]);
    day.repo.commit_all("with a submodule");
    (day, library)
}

#[test]
fn submodules_with_files_in_them_are_refused() {
    let (day, _library) = with_submodule();
    let before = day.everything();
    let refused = day.world.json_error(&["create"], 5);
    assert!(refused["message"].as_str().unwrap().contains("(sub)"), "{refused}");
    assert!(refused["hints"][0].as_str().unwrap().contains("--strategy overlay"), "{refused}");
    assert_eq!(day.everything(), before);
    assert!(day.world.json(&["list"])["sandboxes"].as_array().unwrap().is_empty());
    day.world.ok(&["create", "-s", "overlay"]);
}

#[test]
fn submodules_that_are_not_initialised_are_kept() {
    if !checkout::git_works_inside() {
        return;
    }
    let (day, _library) = with_submodule();
    let clone = GitRepo::at(day.world.path("clone"));
    day.repo.git(&["clone", "-q", ".", clone.path().to_str().unwrap()]);
    for (key, value) in [("user.name", "Tess Tester"), ("user.email", "tess@example.org")] {
        clone.git(&["config", key, value]);
    }
    let link = clone.git(&["ls-tree", "HEAD", "sub"]);
    day.world.ok(&["create", "--name", "try", clone.path().to_str().unwrap()]);
    let inside = GitRepo::at(day.world.inside("try"));
    assert_eq!(inside.status(), "");
    inside.write("hello.txt", "changed\n");
    day.world.ok(&["commit", "try", "-m", "beside the submodule"]);
    assert_eq!((clone.git(&["ls-tree", "HEAD", "sub"]), clone.status()), (link, String::new()));
    assert_eq!(clone.git(&["show", "--format=", "--name-only"]), "hello.txt");
}

#[test]
fn what_is_not_checked_out_stays_away_and_stays_committed() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["sparse-checkout", "set", "--no-cone", "/*", "!/src/"]);
    assert!(!day.repo.path().join("src").exists());
    let inside = day.sandbox();
    assert_eq!((inside.status().as_str(), inside.path().join("src").exists()), ("", false));
    assert!(day.diff("try").is_empty());
    inside.write("hello.txt", "sparse\n");
    day.world.ok(&["commit", "try", "-m", "sparse"]);
    assert_eq!(day.repo.git(&["diff", "--name-only", "HEAD^", "HEAD"]), "hello.txt");
    assert_eq!((day.repo.status().as_str(), day.repo.path().join("src").exists()), ("", false));
    assert!(day.repo.git(&["ls-files", "-t", "src"]).starts_with("S "));
    assert_eq!(day.repo.git(&["ls-tree", "-r", "--name-only", "HEAD", "src"]), "src/main.rs");
}

#[test]
fn a_merge_under_way_is_refused() {
    let day = Checkout::new();
    day.repo.git(&["switch", "-qc", "other"]);
    day.repo.write("hello.txt", "theirs\n");
    day.repo.commit_all("theirs");
    day.repo.git(&["switch", "-q", "main"]);
    day.repo.write("hello.txt", "ours\n");
    day.repo.commit_all("ours");
    assert!(!day.repo.command(&["merge", "-q", "other"]).output().unwrap().status.success());
    let refused = day.world.json_error(&["create"], 5);
    assert!(refused["message"].as_str().unwrap().contains("merge is under way"), "{refused}");
    assert!(refused["hints"][0].as_str().unwrap().contains("git merge --abort"), "{refused}");
}

#[test]
fn line_ends_are_stored_as_git_stores_them() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.write(".gitattributes", "*.txt text eol=crlf\n");
    day.repo.write("crlf.txt", "one\r\ntwo\r\n");
    day.repo.commit_all("attributes");
    let inside = day.sandbox();
    inside.write("crlf.txt", "one\r\nTWO\r\n");
    day.world.ok(&["commit", "try", "-m", "crlf"]);
    let blob = day.repo.command(&["show", "HEAD:crlf.txt"]).output().unwrap().stdout;
    assert_eq!(blob, b"one\nTWO\n");
    assert_eq!((day.repo.status(), day.repo.read("crlf.txt")), (String::new(), b"one\r\nTWO\r\n".to_vec()));
}

#[test]
fn what_goes_through_a_filter_is_refused_but_for_pointers() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.write(".gitattributes", "*.bin filter=lfs -text\n");
    day.repo.commit_all("attributes");
    let inside = day.sandbox();
    inside.write("big.bin", "not a pointer\n");
    let before = day.everything();
    let refused = day.world.json_error(&["commit", "try"], 5);
    assert!(refused.to_string().contains("filter"), "{refused}");
    assert_eq!(day.everything(), before);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n", "a".repeat(64));
    inside.write("big.bin", &pointer);
    day.world.ok(&["commit", "try", "-m", "pointer"]);
    assert_eq!(day.repo.git(&["show", "HEAD:big.bin"]) + "\n", pointer);
}

#[test]
fn a_sandbox_can_be_of_a_part_of_the_checkout() {
    let day = Checkout::new();
    let src = day.repo.path().join("src");
    day.world.ok(&["create", "--name", "part", src.to_str().unwrap()]);
    // A directory within a checkout is a directory.
    assert_eq!(day.world.json(&["get", "part"])["resource"]["type"], "fs-directory");
    fs::write(day.world.inside("part").join("main.rs"), "changed\n").unwrap();
    day.world.ok(&["commit", "part"]);
    assert_eq!((day.repo.status().as_str(), day.subjects("main").as_str()), (" M src/main.rs", "first"));
}

#[test]
fn a_clean_sandbox_has_what_is_committed_and_what_is_ignored() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let before = day.everything();
    let inside = day.create("try", &["--clean"]);
    assert_eq!((inside.status().as_str(), inside.head()), ("", day.repo.head()));
    assert_eq!(inside.read("run.sh"), b"#!/bin/sh\necho hi\n");
    assert!(!inside.path().join("notes.txt").exists() && inside.path().join("build/out.o").exists());
    assert!(day.diff("try").is_empty());
    inside.write("new", "new\n");
    inside.commit_all("inside");
    assert_eq!(day.diff("try"), ["A new"]);
    assert_eq!(day.everything(), before);
    day.world.ok(&["commit", "try", "--keep-commits"]);
    assert_eq!(
        (day.subjects("main").as_str(), day.repo.status().as_str()),
        ("inside\nfirst", " M run.sh\n?? notes.txt")
    );
    // What was left behind is still the user's, and in the way of who changes it.
    inside.write("run.sh", "#!/bin/sh\necho sandbox\n");
    let refused = day.world.json_error(&["commit", "try"], 3);
    assert_eq!(refused["paths"][0]["path"], "run.sh", "{refused}");
    assert_eq!(day.fsck(), "");
}

#[test]
fn ignored_files_can_be_left_behind() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::dirty();
    let inside = day.create("try", &["--no-ignored"]);
    assert_eq!(inside.status(), " M run.sh\n?? notes.txt");
    assert!(!inside.path().join("build").exists());
    assert!(day.diff("try").is_empty());
    inside.write("build/out.o", "another\n");
    assert!(day.diff("try").is_empty());
    inside.write("hello.txt", "changed\n");
    day.world.ok(&["commit", "try", "-m", "changed"]);
    assert_eq!(
        (day.repo.read("build/out.o"), day.repo.status()),
        (b"object\n".to_vec(), " M run.sh\n?? notes.txt".into())
    );
    day.world.ok(&["rollback", "try"]);
    assert!(
        !day.world.inside("try").join("build/out.o").exists(),
        "a rollback brings nothing back that was left behind"
    );
}

#[test]
fn another_commit_to_begin_from_leads_to_a_branch() {
    if !checkout::git_works_inside() {
        return;
    }
    let day = Checkout::new();
    day.repo.git(&["tag", "v1"]);
    day.repo.write("hello.txt", "second\n");
    day.repo.write("later", "later\n");
    day.repo.commit_all("second");
    let inside = day.create("try", &["--from", "v1", "--clean"]);
    assert_eq!((inside.git(&["log", "--format=%s"]).as_str(), inside.status().as_str()), ("first", ""));
    assert_eq!(inside.read("hello.txt"), b"hello\nworld\n");
    assert!(!inside.path().join("later").exists() && day.diff("try").is_empty());
    inside.write("fix", "fix\n");
    assert_eq!(day.diff("try"), ["A fix"]);
    let before = day.everything();
    let refused = day.world.json_error(&["commit", "try"], 5);
    assert!(refused["hints"][0].as_str().unwrap().contains("--to BRANCH"), "{refused}");
    assert_eq!(day.everything(), before);
    day.world.ok(&["commit", "try", "--to", "backport", "-m", "fix"]);
    assert_eq!(
        (day.subjects("backport").as_str(), day.subjects("main").as_str()),
        ("fix\nfirst", "second\nfirst")
    );
    assert_eq!(day.repo.git(&["diff", "--name-only", "v1", "backport"]), "fix");
    assert_eq!((day.repo.status(), day.fsck()), (String::new(), String::new()));
    let unknown = day.world.run(&["create", "--from", "no-such-ref"]);
    assert!(
        [2, 4, 5].contains(&unknown.code) && unknown.stderr.contains("no-such-ref"),
        "{}: {}",
        unknown.code,
        unknown.stderr
    );
}
