//! What a case is given: a database, and sandboxes of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, OnConflict, OpId, Phase, PlanId, RelPath,
    SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_core::{Error, Result};
use sandboxer_keeper::socket::{connect, peer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::production::Production;

/// What every database has at first.
const SCHEMA: &str = "CREATE TABLE users(id INTEGER PRIMARY KEY, name VARCHAR(200), age INTEGER);
    INSERT INTO users VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'cy', 30);";

/// A strategy, and a database for it.
pub struct Fixture {
    entry: StrategyEntry,
    program: PathBuf,
    temp: TempDir,
    /// The database.
    pub production: Production,
}

impl Fixture {
    /// Keepers are started from `program`.
    pub fn new(
        mut entry: StrategyEntry,
        program: &Path,
        production: impl FnOnce(&Path) -> Production,
    ) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let production = production(temp.path());
        production.run(SCHEMA);
        if entry.capabilities.prepare_ends {
            entry.options.insert("lock_timeout_ms".into(), json!(300));
        }
        Self { entry, program: program.to_path_buf(), temp, production }
    }

    /// Sets an option of the strategy.
    pub fn set(&mut self, option: &str, value: Value) {
        self.entry.options.insert(option.to_owned(), value);
    }

    /// What the strategy can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.entry.capabilities
    }

    /// Whether a process holds a transaction.
    pub fn has_keepers(&self) -> bool {
        self.entry.capabilities.prepare_ends
    }

    /// The state directory.
    pub fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    /// The strategy, as another process has it.
    pub fn strategy(&self) -> Arc<dyn SandboxStrategy> {
        let mut context = StrategyContext::quiet(self.home());
        context.program = Some(self.program.clone());
        (self.entry.factory)(&self.entry.name, &self.entry.options, &context).unwrap()
    }

    /// A sandbox of the database.
    pub fn sandbox(&self) -> Sandbox<'_> {
        self.try_sandbox().unwrap()
    }

    /// The same, where it may fail.
    pub fn try_sandbox(&self) -> Result<Sandbox<'_>> {
        let strategy = self.strategy();
        let reference = strategy.create(&PlanId::generate(), &self.production.resource())?;
        Ok(Sandbox { fixture: self, strategy, reference, cleans_up: true })
    }
}

/// A sandbox; the first value of it cleans it up when it is dropped.
pub struct Sandbox<'f> {
    /// Where it belongs.
    pub fixture: &'f Fixture,
    /// Who made it.
    pub strategy: Arc<dyn SandboxStrategy>,
    /// What it is known by.
    pub reference: SandboxRef,
    cleans_up: bool,
}

impl Sandbox<'_> {
    /// The same sandbox in another process.
    pub fn elsewhere(&self) -> Self {
        let text = serde_json::to_string(&self.reference).unwrap();
        let reference = serde_json::from_str(&text).unwrap();
        Self { fixture: self.fixture, strategy: self.fixture.strategy(), reference, cleans_up: false }
    }

    /// The content at a path.
    pub fn read(&self, path: &str) -> Result<String> {
        let content = self.strategy.read(&self.reference, &RelPath::parse(path)?)?;
        Ok(String::from_utf8(content).unwrap())
    }

    /// The JSON lines at a path.
    pub fn lines(&self, path: &str) -> Vec<Value> {
        self.read(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The rows of a query.
    pub fn query(&self, sql: &str) -> Vec<Value> {
        self.lines(&format!("query?sql={sql}"))
    }

    /// The names of the users as the sandbox sees them, parted by commas.
    pub fn names(&self) -> String {
        let rows = self.query("SELECT name FROM users ORDER BY id");
        rows.iter().map(|row| row["name"].as_str().unwrap_or("-")).collect::<Vec<_>>().join(",")
    }

    /// The same as everybody else sees them.
    pub fn names_outside(&self) -> String {
        self.fixture.production.ask("SELECT name FROM users ORDER BY id")
    }

    /// Writes to a path.
    pub fn write(&self, path: &str, content: &str) -> Result<Change> {
        self.strategy.write(&self.reference, &RelPath::parse(path)?, content.as_bytes())
    }

    /// Runs a script.
    pub fn exec(&self, script: &str) {
        self.write("exec", script).unwrap_or_else(|error| panic!("{script}: {error}"));
    }

    /// The path of a row.
    pub fn row(&self, table: &str, key: &str) -> String {
        format!("tables/{}/rows/{key}.json", self.fixture.production.table(table))
    }

    /// What differs.
    pub fn diff(&self) -> DiffView {
        self.strategy.diff(&self.reference).unwrap()
    }

    /// What differs, row by row: key, what it was, what it is.
    pub fn rows(&self) -> Vec<(Value, Value, Value)> {
        let rows = self.diff().entries.into_iter().filter_map(|entry| entry.row);
        rows.map(|row| (json!(row.key), json!(row.old), json!(row.new))).collect()
    }

    /// The paths of what differs, below the table.
    pub fn paths(&self) -> Vec<String> {
        self.diff().entries.iter().map(|entry| entry.path.to_string()).collect()
    }

    /// Commits everything.
    pub fn commit(&self) -> Result<CommitResult> {
        self.commit_with(OnConflict::Fail)
    }

    /// Commits everything in a way.
    pub fn commit_with(&self, on_conflict: OnConflict) -> Result<CommitResult> {
        self.strategy.commit(&self.reference, &CommitRequest { on_conflict, ..CommitRequest::default() })
    }

    /// A phase of the operation of that name.
    pub fn phase(&self, operation: &str, phase: Phase) -> Result<CommitResult> {
        let reference = self.reference.clone().for_operation(&OpId::from_string(operation));
        self.strategy.commit(&reference, &CommitRequest { phase, ..CommitRequest::default() })
    }

    /// Throws everything away.
    pub fn rollback(&self) {
        assert!(self.strategy.rollback(&self.reference).unwrap().success);
    }

    /// Takes a checkpoint.
    pub fn checkpoint(&self, name: &str) {
        self.strategy.checkpoint(&self.reference, &CheckpointId::from_string(name)).unwrap();
    }

    /// Brings one back.
    pub fn restore(&self, name: &str) -> Result<()> {
        self.strategy.restore_checkpoint(&self.reference, &CheckpointId::from_string(name)).map(drop)
    }

    /// Where everything of it is.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from(self.reference.text("dir").unwrap())
    }

    /// The process that holds it.
    pub fn keeper(&self) -> Pid {
        let socket = connect(&self.dir().join("keeper")).unwrap();
        Pid::from_raw(peer(&socket).unwrap().0 as i32).unwrap()
    }

    /// Ends the process that holds it, without any warning, and waits until it is gone.
    pub fn kill_keeper(&self) {
        let keeper = self.keeper();
        kill_process(keeper, Signal::KILL).unwrap();
        until("the keeper is gone", || is_gone(keeper));
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        if self.cleans_up {
            let cleaned = self.strategy.cleanup(&self.reference);
            assert!(cleaned.is_ok() || std::thread::panicking(), "{cleaned:?}");
        }
    }
}

/// Whether a process is no more, or only waits to be asked for its exit code.
pub fn is_gone(process: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(process).is_err() || stat.contains(") Z ")
}

/// Waits for something that another process does.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < end, "in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// An error and everything that caused it.
pub fn in_words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
