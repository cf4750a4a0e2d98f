//! Commands in a runtime: what it is to be, by flags and settings, and how the command's end becomes an exit code.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::Error;
use sandboxer_core::service::{Target, Workspace};
use sandboxer_extensions::local::{
    Attached, Bind, Command, End, Isolation, Limits, Network, Outcome, Report, Runtimes,
    Signals as Forwarded, Spec, Started,
};
use sandboxer_keeper::enter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::error::{CliError, Kind};
use super::exit;
use super::output;
use super::session::Session;

/// What the runtime of a sandbox is to be.
pub fn spec(session: &Session, target: &Target) -> Result<Spec, CliError> {
    let mut spec = Spec {
        sandbox: target.sandbox.id.as_str().to_owned(),
        isolation: Isolation::Standard,
        network: Network::None,
        limits: Limits::default(),
        home: std::env::home_dir().and_then(|home| home.canonicalize().ok()),
        ..Spec::default()
    };
    for workspace in &target.sandbox.workspaces {
        place(workspace, &mut spec);
    }
    let home = session.manager.home();
    spec.state.push(home.canonicalize().unwrap_or_else(|_| home.to_path_buf()));
    spec.hidden.extend(spec.state.clone());
    Ok(spec)
}

/// Where a workspace is, and where it is to be seen.
fn place(workspace: &Workspace, spec: &mut Spec) {
    let Some(path) = workspace.sandbox_ref.sandbox_path() else { return };
    let from = match enter::inside(&path) {
        Some((keeper, inside)) => {
            spec.keeper = Some(keeper);
            inside
        }
        None => path,
    };
    spec.workspaces.push(Bind { from, at: workspace.resource.path().to_path_buf() });
    if let Some(at) = workspace.sandbox_ref.text("exposes").map(PathBuf::from)
        && let Ok(from) = at.canonicalize()
    {
        spec.exposed.push(Bind { from, at });
    }
}

/// What runs, and where.
pub struct Job<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Where it works.
    pub directory: &'a Path,
    /// The sandbox's id, for its environment.
    pub sandbox_id: &'a str,
    /// Whether its stdout becomes our stderr, because ours is for a JSON document.
    pub output_to_stderr: bool,
    /// What it may see of our environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// How it ended, as `run` tells it.
pub struct Ended {
    /// How.
    pub end: End,
    /// Whether somebody asked us to end: then nobody is there to be asked anything.
    pub we_were_told_to_end: bool,
    /// What was used and refused, if everything ended with it.
    pub report: Option<Box<Report>>,
}

impl Ended {
    /// The exit code: its own, or 128 and the number of the signal, or 124 for a time-out.
    pub fn code(&self) -> u8 {
        match self.end {
            End::Exited(code) => u8::try_from(code).unwrap_or(exit::ERROR),
            End::Killed(signal) => exit::SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0)),
            End::TimedOut => exit::RUN_TIMED_OUT,
            End::Lost | End::DiskLow => exit::SIGNAL_BASE + 9,
        }
    }
}

/// A client of the sandbox's runtime, which is started where it does not run.
pub fn attach(session: &Session, program: &Path, spec: &Spec) -> Result<Attached, CliError> {
    let runtimes = Runtimes::new(session.manager.home(), program);
    match runtimes.start(spec).map_err(CliError::from)? {
        Started::Attached(attached) => Ok(*attached),
        Started::Refused(refusal) => {
            Err(CliError::new(Kind::Unavailable, format!("the command cannot be contained here: {refusal}"))
                .hint("`sandbox doctor` says what this machine allows")
                .hint("isolate files only, with everything else open to the command: --isolation files"))
        }
    }
}

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
    let Outcome { end, report } =
        running.wait(&mut signals).map_err(|e| CliError::from(e).exiting(exit::RUN_FAILED))?;
    Ok(Ended { end, report, we_were_told_to_end: signals.told_to_end })
}

fn not_started(job: &Job, error: Error) -> CliError {
    let shown =
        job.command.first().map(|program| output::name(program.as_encoded_bytes())).unwrap_or_default();
    match &error {
        Error::Io { step: "execute", source, .. } if source.kind() == io::ErrorKind::NotFound => {
            CliError::new(Kind::NotFound, format!("there is no command {shown}")).exiting(exit::RUN_NOT_FOUND)
        }
        Error::Io { step: "execute", source, .. } => {
            let text = source.to_string();
            let reason = text.split(" (os error").next().unwrap_or(&text).to_owned();
            CliError::new(Kind::Error, format!("{shown} cannot be executed: {reason}"))
                .exiting(exit::RUN_NOT_EXECUTABLE)
        }
        _ => CliError::from(error).exiting(exit::RUN_FAILED),
    }
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
