//! What is in the way of a commit, in every shape that the user's work can have, and what is not.

use super::*;

#[test]
fn what_only_git_knows_is_in_the_way_too() {
    // Staged, and deleted since.
    let scene = Scene::new();
    scene.repo.write("d/x", b"precious\n");
    scene.repo.git(&["add", "d/x"]);
    std::fs::remove_dir_all(scene.repo.path().join("d")).unwrap();
    let scene = scene.open();
    scene.inside().write("d", b"agent\n");
    let before = scene.repo.hash_of_git_dir();
    for on_conflict in [OnConflict::Fail, OnConflict::Merge, OnConflict::Theirs] {
        let request = CommitRequest { on_conflict, ..CommitRequest::default() };
        let found = conflicts(scene.commit_as("op_1", &request));
        assert!(found[0].starts_with("d: ") && found[0].contains("d/x"), "{found:?}");
    }
    assert_eq!(scene.repo.hash_of_git_dir(), before);

    // Outside of a sparse checkout.
    let scene = Scene::new();
    scene.repo.git(&["sparse-checkout", "set", "nowhere"]);
    let scene = scene.open();
    scene.inside().write("dir", b"agent\n");
    assert!(conflicts(scene.commit())[0].contains("dir/b"));

    // A submodule that nobody has fetched.
    let scene = Scene::new();
    let head = scene.repo.head();
    scene.repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},sub")]);
    scene.repo.git(&["commit", "-qm", "sub"]);
    std::fs::create_dir(scene.repo.path().join("sub")).unwrap();
    let scene = scene.open();
    scene.inside().write("sub/x", b"agent\n");
    assert!(conflicts(scene.commit())[0].contains("sub"));
    let to = CommitRequest { branch: Some("review".into()), ..CommitRequest::default() };
    assert!(conflicts(scene.commit_as("op_2", &to))[0].contains("sub"));
}

#[test]
fn files_and_directories_change_places() {
    let scene = Scene::new().open();
    let inside = scene.inside().path().to_path_buf();
    std::fs::remove_file(inside.join("a")).unwrap();
    std::fs::remove_dir_all(inside.join("dir")).unwrap();
    scene.inside().write("a/below", b"1\n");
    scene.inside().write("dir", b"2\n");
    scene.commit().unwrap();
    assert_eq!(scene.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]), ".gitignore\na/below\ndir");
    assert_eq!(scene.repo.status(), "");
    scene.undo("op_2", "op_1").unwrap();
    assert_eq!(scene.repo.status(), "");
    scene.assert_tidy();
}

#[test]
fn ours_leaves_what_the_user_works_on() {
    let scene = Scene::new();
    let text = String::from_utf8(scene.repo.read("a")).unwrap();
    scene.repo.write("a", text.replace("3\n4\n", "3\nfour\n").as_bytes());
    scene.repo.write("untracked", b"mine\n");
    let scene = scene.open();
    let seen = String::from_utf8(scene.inside().read("a")).unwrap();
    scene.inside().write("a", seen.replace("35\n", "thirty-five\n").as_bytes());
    scene.inside().write("untracked", b"agent\n");
    scene.inside().write("dir/b", b"agent\n");
    let ours = CommitRequest { on_conflict: OnConflict::Ours, ..CommitRequest::default() };
    let done = scene.commit_as("op_1", &ours).unwrap();
    assert_eq!(done.notices.len(), 2, "{:?}", done.notices);
    assert_eq!(scene.repo.git(&["diff", "--name-only", "HEAD~1", "HEAD"]), "dir/b");
    assert_eq!(scene.repo.read("untracked"), b"mine\n");
    assert_eq!(scene.diff(), ["Modified a", "Modified untracked"]);
}

#[test]
fn a_branch_does_not_take_uncommitted_work_along() {
    let scene = Scene::new();
    let text = String::from_utf8(scene.repo.read("a")).unwrap();
    scene.repo.write("a", text.replace("3\n4\n", "3\nfour\n").as_bytes());
    let scene = scene.open();
    let seen = String::from_utf8(scene.inside().read("a")).unwrap();
    scene.inside().write("a", seen.replace("35\n", "thirty-five\n").as_bytes());
    let to = |branch: &str| CommitRequest { branch: Some(branch.into()), ..CommitRequest::default() };
    scene.commit_as("op_1", &to("review")).unwrap();
    let left = scene.repo.git(&["show", "review:a"]);
    assert!(left.contains("thirty-five") && !left.contains("four"), "{left}");
    // On the same lines they cannot be told apart.
    scene.inside().write("a", seen.replace("four", "vier").as_bytes());
    assert_eq!(conflicts(scene.commit_as("op_2", &to("other"))).len(), 1);
}

#[test]
fn what_is_only_staged_is_never_merged_over() {
    let scene = Scene::new();
    let text = String::from_utf8(scene.repo.read("a")).unwrap();
    scene.repo.write("a", text.replace("3\n4\n", "3\nstaged\n").as_bytes());
    scene.repo.git(&["add", "a"]);
    scene.repo.write("a", text.replace("3\n4\n", "3\nfile\n").as_bytes());
    let scene = scene.open();
    let seen = String::from_utf8(scene.inside().read("a")).unwrap();
    scene.inside().write("a", seen.replace("35\n", "thirty-five\n").as_bytes());
    let merge = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    assert!(conflicts(scene.commit_as("op_1", &merge))[0].contains("staged"));
    assert_eq!(scene.repo.git(&["show", ":a"]).matches("staged").count(), 1);
}

#[test]
fn modes_count_only_where_they_are_said_to() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    scene.repo.git(&["config", "core.fileMode", "false"]);
    let program = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scene.repo.path().join("dir/b"), program.clone()).unwrap();
    let scene = scene.open();
    scene.inside().write("dir/b", b"agent\n");
    scene.inside().write("new", b"new\n");
    std::fs::set_permissions(scene.inside().path().join("new"), program).unwrap();
    scene.commit().unwrap();
    let listed = scene.repo.git(&["ls-tree", "-r", "HEAD", "dir/b", "new"]);
    assert_eq!(listed.matches("100644 blob").count(), 2, "{listed}");
    assert_eq!(scene.repo.status(), "");
}

#[test]
fn what_was_put_back_is_not_in_the_way() {
    let scene = Scene::new().open();
    scene.inside().write("a", b"agent\n");
    std::fs::remove_file(scene.inside().path().join("dir/b")).unwrap();
    for path in ["a", "dir/b"] {
        let content = scene.repo.read(path);
        scene.repo.write(path, b"changed\n");
        scene.repo.write(path, &content);
    }
    scene.commit().unwrap();
    assert_eq!(scene.repo.status(), "");
}
