//! A MariaDB of a test's own.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::run::{Lifetime, once_per_run};
use crate::users::USER;

/// Small, quick, and careless about power cuts.
const SETTINGS: &str = "[mariadbd]
innodb_buffer_pool_size=16M
innodb_log_file_size=4M
innodb_data_file_path=ibdata1:4M:autoextend
innodb_flush_log_at_trx_commit=0
innodb_flush_method=nosync
innodb_use_native_aio=0
aria_pagecache_buffer_size=1M
performance_schema=OFF
skip_log_bin
skip_name_resolve
bind_address=127.0.0.1
character_set_server=utf8mb4
";

/// Starts the server, stops it at the end of the input, and removes its directory.
const JANITOR: &str = r#"dir=$1; shift; "$@" </dev/null & pid=$!; read _; kill -KILL $pid; rm -rf "$dir""#;

/// How long the server may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, stopped when it is dropped. Its user `root` has no password.
pub struct MariaDb {
    dir: PathBuf,
    /// Removes the directory. `None` for the server of the run, which outlives this value.
    _guard: Option<TempDir>,
    port: u16,
    server: Option<Child>,
    options: Vec<String>,
}

impl MariaDb {
    /// Why there is none here, if so.
    pub fn missing() -> Option<String> {
        let there = |name: &str| program(name).is_some();
        (!there("mariadbd") || !there("mariadb-install-db"))
            .then(|| "mariadbd is missing (Debian package mariadb-server)".to_owned())
    }

    /// Makes a server and starts it.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with options for the server.
    pub fn start_with(options: &[&str]) -> Self {
        let mut server = Self::prepare(options);
        server.run(Lifetime::Value);
        server
    }

    /// The server of this run. Other tests use it at the same time, each with a [`MariaDb::database`] of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        SHARED.get_or_init(|| {
            let report = once_per_run("mariadb", || {
                let mut server = Self::prepare(&[]);
                server.run(Lifetime::Run);
                server.server = None;
                let _ = server._guard.take().map(TempDir::keep);
                Ok(format!("{} {}", server.port, server.dir.display()))
            });
            let report = report.unwrap();
            let (port, dir) = report.split_once(' ').unwrap();
            let (dir, port) = (dir.into(), port.parse().unwrap());
            Self { dir, _guard: None, port, server: None, options: Vec::new() }
        })
    }

    fn prepare(options: &[&str]) -> Self {
        let guard = tempfile::Builder::new().prefix("mariadb").tempdir_in(crate::in_memory()).unwrap();
        let dir = guard.path().to_path_buf();
        let template = once_per_run("mariadb-template", || Ok(install_template().display().to_string()));
        let copied = Command::new("cp").arg("-a").arg(template.unwrap() + "/.").arg(&dir).status().unwrap();
        assert!(copied.success(), "the template of a MariaDB directory was not copied");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&dir, Some(USER), Some(USER)).unwrap();
        }
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { dir, _guard: Some(guard), port: free_port(), server: None, options }
    }

    /// A new, empty database; returns its name.
    pub fn database(&self) -> String {
        let name = crate::run::unique_name();
        let mut client = Command::new("mariadb");
        client.arg("--no-defaults").arg("--socket").arg(self.socket()).args(["--user=root", "--execute"]);
        let output = client.arg(format!("CREATE DATABASE {name}")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        name
    }

    fn run(&mut self, lifetime: Lifetime) {
        let log = File::create(self.log()).unwrap();
        let mut command = match lifetime {
            Lifetime::Value => server_command(&self.dir, "mariadbd", &[]),
            Lifetime::Run => server_command(&self.dir, "mariadbd", &["sh", "-c", JANITOR, "janitor"]),
        };
        if lifetime == Lifetime::Run {
            command.stdin(lifetime.janitor_input()).process_group(0);
        }
        command.arg(format!("--socket={}", self.socket().display())).arg(format!("--port={}", self.port));
        command.arg(format!("--pid-file={}", self.data().join("pid").display())).args(&self.options);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.server = Some(command.spawn().unwrap());
        self.wait_until("it is ready", |server| {
            std::os::unix::net::UnixStream::connect(server.socket()).is_ok()
        });
    }

    fn wait_until(&mut self, what: &str, ready: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !ready(self) {
            let ended = self.server.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {}", fs::read_to_string(self.log()).unwrap());
            assert!(Instant::now() < deadline, "waited for too long until {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A URL of a database, for the user `root`, by the server's port.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// The same by its socket.
    pub fn socket_url(&self, database: &str) -> String {
        format!("mysql://root@localhost/{database}?socket={}", self.socket().display())
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's socket.
    pub fn socket(&self) -> PathBuf {
        self.data().join("socket")
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Stops it, as an administrator would.
    pub fn stop(&mut self) {
        self.end(rustix::process::Signal::TERM);
    }

    /// Ends it without any warning.
    pub fn kill(&mut self) {
        self.end(rustix::process::Signal::KILL);
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        let Some(mut server) = self.server.take() else { return };
        let pid = rustix::process::Pid::from_child(&server);
        let _ = rustix::process::kill_process(pid, signal);
        let deadline = Instant::now() + PATIENCE;
        while server.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > deadline {
                let _ = server.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_file(self.socket());
    }

    /// Starts it again on the data that it has.
    pub fn start_again(&mut self) {
        self.run(Lifetime::Value);
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // The data go, so there is nothing to be shut down in order.
        self.kill();
    }
}

/// A directory with a configuration and the system tables, which every server of the run begins with: installing them takes
/// seconds.
fn install_template() -> PathBuf {
    let dir = crate::run::run_directory().join("mariadb-template");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("my.cnf"), SETTINGS).unwrap();
    for below in ["data", "tmp"].map(|name| dir.join(name)) {
        fs::create_dir(&below).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&below, Some(USER), Some(USER)).unwrap();
        }
    }
    let mut command = server_command(&dir, "mariadb-install-db", &[]);
    command.args(["--skip-test-db", "--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dir
}

/// One of the server's programs, after the words of `wrapper`, as a user without rights: the server refuses to run as root.
fn server_command(dir: &Path, name: &str, wrapper: &[&str]) -> Command {
    let program = program(name).unwrap();
    let (data, temporary) = (dir.join("data"), dir.join("tmp"));
    let mut command = match wrapper.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(dir).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg(format!("--defaults-file={}", dir.join("my.cnf").display()));
    command.arg(format!("--datadir={}", data.display()));
    // A server removes the temporary tables of others when it starts.
    command.arg(format!("--tmpdir={}", temporary.display()));
    command.current_dir(data).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    command
}

/// A port that nobody listens on at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Where a program is. Servers are not on an ordinary user's PATH.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/local/sbin", "/usr/sbin", "/sbin"]);
    dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}
