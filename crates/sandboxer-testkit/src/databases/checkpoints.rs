//! Checkpoints.

use super::{Fixture, in_words};

pub(super) fn restored(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'one' WHERE id = 1");
    sandbox.checkpoint("c1");
    sandbox.exec("DELETE FROM users; INSERT INTO users VALUES (9, 'z', 9)");
    sandbox.restore("c1").unwrap();
    assert_eq!(sandbox.names(), "one,bob,cy");
    assert_eq!(sandbox.paths(), [sandbox.row("users", "1")]);
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "one,bob,cy");
}

pub(super) fn an_earlier_one(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for number in 1..=3 {
        sandbox.exec(&format!("UPDATE users SET name = 'n{number}' WHERE id = {number}"));
        sandbox.checkpoint(&format!("c{number}"));
    }
    sandbox.restore("c2").unwrap();
    assert_eq!(sandbox.names(), "n1,n2,cy");
    // A later one may be gone, and then that is said.
    if let Err(error) = sandbox.restore("c3") {
        assert!(in_words(&error).contains("c3"), "{}", in_words(&error));
        assert_eq!(sandbox.names(), "n1,n2,cy");
    }
    sandbox.restore("c1").unwrap();
    assert_eq!(sandbox.names(), "n1,bob,cy");
}

pub(super) fn twice(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.checkpoint("c1");
    for name in ["x", "y"] {
        sandbox.exec(&format!("UPDATE users SET name = '{name}'"));
        sandbox.restore("c1").unwrap();
        assert_eq!(sandbox.names(), "ann,bob,cy");
    }
    assert!(sandbox.diff().entries.is_empty());
}

pub(super) fn a_name_is_replaced(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.checkpoint("c1");
    sandbox.exec("UPDATE users SET name = 'one' WHERE id = 1");
    sandbox.checkpoint("c1");
    sandbox.exec("UPDATE users SET name = 'two' WHERE id = 1");
    sandbox.restore("c1").unwrap();
    assert_eq!(sandbox.names(), "one,bob,cy");
}

pub(super) fn an_unknown_one(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users WHERE id = 1");
    let error = in_words(&sandbox.restore("chk_nowhere").unwrap_err());
    assert!(error.contains("chk_nowhere"), "{error}");
    assert_eq!(sandbox.names(), "bob,cy");
}

pub(super) fn the_base_stays(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'one' WHERE id = 1");
    sandbox.checkpoint("c1");
    sandbox.exec("UPDATE users SET name = 'two' WHERE id = 2");
    let before = sandbox.diff().digest;
    sandbox.checkpoint("c2");
    assert_eq!(sandbox.diff().digest, before);
    sandbox.restore("c1").unwrap();
    assert_eq!(sandbox.rows()[0].1["name"], "ann");
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
}

pub(super) fn from_another_process(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'one' WHERE id = 1");
    sandbox.elsewhere().checkpoint("c1");
    sandbox.exec("DELETE FROM users");
    sandbox.elsewhere().restore("c1").unwrap();
    assert_eq!(sandbox.names(), "one,bob,cy");
}

/// A transaction that ended took its checkpoints along; a clone's are files.
pub(super) fn one_before_a_commit(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.checkpoint("c1");
    sandbox.exec("UPDATE users SET name = 'one' WHERE id = 1");
    sandbox.commit().unwrap();
    match sandbox.restore("c1") {
        Ok(()) => assert_eq!(sandbox.names(), "ann,bob,cy"),
        Err(error) => {
            assert!(fixture.has_keepers() && in_words(&error).contains("c1"), "{}", in_words(&error));
            assert_eq!(sandbox.names(), "one,bob,cy");
        }
    }
    assert_eq!(sandbox.names_outside(), "one,bob,cy");
}
