//! A command in a runtime: its streams, the signals that are for it, and how its end becomes an exit code.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_extensions::local::{Attached, Command, End, Outcome, Report, Signals as Forwarded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::cli::child;
use crate::cli::error::{CliError, Kind};
use crate::cli::exit;
use crate::cli::output;
use crate::cli::places::is_on_search_path;

/// What runs, and where.
pub struct Job<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Where it works.
    pub directory: &'a Path,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether its stdout becomes our stderr, because ours is for a JSON document.
    pub output_to_stderr: bool,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// How it ended.
pub struct Ended {
    /// How.
    pub end: End,
    /// Whether somebody asked us to end: then nobody is there to be asked anything.
    pub we_were_told_to_end: bool,
    /// What was used and refused, if the runtime ended with it.
    pub report: Option<Box<Report>>,
}

impl Ended {
    /// The exit code: its own, or 128 and the number of the signal, or 124 for a time-out.
    pub fn code(&self) -> u8 {
        match self.end {
            End::Exited(code) => u8::try_from(code).unwrap_or(exit::ERROR),
            End::Killed(signal) => exit::SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0)),
            End::TimedOut => exit::RUN_TIMED_OUT,
            End::Lost | End::DiskLow => exit::SIGNAL_BASE + SIGKILL,
        }
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        match self.end {
            End::Killed(signal) => Some(signal),
            _ => None,
        }
    }

    /// How it ended, in one word for programs.
    pub fn word(&self) -> &'static str {
        match self.end {
            End::Exited(_) => "exited",
            End::Killed(_) => "killed",
            End::TimedOut => "timed_out",
            End::Lost => "lost",
            End::DiskLow => "disk_low",
        }
    }
}

impl From<child::Ended> for Ended {
    fn from(ended: child::Ended) -> Self {
        let end = ended.signal.map_or(End::Exited(i32::from(ended.code)), End::Killed);
        Self { end, we_were_told_to_end: ended.we_were_told_to_end, report: None }
    }
}

/// What ends a command with everything else.
const SIGKILL: u8 = 9;

/// Runs the command and waits for its end.
pub fn run(attached: Attached, job: &Job) -> Result<Ended, CliError> {
    let mut signals = Forwarding::install().map_err(|e| failed(job, &e))?;
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let output = if job.output_to_stderr { error.as_fd() } else { output.as_fd() };
    let command = Command {
        argv: job.command,
        environment: job.environment.clone(),
        directory: job.directory.to_path_buf(),
        streams: [input.as_fd(), output, error.as_fd()],
        timeout: job.timeout,
    };
    let running = attached.run(&command).map_err(|e| not_started(job, e))?;
    let Outcome { end, report } = running.wait(&mut signals).map_err(ours)?;
    Ok(Ended { end, report, we_were_told_to_end: signals.told_to_end })
}

fn not_started(job: &Job, error: Error) -> CliError {
    let program = job.command.first().map(OsString::as_os_str).unwrap_or_default();
    let shown = output::name(program.as_encoded_bytes());
    // A directory that may not be searched makes the system say that the command may not be executed.
    let nowhere = !program.as_encoded_bytes().contains(&b'/') && !is_on_search_path(program);
    match &error {
        Error::Io { step: "execute", source, .. } if nowhere || source.kind() == io::ErrorKind::NotFound => {
            CliError::new(Kind::NotFound, format!("there is no command {shown}")).exiting(exit::RUN_NOT_FOUND)
        }
        Error::Io { step: "execute", source, .. } => {
            let text = source.to_string();
            let reason = text.split(" (os error").next().unwrap_or(&text).to_owned();
            CliError::new(Kind::Error, format!("{shown} cannot be executed: {reason}"))
                .exiting(exit::RUN_NOT_EXECUTABLE)
        }
        _ => ours(error),
    }
}

fn ours(error: Error) -> CliError {
    CliError::from(error).exiting(exit::RUN_FAILED)
}

fn failed(job: &Job, error: &io::Error) -> CliError {
    let shown =
        job.command.first().map(|program| output::name(program.as_encoded_bytes())).unwrap_or_default();
    CliError::new(Kind::Error, format!("cannot run {shown}: {error}")).exiting(exit::RUN_FAILED)
}

/// Signals that are sent to us and meant for the command.
struct Forwarding {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    told_to_end: bool,
}

impl Forwarding {
    fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        Ok(Self {
            delivery: SignalDelivery::with_pipe(read, write, SignalOnly, signals)?,
            told_to_end: false,
        })
    }
}

impl Forwarded for Forwarding {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    fn pending(&mut self) -> Vec<i32> {
        let signals: Vec<i32> = self.delivery.pending().collect();
        self.told_to_end |= signals.iter().any(|signal| matches!(*signal, SIGTERM | SIGHUP));
        signals
    }
}
