//! Scripts, queries, rows, checkpoints, the schema.
use sandboxer_core::Error;
use sandboxer_core::model::Row;
use serde_json::{Value, json};

use super::World;
use crate::engine::{Engine, Page};

fn names(engine: &mut Box<dyn Engine>) -> Vec<String> {
    let rows = engine.query("SELECT name FROM users ORDER BY id").unwrap();
    rows.iter().map(|row| row.get("name").unwrap().as_str().unwrap().to_owned()).collect()
}

fn row(columns: &[(&str, Value)]) -> Row {
    columns.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

#[test]
fn a_script_is_one_unit() {
    let Some(mut world) = World::new() else { return };
    world.run("CREATE PROCEDURE twice() BEGIN SELECT 1; UPDATE users SET age = age + 1; SELECT 2; END");
    let mut engine = world.open();
    let script = "-- a dump, as it were\n/*!40101 SET NAMES utf8mb4 */;\n/*!40101 SET @OLD=@@SQL_MODE, SQL_MODE='ANSI_QUOTES' */;
        INSERT INTO \"users\" VALUES (10, 'semi;colon', 1), (11, 'it''s', 2); # more
        DELIMITER ;;\nUPDATE users SET age = 0 WHERE id >= 10;;\nDELIMITER ;\n/*!80000 SET nothing_known = 1 */";
    let error = engine.execute(script).unwrap_err();
    assert!(error.to_string().contains("statement 5"), "{error}");
    assert_eq!(names(&mut engine), ["ann", "bob", "cid"]);
    let done = engine.execute(script.rsplit_once("/*!80000").unwrap().0).unwrap();
    assert_eq!((done.statements, done.rows), (4, 4));
    // The mode ended with the script.
    assert_eq!(engine.query("SELECT \"text\" AS a").unwrap(), [row(&[("a", json!("text"))])]);
    let error = engine.execute("DELETE FROM orders; SELECT * FROM nowhere").unwrap_err().to_string();
    assert!(error.contains("statement 2 (SELECT * FROM nowhere)") && error.contains("1146"), "{error}");
    assert_eq!(engine.query("SELECT * FROM orders").unwrap().len(), 2);
    engine.execute("SAVEPOINT a; DELETE FROM orders; ROLLBACK TO a; RELEASE SAVEPOINT a").unwrap();
    assert_eq!(engine.query("SELECT * FROM orders").unwrap().len(), 2);
    engine.execute("CALL twice()").unwrap();
    assert_eq!(engine.query("SELECT age FROM users WHERE id = 1").unwrap()[0].get("age").unwrap(), 31);
    let error = engine.execute("DELETE FROM orders WHERE id = ?").unwrap_err();
    assert!(matches!(error, Error::Usage { .. }), "{error:?}");
    let long = format!("INSERT INTO notes VALUES (5, '{}')", "a".repeat(16 << 20));
    assert!(engine.execute(&long).unwrap_err().to_string().contains("the server takes"));
    assert_eq!(engine.execute("").unwrap().statements, 0);
    assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["3"]);
    engine.commit("op").unwrap();
    assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["5"]);
}

#[test]
fn a_query_changes_nothing() {
    let Some(mut world) = World::new() else { return };
    world.run("CREATE FUNCTION grow() RETURNS INT BEGIN UPDATE users SET age = age + 1; RETURN 1; END");
    let mut engine = world.open();
    engine.query("SELECT grow()").unwrap();
    assert_eq!(engine.query("SELECT age FROM users WHERE id = 1").unwrap()[0].get("age").unwrap(), 30);
    assert_eq!(engine.query("SHOW TABLES").unwrap().len(), 3);
    engine.query("EXPLAIN SELECT * FROM users").unwrap();
    for sql in ["DELETE FROM users", "SELECT 1; SELECT 2", "", "SET @a = 1", "COMMIT"] {
        assert!(engine.query(sql).is_err(), "{sql}");
    }
    // Rows that were only read are free.
    world.run("UPDATE users SET age = 1");
}

#[test]
fn checkpoints_nest() {
    let Some(world) = World::new() else { return };
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
    engine.restore("eve").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan", "eve"]);
    engine.restore("dan").unwrap();
    engine.restore("dan").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan"]);
    assert!(engine.restore("eve").unwrap_err().to_string().contains("is gone"));
    assert!(matches!(engine.restore("never"), Err(Error::NotFound { .. })));
    add(&mut engine, "gil");
    engine.checkpoint("start").unwrap();
    add(&mut engine, "hal");
    engine.restore("start").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan", "gil"]);
    engine.execute("SELECT 1; SELECT nonsense").unwrap_err();
    engine.restore("dan").unwrap();
    assert_eq!(names(&mut engine), ["ann", "bob", "cid", "dan"]);
    engine.rollback().unwrap();
    assert!(engine.restore("dan").unwrap_err().to_string().contains("is gone"));
    assert_eq!(names(&mut engine), ["ann", "bob", "cid"]);
}

#[test]
fn rows_are_found_and_put_by_their_keys() {
    let Some(mut world) = World::new() else { return };
    world.run("CREATE TABLE pairs (a VARCHAR(20), b VARBINARY(8), c DECIMAL(10,2) DEFAULT 1.5, d INT AS (LENGTH(a)) STORED, PRIMARY KEY (a, b))");
    world.run("INSERT INTO pairs (a, b) VALUES ('x,y/z', x'00FF'), ('ü', 'q')");
    world.run("CREATE TABLE `odd``name.x` (`k``ey` BIGINT UNSIGNED PRIMARY KEY)");
    world.run("INSERT INTO `odd``name.x` VALUES (18446744073709551615), (9007199254740993)");
    let mut engine = world.open();
    assert_eq!(engine.tables().unwrap(), ["notes", "odd`name.x", "orders", "pairs", "users"]);
    let key = "x%2Cy%2Fz,AP8%3D";
    let found = engine.row("pairs", key).unwrap().unwrap();
    let expected =
        row(&[("a", json!("x,y/z")), ("b", json!({"b64": "AP8="})), ("c", json!("1.50")), ("d", json!(5))]);
    assert_eq!(found, expected);
    let new = row(&[("c", json!("2.25")), ("d", json!(99))]);
    assert!(engine.put_row("pairs", key, Some(&new)).unwrap());
    assert_eq!(engine.row("pairs", key).unwrap().unwrap().get("c").unwrap(), "2.25");
    assert!(engine.put_row("pairs", key, Some(&row(&[]))).unwrap());
    assert_eq!(engine.row("pairs", key).unwrap().unwrap().get("c").unwrap(), "1.50");
    assert!(!engine.put_row("pairs", "n'ew,AA%3D%3D", Some(&new)).unwrap());
    assert!(engine.put_row("pairs", "n'ew,AA%3D%3D", None).unwrap());
    assert!(!engine.put_row("pairs", "n'ew,AA%3D%3D", None).unwrap());

    let page = |limit, after: Option<&str>| Page { limit, after: after.map(str::to_owned) };
    let big = engine.rows("odd`name.x", &page(None, Some("9007199254740992"))).unwrap();
    assert_eq!(big.len(), 2);
    assert!(engine.row("odd`name.x", "18446744073709551615").unwrap().is_some());
    assert!(engine.row("odd`name.x", "9007199254740992").unwrap().is_none());
    let ids: Vec<_> = engine.rows("users", &page(Some(2), Some("1"))).unwrap();
    assert_eq!(
        ids.iter().map(|row| row.get("id").unwrap().clone()).collect::<Vec<_>>(),
        [json!(2), json!(3)]
    );
    assert_eq!(engine.rows("notes", &page(None, None)).unwrap().len(), 3);
    assert_eq!(engine.rows("mysql.global_priv", &page(Some(1), None)).unwrap().len(), 1);

    assert!(matches!(engine.row("nope", "1"), Err(Error::NotFound { .. })));
    assert!(matches!(engine.row("notes", "1"), Err(Error::Usage { .. })));
    assert!(matches!(engine.row("users", "1,2"), Err(Error::Usage { .. })));
    assert!(engine.put_row("users", "1", Some(&row(&[("id", json!(2)), ("name", json!("x"))]))).is_err());
    assert!(engine.put_row("users", "1", Some(&row(&[("none", json!(2))]))).is_err());
    assert_eq!(world.see("SELECT COUNT(*) FROM pairs"), ["2"]);
}

#[test]
fn the_schema_can_be_run_again() {
    let Some(mut world) = World::new() else { return };
    for sql in [
        "CREATE VIEW a_view AS SELECT * FROM z_view",
        "CREATE OR REPLACE VIEW z_view AS SELECT name FROM users",
        "CREATE SEQUENCE counter",
        "CREATE FUNCTION f(a INT) RETURNS INT BEGIN DECLARE b INT; SET b = a; RETURN b; END",
        "CREATE PROCEDURE p() BEGIN SELECT ';'; END",
        "CREATE TRIGGER t BEFORE INSERT ON users FOR EACH ROW SET NEW.age = f(1)",
    ] {
        if sql.contains("z_view AS SELECT name") {
            continue;
        }
        if sql.contains("a_view") {
            world.run("CREATE VIEW z_view AS SELECT name FROM users");
        }
        world.run(sql);
    }
    let mut engine = world.open();
    let schema = engine.schema().unwrap();
    assert!(!schema.contains("AUTO_INCREMENT=") && !schema.contains("cannot be seen"), "{schema}");
    world.run("CREATE DATABASE copy; USE copy");
    let mut script = crate::mysql::lexer::Script::new(&schema);
    while let Some(statement) = script.next(Default::default()).unwrap() {
        world.run(&statement.text.replace("`shop`.", ""));
    }
    let mut setup = world.setup();
    setup.location = world.server.socket_url("copy");
    let copied = crate::mysql::open(&setup).unwrap().schema().unwrap();
    assert_eq!(copied.replace("`copy`.", ""), schema.replace("`shop`.", ""));
}
