//! All sandboxes of a plan as one.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::race::all_at_once;
use super::*;
use crate::model::{CommitRequest, Phase};

/// A sandbox over each resource, all of one plan, each with a change.
fn make(world: &World, plan: &str, names: &[&str]) -> Vec<Target> {
    let manager = world.manager();
    let make = |name: &&str| {
        let resource = world.resource(name);
        let made = manager.get_or_create_sandbox(&with_plan(plan, &[&resource])).unwrap().sandbox;
        let target = manager.find(made.id.as_str()).unwrap();
        change_all(&manager, &target);
        target
    };
    names.iter().map(make).collect()
}

fn plan(name: &str) -> PlanId {
    PlanId::from_string(name)
}

fn commit(manager: &SandboxManager, name: &str) -> Result<PlanCommit> {
    manager.commit_plan(&plan(name), &CommitRequest::default(), &CommitRules::default())
}

#[test]
fn all_sandboxes_of_a_plan_are_committed_together_and_taken_back_one_by_one() {
    let world = World::new();
    let targets = make(&world, "p", &["x", "y"]);
    make(&world, "q", &["z"]);
    let manager = world.manager();
    let diff = manager.diff_plan(&plan("p")).unwrap();
    assert_eq!(diff.sandboxes.iter().map(|(s, _)| s.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    let request = CommitRequest { digest: Some(diff.digest), ..CommitRequest::default() };
    let done = manager.commit_plan(&plan("p"), &request, &CommitRules::default()).unwrap();
    assert_eq!(["x", "y", "z"].map(|name| world.content(name)), ["new", "new", "old"]);
    for ((sandbox, commit), (_, diff)) in done.sandboxes.iter().zip(&diff.sandboxes) {
        let logged = manager.find_operation(commit.op_id.as_str()).unwrap();
        assert_eq!((&logged.sandbox_id, logged.state.as_str()), (&sandbox.id, "done"));
        assert_eq!(logged.details["digest"], diff.digest.as_str(), "its own, as if committed alone");
    }
    manager.undo(&manager.last_commit(Some(&targets[0].sandbox)).unwrap()).unwrap();
    assert_eq!(["x", "y"].map(|name| world.content(name)), ["old", "new"]);
    assert_eq!(commit(&manager, "p").unwrap().sandboxes[0].1.workspaces[0].1.entries.len(), 1);
    assert_eq!(["x", "y"].map(|name| world.content(name)), ["new", "new"]);
}

#[test]
fn a_conflict_in_one_sandbox_keeps_all_from_being_committed() {
    let world = World::new();
    make(&world, "p", &["x", "y"]);
    fs::write(world.resource("y").join("a"), "theirs").unwrap();
    let error = commit(&world.manager(), "p").unwrap_err();
    assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace == "y:y"), "{error}");
    assert!(matches!(error.root(), Error::Conflict { .. }), "{error}");
    assert_eq!(["x", "y"].map(|name| world.content(name)), ["old", "theirs"]);
}

#[test]
fn a_plan_is_rolled_back_as_far_as_it_can_be() {
    let world = World::new();
    make(&world, "p", &["x", "y", "z"]);
    let manager = world.manager();
    world.script.at("rollback y", Fault::Fail);
    let error = manager.rollback_plan(&plan("p")).unwrap_err();
    assert!(matches!(&error, Error::Workspace { workspace, .. } if workspace == "y"), "{error}");
    let pending = |manager: &SandboxManager| -> Vec<usize> {
        let diff = manager.diff_plan(&plan("p")).unwrap();
        diff.sandboxes.iter().map(|(_, diff)| diff.workspaces[0].entries.len()).collect()
    };
    assert_eq!(pending(&manager), [0, 1, 0]);
    let results = manager.rollback_plan(&plan("p")).unwrap();
    assert_eq!(results.iter().map(|(_, r)| r[0].1.restored_files).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(pending(&manager), [0, 0, 0]);
}

#[test]
fn a_plan_without_open_sandboxes_is_not_found_and_a_near_one_is_named() {
    let world = World::new();
    make(&world, "release-7", &["x"]);
    let manager = world.manager();
    let error = commit(&manager, "release-8").unwrap_err();
    let Error::NotFound { what: "open sandbox of plan", name, similar } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), similar.as_slice()), ("release-8", &["release-7".to_owned()][..]));
    manager.destroy(&manager.find("x").unwrap(), Uncommitted::Discard).unwrap();
    assert!(matches!(manager.rollback_plan(&plan("release-7")), Err(Error::NotFound { .. })));
    assert!(matches!(manager.diff_plan(&plan("release-7")), Err(Error::NotFound { .. })));
}

#[test]
fn requests_that_a_plan_cannot_meet_touch_nothing() {
    let world = World::new();
    make(&world, "p", &["x", "y"]);
    let manager = world.manager();
    let phase = CommitRequest { phase: Phase::Prepare, ..CommitRequest::default() };
    let paths = CommitRequest { paths: vec![path("a")], ..CommitRequest::default() };
    for request in [phase, paths] {
        let refused = manager.commit_plan(&plan("p"), &request, &CommitRules::default());
        assert!(matches!(refused, Err(Error::Usage { .. })), "{refused:?}");
    }
    let z = world.resource("z");
    let by_none = CreateRequest { strategy: Some("none".into()), ..with_plan("p", &[&z]) };
    manager.get_or_create_sandbox(&by_none).unwrap();
    assert!(matches!(commit(&manager, "p"), Err(Error::Unsupported { .. })));
    assert_eq!(world.content("x"), "old");
}

#[test]
fn nobody_commits_a_plan_without_being_allowed_to() {
    let world = World::new();
    make(&world, "p", &["x", "y"]);
    let parts = ManagerParts { permissions: Arc::new(AllBut("commit")), ..world.parts() };
    let error = commit(&SandboxManager::open(parts).unwrap(), "p").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[test]
fn two_plans_over_the_same_resources_take_turns_whatever_their_order() {
    for _ in 0..4 {
        let world = World::new();
        make(&world, "p", &["x", "y", "z"]);
        make(&world, "q", &["z", "y", "x"]);
        let done = all_at_once(&world, 2, |number, manager| commit(&manager, ["p", "q"][number]));
        assert!(done.iter().any(Result::is_ok), "{done:?}");
        assert_eq!(["x", "y", "z"].map(|name| world.content(name)), ["new"; 3]);
    }
}

#[test]
fn resources_are_prepared_in_the_same_order_by_every_plan() {
    let world = World::new();
    make(&world, "p", &["z", "x", "y"]);
    commit(&world.manager(), "p").unwrap();
    let calls = world.script.calls();
    let prepared: Vec<_> = calls.iter().filter_map(|call| call.strip_prefix("commit.prepare ")).collect();
    assert_eq!(prepared, ["x", "y", "z"]);
}

#[test]
fn a_plan_committed_twice_at_once_is_committed_once() {
    let world = World::new();
    make(&world, "p", &["x", "y"]);
    let done = all_at_once(&world, 4, |_, manager| {
        manager.recover().unwrap();
        let done = commit(&manager, "p").unwrap();
        done.sandboxes.iter().map(|(_, commit)| commit.workspaces[0].1.entries.len()).sum::<usize>()
    });
    assert_eq!(done.iter().sum::<usize>(), 2, "{done:?}");
}

#[test]
fn sandboxes_may_come_and_go_while_a_plan_is_committed() {
    let world = World::new();
    make(&world, "p", &["x", "y"]);
    let z = world.resource("z");
    all_at_once(&world, 3, |number, manager| {
        for _ in 0..5 {
            if number < 2 {
                commit(&manager, "p").unwrap();
            } else {
                manager.get_or_create_sandbox(&with_plan("p", &[&z])).unwrap();
                manager.destroy(&manager.find("z").unwrap(), Uncommitted::Discard).unwrap();
            }
        }
    });
    assert_eq!(world.content("y"), "new");
}

/// Permits everything. Where it is asked about one sandbox, which is between looking at its plan and locking it, another one of
/// that plan begins, or ends if it is there; so often and no more.
struct Restless {
    manager: SandboxManager,
    about: String,
    other: CreateRequest,
    left: AtomicUsize,
}

impl Restless {
    fn change(&self) {
        let found = self.manager.get_or_create_sandbox(&self.other).unwrap();
        if !found.created {
            let target = self.manager.find(found.sandbox.id.as_str()).unwrap();
            self.manager.destroy(&target, Uncommitted::Discard).unwrap();
        }
    }
}

impl PermissionService for Restless {
    fn decide(&self, principal: &str, action: &str, scope: &str) -> AccessResult {
        let one_less = |left: usize| left.checked_sub(1);
        let is_due = || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        if scope == self.about && is_due() {
            self.change();
        }
        LocalPermissions.decide(principal, action, scope)
    }
}

/// Commits a plan over `x` while another sandbox, over `z`, comes and goes so often before it can be locked.
fn commit_among(world: &World, changes: usize, lock_wait: Duration) -> Result<PlanCommit> {
    let targets = make(world, "p", &["x"]);
    let restless = Restless {
        manager: world.manager(),
        about: targets[0].sandbox.id.to_string(),
        other: with_plan("p", &[&world.resource("z")]),
        left: AtomicUsize::new(changes),
    };
    let mut parts = ManagerParts { permissions: Arc::new(restless), ..world.parts() };
    parts.settings.lock_wait = lock_wait;
    commit(&SandboxManager::open(parts).unwrap(), "p")
}

#[test]
fn what_comes_and_goes_is_waited_for_as_a_lock_is_and_a_few_times_in_any_case() {
    for (changes, lock_wait) in [(21, Duration::from_secs(60)), (3, Duration::ZERO)] {
        let world = World::new();
        let done = commit_among(&world, changes, lock_wait).unwrap();
        assert_eq!(done.sandboxes.len(), 2, "all that are there in the end");
        assert_eq!(world.content("x"), "new");
    }
}

#[test]
fn a_plan_whose_sandboxes_never_stay_is_busy_in_the_end() {
    let world = World::new();
    let error = commit_among(&world, usize::MAX, Duration::from_millis(50)).unwrap_err();
    assert!(
        matches!(&error, Error::Busy { holder: Some(why), .. } if why.contains("come and go")),
        "{error}"
    );
    assert_eq!(world.content("x"), "old");
}
