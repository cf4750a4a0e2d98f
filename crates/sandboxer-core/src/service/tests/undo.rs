//! Commits taken back, by the log.

use super::*;
use crate::model::CommitRequest;

fn commit(manager: &SandboxManager, target: &Target) -> Operation {
    let done = manager.commit(target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    manager.find_operation(done.op_id.as_str()).unwrap()
}

fn state_of(manager: &SandboxManager, operation: &Operation) -> String {
    manager.find_operation(operation.id.as_str()).unwrap().state
}

#[test]
fn the_last_commit_is_taken_back_and_can_be_made_again() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    let committed = commit(&manager, &target);
    assert_eq!(committed.details["undo_bytes"], 14);
    let last = manager.last_commit(None).unwrap();
    assert_eq!(last.id, committed.id);
    let undone = manager.undo(&last).unwrap();
    assert_eq!((undone.operation.id, undone.sandbox.id), (committed.id.clone(), target.sandbox.id.clone()));
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
    assert_eq!(state_of(&manager, &committed), "undone");
    assert!(matches!(manager.last_commit(Some(&target.sandbox)), Err(Error::NotFound { .. })));
    assert!(manager.diff(&target, &[]).unwrap().workspaces.iter().all(|w| w.entries.len() == 1));
    // An undo is an operation like any other.
    let undo = manager.find_operation(undone.commit.op_id.as_str()).unwrap();
    assert_eq!((undo.kind.as_str(), undo.summary.as_str()), ("undo", "2 paths taken back: 2 modified"));
    manager.undo(&undo).unwrap();
    assert_eq!(world.content("y"), "new");
    assert_eq!((state_of(&manager, &committed), state_of(&manager, &undo)), ("done".into(), "undone".into()));
    // What was made again is the last commit, and taken back like the first time; and so on.
    for _ in 0..2 {
        let last = manager.last_commit(Some(&target.sandbox)).unwrap();
        assert_eq!(last.id, committed.id);
        let undone = manager.undo(&last).unwrap();
        assert_eq!((world.content("y").as_str(), state_of(&manager, &committed).as_str()), ("old", "undone"));
        assert!(manager.last_commit(Some(&target.sandbox)).is_err());
        manager.undo(&manager.find_operation(undone.commit.op_id.as_str()).unwrap()).unwrap();
        assert_eq!((world.content("y").as_str(), state_of(&manager, &committed).as_str()), ("new", "done"));
    }
}

#[test]
fn what_cannot_be_taken_back_is_refused_with_a_reason() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let write = manager.log(None, 1).unwrap().remove(0);
    let refused = |operation: &Operation| manager.undo(operation).unwrap_err().to_string();
    assert!(refused(&write).contains("is a write; only commits"), "{}", refused(&write));
    let committed = commit(&manager, &target);
    manager.undo(&committed).unwrap();
    assert!(refused(&committed).contains("taken back already"));
    let committed = commit(&manager, &target);
    std::fs::write(world.temp.path().join("res/proj/a"), "edited").unwrap();
    assert!(matches!(manager.undo(&committed), Err(Error::Conflict { .. })));
    assert_eq!(state_of(&manager, &committed), "done");
    let failed = manager.log(None, 1).unwrap().remove(0);
    assert!(refused(&failed).contains("did nothing"));
    manager.destroy(&target, Uncommitted::Discard).unwrap();
    assert!(refused(&committed).contains("its sandbox is gone"));
}

#[test]
fn a_conflict_names_the_operation_on_top() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let first = commit(&manager, &target);
    let other = manager.get_or_create_sandbox(&request(&[&world.temp.path().join("res/proj")])).unwrap();
    let other = manager.find(other.sandbox.id.as_str()).unwrap();
    manager.write(&other, &path("a"), b"on top").unwrap();
    let second = commit(&manager, &other);
    let Err(Error::Conflict { conflicts }) = manager.undo(&first) else { panic!("no conflict") };
    assert!(conflicts[0].reason.ends_with(&format!("(by commit {})", second.id)), "{conflicts:?}");
}

#[test]
fn an_undo_that_died_is_old_or_new() {
    let outcomes = [
        ("commit.prepare", "new", "aborted"),
        ("commit.prepared", "new", "aborted"),
        ("commit.apply", "old", "recovered"),
        ("commit.applied", "old", "recovered"),
    ];
    for (point, content, state) in outcomes {
        let world = World::new();
        let (manager, target) = world.one();
        change_all(&manager, &target);
        let committed = commit(&manager, &target);
        world.script.at(point, Fault::Die);
        dies(|| manager.undo(&committed));
        let manager = world.manager();
        manager.recover().unwrap();
        assert_eq!(
            (world.content("proj").as_str(), last(&manager, "undo").0.as_str()),
            (content, state),
            "{point}"
        );
        let expected = if content == "old" { "undone" } else { "done" };
        assert_eq!(state_of(&manager, &committed), expected, "{point}");
    }
}

#[test]
fn operations_are_found_by_a_unique_beginning() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let committed = commit(&manager, &target);
    let id = committed.id.as_str();
    assert_eq!(manager.find_operation(&id[..id.len() - 1]).unwrap().id, committed.id);
    assert_eq!(manager.find_operation(&id["op_".len()..].to_uppercase()).unwrap().id, committed.id);
    assert!(matches!(manager.find_operation("op_01"), Err(Error::NotFound { .. })));
    assert!(matches!(manager.find_operation(&id[..10]), Err(Error::Usage { .. })));
    assert!(matches!(manager.find_operation("op_zzzzzzzz"), Err(Error::NotFound { .. })));
    assert!(manager.patches_of(&committed).unwrap().is_empty());
}

#[test]
fn an_undo_that_comes_to_nothing_leaves_a_parked_sandbox_parked() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let committed = commit(&manager, &target);
    manager.put_away(&target, "done").unwrap();
    manager.pin_parked(&target.sandbox, true).unwrap();
    std::fs::write(world.temp.path().join("res/proj/a"), "edited").unwrap();
    assert!(matches!(manager.undo(&committed), Err(Error::Conflict { .. })));
    let parked = manager.parked().unwrap();
    assert!(manager.list(false).unwrap().is_empty() && parked.len() == 1 && parked[0].pinned);
    std::fs::write(world.temp.path().join("res/proj/a"), "new").unwrap();
    manager.undo(&committed).unwrap();
    assert_eq!((world.content("proj").as_str(), manager.parked().unwrap().len()), ("old", 0));
}
