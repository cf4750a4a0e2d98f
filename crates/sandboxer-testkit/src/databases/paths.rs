//! Everything that can be read and written as if it were files.

use sandboxer_core::Error;
use sandboxer_core::model::DiffKind;
use serde_json::json;

use super::{Fixture, Production, in_words};

pub(super) fn the_schema_is_sql(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let schema = sandbox.read("schema.sql").unwrap();
    assert!(schema.to_lowercase().contains("create table"), "{schema}");
    assert!(schema.contains("users") && schema.contains("age"), "{schema}");
    assert_eq!(schema, sandbox.read("schema.sql").unwrap());
}

pub(super) fn the_tables(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE items(id INTEGER PRIMARY KEY)");
    let sandbox = fixture.sandbox();
    let expected = ["items", "users"].map(|name| format!("{}\n", fixture.production.table(name)));
    assert_eq!(sandbox.read("tables").unwrap(), expected.concat());
}

pub(super) fn rows_in_the_order_of_their_keys(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("INSERT INTO users VALUES (11, 'eve', 1), (-4, 'dan', 2)");
    let rows = sandbox.lines(&format!("tables/{}.jsonl", fixture.production.table("users")));
    let ids: Vec<_> = rows.iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [-4, 1, 2, 3, 11]);
    assert_eq!(rows[1], json!({"id": 1, "name": "ann", "age": 10}));
}

pub(super) fn a_page_of_rows(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let table = fixture.production.table("users");
    let ids = |query: &str| -> Vec<i64> {
        let rows = sandbox.lines(&format!("tables/{table}.jsonl{query}"));
        rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids("?limit=2"), [1, 2]);
    assert_eq!(ids("?after=1"), [2, 3]);
    assert_eq!(ids("?limit=1&after=1"), [2]);
    assert_eq!(ids("?after=3"), [0i64; 0]);
    assert_eq!(ids("?limit=0"), [0i64; 0]);
    assert!(sandbox.read(&format!("tables/{table}.jsonl?limit=x")).is_err());
}

pub(super) fn a_row_is_inserted_replaced_and_deleted(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let path = sandbox.row("users", "7");
    assert!(matches!(sandbox.read(&path), Err(Error::NotFound { .. })));
    let change = sandbox.write(&path, r#"{"id": 7, "name": "it's", "age": 70}"#).unwrap();
    assert_eq!(change.kind, DiffKind::Created);
    let row = |path: &str| serde_json::from_str::<serde_json::Value>(&sandbox.read(path).unwrap()).unwrap();
    assert_eq!(row(&path), json!({"id": 7, "name": "it's", "age": 70}));
    let change = sandbox.write(&path, r#"{"name": "eve"}"#).unwrap();
    assert_eq!(change.kind, DiffKind::Modified);
    assert_eq!(row(&path), json!({"id": 7, "name": "eve", "age": null}));
    sandbox.write(&path, "").unwrap();
    assert!(matches!(sandbox.read(&path), Err(Error::NotFound { .. })));
    sandbox.write(&sandbox.row("users", "2"), "").unwrap();
    assert_eq!((sandbox.names(), sandbox.names_outside()), ("ann,cy".into(), "ann,bob,cy".into()));
}

pub(super) fn a_row_that_is_none(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let path = sandbox.row("users", "1");
    for content in ["[1]", "{", r#"{"nme": "x"}"#, r#"{"id": 5}"#, r#"{"age": "many"}"#] {
        let written = sandbox.write(&path, content);
        // SQLite keeps a text in a column of numbers.
        let is_lenient = matches!(fixture.production, Production::Sqlite(_)) && content.contains("many");
        assert!(written.is_err() || is_lenient, "{content}");
        if written.is_ok() {
            sandbox.rollback();
        }
    }
    for path in [sandbox.row("users", "1,2"), sandbox.row("nothing", "1")] {
        assert!(sandbox.write(&path, "{}").is_err(), "{path}");
        assert!(sandbox.read(&path).is_err(), "{path}");
    }
    assert!(sandbox.rows().is_empty());
}

pub(super) fn a_query_changes_nothing(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    assert_eq!(sandbox.query("SELECT name FROM users WHERE name LIKE 'a%'"), [json!({"name": "ann"})]);
    // Some databases run it and take it back, some refuse it: it does nothing in any case.
    let _ = sandbox.read("query?sql=DELETE FROM users");
    let _ = sandbox.read("query?sql=UPDATE users SET name = 'x'");
    assert_eq!(sandbox.names(), "ann,bob,cy");
    assert!(sandbox.rows().is_empty());
    let sum = sandbox.query("SELECT age + 1 AS n FROM users WHERE id = 1 & 1");
    assert_eq!(sum, [json!({"n": 11})]);
}

pub(super) fn a_query_that_is_wrong(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    let error = sandbox.read("query?sql=SELECT id FROM nowhere").unwrap_err();
    assert!(in_words(&error).contains("nowhere"), "{}", in_words(&error));
    assert!(sandbox.read("query?sql=SELECT 1; SELECT 2").is_err());
    assert!(sandbox.read("query?sql=").is_err());
    assert_eq!(sandbox.names(), "eve,bob,cy");
}

pub(super) fn a_script_is_one_unit(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec(
        "UPDATE users SET name = 'a;b' WHERE id = 1; -- a comment; and more\nDELETE FROM users WHERE id = 2;",
    );
    assert_eq!(sandbox.names(), "a;b,cy");
    let script = "INSERT INTO users VALUES (8, 'never', 1); INSERT INTO users VALUES (1, 'twice', 1); DELETE FROM users";
    let error = in_words(&sandbox.write("exec", script).unwrap_err());
    assert!(error.contains("statement 2"), "{error}");
    assert_eq!(sandbox.names(), "a;b,cy");
    let error = in_words(&sandbox.write("exec", "DELETE FROM users; SELEC 1").unwrap_err());
    assert!(error.contains("SELEC"), "{error}");
    assert_eq!(sandbox.names(), "a;b,cy");
    sandbox.exec("");
    sandbox.exec(" ; -- nothing\n");
    assert_eq!(sandbox.names_outside(), "ann,bob,cy");
}

pub(super) fn a_script_cannot_end_it(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec("UPDATE users SET name = 'eve' WHERE id = 1");
    for escape in
        ["COMMIT", "/* x */ commit", "ROLLBACK", "END", "SELECT 1; COMMIT", "COMMIT; BEGIN", "BEGIN; COMMIT"]
    {
        let _ = sandbox.write("exec", escape);
        let _ = sandbox.read(&format!("query?sql={escape}"));
        assert_eq!(sandbox.names_outside(), "ann,bob,cy", "{escape}");
        assert_eq!(sandbox.names(), "eve,bob,cy", "{escape}");
    }
}

pub(super) fn how_programs_connect(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let connection = sandbox.read("connection");
    match (fixture.production.is_postgres(), connection) {
        (true, Ok(text)) => {
            let connection: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(connection["url"].as_str().unwrap().starts_with("postgres"), "{text}");
            assert!(connection["variables"]["PGHOST"].is_string(), "{text}");
        }
        (true, Err(error)) => panic!("{error}"),
        (_, answer) if fixture.has_keepers() => {
            assert!(matches!(answer, Err(Error::Unsupported { .. })), "{answer:?}");
        }
        // A clone is opened as the file it is.
        (_, _) => assert!(sandbox.reference.sandbox_path().unwrap().is_file()),
    }
}

pub(super) fn the_changes_as_lines(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    assert_eq!(sandbox.read("changes.jsonl").unwrap(), "");
    sandbox.exec("UPDATE users SET age = 11 WHERE id = 1; DELETE FROM users WHERE id = 2");
    let table = fixture.production.table("users");
    let expected = [
        json!({"table": table, "key": {"id": 1}, "old": {"id": 1, "name": "ann", "age": 10}, "new": {"id": 1, "name": "ann", "age": 11}}),
        json!({"table": table, "key": {"id": 2}, "old": {"id": 2, "name": "bob", "age": 20}}),
    ];
    assert_eq!(sandbox.lines("changes.jsonl"), expected);
}

pub(super) fn the_status(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    let status: serde_json::Value = serde_json::from_str(&sandbox.read("status").unwrap()).unwrap();
    assert!(status["held"]["notices"].is_array(), "{status}");
}

pub(super) fn nothing_else(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    for path in ["nothing", "tables/users", "query", "tables/nowhere.jsonl", "schema", "tables/users/rows/1"]
    {
        assert!(sandbox.read(path).is_err(), "{path}");
    }
    for path in
        ["schema.sql", "tables", "changes.jsonl", "connection", "query?sql=DELETE FROM users", "status"]
    {
        assert!(sandbox.write(path, "x").is_err(), "{path}");
    }
    assert!(sandbox.read("exec").is_err());
    assert!(sandbox.rows().is_empty());
}
