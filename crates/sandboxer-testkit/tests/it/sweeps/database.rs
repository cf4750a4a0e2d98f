//! A commit of files and PostgreSQL as one, killed: both are old, or both are new. The keeper killed instead: the same.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandboxer_testkit::databases::{Production, is_gone, until};
use sandboxer_testkit::faults::{Cli, Point, Trace, sample};
use sandboxer_testkit::servers::Postgres;
use sandboxer_testkit::{full, skip};
use tempfile::TempDir;

const COMMIT_PLAN: [&str; 3] = ["commit", "--plan", "work"];
const SCHEMA: &str =
    "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'old'), (2, 'old')";
const WORK: &str = "UPDATE users SET name = 'new' WHERE id = 1; DELETE FROM users WHERE id = 2; INSERT INTO users VALUES (3, 'new')";

/// A directory and a database in one plan, with pending changes in both.
struct Plan {
    cli: Cli,
    original: PathBuf,
    database: Production,
    dir: TempDir,
}

impl Plan {
    fn new(server: &'static Postgres) -> Self {
        let dir = TempDir::with_prefix_in("sandboxer-databases-", sandboxer_testkit::in_memory()).unwrap();
        let cli = Cli::new(&dir.path().join("home"));
        let original = dir.path().join("files");
        fs::create_dir(&original).unwrap();
        for name in ["a", "b"] {
            fs::write(original.join(name), "old").unwrap();
        }
        let name = server.database();
        let plan = Self { cli, original, database: Production::Postgres(server, name.clone()), dir };
        plan.database.run(SCHEMA);
        plan.make("files", plan.original.to_str().unwrap());
        plan.make("db", &server.socket_url(&name));
        plan.work();
        plan
    }

    fn make(&self, name: &str, location: &str) {
        self.cli.ok(&["create", "--plan", "work", "--name", name, location]);
    }

    /// Changes what is not changed yet.
    fn work(&self) {
        let tree = self.cli.json(&["path", "files"])["sandbox_path"].as_str().unwrap().to_owned();
        let tree = PathBuf::from(tree);
        fs::write(tree.join("a"), "new").unwrap();
        fs::write(tree.join("c"), "new").unwrap();
        let _ = fs::remove_file(tree.join("b"));
        self.exec(WORK);
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
        let files =
            ["a", "b", "c"].map(|name| fs::read_to_string(self.original.join(name)).unwrap_or_default());
        let rows = self.database.ask("SELECT id || name FROM users ORDER BY id");
        match (files.each_ref().map(String::as_str), rows.as_str()) {
            (["old", "old", ""], "1old,2old") => false,
            (["new", "", "new"], "1new,3new") => true,
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
        assert_eq!(self.database.prepared(), "", "{context}: something is still prepared");
        let unsettled = self.cli.operations_in(&["running", "decided"]);
        assert!(unsettled.is_empty(), "{context}: still under way in the log: {unsettled:?}");
        self.go_on(is_new, context);
        is_new
    }

    fn go_on(&self, is_new: bool, context: &str) {
        if !is_new {
            // What was prepared and aborted is gone from the database's side; the files' side is still pending.
            self.cli.ok(&["rollback", "db"]);
            self.exec(WORK);
            self.cli.ok(&COMMIT_PLAN);
            assert!(self.is_new(context), "{context}: the repeated commit did nothing");
        }
        for name in ["files", "db"] {
            self.cli.ok(&["destroy", "--discard", name]);
        }
        assert!(self.keepers().is_empty(), "{context}: a keeper is left");
        self.database.run("UPDATE users SET name = 'free'");
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

/// A server that cannot prepare: its commit is the decision, and recovery asks it what became of it.
fn without_prepared_transactions() -> Option<&'static Postgres> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let start = || Postgres::with_settings(&[("max_prepared_transactions", "0")]);
    SERVER.get_or_init(start).as_ref()
}

#[test]
fn a_killed_commit_of_files_and_rows_is_all_or_nothing() {
    kill_commits_on(Postgres::shared);
}

#[test]
fn a_killed_commit_that_is_decided_by_the_server_is_all_or_nothing() {
    kill_commits_on(without_prepared_transactions);
}

fn kill_commits_on(server: fn() -> Option<&'static Postgres>) {
    if let Some(reason) = Trace::unavailable() {
        return skip(&reason);
    }
    let Some(server) = server() else { return };
    let first = Plan::new(server);
    let points = Trace::new(&first.cli).on_one_processor().points(&COMMIT_PLAN);
    assert!(first.is_new("an undisturbed commit"));
    // What it tells the keeper, and hears from it, changes things as well.
    let talks =
        |point: &Point| ["connect", "sendto", "recvfrom", "sendmsg", "recvmsg"].contains(&&*point.name);
    let changing: Vec<Point> = points.into_iter().filter(|p| full() || p.changes || talks(p)).collect();
    let mut seen = [0, 0];
    for point in sample(&changing, 4) {
        let plan = Plan::new(server);
        Trace::new(&plan.cli).on_one_processor().kill(&point, &COMMIT_PLAN);
        let is_new = plan.recover_and_check(&format!("a commit of files and rows killed at {point:?}"));
        seen[usize::from(is_new)] += 1;
    }
    println!("old {}, new {}", seen[0], seen[1]);
    assert!(seen.iter().all(|count| *count > 0), "a sweep over a whole commit sees both outcomes: {seen:?}");
}

#[test]
fn a_killed_keeper_tears_nothing() {
    kill_keepers_on(Postgres::shared);
}

#[test]
fn a_keeper_killed_at_the_decision_tears_nothing() {
    kill_keepers_on(without_prepared_transactions);
}

/// The keeper dies at a moment of the commit that is another one each time.
fn kill_keepers_on(server: fn() -> Option<&'static Postgres>) {
    let Some(server) = server() else { return };
    let first = Plan::new(server);
    let begun = Instant::now();
    first.cli.ok(&COMMIT_PLAN);
    let whole = begun.elapsed();
    let rounds = if full() { 100 } else { 10 };
    let mut seen = [0, 0];
    for round in 0..rounds {
        let plan = Plan::new(server);
        let moment = whole * round / rounds;
        let code = commit_while_the_keeper_dies(&plan, moment);
        let context = format!("the keeper killed after {moment:?} of {whole:?}, exit {code}");
        let is_new = plan.recover_and_check(&context);
        assert!(is_new || code != 0, "{context}: success was told, and nothing is there");
        seen[usize::from(is_new)] += 1;
    }
    println!("old {}, new {}", seen[0], seen[1]);
}

fn commit_while_the_keeper_dies(plan: &Plan, moment: Duration) -> i32 {
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut command = plan.cli.command(&COMMIT_PLAN);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        scope.spawn(|| {
            // Not to wait for anything: this is the moment that is tried.
            std::thread::sleep(moment);
            plan.kill_keeper();
            killed.store(true, Ordering::Relaxed);
        });
        let code = child.wait().unwrap().code().unwrap_or(-1);
        until("the keeper is killed", || killed.load(Ordering::Relaxed));
        code
    })
}
