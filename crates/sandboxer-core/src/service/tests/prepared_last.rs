//! Strategies that cannot take up again what was prepared, or cannot prepare at all, and the others beside them.

use super::fake::{DECIDING, ENDING};
use super::*;
use crate::model::CommitRequest;
use crate::policy::Policy;

/// A world in which some strategies are prepared last.
fn ending() -> World {
    let world = World::new();
    world.script.some_end.store(true, std::sync::atomic::Ordering::Relaxed);
    world
}

/// One sandbox for each strategy and resource, all of plan `p`, each with a change.
fn plan_of(world: &World, parts: &[(&str, &str)]) -> SandboxManager {
    let manager = world.manager();
    for (strategy, name) in parts {
        let resource = world.resource(name);
        let request = CreateRequest { strategy: Some((*strategy).into()), ..with_plan("p", &[&resource]) };
        manager.get_or_create_sandbox(&request).unwrap();
        change_all(&manager, &manager.find(name).unwrap());
    }
    manager
}

fn plan() -> PlanId {
    PlanId::from_string("p")
}

fn commit(manager: &SandboxManager) -> Result<PlanCommit> {
    manager.commit_plan(&plan(), &CommitRequest::default(), &CommitRules::default())
}

/// The content of each original, in one word if it is the same everywhere.
fn contents(world: &World, parts: &[(&str, &str)]) -> String {
    let mut found: Vec<String> = parts.iter().map(|(_, name)| world.content(name)).collect();
    found.dedup();
    found.join(" and ")
}

/// The calls of a phase, in order.
fn phases(world: &World) -> Vec<String> {
    let is_phase = |call: &String| {
        ["diff ", "commit.prepare ", "commit.finish ", "commit.abort "].iter().any(|p| call.starts_with(p))
    };
    world.script.calls().into_iter().filter(is_phase).collect()
}

const MIXED: [(&str, &str); 4] =
    [(ENDING, "a"), ("copy_on_write", "f"), (DECIDING, "d"), ("copy_on_write", "g")];

#[test]
fn it_is_prepared_last_and_what_cannot_be_prepared_decides() {
    let world = ending();
    let manager = plan_of(&world, &MIXED);
    let done = commit(&manager).unwrap();
    let expected = [
        "commit.prepare f",
        "commit.prepare g",
        "diff a",
        "diff d",
        "commit.prepare a",
        "commit.prepare d",
        "commit.finish d",
        "commit.finish a",
        "commit.finish f",
        "commit.finish g",
    ];
    assert_eq!(phases(&world), expected);
    assert_eq!(contents(&world, &MIXED), "new");
    let told: Vec<_> = done.sandboxes.iter().map(|(_, c)| c.workspaces[0].1.at_decision.is_some()).collect();
    assert_eq!(told, [false, false, true, false], "what decided is told");
    let log = manager.log(None, 4).unwrap();
    assert!(log.iter().all(|op| op.state == "done" && op.details["plan_commit"]["plan_id"] == "p"));
    assert!(log.iter().all(|op| op.details["plan_commit"]["operations"].as_array().unwrap().len() == 4));
}

#[test]
fn a_dry_run_and_a_refusal_leave_it_as_it_was() {
    let world = ending();
    let manager = plan_of(&world, &MIXED);
    let reviewed = manager.diff_plan(&plan()).unwrap();
    let tried = manager.try_commit_plan(&plan(), &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(tried.digest, reviewed.digest);
    assert!(tried.sandboxes[2].1.workspaces[0].1.at_decision.is_some(), "it is said beforehand");
    let rules =
        CommitRules { policies: vec![Policy::parse("max-files=3").unwrap()], ..CommitRules::default() };
    let refused = manager.commit_plan(&plan(), &CommitRequest::default(), &rules);
    assert!(matches!(refused, Err(Error::RulesFailed { .. })), "{refused:?}");
    let other = CommitRequest { digest: Some("blake3:other".into()), ..CommitRequest::default() };
    let refused = manager.commit_plan(&plan(), &other, &CommitRules::default());
    assert!(matches!(refused, Err(Error::DigestMismatch { .. })), "{refused:?}");
    assert_eq!(contents(&world, &MIXED), "old");
    let request = CommitRequest { digest: Some(reviewed.digest.clone()), ..CommitRequest::default() };
    let done = manager.commit_plan(&plan(), &request, &CommitRules::default()).unwrap();
    assert_eq!((done.digest, contents(&world, &MIXED)), (reviewed.digest, "new".to_owned()));
}

#[test]
fn a_failure_in_the_last_preparation_aborts_all() {
    for point in ["commit.prepare a", "commit.prepared a", "commit.prepare d"] {
        let world = ending();
        let manager = plan_of(&world, &MIXED);
        world.script.at(point, Fault::Fail);
        let error = commit(&manager).unwrap_err();
        assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace.contains(':')), "{error}");
        assert_eq!(contents(&world, &MIXED), "old", "{point}");
        assert!(manager.log(None, 4).unwrap().iter().all(|op| op.state == "aborted"), "{point}");
    }
}

#[test]
fn a_decision_that_fails_aborts_all_and_one_that_half_failed_stands() {
    for (point, content) in
        [("commit.finish d", "old"), ("commit.apply d", "new"), ("commit.finished d", "new")]
    {
        let world = ending();
        let manager = plan_of(&world, &MIXED);
        world.script.at(point, Fault::Fail);
        assert_eq!(commit(&manager).is_ok(), content == "new", "{point}");
        assert_eq!(contents(&world, &MIXED), content, "{point}");
        assert!(manager.recover().unwrap().is_empty(), "{point}");
    }
}

#[test]
fn where_nobody_knows_whether_it_was_decided_recovery_asks() {
    for (point, content) in [("commit.finish d", "old"), ("commit.finished d", "new")] {
        let world = ending();
        let manager = plan_of(&world, &MIXED);
        world.script.at(point, Fault::Fail);
        world.script.at("commit.abort d", Fault::Fail);
        commit(&manager).unwrap_err();
        assert!(manager.log(None, 4).unwrap().iter().all(|op| op.state == "running"));
        drop(manager);
        let told = world.manager().recover().unwrap();
        assert!(told.len() == 4 && told.iter().all(|told| !told.failed), "{told:?}");
        assert_eq!(contents(&world, &MIXED), content, "{point}");
        assert!(world.manager().recover().unwrap().is_empty());
    }
}

#[test]
fn while_it_cannot_be_asked_nothing_is_finished_and_nothing_forgotten() {
    let world = ending();
    let manager = plan_of(&world, &MIXED);
    world.script.at("commit.finished d", Fault::Die);
    dies(|| commit(&manager));
    drop(manager);
    world.script.at("commit.abort d", Fault::AlwaysFail);
    let manager = world.manager();
    assert!(manager.recover().unwrap().iter().all(|told| told.failed));
    let error = manager.write(&manager.find("f").unwrap(), &path("a"), b"later").unwrap_err();
    let Error::Usage { hint: Some(hint), .. } = error.root() else { panic!("{error:?}") };
    let decider = manager.find("d").unwrap().sandbox.id;
    assert!(hint.contains(&format!("`sandbox destroy {decider} --force`")), "{hint}");
    manager.destroy(&manager.find("g").unwrap(), Uncommitted::Discard).unwrap_err();
    world.script.calm();
    manager.write(&manager.find("f").unwrap(), &path("b"), b"later").unwrap();
    manager.recover().unwrap();
    assert_eq!(contents(&world, &MIXED), "new");
}

#[test]
fn what_was_given_up_by_force_is_waited_for_no_longer() {
    let world = ending();
    let manager = plan_of(&world, &MIXED);
    world.script.at("commit.finish d", Fault::Die);
    dies(|| commit(&manager));
    drop(manager);
    world.script.at("commit.abort d", Fault::AlwaysFail);
    let manager = world.manager();
    manager.abandon(&manager.find("d").unwrap()).unwrap();
    assert!(manager.recover().unwrap().iter().all(|told| !told.failed));
    assert_eq!(contents(&world, &MIXED), "old");
}

/// Every point that a commit of the plan passes.
fn points(parts: &[(&str, &str)]) -> Vec<String> {
    let world = ending();
    let manager = plan_of(&world, parts);
    let before = world.script.calls().len();
    commit(&manager).unwrap();
    world.script.calls().split_off(before)
}

#[test]
fn killed_at_any_step_it_is_all_or_nothing() {
    for parts in [&MIXED[..], &MIXED[..2], &[MIXED[1], MIXED[3]]] {
        for point in points(parts).iter().filter(|point| !point.starts_with("open ")) {
            let world = ending();
            let manager = plan_of(&world, parts);
            world.script.at(point, Fault::Die);
            dies(|| commit(&manager));
            drop(manager);
            let manager = world.manager();
            let told = manager.recover().unwrap();
            assert!(told.iter().all(|told| !told.failed), "{point}: {told:?}");
            let content = contents(&world, parts);
            assert!(["old", "new"].contains(&content.as_str()), "{point}: {content}");
            assert!(manager.recover().unwrap().is_empty(), "{point}");
            let states: std::collections::HashSet<String> =
                manager.log(None, parts.len()).unwrap().into_iter().map(|op| op.state).collect();
            let expected = if content == "new" { "recovered" } else { "aborted" };
            assert_eq!(states.into_iter().collect::<Vec<_>>(), [expected], "{point}");
        }
    }
}

#[test]
fn a_recovery_that_is_killed_changes_nothing_about_it() {
    for point in
        ["commit.finish d", "commit.finished d", "commit.finish a", "commit.applied f", "commit.finish g"]
    {
        for second in
            ["commit.abort d", "commit.abort f", "commit.finish a", "commit.finish d", "commit.applied g"]
        {
            let world = ending();
            let manager = plan_of(&world, &MIXED);
            world.script.at(point, Fault::Die);
            dies(|| commit(&manager));
            drop(manager);
            world.script.at(second, Fault::Die);
            let _ = catch_unwind(AssertUnwindSafe(|| world.manager().recover()));
            world.script.calm();
            world.manager().recover().unwrap();
            let expected = if point == "commit.finish d" { "old" } else { "new" };
            assert_eq!(contents(&world, &MIXED), expected, "{point}, {second}");
        }
    }
}

#[test]
fn any_command_on_any_of_them_settles_it() {
    for name in ["a", "f", "d", "g"] {
        let world = ending();
        let manager = plan_of(&world, &MIXED);
        world.script.at("commit.finished d", Fault::Die);
        dies(|| commit(&manager));
        drop(manager);
        let manager = world.manager();
        manager.write(&manager.find(name).unwrap(), &path("b"), b"later").unwrap();
        assert_eq!(world.content(name), "new", "{name}");
        manager.recover().unwrap();
        assert_eq!(contents(&world, &MIXED), "new", "{name}");
    }
}

#[test]
fn a_store_that_does_not_learn_of_the_decision_learns_of_it_later() {
    let world = ending();
    let manager = plan_of(&world, &MIXED);
    let home = world.home();
    let run = move |sql: &'static str| {
        rusqlite::Connection::open(home.join("state.db")).unwrap().execute_batch(sql)
    };
    let full = run.clone();
    world.script.meanwhile("commit.finish d", move || {
        full(
            "CREATE TRIGGER full BEFORE UPDATE ON operations WHEN NEW.state = 'decided'
             BEGIN SELECT RAISE(ABORT, 'disk is full'); END",
        )
        .unwrap();
    });
    let error = commit(&manager).unwrap_err();
    assert!(matches!(error, Error::Store { step: "record the decision", .. }), "{error}");
    assert_eq!(world.content("d"), "new");
    run("DROP TRIGGER full").unwrap();
    world.manager().recover().unwrap();
    assert_eq!(contents(&world, &MIXED), "new");
}

#[test]
fn alone_it_is_committed_at_once_and_tried_by_its_difference() {
    for strategy in [ENDING, DECIDING] {
        let world = ending();
        let manager = plan_of(&world, &[(strategy, "x")]);
        let target = manager.find("x").unwrap();
        let none =
            CommitRules { policies: vec![Policy::parse("max-files=0").unwrap()], ..CommitRules::default() };
        manager.try_commit(&target, &CommitRequest::default(), &none).unwrap_err();
        manager.commit(&target, &CommitRequest::default(), &none).unwrap_err();
        let tried = manager.try_commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
        assert_eq!(last(&manager, "commit").1, "tried, not done: 1 path committed: 1 modified");
        assert_eq!(tried.workspaces[0].1.at_decision, None, "there is nothing else to decide about");
        assert!(!world.script.calls().iter().any(|call| call.starts_with("commit.")));
        let request = CommitRequest { digest: Some(tried.digest), ..CommitRequest::default() };
        manager.commit(&target, &request, &CommitRules::default()).unwrap();
        assert_eq!(world.content("x"), "new");
    }
}

#[test]
fn alone_and_killed_it_is_old_or_new() {
    for (point, content) in [("diff x", "old"), ("commit.whole", "old"), ("commit.apply", "new")] {
        let world = ending();
        let manager = plan_of(&world, &[(ENDING, "x")]);
        world.script.at(point, Fault::Die);
        let target = manager.find("x").unwrap();
        dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
        drop(manager);
        let manager = world.manager();
        manager.recover().unwrap();
        assert_eq!(world.content("x"), content, "{point}");
        manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
        assert_eq!(world.content("x"), "new", "what was never prepared goes on");
    }
}

#[test]
fn in_one_sandbox_it_is_the_same() {
    let world = ending();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let manager = world.manager();
    let request = CreateRequest { strategy: Some(DECIDING.into()), ..request(&[&x, &y]) };
    manager.get_or_create_sandbox(&request).unwrap();
    let target = manager.find("x").unwrap();
    change_all(&manager, &target);
    world.script.at("commit.finish y", Fault::Die);
    dies(|| manager.commit(&target, &CommitRequest::default(), &CommitRules::default()));
    drop(manager);
    world.manager().recover().unwrap();
    assert_eq!((world.content("x"), world.content("y")), ("new".into(), "new".into()));
}
