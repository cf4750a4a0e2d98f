//! The process that holds a transaction is killed.

use sandboxer_core::Error;
use sandboxer_core::model::Phase;

use super::{Fixture, Sandbox, in_words, until};

fn killed(fixture: &Fixture) -> Sandbox<'_> {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    sandbox.kill_keeper();
    sandbox
}

pub(super) fn a_killed_keeper_is_told(fixture: &mut Fixture) {
    let sandbox = killed(fixture);
    let status: serde_json::Value = serde_json::from_str(&sandbox.read("status").unwrap()).unwrap();
    assert!(status["lost"]["reason"].is_string(), "{status}");
    let refused = [
        sandbox.read("tables").map(drop),
        sandbox.write("exec", "DELETE FROM users").map(drop),
        sandbox.strategy.diff(&sandbox.reference).map(drop),
        sandbox.commit().map(drop),
        sandbox.restore("c1"),
        sandbox.phase("op_1", Phase::Prepare).map(drop),
    ];
    for refused in refused {
        match refused {
            Err(Error::Refused { reason, hint }) => {
                assert!(
                    reason.contains("lost") && reason.contains("nothing of it was committed"),
                    "{reason}"
                );
                assert!(hint.unwrap().contains("rollback"));
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn nothing_leaks(fixture: &mut Fixture) {
    let sandbox = killed(fixture);
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
    // The server notices that the connection is closed, and lets go of the rows.
    until("production can write", || {
        fixture.production.try_run("UPDATE users SET name = 'free' WHERE id = 1").is_ok()
    });
    assert_eq!(sandbox.names_outside(), "free,bob,cy");
}

pub(super) fn rollback_begins_anew(fixture: &mut Fixture) {
    let sandbox = killed(fixture);
    until("production can write", || {
        fixture.production.try_run("UPDATE users SET age = 0 WHERE id = 1").is_ok()
    });
    sandbox.rollback();
    assert_eq!(sandbox.names(), "ann,bob,cy");
    assert!(sandbox.diff().entries.is_empty());
    sandbox.exec("UPDATE users SET name = 'second' WHERE id = 1");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "second,bob,cy");
}

pub(super) fn cleanup_after_a_loss(fixture: &mut Fixture) {
    let sandbox = killed(fixture);
    let dir = sandbox.dir();
    sandbox.strategy.cleanup(&sandbox.reference).unwrap();
    assert!(!dir.exists());
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
}

/// Whether a commit that was prepared outlives its keeper.
fn prepared_and_killed(fixture: &Fixture) -> (Sandbox<'_>, bool) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    let prepared = sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.kill_keeper();
    (sandbox, prepared.at_decision.is_none())
}

pub(super) fn killed_after_prepare_is_finished(fixture: &mut Fixture) {
    let (sandbox, is_durable) = prepared_and_killed(fixture);
    let finished = sandbox.elsewhere().phase("op_1", Phase::Finish);
    assert_eq!(finished.is_ok(), is_durable, "{finished:?}");
    assert_eq!(sandbox.names_outside(), if is_durable { "eve,bob,cy" } else { "ann,bob,cy" });
    if is_durable {
        assert_eq!(sandbox.phase("op_1", Phase::Finish).unwrap().entries.len(), 1);
        assert!(matches!(sandbox.phase("op_1", Phase::Abort), Err(Error::AlreadyDecided { .. })));
    }
    sandbox.rollback();
    assert_eq!(sandbox.names(), sandbox.names_outside());
}

pub(super) fn killed_after_prepare_is_aborted(fixture: &mut Fixture) {
    let (sandbox, _) = prepared_and_killed(fixture);
    sandbox.elsewhere().phase("op_1", Phase::Abort).unwrap();
    assert_eq!(fixture.production.prepared(), "");
    until("production can write", || {
        fixture.production.try_run("UPDATE users SET name = 'free' WHERE id = 1").is_ok()
    });
    sandbox.rollback();
    assert_eq!(sandbox.names(), "free,bob,cy");
}

pub(super) fn killed_after_a_commit(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.phase("op_1", Phase::Finish).unwrap();
    sandbox.exec("UPDATE users SET name = 'never' WHERE id = 2");
    sandbox.kill_keeper();
    assert_eq!(sandbox.phase("op_1", Phase::Finish).unwrap().entries.len(), 1);
    assert!(matches!(sandbox.phase("op_1", Phase::Abort), Err(Error::AlreadyDecided { .. })));
    let error = in_words(&sandbox.read("tables").unwrap_err());
    assert!(error.contains("lost"), "{error}");
    sandbox.rollback();
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("eve,bob,cy".into(), "eve,bob,cy".into()));
}
