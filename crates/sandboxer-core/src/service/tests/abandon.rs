//! The end of a sandbox whose strategy does not end it.

use super::*;

/// What was left, and that nothing of the sandbox is here any more.
fn abandoned(world: &World, manager: &SandboxManager, target: &Target) -> Vec<String> {
    let left = manager.abandon(target).unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!(manager.list(false).unwrap(), []);
    assert_eq!(manager.find_any(target.sandbox.id.as_str()).unwrap().sandbox.state, SandboxState::Destroyed);
    assert_eq!(manager.recover().unwrap(), [], "something is left to do");
    assert!(manager.log(None, 100).unwrap().iter().all(|operation| operation.state != "running"));
    left
}

#[test]
fn what_its_strategy_cannot_clean_up_goes_and_is_named() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("cleanup y", Fault::AlwaysFail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    assert_eq!(manager.find("x").unwrap().sandbox.state, SandboxState::Destroying);
    let left = abandoned(&world, &manager, &target);
    assert_eq!(left.len(), 1, "{left:?}");
    let strategy = &target.workspaces[1].sandbox_ref.strategy_name;
    assert!(left[0].starts_with(&format!("strategy {strategy}: ")), "{left:?}");
    assert!(left[0].contains("scripted failure at cleanup y"), "{left:?}");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
    assert_eq!(manager.abandon(&target).unwrap(), [""; 0], "it is gone already");
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_decided_commit_is_not_abandoned() {
    let world = World::new();
    let (manager, target) = world.one();
    world.script.at("cleanup", Fault::Decided);
    let refused = manager.abandon(&target).unwrap_err();
    assert!(refused.is_already_decided(), "{refused}");
    assert!(!world.leftovers().is_empty(), "the journal is gone");
    assert_eq!(abandoned(&world, &manager, &target), [""; 0]);
}

#[test]
fn a_strategy_that_can_clean_up_does() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    assert_eq!(abandoned(&world, &manager, &target), [""; 0]);
    let calls = world.script.calls();
    assert!(["cleanup x", "cleanup y"].iter().all(|call| calls.contains(&(*call).into())), "{calls:?}");
    assert_eq!(last(&manager, "destroy").0, "done");
}

#[test]
fn a_strategy_that_cannot_even_be_had_is_done_without() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    drop(manager);
    world.script.at("open", Fault::AlwaysFail);
    let manager = world.manager();
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let left = abandoned(&world, &manager, &target);
    assert!(left.len() == 1 && left[0].contains("scripted failure at open"), "{left:?}");
    assert_eq!(world.content("proj"), "old");
}

#[test]
fn nobody_is_thrown_out() {
    let world = World::new();
    let (manager, target) = world.one();
    let in_use = manager.use_sandbox(&target).unwrap();
    let error = world.manager().abandon(&target).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(in_use);
    let denied = ManagerParts { permissions: Arc::new(AllBut("destroy")), ..world.parts() };
    assert!(SandboxManager::open(denied).unwrap().abandon(&target).is_err());
    assert_eq!(manager.find("proj").unwrap().sandbox.state, SandboxState::Ready);
    assert_eq!(abandoned(&world, &manager, &target), [""; 0]);
}
