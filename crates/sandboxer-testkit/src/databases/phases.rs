//! Commits in two phases.

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, OpId, Phase};

use super::{Fixture, Sandbox};

const OLD: &str = "ann,bob,cy";
const NEW: &str = "eve,cy";

fn changed(fixture: &Fixture) -> Sandbox<'_> {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1; DELETE FROM users WHERE id = 2");
    sandbox
}

pub(super) fn prepared_is_not_seen(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    let prepared = sandbox.phase("op_1", Phase::Prepare).unwrap();
    assert_eq!(prepared.entries.len(), 2);
    assert_eq!(sandbox.names_outside(), OLD);
    sandbox.phase("op_1", Phase::Abort).unwrap();
}

pub(super) fn finished_equals_whole(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    let seen = sandbox.diff().digest;
    assert_eq!(sandbox.phase("op_1", Phase::Prepare).unwrap().digest, seen);
    let result = sandbox.phase("op_1", Phase::Finish).unwrap();
    assert_eq!((result.digest, result.entries.len()), (seen, 2));
    assert_eq!(sandbox.names_outside(), NEW);
    assert_eq!(sandbox.names(), NEW);
    assert!(sandbox.diff().entries.is_empty());
    sandbox.exec("DELETE FROM users WHERE id = 3");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "eve");
}

pub(super) fn finish_twice(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    let first = sandbox.phase("op_1", Phase::Finish).unwrap();
    sandbox.exec("DELETE FROM users WHERE id = 3");
    let again = sandbox.elsewhere().phase("op_1", Phase::Finish).unwrap();
    assert_eq!(again.digest, first.digest);
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("eve".into(), NEW.into()));
}

pub(super) fn finish_of_nothing(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    assert!(sandbox.phase("op_1", Phase::Finish).unwrap().entries.is_empty());
    assert_eq!((sandbox.names(), sandbox.names_outside()), (NEW.into(), OLD.into()));
}

pub(super) fn abort_leaves_production_alone(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.phase("op_1", Phase::Abort).unwrap();
    assert_eq!(sandbox.names_outside(), OLD);
    let names = sandbox.names();
    if fixture.capabilities().prepare_ends {
        assert!(names == OLD || names == NEW, "half of the work is there: {names}");
    } else {
        assert_eq!(names, NEW);
    }
    sandbox.phase("op_1", Phase::Abort).unwrap();
}

pub(super) fn abort_of_nothing_leaves_the_work(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Abort).unwrap();
    sandbox.elsewhere().phase("op_2", Phase::Abort).unwrap();
    assert_eq!((sandbox.names(), sandbox.names_outside()), (NEW.into(), OLD.into()));
}

pub(super) fn abort_of_what_is_decided_is_refused(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.phase("op_1", Phase::Finish).unwrap();
    for sandbox in [&sandbox, &sandbox.elsewhere()] {
        let refused = sandbox.phase("op_1", Phase::Abort);
        assert!(matches!(refused, Err(Error::AlreadyDecided { .. })), "{refused:?}");
    }
    assert_eq!(sandbox.names_outside(), NEW);
}

pub(super) fn prepared_here_finished_there(fixture: &mut Fixture) {
    let mut sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    // The process that prepared is gone, and its locks with it.
    sandbox.strategy = fixture.strategy();
    let result = sandbox.phase("op_1", Phase::Finish).unwrap();
    assert_eq!(result.entries.len(), 2);
    assert_eq!((sandbox.names(), sandbox.names_outside()), (NEW.into(), NEW.into()));
}

pub(super) fn prepared_here_aborted_there(fixture: &mut Fixture) {
    let mut sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.strategy = fixture.strategy();
    sandbox.phase("op_1", Phase::Abort).unwrap();
    assert_eq!(sandbox.names_outside(), OLD);
    sandbox.rollback();
    assert_eq!(sandbox.names(), OLD);
}

pub(super) fn prepare_is_held_to_the_digest(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    let digest = Some(sandbox.diff().digest);
    sandbox.exec("DELETE FROM users WHERE id = 3");
    let reference = sandbox.reference.clone().for_operation(&OpId::from_string("op_1"));
    let request = CommitRequest { phase: Phase::Prepare, digest, ..CommitRequest::default() };
    let refused = sandbox.strategy.commit(&reference, &request);
    assert!(matches!(refused, Err(Error::DigestMismatch { .. })), "{refused:?}");
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("eve".into(), OLD.into()));
    assert_eq!(fixture.production.prepared(), "");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "eve");
}

pub(super) fn work_goes_on_after_an_abort(fixture: &mut Fixture) {
    let sandbox = changed(fixture);
    sandbox.phase("op_1", Phase::Prepare).unwrap();
    sandbox.phase("op_1", Phase::Abort).unwrap();
    sandbox.exec("UPDATE users SET name = 'again' WHERE id = 3");
    sandbox.phase("op_2", Phase::Prepare).unwrap();
    sandbox.phase("op_2", Phase::Finish).unwrap();
    assert!(sandbox.names_outside().ends_with("again"), "{}", sandbox.names_outside());
    assert_eq!(sandbox.names(), sandbox.names_outside());
}

pub(super) fn one_operation_after_the_other(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for number in 1..=3 {
        sandbox.exec(&format!("UPDATE users SET name = 'n{number}' WHERE id = {number}"));
        let operation = format!("op_{number}");
        sandbox.phase(&operation, Phase::Prepare).unwrap();
        sandbox.phase(&operation, Phase::Finish).unwrap();
    }
    assert_eq!(sandbox.names_outside(), "n1,n2,n3");
    // An older operation than the last is not known any more, or known to be done: its work is not undone by either.
    let _ = sandbox.phase("op_1", Phase::Abort);
    let _ = sandbox.phase("op_1", Phase::Finish);
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("n1,n2,n3".into(), "n1,n2,n3".into()));
}
