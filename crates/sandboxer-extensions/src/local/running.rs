//! A command in a runtime, from its start to its end: streams, signals and the terminal go back and forth here.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::termios::{isatty, tcgetwinsize};
use sandboxer_core::{Error, Result};

use super::client::Attached;
use super::report::Report;
use super::terminal::{Relay, Resizes};
use super::wire::{End, Exec, Reply, Request, receive, send};

/// What to run.
#[derive(Debug)]
pub struct Command<'a> {
    /// The program and its arguments.
    pub argv: &'a [OsString],
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it works.
    pub directory: PathBuf,
    /// Standard input, output and error. One that is a terminal is replaced by one of the sandbox's own.
    pub streams: [BorrowedFd<'a>; 3],
    /// How long it may take; `None` leaves it to the runtime.
    pub timeout: Option<Duration>,
}

/// A command that runs.
#[derive(Debug)]
pub struct Running<'a> {
    attached: Attached,
    streams: [BorrowedFd<'a>; 3],
    master: Option<OwnedFd>,
}

/// How it ended.
#[derive(Debug)]
pub struct Outcome {
    /// How.
    pub end: End,
    /// What was used and refused, if the runtime ended with it.
    pub report: Option<Box<Report>>,
}

impl Attached {
    /// Starts a command. An [`Error::Io`] with the step `execute` or `enter` is the command's own fault.
    pub fn run<'a>(self, command: &Command<'a>) -> Result<Running<'a>> {
        refuse_directories(&command.streams)?;
        let terminal = command.streams.map(isatty);
        let size = command.streams.iter().find_map(|stream| tcgetwinsize(stream).ok());
        let exec = Exec {
            argv: command.argv.to_vec(),
            environment: command.environment.clone(),
            directory: command.directory.clone(),
            terminal,
            size: size.map_or((0, 0), |size| (size.ws_row, size.ws_col)),
            umask: current_umask(),
            timeout: command.timeout,
        };
        let failed = |e| Error::io("speak to the runtime of", &self.ready().spec.sandbox, e);
        send(&self.socket, &Request::Exec(Box::new(exec)), &command.streams).map_err(failed)?;
        match receive(&self.socket).map_err(failed)? {
            Some((Reply::Started, along)) => {
                Ok(Running { attached: self, streams: command.streams, master: along.into_iter().next() })
            }
            Some((Reply::NotStarted { errno, step }, _)) => Err(not_started(&step, errno)),
            Some((other, _)) => Err(failed(io::Error::other(format!("it says {other:?}")))),
            None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// From a directory of the host one could get anywhere on the host.
fn refuse_directories(streams: &[BorrowedFd<'_>; 3]) -> Result<()> {
    let is_directory = |stream: &BorrowedFd<'_>| {
        fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    if !streams.iter().any(is_directory) {
        return Ok(());
    }
    Err(Error::usage("a contained command gets no directory as its standard input, output or error"))
}

/// There is no way to ask without setting.
fn current_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

fn not_started(step: &str, errno: i32) -> Error {
    let source = io::Error::from_raw_os_error(errno);
    match step.split_once(' ') {
        Some(("execute", program)) => Error::io("execute", program, source),
        Some(("enter", directory)) => Error::io("enter", directory, source),
        _ => Error::refused(format!("cannot {step}: {source}")),
    }
}

impl Running<'_> {
    /// Sends the command a signal, with everything in its process group.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        send(&self.attached.socket, &Request::Signal(signal), &[])
    }

    /// Waits for the end, passing on what is typed and shown, and the signals that come out of `signals`.
    pub fn wait(mut self, signals: &mut dyn Signals) -> Result<Outcome> {
        let sandbox = self.attached.ready().spec.sandbox.clone();
        self.relay(signals).map_err(|e| Error::io("wait for the command in", sandbox, e))
    }

    fn relay(&mut self, signals: &mut dyn Signals) -> io::Result<Outcome> {
        let mut relay = match self.master.take() {
            Some(master) => Some(Relay::begin(master, self.streams)?),
            None => None,
        };
        let resizes = relay.as_ref().map(|_| Resizes::watch()).transpose()?;
        loop {
            let said = {
                let mut fds = vec![
                    PollFd::new(&self.attached.socket, PollFlags::IN),
                    PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN),
                ];
                if let (Some(relay), Some(resizes)) = (&relay, &resizes) {
                    fds.push(PollFd::from_borrowed_fd(resizes.descriptor(), PollFlags::IN));
                    fds.extend(relay.interest());
                }
                match poll(&mut fds, None) {
                    Ok(_) => fds.iter().map(PollFd::revents).collect::<Vec<_>>(),
                    Err(Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                }
            };
            if !said[1].is_empty() {
                for signal in signals.pending() {
                    let _ = self.signal(signal);
                }
            }
            if let (Some(relay), Some(resizes)) = (&mut relay, &resizes) {
                if !said[2].is_empty() {
                    resizes.clear();
                    relay.resize();
                }
                relay.pass(&said[3..])?;
            }
            if !said[0].is_empty() {
                let outcome = self.hear_end()?;
                if let Some(relay) = &mut relay {
                    relay.drain();
                }
                return Ok(outcome);
            }
        }
    }

    fn hear_end(&self) -> io::Result<Outcome> {
        match receive(&self.attached.socket)? {
            Some((Reply::Ended { end, report }, _)) => Ok(Outcome { end, report }),
            Some((other, _)) => Err(io::Error::other(format!("it says {other:?}"))),
            // The supervisor is gone, and everything inside with it.
            None => Ok(Outcome { end: End::Lost, report: None }),
        }
    }
}

/// Signals that are for the command and not for us.
pub trait Signals {
    /// Readable when there are some.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Those that came since.
    fn pending(&mut self) -> Vec<i32>;
}

impl AsFd for Running<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attached.socket.as_fd()
    }
}
