//! Opening, formats, damage, and processes that open at the same time.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;

use super::*;
use crate::model::{OpId, PlanId, Resource, SandboxId, SandboxRef};
use crate::service::{Consumer, Operation, Sandbox, SandboxState, Workspace};

pub(super) fn sandbox(name: &str) -> Sandbox {
    let plan_id = PlanId::generate();
    let resource = Resource::at_path("fs-directory", Path::new("/x"));
    let sandbox_ref =
        SandboxRef::new(plan_id.clone(), resource.id.clone(), "copy").with("dir", "/scratch/ws_1");
    Sandbox {
        id: SandboxId::generate(),
        name: name.to_owned(),
        plan_id,
        state: SandboxState::Ready,
        consumer: Consumer { actor_type: "adm".into(), project: "p".into() },
        principal: None,
        created_at: now(),
        expires_at: Some(now()),
        environment: None,
        workspaces: vec![Workspace {
            name: "x".into(),
            resource,
            requested_strategy: "copy".into(),
            reason: "why".into(),
            sandbox_ref,
        }],
    }
}

fn operation(sandbox: &Sandbox) -> Operation {
    Operation {
        id: OpId::generate(),
        sandbox_id: sandbox.id.clone(),
        kind: "create".into(),
        state: "running".into(),
        started_at: now(),
        finished_at: None,
        summary: String::new(),
        details: serde_json::json!({"n": 1}),
    }
}

pub(super) fn add(store: &Store, sandbox: &Sandbox) -> Reservation {
    let naming = Naming::Exact(sandbox.name.clone());
    store.reserve(sandbox, &naming, &operation(sandbox), &|_| false).unwrap()
}

/// A state directory with one sandbox `x` in it.
fn filled() -> (tempfile::TempDir, Sandbox) {
    let temp = tempfile::tempdir().unwrap();
    let sandbox = sandbox("x");
    add(&Store::open(temp.path()).unwrap(), &sandbox);
    (temp, sandbox)
}

fn open_error(home: &Path) -> Error {
    Store::open(home).and_then(|store| store.sandboxes(true)).expect_err("it opened")
}

#[test]
fn a_state_that_is_not_there_reads_as_empty_and_is_made_private_by_the_first_write() {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().join("deep/home");
    let store = Store::open(&home).unwrap();
    assert!(store.sandboxes(true).unwrap().is_empty());
    assert!(store.unfinished().unwrap().is_empty());
    assert_eq!(store.last_checkpoint(&SandboxId::generate()).unwrap(), 0);
    assert!(!temp.path().join("deep").exists());
    add(&store, &sandbox("x"));
    assert_eq!(std::fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(store.path(), home.join("state.db"));
}

#[test]
fn a_store_opened_before_the_database_was_made_sees_it() {
    let temp = tempfile::tempdir().unwrap();
    let early = Store::open(temp.path()).unwrap();
    let x = sandbox("x");
    add(&Store::open(temp.path()).unwrap(), &x);
    assert_eq!(early.sandboxes(false).unwrap(), [x]);
}

#[test]
fn values_survive_the_round_trip() {
    let (temp, x) = filled();
    let store = Store::open(temp.path()).unwrap();
    assert_eq!(store.sandbox(&x.id).unwrap(), Some(x.clone()));
    let logged = store.operations(Some(&x.id), 10).unwrap();
    assert_eq!(logged[0].details["n"], 1);
    assert_eq!(store.unfinished_operations(&x.id).unwrap(), logged);
    assert_eq!(store.unfinished().unwrap(), std::slice::from_ref(&x.id));
    for state in [
        SandboxState::Requested,
        SandboxState::Provisioning,
        SandboxState::Ready,
        SandboxState::Active,
        SandboxState::Destroying,
        SandboxState::Destroyed,
        SandboxState::Failed,
    ] {
        store.set_state(&x.id, state).unwrap();
        assert_eq!(store.sandbox(&x.id).unwrap().unwrap().state, state);
    }
}

#[test]
fn the_database_itself_keeps_one_live_workspace_per_plan_and_resource() {
    let (temp, x) = filled();
    let store = Store::open(temp.path()).unwrap();
    let second = Sandbox { id: SandboxId::generate(), name: "y".into(), ..x.clone() };
    let naming = Naming::Exact("y".into());
    let error = store.reserve(&second, &naming, &operation(&second), &|_| false).unwrap_err();
    assert!(matches!(error, Error::Store { step: "register a sandbox", .. }), "{error}");
    assert_eq!(store.sandboxes(true).unwrap().len(), 1, "the transaction was undone");
    store.close(&x.id, SandboxState::Destroyed).unwrap();
    store.reserve(&second, &naming, &operation(&second), &|_| false).unwrap();
}

#[test]
fn a_derived_name_takes_the_first_free_number() {
    let (temp, _) = filled();
    let store = Store::open(temp.path()).unwrap();
    let reserve = |stem: &str| {
        let new = sandbox(stem);
        store.reserve(&new, &Naming::Derived(stem.into()), &operation(&new), &|_| false).unwrap()
    };
    assert_eq!(reserve("x"), Reservation::Made("x-2".into()));
    assert_eq!(reserve("x"), Reservation::Made("x-3".into()));
    assert_eq!(reserve("x-2"), Reservation::Made("x-2-2".into()));
    assert_eq!(reserve("xx"), Reservation::Made("xx".into()));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let (temp, _) = filled();
    let file = temp.path().join("state.db");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", FORMAT + 1).unwrap();
    let error = open_error(temp.path());
    assert!(
        matches!(error, Error::NewerState { found, supported, .. } if found == FORMAT + 1 && supported == FORMAT)
    );
    let version: u32 =
        Connection::open(&file).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, FORMAT + 1);
}

/// Has everything in the database file itself.
fn fold(file: &Path) {
    let connection = Connection::open(file).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn a_log_without_its_database_is_nobodys() {
    let (temp, _) = filled();
    assert!(temp.path().join("state.db-wal").exists());
    std::fs::remove_file(temp.path().join("state.db")).unwrap();
    let store = Store::open(temp.path()).unwrap();
    assert!(store.sandboxes(true).unwrap().is_empty());
    let new = sandbox("y");
    store.reserve(&new, &Naming::Derived("y".into()), &operation(&new), &|_| false).unwrap();
    assert_eq!(store.sandboxes(true).unwrap().len(), 1, "what the old log holds does not come back");
}

#[test]
fn damage_is_told_with_the_file_and_the_way_out() {
    type Damage = fn(&Path);
    let breaks: [(&str, Damage); 4] = [
        ("text", |file| std::fs::write(file, "this is no database, whatever it is called").unwrap()),
        ("torn", |file| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, [&bytes[..100], &vec![0xa5; bytes.len() - 100]].concat()).unwrap();
        }),
        ("foreign", |file| {
            std::fs::remove_file(file).unwrap();
            Connection::open(file).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        }),
        ("incomplete", |file| {
            Connection::open(file).unwrap().execute_batch("DROP TABLE workspaces").unwrap();
        }),
    ];
    for (what, damage) in breaks {
        let (temp, _) = filled();
        let file = temp.path().join("state.db");
        // The log would make it good again.
        for log in ["state.db-wal", "state.db-shm"] {
            fold(&file);
            let _ = std::fs::remove_file(temp.path().join(log));
        }
        damage(&file);
        match open_error(temp.path()) {
            Error::Corrupt { path, reason } => {
                assert_eq!(path, file, "{what}");
                assert!(reason.contains("sandbox adopt"), "{what}: {reason}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn values_that_make_no_sense_are_damage_too() {
    for change in [
        "UPDATE sandboxes SET state = 'asleep'",
        "UPDATE sandboxes SET consumer = '{'",
        "UPDATE sandboxes SET created_at = 9223372036854775807",
        "UPDATE workspaces SET ref = '[]'",
    ] {
        let (temp, _) = filled();
        Connection::open(temp.path().join("state.db")).unwrap().execute_batch(change).unwrap();
        let error = open_error(temp.path());
        assert!(matches!(error, Error::Corrupt { .. }), "{change}: {error:?}");
    }
}

#[test]
fn an_empty_file_is_an_empty_state() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("state.db"), "").unwrap();
    let store = Store::open(temp.path()).unwrap();
    assert!(store.sandboxes(true).unwrap().is_empty());
    add(&store, &sandbox("x"));
    assert_eq!(Store::open(temp.path()).unwrap().sandboxes(true).unwrap().len(), 1);
}

#[test]
fn a_place_where_nothing_can_be_made_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(Store::open(&file.join("home")), Err(Error::Io { step: "look for", .. })));
    assert!(matches!(make_private_dir(&file.join("home")), Err(Error::Io { step: "create directory", .. })));
    std::fs::create_dir(temp.path().join("state.db")).unwrap();
    assert!(matches!(Store::open(temp.path()), Err(Error::Store { .. })));
}

#[test]
fn the_settings_that_durability_stands_on_hold() {
    let (temp, _) = filled();
    let store = Store::open(temp.path()).unwrap();
    let guard = store.existing().unwrap();
    let connection = guard.as_ref().unwrap();
    let text: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
    assert_eq!((text.as_str(), synchronous), ("wal", 2));
}

#[test]
fn the_question_that_every_command_asks_is_answered_by_indexes() {
    let (temp, _) = filled();
    let connection = Connection::open(temp.path().join("state.db")).unwrap();
    let explain = |sql: &str| {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
    };
    let plan = explain(operations::UNFINISHED);
    assert!(plan.contains("operations_unfinished") && plan.contains("sandboxes_unfinished"), "{plan}");
    let expired =
        ["?1", "?2", "?3"].iter().fold(sandboxes::expired_sql(), |sql, value| sql.replace(value, "7"));
    let plan = explain(&expired);
    assert!(plan.contains("sandboxes_expiring ") && plan.contains("sandboxes_expiring_in_boot"), "{plan}");
    assert!(!plan.contains("SCAN w") && !plan.contains("SCAN s"), "{plan}");
    let plan = explain("SELECT data FROM events WHERE sandbox_id = 'x' AND seq > 1 ORDER BY seq LIMIT 9");
    assert!(plan.contains("events_by_sandbox") && !plan.contains("SCAN"), "{plan}");
}

#[test]
fn many_may_make_the_database_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().join("home");
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (home, barrier) = (&home, &barrier);
            scope.spawn(move || {
                let store = Store::open(home).unwrap();
                barrier.wait();
                store.sandboxes(true).unwrap();
                assert_eq!(
                    add(&store, &sandbox(&format!("s{number}"))),
                    Reservation::Made(format!("s{number}"))
                );
            });
        }
    });
    assert_eq!(Store::open(&home).unwrap().sandboxes(false).unwrap().len(), 8);
}

#[test]
fn a_database_that_stays_busy_is_busy_and_not_damaged() {
    let (temp, x) = filled();
    let store = Store::open(temp.path()).unwrap();
    store.set_busy_timeout(Duration::ZERO);
    let mut other = Connection::open(temp.path().join("state.db")).unwrap();
    let _held = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    assert!(matches!(store.set_state(&x.id, SandboxState::Active), Err(Error::Busy { .. })));
    assert_eq!(store.sandboxes(true).unwrap().len(), 1, "readers go on");
}

#[test]
fn what_need_not_be_flushed_spares_no_other_threads_writes() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let how = |t: &Transaction<'_>| t.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0));
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            (0..200).for_each(|_| assert_eq!(store.write_unflushed("look", how).unwrap(), 1));
        });
        barrier.wait();
        (0..200).for_each(|_| assert_eq!(store.write("look", how).unwrap(), 2));
    });
}
