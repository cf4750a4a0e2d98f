//! What a difference of a checkout shows: what was done in the sandbox, whatever became of the checkout meanwhile.

use sandboxer_core::model::{DiffEntry, RelPath};

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
        scene.inside().write("a", &lines(|n| (n == 40).then_some("AGENT")));
        scene.repo.write("a", &lines(|n| (n == 1).then_some("USER")));
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
    scene.inside().write("a", &lines(|n| (n == 1).then_some("AGENT")));
    scene.repo.write("a", &lines(|n| (n == 1).then_some("USER")));
    // Not committed, then committed: in the way, then the same line.
    assert!(entry(&scene, "a").unwrap().moved);
    scene.repo.commit_all("user");
    let shown = entry(&scene, "a").unwrap();
    assert!(shown.moved);
    assert_eq!(old_side(&scene, &shown), Some(lines(|_| None)));
}
