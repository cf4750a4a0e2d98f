//! A MariaDB of a test's own.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::run::once_per_run;
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

/// How long the server may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, stopped when it is dropped. Its user `root` has no password.
pub struct MariaDb {
    dir: TempDir,
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
        server.run();
        server
    }

    fn prepare(options: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("mariadb").tempdir_in(crate::in_memory()).unwrap();
        let template = once_per_run("mariadb-template", || Ok(install_template().display().to_string()));
        let copied =
            Command::new("cp").arg("-a").arg(template.unwrap() + "/.").arg(dir.path()).status().unwrap();
        assert!(copied.success(), "the template of a MariaDB directory was not copied");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(dir.path(), Some(USER), Some(USER)).unwrap();
        }
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { dir, port: crate::reserve_port(), server: None, options }
    }

    fn run(&mut self) {
        let log = File::create(self.log()).unwrap();
        let mut command = server_command(self.dir.path(), "mariadbd");
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
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
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
        self.run();
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
    let mut command = server_command(&dir, "mariadb-install-db");
    command.args(["--skip-test-db", "--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dir
}

/// One of the server's programs, as a user without rights: the server refuses to run as root.
fn server_command(dir: &Path, name: &str) -> Command {
    let (data, temporary) = (dir.join("data"), dir.join("tmp"));
    let mut command = Command::new(program(name).unwrap());
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

/// Where a program is. Servers are not on an ordinary user's PATH.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/local/sbin", "/usr/sbin", "/sbin"]);
    dirs.map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}
