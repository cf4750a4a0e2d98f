//! The suite of databases over every strategy and every database.
//!
//! A keeper is the program that started it, under another name, so this test has a `main` of its own. A test is called
//! `KIND::MODULE`; a single case, `KIND::MODULE::CASE`, can be asked for by its name.
#![allow(missing_docs, clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sandboxer_database::credentials::Environment;
use sandboxer_database::{serve_if_asked, snapshot, transaction};
use sandboxer_testkit::databases::{self, CASES, Case, Fixture, MODULES, Production};
use sandboxer_testkit::servers::mariadb::MariaDb;
use sandboxer_testkit::servers::{self, Given, Postgres};
use sandboxer_testkit::skip;

/// A kind of database with a strategy.
type Kind = (&'static str, fn() -> Option<Fixture>);

const KINDS: &[Kind] = &[
    ("postgres_transaction", postgres),
    ("mariadb_transaction", mariadb),
    ("sqlite_transaction", sqlite_transaction),
    ("sqlite_wal_transaction", sqlite_wal_transaction),
    ("sqlite_snapshot", sqlite_snapshot),
    ("sqlite_wal_snapshot", sqlite_wal_snapshot),
];

/// The server of this process, until everything is done.
static MARIADB: Mutex<Option<Arc<MariaDb>>> = Mutex::new(None);

/// Servers that the environment names, until everything is done.
static GIVEN: Mutex<Vec<Arc<Given>>> = Mutex::new(Vec::new());

fn main() {
    serve_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(run(&arguments));
}

fn run(arguments: &[String]) -> i32 {
    let (flags, words): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|w| w.starts_with('-'));
    let has = |name: &str| flags.iter().any(|flag| *flag == name);
    if has("--list") {
        // None is ignored.
        tests().iter().filter(|_| !has("--ignored")).for_each(|name| println!("{name}: test"));
        return 0;
    }
    let is_it = |name: &str, word: &str| match has("--exact") {
        true => name == word || name.starts_with(&format!("{word}::")),
        false => name.contains(word),
    };
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| is_it(name, word));
    let failed = KINDS.iter().flat_map(|kind| failures(kind, &chosen)).collect::<Vec<_>>();
    println!("test result: {}. failed: {failed:#?}", if failed.is_empty() { "ok" } else { "FAILED" });
    MARIADB.lock().unwrap().take();
    GIVEN.lock().unwrap().clear();
    if failed.is_empty() { 0 } else { 101 }
}

fn tests() -> Vec<String> {
    KINDS.iter().flat_map(|(kind, _)| MODULES.iter().map(move |module| format!("{kind}::{module}"))).collect()
}

fn failures(kind: &Kind, chosen: &dyn Fn(&str) -> bool) -> Vec<String> {
    let named = CASES.iter().map(|case| (format!("{}::{}", kind.0, case.name), case));
    named
        .filter(|(name, _)| chosen(name))
        .filter(|(name, case)| !passes(kind, name, case))
        .map(|(name, _)| name)
        .collect()
}

fn passes(kind: &Kind, name: &str, case: &Case) -> bool {
    let run = || {
        if let Some(fixture) = kind.1() {
            databases::run(case, fixture);
        }
    };
    let ok = catch_unwind(AssertUnwindSafe(run)).is_ok();
    println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
    ok
}

/// This program.
fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}

fn transaction_on(production: impl FnOnce(&Path) -> Production) -> Fixture {
    Fixture::new(transaction::entry(Environment::empty()), program(), production)
}

/// On the user's own server of that kind, if the environment names one.
fn given(kind: servers::Kind) -> Option<Fixture> {
    let mut known = GIVEN.lock().unwrap();
    let at = match known.iter().position(|server| server.kind() == kind) {
        Some(at) => at,
        None => {
            known.push(Arc::new(Given::find(kind)?));
            known.len() - 1
        }
    };
    let (server, secret) = (known[at].clone(), known[at].secret());
    let variable =
        move |name: &str| secret.clone().filter(|(known, _)| *known == name).map(|(_, value)| value);
    let around = Environment { variable: Arc::new(variable), home: None };
    let name = server.database();
    Some(Fixture::new(transaction::entry(around), program(), |_| Production::Given(server, name)))
}

fn postgres() -> Option<Fixture> {
    if let Some(fixture) = given(servers::Kind::Postgres) {
        return Some(fixture);
    }
    let server = Postgres::shared()?;
    Some(transaction_on(|_| Production::Postgres(server, server.database())))
}

fn mariadb() -> Option<Fixture> {
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    if let Some(fixture) = given(servers::Kind::MariaDb) {
        return Some(fixture);
    }
    if let Some(reason) = MariaDb::missing() {
        skip(&reason);
        return None;
    }
    let server = MARIADB.lock().unwrap().get_or_insert_with(|| Arc::new(MariaDb::start())).clone();
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    Production::MariaDb(server.clone(), "mysql".to_owned()).run(&format!("CREATE DATABASE {name}"));
    Some(transaction_on(|_| Production::MariaDb(server, name)))
}

fn sqlite_transaction() -> Option<Fixture> {
    Some(transaction_on(|dir| Production::Sqlite(dir.join("app.db"))))
}

fn sqlite_wal_transaction() -> Option<Fixture> {
    Some(transaction_on(in_wal_mode))
}

fn sqlite_snapshot() -> Option<Fixture> {
    Some(Fixture::new(snapshot::entry(), program(), |dir| Production::Sqlite(dir.join("app.db"))))
}

fn sqlite_wal_snapshot() -> Option<Fixture> {
    Some(Fixture::new(snapshot::entry(), program(), in_wal_mode))
}

fn in_wal_mode(dir: &Path) -> Production {
    let production = Production::Sqlite(dir.join("app.db"));
    production.run("PRAGMA journal_mode = WAL");
    production
}
