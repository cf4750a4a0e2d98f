//! What differs, and only that.
use std::sync::atomic::{AtomicBool, Ordering};

use mysql::prelude::Queryable;
use sandboxer_core::model::RowChange;
use serde_json::{Value, json};

use super::{World, connect};
use crate::engine::Engine;

/// Tables, keys, old and new rows, as JSON.
fn changes(engine: &mut Box<dyn Engine>) -> Vec<Value> {
    let changes = engine.changes().unwrap();
    assert_eq!(changes.schema, []);
    changes.rows.iter().map(|change: &RowChange| serde_json::to_value(change).unwrap()).collect()
}

const PLUGIN: &[&str] = &["--plugin-load-add=metadata_lock_info"];

#[test]
fn every_kind_of_change_is_told() {
    for options in [
        &[][..],
        PLUGIN,
        &["--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"],
    ] {
        let Some(mut world) = World::with(options) else { return };
        world.run("CREATE DATABASE other; CREATE TABLE other.t (a INT PRIMARY KEY)");
        let mut engine = world.open();
        assert_eq!(engine.changes().unwrap().rows, []);
        engine.execute("UPDATE users SET name = 'ANN' WHERE id = 1; DELETE FROM users WHERE id = 3").unwrap();
        engine.execute("INSERT INTO users VALUES (-7, 'neg', NULL); INSERT INTO other.t VALUES (5)").unwrap();
        engine
            .execute("INSERT INTO notes VALUES (1, 'x'), (3, NULL); DELETE FROM notes WHERE a = 2")
            .unwrap();
        engine.execute("UPDATE users SET age = age + 1; UPDATE users SET age = age - 1").unwrap();
        let found = changes(&mut engine);
        let expected = json!([
            {"table": "notes", "key": {}, "old": {"a": 2, "b": "y"}},
            {"table": "notes", "key": {}, "new": {"a": 1, "b": "x"}},
            {"table": "notes", "key": {}, "new": {"a": 3, "b": null}},
            {"table": "orders", "key": {"id": 2}, "old": {"id": 2, "user": 3}},
            {"table": "other.t", "key": {"a": 5}, "new": {"a": 5}},
            {"table": "users", "key": {"id": -7}, "new": {"id": -7, "name": "neg", "age": null}},
            {"table": "users", "key": {"id": 1}, "old": {"id": 1, "name": "ann", "age": 30}, "new": {"id": 1, "name": "ANN", "age": 30}},
            {"table": "users", "key": {"id": 3}, "old": {"id": 3, "name": "cid", "age": 50}},
        ]);
        let mut sorted = found.clone();
        sorted.sort_by_key(|change| {
            (
                change["table"].to_string(),
                change["key"].to_string(),
                change["old"].is_null(),
                change["new"]["a"].as_i64(),
            )
        });
        assert_eq!(Value::Array(sorted), expected, "{options:?}");
        let notices = engine.changes().unwrap().notices;
        assert!(notices.iter().any(|notice| notice.contains("notes has no primary key")), "{notices:?}");
        assert_eq!(
            notices.iter().any(|notice| notice.contains("all 4 were compared")),
            options.is_empty(),
            "{notices:?}"
        );
        engine.rollback().unwrap();
        assert_eq!(changes(&mut engine), Vec::<Value>::new());
    }
}

#[test]
fn what_production_does_meanwhile_is_not_ours() {
    let Some(mut world) = World::with(PLUGIN) else { return };
    world.run("CREATE TABLE big (id INT PRIMARY KEY, v INT, w INT); INSERT INTO big SELECT seq, seq, 0 FROM seq_1_to_3000");
    let mut engine = world.open();
    engine.query("SELECT COUNT(*) FROM big").unwrap();
    world.run("UPDATE big SET w = 1 WHERE id <= 50; DELETE FROM big WHERE id = 60; INSERT INTO big VALUES (5000, 1, 1)");
    assert_eq!(changes(&mut engine), Vec::<Value>::new());
    engine.execute("UPDATE big SET v = -1 WHERE id IN (50, 100); DELETE FROM big WHERE id = 200").unwrap();
    let expected = json!([
        {"table": "big", "key": {"id": 100}, "old": {"id": 100, "v": 100, "w": 0}, "new": {"id": 100, "v": -1, "w": 0}},
        {"table": "big", "key": {"id": 200}, "old": {"id": 200, "v": 200, "w": 0}},
        // What production had changed before is the old row: that is what a commit replaces.
        {"table": "big", "key": {"id": 50}, "old": {"id": 50, "v": 50, "w": 1}, "new": {"id": 50, "v": -1, "w": 1}},
    ]);
    assert_eq!(Value::Array(changes(&mut engine)), expected);

    let stop = AtomicBool::new(false);
    let url = world.server.url("shop");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut production = connect(&url);
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                production
                    .query_drop(format!("UPDATE big SET w = {round} WHERE id BETWEEN 1000 AND 1050"))
                    .unwrap();
                production.query_drop("UPDATE big SET w = 0 WHERE id BETWEEN 1000 AND 1020").unwrap();
                production.query_drop(format!("INSERT INTO big VALUES ({}, 1, 1)", 10_000 + round)).unwrap();
                production.query_drop(format!("DELETE FROM big WHERE id = {}", 9_990 + round)).unwrap();
            }
        });
        for _ in 0..15 {
            let found = changes(&mut engine);
            if Value::Array(found.clone()) != expected {
                stop.store(true, Ordering::Relaxed);
                panic!("{found:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn values_of_every_type_are_exact() {
    let Some(mut world) = World::with(PLUGIN) else { return };
    world.run("CREATE TABLE types (id INT PRIMARY KEY, b BIGINT UNSIGNED, i BIGINT, f FLOAT, g DOUBLE, c DECIMAL(30,10), d DATE, t TIME(3), dt DATETIME(6), \
        y YEAR, s VARCHAR(20), l VARCHAR(20) CHARACTER SET latin1, x LONGTEXT, j JSON, bi BIT(10), bl BLOB, vb VARBINARY(10), e ENUM('p','q'), st SET('p','q'), u UUID, p POINT, n INT)");
    world.run("INSERT INTO types (id) VALUES (1)");
    let mut engine = world.open();
    engine
        .execute(
            "UPDATE types SET b = 18446744073709551615, i = -9223372036854775808, f = 0.1, g = 0.1, c = 12345678901234567890.0123456789, d = '2024-02-29', \
            t = '-100:01:02.003', dt = '2024-01-02 03:04:05.000006', y = 2024, s = 'ünï😀', l = 'ü', x = REPEAT('a', 3), j = '{\"a\": 1}', bi = b'1000000001', \
            bl = x'00FF', vb = x'FE', e = 'q', st = 'p,q', u = '123e4567-e89b-12d3-a456-426655440000', p = POINT(1, 2) WHERE id = 1",
        )
        .unwrap();
    let found = changes(&mut engine);
    let expected = json!({
        "id": 1, "b": 18446744073709551615_u64, "i": -9223372036854775808_i64, "f": 0.1, "g": 0.1, "c": "12345678901234567890.0123456789", "d": "2024-02-29",
        "t": "-100:01:02.003", "dt": "2024-01-02 03:04:05.000006", "y": 2024, "s": "ünï😀", "l": "ü", "x": "aaa", "j": "{\"a\": 1}", "bi": {"b64": "AgE="},
        "bl": {"b64": "AP8="}, "vb": {"b64": "/g=="}, "e": "q", "st": "p,q", "u": "123e4567-e89b-12d3-a456-426655440000",
        "p": {"b64": "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="}, "n": null,
    });
    assert_eq!(found[0]["new"], expected);
    // And back.
    let row = engine.row("types", "1").unwrap().unwrap();
    engine
        .put_row(
            "types",
            "2",
            Some(&sandboxer_core::model::Row(
                row.0.iter().filter(|(name, _)| name != "id").cloned().collect(),
            )),
        )
        .unwrap();
    let mut copy = engine.row("types", "2").unwrap().unwrap();
    copy.0[0].1 = json!(1);
    assert_eq!(copy, row);
    // Less than what a FLOAT shows of itself; two rows that swap; one letter in much text.
    engine.commit("op").unwrap();
    world.run("CREATE TABLE long_one (id INT PRIMARY KEY, x LONGTEXT, y LONGBLOB)");
    world.run("INSERT INTO long_one VALUES (1, REPEAT('a', 12000000), REPEAT('b', 12000000)), (2, 'one', ''), (3, 'two', '')");
    world.run("UPDATE types SET f = 16777216 WHERE id = 1");
    for (sql, keys) in [
        ("UPDATE types SET f = 16777214 WHERE id = 1", vec![json!(1)]),
        ("UPDATE long_one SET x = INSERT(x, 9999999, 1, 'b') WHERE id = 1", vec![json!(1)]),
        (
            "UPDATE long_one a JOIN long_one b ON b.id = 5 - a.id SET a.x = b.x WHERE a.id = 2; UPDATE long_one SET x = 'one' WHERE id = 3",
            vec![json!(2), json!(3)],
        ),
        ("UPDATE types SET n = 0 WHERE id = 2", vec![json!(2)]),
    ] {
        engine.execute(sql).unwrap();
        let found: Vec<Value> =
            changes(&mut engine).into_iter().map(|change| change["key"]["id"].clone()).collect();
        assert_eq!(found, keys, "{sql}");
        engine.rollback().unwrap();
    }
}

#[test]
fn keys_of_any_kind_find_their_rows_among_many() {
    let Some(mut world) = World::with(PLUGIN) else { return };
    world.run("CREATE TABLE texts (a VARCHAR(20), b DATE, v INT, PRIMARY KEY (a, b)); INSERT INTO texts SELECT CONCAT('k', seq), '2024-01-01' + INTERVAL seq DAY, 0 FROM seq_1_to_5000");
    world.run("CREATE TABLE uniques (a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE (a, b)); INSERT INTO uniques SELECT seq, seq, 0 FROM seq_1_to_500");
    world.run("CREATE TABLE wide (id BIGINT PRIMARY KEY, v INT); INSERT INTO wide VALUES (-9223372036854775808, 0), (-1, 0), (0, 0), (63, 0), (64, 0), (9223372036854775807, 0)");
    let mut engine = world.open();
    engine.execute("UPDATE texts SET v = 1 WHERE a = 'k77'; UPDATE texts SET a = UPPER(a) WHERE a = 'k78'; UPDATE uniques SET v = 1 WHERE a = 9; UPDATE wide SET v = 1").unwrap();
    let found = engine.changes().unwrap();
    let keys: Vec<String> = found
        .rows
        .iter()
        .map(|change| format!("{} {}", change.table, serde_json::to_string(&change.key).unwrap()))
        .collect();
    let expected = [
        r#"texts {"a":"K78","b":"2024-03-19"}"#,
        r#"texts {"a":"k77","b":"2024-03-18"}"#,
        r#"texts {"a":"k78","b":"2024-03-19"}"#,
        r#"uniques {"a":9,"b":9}"#,
        r#"wide {"id":-1}"#,
        r#"wide {"id":-9223372036854775808}"#,
        r#"wide {"id":0}"#,
        r#"wide {"id":63}"#,
        r#"wide {"id":64}"#,
        r#"wide {"id":9223372036854775807}"#,
    ];
    assert_eq!(keys, expected);
    assert_eq!(found.notices, Vec::<String>::new());
    let mut setup = world.setup();
    setup.options.max_rows = 3;
    let mut small = crate::mysql::open(&setup).unwrap();
    engine.rollback().unwrap();
    small.execute("UPDATE wide SET v = 1").unwrap();
    assert!(small.changes().unwrap_err().to_string().contains("more than 3 rows"));
}
