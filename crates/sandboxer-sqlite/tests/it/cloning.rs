//! Clones of databases that somebody is writing to, or was.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_sqlite::{
    Connection, Mode, Recorder, Value, Way, clone, companions, exact_difference, session_diff,
};

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path, Mode::Create).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    connection
}

/// One transaction adds a row to each of two tables and a total to a third.
fn write_until(path: &Path, stop: &AtomicBool) {
    let writer = open(path);
    while !stop.load(Ordering::Relaxed) {
        let done = writer.try_execute_batch(
            "BEGIN IMMEDIATE; INSERT INTO a(v) VALUES (randomblob(3000)); INSERT INTO b(v) VALUES (randomblob(300));
             UPDATE total SET n = n + 1; COMMIT",
        );
        if done.is_err() {
            writer.rollback();
        }
        // SQLite polls for its locks: a writer that never lets go starves every other connection.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops the writer, also when an assertion fails: a scope waits for its threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_clone_under_a_live_writer_is_whole() {
    for mode in ["wal", "delete"] {
        let dir = tempfile::tempdir().unwrap();
        let original = dir.path().join("o.db");
        open(&original)
            .execute_batch(&format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE a(v); CREATE TABLE b(v); CREATE TABLE total(n); INSERT INTO total VALUES (0)"
            ))
            .unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_until(&original, &stop));
            let _stop = StopOnDrop(&stop);
            for number in 0..4 {
                let to = dir.path().join(format!("c{number}.db"));
                clone(&original, &to).unwrap();
                let copy = open(&to);
                assert_eq!(copy.value("PRAGMA integrity_check").unwrap(), Value::text("ok"), "{mode}");
                let whole = "SELECT (SELECT count(*) FROM a) = n AND (SELECT count(*) FROM b) = n FROM total";
                assert_eq!(copy.value(whole).unwrap(), Value::Integer(1), "{mode}");
            }
        });
    }
}

#[test]
fn what_a_long_reader_keeps_in_the_wal_is_in_the_clone_and_in_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let [original, to, base] = ["o.db", "c.db", "b.db"].map(|name| dir.path().join(name));
    let writer = open(&original);
    writer.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1,'a')").unwrap();
    clone(&original, &base).unwrap();
    let reader = open(&original);
    reader.begin_read().unwrap();
    writer.execute_batch("INSERT INTO t VALUES (2,'b')").unwrap();
    assert_eq!(clone(&original, &to).unwrap(), Way::Backup);
    assert_eq!(open(&to).integer("SELECT count(*) FROM t").unwrap(), 2);
    let found = exact_difference(&base, &original).unwrap();
    assert_eq!(found.tables[0].keyed.len(), 1);
    assert!(companions(&original)[0].exists());
}

#[test]
fn what_a_crashed_writer_left_is_recovered() {
    for mode in ["wal", "delete"] {
        let dir = tempfile::tempdir().unwrap();
        let [live, crashed, to] = ["live.db", "crashed.db", "c.db"].map(|name| dir.path().join(name));
        let writer = open(&live);
        writer
            .execute_batch(&format!(
                "PRAGMA journal_mode={mode}; PRAGMA cache_size=5; CREATE TABLE t(v); INSERT INTO t VALUES ('kept'); BEGIN"
            ))
            .unwrap();
        // More than the cache holds: the file itself is written to before the end of the transaction.
        for _ in 0..200 {
            writer.execute_batch("INSERT INTO t VALUES (randomblob(2000))").unwrap();
        }
        let names = [&live, &companions(&live)[0], &companions(&live)[2]].map(Clone::clone);
        let copies = [&crashed, &companions(&crashed)[0], &companions(&crashed)[2]].map(Clone::clone);
        for (from, to) in names.iter().zip(&copies).filter(|(from, _)| from.exists()) {
            std::fs::copy(from, to).unwrap();
        }
        clone(&crashed, &to).unwrap();
        let copy = open(&to);
        assert_eq!(copy.value("SELECT group_concat(v) FROM t").unwrap(), Value::text("kept"), "{mode}");
        assert_eq!(copy.value("PRAGMA integrity_check").unwrap(), Value::text("ok"));
    }
}

#[test]
fn what_is_no_database_is_refused_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let [text, broken, missing, to] = ["text", "broken", "missing", "to"].map(|name| dir.path().join(name));
    std::fs::write(&text, "This is a text and no database. ".repeat(100)).unwrap();
    let mut header = b"SQLite format 3\0".to_vec();
    header.resize(4096, 0xee);
    std::fs::write(&broken, header).unwrap();
    for path in [&text, &broken] {
        let error = clone(path, &to).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    }
    assert!(clone(&missing, &to).is_err());
    assert!(!to.exists() && !missing.exists());
    std::fs::write(&to, "mine").unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(clone(&empty, &to).is_err());
    assert_eq!(std::fs::read(&to).unwrap(), b"mine");
    clone(&empty, &dir.path().join("fresh")).unwrap();
}

#[test]
fn another_copy_of_sqlite_in_the_same_binary_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours.db"), dir.path().join("theirs.db"));
    let connection = open(&ours);
    let other = rusqlite::Connection::open(&theirs).unwrap();
    for sql in ["CREATE TABLE t(id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)"] {
        connection.execute_batch(sql).unwrap();
        other.execute_batch(sql).unwrap();
    }
    let has = "SELECT count(*) FROM pragma_compile_options WHERE compile_options = 'ENABLE_SESSION'";
    assert_eq!(connection.integer(has).unwrap(), 1);
    let theirs: i64 = other.query_row(has, [], |row| row.get(0)).unwrap();
    assert_eq!(theirs, 0);
    assert_eq!(sandboxer_sqlite::version(), rusqlite::version());
}

#[test]
fn a_recorder_tells_whole_rows_and_forgets_what_was_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let connection = open(&dir.path().join("o.db"));
    connection
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE log(x); INSERT INTO t VALUES (1,'a','b'),(2,'c','d')")
        .unwrap();
    let mut recorder = Recorder::start(connection).unwrap();
    let run = |recorder: &Recorder, sql: &str| recorder.connection().execute_batch(sql).unwrap();
    run(
        &recorder,
        "BEGIN; UPDATE t SET a='x' WHERE id=1; SAVEPOINT s; DELETE FROM t WHERE id=2; ROLLBACK TO s",
    );
    run(&recorder, "INSERT INTO t VALUES (3,'n',NULL); INSERT INTO log VALUES (1)");
    let changes = recorder.changes().unwrap();
    let text = serde_json::to_string(&changes).unwrap();
    assert_eq!(changes.len(), 2, "{text}");
    assert!(text.contains(r#""old":{"id":1,"a":"a","b":"b"},"new":{"id":1,"a":"x","b":"b"}"#), "{text}");
    assert_eq!(recorder.unrecorded().unwrap(), ["log"]);
    recorder.restart().unwrap();
    assert!(recorder.is_empty() && recorder.changes().unwrap().is_empty());
}

#[test]
fn sqlites_own_comparison_finds_the_same_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let [base, copy] = ["b.db", "c.db"].map(|name| dir.path().join(name));
    open(&base)
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1,1),(2,2),(3,3)")
        .unwrap();
    clone(&base, &copy).unwrap();
    open(&copy)
        .execute_batch("UPDATE t SET v=9 WHERE id=1; DELETE FROM t WHERE id=2; INSERT INTO t VALUES (7,7)")
        .unwrap();
    let session = session_diff(&base, &copy, "t").unwrap();
    assert_eq!(session.changes().unwrap().len(), 3);
    assert_eq!(exact_difference(&base, &copy).unwrap().tables[0].keyed.len(), 3);
}

#[test]
fn a_fifo_in_the_place_of_a_journal_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    Connection::open(&path, Mode::Create).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let [_, _, journal] = sandboxer_sqlite::companions(&path);
    mknodat(CWD, &journal, FileType::Fifo, FileMode::RUSR | FileMode::WUSR, 0).unwrap();
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let connection = Connection::open(&path, Mode::ReadWrite).unwrap();
        done.send(connection.integer("SELECT count(*) FROM t").is_err())
    });
    let failed = outcome.recv_timeout(std::time::Duration::from_secs(60));
    assert!(failed.expect("opening the FIFO waits for a writer"));
}
