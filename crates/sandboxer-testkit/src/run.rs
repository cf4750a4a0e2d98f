//! Servers that all tests of one run share.
//!
//! nextest starts a process for each test, so a server in a `static` would be started once per test. Instead, the first
//! test that needs a server starts it on behalf of the run and records where it is; the others connect to the same one.
//! The server ends with the runner (`cargo-nextest` or `cargo`), even if that is killed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

/// How long a server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// As long as the value that stands for it.
    Value,
    /// As long as the test runner.
    Run,
}

impl Lifetime {
    /// The input of a janitor: it ends when the server is to be stopped.
    pub(crate) fn janitor_input(self) -> Stdio {
        match self {
            Self::Value => Stdio::piped(),
            Self::Run => end_of_run(),
        }
    }
}

/// Returns what `start` reported to the first caller of this run that asked for `name`.
///
/// `start` starts a server, makes a file or tries whether something works here, and returns what other tests need to know
/// of it. An error is kept as well: what fails is tried once per run, not once per test.
pub fn once_per_run(name: &str, start: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
    let lock =
        File::options().create(true).append(true).open(run_directory().join(format!("{name}.lock"))).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let (ready, failed) =
        (run_directory().join(format!("{name}.ready")), run_directory().join(format!("{name}.failed")));
    if let Ok(report) = fs::read_to_string(&ready) {
        return Ok(report);
    }
    if let Ok(reason) = fs::read_to_string(&failed) {
        return Err(reason);
    }
    let outcome = start();
    let (path, text) = match &outcome {
        Ok(report) => (&ready, report),
        Err(reason) => (&failed, reason),
    };
    fs::write(path, text).unwrap();
    outcome
}

/// A directory for files that the tests of this run share. It is removed when the run ends.
pub fn run_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("sandboxer-run-{}", runner().key()));
        if fs::create_dir(&directory).is_ok() {
            fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
            let mut janitor = Command::new("sh");
            janitor.args(["-c", r#"read _; rm -rf "$1""#, "janitor"]).arg(&directory);
            spawn_detached(janitor.stdin(end_of_run()).stdout(Stdio::null()));
        }
        directory
    })
}

/// A name for a database that no other test of this run has. The process id alone is not enough: a run starts so many
/// processes that ids are used again.
pub(crate) fn unique_name() -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let own = parse_stat(std::process::id()).expect("the own process has a /proc entry");
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("test_{}_{}_{number}", std::process::id(), own.start_time)
}

/// The process that started the tests.
struct Runner {
    pid: u32,
    start_time: String,
}

impl Runner {
    /// Distinguishes the run from every other, also after the process id is used again.
    fn key(&self) -> String {
        format!("{}-{}", self.pid, self.start_time)
    }
}

/// The closest ancestor that is a cargo command; the parent, where there is none.
fn runner() -> Runner {
    let parent = parse_stat(std::process::id()).expect("the own process has a /proc entry").parent;
    let mut pid = parent;
    while let Some(stat) = parse_stat(pid) {
        if stat.command.starts_with("cargo") {
            return Runner { pid, start_time: stat.start_time };
        }
        pid = stat.parent;
    }
    let start_time = parse_stat(parent).map(|stat| stat.start_time).unwrap_or_default();
    Runner { pid: parent, start_time }
}

struct Stat {
    command: String,
    parent: u32,
    start_time: String,
}

fn parse_stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let command = before.split_once('(')?.1.to_owned();
    Some(Stat { command, parent: fields.get(1)?.parse().ok()?, start_time: (*fields.get(19)?).to_owned() })
}

/// An input without content that ends when the runner does.
fn end_of_run() -> Stdio {
    let mut tail = Command::new("tail");
    tail.arg(format!("--pid={}", runner().pid)).args(["-f", "/dev/null"]);
    spawn_detached(tail.stdin(Stdio::null()).stdout(Stdio::piped())).map_or_else(Stdio::null, Stdio::from)
}

/// Starts a process that outlives the test and keeps none of its files open.
fn spawn_detached(command: &mut Command) -> Option<ChildStdout> {
    #[expect(clippy::zombie_processes, reason = "the process outlives this one")]
    let child = command.process_group(0).stderr(Stdio::null()).spawn().unwrap();
    child.stdout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_once_per_run() {
        let name = format!("test-{}", std::process::id());
        assert_eq!(once_per_run(&name, || Ok("first".to_owned())), Ok("first".to_owned()));
        assert_eq!(once_per_run(&name, || panic!("it was started already")), Ok("first".to_owned()));
        let broken = format!("{name}-broken");
        assert_eq!(once_per_run(&broken, || Err("no".to_owned())), Err("no".to_owned()));
        assert_eq!(once_per_run(&broken, || panic!("it was tried already")), Err("no".to_owned()));
    }
}
