//! One program of this machine, run to its end: input, bounded output, a deadline, a flag to stop.
//!
//! It gets a process group of its own, which is killed as a whole where time runs out: `ssh` may have started others (`ProxyCommand`) that
//! would hold our pipes open.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

/// How often somebody who waits looks whether to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// How much is kept of what a program complains of: its end.
pub(crate) const COMPLAINTS: usize = 64 << 10;
const PIECE: usize = 64 << 10;

/// Hears the end of what a program has complained of so far.
pub type Hears<'a> = &'a dyn Fn(&[u8]);

/// What a program is given, how long it may take, and how much it may say.
pub(crate) struct Bounds<'a> {
    pub input: &'a [u8],
    pub deadline: Duration,
    pub output: usize,
    pub cancel: Option<&'a CancelFlag>,
    /// Told each time that there is more.
    pub heard: Option<Hears<'a>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// How long it took to say its first word; to end, where it said nothing.
    pub first_word: Duration,
}

/// Runs `command` to its end. An error names it by `name`.
pub(crate) fn run(command: &mut Command, name: &str, bounds: &Bounds<'_>) -> Result<Outcome> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Group::spawn(child)?.hear(bounds, |e| Error::io("run a command on", name, e))
}

/// A program, and whatever it started, killed when this is dropped before its end.
#[derive(Debug)]
pub(crate) struct Group {
    pub child: Child,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts it in a process group of its own.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.process_group(0).spawn().map_err(|e| not_started(command, e))?;
        Ok(Self { child, ended: None })
    }

    /// Waits for its end up to `deadline`; `None` where that did not come.
    pub fn wait(
        &mut self,
        deadline: Option<Duration>,
        cancel: Option<&CancelFlag>,
    ) -> io::Result<Option<ExitStatus>> {
        let until = deadline.map(|deadline| Instant::now() + deadline);
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        while self.ended.is_none() {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || cancel.is_some_and(CancelFlag::is_cancelled) {
                return Ok(None);
            }
            wait_for(pidfd.as_fd(), PollFlags::IN, left.min(LOOK))?;
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    fn hear(mut self, bounds: &Bounds<'_>, failed: impl Fn(io::Error) -> Error) -> Result<Outcome> {
        let mut input =
            Input::new(self.child.stdin.take().map(OwnedFd::from), bounds.input).map_err(&failed)?;
        let mut stdout = Output::new(self.child.stdout.take().map(OwnedFd::from), bounds.output);
        let mut stderr = Output::new(self.child.stderr.take().map(OwnedFd::from), COMPLAINTS);
        let begun = Instant::now();
        let until = begun + bounds.deadline;
        let mut first_word = None;
        let pidfd =
            pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        while self.ended.is_none() || stdout.from.is_some() || stderr.from.is_some() {
            bounds.cancel.map_or(Ok(()), CancelFlag::check)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(too_late(bounds.deadline)));
            }
            let heard = stderr.total;
            self.step(&mut input, &mut stdout, &mut stderr, &pidfd, left.min(LOOK)).map_err(&failed)?;
            if let Some(tell) = bounds.heard.filter(|_| stderr.total > heard) {
                tell(&stderr.bytes);
            }
            if !stdout.bytes.is_empty() {
                first_word.get_or_insert_with(|| begun.elapsed());
            }
            if stdout.lost > 0 {
                return Err(failed(io::Error::other(format!("it says more than {} bytes", bounds.output))));
            }
        }
        let status = self.ended.ok_or_else(|| failed(io::ErrorKind::Interrupted.into()))?;
        let first_word = first_word.unwrap_or_else(|| begun.elapsed());
        Ok(Outcome { status, stdout: stdout.bytes, stderr: stderr.bytes, first_word })
    }

    /// Waits for the next thing to happen, and does it.
    fn step(
        &mut self,
        input: &mut Input<'_>,
        stdout: &mut Output,
        stderr: &mut Output,
        pidfd: &OwnedFd,
        most: Duration,
    ) -> io::Result<()> {
        let process = Some(pidfd).filter(|_| self.ended.is_none());
        let watched = [
            (input.to.as_ref(), PollFlags::OUT),
            (stdout.from.as_ref(), PollFlags::IN),
            (stderr.from.as_ref(), PollFlags::IN),
            (process, PollFlags::IN),
        ];
        let [writable, said, complained, ended] = ready(watched, most)?;
        if writable {
            input.give()?;
        }
        if said {
            stdout.take_first()?;
        }
        if complained {
            stderr.take_last()?;
        }
        if ended {
            self.ended = self.child.try_wait()?;
        }
        Ok(())
    }

    /// Kills it with everything that it started and has not left its group.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

fn not_started(command: &Command, error: io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() != io::ErrorKind::NotFound {
        return Error::io("run", program, error);
    }
    let missing = format!("{program} is not installed; hosts are reached by OpenSSH's client");
    Error::io("run", program, io::Error::new(io::ErrorKind::NotFound, missing))
}

fn too_late(deadline: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", deadline.as_secs_f64()))
}

/// Which of some descriptors something can be done with.
fn ready<const N: usize>(
    watched: [(Option<&OwnedFd>, PollFlags); N],
    most: Duration,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<PollFd<'_>> =
        watched.iter().filter_map(|(fd, flags)| fd.map(|fd| PollFd::new(fd, *flags))).collect();
    poll_for(&mut polled, most)?;
    let mut said = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(watched.map(|(fd, _)| fd.is_some() && said.next().unwrap_or(false)))
}

/// Waits until something can be done with a descriptor, or `most` is over.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags, most: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    poll_for(&mut polled, most)?;
    Ok(!polled[0].revents().is_empty())
}

fn poll_for(polled: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.min(LOOK).subsec_nanos().max(1)) };
    match poll(polled, Some(&most)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Makes reads and writes answer at once.
pub(crate) fn never_wait(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// What is still to be told to a program.
struct Input<'a> {
    to: Option<OwnedFd>,
    left: &'a [u8],
}

impl<'a> Input<'a> {
    fn new(to: Option<OwnedFd>, left: &'a [u8]) -> io::Result<Self> {
        to.as_ref().map_or(Ok(()), never_wait)?;
        // Nothing to be said is said by closing at once.
        Ok(Self { to: to.filter(|_| !left.is_empty()), left })
    }

    fn give(&mut self) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        match rustix::io::write(to, self.left) {
            Ok(count) => self.left = &self.left[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Whoever does not listen to the end says why, or does not need to.
            Err(Errno::PIPE) => self.left = &[],
            Err(e) => return Err(e.into()),
        }
        if self.left.is_empty() {
            self.to = None;
        }
        Ok(())
    }
}

/// One stream of a program's, read to its end and kept up to a bound.
struct Output {
    from: Option<OwnedFd>,
    bytes: Vec<u8>,
    most: usize,
    lost: usize,
    /// How much has come in all.
    total: u64,
}

impl Output {
    fn new(from: Option<OwnedFd>, most: usize) -> Self {
        Self { from, bytes: Vec::new(), most, lost: 0, total: 0 }
    }

    /// Keeps its beginning.
    fn take_first(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let count = self.read(&mut piece)?;
        let room = self.most - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..count.min(room)]);
        self.lost += count.saturating_sub(room);
        Ok(())
    }

    /// Keeps its end.
    fn take_last(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let count = self.read(&mut piece)?;
        keep_end(&mut self.bytes, &piece[..count], self.most);
        Ok(())
    }

    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let Some(from) = &self.from else { return Ok(0) };
        match rustix::io::read(from, piece) {
            Ok(0) => {
                self.from = None;
                Ok(0)
            }
            Ok(count) => {
                self.total += count as u64;
                Ok(count)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }
}

fn keep_end(kept: &mut Vec<u8>, piece: &[u8], most: usize) {
    kept.extend_from_slice(piece);
    let excess = kept.len().saturating_sub(most);
    kept.drain(..excess);
}

/// The end of what comes out of a stream, once it is over.
pub(crate) fn end_of(mut stream: impl Read) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return kept,
            Ok(count) => keep_end(&mut kept, &piece[..count], COMPLAINTS),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return kept,
        }
    }
}
