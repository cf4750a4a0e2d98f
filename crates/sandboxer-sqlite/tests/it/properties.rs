//! Any edits that an ordinary program makes to a clone are found, and make the base equal to the clone when applied.

use std::path::Path;

use proptest::prelude::*;
use rusqlite::Connection as Program;
use rusqlite::types::Value;
use sandboxer_sqlite::{Policy, apply, clone, exact_difference, naive_difference};

const SCHEMA: &str = r#"
    CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT UNIQUE, data);
    CREATE INDEX people_data ON people(data);
    CREATE TABLE words(word TEXT PRIMARY KEY, data);
    CREATE TABLE log(at, data);
    CREATE TABLE pairs(one INT, two TEXT COLLATE NOCASE, data, PRIMARY KEY(two, one)) WITHOUT ROWID;
    CREATE TABLE "we""ird
 täble"(id INTEGER PRIMARY KEY AUTOINCREMENT, data, double AS (id * 2), next AS (id + 1) STORED);
    CREATE TABLE desc_key(id INTEGER PRIMARY KEY DESC, data);
    CREATE TABLE taken(rowid INT PRIMARY KEY, _rowid_, oid, data);
    CREATE VIRTUAL TABLE texts USING fts5(body);
"#;

const TABLES: [(&str, &str); 7] = [
    ("people", "id"),
    ("words", "word"),
    ("log", "at"),
    ("pairs", "one"),
    ("\"we\"\"ird\n täble\"", "id"),
    ("desc_key", "id"),
    ("taken", "rowid"),
];

#[derive(Clone, Debug)]
struct Edit {
    what: u8,
    table: usize,
    key: u16,
    size: u16,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (0..40_u8, 0..TABLES.len(), 0..300_u16, 0..6000_u16);
    prop::collection::vec(edit.prop_map(|(what, table, key, size)| Edit { what, table, key, size }), 0..25)
}

fn data(edit: &Edit) -> Value {
    let bytes = (0..edit.size).map(|at| (at ^ edit.key) as u8).collect();
    match edit.key % 7 {
        0 => Value::Null,
        1 => Value::Integer(i64::MAX - i64::from(edit.size)),
        2 => Value::Real(f64::INFINITY),
        3 => Value::Text("ß".repeat(edit.size.into())),
        _ => Value::Blob(bytes),
    }
}

fn insert(program: &Program, edit: &Edit, number: u16) {
    let (table, key) = TABLES[edit.table];
    let data = data(&Edit { key: number, ..edit.clone() });
    let result = match table {
        "people" => program.execute(
            "INSERT OR REPLACE INTO people(id, name, data) VALUES (?1, 'n' || ?1, ?2)",
            (number, data),
        ),
        "words" if number.is_multiple_of(11) => {
            program.execute("INSERT INTO words(word, data) VALUES (NULL, ?1)", [data])
        }
        "pairs" => program.execute(
            "INSERT OR REPLACE INTO pairs(one, two, data) VALUES (?1 / 2, 'T' || ?1 % 3, ?2)",
            (number, data),
        ),
        _ => program
            .execute(&format!("INSERT OR REPLACE INTO {table}({key}, data) VALUES (?1, ?2)"), (number, data)),
    };
    result.unwrap();
}

fn perform(program: &Program, edit: &Edit) {
    let (table, key) = TABLES[edit.table];
    let (number, size) = (edit.key, edit.size);
    let run = |sql: String| program.execute_batch(&sql);
    let result = match edit.what {
        0..=9 => {
            insert(program, edit, number);
            Ok(())
        }
        10..=14 => run(format!("DELETE FROM {table} WHERE {key} = {number}")),
        15..=16 => run(format!("DELETE FROM {table} WHERE {key} % 3 = {}", number % 3)),
        17..=20 => program
            .execute(&format!("UPDATE {table} SET data = ?1 WHERE {key} = {number}"), [data(edit)])
            .map(|_| ()),
        // The end of a long value alone, which is not on the leaf.
        21..=24 => run(format!(
            "UPDATE {table} SET data = substr(data, 1, length(data) - 2) || x'{:04x}' WHERE typeof(data) = 'blob' AND length(data) > 2",
            size
        )),
        25 => run("VACUUM".to_owned()),
        26 => run("PRAGMA journal_mode = WAL".to_owned()).map(|_| ()),
        27 => run("PRAGMA journal_mode = DELETE".to_owned()).map(|_| ()),
        28 => run(format!("ALTER TABLE {table} ADD COLUMN c{number}_{size} DEFAULT {size}")),
        29 => run(format!("CREATE TABLE new{number}(a PRIMARY KEY, b); INSERT INTO new{number} VALUES ({size}, 1), (NULL, 2)")),
        30 => run(format!("CREATE INDEX i{number}_{size} ON {table}(data)")),
        31 => run("DROP INDEX IF EXISTS people_data".to_owned()),
        32 => run(format!("CREATE VIEW v{number} AS SELECT * FROM log; PRAGMA user_version = {size}")),
        // Two rows exchange a unique name.
        33..=35 => run(
            "UPDATE people SET name = 'tmp' WHERE id = (SELECT min(id) FROM people);
             UPDATE people SET name = 'n' || (SELECT min(id) FROM people) WHERE id = (SELECT max(id) FROM people);
             UPDATE people SET name = 'n' || (SELECT max(id) FROM people) WHERE name = 'tmp'"
                .to_owned(),
        ),
        36..=37 => run(format!("INSERT INTO texts VALUES ('text {number} of {size}')")),
        38 => run(format!("DELETE FROM texts WHERE rowid % 2 = {}", number % 2)),
        _ => (0..60).try_for_each(|more| {
            insert(program, edit, number + more);
            Ok(())
        }),
    };
    match result {
        Ok(()) => {}
        // The same name or value once more.
        Err(error) if error.to_string().contains("exist") || error.to_string().contains("UNIQUE") => {}
        // What adds a column with a default that is not constant, and such.
        Err(error) => panic!("{edit:?}: {error}"),
    }
}

/// Everything that is stored, as an ordinary program reads it.
fn dump(path: &Path) -> Vec<String> {
    let program = Program::open(path).unwrap();
    let ok: String = program.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
    let mut lines = Vec::new();
    let list = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' ORDER BY name";
    let mut names = program.prepare(list).unwrap();
    let names: Vec<(String, String)> =
        names.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    for (name, sql) in names {
        lines.push(sql.clone());
        if !sql.starts_with("CREATE TABLE") {
            continue;
        }
        let mut rows = program.prepare(&format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""))).unwrap();
        let columns = rows.column_count();
        let line = |row: &rusqlite::Row<'_>| -> String {
            (0..columns).map(|index| format!("{:?} ", row.get_ref(index).unwrap())).collect()
        };
        let mut found: Vec<String> =
            rows.query_map([], |row| Ok(line(row))).unwrap().map(Result::unwrap).collect();
        found.sort();
        lines.extend(found.into_iter().map(|line| format!("{name}: {line}")));
    }
    lines
}

fn seeded(path: &Path, page_size: u32, auto_vacuum: u8, wal: bool) {
    let program = Program::open(path).unwrap();
    program
        .execute_batch(&format!("PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}"))
        .unwrap();
    program.execute_batch(SCHEMA).unwrap();
    if wal {
        program.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    }
    program.execute_batch("BEGIN").unwrap();
    for (table, number) in (0..TABLES.len()).flat_map(|table| (0..150).map(move |number| (table, number))) {
        let size = if number % 10 == 0 { 3000 } else { number };
        insert(&program, &Edit { what: 0, table, key: number, size }, number);
    }
    program.execute_batch("COMMIT").unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_program_did_is_found_and_can_be_repeated(
        edits in edits(),
        page_size in prop::sample::select(vec![512_u32, 1024, 4096]),
        auto_vacuum in 0..3_u8,
        wal in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let [original, base, copy] = ["original.db", "base.db", "clone.db"].map(|name| dir.path().join(name));
        seeded(&original, page_size, auto_vacuum, wal);
        clone(&original, &base).unwrap();
        clone(&original, &copy).unwrap();
        let program = Program::open(&copy).unwrap();
        edits.iter().for_each(|edit| perform(&program, edit));
        drop(program);

        let found = exact_difference(&base, &copy).unwrap();
        let expected = naive_difference(&base, &copy).unwrap();
        prop_assert_eq!(&found, &expected);

        let applied = apply(&original, &base, &copy, Policy::Fail).unwrap();
        prop_assert!(applied.conflicts.is_empty(), "{:?}", applied.conflicts);
        prop_assert_eq!(dump(&original), dump(&copy));
        prop_assert!(naive_difference(&original, &copy).unwrap().is_empty());

        let again = apply(&original, &base, &copy, Policy::Fail).unwrap();
        prop_assert!(again.conflicts.is_empty(), "{:?}", again.conflicts);
        prop_assert_eq!((again.rows, again.definitions), (0, 0));
    }
}
