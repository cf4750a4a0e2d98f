//! One command under `strace`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use super::points::{Point, parse};
use super::{Cli, binary};

/// How a command under injection ended.
#[derive(Debug)]
pub enum Ended {
    /// It was killed.
    Killed,
    /// It came to its own end with this exit code.
    Exited(i32, Output),
}

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// `EIO`, `ENOSPC`.
    pub error: &'static str,
    /// Whether every later call of the same name and thread fails too: a retry does not help.
    pub from_then_on: bool,
}

/// Runs commands of one [`Cli`] under `strace`.
#[derive(Debug)]
pub struct Trace<'a> {
    cli: &'a Cli,
    /// Confines the command to one processor, so that it does everything on one thread.
    one_processor: bool,
    /// Leaves the processes that it starts, and its other threads, alone.
    alone: bool,
}

impl<'a> Trace<'a> {
    /// Commands of `cli`.
    pub fn new(cli: &'a Cli) -> Self {
        Self { cli, one_processor: false, alone: false }
    }

    /// The same on one processor: work that is spread over as many threads as there are processors stays on one, so
    /// counts hardly vary and most points are reached.
    pub fn on_one_processor(self) -> Self {
        Self { one_processor: true, ..self }
    }

    /// The same for the command's first thread alone: the processes that it starts are not hit.
    pub fn without_children(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Why `strace` cannot be used here, if it cannot.
    pub fn unavailable() -> Option<String> {
        let probe = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
        match probe {
            Err(error) => {
                Some(format!("strace cannot be run ({error}); install it with: apt-get install strace"))
            }
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("strace does not work here: {}", super::cli::describe(&output))),
        }
    }

    /// Runs the command to its end; returns every system call it made.
    pub fn points<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Vec<Point> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let output = self.strace(log.path(), &[], arguments);
        assert!(output.status.success(), "the traced command failed: {}", super::cli::describe(&output));
        let log = String::from_utf8_lossy(&fs::read(log.path()).unwrap()).into_owned();
        // Without `-f` no line says whose it is.
        let whose = if self.alone { "0 " } else { "" };
        parse(&log.lines().map(|line| format!("{whose}{line}\n")).collect::<String>())
    }

    /// Runs the command and kills it as it enters the call at `point`.
    pub fn kill<S: AsRef<OsStr>>(&self, point: &Point, arguments: &[S]) -> Ended {
        self.inject(point, "signal=KILL", "", arguments)
    }

    /// Runs the command and fails the call at `point`.
    pub fn fail<S: AsRef<OsStr>>(&self, point: &Point, failure: Failure, arguments: &[S]) -> Ended {
        let from_then_on = if failure.from_then_on { "+" } else { "" };
        self.inject(point, &format!("error={}", failure.error), from_then_on, arguments)
    }

    fn inject<S: AsRef<OsStr>>(&self, point: &Point, what: &str, more: &str, arguments: &[S]) -> Ended {
        let trace = format!("trace={}", point.name);
        let inject = format!("inject={}:{what}:when={}{more}", point.name, point.nth);
        // Not with --seccomp-bpf, fast as it is: signals are not injected then.
        let options = ["-e", &trace, "-e", &inject];
        let output = self.strace(Path::new("/dev/null"), &options, arguments);
        match (output.status.signal(), output.status.code()) {
            (Some(_), _) => Ended::Killed,
            (None, Some(137)) => Ended::Killed,
            (None, code) => Ended::Exited(code.unwrap_or(-1), output),
        }
    }

    fn strace<S: AsRef<OsStr>>(&self, log: &Path, options: &[&str], arguments: &[S]) -> Output {
        let mut command = if self.one_processor {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "strace"]);
            command
        } else {
            Command::new("strace")
        };
        if !self.alone {
            command.arg("-f");
        }
        command.args(["-qq", "-o"]).arg(log).args(options).arg("--").arg(binary()).args(arguments);
        self.cli.prepare(&mut command);
        command.output().unwrap()
    }
}
