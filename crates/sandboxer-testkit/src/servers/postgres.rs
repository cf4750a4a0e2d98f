//! A PostgreSQL server for a test.
//!
//! Its directory is copied from a template beside the test binary, since `initdb` takes a second. Run by root, the server
//! runs as `postgres` or `nobody`: it refuses root. A janitor (a shell that reads a pipe of ours) stops it and removes its
//! directory when its value is dropped, and also when the test process dies. Most tests share one server per run and have a
//! database of their own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::run::{Lifetime, once_per_run};
use crate::skip;

/// The superuser of every such server.
const USER: &str = "postgres";

/// Its password, asked for over TCP only.
const PASSWORD: &str = "a password, of the test";

const JANITOR: &str = r#"read _; "$1/pg_ctl" -D "$2/data" -m immediate stop; rm -rf "$2""#;

/// A running server; dropped, it is stopped at once and its directory removed.
#[derive(Debug)]
#[must_use = "the server is stopped when this is dropped"]
pub struct Postgres {
    dir: PathBuf,
    port: u16,
    binaries: Binaries,
    /// `None` for the server of the run, which outlives this value.
    janitor: Option<Child>,
}

/// What every server has unless a test wants it otherwise.
const SETTINGS: [(&str, &str); 1] = [("max_prepared_transactions", "100")];

impl Postgres {
    /// A server with a hundred prepared transactions; `None` where PostgreSQL is missing, which is reported as a skip.
    pub fn start() -> Option<Self> {
        Self::with_settings(&SETTINGS)
    }

    /// A server with these settings; the rest is the default, but nothing is synced to the disk.
    pub fn with_settings(settings: &[(&str, &str)]) -> Option<Self> {
        Some(Self::launch(Binaries::find_or_skip()?, settings, Lifetime::Value))
    }

    /// The server of this run. Other tests use it at the same time, each with a [`Postgres::database`] of its own.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Self::connect_to_shared).as_ref()
    }

    fn connect_to_shared() -> Option<Self> {
        let binaries = Binaries::find_or_skip()?;
        let report = once_per_run("postgres", || {
            let mut server = Self::launch(binaries.clone(), &SETTINGS, Lifetime::Run);
            server.janitor = None;
            Ok(format!("{} {}", server.port, server.dir.display()))
        });
        let report = report.unwrap();
        let (port, dir) = report.split_once(' ').unwrap();
        let (dir, port) = (PathBuf::from(dir), port.parse().unwrap());
        Some(Self { dir, port, binaries, janitor: None })
    }

    fn launch(binaries: Binaries, settings: &[(&str, &str)], lifetime: Lifetime) -> Self {
        let dir = tempfile::Builder::new().prefix("postgres-").tempdir().unwrap().keep();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        binaries.copy_template(&dir.join("data"));
        binaries.give_away(&dir);
        let janitor = Some(binaries.janitor(&dir, lifetime));
        let mut server = Self { dir, port: 0, binaries, janitor };
        server.boot(settings);
        server
    }

    fn boot(&mut self, settings: &[(&str, &str)]) {
        self.port = crate::reserve_port();
        let options = self.options(settings);
        let output = self.pg_ctl(&["-w", "-o", &options, "start"]);
        let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        assert!(output.status.success(), "{}", log());
    }

    fn options(&self, settings: &[(&str, &str)]) -> String {
        let Self { dir, port, .. } = self;
        let mut options = format!("-p {port} -k '{}' -h 127.0.0.1 -F", dir.display());
        for (name, value) in settings {
            options += &format!(" -c {name}='{value}'");
        }
        options
    }

    fn pg_ctl(&self, arguments: &[&str]) -> Output {
        let (data, log) = (self.dir.join("data"), self.dir.join("log"));
        let mut command = self.binaries.command("pg_ctl");
        command.arg("-D").arg(data).arg("-l").arg(log).args(arguments);
        // The server would keep a pipe of ours open.
        let status =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        Output { status, stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Stops it as a crash would, and starts it again on the same port.
    pub fn restart(&self) {
        assert!(self.pg_ctl(&["-w", "-m", "immediate", "restart"]).status.success());
    }

    /// Where it listens on 127.0.0.1, with a password.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its socket is, which trusts everybody.
    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    /// The superuser's name.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The superuser's password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The program of that name that belongs to this server: `psql`, `pg_dump`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.binaries.0.join(name)
    }

    /// A new, empty database.
    pub fn database(&self) -> String {
        let name = crate::run::unique_name();
        self.sql("postgres", &format!("create database {name}"));
        name
    }

    /// The URL of a database over TCP, without the password.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database through the socket.
    pub fn socket_url(&self, database: &str) -> String {
        format!("postgres://{USER}@/{database}?host={}&port={}", self.dir.display(), self.port)
    }

    /// What `psql` prints for a script, without headings, columns parted by `|`; panics where it fails.
    pub fn sql(&self, database: &str, script: &str) -> String {
        self.try_sql(database, script).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The same; the error is what `psql` said.
    pub fn try_sql(&self, database: &str, script: &str) -> Result<String, String> {
        let mut psql = Command::new(self.program("psql"));
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", script]);
        let output = psql.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string()]).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
    }
}

/// The directory of the server's programs.
#[derive(Clone, Debug)]
struct Binaries(PathBuf);

impl Binaries {
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs: Vec<PathBuf> = versions("/usr/lib/postgresql").into_iter().rev().collect();
        dirs.extend(std::env::split_paths(&path));
        dirs.into_iter().find(|dir| dir.join("initdb").exists() && dir.join("postgres").exists()).map(Self)
    }

    /// One of the programs, as a user whom the server accepts.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join(name));
        as_server_user(&mut command);
        command
    }

    fn find_or_skip() -> Option<Self> {
        let found = Self::find();
        if found.is_none() {
            skip("PostgreSQL's initdb and postgres are not installed");
        }
        found
    }

    fn janitor(&self, dir: &Path, lifetime: Lifetime) -> Child {
        let mut shell = Command::new("sh");
        as_server_user(&mut shell);
        shell.args(["-c", JANITOR, "sh"]).arg(&self.0).arg(dir);
        shell.process_group(0).stdin(lifetime.janitor_input());
        shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn copy_template(&self, to: &Path) {
        let status = Command::new("cp").arg("-a").arg(self.template()).arg(to).status().unwrap();
        assert!(status.success(), "the template was not copied");
    }

    /// A fresh data directory beside the test binary, made once for all tests.
    fn template(&self) -> PathBuf {
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let version = self.0.to_string_lossy().replace('/', "-");
        let template = beside.join(format!("postgres-template{version}"));
        if !template.exists() {
            let fresh = self.initialised();
            let near = tempfile::tempdir_in(&beside).unwrap();
            let copy = near.path().join("data");
            let status =
                Command::new("cp").arg("-a").arg(fresh.path().join("data")).arg(&copy).status().unwrap();
            assert!(status.success(), "the template was not kept");
            // Where another test was faster, its template is as good.
            let _ = fs::rename(copy, &template);
        }
        template
    }

    fn initialised(&self) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
        let password = temp.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        self.give_away(temp.path());
        let mut initdb = self.command("initdb");
        initdb.args(["-N", "-U", USER, "-E", "UTF8", "--locale=C", "--auth-local=trust"]);
        initdb.args(["--auth-host=scram-sha-256", "--pwfile"]).arg(&password);
        let output = initdb.arg("-D").arg(temp.path().join("data")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        temp
    }

    /// Makes a directory, and what is in it, the server's.
    fn give_away(&self, dir: &Path) {
        let Some((user, group)) = server_user() else { return };
        chown(dir, Some(user), Some(group)).unwrap();
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let is_dir = entry.file_type().unwrap().is_dir();
            if is_dir {
                self.give_away(&entry.path());
            } else {
                chown(entry.path(), Some(user), Some(group)).unwrap();
            }
        }
    }
}

fn as_server_user(command: &mut Command) {
    command.current_dir("/");
    if let Some((user, group)) = server_user() {
        command.uid(user).gid(group);
    }
}

/// User and group that a server started by root runs as; `None` where we are an ordinary user ourselves.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    ["postgres", "nobody"].into_iter().find_map(|name| ids_of(&passwd, name))
}

fn ids_of(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The directories of programs of each version installed, oldest first.
fn versions(root: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut numbered: Vec<(u32, PathBuf)> =
        entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin")))).collect();
    numbered.sort();
    numbered.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_and_leaves_nothing() {
        let Some(server) = Postgres::start() else { return };
        let name = server.database();
        assert_eq!(server.sql(&name, "select current_setting('max_prepared_transactions')"), "100");
        assert!(server.try_sql(&name, "select 1/0").unwrap_err().contains("division by zero"));
        server.restart();
        assert_eq!(server.sql(&name, "select 1"), "1");
        let dir = server.socket_dir().to_path_buf();
        drop(server);
        assert!(!dir.exists());
    }
}
