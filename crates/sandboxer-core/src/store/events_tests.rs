//! One event for each transition, none without one, in order; subscribers who only ever get further.
#![allow(clippy::unwrap_used)]

use jiff::{SignedDuration, Timestamp};

use super::super::{Naming, OperationEnd, Store};
use crate::environment::LifecycleEvent;
use crate::model::{OpId, PlanId, Resource, SandboxId, SandboxRef};
use crate::service::{Consumer, Operation, Sandbox, SandboxState, Workspace};

fn sandbox(name: &str) -> Sandbox {
    let plan_id = PlanId::generate();
    let resource = Resource::at_path("fs-directory", std::path::Path::new("/x"));
    let sandbox_ref = SandboxRef::new(plan_id.clone(), resource.id.clone(), "copy");
    let workspace = Workspace {
        name: "x".into(),
        resource,
        requested_strategy: "copy".into(),
        reason: "why".into(),
        sandbox_ref,
    };
    Sandbox {
        id: SandboxId::generate(),
        name: name.to_owned(),
        plan_id,
        state: SandboxState::Provisioning,
        consumer: Consumer { actor_type: "agt".into(), project: "shop".into() },
        principal: None,
        created_at: super::now(),
        expires_at: None,
        environment: None,
        workspaces: vec![workspace],
    }
}

fn operation(sandbox: &Sandbox) -> Operation {
    Operation {
        id: OpId::generate(),
        sandbox_id: sandbox.id.clone(),
        kind: "create".into(),
        state: "running".into(),
        started_at: super::now(),
        finished_at: None,
        summary: String::new(),
        details: serde_json::json!({}),
    }
}

fn end(operation: &Operation) -> OperationEnd {
    OperationEnd {
        id: operation.id.clone(),
        state: "done",
        summary: String::new(),
        details: serde_json::json!({}),
    }
}

/// A store with one sandbox that has been asked for.
fn reserved() -> (tempfile::TempDir, Store, Sandbox, Operation) {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let (sandbox, operation) = add(&store, "x");
    (temp, store, sandbox, operation)
}

fn add(store: &Store, name: &str) -> (Sandbox, Operation) {
    let sandbox = sandbox(name);
    let operation = operation(&sandbox);
    store.reserve(&sandbox, &Naming::Exact(name.to_owned()), &operation, &|_| false).unwrap();
    (sandbox, operation)
}

fn kinds(store: &Store, sandbox: &Sandbox) -> Vec<String> {
    store.events_after(0, Some(&sandbox.id), 100).unwrap().into_iter().map(|event| event.kind).collect()
}

#[test]
fn a_whole_life_is_told_once_each() {
    let (_temp, store, x, made) = reserved();
    assert_eq!(kinds(&store, &x), ["requested", "provisioning"]);
    store.publish(&x, &end(&made)).unwrap();
    store.set_active(&x.id).unwrap();
    store.set_active(&x.id).unwrap();
    let parking = operation(&x);
    store.begin(&parking).unwrap();
    store.park(&x.id, "parked", 1, &end(&parking)).unwrap();
    store.unpark(&[], &x, &Naming::Exact("x".into())).unwrap();
    store.begin_in_state(&x.id, SandboxState::Destroying, &operation(&x)).unwrap();
    store.set_state(&x.id, SandboxState::Destroying).unwrap();
    store.close(&x.id, SandboxState::Destroyed).unwrap();
    store.close(&x.id, SandboxState::Destroyed).unwrap();
    let life = ["requested", "provisioning", "ready", "active", "parked", "ready", "destroying", "destroyed"];
    assert_eq!(kinds(&store, &x), life);
}

#[test]
fn a_failure_is_told_and_a_transition_of_nobody_is_not() {
    let (_temp, store, x, _) = reserved();
    store.close(&x.id, SandboxState::Failed).unwrap();
    assert_eq!(kinds(&store, &x), ["requested", "provisioning", "failed"]);
    let last = store.last_event().unwrap();
    store.set_state(&SandboxId::generate(), SandboxState::Ready).unwrap();
    store.set_active(&x.id).unwrap();
    assert_eq!(store.last_event().unwrap(), last);
    assert!(store.tell(&SandboxId::generate(), "lost", None).is_err(), "nobody's event");
}

#[test]
fn what_was_refused_or_undone_leaves_no_event() {
    let (_temp, store, x, _) = reserved();
    let last = store.last_event().unwrap();
    let second = Sandbox { id: SandboxId::generate(), ..x.clone() };
    let naming = Naming::Exact("x".into());
    store.reserve(&second, &naming, &operation(&second), &|_| false).unwrap();
    let clash = Naming::Exact("y".into());
    assert!(
        store.reserve(&second, &clash, &operation(&second), &|_| false).is_err(),
        "same plan and resource"
    );
    assert_eq!(store.last_event().unwrap(), last);
    assert!(store.events_after(0, Some(&second.id), 10).unwrap().is_empty());
}

#[test]
fn an_event_says_whose_and_by_whom() {
    let (_temp, store, x, _) = reserved();
    store.tell(&x.id, "extended", Some("by an hour")).unwrap();
    let event = store.events_after(0, None, 100).unwrap().pop().unwrap();
    assert_eq!(
        (event.seq, event.kind.as_str(), event.reason.as_deref()),
        (3, "extended", Some("by an hour"))
    );
    assert_eq!((event.sandbox_id, event.name.as_str()), (x.id, "x"));
    assert_eq!(event.consumer, x.consumer);
    assert_eq!(
        (event.profile_id.as_str(), event.extension_id.as_str(), event.host.as_str()),
        ("profile.local", "ext.local", "local")
    );
    assert!(event.id.starts_with("evt_"));
}

#[test]
fn order_is_that_of_the_transitions() {
    let (_temp, store, x, _) = reserved();
    let (y, _) = add(&store, "y");
    store.close(&x.id, SandboxState::Failed).unwrap();
    let all = store.events_after(0, None, 100).unwrap();
    let told: Vec<(u64, &SandboxId)> = all.iter().map(|event| (event.seq, &event.sandbox_id)).collect();
    assert_eq!(told, [(1, &x.id), (2, &x.id), (3, &y.id), (4, &y.id), (5, &x.id)]);
    assert_eq!(store.events_after(2, None, 2).unwrap(), all[2..4]);
    assert_eq!(store.latest_events(None, 2).unwrap(), all[3..]);
    assert_eq!(store.latest_events(Some(&y.id), 1).unwrap(), all[3..4]);
    let (count, since) = store.waiting_after(3).unwrap();
    assert_eq!((count, since), (2, Some(all[3].at)));
    assert_eq!(store.waiting_after(5).unwrap(), (0, None));
}

#[test]
fn who_has_heard_something_has_heard_it() {
    let (temp, store, ..) = reserved();
    assert_eq!(store.heard("hub").unwrap(), 0);
    store.set_heard("hub", 2).unwrap();
    store.set_heard("hub", 1).unwrap();
    assert_eq!(store.heard("hub").unwrap(), 2);
    assert_eq!(store.heard("another").unwrap(), 0);
    assert_eq!(Store::open(temp.path()).unwrap().heard("hub").unwrap(), 2);
}

#[test]
fn only_what_the_hub_has_heard_is_forgotten_and_no_place_is_given_twice() {
    let (_temp, store, x, _) = reserved();
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    let forget = |before| store.forget_events(before, Some("hub")).unwrap();
    assert_eq!(forget(later), 0, "the hub has heard nothing");
    store.set_heard("hub", 1).unwrap();
    assert_eq!(forget(Timestamp::UNIX_EPOCH), 0, "nothing is that old");
    assert_eq!(forget(later), 1);
    assert_eq!(store.forget_events(later, None).unwrap(), 1, "there is no hub any more");
    store.set_heard("hub", 2).unwrap();
    assert_eq!(store.last_event().unwrap(), 0);
    store.tell(&x.id, "lost", None).unwrap();
    let left: Vec<LifecycleEvent> = store.events_after(store.heard("hub").unwrap(), None, 9).unwrap();
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [3]);
}

#[test]
fn an_adopted_sandbox_is_told_of() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let found = Sandbox { state: SandboxState::Ready, ..sandbox("found") };
    store.adopt(&found, &[], 0).unwrap().unwrap();
    assert!(store.adopt(&found, &[], 0).unwrap().is_none());
    let told = store.events_after(0, None, 9).unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].kind.as_str(), told[0].reason.as_deref()),
        ("ready", Some("found on disk and adopted"))
    );
}

#[test]
fn an_older_state_keeps_its_sandboxes_and_tells_of_what_comes() {
    let temp = tempfile::tempdir().unwrap();
    super::super::schema::make_format(&temp.path().join("state.db"), 2).unwrap();
    let older = rusqlite::Connection::open(temp.path().join("state.db")).unwrap();
    let x = sandbox("x");
    older
        .execute(
            "INSERT INTO sandboxes (id, name, plan_id, state, consumer, created_at) VALUES (?1, 'x', ?2, 'ready', ?3, 1)",
            [x.id.as_str(), x.plan_id.as_str(), &serde_json::to_string(&x.consumer).unwrap()],
        )
        .unwrap();
    let (resource, made) = (&x.workspaces[0].resource, &x.workspaces[0].sandbox_ref);
    older
        .execute(
            "INSERT INTO workspaces (sandbox_id, position, name, plan_id, resource_id, resource, requested_strategy, reason, ref)
             VALUES (?1, 0, 'x', ?2, ?3, ?4, 'copy', 'why', ?5)",
            [
                x.id.as_str(),
                x.plan_id.as_str(),
                resource.id.as_str(),
                &serde_json::to_string(resource).unwrap(),
                &serde_json::to_string(made).unwrap(),
            ],
        )
        .unwrap();
    drop(older);
    let store = Store::open(temp.path()).unwrap();
    let kept = store.sandboxes(false).unwrap();
    assert_eq!((kept.len(), &kept[0].id, kept[0].environment.is_none()), (1, &x.id, true));
    assert_eq!(store.last_event().unwrap(), 0);
    store.set_active(&x.id).unwrap();
    assert_eq!(kinds(&store, &x), ["active"]);
}
