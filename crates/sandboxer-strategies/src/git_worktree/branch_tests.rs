//! Where commits go and what goes along: branches of one's own, kept commits, the user's index, and the way back.

use sandboxer_core::model::Phase;

use super::*;

fn keeping() -> CommitRequest {
    CommitRequest { history: History::Keep, ..CommitRequest::default() }
}

/// A sandbox of a repository without a commit.
fn unborn() -> Scene {
    let mut scene = Scene::new();
    std::fs::remove_dir_all(scene.repo.path()).unwrap();
    scene.repo = GitRepo::new(scene.temp.path().join("repo"));
    scene.open()
}

fn remove_inside(scene: &Scene, path: &str) {
    std::fs::remove_file(scene.inside().path().join(path)).unwrap();
}

#[test]
fn commits_of_an_unborn_branch_bring_nothing_along_that_is_not_shown() {
    let scene = unborn();
    scene.inside().write("seen", b"1\n");
    scene.inside().write("unseen", b"1\n");
    scene.inside().commit_all("both");
    remove_inside(&scene, "unseen");
    assert_eq!(scene.diff(), ["Created seen"]);
    let told = refusal(scene.commit_as("op_1", &keeping()));
    assert!(told.contains("unseen"), "{told}");
    scene.assert_tidy();
    scene.inside().git(&["commit", "-q", "--amend", "-am", "one"]);
    scene.inside().write("seen", b"2\n");
    scene.inside().write("more", b"m\n");
    scene.commit_as("op_2", &keeping()).unwrap();
    assert_eq!(scene.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "more\nseen");
    assert_eq!(scene.repo.git(&["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(scene.repo.git(&["show", "HEAD:seen"]), "2");
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

fn phase(phase: Phase) -> CommitRequest {
    CommitRequest { phase, ..CommitRequest::default() }
}

#[test]
fn an_index_whose_lock_was_taken_away_is_made_again() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"new\n");
    scene.inside().write("dir/b", b"changed\n");
    scene.commit_as("op_1", &phase(Phase::Prepare)).unwrap();
    std::fs::remove_file(scene.repo.path().join(".git/index.lock")).unwrap();
    // Somebody believed git's advice, and went on working.
    let blob = scene.repo.git(&["rev-parse", "HEAD:a"]);
    scene.repo.git(&["update-index", "--cacheinfo", &format!("100644,{blob},dir/b")]);
    scene.repo.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},theirs")]);
    let done = scene.commit_as("op_1", &phase(Phase::Finish)).unwrap();
    let told: Vec<String> = done.conflicts.iter().map(|c| format!("{}: {}", c.path, c.reason)).collect();
    assert!(told.len() == 1 && told[0].starts_with("dir/b: ") && told[0].contains("git reset"), "{told:?}");
    assert_eq!(scene.repo.head(), done.revision.unwrap().commit);
    assert_eq!(scene.repo.git(&["diff", "--cached", "--name-only"]), "dir/b\ntheirs");
    assert_eq!(scene.repo.git(&["diff", "--name-only", "HEAD", "--", "new", "dir/b"]), "");
    scene.assert_tidy();
}

#[test]
fn a_lock_of_somebody_elses_does_not_keep_a_commit_from_ending() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"new\n");
    scene.commit_as("op_1", &phase(Phase::Prepare)).unwrap();
    let lock = scene.repo.path().join(".git/index.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, b"theirs").unwrap();
    let done = scene.commit_as("op_1", &phase(Phase::Finish)).unwrap();
    assert_eq!(done.conflicts.len(), 1, "{:?}", done.conflicts);
    assert_eq!(std::fs::read(&lock).unwrap(), b"theirs");
    std::fs::remove_file(&lock).unwrap();
    scene.assert_tidy();
    scene.repo.git(&["reset", "-q"]);
    assert_eq!(scene.repo.status(), "");
}

fn to(branch: &str) -> CommitRequest {
    CommitRequest { branch: Some(branch.into()), ..CommitRequest::default() }
}

/// Commits to a branch as its reviewer would, without a checkout of it.
fn commit_on(scene: &Scene, branch: &str) -> String {
    let tree = scene.repo.git(&["rev-parse", "main^{tree}"]);
    let commit = scene.repo.git(&["commit-tree", &tree, "-p", branch, "-m", "theirs"]);
    scene.repo.git(&["update-ref", &format!("refs/heads/{branch}"), &commit]);
    commit
}

#[test]
fn a_branch_with_somebody_elses_commits_stays_as_it_is() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.commit_as("op_1", &to("review")).unwrap();
    scene.inside().write("new", b"2\n");
    scene.commit_as("op_2", &to("review")).unwrap();
    assert_eq!(scene.repo.git(&["rev-list", "--count", "main..review"]), "2");
    let theirs = commit_on(&scene, "review");
    scene.inside().write("new", b"3\n");
    let told = refusal(scene.commit_as("op_3", &to("review")));
    assert!(told.contains("review") && told.contains("name another branch"), "{told}");
    assert_eq!(scene.repo.git(&["rev-parse", "review"]), theirs);
    scene.commit_as("op_4", &to("again")).unwrap();
    // One that is just where the sandbox began is as good as none.
    scene.repo.git(&["branch", "fresh", "main"]);
    scene.commit_as("op_5", &to("fresh")).unwrap();
    assert_eq!(scene.repo.git(&["show", "fresh:new"]), "3");
    scene.assert_tidy();
}

#[test]
fn kept_commits_leave_no_commit_of_a_branch_behind() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.inside().commit_all("one");
    scene.commit_as("op_1", &to("review")).unwrap();
    let before = scene.repo.git(&["rev-parse", "review"]);
    let keep = CommitRequest { branch: Some("review".into()), ..keeping() };
    let told = refusal(scene.commit_as("op_2", &keep));
    assert!(told.contains("do not follow"), "{told}");
    assert_eq!(scene.repo.git(&["rev-parse", "review"]), before);
    let kept = CommitRequest { branch: Some("kept".into()), ..keeping() };
    scene.commit_as("op_3", &kept).unwrap();
    scene.inside().write("new", b"2\n");
    scene.inside().commit_all("two");
    scene.commit_as("op_4", &kept).unwrap();
    assert_eq!(scene.repo.git(&["log", "--format=%s", "main..kept"]), "two\none");
    scene.assert_tidy();
}

#[test]
fn every_kept_commit_is_looked_at() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.inside().write(".envrc", b"evil\n");
    scene.inside().commit_all("one");
    remove_inside(&scene, ".envrc");
    scene.inside().commit_all("two");
    assert_eq!(scene.diff(), ["Created new"]);
    let told = refusal(scene.commit_as("op_1", &keeping()));
    assert!(told.contains("change .envrc, which") && told.contains("without `--keep-commits`"), "{told}");
    scene.commit_as("op_2", &CommitRequest::default()).unwrap();
    // Not even an object of theirs came along.
    let evil = scene.inside().git(&["rev-parse", "HEAD~1:.envrc"]);
    assert!(!scene.repo.command(&["cat-file", "-e", &evil]).output().unwrap().status.success());
    scene.assert_tidy();
}

#[test]
fn who_kept_commits_are_by_is_told() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.inside().commit_all("mine");
    let told = |request| {
        let request = CommitRequest { phase: Phase::Prepare, ..request };
        let done = scene.commit_as("op_1", &request).unwrap();
        scene.commit_as("op_1", &phase(Phase::Abort)).unwrap();
        done.notices.into_iter().map(|notice| notice.message).collect::<Vec<_>>()
    };
    assert_eq!(told(keeping()), ["1 commit made in the sandbox kept as they are"]);
    scene.inside().write("new", b"2\n");
    scene.inside().git(&["commit", "-qam", "not mine", "--author=\u{1b}Linus <l@example.org>"]);
    assert_eq!(told(keeping()), ["2 commits made in the sandbox kept as they are, by Linus <l@example.org>"]);
    assert_eq!(told(CommitRequest::default()), [""; 0]);
    scene.assert_tidy();
}

#[test]
fn commits_of_two_sandboxes_at_a_time_follow_each_other() {
    let scene = Scene::new().open();
    let other = scene.create(&[("sandbox_name", json!("other"))]).unwrap();
    scene.inside().write("one", b"1\n");
    GitRepo::at(other.sandbox_path().unwrap()).write("two", b"2\n");
    scene.commit_as("op_1", &phase(Phase::Prepare)).unwrap();
    let second = other.clone().for_operation(&OpId::from_string("op_2"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| scene.strategy.commit(&second, &CommitRequest::default()));
        // Time enough to come as far as the lock.
        std::thread::sleep(std::time::Duration::from_millis(500));
        scene.commit_as("op_1", &phase(Phase::Finish)).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(scene.repo.git(&["rev-list", "--count", "HEAD"]), "3");
    assert_eq!(scene.repo.git(&["ls-tree", "--name-only", "HEAD", "one", "two"]), "one\ntwo");
    assert_eq!(scene.repo.status(), "");
    scene.strategy.cleanup(&other).unwrap();
    scene.assert_tidy();
}

#[test]
fn an_undo_leaves_the_sandbox_its_own_commits() {
    [Scene::new(), Scene::copied()].into_iter().for_each(undo_kept);
}

fn undo_kept(scene: Scene) {
    let scene = scene.open();
    let inside = scene.inside();
    inside.write("new", b"1\n");
    inside.commit_all("mine");
    let own = inside.head();
    scene.commit_as("op_1", &keeping()).unwrap();
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!((scene.inside().head(), scene.inside().status()), (own.clone(), String::new()));
    assert_eq!(scene.diff(), ["Created new"]);
    // With a commit of ours on top, it is theirs that stays.
    inside.write("more", b"2\n");
    scene.commit_as("op_3", &keeping()).unwrap();
    assert_ne!(scene.inside().head(), own);
    scene.undo("op_4", "op_3").unwrap();
    assert_eq!((scene.inside().head(), scene.inside().status()), (own.clone(), "?? more".to_owned()));
    scene.undo("op_5", "op_4").unwrap();
    assert_eq!(scene.diff(), [""; 0]);
    assert_eq!(scene.repo.git(&["log", "--format=%s", "-1", "HEAD~1"]), "mine");
    scene.inside().write("most", b"3\n");
    scene.commit_as("op_6", &keeping()).unwrap();
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn a_checkpoint_from_before_a_commit_has_no_commits_to_keep() {
    let scene = Scene::new().open();
    let id = CheckpointId::from_string("one");
    scene.inside().write("new", b"1\n");
    scene.strategy.checkpoint(scene.sandbox(), &id).unwrap();
    scene.commit().unwrap();
    scene.strategy.restore_checkpoint(scene.sandbox(), &id).unwrap();
    scene.inside().write("more", b"2\n");
    let done = scene.commit_as("op_2", &keeping()).unwrap();
    assert_eq!(done.revision.unwrap().kept, 0);
    assert_eq!(scene.repo.git(&["diff", "--name-only", "HEAD~1", "HEAD"]), "more");
    assert_eq!(scene.repo.status(), "");
}

#[test]
fn entries_come_back_with_their_flags() {
    let scene = Scene::new();
    scene.repo.write("c", b"c\n");
    scene.repo.commit_all("c");
    scene.repo.git(&["update-index", "--skip-worktree", "dir/b"]);
    scene.repo.git(&["update-index", "--assume-unchanged", "c"]);
    let flags = |scene: &Scene| scene.repo.git(&["ls-files", "-v", "a", "c", "dir/b"]);
    let before = flags(&scene);
    assert_eq!(before, "H a\nh c\nS dir/b");
    let scene = scene.open();
    scene.inside().write("a", b"changed\n");
    scene.inside().write("c", b"changed\n");
    scene.inside().write("dir/b", b"changed\n");
    scene.commit().unwrap();
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!(flags(&scene), before);
    scene.undo("op_3", "op_2").unwrap();
    assert_eq!(scene.repo.git(&["show", "HEAD:c"]), "changed");
    scene.undo("op_4", "op_3").unwrap();
    assert_eq!(flags(&scene), before);
    assert_eq!(scene.repo.git(&["diff", "--cached", "--name-only"]), "");
    scene.assert_tidy();
}

#[test]
fn names_of_branches_are_taken_as_they_are_meant() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.repo.git(&["branch", "a"]);
    scene.repo.git(&["branch", "x/y/z"]);
    for (name, other) in [("a/b", "a"), ("a/b/c", "a"), ("x/y", "x/y/z"), ("x", "x/y/z")] {
        let told = refusal(scene.commit_as("op_1", &to(name)));
        assert!(told.contains(&format!("no branch {name} beside the branch {other} ")), "{told}");
    }
    let revision = scene.commit_as("op_2", &to("refs/heads/x/yy")).unwrap().revision.unwrap();
    assert_eq!(revision.branch.as_deref(), Some("x/yy"));
    assert_eq!(scene.repo.git(&["rev-parse", "refs/heads/x/yy"]), revision.commit);
    scene.assert_tidy();
}

#[test]
fn a_target_that_is_gone_can_be_made_again() {
    let scene = Scene::new().open();
    scene.inside().write("new", b"1\n");
    scene.repo.git(&["switch", "-qc", "other"]);
    scene.repo.git(&["branch", "-qD", "main"]);
    let told = refusal(scene.commit());
    assert!(told.contains("`--to main`") && !told.contains("git switch"), "{told}");
    scene.commit_as("op_2", &to("main")).unwrap();
    assert_eq!(scene.repo.git(&["diff", "--name-only", "other", "main"]), "new");
}
