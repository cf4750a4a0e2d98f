//! Commits of a clone's difference into an original that others have changed.

use std::path::PathBuf;

use sandboxer_core::Error;
use sandboxer_sqlite::{Applied, Connection, Mode, Policy, Value, apply, check, clone, difference};
use serde_json::json;

/// An original, its base and its clone.
struct Three {
    _dir: tempfile::TempDir,
    original: PathBuf,
    base: PathBuf,
    clone: PathBuf,
}

impl Three {
    fn new(schema: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [original, base, copy] = ["original.db", "base.db", "clone.db"].map(|name| dir.path().join(name));
        Connection::open(&original, Mode::Create).unwrap().execute_batch(schema).unwrap();
        clone(&original, &base).unwrap();
        clone(&original, &copy).unwrap();
        Self { _dir: dir, original, base, clone: copy }
    }

    fn in_clone(&self, sql: &str) {
        Connection::open(&self.clone, Mode::ReadWrite).unwrap().execute_batch(sql).unwrap();
    }

    fn in_original(&self, sql: &str) {
        Connection::open(&self.original, Mode::ReadWrite).unwrap().execute_batch(sql).unwrap();
    }

    fn apply(&self, policy: Policy) -> sandboxer_core::Result<Applied> {
        apply(&self.original, &self.base, &self.clone, policy)
    }

    fn original(&self, sql: &str) -> Vec<Vec<Value>> {
        Connection::open(&self.original, Mode::ReadOnly).unwrap().rows(sql, &[]).unwrap()
    }

    fn text(&self, sql: &str) -> String {
        self.original(sql).iter().map(|row| format!("{} ", row[0].to_json())).collect()
    }
}

const FIVE: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d'),(5,'e')";

fn planted() -> Three {
    let three = Three::new(FIVE);
    three.in_clone("UPDATE t SET v='clone' WHERE id IN (1,2); DELETE FROM t WHERE id=3; INSERT INTO t VALUES (6,'clone'); UPDATE t SET v='fine' WHERE id=5");
    three.in_original(
        "UPDATE t SET v='orig' WHERE id IN (1,3); DELETE FROM t WHERE id=2; INSERT INTO t VALUES (6,'orig')",
    );
    three
}

#[test]
fn every_conflict_is_told_and_nothing_is_written() {
    let three = planted();
    let applied = three.apply(Policy::Fail).unwrap();
    let mut told: Vec<String> = applied
        .conflicts
        .iter()
        .map(|c| format!("{} {} {}", c.table, c.change.as_ref().unwrap().key.0[0].1, c.reason))
        .collect();
    told.sort();
    let expected = [
        "t 1 changed in the original",
        "t 2 deleted in the original",
        "t 3 changed in the original",
        "t 6 inserted in the original",
    ];
    assert_eq!(told, expected);
    assert_eq!(three.text("SELECT v FROM t ORDER BY id"), r#""orig" "orig" "d" "e" "orig" "#);
}

#[test]
fn conflicts_are_left_alone_or_overruled_as_asked() {
    let three = planted();
    assert_eq!(three.apply(Policy::Skip).unwrap().conflicts.len(), 4);
    assert_eq!(three.text("SELECT v FROM t ORDER BY id"), r#""orig" "orig" "d" "fine" "orig" "#);
    let three = planted();
    assert_eq!(three.apply(Policy::Accept).unwrap().rows, 5);
    assert_eq!(three.text("SELECT v FROM t ORDER BY id"), r#""clone" "clone" "d" "fine" "clone" "#);
    assert_eq!(three.apply(Policy::Fail).unwrap().rows, 0);
}

#[test]
fn a_check_says_the_same_and_changes_nothing() {
    let three = planted();
    let checked = check(&three.original, &three.base, &three.clone, Policy::Accept).unwrap();
    assert_eq!(three.text("SELECT v FROM t ORDER BY id"), r#""orig" "orig" "d" "e" "orig" "#);
    assert_eq!(checked, three.apply(Policy::Accept).unwrap());
}

#[test]
fn both_sides_may_change_different_rows_and_the_same_row_in_the_same_way() {
    let three = Three::new(FIVE);
    three.in_clone("UPDATE t SET v='x' WHERE id IN (1,2); DELETE FROM t WHERE id=3");
    three.in_original(
        "UPDATE t SET v='x' WHERE id=1; DELETE FROM t WHERE id=3; INSERT INTO t VALUES (9,'new')",
    );
    let applied = three.apply(Policy::Fail).unwrap();
    assert_eq!((applied.rows, applied.already, applied.conflicts.len()), (1, 2, 0));
    assert_eq!(three.text("SELECT v FROM t ORDER BY id"), r#""x" "x" "d" "e" "new" "#);
}

#[test]
fn triggers_do_not_fire_twice() {
    let three = Three::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE TABLE audit(id INTEGER PRIMARY KEY, what);
         CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO audit(what) VALUES (new.v); END",
    );
    three.in_clone("INSERT INTO t VALUES (1,'a')");
    three.apply(Policy::Fail).unwrap();
    assert_eq!(three.text("SELECT count(*) FROM audit"), "1 ");
}

#[test]
fn references_that_would_lead_nowhere_are_refused() {
    let three = Three::new(
        "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE);
         INSERT INTO p VALUES (1),(2); INSERT INTO c VALUES (1,1)",
    );
    three.in_clone("PRAGMA foreign_keys=ON; DELETE FROM p WHERE id=2");
    three.in_original("INSERT INTO c VALUES (2,2)");
    let error = three.apply(Policy::Fail).unwrap_err();
    assert!(error.to_string().contains("row 2 of c refers to p"), "{error}");
    assert_eq!(three.text("SELECT count(*) FROM p"), "2 ");
    three.in_original("DELETE FROM c WHERE id=2");
    three.apply(Policy::Fail).unwrap();
    assert_eq!(three.text("SELECT count(*) FROM p"), "1 ");
}

#[test]
fn rows_without_a_key_count_and_are_told_apart_from_what_was_added_meanwhile() {
    let three =
        Three::new("CREATE TABLE log(a, b); INSERT INTO log VALUES (1,'x'),(1,'x'),(2,'y'),(1.0,'x')");
    three.in_clone("DELETE FROM log WHERE rowid=1; INSERT INTO log VALUES (3,'z'),(3,'z')");
    let changes = difference(&three.base, &three.clone).unwrap();
    assert_eq!((changes.rows.len(), changes.notices.len()), (3, 1));
    assert!(changes.notices[0].contains("no primary key"));
    three.in_original("INSERT INTO log VALUES (9,'other')");
    assert_eq!(three.apply(Policy::Fail).unwrap().rows, 3);
    assert_eq!(three.apply(Policy::Fail).unwrap().rows, 0);
    assert_eq!(three.text("SELECT a || b FROM log ORDER BY 1"), r#""1.0x" "1x" "2y" "3z" "3z" "9other" "#);
    three.in_original("INSERT INTO log VALUES (3,'z')");
    assert!(three.apply(Policy::Fail).unwrap().conflicts[0].reason.contains("3 times instead of 0"));
}

#[test]
fn an_altered_table_is_made_anew_unless_its_rows_were_changed() {
    let altered = || {
        let three = Three::new(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX i ON t(v); CREATE TABLE o(x);
             CREATE TRIGGER tr AFTER DELETE ON t BEGIN INSERT INTO o VALUES (old.id); END; INSERT INTO t VALUES (1,'a'),(2,'b')",
        );
        three.in_clone("ALTER TABLE t ADD COLUMN w DEFAULT 7; UPDATE t SET w=8 WHERE id=2; CREATE VIEW vw AS SELECT w FROM t; PRAGMA user_version=5");
        three
    };
    let three = altered();
    let changes = difference(&three.base, &three.clone).unwrap();
    let kinds: Vec<&str> = changes.schema.iter().map(|change| &*change.kind).collect();
    assert_eq!((kinds, changes.rows.len()), (vec!["pragma", "table", "view"], 1));
    assert_eq!(changes.rows[0].old.as_ref().unwrap().get("w"), Some(&json!(7)));
    let applied = three.apply(Policy::Fail).unwrap();
    assert_eq!((applied.conflicts.len(), applied.definitions), (0, 3));
    assert_eq!(three.text("SELECT w FROM t ORDER BY id"), "7 8 ");
    assert_eq!(three.text("SELECT count(*) FROM sqlite_schema WHERE name IN ('i','tr','vw')"), "3 ");
    assert_eq!(three.text("PRAGMA user_version"), "5 ");
    assert_eq!(three.apply(Policy::Fail).unwrap().definitions, 0);

    let three = altered();
    three.in_original("UPDATE t SET v='mine' WHERE id=1");
    let applied = three.apply(Policy::Fail).unwrap();
    assert!(applied.conflicts[0].reason.contains("rows were changed"), "{:?}", applied.conflicts);
    assert_eq!(three.text("SELECT count(*) FROM pragma_table_info('t')"), "2 ");
}

#[test]
fn a_dropped_table_is_kept_where_the_original_has_more_in_it() {
    let three = Three::new(FIVE);
    three.in_clone("DROP TABLE t");
    three.in_original("INSERT INTO t VALUES (9,'new')");
    assert_eq!(three.apply(Policy::Skip).unwrap().conflicts.len(), 1);
    assert_eq!(three.text("SELECT count(*) FROM t"), "6 ");
    three.in_original("DELETE FROM t WHERE id=9");
    assert_eq!(three.apply(Policy::Fail).unwrap().conflicts.len(), 0);
    assert_eq!(three.text("SELECT count(*) FROM sqlite_schema"), "0 ");
}

#[test]
fn a_full_text_index_goes_over_whole_and_is_refused_when_both_changed_it() {
    let three = Three::new("CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('one')");
    three.in_clone(
        "INSERT INTO f VALUES ('two'); CREATE VIRTUAL TABLE g USING fts5(x); INSERT INTO g VALUES ('three')",
    );
    three.apply(Policy::Fail).unwrap();
    assert_eq!(three.text("SELECT body FROM f WHERE f MATCH 'two'"), r#""two" "#);
    assert_eq!(three.text("SELECT x FROM g WHERE g MATCH 'three'"), r#""three" "#);
    three.in_clone("INSERT INTO f VALUES ('four')");
    three.in_original("INSERT INTO f VALUES ('five')");
    assert!(matches!(three.apply(Policy::Accept), Err(Error::Refused { .. })));
}

#[test]
fn numbers_are_not_given_twice() {
    let three =
        Three::new("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v); INSERT INTO t VALUES (1,'a')");
    three.in_clone("INSERT INTO t VALUES (50,'b'); DELETE FROM t WHERE id=50; INSERT INTO t(v) VALUES ('c')");
    three.in_original("UPDATE sqlite_sequence SET seq=10");
    three.apply(Policy::Fail).unwrap();
    assert_eq!(three.text("SELECT seq FROM sqlite_sequence"), "51 ");
}

#[test]
fn a_change_in_overflow_pages_alone_is_found() {
    let three = Three::new(
        "PRAGMA page_size=4096; CREATE TABLE t(id INTEGER PRIMARY KEY, v);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) INSERT INTO t SELECT i, zeroblob(20000) FROM n",
    );
    three.in_clone("UPDATE t SET v = CAST(substr(v,1,19999) || x'01' AS BLOB) WHERE id=17");
    let changes = difference(&three.base, &three.clone).unwrap();
    assert_eq!(changes.rows.iter().map(|row| row.key.0[0].1.clone()).collect::<Vec<_>>(), [json!(17)]);
}

#[test]
fn the_widest_table_goes_over() {
    let columns: Vec<String> = (0..1999).map(|index| format!("c{index}")).collect();
    let three = Three::new(&format!(
        "CREATE TABLE w(id INTEGER PRIMARY KEY, {}); INSERT INTO w(id) VALUES (1),(2)",
        columns.join(",")
    ));
    three.in_clone("UPDATE w SET c1998=7, c3='x' WHERE id=1; DELETE FROM w WHERE id=2; INSERT INTO w(id,c9) VALUES (3,1)");
    assert_eq!(three.apply(Policy::Fail).unwrap().rows, 3);
    assert_eq!(three.text("SELECT c1998 FROM w ORDER BY id"), "7 null ");
}

/// The text of a definition is anything that a program writes there.
#[test]
fn what_follows_a_definition_in_its_text_is_not_run() {
    for definition in [
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE v(a)",
        "CREATE INDEX v ON t(v)",
        "CREATE TRIGGER v AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE v USING fts5(a)",
    ] {
        let (three, other) = (Three::new(FIVE), Three::new(FIVE));
        let more = format!("; ATTACH ''{}'' AS o; DELETE FROM o.t", other.original.display());
        three.in_clone(&format!(
            "{definition}; PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = sql || '{more}' WHERE name = 'v'"
        ));
        let result = three.apply(Policy::Accept);
        assert_eq!(other.text("SELECT count(*) FROM t"), "5 ", "{definition}");
        assert!(
            matches!(result, Err(Error::Refused { .. } | Error::Corrupt { .. })),
            "{definition}: {result:?}"
        );
    }
}
