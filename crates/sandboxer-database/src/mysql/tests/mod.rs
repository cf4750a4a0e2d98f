//! Against a real server. Each test has its own, so each covers a subject, not a line.
#![allow(clippy::unwrap_used)]

mod differences;
mod leaks;
mod losses;
mod preparing;
mod work;

use mysql::prelude::Queryable;
use mysql::{Conn, Opts};
use sandboxer_testkit::servers::mariadb::MariaDb;
use sandboxer_testkit::skip;
use tempfile::TempDir;

use crate::engine::{Engine, Options, Setup};

/// A server with a database `shop` and a few tables, and an outsider who looks at it and works with it.
struct World {
    server: MariaDb,
    outside: Conn,
    dir: TempDir,
}

const TABLES: &str = "CREATE TABLE users (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) NOT NULL, age INT DEFAULT 7);
    INSERT INTO users VALUES (1, 'ann', 30), (2, 'bob', 40), (3, 'cid', 50);
    CREATE TABLE orders (id INT PRIMARY KEY, user INT, FOREIGN KEY (user) REFERENCES users (id) ON DELETE CASCADE);
    INSERT INTO orders VALUES (1, 1), (2, 3);
    CREATE TABLE notes (a INT, b TEXT);
    INSERT INTO notes VALUES (1, 'x'), (1, 'x'), (2, 'y')";

impl World {
    /// `None` where there is no server to be had.
    fn new() -> Option<Self> {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Option<Self> {
        if let Some(why) = MariaDb::missing() {
            skip(&why);
            return None;
        }
        let server = MariaDb::start_with(options);
        let mut outside = connect(&server.url("mysql"));
        run(&mut outside, "CREATE DATABASE shop; USE shop");
        run(&mut outside, TABLES);
        Some(Self { server, outside, dir: tempfile::tempdir().unwrap() })
    }

    fn setup(&self) -> Setup {
        Setup {
            kind: "mysql".to_owned(),
            location: self.server.url("shop"),
            workspace: "ws_1".to_owned(),
            dir: self.dir.path().to_owned(),
            user: "postgres".to_owned(),
            password: None,
            options: Options { lock_timeout: std::time::Duration::from_secs(1), ..Options::default() },
        }
    }

    fn open(&self) -> Box<dyn Engine> {
        super::open(&self.setup()).unwrap()
    }

    /// The first column of what a query gives outside, as text.
    fn see(&mut self, sql: &str) -> Vec<String> {
        let rows: Vec<mysql::Row> = self.outside.query(sql).unwrap();
        rows.into_iter()
            .map(|row| row.get::<Option<String>, _>(0).flatten().unwrap_or("NULL".into()))
            .collect()
    }

    fn run(&mut self, sql: &str) {
        run(&mut self.outside, sql);
    }

    /// The number of the connection whose transaction is held.
    fn held(&mut self) -> u64 {
        let sql = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()";
        self.outside.query_first(sql).unwrap().unwrap()
    }
}

/// All statements of it; the driver drops what becomes of the later ones.
fn run(conn: &mut Conn, sql: &str) {
    let mut result = conn.query_iter(sql).unwrap();
    while let Some(set) = result.iter() {
        set.for_each(|row| drop(row.unwrap()));
    }
}

fn connect(url: &str) -> Conn {
    let mut conn = Conn::new(Opts::from_url(url).unwrap()).unwrap();
    conn.query_drop("SET NAMES utf8mb4").unwrap();
    conn
}
