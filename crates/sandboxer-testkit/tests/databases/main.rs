//! The suite of databases over every strategy and every database.
//!
//! A keeper is the program that started it, under another name, so this test has a `main` of its own. A test is called
//! `KIND::MODULE::CASE`. On MariaDB a test is all cases of a module, `KIND::MODULE`: it needs a server of its own, because
//! `XA RECOVER` lists what is prepared on the whole server, and the start takes longer than most cases.
#![allow(missing_docs, clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};
use sandboxer_database::credentials::Environment;
use sandboxer_database::{serve_if_asked, snapshot, transaction};
use sandboxer_testkit::databases::{self, CASES, Case, Fixture, MODULES, Production};
use sandboxer_testkit::servers::mariadb::MariaDb;
use sandboxer_testkit::servers::{self, Given, Postgres};
use sandboxer_testkit::skip;

/// A database with a strategy.
struct Kind {
    name: &'static str,
    /// Whether the cases of a module are one test.
    by_module: bool,
    fixture: fn() -> Option<Fixture>,
}

const KINDS: &[Kind] = &[
    Kind { name: "postgres_transaction", by_module: false, fixture: postgres },
    Kind { name: "mariadb_transaction", by_module: true, fixture: mariadb },
    Kind { name: "sqlite_transaction", by_module: false, fixture: sqlite_transaction },
    Kind { name: "sqlite_wal_transaction", by_module: false, fixture: sqlite_wal_transaction },
    Kind { name: "sqlite_snapshot", by_module: false, fixture: sqlite_snapshot },
    Kind { name: "sqlite_wal_snapshot", by_module: false, fixture: sqlite_wal_snapshot },
];

/// The server of this process, until everything is done.
static MARIADB: Mutex<Option<Arc<MariaDb>>> = Mutex::new(None);

/// Servers that the environment names, until everything is done.
static GIVEN: Mutex<Vec<Arc<Given>>> = Mutex::new(Vec::new());

fn main() {
    serve_if_asked();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), KINDS.iter().flat_map(trials).collect());
    MARIADB.lock().unwrap().take();
    GIVEN.lock().unwrap().clear();
    conclusion.exit()
}

fn trials(kind: &'static Kind) -> Vec<Trial> {
    let names: Vec<&str> = match kind.by_module {
        true => MODULES.to_vec(),
        false => CASES.iter().map(|case| case.name).collect(),
    };
    names
        .into_iter()
        .map(|name| Trial::test(format!("{}::{name}", kind.name), move || run(kind, name)))
        .collect()
}

/// Runs the case of that name, or all cases of the module of that name.
fn run(kind: &Kind, name: &str) -> Result<(), Failed> {
    let is_chosen = |case: &&Case| case.name == name || case.name.split("::").next() == Some(name);
    let failed: Vec<&str> =
        CASES.iter().filter(is_chosen).filter(|case| !passes(kind, case)).map(|case| case.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {failed:#?}").into()) }
}

fn passes(kind: &Kind, case: &Case) -> bool {
    let run = || (kind.fixture)().map(|fixture| databases::run(case, fixture));
    catch_unwind(AssertUnwindSafe(run)).is_ok()
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
