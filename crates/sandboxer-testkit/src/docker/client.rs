//! The client's side of a daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::IMAGE;

const PATIENCE: Duration = Duration::from_secs(60);

/// How a daemon is talked to: the client program, and the directory with its socket.
#[derive(Debug)]
pub struct Client {
    dir: PathBuf,
    program: PathBuf,
}

impl Client {
    pub(crate) fn new(dir: PathBuf, program: PathBuf) -> Self {
        Self { dir, program }
    }

    /// The client program.
    pub fn client(&self) -> &Path {
        &self.program
    }

    /// The daemon's address.
    pub fn host(&self) -> String {
        format!("unix://{}/sock", self.dir.display())
    }

    /// Runs the client against this daemon; what it said.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The same where it may fail.
    pub fn try_run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.arg("--host").arg(self.host()).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn wait(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_run(&["version"]).status.success() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if Instant::now() > deadline || log.contains("failed to start daemon") {
                return Err(log.lines().last().unwrap_or("it said nothing").to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(crate) fn import(&self, archive: &Path) {
        self.run(&["import", archive.to_str().unwrap(), IMAGE]);
    }
}
