//! Processes that die at each step, and what the next one makes of it.

use super::*;
use crate::model::CommitRequest;

#[test]
fn a_commit_that_died_before_the_decision_is_forgotten() {
    for point in ["commit.prepare x", "commit.prepared x", "commit.prepare y", "commit.prepared y"] {
        let world = World::new();
        let (manager, target) = world.two();
        change_all(&manager, &target);
        world.script.at(point, Fault::Die);
        dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
        drop(manager);
        let manager = world.manager();
        let recovered = manager.recover().unwrap();
        assert_eq!(recovered.len(), 1, "{point}");
        assert!(recovered[0].message.contains("nothing was committed"), "{recovered:?}");
        assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()), "{point}");
        assert_eq!(last(&manager, "commit").0, "aborted");
        manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
        assert_eq!(world.content("y"), "new");
    }
}

#[test]
fn a_commit_that_died_after_the_decision_is_finished_even_if_recovery_dies_too() {
    for point in
        ["commit.finish x", "commit.apply x", "commit.applied x", "commit.finish y", "commit.applied y"]
    {
        for second in ["commit.finish x", "commit.finish y"] {
            let world = World::new();
            let (manager, target) = world.two();
            change_all(&manager, &target);
            world.script.at(point, Fault::Die);
            dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
            world.script.at(second, Fault::Die);
            dies(|| world.manager().recover());
            let manager = world.manager();
            manager.recover().unwrap();
            assert_eq!(
                (world.content("x"), world.content("y")),
                ("new".into(), "new".into()),
                "{point}, {second}"
            );
            assert_eq!(last(&manager, "commit").0, "recovered");
            assert!(manager.log(None, 1).unwrap()[0].details["digest"].is_string());
            assert!(manager.recover().unwrap().is_empty());
            assert!(manager.diff(&target, &[]).unwrap().workspaces.iter().all(|w| w.entries.is_empty()));
        }
    }
}

/// A refusal of the abort does not say that the commit is decided.
#[test]
fn an_undecided_commit_is_not_finished_when_its_abort_is_refused() {
    for point in ["commit.prepare", "commit.prepared", "commit.finish"] {
        let world = World::new();
        let (manager, target) = world.one();
        change_all(&manager, &target);
        world.script.at(point, Fault::Die);
        dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
        let manager = world.manager();
        world.script.at("commit.abort", Fault::Refuse);
        let recovered = manager.recover().unwrap();
        assert!(recovered.iter().all(|recovered| recovered.failed), "{point}: {recovered:?}");
        assert_eq!((world.content("proj").as_str(), last(&manager, "commit").0.as_str()), ("old", "running"));
        assert_eq!(manager.recover().unwrap().len(), 1, "{point}");
        assert_eq!((world.content("proj").as_str(), last(&manager, "commit").0.as_str()), ("old", "aborted"));
    }
}

#[test]
fn a_whole_commit_that_died_is_old_or_new() {
    let outcomes = [
        ("commit.prepare", "old", "aborted"),
        ("commit.prepared", "old", "aborted"),
        ("commit.finish", "old", "aborted"),
        ("commit.apply", "new", "recovered"),
        ("commit.applied", "new", "recovered"),
    ];
    for (point, content, state) in outcomes {
        let world = World::new();
        let (manager, target) = world.one();
        change_all(&manager, &target);
        world.script.at(point, Fault::Die);
        dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
        let manager = world.manager();
        assert_eq!(manager.recover().unwrap().len(), 1, "{point}");
        assert_eq!(
            (world.content("proj").as_str(), last(&manager, "commit").0.as_str()),
            (content, state),
            "{point}"
        );
        assert!(manager.recover().unwrap().is_empty(), "{point}");
    }
}

#[test]
fn a_dead_commit_is_settled_before_the_next_change_even_without_recover() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::Die);
    dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
    world.manager().write(&target, &path("a"), b"newer").unwrap();
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn a_dead_commit_of_a_strategy_without_phases_is_logged_as_interrupted() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    manager
        .get_or_create_sandbox(&CreateRequest { strategy: Some("none".into()), ..request(&[&x]) })
        .unwrap();
    world.script.at("commit.whole", Fault::Die);
    dies(|| manager.commit(&manager.find("x").unwrap(), &CommitRequest::default(), &CommitRules::default()));
    world.manager().recover().unwrap();
    let (state, summary) = last(&manager, "commit");
    assert_eq!(state, "failed");
    assert!(summary.starts_with("interrupted; what it had changed by then is not known"), "{summary}");
}

#[test]
fn other_operations_that_died_are_logged_as_interrupted() {
    let world = World::new();
    let (manager, target) = world.one();
    for (kind, point) in [("write", "write"), ("checkpoint", "checkpoint")] {
        world.script.at(point, Fault::Die);
        dies(|| match kind {
            "write" => manager.write(&target, &path("a"), b"").map(drop),
            _ => manager.checkpoint(&target, None).map(drop),
        });
        let recovered = world.manager().recover().unwrap();
        assert!(recovered[0].message.starts_with(kind), "{recovered:?}");
        assert_eq!(last(&manager, kind), ("failed".into(), "interrupted".into()));
    }
    manager.write(&target, &path("a"), b"").unwrap();
}

#[test]
fn an_interrupted_rollback_is_finished_for_its_paths() {
    for paths in [vec![], vec![path("a")]] {
        let world = World::new();
        let (manager, target) = world.one();
        change_all(&manager, &target);
        manager.write(&target, &path("b"), b"new").unwrap();
        world.script.at("rollback", Fault::Die);
        dies(|| manager.rollback(&target, &paths));
        let recovered = world.manager().recover().unwrap();
        assert!(recovered[0].message.starts_with("finished rollback op_"), "{recovered:?}");
        let (state, summary) = last(&manager, "rollback");
        assert_eq!(state, "recovered");
        assert!(summary.ends_with("(after an interruption)"), "{summary}");
        let left = usize::from(!paths.is_empty());
        assert_eq!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.len(), left);
    }
}

#[test]
fn an_interrupted_restore_is_finished_before_the_next_commit() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    manager.checkpoint(&target, Some("good")).unwrap();
    for workspace in &target.workspaces {
        let one = Target { sandbox: target.sandbox.clone(), workspaces: vec![workspace.clone()] };
        manager.write(&one, &path("a"), b"newer").unwrap();
    }
    world.script.at("restore y", Fault::Die);
    dies(|| manager.restore(&target, "good"));
    world.manager().commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(last(&manager, "restore").0, "recovered");
    assert_eq!((world.content("x"), world.content("y")), ("new".into(), "new".into()));
}

#[test]
fn a_restore_that_cannot_be_finished_is_reported_and_may_be_repeated() {
    let world = World::new();
    let (manager, target) = world.one();
    manager.checkpoint(&target, Some("good")).unwrap();
    world.script.at("restore", Fault::Die);
    dies(|| manager.restore(&target, "good"));
    world.script.at("restore", Fault::Fail);
    let recovered = world.manager().recover().unwrap();
    assert!(recovered[0].failed, "{recovered:?}");
    assert!(recovered[0].message.contains("repeat it before you commit"), "{recovered:?}");
    assert_eq!(last(&manager, "restore").0, "failed");
    manager.restore(&target, "good").unwrap();
}

#[test]
fn a_create_that_died_anywhere_leaves_nothing() {
    for point in
        ["create x", "create.ownerless x", "create.half x", "create y", "create.ownerless y", "create.half y"]
    {
        let world = World::new();
        let (x, y) = (world.resource("x"), world.resource("y"));
        world.script.at(point, Fault::Die);
        dies(|| world.manager().get_or_create_sandbox(&request(&[&x, &y])));
        let manager = world.manager();
        assert_eq!(manager.list(false).unwrap()[0].state, SandboxState::Provisioning);
        let recovered = manager.recover().unwrap();
        assert_eq!(recovered[0].message, "removed half-made sandbox x", "{point}");
        assert_eq!(world.leftovers(), [""; 0], "{point}");
        assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Failed);
        assert_eq!(last(&manager, "create"), ("failed".into(), "interrupted".into()));
        assert!(manager.recover().unwrap().is_empty());
    }
}

#[test]
fn a_create_killed_before_its_directory_was_made_is_removed_too() {
    let world = World::new();
    let x = world.resource("x");
    world.script.at("create", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&request(&[&x])));
    fs::remove_dir_all(world.home().join("sandboxes")).unwrap();
    assert_eq!(world.manager().recover().unwrap().len(), 1);
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn removing_a_half_made_sandbox_can_die_and_be_repeated() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    world.script.at("create.half y", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&request(&[&x, &y])));
    world.script.at("cleanup x", Fault::Die);
    dies(|| world.manager().recover());
    world.manager().recover().unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_half_made_sandbox_can_be_destroyed_by_hand() {
    let world = World::new();
    let x = world.resource("x");
    world.script.at("create.half", Fault::Die);
    dies(|| world.manager().get_or_create_sandbox(&request(&[&x])));
    let manager = world.manager();
    manager.destroy(&manager.find("x").unwrap(), Uncommitted::Discard).unwrap();
    assert_eq!(manager.list(false).unwrap(), []);
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_destroy_that_died_is_finished() {
    let world = World::new();
    let (manager, target) = world.two();
    world.script.at("cleanup x", Fault::Die);
    dies(|| manager.destroy(&target, Uncommitted::Discard));
    let manager = world.manager();
    assert_eq!(manager.find("x").unwrap().sandbox.state, SandboxState::Destroying);
    let recovered = manager.recover().unwrap();
    assert_eq!(recovered[0].message, "finished destroying sandbox x");
    assert_eq!(world.leftovers(), [""; 0]);
    assert_eq!(manager.list(true).unwrap()[0].state, SandboxState::Destroyed);
    assert!(manager.log(None, 10).unwrap().iter().all(|o| o.state != "running"));
    assert!(manager.recover().unwrap().is_empty());
}

#[test]
fn what_cannot_be_recovered_is_told_and_holds_nobody_else_up() {
    let world = World::new();
    let (manager, target) = world.two();
    let (_, other) = world.one();
    world.script.at("cleanup x", Fault::AlwaysFail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let recovered = world.manager().recover().unwrap();
    assert!(recovered[0].failed && recovered[0].message.starts_with("workspace x: "), "{recovered:?}");
    manager.write(&other, &path("a"), b"x").unwrap();
    world.script.calm();
    world.manager().recover().unwrap();
    assert_eq!(manager.list(false).unwrap().len(), 1);
}

#[test]
fn a_destroy_that_keeps_failing_is_told_each_time_and_logged_once() {
    let world = World::new();
    let (manager, target) = world.one();
    world.script.at("cleanup", Fault::AlwaysFail);
    manager.destroy(&target, Uncommitted::Discard).unwrap_err();
    let logged = manager.log(None, 100).unwrap().len();
    for _ in 0..3 {
        let told = world.manager().recover().unwrap();
        assert!(told.len() == 1 && told[0].failed, "{told:?}");
    }
    assert_eq!(manager.log(None, 100).unwrap().len(), logged);
    world.script.calm();
    assert!(!world.manager().recover().unwrap()[0].failed);
    assert_eq!(last(&manager, "destroy").0, "done");
    assert_eq!(world.leftovers(), [""; 0]);
}

#[test]
fn a_sandbox_whose_strategy_is_gone_says_so_and_stays() {
    let world = World::new();
    let (_, target) = world.one();
    let parts = ManagerParts { registry: crate::registry::StrategyRegistry::new(), ..world.parts() };
    let manager = SandboxManager::open(parts).unwrap();
    for error in [
        manager.destroy(&target, Uncommitted::Discard).unwrap_err(),
        manager.diff(&target, &[]).map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::NotFound { what: "registered strategy", .. }), "{error}");
    }
    assert_eq!(manager.recover().unwrap(), [], "no command is troubled by it");
    assert_eq!(manager.gc(Uncommitted::Park, false).unwrap().failed.len(), 1, "gc says so");
    assert_eq!(world.leftovers().len(), 2, "nothing of it was removed");
    world.manager().recover().unwrap();
    assert_eq!(world.leftovers(), [""; 0]);
}
