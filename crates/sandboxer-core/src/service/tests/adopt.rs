//! Sandboxes whose database was lost.

use super::*;
use crate::model::CommitRequest;

fn lose_database(world: &World) {
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(world.home().join(name));
    }
}

#[test]
fn sandboxes_come_back_with_names_changes_and_checkpoints() {
    let world = World::new();
    let (manager, one) = world.one();
    manager.write(&one, &path("a"), b"mine").unwrap();
    manager.checkpoint(&one, Some("c")).unwrap();
    let (_, two) = world.two();
    drop(manager);
    lose_database(&world);
    let manager = world.manager();
    assert_eq!(manager.list(false).unwrap(), []);
    let adopted = manager.adopt().unwrap();
    assert_eq!(
        adopted.iter().map(|s| s.id.clone()).collect::<Vec<_>>(),
        [one.sandbox.id.clone(), two.sandbox.id.clone()]
    );
    let found = manager.find("proj").unwrap();
    assert_eq!(found.sandbox.workspaces, one.sandbox.workspaces);
    assert_eq!(found.sandbox.plan_id, one.sandbox.plan_id);
    assert_eq!(manager.diff(&found, &[]).unwrap().workspaces[0].entries.len(), 1);
    manager.write(&found, &path("a"), b"more").unwrap();
    manager.restore(&found, "c").unwrap();
    assert_eq!(manager.read(&found, &path("a")).unwrap(), b"mine");
    assert_eq!(manager.find("@last").unwrap().sandbox.id, two.sandbox.id);
    assert_eq!(manager.adopt().unwrap(), [], "those in the store are passed over");
    manager.checkpoint(&found, None).unwrap();
    assert_eq!(manager.checkpoints(&found).unwrap()[1].sequence, 2);
}

#[test]
fn a_sandbox_whose_workspace_is_gone_or_whose_descriptor_lies_is_passed_over() {
    let world = World::new();
    let (manager, gone) = world.one();
    let (_, other) = world.two();
    fs::remove_dir_all(gone.workspaces[0].sandbox_ref.text("dir").unwrap()).unwrap();
    let copy = manager.sandboxes_dir().join("sbx_copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(manager.sandbox_dir(&other.sandbox.id).join("sandbox.json"), copy.join("sandbox.json")).unwrap();
    lose_database(&world);
    let adopted = world.manager().adopt().unwrap();
    assert_eq!(adopted.iter().map(|s| s.id.clone()).collect::<Vec<_>>(), [other.sandbox.id]);
}

#[test]
fn taken_names_and_plans_are_not_taken_over() {
    let world = World::new();
    let x = world.resource("x");
    let lost = world.manager().get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
    lose_database(&world);
    let new = world.manager().get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
    let adopted = world.manager().adopt().unwrap().remove(0);
    assert_eq!((adopted.id.clone(), adopted.name.as_str()), (lost.id, "x-2"));
    assert_ne!(adopted.plan_id, new.plan_id);
    assert_eq!(world.manager().find("x").unwrap().sandbox.id, new.id);
    lose_database(&world);
    let again = world.manager().adopt().unwrap();
    assert!(again.contains(&adopted), "the descriptor has the new name and plan: {again:?}");
}

#[test]
fn a_commit_whose_journal_was_published_is_finished() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::Die);
    dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
    drop(manager);
    lose_database(&world);
    world.manager().adopt().unwrap();
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn a_commit_that_was_only_prepared_is_forgotten() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.prepared y", Fault::Die);
    dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
    drop(manager);
    lose_database(&world);
    let manager = world.manager();
    manager.adopt().unwrap();
    assert_eq!((world.content("x").as_str(), world.content("y").as_str()), ("old", "old"));
    let found = manager.find(target.sandbox.id.as_str()).unwrap();
    assert!(manager.diff(&found, &[]).unwrap().workspaces.iter().all(|w| w.entries.len() == 1));
}

#[test]
fn a_commit_of_several_that_was_decided_is_finished_in_all() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.apply x", Fault::Die);
    dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
    drop(manager);
    lose_database(&world);
    world.manager().adopt().unwrap();
    assert_eq!((world.content("x").as_str(), world.content("y").as_str()), ("new", "new"));
}

#[test]
fn a_sandbox_that_somebody_holds_is_passed_over() {
    let world = World::new();
    let (manager, target) = world.one();
    let _held = manager.lock(&target.sandbox.id).unwrap();
    lose_database(&world);
    assert_eq!(world.manager().adopt().unwrap(), []);
}

#[test]
fn a_parked_sandbox_comes_back_parked_and_takes_nobodys_place() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    let lost = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap().sandbox;
    let target = manager.find("x").unwrap();
    manager.write(&target, &path("a"), b"mine").unwrap();
    manager.destroy(&target, Uncommitted::Park).unwrap();
    let bytes = manager.parked().unwrap()[0].bytes;
    drop(manager);
    lose_database(&world);
    let manager = world.manager();
    manager.adopt().unwrap();
    let parked = manager.parked().unwrap();
    assert_eq!((parked[0].sandbox.id.clone(), parked[0].bytes), (lost.id.clone(), bytes));
    assert_eq!(manager.disk_report().unwrap().kept.len(), 1);
    let new = manager.get_or_create_sandbox(&with_plan("p", &[&x])).unwrap();
    assert!(new.created && new.sandbox.id != lost.id);
    manager.unpark(&parked[0].sandbox, None).unwrap();
    assert_eq!(manager.read(&manager.find("x-2").unwrap(), &path("a")).unwrap(), b"mine");
}
