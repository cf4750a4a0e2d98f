//! Where commits go and what goes along: branches of one's own, kept commits, the user's index, and the way back.

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
