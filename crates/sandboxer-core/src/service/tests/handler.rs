//! The handlers of resource types.

use super::*;
use crate::contract::ResourceHandler;
use crate::model::{CheckpointId, Resource};

fn plan(text: &str) -> PlanId {
    PlanId::from_string(text)
}

#[test]
fn every_shipped_type_has_a_handler() {
    let world = World::new();
    let manager = world.manager();
    for resource_type in manager.types().iter() {
        assert!(manager.handler(&resource_type.name).is_ok(), "{}", resource_type.name);
    }
    assert!(matches!(manager.handler("no-such-type"), Err(Error::NotFound { what: "resource type", .. })));
}

#[test]
fn a_sandbox_is_made_once_per_plan() {
    let world = World::new();
    let manager = world.manager();
    let resource = Resource::at_path("fs-directory", &world.resource("proj"));
    let handler = manager.handler("fs-directory").unwrap();
    let first = handler.create_sandbox(&plan("p"), &resource).unwrap();
    assert!(first.created && first.sandbox_path.as_ref().unwrap().is_dir());
    assert_eq!(first.strategy, "overlay");
    let again = handler.create_sandbox(&plan("p"), &resource).unwrap();
    assert!(!again.created);
    assert_eq!((again.sandbox_id, again.sandbox_path), (first.sandbox_id.clone(), first.sandbox_path));
    assert_ne!(handler.create_sandbox(&plan("q"), &resource).unwrap().sandbox_id, first.sandbox_id);
}

#[test]
fn checkpoint_modify_rollback() {
    let world = World::new();
    let manager = world.manager();
    let resource = Resource::at_path("fs-directory", &world.resource("proj"));
    let handler = manager.handler("fs-directory").unwrap();
    let made = handler.create_sandbox(&plan("p"), &resource).unwrap();
    fs::write(made.sandbox_path.as_ref().unwrap().join("a"), "one").unwrap();
    let taken = handler.create_checkpoint(&plan("p"), &resource).unwrap();
    assert_eq!(taken.plan_id, plan("p"));
    assert!(taken.snapshot_path.unwrap().exists());
    fs::write(made.sandbox_path.as_ref().unwrap().join("a"), "two").unwrap();
    let back = handler.rollback_to(&plan("p"), &resource, &taken.checkpoint_id).unwrap();
    assert!(back.success);
    assert_eq!(back.checkpoint_id, Some(taken.checkpoint_id));
    assert_eq!(fs::read_to_string(made.sandbox_path.as_ref().unwrap().join("a")).unwrap(), "one");
    assert_eq!(world.content("proj"), "old");
}

#[test]
fn a_missing_checkpoint_is_a_result_and_a_missing_sandbox_an_error() {
    let world = World::new();
    let manager = world.manager();
    let resource = Resource::at_path("fs-directory", &world.resource("proj"));
    let handler = manager.handler("fs-directory").unwrap();
    let none = CheckpointId::from_string("none");
    assert!(matches!(
        handler.create_checkpoint(&plan("p"), &resource),
        Err(Error::NotFound { what: "sandbox", .. })
    ));
    assert!(handler.rollback_to(&plan("p"), &resource, &none).is_err());
    handler.create_sandbox(&plan("p"), &resource).unwrap();
    let result = handler.rollback_to(&plan("p"), &resource, &none).unwrap();
    assert!(!result.success && result.message.contains("none"), "{result:?}");
    world.script.at("restore", Fault::Fail);
    let taken = handler.create_checkpoint(&plan("p"), &resource).unwrap().checkpoint_id;
    assert!(
        handler.rollback_to(&plan("p"), &resource, &taken).is_err(),
        "a failure is not a missing checkpoint"
    );
}

#[test]
fn a_location_is_made_canonical_and_has_to_be_there() {
    let world = World::new();
    let manager = world.manager();
    let real = world.resource("proj");
    let link = world.temp.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let handler = manager.handler("fs-directory").unwrap();
    let by_link = handler.create_sandbox(&plan("p"), &Resource::at_path("fs-directory", &link)).unwrap();
    let by_path = handler.create_sandbox(&plan("p"), &Resource::at_path("fs-directory", &real)).unwrap();
    assert_eq!(by_link.sandbox_id, by_path.sandbox_id);
    let missing = Resource::at_path("fs-directory", &world.temp.path().join("missing"));
    assert!(handler.create_sandbox(&plan("p"), &missing).is_err());
}

#[test]
fn files_have_checkpoints_too() {
    let world = World::new();
    let manager = world.manager();
    let resource = Resource::at_path("fs-file", &world.resource("proj").join("a"));
    let handler = manager.handler("fs-file").unwrap();
    let made = handler.create_sandbox(&plan("p"), &resource).unwrap();
    assert!(made.sandbox_path.unwrap().is_file());
    handler.create_checkpoint(&plan("p"), &resource).unwrap();
}

#[test]
fn the_original_may_be_gone_when_a_checkpoint_is_brought_back() {
    let world = World::new();
    let manager = world.manager();
    let at = world.resource("proj");
    let resource = Resource::at_path("fs-directory", &at);
    let handler = manager.handler("fs-directory").unwrap();
    handler.create_sandbox(&plan("p"), &resource).unwrap();
    fs::remove_dir_all(&at).unwrap();
    let taken = handler.create_checkpoint(&plan("p"), &resource).unwrap();
    assert!(handler.rollback_to(&plan("p"), &resource, &taken.checkpoint_id).unwrap().success);
}

#[test]
fn access_is_the_permission_services_answer() {
    let world = World::new();
    let resource = Resource::at_path("fs-directory", &world.resource("proj"));
    let parts = ManagerParts { permissions: Arc::new(AllBut("commit")), ..world.parts() };
    let manager = SandboxManager::open(parts).unwrap();
    let handler =
        SandboxHandler::acting_for(&manager, Consumer { actor_type: "agt".into(), project: "p".into() });
    let read = handler.project_access("somebody", "read", &resource);
    assert!(read.permitted);
    assert_eq!(read.scope, resource.id.as_str());
    let commit = handler.project_access("somebody", "commit", &resource);
    assert_eq!((commit.permitted, commit.reason.as_str()), (false, "somebody may not commit"));
    let made = handler.create_sandbox(&plan("p"), &resource).unwrap();
    assert_eq!(manager.find(made.sandbox_id.as_str()).unwrap().sandbox.consumer.actor_type, "agt");
}
