//! Commits are whole, are what was looked at, and are seen by nobody before.

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, RelPath};
use serde_json::json;

use super::Fixture;

pub(super) fn everything_and_all_at_once(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("INSERT INTO users VALUES (4, 'dan', 40); UPDATE users SET name = 'anna' WHERE id = 1; DELETE FROM users WHERE id = 3");
    let seen = sandbox.diff();
    let result = sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "anna,bob,dan");
    assert_eq!((result.digest, result.entries.len()), (seen.digest, 3));
    assert!(result.conflicts.is_empty());
}

pub(super) fn nobody_sees_it_before(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for script in [
        "UPDATE users SET name = 'x'",
        "DELETE FROM users WHERE id < 3",
        "INSERT INTO users VALUES (4, 'dan', 40)",
    ] {
        sandbox.exec(script);
        assert_eq!(sandbox.names_outside(), "ann,bob,cy", "{script}");
    }
    sandbox.checkpoint("one");
    sandbox.diff();
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
    assert_eq!(sandbox.names(), "x,dan");
}

pub(super) fn the_committed_state_is_the_base(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for (number, name) in ["eve", "eva", "evan"].iter().enumerate() {
        sandbox.exec(&format!("UPDATE users SET name = '{name}' WHERE id = 1"));
        let rows = sandbox.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].1["name"], json!(["ann", "eve", "eva"][number]));
        sandbox.commit().unwrap();
        assert_eq!(sandbox.names_outside(), format!("{name},bob,cy"));
        assert!(sandbox.diff().entries.is_empty());
        assert_eq!(sandbox.names(), format!("{name},bob,cy"));
    }
}

pub(super) fn nothing_to_commit(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for _ in 0..2 {
        assert!(sandbox.commit().unwrap().entries.is_empty());
    }
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("ann,bob,cy".into(), "ann,bob,cy".into()));
}

pub(super) fn the_right_digest(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users WHERE id = 1");
    let request = CommitRequest { digest: Some(sandbox.diff().digest), ..CommitRequest::default() };
    sandbox.strategy.commit(&sandbox.reference, &request).unwrap();
    assert_eq!(sandbox.names_outside(), "bob,cy");
}

pub(super) fn the_wrong_digest_commits_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users WHERE id = 1");
    let digest = sandbox.diff().digest;
    sandbox.exec("DELETE FROM users WHERE id = 2");
    let request = CommitRequest { digest: Some(digest.clone()), ..CommitRequest::default() };
    match sandbox.strategy.commit(&sandbox.reference, &request) {
        Err(Error::DigestMismatch { expected, found }) => {
            assert_eq!((expected, found), (digest, sandbox.diff().digest));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("cy".into(), "ann,bob,cy".into()));
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "cy");
}

pub(super) fn a_part_is_refused(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users");
    let paths = vec![RelPath::parse(sandbox.row("users", "1")).unwrap()];
    let request = CommitRequest { paths, ..CommitRequest::default() };
    let refused = sandbox.strategy.commit(&sandbox.reference, &request);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("".into(), "ann,bob,cy".into()));
}

pub(super) fn odd_rows_arrive_as_they_are(fixture: &mut Fixture) {
    let production = &fixture.production;
    production.run(&format!(
        "CREATE TABLE odd(a VARCHAR(20), b INTEGER, c {}, d DOUBLE PRECISION, PRIMARY KEY (b, a))",
        production.bytes()
    ));
    let sandbox = fixture.sandbox();
    let insert = |b: i64, bytes: &str| format!("INSERT INTO odd VALUES ('q''\"\\', {b}, {bytes}, 0.1)");
    let script = [insert(1, &production.bytes_of("00ff27")), insert(2, "NULL")].join(";");
    // In MariaDB a backslash needs another one.
    let script = if production.is_mariadb() { script.replace('\\', "\\\\") } else { script };
    sandbox.exec(&script);
    let table = format!("tables/{}.jsonl", production.table("odd"));
    let inside = sandbox.lines(&table);
    assert_eq!(inside[0]["a"], json!("q'\"\\"));
    sandbox.commit().unwrap();
    assert_eq!(sandbox.lines(&table), inside);
    assert_eq!(production.ask("SELECT b FROM odd WHERE c IS NULL AND d > 0.05"), "2");
}

pub(super) fn rolled_back_is_as_at_first(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.rollback();
    sandbox.exec("DELETE FROM users; INSERT INTO users VALUES (9, 'z', 9)");
    sandbox.rollback();
    assert_eq!(sandbox.names(), "ann,bob,cy");
    assert!(sandbox.diff().entries.is_empty());
    sandbox.exec("DELETE FROM users WHERE id = 1");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "bob,cy");
}

pub(super) fn rolled_back_after_a_commit(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users WHERE id = 1");
    sandbox.commit().unwrap();
    sandbox.exec("DELETE FROM users WHERE id = 2");
    sandbox.rollback();
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("bob,cy".into(), "bob,cy".into()));
}

/// A clone or a server lets production go on beside the sandbox; a transaction of SQLite does not, and says so.
pub(super) fn what_production_did_meanwhile_stays(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    let written = fixture
        .production
        .try_run("UPDATE users SET name = 'theirs' WHERE id = 3; INSERT INTO users VALUES (8, 'h', 8)");
    let locked = fixture.has_keepers() && matches!(fixture.production, super::Production::Sqlite(_));
    assert_eq!(written.is_err(), locked, "{written:?}");
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), if locked { "eve,bob,cy" } else { "eve,bob,theirs,h" });
    assert!(sandbox.diff().entries.is_empty(), "{:?}", sandbox.paths());
}
