//! Values and names that are easily damaged on the way.

use serde_json::{Value, json};

use super::Fixture;

pub(super) fn null_is_not_empty(fixture: &mut Fixture) {
    let sandbox = fixture.sandbox();
    sandbox.exec(
        "UPDATE users SET name = NULL WHERE id = 1; UPDATE users SET name = '', age = NULL WHERE id = 2",
    );
    let rows = sandbox.rows();
    assert_eq!(rows[0].2, json!({"id": 1, "name": null, "age": 10}));
    assert_eq!(rows[1].2, json!({"id": 2, "name": "", "age": null}));
    sandbox.exec("UPDATE users SET name = NULL WHERE id = 2");
    assert_eq!(sandbox.rows()[1].2, json!({"id": 2, "name": null, "age": null}));
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT COUNT(*) FROM users WHERE name IS NULL"), "2");
    sandbox.exec("UPDATE users SET name = 'ann' WHERE id = 1");
    assert_eq!(sandbox.rows()[0].1, json!({"id": 1, "name": null, "age": 10}));
}

pub(super) fn unicode(fixture: &mut Fixture) {
    let text = "Łódź 日本語 😀 e\u{301} \u{202e}rtl \u{feff}";
    let sandbox = fixture.sandbox();
    sandbox.exec(&format!("UPDATE users SET name = '{text}' WHERE id = 1"));
    sandbox.write(&sandbox.row("users", "2"), &json!({"name": text, "age": 20}).to_string()).unwrap();
    let rows = sandbox.rows();
    assert_eq!((&rows[0].2["name"], &rows[1].2["name"]), (&json!(text), &json!(text)));
    sandbox.commit().unwrap();
    assert_eq!(sandbox.names_outside(), format!("{text},{text},cy"));
}

pub(super) fn quotes_in_names(fixture: &mut Fixture) {
    let production = &fixture.production;
    let (table, key, column) = ("o'dd \"t`a/b.l%e", "k\"e'y", "c`o,l");
    let [quoted, quoted_key, quoted_column] = [table, key, column].map(|name| production.quoted(name));
    production.run(&format!("CREATE TABLE {quoted}({quoted_key} INTEGER PRIMARY KEY, {quoted_column} VARCHAR(20)); INSERT INTO {quoted} VALUES (1, 'a')"));
    let sandbox = fixture.sandbox();
    sandbox.exec(&format!("UPDATE {quoted} SET {quoted_column} = 'b'; INSERT INTO {quoted} VALUES (2, 'c')"));
    let view = sandbox.diff();
    assert_eq!(view.entries.len(), 2, "{view:?}");
    let row = view.entries[0].row.clone().unwrap();
    assert_eq!((json!(row.key), json!(row.new)), (json!({key: 1}), json!({key: 1, column: "b"})));
    let path = view.entries[0].path.to_string();
    let read: Value = serde_json::from_str(&sandbox.read(&path).unwrap()).unwrap();
    assert_eq!(read, json!({key: 1, column: "b"}));
    sandbox.write(&path, &json!({column: "d'\"`"}).to_string()).unwrap();
    assert!(sandbox.read("tables").unwrap().contains("o'dd"));
    sandbox.commit().unwrap();
    assert_eq!(production.ask(&format!("SELECT {quoted_column} FROM {quoted} ORDER BY 1")), "c,d'\"`");
}

pub(super) fn large_text(fixture: &mut Fixture) {
    let kind = if fixture.production.is_mariadb() { "LONGTEXT" } else { "TEXT" };
    fixture.production.run(&format!("CREATE TABLE texts(id INTEGER PRIMARY KEY, v {kind}, w {kind})"));
    let sandbox = fixture.sandbox();
    let text: String = (0..200_000).map(|n| format!("{n} ä\n")).collect();
    sandbox.write(&sandbox.row("texts", "1"), &json!({"v": text, "w": "x"}).to_string()).unwrap();
    assert_eq!(sandbox.rows()[0].2["v"], json!(text));
    sandbox.commit().unwrap();
    let in_bytes = fixture.production.is_mariadb();
    let length = if in_bytes { text.len() } else { text.chars().count() };
    assert_eq!(fixture.production.ask("SELECT LENGTH(v) FROM texts"), length.to_string());
    sandbox.exec("UPDATE texts SET w = 'y'");
    let rows = sandbox.rows();
    assert_eq!((&rows[0].1["v"], &rows[0].2["v"]), (&json!(text), &json!(text)));
    assert_eq!((&rows[0].1["w"], &rows[0].2["w"]), (&json!("x"), &json!("y")));
}

pub(super) fn bytes(fixture: &mut Fixture) {
    let production = &fixture.production;
    production.run(&format!("CREATE TABLE blobs(id INTEGER PRIMARY KEY, v {})", production.bytes()));
    production.run(&format!("INSERT INTO blobs VALUES (1, {})", production.bytes_of("00ff")));
    let sandbox = fixture.sandbox();
    sandbox.exec(&format!("UPDATE blobs SET v = {}", production.bytes_of("fe00275c0a")));
    sandbox.write(&sandbox.row("blobs", "2"), r#"{"v": {"b64": "gIEA"}}"#).unwrap();
    let rows = sandbox.rows();
    assert_eq!((&rows[0].1["v"], &rows[0].2["v"]), (&json!({"b64": "AP8="}), &json!({"b64": "/gAnXAo="})));
    assert_eq!(rows[1].2["v"], json!({"b64": "gIEA"}));
    assert!(sandbox.write(&sandbox.row("blobs", "3"), r#"{"v": {"b64": "!"}}"#).is_err());
    sandbox.commit().unwrap();
    let found = format!(
        "SELECT COUNT(*) FROM blobs WHERE v IN ({}, {})",
        production.bytes_of("fe00275c0a"),
        production.bytes_of("808100")
    );
    assert_eq!(production.ask(&found), "2");
}

pub(super) fn a_wide_table(fixture: &mut Fixture) {
    let columns: Vec<String> = (0..300).map(|n| format!("c{n}")).collect();
    let defined: Vec<String> = columns.iter().map(|name| format!("{name} INTEGER")).collect();
    fixture.production.run(&format!("CREATE TABLE wide(id INTEGER PRIMARY KEY, {})", defined.join(", ")));
    fixture.production.run("INSERT INTO wide(id, c7) VALUES (1, 7)");
    let sandbox = fixture.sandbox();
    let all: Vec<String> = columns.iter().map(|name| format!("{name} = 1")).collect();
    sandbox.exec(&format!("UPDATE wide SET {}", all.join(", ")));
    let rows = sandbox.rows();
    assert_eq!(
        (&rows[0].1["c7"], &rows[0].1["c8"], &rows[0].2["c299"]),
        (&json!(7), &Value::Null, &json!(1))
    );
    assert_eq!(rows[0].2.as_object().unwrap().len(), 301);
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT c299 FROM wide"), "1");
}

pub(super) fn big_numbers(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE numbers(id BIGINT PRIMARY KEY, v DOUBLE PRECISION)");
    let sandbox = fixture.sandbox();
    sandbox.exec("INSERT INTO numbers VALUES (9223372036854775807, 0.1), (-9223372036854775807, 1e300)");
    let rows = sandbox.rows();
    assert_eq!(rows[0].0, json!({"id": -9223372036854775807i64}));
    assert_eq!(rows[1].2, json!({"id": 9223372036854775807i64, "v": 0.1}));
    sandbox.write(&sandbox.row("numbers", "9223372036854775807"), r#"{"v": 0.2}"#).unwrap();
    assert_eq!(sandbox.rows()[1].2["v"], json!(0.2));
    sandbox.commit().unwrap();
    assert_eq!(
        fixture.production.ask("SELECT id FROM numbers ORDER BY id"),
        "-9223372036854775807,9223372036854775807"
    );
}

pub(super) fn keys_of_text(fixture: &mut Fixture) {
    fixture.production.run("CREATE TABLE words(word VARCHAR(100) PRIMARY KEY, n INTEGER)");
    let sandbox = fixture.sandbox();
    let words = ["a b", "a,b", "a/b", "..", "ünï", "50%", "it''s", "q?x=1&y", "new\nline", "007"];
    for word in words {
        sandbox.exec(&format!("INSERT INTO words VALUES ('{word}', 1)"));
    }
    let paths = sandbox.paths();
    assert_eq!(paths.len(), words.len(), "{paths:?}");
    for path in &paths {
        sandbox.write(path, r#"{"n": 2}"#).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert_eq!(sandbox.paths(), paths);
    assert!(sandbox.rows().iter().all(|row| row.2["n"] == json!(2)));
    sandbox.commit().unwrap();
    assert_eq!(fixture.production.ask("SELECT COUNT(*) FROM words WHERE n = 2"), words.len().to_string());
}
