//! The difference tells what differs, all of it and nothing else.

use sandboxer_core::model::DiffKind;
use serde_json::{Value, json};

use super::Fixture;

fn user(id: i64, name: &str, age: i64) -> Value {
    json!({"id": id, "name": name, "age": age})
}

pub(super) fn nothing_differs_at_first(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let view = sandbox.diff();
    assert!(view.entries.is_empty(), "{view:?}");
    assert_eq!(view.digest, fixture.strategy().diff(&sandbox.reference).unwrap().digest);
}

pub(super) fn insert_update_delete(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("INSERT INTO users VALUES (4, 'dan', 40); UPDATE users SET name = 'anna' WHERE id = 1; DELETE FROM users WHERE id = 3");
    let expected = [
        (json!({"id": 1}), user(1, "ann", 10), user(1, "anna", 10)),
        (json!({"id": 3}), user(3, "cy", 30), Value::Null),
        (json!({"id": 4}), Value::Null, user(4, "dan", 40)),
    ];
    assert_eq!(sandbox.rows(), expected);
    let kinds: Vec<_> = sandbox.diff().entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [DiffKind::Modified, DiffKind::Deleted, DiffKind::Created]);
    assert_eq!(sandbox.paths(), ["1", "3", "4"].map(|key| sandbox.row("users", key)));
}

pub(super) fn what_was_done_and_undone_is_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("INSERT INTO users VALUES (4, 'dan', 40); UPDATE users SET age = 0 WHERE id = 1; DELETE FROM users WHERE id = 2");
    sandbox.exec("DELETE FROM users WHERE id = 4; UPDATE users SET age = 10 WHERE id = 1; INSERT INTO users VALUES (2, 'bob', 20)");
    assert_eq!(sandbox.rows(), []);
}

pub(super) fn an_update_to_the_same_is_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = name, age = age; UPDATE users SET age = 10 WHERE id = 1");
    assert_eq!(sandbox.rows(), []);
    sandbox.exec("UPDATE users SET age = 11 WHERE id = 1; UPDATE users SET name = name");
    assert_eq!(sandbox.paths(), [sandbox.row("users", "1")]);
}

pub(super) fn another_key_is_another_row(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET id = 9 WHERE id = 2");
    let expected = [
        (json!({"id": 2}), user(2, "bob", 20), Value::Null),
        (json!({"id": 9}), Value::Null, user(9, "bob", 20)),
    ];
    assert_eq!(sandbox.rows(), expected);
}

pub(super) fn keys_that_change_places(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET id = 99 WHERE id = 1; UPDATE users SET id = 1 WHERE id = 2; UPDATE users SET id = 2 WHERE id = 99");
    let expected = [
        (json!({"id": 1}), user(1, "ann", 10), user(1, "bob", 20)),
        (json!({"id": 2}), user(2, "bob", 20), user(2, "ann", 10)),
    ];
    assert_eq!(sandbox.rows(), expected);
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), "bob,ann,cy");
}

pub(super) fn the_same_key_again(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM users WHERE id = 1; INSERT INTO users VALUES (1, 'new', 10)");
    assert_eq!(sandbox.rows(), [(json!({"id": 1}), user(1, "ann", 10), user(1, "new", 10))]);
}

pub(super) fn a_table_without_a_key_is_told(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE log(line VARCHAR(50), n INTEGER); INSERT INTO log VALUES ('a', 1), ('a', 1), ('b', NULL)");
    let sandbox = fixture.sandbox();
    sandbox.exec("DELETE FROM log WHERE line = 'b'; INSERT INTO log VALUES ('c', 2), ('c', 2)");
    let view = sandbox.diff();
    let mut rows: Vec<_> = view.entries.iter().map(|e| e.row.clone().unwrap()).collect();
    rows.sort_by_key(|row| row.old.is_none());
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows.iter().all(|row| row.key.0.is_empty()), "{rows:?}");
    assert_eq!((json!(rows[0].old), json!(rows[0].new)), (json!({"line": "b", "n": null}), Value::Null));
    assert_eq!((json!(rows[2].old), json!(rows[2].new)), (Value::Null, json!({"line": "c", "n": 2})));
    assert!(view.notices.iter().any(|notice| notice.contains("log")), "{:?}", view.notices);
    let mut paths = sandbox.paths();
    paths.dedup();
    assert_eq!(paths.len(), 3, "{paths:?}");
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT line FROM log ORDER BY line"), "a,a,c,c");
}

pub(super) fn a_composite_key_is_one_name(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE parts(a VARCHAR(50), b INTEGER, c VARCHAR(50), v INTEGER, PRIMARY KEY (a, b, c)); INSERT INTO parts VALUES ('x,y', 1, 'p/q', 0)");
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE parts SET v = 1; INSERT INTO parts VALUES ('50%', -2, '..?', 2), ('', 0, '', 3)");
    let paths = ["50%25,-2,..%3F", ",0,", "x%2Cy,1,p%2Fq"].map(|key| sandbox.row("parts", key));
    let mut found = sandbox.paths();
    for path in &paths {
        assert!(found.contains(path), "{path} {found:?}");
        let row: Value = serde_json::from_str(&sandbox.read(path).unwrap()).unwrap();
        assert!(row["v"].as_i64().unwrap() > 0, "{row}");
    }
    found.dedup();
    assert_eq!(found.len(), 3, "{found:?}");
    let page =
        sandbox.lines(&format!("tables/{}.jsonl?after=50%25,-2,..%3F", fixture.production.table("parts")));
    assert_eq!(page.len(), 1, "{page:?}");
    sandbox.write(&paths[2], "").unwrap();
    sandbox.write(&paths[0], r#"{"v": 20}"#).unwrap();
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT v FROM parts ORDER BY v"), "3,20");
}

pub(super) fn the_digest_follows_the_content(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let mut digests = vec![sandbox.diff().digest];
    for script in [
        "UPDATE users SET age = 11 WHERE id = 1",
        "UPDATE users SET age = 12 WHERE id = 1",
        "DELETE FROM users WHERE id = 2",
    ] {
        sandbox.exec(script);
        let digest = sandbox.diff().digest;
        assert_eq!(digest, sandbox.elsewhere().diff().digest);
        assert!(!digests.contains(&digest), "{script}");
        digests.push(digest);
    }
    sandbox.exec("INSERT INTO users VALUES (2, 'bob', 20)");
    assert_eq!(sandbox.diff().digest, digests[2]);
    sandbox.rollback();
    assert_eq!(sandbox.diff().digest, digests[0]);
}

pub(super) fn many_rows(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE many(id INTEGER PRIMARY KEY, v INTEGER)");
    let values = |from: i64, to: i64| (from..to).map(|n| format!("({n}, 0)")).collect::<Vec<_>>().join(", ");
    fixture.production.run(&format!("INSERT INTO many VALUES {}", values(0, 3000)));
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE many SET v = 1 WHERE id >= 1000 AND id < 1900; DELETE FROM many WHERE id < 50");
    sandbox.exec(&format!("INSERT INTO many VALUES {}", values(3000, 3070)));
    let rows = sandbox.rows();
    let count = |old: bool, new: bool| {
        rows.iter().filter(|row| row.1.is_null() != old && row.2.is_null() != new).count()
    };
    assert_eq!((count(true, true), count(true, false), count(false, true)), (900, 50, 70));
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT COUNT(*) FROM many"), "3020");
    assert_eq!(fixture.production.ask("SELECT COUNT(*) FROM many WHERE v = 1"), "900");
}

/// Where the schema can be changed in a transaction, it is in the difference; elsewhere it is refused, with a reason.
pub(super) fn a_new_table(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let written =
        sandbox.write("exec", "CREATE TABLE fresh(id INTEGER PRIMARY KEY); INSERT INTO fresh VALUES (1)");
    if let Err(error) = written {
        assert!(fixture.production.is_mariadb(), "{error}");
        assert!(sandbox.diff().entries.is_empty());
        return;
    }
    let paths = sandbox.paths();
    let schema = format!("schema/table/{}.sql", fixture.production.table("fresh"));
    assert!(paths.contains(&schema) && paths.contains(&sandbox.row("fresh", "1")), "{paths:?}");
    let view = sandbox.diff();
    let text =
        view.entries.iter().find(|entry| entry.path.to_string() == schema).unwrap().text.clone().unwrap();
    assert!(text.contains("+++") && text.to_lowercase().contains("+create table"), "{text}");
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT id FROM fresh"), "1");
    assert!(sandbox.diff().entries.is_empty());
}

pub(super) fn looking_changes_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET age = 11 WHERE id = 1");
    let rows = sandbox.rows();
    for _ in 0..3 {
        assert_eq!(sandbox.rows(), rows);
    }
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
    assert_eq!(fixture.production.ask("SELECT age FROM users ORDER BY id"), "10,20,30");
}
