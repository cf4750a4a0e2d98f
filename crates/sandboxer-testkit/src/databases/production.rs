//! The database itself, as everybody but the sandbox sees it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use sandboxer_core::model::Resource;
use sandboxer_sqlite::{Connection, Mode, Value};

use crate::servers::mariadb::MariaDb;
use crate::servers::{Given, Kind, Postgres};

/// A database of a case's own.
pub enum Production {
    /// On a server that all cases share.
    Postgres(&'static Postgres, String),
    /// The same; the server stops when nobody needs it any more.
    MariaDb(Arc<MariaDb>, String),
    /// On a server of the user's.
    Given(Arc<Given>, String),
    /// A file.
    Sqlite(PathBuf),
}

impl Production {
    /// What the sandbox is made of.
    pub fn resource(&self) -> Resource {
        match self {
            Self::Postgres(server, database) => Resource::at_url("postgres", &server.socket_url(database)),
            Self::MariaDb(server, database) => Resource::at_url("mysql", &server.url(database)),
            Self::Given(server, database) if self.is_postgres() => {
                Resource::at_url("postgres", &server.url(database))
            }
            Self::Given(server, database) => Resource::at_url("mysql", &server.url(database)),
            Self::Sqlite(path) => Resource::at_path("sqlite", path),
        }
    }

    /// Whether it is one of PostgreSQL's.
    pub fn is_postgres(&self) -> bool {
        match self {
            Self::Given(server, _) => server.kind() == Kind::Postgres,
            other => matches!(other, Self::Postgres(..)),
        }
    }

    /// Whether it is one of MariaDB's.
    pub fn is_mariadb(&self) -> bool {
        match self {
            Self::Given(server, _) => server.kind() == Kind::MariaDb,
            other => matches!(other, Self::MariaDb(..)),
        }
    }

    /// Runs a script, in a connection of its own that waits for no lock.
    pub fn try_run(&self, script: &str) -> Result<(), String> {
        match self {
            Self::Sqlite(path) => open(path).execute_batch(script).map_err(in_full),
            _ if self.is_postgres() => self.tell(&format!("set lock_timeout = '200ms'; {script}")).map(drop),
            _ => {
                let script = format!("SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1; {script}");
                self.tell(&script).map(drop)
            }
        }
    }

    /// The same; panics where it fails.
    pub fn run(&self, script: &str) {
        self.try_run(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    }

    /// What a query of one column gives, parted by commas.
    pub fn ask(&self, query: &str) -> String {
        let lines = match self {
            Self::Sqlite(path) => {
                let rows = open(path).rows(query, &[]).unwrap();
                rows.iter().map(|row| shown(&row[0])).collect::<Vec<_>>().join("\n")
            }
            _ => self.tell(query).unwrap_or_else(|error| panic!("{query}: {error}")),
        };
        lines.trim_end().replace('\n', ",")
    }

    /// What the server's client prints for a script.
    fn tell(&self, script: &str) -> Result<String, String> {
        match self {
            Self::Postgres(server, database) => server.try_sql(database, script),
            Self::Given(server, database) => server.run(database, script),
            _ => {
                let output = self.client().args(["-e", script]).output().unwrap();
                match output.status.success() {
                    true => Ok(String::from_utf8(output.stdout).unwrap()),
                    false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
                }
            }
        }
    }

    /// The command-line client of the server.
    fn client(&self) -> Command {
        match self {
            Self::Postgres(server, database) => {
                let mut psql = Command::new(server.program("psql"));
                psql.args(["-XqAt", "-U", server.user(), "-d", database, "-p", &server.port().to_string()]);
                psql.arg("-h").arg(server.socket_dir());
                psql
            }
            Self::MariaDb(server, database) => {
                let mut mariadb = Command::new("mariadb");
                mariadb.args([
                    "--no-defaults",
                    "-NB",
                    "--raw",
                    "--unbuffered",
                    "--default-character-set=utf8mb4",
                ]);
                mariadb.args(["-uroot", "-S"]).arg(server.socket()).arg(database);
                mariadb
            }
            Self::Given(server, database) => server.client(database),
            Self::Sqlite(_) => panic!("SQLite has no server"),
        }
    }

    /// Runs a script in a transaction that stays open until the answer is dropped.
    pub fn begin(&self, script: &str) -> Open {
        match self {
            Self::Sqlite(path) => {
                let connection = open(path);
                connection.execute_batch(&format!("BEGIN IMMEDIATE; {script}")).unwrap();
                Open::Connection(connection)
            }
            _ => {
                let mut child = self.client().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let mut input = child.stdin.take().unwrap();
                writeln!(input, "BEGIN; {script}; SELECT 'begun';").unwrap();
                input.flush().unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
                assert_eq!(line.trim(), "begun");
                child.stdin = Some(input);
                Open::Client(child)
            }
        }
    }

    /// How a table is called in paths and differences.
    pub fn table(&self, name: &str) -> String {
        if self.is_postgres() { format!("public.{name}") } else { name.to_owned() }
    }

    /// A name in quotes.
    pub fn quoted(&self, name: &str) -> String {
        match self.is_mariadb() {
            true => format!("`{}`", name.replace('`', "``")),
            false => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }

    /// The type of columns of bytes.
    pub fn bytes(&self) -> &'static str {
        if self.is_postgres() { "BYTEA" } else { "BLOB" }
    }

    /// Some bytes as SQL.
    pub fn bytes_of(&self, hex: &str) -> String {
        if self.is_postgres() { format!("'\\x{hex}'::bytea") } else { format!("X'{hex}'") }
    }

    /// The names of the transactions that are prepared on the server.
    pub fn prepared(&self) -> String {
        match self {
            Self::Sqlite(_) => String::new(),
            _ if self.is_mariadb() => self.ask("XA RECOVER"),
            _ => self.ask("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"),
        }
    }
}

/// A transaction of production's.
pub enum Open {
    /// In a client.
    Client(Child),
    /// In this process.
    Connection(Connection),
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Self::Client(child) = self {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

fn open(path: &Path) -> Connection {
    Connection::open(path, Mode::Create).unwrap()
}

fn shown(value: &Value) -> String {
    value.as_text().or_else(|| value.as_integer().map(|n| n.to_string())).unwrap_or_default()
}

fn in_full(error: sandboxer_core::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
