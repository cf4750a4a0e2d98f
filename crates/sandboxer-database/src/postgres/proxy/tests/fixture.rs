use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandboxer_testkit::servers::Postgres;
use tempfile::TempDir;

use super::super::super::client::Connection;
use super::super::super::held::{Defences, Held, Settings};
use super::super::super::target::Target;
use super::super::{Options, Proxy};

/// A proxy before a database of its own.
pub struct Fixture {
    pub server: &'static Postgres,
    pub database: String,
    pub proxy: Proxy,
    pub held: Arc<Mutex<Held>>,
    outside: Mutex<Connection>,
    _dir: TempDir,
}

impl Fixture {
    pub fn new(schema: &str) -> Option<Self> {
        Self::with(schema, Defences::default(), Options::default())
    }

    pub fn with(schema: &str, defences: Defences, options: Options) -> Option<Self> {
        let server = Postgres::shared()?;
        let database = server.database();
        server.sql(&database, schema);
        let target = Target::parse(&server.socket_url(&database), "postgres").unwrap();
        let outside = Mutex::new(Connection::connect(&target, None).unwrap());
        let settings = Settings { defences, ..Settings::new(target, None) };
        let held = Arc::new(Mutex::new(Held::begin(settings).unwrap()));
        let dir = tempfile::tempdir().unwrap();
        let proxy = Proxy::start(held.clone(), dir.path(), options).unwrap();
        Some(Self { server, database, proxy, held, outside, _dir: dir })
    }

    /// What an outside connection sees.
    pub fn outside(&self, sql: &str) -> String {
        self.outside_maybe(sql).unwrap()
    }

    /// The same where it may fail.
    pub fn outside_maybe(&self, sql: &str) -> Result<String, String> {
        let rows = self.outside.lock().unwrap().query(sql).map_err(|error| format!("{error:?}"))?;
        Ok(rows.single().unwrap_or_default().to_owned())
    }

    /// What the sandbox itself sees.
    pub fn inside(&self, sql: &str) -> Option<String> {
        let ask = |held: &mut Held| Ok(held.query(sql)?.single().map(str::to_owned));
        self.proxy.with_session(Duration::from_secs(60), ask).unwrap()
    }

    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.server.program(name));
        command.env("PGHOST", self.proxy.socket_dir()).env("PGPORT", "5432").env("PGUSER", self.proxy.user());
        command.env("PGPASSWORD", self.proxy.password()).env("PGDATABASE", &self.database);
        command
    }

    pub fn psql(&self, arguments: &[&str]) -> Output {
        self.program("psql").arg("-XqAt").args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// What psql prints for a command; what it complains of where it fails.
    pub fn ask(&self, sql: &str) -> Result<String, String> {
        let output = self.psql(&["-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The same where it is let in.
    pub fn connect_maybe(&self) -> Option<postgres::Client> {
        postgres::Client::connect(&self.proxy.url(), postgres::NoTls).ok()
    }

    /// A client of the `postgres` crate.
    pub fn connect(&self) -> postgres::Client {
        postgres::Client::connect(&self.proxy.url(), postgres::NoTls).unwrap()
    }
}
