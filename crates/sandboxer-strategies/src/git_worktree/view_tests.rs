//! What a difference of a checkout shows: what was done in the sandbox, whatever became of the checkout meanwhile.

use sandboxer_core::model::{CommitRequest, DiffEntry, RelPath};

use super::knowledge::recalled;
use super::tests::Scene;
use super::*;

fn entry(scene: &Scene, path: &str) -> Option<DiffEntry> {
    let view = scene.strategy.diff(scene.sandbox()).unwrap();
    view.entries.into_iter().find(|entry| entry.path == RelPath::parse(path).unwrap())
}

/// The base's side of an entry, as it is found for a patch.
fn old_side(scene: &Scene, entry: &DiffEntry) -> Option<Vec<u8>> {
    let digest = entry.old.as_ref()?.digest.as_ref()?;
    let home = home_of(scene.sandbox()).unwrap();
    std::fs::read(recalled(&home).join(digest.rsplit(':').next()?)).ok()
}

fn lines(change: impl Fn(usize) -> Option<&'static str>) -> Vec<u8> {
    let line = |n| change(n).map_or_else(|| format!("{n}\n"), |text| format!("{text}\n"));
    (1..=40).map(line).collect::<String>().into_bytes()
}

#[test]
fn a_difference_does_not_take_back_what_the_user_has_committed() {
    [Scene::new(), Scene::copied()].into_iter().for_each(|scene| {
        let scene = scene.open();
        scene.inside().write("a", lines(|n| (n == 40).then_some("AGENT")));
        scene.repo.write("a", lines(|n| (n == 1).then_some("USER")));
        scene.repo.commit_all("user");
        let shown = entry(&scene, "a").unwrap();
        assert!(!shown.moved);
        assert_eq!(old_side(&scene, &shown), Some(lines(|_| None)));
        scene.commit().unwrap();
        let both = lines(|n| match n {
            1 => Some("USER"),
            40 => Some("AGENT"),
            _ => None,
        });
        assert_eq!(scene.repo.read("a"), both);
    });
}

#[test]
fn a_difference_says_where_a_commit_would_conflict() {
    let scene = Scene::new().open();
    scene.inside().write("a", lines(|n| (n == 1).then_some("AGENT")));
    scene.repo.write("a", lines(|n| (n == 1).then_some("USER")));
    // Not committed, then committed: in the way, then the same line.
    assert!(entry(&scene, "a").unwrap().moved);
    scene.repo.commit_all("user");
    let shown = entry(&scene, "a").unwrap();
    assert!(shown.moved);
    assert_eq!(old_side(&scene, &shown), Some(lines(|_| None)));
}

#[test]
fn a_directory_that_holds_ignored_files_loses_what_is_tracked() {
    [Scene::new(), Scene::copied()].into_iter().for_each(|scene| {
        scene.repo.write("dir/sub/x", b"x\n");
        scene.repo.commit_all("two");
        scene.repo.write("dir/p.o", b"ignored\n");
        scene.repo.write("dir/sub/q.o", b"ignored\n");
        let scene = scene.open();
        let tree = scene.inside();
        std::fs::create_dir(tree.path().join("new")).unwrap();
        std::fs::rename(tree.path().join("dir/b"), tree.path().join("new/b")).unwrap();
        std::fs::remove_dir_all(tree.path().join("dir")).unwrap();
        assert_eq!(scene.diff(), ["Deleted dir/sub/x", "Created new", "Renamed new/b"]);
        let done = scene.commit().unwrap();
        let told: Vec<String> =
            done.notices.iter().map(|notice| format!("{}: {}", notice.path, notice.message)).collect();
        let kept = |dir: &str| format!("{dir}: kept: it holds files that are ignored");
        assert_eq!(told, [kept("dir"), kept("dir/sub")]);
        assert_eq!(scene.repo.git(&["ls-files"]).trim(), ".gitignore\na\nnew/b");
        assert_eq!(scene.repo.read("dir/sub/q.o"), b"ignored\n");
        assert_eq!(scene.repo.status(), "");
        assert!(scene.diff().is_empty());
        scene.undo("op_2", "op_1").unwrap();
        assert_eq!(scene.repo.read("dir/sub/x"), b"x\n");
        assert_eq!(scene.diff(), ["Deleted dir/sub/x", "Created new", "Renamed new/b"]);
    });
}

#[test]
fn a_file_does_not_take_the_place_of_ignored_files() {
    let scene = Scene::new();
    scene.repo.write("dir/p.o", b"ignored\n");
    let scene = scene.open();
    std::fs::remove_dir_all(scene.inside().path().join("dir")).unwrap();
    scene.inside().write("dir", b"a file\n");
    let told = super::tests::conflicts(scene.commit());
    assert!(told.iter().any(|text| text.contains("p.o")), "{told:?}");
    assert_eq!(scene.repo.read("dir/p.o"), b"ignored\n");
}

#[test]
fn what_is_staged_is_shown_though_it_is_ignored() {
    [Scene::new(), Scene::copied()].into_iter().for_each(|scene| {
        scene.repo.git(&["add", "-f", "out/cache"]);
        let scene = scene.open();
        scene.inside().write("out/cache", b"changed\n");
        scene.inside().write("out/other", b"ignored\n");
        assert_eq!(scene.diff(), ["Modified out/cache"]);
    });
}

#[test]
fn attributes_count_once_they_are_committed() {
    [Scene::new(), Scene::copied()].into_iter().for_each(|scene| {
        scene.repo.write("dir/.gitattributes", b"*.txt text\n");
        scene.repo.commit_all("two");
        let scene = scene.open();
        let inside = scene.inside();
        inside.write(".gitattributes", b"f working-tree-encoding=UTF-16LE\n");
        inside.write("f", b"h\0i\0");
        // Taken away in the sandbox, but not in the commit.
        std::fs::remove_file(inside.path().join("dir/.gitattributes")).unwrap();
        inside.write("dir/x.txt", b"x\r\n");
        let some = |paths: &[&str]| CommitRequest {
            paths: paths.iter().map(|path| RelPath::parse(path).unwrap()).collect(),
            ..CommitRequest::default()
        };
        scene.commit_as("op_1", &some(&["f", "dir/x.txt"])).unwrap();
        assert_eq!(blob(&scene, "f"), b"h\0i\0");
        assert_eq!(blob(&scene, "dir/x.txt"), b"x\n");
        inside.write("f", b"h\0o\0");
        inside.write("dir/x.txt", b"y\r\n");
        scene.commit_as("op_2", &CommitRequest::default()).unwrap();
        assert_eq!(blob(&scene, "f"), b"ho");
        assert_eq!(blob(&scene, "dir/x.txt"), b"y\r\n");
    });
}

fn blob(scene: &Scene, path: &str) -> Vec<u8> {
    scene.repo.command(&["cat-file", "blob", &format!("HEAD:{path}")]).output().unwrap().stdout
}

#[test]
fn files_with_other_line_ends_than_their_blobs_are_not_in_the_way() {
    let scene = Scene::new();
    scene.repo.write(".gitattributes", b"*.txt text\n");
    ["x.txt", "y.txt", "z.txt"].iter().for_each(|name| scene.repo.write(name, b"1\r\n2\r\n"));
    scene.repo.commit_all("two");
    let scene = scene.open();
    ["x.txt", "y.txt", "z.txt"].iter().for_each(|name| scene.inside().write(name, b"1\r\n2\r\n3\r\n"));
    scene.repo.write("y.txt", b"0\r\n1\r\n2\r\n");
    let told = super::tests::conflicts(scene.commit());
    assert!(told.len() == 1 && told[0].starts_with("y.txt: "), "{told:?}");
    scene.repo.write("y.txt", b"1\r\n2\r\n");
    scene.commit().unwrap();
    ["x.txt", "y.txt", "z.txt"].iter().for_each(|name| assert_eq!(blob(&scene, name), b"1\n2\n3\n"));
}
