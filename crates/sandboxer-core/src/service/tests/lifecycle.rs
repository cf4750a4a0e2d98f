//! Destroy, time to live, garbage.

use super::*;
use jiff::SignedDuration;

#[test]
fn destroy_removes_everything_but_the_resource_and_is_idempotent() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    manager.checkpoint(&target, None).unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
    assert_eq!(manager.list(false).unwrap(), []);
    assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Destroyed);
    assert_eq!(manager.checkpoints(&target).unwrap(), []);
    assert_eq!(last(&manager, "destroy"), ("done".into(), "sandbox x destroyed".into()));
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    manager.destroy(&manager.find_any("x").unwrap(), Uncommitted::Discard).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
    let destroys = manager.log(None, 100).unwrap().iter().filter(|o| o.kind == "destroy").count();
    assert_eq!(destroys, 1);
}

#[test]
fn a_destroy_that_fails_is_repeatable_and_goes_on_past_one_workspace() {
    let world = World::new();
    let (manager, target) = world.two();
    world.script.at("cleanup y", Fault::Fail);
    let error = manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace == "y"));
    assert!(world.script.calls().contains(&"cleanup x".into()));
    assert_eq!(manager.find("x").unwrap().sandbox.state, SandboxState::Destroying);
    assert_eq!(last(&manager, "destroy").0, "failed");
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn destroy_waits_for_whoever_is_at_work() {
    let world = World::new();
    let (manager, target) = world.one();
    let _held = manager.lock(&target.sandbox.id).unwrap();
    assert!(matches!(world.manager().destroy(&target, Uncommitted::Discard), Err(Error::Busy { .. })));
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Ready);
}

#[test]
fn what_a_command_runs_in_is_not_ended() {
    let world = World::new();
    let (manager, target) = expired(&world, "x");
    let in_use = manager.use_sandbox(&target).unwrap();
    manager.write(&target, &path("a"), b"mine").unwrap();
    let other = world.manager();
    assert_eq!(other.enforce_ttl().unwrap().kept, std::slice::from_ref(&target.sandbox.id));
    let report = other.gc(Uncommitted::Discard, true).unwrap();
    assert_eq!(report.kept, std::slice::from_ref(&target.sandbox.id));
    let error = other.destroy(&target, Uncommitted::Discard).unwrap_err();
    assert!(error.to_string().contains("a command is running in it"), "{error}");
    assert!(matches!(error, Error::Busy { .. }));
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"mine");
    drop(in_use);
    assert_eq!(other.enforce_ttl().unwrap().parked, std::slice::from_ref(&target.sandbox.id));
    assert!(matches!(manager.use_sandbox(&target), Err(Error::NotFound { .. })));
}

#[test]
fn a_decided_commit_is_finished_before_its_sandbox_goes() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.finish x", Fault::Die);
    dies(|| manager.commit(&target, &Default::default(), &CommitRules::default()));
    world.manager().destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!((world.content("x"), world.content("y")), ("new".into(), "new".into()));
}

#[test]
fn an_unfinished_commit_keeps_its_sandbox_unless_the_original_is_gone() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::AlwaysFail);
    manager.commit(&target, &Default::default(), &CommitRules::default()).unwrap_err();
    world.manager().destroy(&target, Uncommitted::Discard).unwrap_err();
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Active);
    fs::remove_dir_all(world.resource("proj")).unwrap();
    world.manager().destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
    assert!(manager.log(None, 100).unwrap().iter().all(|o| o.state != "running"));
}

/// A sandbox whose time is up.
fn expired(world: &World, name: &str) -> (SandboxManager, Target) {
    let resource = world.resource(name);
    let manager = world.manager();
    let request = CreateRequest { ttl: Some(SignedDuration::from_micros(1)), ..request(&[&resource]) };
    let sandbox = manager.get_or_create_sandbox(&request).unwrap().sandbox;
    let target = Target { workspaces: sandbox.workspaces.clone(), sandbox };
    (manager, target)
}

#[test]
fn what_has_expired_goes_and_what_it_holds_of_work_is_parked() {
    let world = World::new();
    let (_, clean) = expired(&world, "clean");
    let (manager, pending) = expired(&world, "pending");
    let (_, alive) = world.one();
    manager.write(&pending, &path("a"), b"mine").unwrap();
    let report = manager.enforce_ttl().unwrap();
    assert_eq!(report.expired, std::slice::from_ref(&clean.sandbox.id));
    assert_eq!(report.parked, std::slice::from_ref(&pending.sandbox.id));
    let live: Vec<_> = manager.list(false).unwrap().into_iter().map(|s| s.id).collect();
    assert_eq!(live, [alive.sandbox.id]);
    let parked = manager.parked().unwrap();
    assert_eq!(parked[0].summary, "parked with 1 uncommitted change: its time was up");
    manager.unpark(&parked[0].sandbox, None).unwrap();
    assert_eq!(manager.read(&manager.find("pending").unwrap(), &path("a")).unwrap(), b"mine");
    assert_eq!(manager.enforce_ttl().unwrap(), GcReport::default(), "it has no time to end any more");
}

#[test]
fn what_has_expired_but_is_in_use_is_kept() {
    let world = World::new();
    let (manager, target) = expired(&world, "x");
    let held = manager.lock(&target.sandbox.id).unwrap();
    assert_eq!(world.manager().enforce_ttl().unwrap().kept, std::slice::from_ref(&target.sandbox.id));
    drop(held);
    world.script.at("cleanup", Fault::Fail);
    assert_eq!(world.manager().enforce_ttl().unwrap().failed.len(), 1);
    assert_eq!(
        world.manager().enforce_ttl().unwrap(),
        GcReport::default(),
        "destroying is recovery's business"
    );
}

#[test]
fn a_dry_run_of_gc_says_what_would_go_and_removes_nothing() {
    let world = World::new();
    let (manager, target) = expired(&world, "x");
    let orphan = world.home().join("scratch/ws_orphan");
    fs::create_dir_all(&orphan).unwrap();
    let told = manager.gc(Uncommitted::Park, true).unwrap();
    assert_eq!(
        (told.expired.clone(), told.removed.clone()),
        (vec![target.sandbox.id.clone()], vec![orphan.clone()])
    );
    assert!(orphan.exists());
    assert_eq!(manager.list(false).unwrap().len(), 1);
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), told);
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
}

#[test]
fn a_destroy_killed_before_its_directory_was_removed_is_finished() {
    let world = World::new();
    let (_, target) = world.one();
    let die = |path: &Path| panic!("killed before removing {}", path.display());
    let dying = SandboxManager::open(ManagerParts { remove_tree: die, ..world.parts() }).unwrap();
    dies(|| dying.destroy(&target, Uncommitted::Discard));
    let manager = world.manager();
    assert_eq!(manager.list(false).unwrap(), []);
    assert_eq!(world.leftovers().len(), 1, "the sandbox's directory");
    assert_eq!(manager.recover().unwrap(), []);
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!(last(&manager, "destroy"), ("done".into(), "sandbox proj destroyed".into()));
}

#[test]
fn a_directory_that_cannot_be_removed_is_tried_again() {
    let world = World::new();
    let (_, target) = world.one();
    let stuck = |path: &Path| Err(Error::io("remove", path, std::io::Error::other("stuck")));
    let manager = SandboxManager::open(ManagerParts { remove_tree: stuck, ..world.parts() }).unwrap();
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert_eq!(manager.find_any("proj").unwrap().sandbox.state, SandboxState::Destroyed);
    assert!(manager.recover().unwrap()[0].message.contains("stuck"));
    assert_eq!(world.manager().recover().unwrap(), []);
    assert_eq!(world.leftovers(), [""; 0]);
}
