//! A commit of files and SQLite as one, killed: both are old, or both are new. Where a process holds the transaction and that is killed
//! instead: the same.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use sandboxer_testkit::databases::{Production, is_gone, until};
use sandboxer_testkit::faults::{Cli, Point, Trace, sample};
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const COMMIT_PLAN: [&str; 3] = ["commit", "--plan", "work"];
/// A table with a key, and one without.
const SCHEMA: &str =
    "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'old'), (2, 'old');
    CREATE TABLE log(line); INSERT INTO log VALUES ('old')";
const WORK: &str = "UPDATE users SET name = 'new' WHERE id = 1; DELETE FROM users WHERE id = 2; INSERT INTO users VALUES (3, 'new');
    INSERT INTO log VALUES ('new')";
/// Only rows without a key: the file alone tells whether they were committed.
const KEYLESS: &str = "INSERT INTO log VALUES ('new')";

/// A directory and a database in one plan, with pending changes in both.
struct Plan {
    cli: Cli,
    original: PathBuf,
    database: Production,
    work: &'static str,
    dir: TempDir,
}

impl Plan {
    fn new(strategy: &str, work: &'static str) -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-sqlite-", sandboxer_testkit::in_memory()).unwrap();
        let cli = Cli::new(&dir.path().join("home"));
        let (original, file) = (dir.path().join("files"), dir.path().join("app.db"));
        fs::create_dir(&original).unwrap();
        fs::write(original.join("a"), "old").unwrap();
        let plan = Self { cli, original, database: Production::Sqlite(file.clone()), work, dir };
        plan.database.run(SCHEMA);
        plan.make(&["--name", "files", plan.original.to_str().unwrap()]);
        plan.make(&["--name", "db", "--strategy", strategy, file.to_str().unwrap()]);
        let tree = plan.cli.json(&["path", "files"])["sandbox_path"].as_str().unwrap().to_owned();
        fs::write(PathBuf::from(&tree).join("a"), "new").unwrap();
        fs::write(PathBuf::from(tree).join("c"), "new").unwrap();
        plan.exec(work);
        plan
    }

    fn make(&self, what: &[&str]) {
        self.cli.ok(&[&["create", "--plan", "work"], what].concat());
    }

    fn exec(&self, script: &str) {
        let mut command = self.cli.command(&["write", "db", "exec"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Whether everything is new; a panic if it is neither all old nor all new.
    #[track_caller]
    fn is_new(&self, context: &str) -> bool {
        let files = ["a", "c"].map(|name| fs::read_to_string(self.original.join(name)).unwrap_or_default());
        let rows =
            self.database.ask("SELECT group_concat(id || name) FROM (SELECT * FROM users ORDER BY id)");
        let lines =
            self.database.ask("SELECT group_concat(line) FROM (SELECT * FROM log ORDER BY line DESC)");
        let new_rows = if self.work == WORK { "1new,3new" } else { "1old,2old" };
        match (files.each_ref().map(String::as_str), rows.as_str(), lines.as_str()) {
            (["old", ""], "1old,2old", "old") => false,
            (["new", "new"], rows, "old,new") if rows == new_rows => true,
            torn => panic!("{context}: torn: {torn:?}\n{}", self.log()),
        }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&self.cli.run(&["log"]).stdout).into_owned()
    }

    /// Another command puts right what was left: both are old, or both are new, and work goes on.
    fn recover_and_check(&self, context: &str) -> bool {
        self.cli.ok(&["list"]);
        let is_new = self.is_new(context);
        let unsettled = self.cli.operations_in(&["running", "decided"]);
        assert!(unsettled.is_empty(), "{context}: still under way in the log: {unsettled:?}");
        if !is_new {
            self.cli.ok(&["rollback", "db"]);
            self.exec(self.work);
            self.cli.ok(&COMMIT_PLAN);
            assert!(self.is_new(context), "{context}: the repeated commit did nothing");
        }
        for name in ["files", "db"] {
            self.cli.ok(&["destroy", "--discard", name]);
        }
        assert!(self.keepers().is_empty(), "{context}: a keeper is left");
        self.database.run("UPDATE users SET name = 'free'");
        is_new
    }

    /// The processes that hold transactions of this plan.
    fn keepers(&self) -> Vec<Pid> {
        let home = fs::canonicalize(self.dir.path()).unwrap().display().to_string();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let of_ours = |id: &i32| {
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.starts_with("sandbox-database\0") && line.contains(&home)
        };
        ids.filter(of_ours).filter_map(Pid::from_raw).collect()
    }

    fn kill_keeper(&self) {
        for keeper in self.keepers() {
            let _ = kill_process(keeper, Signal::KILL);
            until("the keeper is gone", || is_gone(keeper));
        }
    }
}

/// A directory with a mount in it stays: what is still there is ended first.
impl Drop for Plan {
    fn drop(&mut self) {
        for name in ["files", "db"] {
            self.cli.run(&["destroy", "--discard", name]);
        }
        self.kill_keeper();
    }
}

#[test]
fn a_killed_commit_of_files_and_a_snapshot_is_all_or_nothing() {
    kill_commits("database_snapshot");
}

#[test]
fn a_killed_commit_of_files_and_a_held_transaction_is_all_or_nothing() {
    kill_commits("transaction_rollback");
}

fn kill_commits(strategy: &str) {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let first = Plan::new(strategy, WORK);
    let points = Trace::new(&first.cli).on_one_processor().points(&COMMIT_PLAN);
    assert!(first.is_new("an undisturbed commit"));
    // What it tells the keeper, and hears from it, changes things as well.
    let talks =
        |point: &Point| ["connect", "sendto", "recvfrom", "sendmsg", "recvmsg"].contains(&&*point.name);
    let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes || talks(p)).collect();
    let mut seen = [0, 0];
    for point in sample(&changing, 2) {
        let plan = Plan::new(strategy, WORK);
        Trace::new(&plan.cli).on_one_processor().kill(&point, &COMMIT_PLAN);
        let is_new = plan.recover_and_check(&format!("a commit with {strategy} killed at {point:?}"));
        seen[usize::from(is_new)] += 1;
    }
    println!("old {}, new {}", seen[0], seen[1]);
    assert!(seen.iter().all(|count| *count > 0), "a sweep over a whole commit sees both outcomes: {seen:?}");
}

/// The keeper dies at a moment of the commit that is another one each time. What it committed is told by the rows, whether they have a key
/// or not.
#[test]
fn a_killed_keeper_tears_nothing() {
    for work in [WORK, KEYLESS] {
        let first = Plan::new("transaction_rollback", work);
        let begun = Instant::now();
        first.cli.ok(&COMMIT_PLAN);
        let whole = begun.elapsed();
        let rounds = if full() { 100 } else { 8 };
        for round in 0..rounds {
            let plan = Plan::new("transaction_rollback", work);
            let moment = whole * round / rounds;
            let mut command = plan.cli.command(&COMMIT_PLAN);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // Not to wait for anything: this is the moment that is tried.
            std::thread::sleep(moment);
            plan.kill_keeper();
            let code = child.wait().unwrap().code().unwrap_or(-1);
            let context = format!("{work}: the keeper killed after {moment:?} of {whole:?}, exit {code}");
            let is_new = plan.recover_and_check(&context);
            assert!(is_new || code != 0, "{context}: success was told, and nothing is there");
        }
    }
}
