//! Aborting a commit that is decided and cannot be finished.

use super::*;
use crate::model::CommitRequest;

fn commit(manager: &SandboxManager, target: &Target) -> Result<TargetCommit> {
    manager.commit(target, &CommitRequest::default(), &CommitRules::default())
}

#[test]
fn a_commit_that_is_stuck_says_so_and_is_taken_back() {
    for several in [false, true] {
        let world = World::new();
        let (manager, target) = if several { world.two() } else { world.one() };
        let names = if several { vec!["x", "y"] } else { vec!["proj"] };
        change_all(&manager, &target);
        world.script.at(&format!("commit.apply {}", names[names.len() - 1]), Fault::AlwaysFail);
        let error = commit(&manager, &target).unwrap_err();
        assert!(matches!(error, Error::Unfinished { .. }), "{error}");
        let recovered = world.manager().recover().unwrap();
        assert!(
            recovered[0].failed && recovered[0].message.contains("decided but not finished"),
            "{recovered:?}"
        );
        let aborted = world.manager().abort_commit(&target).unwrap();
        assert_eq!(aborted.operation.kind, "commit");
        assert!(aborted.undone.is_some());
        assert!(names.iter().all(|name| world.content(name) == "old"));
        let pending = manager.diff(&target, &[]).unwrap();
        assert!(pending.workspaces.iter().all(|workspace| workspace.entries.len() == 1));
        assert!(manager.recover().unwrap().is_empty());
        commit(&manager, &target).unwrap();
        assert!(names.iter().all(|name| world.content(name) == "new"));
    }
}

#[test]
fn only_an_interrupted_commit_is_aborted() {
    let world = World::new();
    let (manager, target) = world.one();
    let error = manager.abort_commit(&target).unwrap_err();
    assert!(error.to_string().contains("no commit is waiting"), "{error}");
    change_all(&manager, &target);
    commit(&manager, &target).unwrap();
    assert!(manager.abort_commit(&target).is_err());
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn an_undecided_commit_is_aborted_without_a_trace() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.prepared y", Fault::Die);
    dies(|| commit(&manager, &target));
    let aborted = world.manager().abort_commit(&target).unwrap();
    assert_eq!((aborted.undone, aborted.left_out), (None, Vec::new()));
    assert_eq!(last(&manager, "commit").0, "aborted");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
}
