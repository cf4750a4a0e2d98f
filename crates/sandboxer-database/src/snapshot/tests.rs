use std::path::Path;

use sandboxer_core::model::{OnConflict, OpId, Phase};
use sandboxer_sqlite::{Connection, Mode, Value};

use super::*;

pub(super) struct Fixture {
    pub dir: tempfile::TempDir,
    pub original: PathBuf,
    pub strategy: Arc<dyn SandboxStrategy>,
    pub sandbox: SandboxRef,
}

const SCHEMA: &str = "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE log(line);
    INSERT INTO users VALUES (1,'ann'),(2,'bob'),(3,'cy'); INSERT INTO log VALUES ('x')";

fn strategy(home: &Path) -> Arc<dyn SandboxStrategy> {
    (entry().factory)(NAME, &Default::default(), &StrategyContext::quiet(home)).unwrap()
}

pub(super) fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("app.db");
    run(&original, SCHEMA);
    let strategy = strategy(&dir.path().join("home"));
    let resource = Resource::at_path("sqlite", &original);
    let sandbox = strategy.create(&PlanId::generate(), &resource).unwrap();
    Fixture { dir, original, strategy, sandbox }
}

pub(super) fn run(path: &Path, sql: &str) {
    Connection::open(path, Mode::Create).unwrap().execute_batch(sql).unwrap();
}

impl Fixture {
    pub fn clone(&self) -> PathBuf {
        self.sandbox.sandbox_path().unwrap()
    }

    pub fn work(&self, sql: &str) {
        run(&self.clone(), sql);
    }

    pub fn names(&self, path: &Path) -> String {
        let connection = Connection::open(path, Mode::ReadOnly).unwrap();
        let names = connection.value("SELECT group_concat(name) FROM (SELECT name FROM users ORDER BY id)");
        names.unwrap().as_text().unwrap()
    }

    pub fn read(&self, path: &str) -> Result<String> {
        let content = self.strategy.read(&self.sandbox, &RelPath::parse(path).unwrap());
        content.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    pub fn write(&self, path: &str, content: &str) -> Result<Change> {
        self.strategy.write(&self.sandbox, &RelPath::parse(path).unwrap(), content.as_bytes())
    }

    pub fn paths(&self) -> Vec<String> {
        let view = self.strategy.diff(&self.sandbox).unwrap();
        view.entries.iter().map(|entry| entry.path.to_string()).collect()
    }

    pub fn commit(&self, on_conflict: OnConflict) -> Result<CommitResult> {
        let request = CommitRequest { on_conflict, ..CommitRequest::default() };
        self.strategy.commit(&self.sandbox, &request)
    }

    pub fn phase(&self, strategy: &dyn SandboxStrategy, phase: Phase) -> Result<CommitResult> {
        let sandbox = self.sandbox.clone().for_operation(&OpId::from_string("op_1"));
        strategy.commit(&sandbox, &CommitRequest { phase, ..CommitRequest::default() })
    }

    /// Another process, as far as the strategy can tell.
    pub fn another(&self) -> Arc<dyn SandboxStrategy> {
        strategy(&self.dir.path().join("home"))
    }
}

#[test]
fn work_stays_in_the_clone_until_it_is_committed() {
    let fixture = fixture();
    fixture.work("UPDATE users SET name='eve' WHERE id=1; DELETE FROM users WHERE id=2; INSERT INTO log VALUES ('y'); CREATE VIEW v AS SELECT 1");
    let paths = fixture.paths();
    assert_eq!(&paths[..1], ["schema/view/v.sql"]);
    assert!(paths[1].starts_with("tables/log/rows/~"), "{paths:?}");
    assert_eq!(&paths[2..], ["tables/users/rows/1.json", "tables/users/rows/2.json"]);
    assert_eq!(fixture.names(&fixture.original), "ann,bob,cy");
    let result = fixture.commit(OnConflict::Fail).unwrap();
    assert_eq!(result.entries.len(), 4);
    assert_eq!(fixture.names(&fixture.original), "eve,cy");
    assert!(fixture.paths().is_empty());
    fixture.work("UPDATE users SET name='ed' WHERE id=3");
    assert_eq!(fixture.paths(), ["tables/users/rows/3.json"]);
    fixture.commit(OnConflict::Fail).unwrap();
    assert_eq!(fixture.names(&fixture.original), "eve,ed");
}

#[test]
fn what_was_not_reviewed_is_not_committed() {
    let fixture = fixture();
    fixture.work("DELETE FROM users WHERE id=1");
    let digest = Some(fixture.strategy.diff(&fixture.sandbox).unwrap().digest);
    let request = CommitRequest { digest, ..CommitRequest::default() };
    fixture.work("DELETE FROM users WHERE id=2");
    let error = fixture.strategy.commit(&fixture.sandbox, &request).unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { .. }), "{error}");
    assert_eq!(fixture.names(&fixture.original), "ann,bob,cy");
    assert!(!Place::of(&fixture.sandbox).unwrap().commit().exists());
}

#[test]
fn conflicts_are_told_left_pending_or_overruled() {
    let fixture = fixture();
    fixture.work("UPDATE users SET name='mine' WHERE id IN (1,2)");
    run(&fixture.original, "UPDATE users SET name='theirs' WHERE id=1");
    match fixture.commit(OnConflict::Fail).unwrap_err() {
        Error::Conflict { conflicts } => {
            assert_eq!(conflicts.len(), 1);
            assert_eq!(conflicts[0].path.to_string(), "tables/users/rows/1.json");
            assert_eq!(conflicts[0].reason, "changed in the original");
        }
        other => panic!("{other}"),
    }
    assert_eq!(fixture.names(&fixture.original), "theirs,bob,cy");
    let kept = fixture.commit(OnConflict::Ours).unwrap();
    assert_eq!((kept.entries.len(), kept.notices.len(), kept.conflicts.len()), (1, 1, 0));
    assert_eq!(fixture.names(&fixture.original), "theirs,mine,cy");
    assert_eq!(fixture.paths(), ["tables/users/rows/1.json"]);
    assert!(matches!(fixture.commit(OnConflict::Fail), Err(Error::Conflict { .. })));
    fixture.commit(OnConflict::Theirs).unwrap();
    assert_eq!(fixture.names(&fixture.original), "mine,mine,cy");
    assert!(fixture.paths().is_empty());
    assert!(matches!(fixture.commit(OnConflict::Merge), Err(Error::Unsupported { .. })));
}

#[test]
fn a_prepared_commit_survives_its_process_and_is_finished_or_forgotten() {
    let fixture = fixture();
    fixture.work("UPDATE users SET name='new' WHERE id IN (1,2)");
    fixture.phase(&*fixture.strategy, Phase::Prepare).unwrap();
    assert_eq!(fixture.names(&fixture.original), "ann,bob,cy");
    fixture.phase(&*fixture.strategy, Phase::Abort).unwrap();
    assert_eq!(fixture.phase(&*fixture.strategy, Phase::Finish).unwrap(), CommitResult::default());
    assert_eq!(fixture.paths().len(), 2);

    let first = fixture.another();
    fixture.phase(&*first, Phase::Prepare).unwrap();
    drop(first);
    // After it was prepared: neither is part of it.
    fixture.work("UPDATE users SET name='later' WHERE id=3");
    run(&fixture.original, "UPDATE users SET name='meanwhile' WHERE id=2");
    let second = fixture.another();
    let done = fixture.phase(&*second, Phase::Finish).unwrap();
    assert_eq!(done.conflicts.len(), 1);
    assert_eq!(done.conflicts[0].path.to_string(), "tables/users/rows/2.json");
    assert_eq!(fixture.names(&fixture.original), "new,meanwhile,cy");
    assert_eq!(fixture.phase(&*second, Phase::Finish).unwrap(), done);
    assert!(fixture.phase(&*second, Phase::Abort).unwrap_err().is_already_decided());
    assert_eq!(fixture.paths(), ["tables/users/rows/2.json", "tables/users/rows/3.json"]);
}

#[test]
fn a_commit_that_was_stopped_anywhere_is_gone_on_with() {
    for state in [record::State::Prepared, record::State::Decided, record::State::Applied] {
        let fixture = fixture();
        fixture.work("UPDATE users SET name='new' WHERE id=1; INSERT INTO log VALUES ('x')");
        let first = fixture.another();
        fixture.phase(&*first, Phase::Prepare).unwrap();
        drop(first);
        let place = Place::of(&fixture.sandbox).unwrap();
        if state > record::State::Prepared {
            // It was killed when the original had it and nothing else was done.
            let policy = sandboxer_sqlite::Policy::Skip;
            sandboxer_sqlite::apply(&fixture.original, &place.base(), &place.frozen(), policy).unwrap();
            record::Record::read(&place).unwrap().unwrap().reached(state, &place).unwrap();
            assert!(fixture.phase(&*fixture.another(), Phase::Abort).unwrap_err().is_already_decided());
        }
        let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
        assert_eq!((done.entries.len(), done.conflicts.len()), (2, 0), "{state:?}");
        assert_eq!(fixture.names(&fixture.original), "new,bob,cy");
        let count =
            Connection::open(&fixture.original, Mode::ReadOnly).unwrap().integer("SELECT count(*) FROM log");
        assert_eq!(count.unwrap(), 2);
        assert!(fixture.paths().is_empty());
    }
}

#[test]
fn two_commits_to_one_database_do_not_overlap() {
    let fixture = fixture();
    fixture.work("DELETE FROM users WHERE id=1");
    fixture.phase(&*fixture.strategy, Phase::Prepare).unwrap();
    let cancel = sandboxer_core::contract::CancelFlag::default();
    cancel.cancel();
    assert!(matches!(lock::DatabaseLock::acquire(&fixture.original, None, &cancel), Err(Error::Cancelled)));
    fixture.phase(&*fixture.strategy, Phase::Abort).unwrap();
    assert!(lock::DatabaseLock::acquire(&fixture.original, None, &cancel).is_ok());
}

#[test]
fn checkpoints_and_the_base_come_back_for_open_connections_too() {
    let fixture = fixture();
    let program = Connection::open(&fixture.clone(), Mode::ReadWrite).unwrap();
    let names =
        || program.value("SELECT group_concat(name) FROM (SELECT name FROM users ORDER BY id)").unwrap();
    let (one, two) = (CheckpointId::from_string("one"), CheckpointId::from_string("two"));
    program.execute_batch("UPDATE users SET name='one' WHERE id=1").unwrap();
    assert!(fixture.strategy.checkpoint(&fixture.sandbox, &one).unwrap().unwrap().exists());
    program.execute_batch("DROP TABLE log; UPDATE users SET name='two' WHERE id=1").unwrap();
    fixture.strategy.checkpoint(&fixture.sandbox, &two).unwrap();
    let back = fixture.strategy.restore_checkpoint(&fixture.sandbox, &one).unwrap();
    assert!(back.success && back.restored_files >= 2, "{back:?}");
    assert_eq!(names(), Value::text("one,bob,cy"));
    fixture.strategy.restore_checkpoint(&fixture.sandbox, &two).unwrap();
    assert_eq!(names(), Value::text("two,bob,cy"));
    fixture.strategy.rollback(&fixture.sandbox).unwrap();
    assert_eq!(names(), Value::text("ann,bob,cy"));
    assert!(fixture.paths().is_empty());
    let missing = CheckpointId::from_string("three");
    assert!(matches!(
        fixture.strategy.restore_checkpoint(&fixture.sandbox, &missing),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_clone_that_was_destroyed_is_rolled_back() {
    let fixture = fixture();
    std::fs::write(fixture.clone(), "rubbish".repeat(1000)).unwrap();
    assert!(fixture.strategy.diff(&fixture.sandbox).is_err());
    fixture.strategy.rollback(&fixture.sandbox).unwrap();
    assert!(fixture.paths().is_empty());
    std::fs::remove_file(fixture.clone()).unwrap();
    fixture.strategy.rollback(&fixture.sandbox).unwrap();
    assert_eq!(fixture.names(&fixture.clone()), "ann,bob,cy");
}

#[test]
fn rows_and_scripts_have_paths() {
    let fixture = fixture();
    assert!(fixture.read("schema.sql").unwrap().starts_with("CREATE TABLE log(line);\n"));
    assert_eq!(fixture.read("tables").unwrap(), "log\nusers\n");
    let page = fixture.read("tables/users.jsonl?limit=1&after=1").unwrap();
    assert_eq!(page, "{\"id\":2,\"name\":\"bob\"}\n");
    assert_eq!(fixture.read("query?sql=SELECT count(*) AS n FROM users").unwrap(), "{\"n\":3}\n");
    assert!(fixture.read("query?sql=DELETE FROM users RETURNING id").is_ok());
    assert!(fixture.paths().is_empty());
    fixture.write("tables/users/rows/9.json", r#"{"name": "new"}"#).unwrap();
    fixture.write("tables/users/rows/2.json", r#"{"name": "bo"}"#).unwrap();
    fixture.write("tables/users/rows/3.json", "").unwrap();
    assert!(fixture.write("tables/users/rows/3.json", r#"{"id": 4}"#).is_err());
    assert_eq!(fixture.names(&fixture.clone()), "ann,bo,new");
    fixture.write("exec", "INSERT INTO log VALUES ('a'); UPDATE users SET name='all'").unwrap();
    for script in [
        "INSERT INTO log VALUES ('b'); SELECT nonsense",
        "INSERT INTO log VALUES ('b'); COMMIT",
        "ATTACH 'x' AS y",
    ] {
        let error = fixture.write("exec", script).unwrap_err().to_string();
        assert!(error.contains("statement") && error.contains("nothing was done"), "{error}");
    }
    assert_eq!(fixture.read("query?sql=SELECT count(*) AS n FROM log").unwrap(), "{\"n\":2}\n");
    assert_eq!(fixture.read("changes.jsonl").unwrap().lines().count(), 5);
    assert!(fixture.read("tables/missing.jsonl").is_err());
}

#[test]
fn nothing_is_left_of_a_sandbox_but_the_database() {
    let fixture = fixture();
    fixture.work("DELETE FROM users");
    let dir = Place::of(&fixture.sandbox).unwrap().dir;
    fixture.strategy.cleanup(&fixture.sandbox).unwrap();
    fixture.strategy.cleanup(&fixture.sandbox).unwrap();
    assert!(!dir.exists());
    assert_eq!(fixture.names(&fixture.original), "ann,bob,cy");
    let text = fixture.dir.path().join("text");
    std::fs::write(&text, "no database at all, but long enough to look like one".repeat(100)).unwrap();
    let error =
        fixture.strategy.create(&PlanId::generate(), &Resource::at_path("sqlite", &text)).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(std::fs::read_dir(fixture.dir.path().join("home/scratch")).unwrap().count(), 0);
}

const FAMILY: &str = "CREATE TABLE parents(id INTEGER PRIMARY KEY); CREATE TABLE children(id INTEGER PRIMARY KEY, parent REFERENCES parents(id));
    INSERT INTO parents VALUES (1),(2)";

/// One that was prepared by a process that is no more.
fn prepared(work: &str) -> Fixture {
    let fixture = fixture();
    run(&fixture.original, FAMILY);
    let resource = Resource::at_path("sqlite", &fixture.original);
    let sandbox = fixture.strategy.create(&PlanId::generate(), &resource).unwrap();
    let fixture = Fixture { sandbox, ..fixture };
    fixture.work(work);
    fixture.phase(&*fixture.another(), Phase::Prepare).unwrap();
    fixture
}

#[test]
fn what_production_refuses_after_the_decision_stays_pending_and_is_over() {
    let work = "INSERT INTO children VALUES (1,1); UPDATE users SET name='new' WHERE id=1; CREATE VIEW v AS SELECT 1; INSERT INTO log VALUES ('y')";
    for spoil in [
        "DELETE FROM parents WHERE id=1",
        "ALTER TABLE users DROP COLUMN name",
        "CREATE TABLE v(x)",
        "DROP TABLE log; CREATE TABLE log(line CHECK (line IS NULL))",
    ] {
        let fixture = prepared(work);
        run(&fixture.original, spoil);
        let before = std::fs::read(&fixture.original).unwrap();
        let pending = fixture.paths();
        let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
        let told: Vec<String> = done.conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
        assert_eq!((done.entries.len(), told), (0, pending.clone()), "{spoil}");
        assert_eq!(std::fs::read(&fixture.original).unwrap(), before, "{spoil}");
        assert_eq!(fixture.phase(&*fixture.another(), Phase::Finish).unwrap(), done, "{spoil}");
        assert_eq!(fixture.paths(), pending, "{spoil}");
        fixture.strategy.rollback(&fixture.sandbox).unwrap();
        fixture.another().cleanup(&fixture.sandbox).unwrap();
    }
}

#[test]
fn a_database_that_is_gone_after_the_decision_does_not_keep_the_sandbox() {
    for spoil in [None, Some("no database at all, but long enough to look like one")] {
        let fixture = prepared("UPDATE users SET name='new' WHERE id=1");
        std::fs::remove_file(&fixture.original).unwrap();
        if let Some(content) = spoil {
            std::fs::write(&fixture.original, content.repeat(100)).unwrap();
        }
        let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
        assert_eq!((done.entries.len(), done.conflicts.len()), (0, 1));
        fixture.another().cleanup(&fixture.sandbox).unwrap();
    }
}

fn finish_alone(fixture: &Fixture, strategy: &dyn SandboxStrategy, digest: &str) -> Result<CommitResult> {
    let sandbox = fixture.sandbox.clone().for_operation(&OpId::from_string("op_1"));
    let (phase, digest) = (Phase::Finish, Some(digest.to_owned()));
    strategy.commit(&sandbox, &CommitRequest { phase, digest, ..CommitRequest::default() })
}

#[test]
fn alone_it_fails_as_a_whole_where_production_gets_in_between() {
    let fixture = fixture();
    fixture.work("UPDATE users SET name='new' WHERE id IN (1,2)");
    let prepared = fixture.phase(&*fixture.strategy, Phase::Prepare).unwrap();
    run(&fixture.original, "UPDATE users SET name='meanwhile' WHERE id=2");
    match finish_alone(&fixture, &*fixture.strategy, &prepared.digest).unwrap_err() {
        Error::Conflict { conflicts } => {
            assert_eq!(conflicts[0].path.to_string(), "tables/users/rows/2.json")
        }
        other => panic!("{other}"),
    }
    assert_eq!(fixture.names(&fixture.original), "ann,meanwhile,cy");
    fixture.phase(&*fixture.strategy, Phase::Abort).unwrap();
    assert_eq!(fixture.phase(&*fixture.strategy, Phase::Finish).unwrap(), CommitResult::default());
    assert_eq!(fixture.paths().len(), 2);
}

#[test]
fn alone_and_killed_it_is_told_whether_it_happened() {
    for happened in [false, true] {
        let fixture = fixture();
        fixture.work("UPDATE users SET name='new' WHERE id IN (1,2)");
        fixture.phase(&*fixture.another(), Phase::Prepare).unwrap();
        let place = Place::of(&fixture.sandbox).unwrap();
        let record = record::Record::read(&place).unwrap().unwrap();
        record::Record { alone: true, ..record }.reached(record::State::Decided, &place).unwrap();
        if happened {
            let policy = sandboxer_sqlite::Policy::Fail;
            sandboxer_sqlite::apply(&fixture.original, &place.base(), &place.frozen(), policy).unwrap();
        }
        run(&fixture.original, "UPDATE users SET name='meanwhile' WHERE id=2");
        let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
        let counts = (done.entries.len(), done.conflicts.len(), fixture.paths().len());
        let (expected, names) =
            if happened { ((1, 1, 1), "new,meanwhile,cy") } else { ((0, 0, 2), "ann,meanwhile,cy") };
        assert_eq!((counts, &*fixture.names(&fixture.original)), (expected, names));
        assert!(!place.commit().exists());
    }
}

/// What was left is found again by whoever goes on after a crash that came before it was on record.
#[test]
fn a_crash_before_it_is_on_record_what_was_left_changes_nothing_about_it() {
    let fixture = prepared("UPDATE users SET name='new' WHERE id IN (1,2)");
    run(&fixture.original, "UPDATE users SET name='meanwhile' WHERE id=2");
    let place = Place::of(&fixture.sandbox).unwrap();
    let record = record::Record::read(&place).unwrap().unwrap();
    let decided = record.reached(record::State::Decided, &place).unwrap();
    commits::apply(&place, decided.clone()).unwrap();
    decided.write(&place).unwrap();
    let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
    assert_eq!((done.entries.len(), done.conflicts.len()), (1, 1));
    assert_eq!(fixture.paths(), ["tables/users/rows/2.json"]);
    assert_eq!(fixture.names(&fixture.original), "new,meanwhile,cy");
}

#[test]
fn a_crash_after_the_new_base_is_in_its_place_does_not_take_the_clone_for_it() {
    let fixture = prepared("UPDATE users SET name='new' WHERE id IN (1,2)");
    run(&fixture.original, "UPDATE users SET name='meanwhile' WHERE id=2");
    let place = Place::of(&fixture.sandbox).unwrap();
    let record = record::Record::read(&place).unwrap().unwrap();
    commits::apply(&place, record.reached(record::State::Decided, &place).unwrap()).unwrap();
    place::replace(&place.next(), &place.base()).unwrap();
    let done = fixture.phase(&*fixture.another(), Phase::Finish).unwrap();
    assert_eq!((done.entries.len(), done.conflicts.len()), (1, 1));
    assert_eq!(fixture.paths(), ["tables/users/rows/2.json"]);
}
