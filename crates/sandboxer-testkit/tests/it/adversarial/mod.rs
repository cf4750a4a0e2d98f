//! Hostile inputs and faults, each test named after the case it is.
//!
//! Agents inside a sandbox are untrusted, and commit is the trust boundary. Most cases go through the real binary, as
//! an agent or a careless neighbour would meet it.

mod clocks;
mod confinement;
mod content;
mod sharing;
mod size;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sandboxer_testkit::faults::{Cli, Created};
use sandboxer_testkit::manifest::{Facets, Manifest};
use tempfile::TempDir;

/// The strategies that isolate, as far as this machine's temporary directory has them.
pub const STRATEGY: [&str; 2] = ["--strategy", "filesystem_copy"];

/// A resource with a few files, a sandbox over it, and a place outside both.
struct Bench {
    cli: Cli,
    resource: PathBuf,
    outside: PathBuf,
    sandbox: Created,
    _dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// With more in the resource than the usual files.
    fn with(more: impl Fn(&Path)) -> Self {
        let dir = TempDir::with_prefix("sandboxer-adversarial-").unwrap();
        let (resource, outside) = (dir.path().join("resource"), dir.path().join("outside"));
        fs::create_dir_all(resource.join("dir")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        for name in ["a.txt", "b.txt", "dir/c.txt"] {
            fs::write(resource.join(name), format!("{name}\n")).unwrap();
        }
        more(&resource);
        let cli = Cli::new(&dir.path().join("home"));
        let sandbox = cli.create(&resource, &STRATEGY);
        Self { cli, resource, outside, sandbox, _dir: dir }
    }

    fn tree(&self, path: &str) -> PathBuf {
        self.sandbox.path.join(path)
    }

    fn manifest(&self) -> Manifest {
        Manifest::capture(&self.resource)
    }

    /// Runs a command on the sandbox.
    fn run(&self, command: &str, rest: &[&str]) -> Output {
        bounded(&mut self.cli.command(&[&[command, &self.sandbox.id], rest].concat()))
    }

    #[track_caller]
    fn ok(&self, command: &str, rest: &[&str]) -> Output {
        let output = self.run(command, rest);
        assert!(output.status.success(), "{command} {rest:?}: {}", told(&output));
        output
    }

    #[track_caller]
    fn assert_code(&self, code: i32, command: &str, rest: &[&str]) -> Output {
        let output = self.run(command, rest);
        assert_eq!(output.status.code(), Some(code), "{command} {rest:?}: {}", told(&output));
        output
    }

    #[track_caller]
    fn assert_untouched(&self, before: &Manifest) {
        before.assert_same(&self.manifest(), Facets::UNTOUCHED, "the original");
    }

    /// Nothing of the secret is in the original, and it is where and what it was.
    #[track_caller]
    fn assert_secret_kept(&self) {
        assert_eq!(fs::read_to_string(self.outside.join("secret")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(&self.outside).unwrap().count(), 1, "something was planted outside");
        for path in self.manifest().names() {
            let full = self.resource.join(path);
            let leaked = fs::symlink_metadata(&full).unwrap().is_file()
                && fs::read(&full).unwrap() == SECRET.as_bytes();
            assert!(!leaked, "{path:?} holds the secret");
        }
    }
}

const SECRET: &str = "the secret of the outside\n";

/// Everything a command said, for messages.
pub fn told(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}

/// Runs a command that might hang; one that does is killed and fails the test.
fn bounded(command: &mut Command) -> Output {
    let limit = Duration::from_secs(120);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > limit {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

fn collect(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    })
}
