//! Uncommitted work that is put away and taken up again.

use super::*;

fn write(manager: &SandboxManager, target: &Target, content: &str) {
    manager.write(target, &path("a"), content.as_bytes()).unwrap();
}

#[test]
fn work_is_parked_by_destroy_and_taken_up_again() {
    let world = World::new();
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    manager.checkpoint(&target, Some("cp")).unwrap();
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { changes: 1 });
    assert!(manager.list(false).unwrap().is_empty());
    let parked = manager.parked().unwrap();
    assert_eq!((parked.len(), parked[0].sandbox.id.clone()), (1, target.sandbox.id.clone()));
    assert_eq!(parked[0].summary, "parked with 1 uncommitted change: destroyed");
    assert!(parked[0].bytes > 0);
    // Ending it again is fine, garbage collection leaves it alone, and nobody works in it.
    let again = manager.find_any(target.sandbox.id.as_str()).unwrap();
    assert_eq!(manager.destroy(&again, Uncommitted::Park).unwrap(), Ended::Already(SandboxState::Parked));
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    assert!(matches!(manager.read(&again, &path("a")), Err(Error::Refused { .. })));
    assert!(matches!(manager.write(&again, &path("a"), b"x"), Err(Error::NotFound { .. })));
    let open = manager.unpark(&parked[0].sandbox, None).unwrap();
    assert_eq!((open.name.as_str(), open.state), ("proj", SandboxState::Ready));
    let target = manager.find("proj").unwrap();
    assert_eq!(manager.read(&target, &path("a")).unwrap(), b"mine");
    assert_eq!(manager.checkpoints(&target).unwrap().len(), 1);
    assert!(matches!(manager.unpark(&open, None), Err(Error::NotFound { .. })));
    assert_eq!(world.content("proj"), "old");
}

#[test]
fn nothing_is_parked_where_there_is_no_work_or_it_may_go() {
    let world = World::new();
    let (manager, target) = world.one();
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Destroyed);
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    assert_eq!(manager.destroy(&target, Uncommitted::Discard).unwrap(), Ended::Destroyed);
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Already(SandboxState::Destroyed));
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    manager.destroy(&target, Uncommitted::Park).unwrap();
    let parked = manager.find_any(target.sandbox.id.as_str()).unwrap();
    assert_eq!(manager.destroy(&parked, Uncommitted::Discard).unwrap(), Ended::Destroyed);
    assert!(manager.parked().unwrap().is_empty());
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn its_name_and_place_are_free_and_it_finds_others() {
    let world = World::new();
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    manager.destroy(&target, Uncommitted::Park).unwrap();
    let (_, second) = world.one();
    assert_eq!(second.sandbox.name, "proj");
    let parked = manager.find_parked("proj").unwrap();
    assert!(matches!(manager.unpark(&parked, Some("proj")), Err(Error::Usage { .. })));
    assert_eq!(manager.unpark(&parked, None).unwrap().name, "proj-2");
    assert!(matches!(manager.find_parked("proj"), Err(Error::NotFound { .. })));
}

#[test]
fn parked_sandboxes_are_found_by_name_and_id() {
    let world = World::new();
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    manager.destroy(&target, Uncommitted::Park).unwrap();
    let id = target.sandbox.id.as_str();
    for selector in ["proj", id, &id[..id.len() - 2], &id[4..id.len() - 2]] {
        assert_eq!(manager.find_parked(selector).unwrap().id, target.sandbox.id, "{selector}");
    }
    match manager.find_parked("porj") {
        Err(Error::NotFound { similar, .. }) => assert_eq!(similar, ["proj"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_death_while_parking_or_coming_back_loses_nothing() {
    for point in ["park", "create"] {
        let world = World::new();
        let (manager, target) = world.one();
        write(&manager, &target, "mine");
        if point == "park" {
            world.script.at(point, Fault::Die);
            dies(|| manager.destroy(&target, Uncommitted::Park));
            let recovered = world.manager().recover().unwrap();
            assert_eq!(recovered[0].message, "finished parking sandbox proj");
        } else {
            manager.destroy(&target, Uncommitted::Park).unwrap();
            world.script.at(point, Fault::Die);
            dies(|| manager.unpark(&manager.find_parked("proj").unwrap(), None));
            world.manager().recover().unwrap();
        }
        let manager = world.manager();
        manager.unpark(&manager.find_parked("proj").unwrap(), None).unwrap();
        assert_eq!(manager.read(&manager.find("proj").unwrap(), &path("a")).unwrap(), b"mine");
    }
}

#[test]
fn work_of_which_nobody_can_tell_is_parked_as_it_stands() {
    let world = World::new();
    let (manager, target) = world.one();
    world.script.at("diff", Fault::AlwaysFail);
    world.script.at("park", Fault::AlwaysFail);
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Parked { changes: 1 });
    world.script.calm();
    manager.unpark(&manager.find_parked("proj").unwrap(), None).unwrap();
}

#[test]
fn a_parked_sandbox_survives_the_loss_of_the_database() {
    let world = World::new();
    let (manager, target) = world.one();
    write(&manager, &target, "mine");
    manager.destroy(&target, Uncommitted::Park).unwrap();
    drop(manager);
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(world.home().join(name));
    }
    let manager = world.manager();
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap(), GcReport::default());
    assert_eq!(manager.adopt().unwrap().len(), 1);
    let parked = manager.find_parked("proj").unwrap();
    manager.unpark(&parked, None).unwrap();
    assert_eq!(manager.read(&manager.find("proj").unwrap(), &path("a")).unwrap(), b"mine");
}

#[test]
fn what_is_written_straight_through_is_no_uncommitted_work() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    let request = CreateRequest { strategy: Some("none".into()), ..request(&[&x]) };
    manager.get_or_create_sandbox(&request).unwrap();
    let target = manager.find("x").unwrap();
    let mut parts = world.parts();
    let mut registry = crate::registry::StrategyRegistry::new();
    for entry in parts.registry.entries() {
        let mut entry = entry.clone();
        entry.capabilities.isolates = entry.name != "none";
        registry.register(entry).unwrap();
    }
    parts.registry = registry;
    let manager = SandboxManager::open(parts).unwrap();
    write(&manager, &target, "through");
    assert_eq!(manager.destroy(&target, Uncommitted::Park).unwrap(), Ended::Destroyed);
}

#[test]
fn a_sandbox_without_work_is_put_away_for_what_takes_its_commits_back() {
    let world = World::new();
    let (manager, target) = world.one();
    write(&manager, &target, "new");
    manager.commit(&target, &crate::model::CommitRequest::default(), &CommitRules::default()).unwrap();
    manager.put_away(&target, "run has committed").unwrap();
    assert_eq!(
        manager.parked().unwrap()[0].summary,
        "put away, its commits can be taken back: run has committed"
    );
    manager.undo(&manager.last_commit(None).unwrap()).unwrap();
    assert_eq!(world.content("proj"), "old");
    assert!(manager.parked().unwrap().is_empty());
    let target = manager.find("proj").unwrap();
    assert_eq!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.len(), 1);
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    // Without a commit there is nothing to put it away for.
    let (manager, target) = world.one();
    manager.put_away(&target, "why").unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
}
