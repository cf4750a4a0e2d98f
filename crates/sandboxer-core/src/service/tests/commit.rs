//! The coordinator: one workspace whole, several by prepare, decide, finish.

use super::*;
use crate::model::{CommitRequest, HunkSelection, OnConflict, Phase};
use crate::policy::Policy;

fn commits(world: &World) -> Vec<String> {
    world.script.calls().into_iter().filter(|call| call.starts_with("commit.")).collect()
}

#[test]
fn one_workspace_is_committed_whole_with_its_own_digest() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let digest = manager.diff(&target, &[]).unwrap().digest;
    let request = CommitRequest {
        digest: Some(digest.clone()),
        message: Some("why".into()),
        ..CommitRequest::default()
    };
    let done = manager.commit(&target, &request, &CommitRules::default()).unwrap();
    assert_eq!((done.digest.as_str(), done.workspaces[0].0.as_str()), (digest.as_str(), "proj"));
    assert_eq!(world.content("proj"), "new");
    let operation = &manager.log(None, 1).unwrap()[0];
    assert_eq!((operation.id.clone(), operation.state.as_str()), (done.op_id, "done"));
    assert_eq!(operation.summary, "1 path committed: 1 modified");
    assert!(operation.finished_at.is_some());
    assert_eq!(operation.details["message"], "why");
    assert_eq!(operation.details["digest"], digest.as_str());
    assert_eq!(operation.details["counts"]["modified"], 1);
    assert_eq!(operation.details["paths"][0]["path"], "a");
    assert!(
        manager.diff(&target, &[]).unwrap().workspaces[0].entries.is_empty(),
        "the committed state is the base"
    );
}

#[test]
fn what_was_not_reviewed_is_not_committed() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    let request = CommitRequest { digest: Some("blake3:other".into()), ..CommitRequest::default() };
    assert!(matches!(
        manager.commit(&target, &request, &CommitRules::default()),
        Err(Error::DigestMismatch { .. })
    ));
    assert_eq!(world.content("proj"), "old");
    assert_eq!(last(&manager, "commit").0, "aborted");
    let calls = commits(&world);
    assert!(!calls.iter().any(|c| c.starts_with("commit.finish")), "{calls:?}");
}

#[test]
fn what_a_rule_refuses_is_not_committed() {
    let with = |policy: &str| {
        let policies = vec![Policy::parse(policy).unwrap()];
        CommitRules { policies, ..CommitRules::default() }
    };
    for (resource, files) in [("proj", 1), ("x", 2)] {
        let world = World::new();
        let (manager, target) = if files == 1 { world.one() } else { world.two() };
        change_all(&manager, &target);
        let too_few = with(&format!("max-files={}", files - 1));
        let refused = manager.commit(&target, &CommitRequest::default(), &too_few);
        let digest = manager.diff(&target, &[]).unwrap().digest;
        let Err(Error::RulesFailed { failures, digest: about }) = refused else { panic!("{refused:?}") };
        assert_eq!((failures.len(), about), (1, Some(digest)));
        assert_eq!(world.content(resource), "old");
        let enough = with(&format!("max-files={files}; paths=a"));
        manager.commit(&target, &CommitRequest::default(), &enough).unwrap();
        assert_eq!(world.content(resource), "new");
    }
}

#[test]
fn a_failure_before_the_commit_point_is_just_a_failure() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    for (point, state) in [("commit.prepared", "aborted"), ("commit.finish", "failed")] {
        world.script.at(point, Fault::Fail);
        manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
        assert_eq!(last(&manager, "commit").0, state);
        assert_eq!(world.content("proj"), "old");
    }
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn chosen_paths_are_committed_alone() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    manager.write(&target, &path("b"), b"b").unwrap();
    let request = CommitRequest { paths: vec![path("b")], ..CommitRequest::default() };
    manager.commit(&target, &request, &CommitRules::default()).unwrap();
    assert_eq!(world.content("proj"), "old");
    assert_eq!(manager.diff(&target, &[]).unwrap().workspaces[0].entries.len(), 1);
}

#[test]
fn requests_that_cannot_be_met_touch_nothing() {
    let world = World::new();
    let (manager, target) = world.two();
    let paths = CommitRequest { paths: vec![path("a")], ..CommitRequest::default() };
    assert!(matches!(manager.commit(&target, &paths, &CommitRules::default()), Err(Error::Usage { .. })));
    let phase = CommitRequest { phase: Phase::Prepare, ..CommitRequest::default() };
    assert!(matches!(manager.commit(&target, &phase, &CommitRules::default()), Err(Error::Usage { .. })));
    let hunks = vec![HunkSelection { path: path("a"), patch: b"@@ -1 +1 @@\n-a\n+b\n".to_vec() }];
    let hunks = CommitRequest { hunks, ..CommitRequest::default() };
    assert!(matches!(manager.commit(&target, &hunks, &CommitRules::default()), Err(Error::Usage { .. })));
    let (manager, target) = world.one();
    assert!(matches!(
        manager.commit(&target, &hunks, &CommitRules::default()),
        Err(Error::Unsupported { what: "commit chosen hunks", .. })
    ));
    let merge = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    assert!(matches!(
        manager.commit(&target, &merge, &CommitRules::default()),
        Err(Error::Unsupported { what: "resolve conflicts", .. })
    ));
    assert_eq!(commits(&world), [""; 0]);
}

#[test]
fn a_strategy_without_phases_or_paths_says_so_before_anything_is_touched() {
    let world = World::new();
    let (x, y) = (world.resource("x"), world.resource("y"));
    let manager = world.manager();
    let by_none = CreateRequest { strategy: Some("none".into()), ..request(&[&x, &y]) };
    manager.get_or_create_sandbox(&by_none).unwrap();
    let unsupported = |selector: &str, request: CommitRequest| {
        let result = manager.commit(&manager.find(selector).unwrap(), &request, &CommitRules::default());
        assert!(
            matches!(&result, Err(Error::Unsupported { strategy, .. }) if strategy == "none"),
            "{result:?}"
        );
    };
    unsupported("x", CommitRequest::default());
    unsupported("x:y", CommitRequest { paths: vec![path("a")], ..CommitRequest::default() });
    assert_eq!(commits(&world), [""; 0]);
    manager
        .commit(&manager.find("x:y").unwrap(), &CommitRequest::default(), &CommitRules::default())
        .unwrap();
}

#[test]
fn several_are_prepared_then_finished_in_order() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    let digest = manager.diff(&target, &[]).unwrap().digest;
    let request = CommitRequest { digest: Some(digest.clone()), ..CommitRequest::default() };
    let done = manager.commit(&target, &request, &CommitRules::default()).unwrap();
    assert_eq!(done.digest, digest);
    assert_eq!(
        done.workspaces.iter().map(|(name, r)| (name.as_str(), r.entries.len())).collect::<Vec<_>>(),
        [("x", 1), ("y", 1)]
    );
    assert_eq!((world.content("x"), world.content("y")), ("new".into(), "new".into()));
    let phases: Vec<_> =
        commits(&world).into_iter().filter(|c| !c.contains("ed ") && !c.contains("apply")).collect();
    assert_eq!(phases, ["commit.prepare x", "commit.prepare y", "commit.finish x", "commit.finish y"]);
    assert_eq!(last(&manager, "commit"), ("done".into(), "2 paths committed: 2 modified".into()));
}

#[test]
fn one_named_workspace_of_several_is_committed_alone() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    manager
        .commit(&manager.find("x:y").unwrap(), &CommitRequest::default(), &CommitRules::default())
        .unwrap();
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "new".into()));
}

#[test]
fn a_failure_before_the_decision_aborts_all() {
    for fault in ["commit.prepare y", "commit.prepared y", "commit.prepare x"] {
        let world = World::new();
        let (manager, target) = world.two();
        change_all(&manager, &target);
        world.script.at(fault, Fault::Fail);
        let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
        assert!(matches!(error, Error::Workspace { .. }), "{error}");
        assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()), "{fault}");
        assert_eq!(last(&manager, "commit").0, "aborted");
        manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
        assert_eq!((world.content("x"), world.content("y")), ("new".into(), "new".into()), "{fault}");
    }
}

#[test]
fn a_conflict_in_one_workspace_keeps_all_from_being_committed() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    fs::write(world.resource("y").join("a"), "theirs").unwrap();
    let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert!(matches!(error.root(), Error::Conflict { .. }), "{error}");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "theirs".into()));
}

#[test]
fn another_digest_of_several_aborts_all() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    let reviewed = manager.diff(&target, &[]).unwrap().digest;
    manager.write(&manager.find("x:y").unwrap(), &path("a"), b"later").unwrap();
    let request = CommitRequest { digest: Some(reviewed.clone()), ..CommitRequest::default() };
    match manager.commit(&target, &request, &CommitRules::default()) {
        Err(Error::DigestMismatch { expected, found }) => {
            assert_eq!((expected, found), (reviewed, manager.diff(&target, &[]).unwrap().digest));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.content("x"), "old");
    assert!(commits(&world).ends_with(&["commit.abort y".into(), "commit.abort x".into()]));
}

#[test]
fn an_interrupt_before_the_decision_aborts() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.cancel.cancel();
    let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert!(matches!(error.root(), Error::Cancelled), "{error}");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
}

#[test]
fn an_abort_that_fails_is_repeated_by_recovery() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.prepare y", Fault::Fail);
    world.script.at("commit.abort x", Fault::Fail);
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert_eq!(last(&manager, "commit").0, "running");
    world.manager().recover().unwrap();
    assert_eq!(last(&manager, "commit").0, "aborted");
    assert!(world.manager().recover().unwrap().is_empty());
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
}

#[test]
fn a_failure_after_the_decision_is_finished_by_recovery() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.at("commit.finish x", Fault::Fail);
    let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    let Error::Unfinished { sandbox, source } = &error else { panic!("{error}") };
    assert_eq!(sandbox, "x");
    assert!(matches!(&**source, Error::Workspace { workspace, .. } if workspace == "x"), "{source}");
    assert_eq!(
        (world.content("x"), world.content("y")),
        ("old".into(), "new".into()),
        "y is finished all the same"
    );
    assert_eq!(last(&manager, "commit").0, "decided");
    let recovered = world.manager().recover().unwrap();
    assert!(recovered[0].message.starts_with("finished commit op_"), "{recovered:?}");
    assert_eq!(world.content("x"), "new");
    assert_eq!(last(&manager, "commit").0, "recovered");
}

#[test]
fn a_whole_commit_that_fails_past_its_commit_point_is_rolled_forward() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::Fail);
    let done = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(done.workspaces[0].1.entries.len(), 1);
    assert_eq!(world.content("proj"), "new");
}

#[test]
fn a_whole_commit_that_fails_when_all_is_done_is_done() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.finished", Fault::Fail);
    let done = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(done.workspaces[0].1.entries.len(), 1);
    assert_eq!((world.content("proj"), last(&manager, "commit").0), ("new".into(), "done".into()));
}

#[test]
fn a_whole_commit_that_cannot_be_rolled_forward_now_is_later() {
    let world = World::new();
    let (manager, target) = world.one();
    change_all(&manager, &target);
    world.script.at("commit.apply", Fault::AlwaysFail);
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert_eq!(last(&manager, "commit").0, "running");
    let recovered = world.manager().recover().unwrap();
    assert!(recovered[0].failed && recovered[0].message.contains("commit.apply"), "{recovered:?}");
    assert!(manager.write(&target, &path("a"), b"x").is_err(), "nothing else happens in it before that");
    world.script.calm();
    world.manager().recover().unwrap();
    assert_eq!(world.content("proj"), "new");
    assert_eq!(
        last(&manager, "commit"),
        ("recovered".into(), "1 path committed: 1 modified (after an interruption)".into())
    );
}

#[test]
fn a_failing_strategy_without_phases_is_just_a_failure() {
    let world = World::new();
    let x = world.resource("x");
    let manager = world.manager();
    manager
        .get_or_create_sandbox(&CreateRequest { strategy: Some("none".into()), ..request(&[&x]) })
        .unwrap();
    let target = manager.find("x").unwrap();
    world.script.at("commit.whole", Fault::Fail);
    manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert_eq!(last(&manager, "commit").0, "failed");
}

#[test]
fn a_decision_that_cannot_be_recorded_is_left_to_recovery() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    manager.store.set_busy_timeout(Duration::ZERO);
    let held = Arc::new(std::sync::Mutex::new(None));
    let (slot, home) = (held.clone(), world.home());
    world.script.meanwhile("commit.prepared y", move || {
        let other = rusqlite::Connection::open(home.join("state.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        *slot.lock().unwrap() = Some(other);
    });
    let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    held.lock().unwrap().take();
    assert_eq!(last(&manager, "commit").0, "running");
    assert!(
        !commits(&world).iter().any(|call| call.starts_with("commit.abort")),
        "nothing is aborted on a guess"
    );
    world.manager().recover().unwrap();
    assert_eq!(last(&manager, "commit").0, "aborted");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
}

#[test]
fn a_decision_that_was_withdrawn_is_aborted() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    world.script.meanwhile("commit.prepared y", {
        let home = world.home();
        move || {
            let other = rusqlite::Connection::open(home.join("state.db")).unwrap();
            let refuse = "CREATE TRIGGER full BEFORE UPDATE ON operations WHEN NEW.state = 'decided'
                          BEGIN SELECT RAISE(ABORT, 'disk is full'); END";
            other.execute_batch(refuse).unwrap();
        }
    });
    let error = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap_err();
    assert!(matches!(error, Error::Store { step: "record the decision", .. }), "{error}");
    assert_eq!(last(&manager, "commit").0, "aborted");
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
}

#[test]
fn a_dry_run_goes_as_far_as_the_last_check_and_changes_nothing() {
    let world = World::new();
    let (manager, target) = world.two();
    change_all(&manager, &target);
    let tried = manager.try_commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(tried.digest, manager.diff(&target, &[]).unwrap().digest);
    assert_eq!((world.content("x"), world.content("y")), ("old".into(), "old".into()));
    let expected = ("aborted".into(), "tried, not done: 2 paths committed: 2 modified".into());
    assert_eq!(last(&manager, "commit"), expected);
    let done = manager.commit(&target, &CommitRequest::default(), &CommitRules::default()).unwrap();
    assert_eq!(done.digest, tried.digest);
}
