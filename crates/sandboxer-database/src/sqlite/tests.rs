#![allow(clippy::unwrap_used)]
use std::fs;
use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_core::model::Row;
use sandboxer_sqlite::{Connection, Mode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::held::Held;
use super::{open, settle};
use crate::engine::{Engine, Options, Outcome, Page, Prepared, Setup, Status};

/// A file, and an outsider who looks at it and works with it.
struct World {
    dir: TempDir,
    outside: Connection,
}

const TABLES: &str = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INT DEFAULT 7);
    INSERT INTO users VALUES (1, 'ann', 30), (2, 'bob', 40), (3, 'cid', 50);
    CREATE TABLE notes (a, b); INSERT INTO notes VALUES (1, 'x'), (1, 'x'), (2, 'y');
    CREATE TABLE pairs (a TEXT, b, c, PRIMARY KEY (a, b)); INSERT INTO pairs VALUES ('k', 1, 'one'), (NULL, 2, 'two');";

impl World {
    fn new(journal: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("engine")).unwrap();
        let outside = Connection::open(&dir.path().join("db"), Mode::Create).unwrap();
        outside.execute_batch(&format!("PRAGMA journal_mode = {journal}; {TABLES}")).unwrap();
        Self { dir, outside }
    }

    fn setup(&self) -> Setup {
        Setup {
            kind: "sqlite".to_owned(),
            location: self.dir.path().join("db").to_str().unwrap().to_owned(),
            workspace: "ws_1".to_owned(),
            dir: self.dir.path().join("engine"),
            user: "postgres".to_owned(),
            password: None,
            options: Options { lock_timeout: Duration::from_millis(50), ..Options::default() },
        }
    }

    fn open(&self) -> Box<dyn Engine> {
        open(&self.setup()).unwrap()
    }

    fn count(&self, table: &str) -> i64 {
        self.outside.integer(&format!("SELECT count(*) FROM {table}")).unwrap()
    }
}

fn on_both(test: impl Fn(World)) {
    ["wal", "delete"].into_iter().map(World::new).for_each(test);
}

fn changes(engine: &mut Box<dyn Engine>) -> Value {
    serde_json::to_value(engine.changes().unwrap().rows).unwrap()
}

fn names(engine: &mut Box<dyn Engine>) -> Vec<String> {
    let rows = engine.query("SELECT name FROM users ORDER BY id").unwrap();
    rows.iter().map(|row| row.get("name").unwrap().as_str().unwrap().to_owned()).collect()
}

const ENDING: &[&str] = &[
    "BEGIN",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "/* a */ COMMIT TRANSACTION",
    "-- a\nEND",
    "ROLLBACK",
    "ROLLBACK TRANSACTION",
    "SAVEPOINT a",
    "RELEASE a",
    "ROLLBACK TO sandboxer_unit",
    "RELEASE sandboxer_unit",
    "ATTACH ':memory:' AS leak",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'leak'",
    "PRAGMA journal_mode = off",
    "PRAGMA journal_mode(truncate)",
    "PRAGMA main.journal_mode = memory",
    "EXPLAIN PRAGMA journal_mode = off",
    "PRAGMA locking_mode = exclusive",
    "PRAGMA writable_schema = on",
    "PRAGMA wal_checkpoint(truncate)",
    "PRAGMA schema_version = 99",
    "PRAGMA cache_spill = on",
    "/* \0 commit -- */ SELECT 1",
    "SELECT 1; COMMIT",
    "SELECT ';'; COMMIT",
];

#[test]
fn no_statement_commits_or_ends_the_transaction() {
    on_both(|world| {
        let mut engine = world.open();
        engine.execute("INSERT INTO users VALUES (100, 'held', 1)").unwrap();
        for statement in ENDING {
            let error = engine
                .execute(&format!("INSERT INTO users (name) VALUES ('unit'); {statement}"))
                .expect_err(statement);
            assert!(matches!(error, Error::Refused { .. } | Error::Usage { .. }), "{statement}: {error:?}");
            assert!(engine.query(statement).is_err(), "{statement}");
            assert!(matches!(engine.status(), Status::Held { .. }), "{statement}");
            assert_eq!(world.count("users"), 3, "{statement}");
            assert_eq!(names(&mut engine).len(), 4, "{statement}");
        }
        engine.rollback().unwrap();
        assert_eq!((names(&mut engine).len(), world.count("users")), (3, 3));
    });
}

/// The second defence alone: what SQLite's parser says of a statement.
#[test]
fn the_guard_refuses_what_the_words_would_have_let_through() {
    let world = World::new("wal");
    let held = Held::begin(&world.setup()).unwrap();
    held.inside().guard(true).unwrap();
    for sql in
        ["COMMIT", "END", "ROLLBACK", "BEGIN", "SAVEPOINT a", "ATTACH ':memory:' AS a", "VACUUM INTO 'leak'"]
    {
        assert!(held.inside().try_execute_batch(sql).is_err(), "{sql}");
        assert_eq!(held.lost(), None, "{sql}");
    }
}

#[test]
fn a_conflict_that_rolls_back_loses_it() {
    on_both(|world| {
        world
            .outside
            .execute_batch(
                "CREATE TRIGGER no BEFORE DELETE ON notes BEGIN SELECT RAISE(ROLLBACK, 'never'); END",
            )
            .unwrap();
        world.outside.execute_batch("CREATE TABLE own (a UNIQUE ON CONFLICT ROLLBACK)").unwrap();
        world.outside.execute_batch("INSERT INTO own VALUES (1)").unwrap();
        let mut engine = world.open();
        let refused = engine.execute("INSERT OR ROLLBACK INTO users VALUES (1, 'twice', 1)").unwrap_err();
        assert!(refused.to_string().contains("would roll back the whole sandbox"), "{refused}");
        for sql in ["INSERT INTO own VALUES (1)", "DELETE FROM notes"] {
            engine.execute("INSERT INTO users VALUES (100, 'held', 1)").unwrap();
            engine.checkpoint("a").unwrap();
            let error = engine.execute(sql).unwrap_err().to_string();
            assert!(error.contains("rolled the transaction back by itself"), "{error}");
            assert!(matches!(engine.status(), Status::Lost { .. }));
            assert!(
                engine.execute("SELECT 1").is_err()
                    && engine.commit("o").is_err()
                    && engine.changes().is_err()
            );
            assert_eq!(world.count("users"), 3);
            engine.rollback().unwrap();
            assert!(engine.restore("a").unwrap_err().to_string().contains("is gone"));
            assert!(matches!(engine.status(), Status::Held { .. }));
        }
    });
}

#[test]
fn every_kind_of_change_is_told() {
    on_both(|world| {
        let mut engine = world.open();
        assert_eq!(changes(&mut engine), json!([]));
        engine.execute("UPDATE users SET name = 'ANN' WHERE id = 1; DELETE FROM users WHERE id = 3; INSERT INTO users VALUES (-7, 'neg', NULL)").unwrap();
        engine.execute("UPDATE users SET age = age + 1; UPDATE users SET age = age - 1").unwrap();
        let users = json!([
            {"table": "users", "key": {"id": -7}, "new": {"id": -7, "name": "neg", "age": null}},
            {"table": "users", "key": {"id": 1}, "old": {"id": 1, "name": "ann", "age": 30}, "new": {"id": 1, "name": "ANN", "age": 30}},
            {"table": "users", "key": {"id": 3}, "old": {"id": 3, "name": "cid", "age": 50}},
        ]);
        assert_eq!(changes(&mut engine), users);
        engine.checkpoint("users").unwrap();
        engine.execute("INSERT INTO notes VALUES (1, 'x'); DELETE FROM notes WHERE a = 2; UPDATE pairs SET c = 'new'").unwrap();
        let found = engine.changes().unwrap();
        assert_eq!(found.rows.iter().filter(|change| change.table == "notes").count(), 2);
        assert_eq!(
            found.rows.iter().filter(|change| change.table == "pairs" && change.new.is_some()).count(),
            2
        );
        assert!(found.notices.iter().any(|notice| notice.contains("notes")), "{:?}", found.notices);
        assert!(found.notices.iter().any(|notice| notice.contains("pairs")), "{:?}", found.notices);
        engine.restore("users").unwrap();
        assert_eq!(changes(&mut engine), users);
        engine.rollback().unwrap();
        assert_eq!(changes(&mut engine), json!([]));
    });
}

#[test]
fn tables_that_come_and_go_are_told_with_their_rows() {
    on_both(|world| {
        let mut engine = world.open();
        engine.execute("CREATE TABLE fresh (id INTEGER PRIMARY KEY, v); INSERT INTO fresh VALUES (1, x'00ff'); PRAGMA user_version = 5").unwrap();
        let found = engine.changes().unwrap();
        assert_eq!(
            serde_json::to_value(&found.rows).unwrap(),
            json!([{"table": "fresh", "key": {"id": 1}, "new": {"id": 1, "v": {"b64": "AP8="}}}])
        );
        let kinds: Vec<&str> = found.schema.iter().map(|change| change.kind.as_str()).collect();
        assert_eq!(kinds, ["pragma", "table"]);
        engine.checkpoint("fresh").unwrap();

        // The same table once more: the record knows nothing of the rows that went.
        engine.execute("INSERT INTO users VALUES (9, 'i', 9); DROP TABLE users; CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INT DEFAULT 7); INSERT INTO users VALUES (2, 'bob', 40)").unwrap();
        let gone: Vec<String> = engine
            .changes()
            .unwrap()
            .rows
            .iter()
            .filter(|change| change.new.is_none())
            .map(|change| serde_json::to_string(&change.key).unwrap())
            .collect();
        assert_eq!(gone, [r#"{"id":1}"#, r#"{"id":3}"#]);
        engine.execute("DROP TABLE users; ALTER TABLE notes ADD COLUMN c").unwrap();
        let found = engine.changes().unwrap();
        assert_eq!(
            found.rows.iter().filter(|change| change.table == "users" && change.new.is_none()).count(),
            3
        );
        assert!(
            found
                .schema
                .iter()
                .any(|change| change.name == "notes" && change.old.is_some() && change.new.is_some())
        );
        engine.restore("fresh").unwrap();
        assert_eq!(engine.changes().unwrap().rows.len(), 1);
        assert!(engine.schema().unwrap().contains("CREATE TABLE fresh"));
        assert_eq!(engine.tables().unwrap(), ["fresh", "notes", "pairs", "users"]);
        engine.commit("op").unwrap();
        assert_eq!(
            (
                world.count("fresh"),
                world.count("users"),
                world.outside.integer("PRAGMA user_version").unwrap()
            ),
            (1, 3, 5)
        );
        assert_eq!(changes(&mut engine), json!([]));
    });
}

#[test]
fn a_table_that_was_made_and_taken_back_leaves_nothing() {
    let world = World::new("wal");
    let mut engine = world.open();
    engine.checkpoint("start").unwrap();
    engine.execute("CREATE TABLE fresh (id INTEGER PRIMARY KEY); INSERT INTO fresh VALUES (1); UPDATE users SET age = 1 WHERE id = 2; ANALYZE").unwrap();
    assert_eq!(engine.changes().unwrap().rows.len(), 2);
    engine.restore("start").unwrap();
    let found = engine.changes().unwrap();
    assert_eq!((found.rows, found.schema), (vec![], vec![]));
}

#[test]
fn checkpoints_nest() {
    let world = World::new("delete");
    let mut engine = world.open();
    let add = |engine: &mut Box<dyn Engine>, name: &str| {
        engine.execute(&format!("INSERT INTO users (name) VALUES ('{name}')")).unwrap();
    };
    engine.checkpoint("start").unwrap();
    add(&mut engine, "dan");
    engine.checkpoint("dan").unwrap();
    add(&mut engine, "eve");
    engine.checkpoint("eve").unwrap();
    add(&mut engine, "fay");
    engine.restore("dan").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan"]);
    assert!(engine.restore("eve").unwrap_err().to_string().contains("is gone"));
    assert!(matches!(engine.restore("never"), Err(Error::NotFound { .. })));
    engine.execute("INSERT INTO users (name) VALUES ('gil'); SELECT nonsense").unwrap_err();
    engine.checkpoint("start").unwrap();
    add(&mut engine, "hal");
    engine.restore("start").unwrap();
    engine.restore("dan").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan"]);
    engine.rollback().unwrap();
    assert!(engine.restore("dan").unwrap_err().to_string().contains("is gone"));
}

#[test]
fn rows_scripts_and_queries() {
    let world = World::new("wal");
    let mut engine = world.open();
    let done = engine.execute("UPDATE users SET age = 1; -- all\nDELETE FROM notes; ;").unwrap();
    assert_eq!((done.statements, done.rows), (2, 6));
    let error = engine.execute("DELETE FROM users; SELECT * FROM nowhere").unwrap_err().to_string();
    assert!(
        error.contains("statement 2 (SELECT * FROM nowhere)") && error.contains("no such table"),
        "{error}"
    );
    assert_eq!(names(&mut engine).len(), 3);
    assert_eq!(engine.query("DELETE FROM users RETURNING id").unwrap().len(), 3);
    assert_eq!(names(&mut engine).len(), 3);
    let page = Page { limit: Some(1), after: Some("1".to_owned()) };
    assert_eq!(engine.rows("users", &page).unwrap()[0].get("name").unwrap(), "bob");
    assert_eq!(engine.row("pairs", "k,1").unwrap().unwrap().get("c").unwrap(), "one");
    let new: Row = [("name".to_owned(), json!("eve"))].into_iter().collect();
    assert!(!engine.put_row("users", "8", Some(&new)).unwrap());
    assert!(engine.put_row("users", "8", None).unwrap());
    assert!(matches!(engine.row("nope", "1"), Err(Error::NotFound { .. })));
    assert!(engine.put_row("users", "8", Some(&Row::default())).is_err());
    assert_eq!(engine.row("users", "8").unwrap(), None);
    engine.rollback().unwrap();
    assert_eq!(engine.rows("notes", &Page::default()).unwrap().len(), 3);
}

#[test]
fn production_reads_on_and_writers_are_told() {
    on_both(|world| {
        let mut engine = world.open();
        // More than any cache: without a WAL, pages that spill would lock readers out.
        engine.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO notes SELECT i, randomblob(4000) FROM n").unwrap();
        assert_eq!(world.count("notes"), 3);
        assert!(matches!(world.outside.execute_batch("DELETE FROM notes"), Err(Error::Busy { .. })));
        assert!(matches!(open(&world.setup()), Err(Error::Busy { .. })));
        engine.rollback().unwrap();
        engine.close();
        assert!(matches!(engine.status(), Status::Lost { .. }));
        world.outside.execute_batch("DELETE FROM notes").unwrap();
        assert_eq!(world.count("notes"), 0);
    });
}

#[test]
fn a_reader_that_stays_makes_a_commit_wait_and_fail_and_nothing_is_lost() {
    let world = World::new("delete");
    let mut engine = world.open();
    engine.execute("DELETE FROM notes").unwrap();
    world.outside.begin_read().unwrap();
    assert!(matches!(engine.commit("op"), Err(Error::Busy { .. })));
    assert!(matches!(engine.status(), Status::Held { .. }));
    world.outside.rollback();
    engine.commit("op").unwrap();
    assert_eq!(world.count("notes"), 0);
    world.outside.execute_batch("CREATE TABLE parent (id INTEGER PRIMARY KEY)").unwrap_err();
}

#[test]
fn what_was_committed_can_be_told_afterwards() {
    on_both(|world| {
        let setup = world.setup();
        let mut engine = world.open();
        engine
            .execute("UPDATE users SET name = 'one' WHERE id = 1; INSERT INTO users VALUES (9, 'nine', 9)")
            .unwrap();
        let prepared = engine.prepare("op").unwrap();
        assert!(matches!(prepared, Prepared::AtDecision { .. }));
        assert!(
            engine.execute("SELECT 1").is_err() && engine.rollback().is_err() && engine.commit("op").is_err()
        );
        assert!(engine.abort(&prepared).unwrap());
        assert_eq!(names(&mut engine), ["one", "bob", "cid", "nine"]);
        let prepared = engine.prepare("op").unwrap();
        engine.finish(&prepared).unwrap();
        engine.finish(&prepared).unwrap();
        assert!(engine.abort(&prepared).is_err());
        assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Committed);
        assert_eq!(world.count("users"), 4);

        // A crash before the commit, and one between the commit and its record.
        engine.execute("DELETE FROM users WHERE id = 9; CREATE TABLE more (a)").unwrap();
        let prepared = engine.prepare("op").unwrap();
        drop(engine);
        assert_eq!(settle(&setup, &prepared, Some(true)).unwrap(), Outcome::Aborted);
        let mut engine = world.open();
        assert!(engine.finish(&prepared).is_err());
        assert!(!engine.abort(&prepared).unwrap());
        engine.execute("DELETE FROM users WHERE id = 9; CREATE TABLE more (a)").unwrap();
        let prepared = engine.prepare("op").unwrap();
        engine.finish(&prepared).unwrap();
        fs::remove_dir_all(&setup.dir).unwrap();
        fs::create_dir(&setup.dir).unwrap();
        assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Committed);
        drop(engine);
        // What others have written since is neither, or speaks against it: then it is not guessed.
        world.outside.execute_batch("INSERT INTO users VALUES (9, 'other', 1)").unwrap();
        assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Committed);
        world.outside.execute_batch("UPDATE users SET name = 'nine', age = 9 WHERE id = 9").unwrap();
        assert!(settle(&setup, &prepared, None).unwrap_err().to_string().contains("cannot be told"));
    });
}

/// What no session records would be committed without having been seen.
#[test]
fn nothing_is_written_past_the_tables() {
    on_both(|world| {
        let mut engine = world.open();
        engine.execute("CREATE VIRTUAL TABLE words USING fts5(word)").unwrap();
        for script in [
            "UPDATE sqlite_dbpage SET data = (SELECT replace(data, 'bob', 'eve') FROM sqlite_dbpage WHERE pgno = 2) WHERE pgno = 2",
            "UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 2",
            "INSERT INTO sqlite_dbpage (pgno, data) VALUES (2, zeroblob(4096))",
            "DELETE FROM words_data",
            "UPDATE sqlite_schema SET sql = sql",
        ] {
            assert!(matches!(engine.execute(script), Err(Error::Usage { .. })), "{script}");
        }
        engine.execute("INSERT INTO words VALUES ('found')").unwrap();
        assert_eq!(engine.query("SELECT * FROM words('found')").unwrap().len(), 1);
        assert_eq!(names(&mut engine), ["ann", "bob", "cid"]);
    });
}

/// Prepared, and its keeper died: before the commit, or between it and the record of it.
fn orphaned(world: &World, script: &str, committed: bool) -> Prepared {
    let mut engine = world.open();
    engine.execute(script).unwrap();
    let prepared = engine.prepare("op").unwrap();
    if committed {
        engine.finish(&prepared).unwrap();
        fs::remove_dir_all(world.setup().dir).unwrap();
        fs::create_dir(world.setup().dir).unwrap();
    }
    prepared
}

#[test]
fn of_rows_without_a_key_it_is_told_by_how_often_they_are_there() {
    for script in [
        "INSERT INTO notes VALUES (3, 'z')",
        "INSERT INTO notes VALUES (1, 'x')",
        "DELETE FROM notes WHERE a = 1",
        "UPDATE notes SET b = 'new' WHERE a = 2",
        "INSERT INTO pairs VALUES (NULL, 2, 'two')",
        "UPDATE pairs SET c = 'new' WHERE a IS NULL",
        "CREATE TABLE fresh (a); INSERT INTO fresh VALUES (1)",
    ] {
        on_both(|world| {
            let prepared = orphaned(&world, script, false);
            assert_eq!(settle(&world.setup(), &prepared, None).unwrap(), Outcome::Aborted, "{script}");
            let prepared = orphaned(&world, script, true);
            assert_eq!(settle(&world.setup(), &prepared, None).unwrap(), Outcome::Committed, "{script}");
        });
    }
}

#[test]
fn what_cannot_be_told_a_person_tells() {
    on_both(|world| {
        let setup = world.setup();
        for (committed, outcome) in [("not-committed-", Outcome::Aborted), ("committed-", Outcome::Committed)]
        {
            let prepared = orphaned(&world, "INSERT INTO notes VALUES (3, 'z')", true);
            world.outside.execute_batch("INSERT INTO notes VALUES (3, 'z'), (3, 'z')").unwrap();
            let Err(Error::Usage { hint: Some(hint), .. }) = settle(&setup, &prepared, None) else {
                panic!("it was guessed");
            };
            let prefix = format!("`touch {}/{committed}", setup.dir.display());
            let path = hint.split_once(&prefix).unwrap().1.split_once('`').unwrap().0;
            fs::write(setup.dir.join(format!("{committed}{path}")), "").unwrap();
            assert_eq!(settle(&setup, &prepared, None).unwrap(), outcome);
        }
    });
}

#[test]
fn a_commit_that_cannot_be_recorded_is_one_all_the_same() {
    on_both(|world| {
        let setup = world.setup();
        let mut engine = world.open();
        engine.execute("DELETE FROM users WHERE id = 1").unwrap();
        let prepared = engine.prepare("op").unwrap();
        fs::remove_dir_all(&setup.dir).unwrap();
        engine.finish(&prepared).unwrap();
        assert_eq!(world.count("users"), 2);
        let Status::Held { notices } = engine.status() else { panic!("it is lost") };
        assert!(notices[1].contains("is real, but could not be recorded"), "{notices:?}");
        engine.finish(&prepared).unwrap();
        assert_eq!(settle(&setup, &prepared, None).unwrap(), Outcome::Committed);
        fs::create_dir(&setup.dir).unwrap();
        engine.execute("DELETE FROM users WHERE id = 2").unwrap();
        engine.commit("op").unwrap();
        assert!(matches!(engine.status(), Status::Held { notices } if notices.len() == 1));
    });
}
