//! Production and the sandbox want the same rows.

use sandboxer_core::Error;
use sandboxer_core::model::{OnConflict, Phase};

use super::{Fixture, Production, Sandbox, in_words};

pub(super) fn production_waits_for_what_was_changed(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'mine' WHERE id = 1; DELETE FROM users WHERE id = 2; INSERT INTO users VALUES (4, 'd', 4)");
    let theirs = [
        "UPDATE users SET name = 'theirs' WHERE id = 1",
        "DELETE FROM users WHERE id = 1",
        "UPDATE users SET name = 'theirs' WHERE id = 2",
        "INSERT INTO users VALUES (4, 'theirs', 4)",
    ];
    for script in theirs {
        let refused = fixture.production.try_run(script).unwrap_err();
        assert!(
            ["lock", "in use"].iter().any(|word| refused.to_lowercase().contains(word)),
            "{script}: {refused}"
        );
    }
    assert_eq!(sandbox.names(), "mine,cy,d");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "mine,cy,d");
    // A transaction of SQLite is one that writes from its beginning.
    drop(sandbox);
    fixture.production.run("UPDATE users SET name = 'later' WHERE id = 1");
}

pub(super) fn the_sandbox_waits_for_production(fixture: &mut Fixture) {
    if matches!(fixture.production, Production::Sqlite(_)) {
        let open = fixture.production.begin("UPDATE users SET name = 'theirs' WHERE id = 1");
        let error = fixture.try_sandbox().err().unwrap();
        assert!(in_words(&error).contains("in use"), "{}", in_words(&error));
        drop(open);
        return drop(fixture.sandbox());
    }
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'mine' WHERE id = 3");
    let open = fixture.production.begin("UPDATE users SET name = 'theirs' WHERE id = 1");
    for script in ["UPDATE users SET name = 'mine' WHERE id = 1", "DELETE FROM users WHERE id = 1"] {
        let error = in_words(&sandbox.write("exec", script).unwrap_err());
        assert!(error.to_lowercase().contains("lock"), "{script}: {error}");
    }
    assert_eq!(sandbox.names(), "ann,bob,mine");
    drop(open);
    sandbox.exec("UPDATE users SET name = 'mine' WHERE id = 1");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "mine,bob,mine");
}

pub(super) fn other_rows_are_free(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'mine' WHERE id = 1");
    fixture.production.run("UPDATE users SET name = 'theirs' WHERE id = 2; DELETE FROM users WHERE id = 3; INSERT INTO users VALUES (8, 'h', 8)");
    assert_eq!(sandbox.paths(), [sandbox.row("users", "1")]);
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "mine,theirs,h");
}

/// A sandbox in which `mine` was done, and production in which `theirs` was.
fn conflict<'f>(fixture: &'f Fixture, mine: &str, theirs: &str) -> Sandbox<'f> {
    let sandbox = fixture.sandbox();
    sandbox.exec(mine);
    sandbox.exec("UPDATE users SET name = 'free' WHERE id = 3");
    fixture.production.run(theirs);
    sandbox
}

/// Tries each way out: what production holds after it was refused, skipped, and overruled.
fn each_way(fixture: &Fixture, mine: &str, theirs: &str, key: &str, expected: [&str; 3]) {
    let sandbox = conflict(fixture, mine, theirs);
    match sandbox.commit() {
        Err(Error::Conflict { conflicts }) => {
            let paths: Vec<_> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
            assert_eq!(paths, [sandbox.row("users", key)]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(sandbox.names_outside(), expected[0]);
    let skipped = sandbox.commit_with(OnConflict::Ours).unwrap();
    assert_eq!(skipped.entries.len(), 1, "{skipped:?}");
    assert_eq!(sandbox.names_outside(), expected[1]);
    assert_eq!(sandbox.paths(), [sandbox.row("users", key)]);
    sandbox.commit_with(OnConflict::Theirs).unwrap();
    assert_eq!(sandbox.names_outside(), expected[2]);
    assert!(sandbox.diff().entries.is_empty(), "{:?}", sandbox.paths());
}

pub(super) fn both_updated(fixture: &mut Fixture) {
    let (mine, theirs) =
        ("UPDATE users SET name = 'mine' WHERE id = 1", "UPDATE users SET name = 'theirs' WHERE id = 1");
    each_way(fixture, mine, theirs, "1", ["theirs,bob,cy", "theirs,bob,free", "mine,bob,free"]);
}

pub(super) fn updated_here_deleted_there(fixture: &mut Fixture) {
    let (mine, theirs) = ("UPDATE users SET name = 'mine' WHERE id = 1", "DELETE FROM users WHERE id = 1");
    each_way(fixture, mine, theirs, "1", ["bob,cy", "bob,free", "mine,bob,free"]);
}

pub(super) fn deleted_here_updated_there(fixture: &mut Fixture) {
    let (mine, theirs) = ("DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'theirs' WHERE id = 1");
    each_way(fixture, mine, theirs, "1", ["theirs,bob,cy", "theirs,bob,free", "bob,free"]);
}

pub(super) fn both_inserted(fixture: &mut Fixture) {
    let (mine, theirs) =
        ("INSERT INTO users VALUES (4, 'mine', 4)", "INSERT INTO users VALUES (4, 'theirs', 4)");
    each_way(fixture, mine, theirs, "4", ["ann,bob,cy,theirs", "ann,bob,free,theirs", "ann,bob,free,mine"]);
}

pub(super) fn both_did_the_same(fixture: &mut Fixture) {
    let same = "UPDATE users SET name = 'same' WHERE id = 1; DELETE FROM users WHERE id = 2; INSERT INTO users VALUES (4, 'd', 4)";
    let sandbox = conflict(fixture, same, same);
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "same,free,d");
    assert!(sandbox.diff().entries.is_empty());
}

pub(super) fn prepare_refuses_them(fixture: &mut Fixture) {
    let (mine, theirs) = ("DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'theirs' WHERE id = 1");
    let sandbox = conflict(fixture, mine, theirs);
    assert!(matches!(sandbox.phase("op_1", Phase::Prepare), Err(Error::Conflict { .. })));
    sandbox.phase("op_1", Phase::Abort).unwrap();
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("bob,free".into(), "theirs,bob,cy".into()));
}
