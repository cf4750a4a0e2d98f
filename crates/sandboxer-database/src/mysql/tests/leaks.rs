//! Statements that commit, or write for good: none does here.
use sandboxer_core::Error;

use super::World;
use crate::engine::Status;

/// Each would commit a transaction that was begun with BEGIN, or end it, or do something that no rollback undoes.
const ENDING: &[&str] = &[
    "BEGIN",
    "BEGIN WORK",
    "BEGIN NOT ATOMIC COMMIT; END",
    "START TRANSACTION",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "COMMIT",
    "COMMIT WORK AND CHAIN",
    "COMMIT RELEASE",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "/* a /* b */ COMMIT",
    "/*!50001 COMMIT */",
    "/*M!100000 COMMIT */",
    "/*!99999 SELECT 1 */ COMMIT",
    "-- x\nCOMMIT",
    "# x\nCOMMIT",
    "SELECT 1 /*!;COMMIT*/",
    "SELECT '\\'; COMMIT; -- '; COMMIT",
    "SET autocommit = 1",
    "SET autocommit = 0",
    "SET @@session.autocommit = 1",
    "SET STATEMENT sql_mode = '' FOR COMMIT",
    "XA END 'a'",
    "XA COMMIT 'a' ONE PHASE",
    "XA ROLLBACK 'a'",
    "XA START 'b'",
    "CREATE TABLE leak (a INT)",
    "CREATE TEMPORARY TABLE leak (a INT)",
    "CREATE TABLE leak AS SELECT * FROM users",
    "CREATE OR REPLACE VIEW leak AS SELECT 1",
    "CREATE INDEX leak ON users (name)",
    "CREATE DATABASE leak",
    "CREATE USER leak",
    "CREATE SEQUENCE leak",
    "CREATE PROCEDURE leak() SELECT 1",
    "ALTER TABLE users ADD COLUMN leak INT",
    "ALTER TABLE users DISABLE KEYS",
    "DROP TABLE orders",
    "DROP DATABASE shop",
    "TRUNCATE TABLE notes",
    "RENAME TABLE notes TO leak",
    "LOCK TABLES users WRITE",
    "UNLOCK TABLES",
    "FLUSH TABLES",
    "FLUSH TABLES WITH READ LOCK",
    "GRANT SELECT ON shop.* TO root@localhost",
    "REVOKE SELECT ON shop.* FROM root@localhost",
    "SET PASSWORD = PASSWORD('leak')",
    "SET GLOBAL max_connections = 77",
    "SET @@global.max_connections = 77",
    "ANALYZE TABLE users",
    "OPTIMIZE TABLE users",
    "REPAIR TABLE users",
    "CHECK TABLE users",
    "CACHE INDEX users IN hot",
    "LOAD DATA INFILE '/etc/hostname' INTO TABLE notes",
    "LOAD INDEX INTO CACHE users",
    "INSTALL SONAME 'metadata_lock_info'",
    "EXECUTE IMMEDIATE 'COMMIT'",
    "PREPARE s FROM 'COMMIT'",
    "SELECT 1 INTO OUTFILE '/tmp/leak-of-a-sandbox'",
    "CALL commits()",
    "CALL creates()",
    "CALL dynamic()",
    "SELECT 1; COMMIT",
    "DELIMITER //\nSELECT 1//COMMIT",
    "HANDLER users OPEN",
    "KILL CONNECTION_ID()",
    "SHUTDOWN",
    "RESET QUERY CACHE",
    "CHANGE MASTER TO MASTER_HOST='x'",
    "PURGE BINARY LOGS BEFORE NOW()",
    "BACKUP STAGE START",
];

const ROUTINES: &[&str] = &[
    "CREATE PROCEDURE commits() BEGIN COMMIT; END",
    "CREATE PROCEDURE creates() BEGIN CREATE TABLE leak (a INT); END",
    "CREATE PROCEDURE dynamic() BEGIN EXECUTE IMMEDIATE 'COMMIT'; END",
];

#[test]
fn no_statement_commits_or_ends_the_transaction() {
    let Some(mut world) = World::new() else { return };
    ROUTINES.iter().for_each(|routine| world.run(routine));
    let before =
        world.see("SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables ORDER BY 1");
    let mut engine = world.open();
    engine.execute("INSERT INTO users VALUES (100, 'held', 1)").unwrap();
    for statement in ENDING {
        let script = format!("INSERT INTO users (name) VALUES ('unit'); {statement}");
        let error = engine.execute(&script).expect_err(statement);
        assert!(matches!(error, Error::Refused { .. } | Error::Usage { .. }), "{statement}: {error:?}");
        assert!(matches!(engine.status(), Status::Held { .. }), "{statement}: {:?}", engine.status());
        assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["3"], "{statement}");
        let inside = engine.query("SELECT COUNT(*) AS n FROM users").unwrap();
        assert_eq!(inside[0].get("n").unwrap(), 4, "{statement}");
    }
    let after =
        world.see("SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables ORDER BY 1");
    assert_eq!(after, before);
    assert_eq!(world.see("SELECT @@global.max_connections"), ["151"]);
    engine.rollback().unwrap();
    assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["3"]);
}

/// The second defence alone: nothing of ours looks at these before they are sent.
#[test]
fn the_server_itself_refuses_what_would_commit() {
    use mysql::prelude::Queryable;
    let Some(mut world) = World::new() else { return };
    let mut held = super::super::held::Held::begin(&world.setup()).unwrap();
    held.say("insert", "INSERT INTO users VALUES (100, 'held', 1)").unwrap();
    let committing = ENDING.iter().filter(|sql| {
        // Those that do not commit, would end the server, or lock everybody out.
        let others = [
            "SELECT",
            "SET",
            "XA",
            "KILL",
            "SHUTDOWN",
            "HANDLER",
            "DELIMITER",
            "CREATE TEMPORARY",
            "PREPARE",
            "CALL",
            "LOAD",
            "BACKUP",
            "CHANGE",
            "INSTALL",
        ];
        !others.iter().any(|word| sql.starts_with(word))
    });
    for sql in committing {
        let _ = held.run("sending it", |conn| conn.exec_drop(*sql, ()));
        assert_eq!(held.lost(), None, "{sql}");
        assert_eq!(world.see("SELECT COUNT(*) FROM users"), ["3"], "{sql}");
    }
    held.say("looking", "SAVEPOINT there").unwrap();
}

#[test]
fn tables_without_transactions_are_not_written_to_by_any_way() {
    let Some(mut world) = World::new() else { return };
    for sql in [
        "CREATE TABLE log (a INT) ENGINE=MyISAM",
        "CREATE TABLE aria (a INT) ENGINE=Aria",
        "CREATE TABLE memory_one (a INT) ENGINE=MEMORY",
        "CREATE TABLE watched (a INT PRIMARY KEY)",
        "CREATE TRIGGER audit AFTER INSERT ON watched FOR EACH ROW INSERT INTO log VALUES (NEW.a)",
        "CREATE VIEW through AS SELECT * FROM watched",
        "CREATE PROCEDURE note() INSERT INTO aria VALUES (1)",
        "CREATE PROCEDURE dynamic() EXECUTE IMMEDIATE CONCAT('INSERT INTO lo', 'g VALUES (1)')",
        "CREATE FUNCTION noted() RETURNS INT BEGIN INSERT INTO log VALUES (1); RETURN 1; END",
    ] {
        world.run(sql);
    }
    let mut engine = world.open();
    for sql in [
        "INSERT INTO log VALUES (1)",
        "INSERT INTO `LOG` VALUES (1)",
        "INSERT INTO shop.aria VALUES (1)",
        "INSERT INTO memory_one VALUES (1)",
        "INSERT INTO watched VALUES (1)",
        "INSERT INTO through VALUES (1)",
        "CALL note()",
        "CALL dynamic()",
        "SELECT noted()",
        "INSERT INTO users (name) VALUES (noted())",
        "DELETE FROM mysql.global_priv",
    ] {
        let error = engine.execute(sql).expect_err(sql);
        assert!(matches!(error, Error::Refused { .. }), "{sql}: {error:?}");
    }
    assert!(matches!(engine.put_row("log", "1", None), Err(Error::Refused { .. } | Error::Usage { .. })));
    assert!(matches!(engine.put_row("watched", "1", Some(&Default::default())), Err(Error::Refused { .. })));
    for table in ["log", "aria", "memory_one"] {
        assert_eq!(world.see(&format!("SELECT COUNT(*) FROM {table}")), ["0"]);
    }
    engine.query("SELECT * FROM log").unwrap();
    engine.execute("INSERT INTO users (name) VALUES ('log')").unwrap();
}

/// In each of these a character may end in the byte of a backslash: the server ends a string where we do not.
const SPLITTING: [&str; 6] = ["sjis", "cp932", "gbk", "big5", "gb18030", "eucjpms"];

const CHOOSING: [&str; 5] = [
    "SET NAMES {}",
    "SET CHARACTER SET {}",
    "SET character_set_client = {}",
    "SET sql_notes = 1, @@session.character_set_client := '{}'",
    "CALL choose_{}()",
];

/// A function that writes to a table without transactions, hidden in what is a string in UTF-8.
const HIDDEN: [&str; 2] = [
    "UPDATE users SET age = LENGTH('\u{c3}\\') + noted() WHERE id = 1 -- '",
    "INSERT INTO notes VALUES (LENGTH('\u{8868}\\') + noted(), '') -- ')",
];

#[test]
fn no_character_set_hides_a_statement() {
    let Some(mut world) = World::new() else { return };
    world.run("CREATE TABLE log (a INT) ENGINE=MyISAM");
    world.run("CREATE FUNCTION noted() RETURNS INT BEGIN INSERT INTO log VALUES (1); RETURN 1; END");
    for set in SPLITTING.iter().filter(|set| **set != "gb18030") {
        world.run(&format!("CREATE PROCEDURE choose_{set}() SET NAMES {set}"));
    }
    let mut engine = world.open();
    for (set, choose) in SPLITTING.iter().flat_map(|set| CHOOSING.map(|choose| (set, choose))) {
        for hidden in HIDDEN {
            let script = format!("{}; {hidden}", choose.replace("{}", set));
            engine.execute(&script).expect_err(&script);
            assert_eq!(world.see("SELECT COUNT(*) FROM log"), ["0"], "{script}");
            let now = engine.query("SELECT @@character_set_client AS now").unwrap();
            assert_eq!(now[0].get("now").unwrap(), "utf8mb4", "{script}");
        }
    }
    assert_eq!(world.see("SELECT COUNT(*) FROM log"), ["0"]);
}

#[test]
fn character_sets_that_split_nothing_may_be_chosen() {
    let Some(world) = World::new() else { return };
    let mut engine = world.open();
    for script in [
        "SET NAMES utf8; UPDATE users SET name = '\u{e9}' WHERE id = 1",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; UPDATE users SET name = '\u{1f600}' WHERE id = 1",
        "SET NAMES binary; UPDATE users SET name = '\u{e9}' WHERE id = 1",
        "SET NAMES latin1; UPDATE users SET name = 'e' WHERE id = 1",
        "SET NAMES latin1; SET NAMES utf8mb4; UPDATE users SET name = '\u{e9}' WHERE id = 1",
    ] {
        engine.execute(script).unwrap();
    }
    // Names in it would mean others than those that were looked at.
    let error =
        engine.execute("SET NAMES latin1; UPDATE users SET name = '\u{e9}' WHERE id = 1").unwrap_err();
    assert!(error.to_string().contains("latin1") && error.to_string().contains("statement 2"), "{error}");
    engine.execute("SET sql_mode = 'ORACLE'; SELECT 1").unwrap_err();
    engine.execute("UPDATE users SET name = '\u{e9}' WHERE id = 1").unwrap();
}
