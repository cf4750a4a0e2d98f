//! Names, order, pruning of checkpoints.

use super::*;

fn ids(records: &[CheckpointRecord]) -> Vec<String> {
    records.iter().map(|record| record.id.to_string()).collect()
}

#[test]
fn a_checkpoint_brings_its_state_back_in_another_process() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.write(&target, &path("a"), b"one").unwrap();
    let taken = manager.checkpoint(&target, Some("before")).unwrap();
    assert_eq!(taken[0].1.checkpoint_id.as_str(), "before");
    assert_eq!(taken[0].1.plan_id, target.sandbox.plan_id);
    assert!(taken[0].1.snapshot_path.as_ref().unwrap().ends_with("checkpoints/before"));
    manager.write(&target, &path("a"), b"two").unwrap();
    drop(manager);
    let manager = world.manager();
    assert_eq!(ids(&manager.checkpoints(&target).unwrap()), ["before"]);
    let restored = manager.restore(&target, "before").unwrap();
    assert!(restored[0].1.success);
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"one");
    assert_eq!(last(&manager, "checkpoint"), ("done".into(), "checkpoint before of 1 workspace".into()));
    assert_eq!(last(&manager, "restore"), ("done".into(), "restored before: 1 path".into()));
}

#[test]
fn names_are_made_up_in_order_and_never_twice() {
    let world = World::new();
    let (manager, target) = world.one();
    for name in [None, Some("cp-3"), None, Some("mine"), None] {
        manager.checkpoint(&target, name).unwrap();
    }
    let records = manager.checkpoints(&target).unwrap();
    assert_eq!(ids(&records), ["cp-1", "cp-3", "cp-4", "mine", "cp-5"]);
    assert_eq!(records.iter().map(|r| r.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    manager.checkpoint_service().prune(&target, 0).unwrap();
    assert!(manager.checkpoints(&target).unwrap().is_empty());
    manager.checkpoint(&target, None).unwrap();
    assert_eq!(ids(&manager.checkpoints(&target).unwrap()), ["cp-6"], "a number is not used again");
}

#[test]
fn a_name_that_exists_or_is_none_is_refused() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.checkpoint(&target, Some("a")).unwrap();
    for name in ["a", "../x", ""] {
        assert!(matches!(manager.checkpoint(&target, Some(name)), Err(Error::Usage { .. })), "{name:?}");
    }
}

#[test]
fn a_checkpoint_that_is_not_there_suggests_others() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.checkpoint(&target, Some("before")).unwrap();
    match manager.restore(&target, "befroe") {
        Err(Error::NotFound { what: "checkpoint", similar, .. }) => assert_eq!(similar, ["before"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpoint_of_several_workspaces_is_taken_in_all_or_not_recorded() {
    let world = World::new();
    let (manager, target) = world.two();
    world.script.at("checkpoint y", Fault::Fail);
    manager.checkpoint(&target, Some("c")).unwrap_err();
    assert!(manager.checkpoints(&target).unwrap().is_empty());
    assert_eq!(manager.checkpoint(&target, Some("c")).unwrap().len(), 2, "the name is still free");
    assert_eq!(manager.restore(&target, "c").unwrap().len(), 2);
    assert_eq!(manager.restore(&manager.find("x:y").unwrap(), "c").unwrap().len(), 1);
}

#[test]
fn a_checkpoint_of_one_workspace_is_not_one_of_another() {
    let world = World::new();
    let (manager, target) = world.two();
    let (x, y) = (manager.find("x:x").unwrap(), manager.find("x:y").unwrap());
    manager.checkpoint(&y, Some("c")).unwrap();
    assert_eq!(manager.checkpoints(&x).unwrap(), []);
    assert_eq!(manager.checkpoints(&target).unwrap().len(), 1);
    assert!(matches!(manager.restore(&x, "c"), Err(Error::NotFound { .. })));
    match manager.restore(&target, "c") {
        Err(Error::Usage { hint: Some(hint), .. }) => assert_eq!(hint, "name one: x:y"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pruning_keeps_the_newest_and_the_pinned_and_removes_content() {
    let world = World::new();
    let (manager, target) = world.one();
    let kept_at = |name: &str| {
        let dir = PathBuf::from(target.workspaces[0].sandbox_ref.text("dir").unwrap());
        dir.join("checkpoints").join(name).exists()
    };
    for name in ["a", "b", "c", "d"] {
        manager.checkpoint(&target, Some(name)).unwrap();
    }
    let service = manager.checkpoint_service();
    service.pin(&target, "a", true).unwrap();
    assert!(matches!(service.pin(&target, "z", true), Err(Error::NotFound { .. })));
    let pruned = service.prune(&target, 1).unwrap();
    assert_eq!(pruned.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["c", "b"]);
    assert_eq!(ids(&manager.checkpoints(&target).unwrap()), ["a", "d"]);
    assert_eq!(["a", "b", "c", "d"].map(kept_at), [true, false, false, true]);
    service.pin(&target, "a", false).unwrap();
    assert_eq!(service.prune(&target, 1).unwrap().len(), 1);
    assert!(service.prune(&target, 1).unwrap().is_empty());
}

#[test]
fn pruning_removes_no_directory_that_is_not_a_checkpoint_of_its_own() {
    let world = World::new();
    let (manager, target) = world.one();
    let elsewhere = world.resource("elsewhere");
    let dir = PathBuf::from(target.workspaces[0].sandbox_ref.text("dir").unwrap());
    let odd = [
        elsewhere.clone(),
        dir.clone(),
        dir.join("checkpoints"),
        dir.join("checkpoints/../tree"),
        dir.join("tree"),
    ];
    for (number, place) in odd.iter().enumerate() {
        let record = CheckpointRecord {
            id: crate::model::CheckpointId::from_string(format!("odd{number}")),
            sequence: number as u64 + 1,
            created_at: crate::store::now(),
            workspaces: vec!["proj".into()],
            pinned: false,
            snapshots: BTreeMap::from([("proj".into(), place.clone()), ("gone".into(), elsewhere.clone())]),
        };
        manager.store.add_checkpoint(&target.sandbox.id, &record).unwrap();
    }
    assert_eq!(manager.checkpoint_service().prune(&target, 0).unwrap().len(), 5);
    assert!(elsewhere.join("a").exists());
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"old");
}
