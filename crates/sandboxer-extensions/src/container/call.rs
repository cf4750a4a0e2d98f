//! One call of an engine's program: arguments and no shell, a deadline, and so much output and no more.
//!
//! The program gets a process group of its own, which is killed as a whole where time runs out: a client may have started helpers (for
//! credentials, for ssh) that would hold our pipes open. It inherits our environment; where its daemon is, is its own affair.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::{Error, Result};

/// What an answer may have at most.
pub(super) const ANSWER: usize = 1 << 20;
/// What a list of everything may have at most: some ten thousand containers of podman's.
pub(super) const LISTING: usize = 64 << 20;
/// How often somebody who waits looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How much of what the program complains of is quoted.
const QUOTED: usize = 2_000;

/// How long a call may take, and how much it may say.
pub(super) struct Bounds<'a> {
    pub deadline: Duration,
    pub output: usize,
    /// Whether to stop before; what undoes or looks goes on.
    pub cancel: Option<&'a CancelFlag>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Answer {
    /// What the program complained of, in one line, or how it ended where it said nothing.
    pub fn complaint(&self) -> String {
        let said = tame(&String::from_utf8_lossy(&self.stderr), QUOTED);
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|line| !line.is_empty() && !is_advice(line)).collect();
        if lines.is_empty() { format!("it ended with {}", self.status) } else { lines.join("; ") }
    }
}

/// What stands under every complaint and helps nobody here.
fn is_advice(line: &str) -> bool {
    line.starts_with("See '") || line.starts_with("Run '")
}

/// The last `most` bytes of a text or a little less, without anything that a terminal would obey.
pub(crate) fn tame(text: &str, most: usize) -> String {
    let start = (text.len().saturating_sub(most)..=text.len()).find(|at| text.is_char_boundary(*at));
    let end = &text[start.unwrap_or_default()..];
    end.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Runs `command` to its end. An error names it by its first word, `words` being what it is asked to do.
pub(super) fn run(command: &mut Command, words: &str, bounds: &Bounds<'_>) -> Result<Answer> {
    let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().map_err(|e| not_started(command, e))?;
    Running { child, ended: None }.hear(words, bounds)
}

fn not_started(command: &Command, error: io::Error) -> Error {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() != io::ErrorKind::NotFound {
        return Error::io("run", program, error);
    }
    let missing = "it is not installed; install docker or podman, or name the program in the extension's options.engine";
    Error::io("run", program, io::Error::new(io::ErrorKind::NotFound, missing))
}

/// A program that was started. Dropped before its end, it is killed with everything that it started.
struct Running {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Running {
    fn hear(mut self, words: &str, bounds: &Bounds<'_>) -> Result<Answer> {
        let failed = |e: io::Error| Error::io("run", words, e);
        let mut streams = [
            Stream::new(self.child.stdout.take().map(OwnedFd::from), bounds.output),
            Stream::new(self.child.stderr.take().map(OwnedFd::from), ANSWER),
        ];
        let until = Instant::now() + bounds.deadline;
        let pid = Pid::from_child(&self.child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        while self.ended.is_none() || streams.iter().any(|stream| stream.from.is_some()) {
            bounds.cancel.map_or(Ok(()), CancelFlag::check)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(too_late(bounds.deadline)));
            }
            self.step(&mut streams, &pidfd, left.min(LOOK)).map_err(failed)?;
        }
        let [stdout, stderr] = streams;
        if stdout.overflown {
            return Err(failed(io::Error::other(format!("it says more than {} bytes", bounds.output))));
        }
        let status = self.ended.ok_or_else(|| failed(io::ErrorKind::Interrupted.into()))?;
        Ok(Answer { status, stdout: stdout.bytes, stderr: stderr.bytes })
    }

    /// Waits for the next thing to happen, and takes it in.
    fn step(&mut self, streams: &mut [Stream; 2], pidfd: &OwnedFd, most: Duration) -> io::Result<()> {
        let ready = {
            let open = streams.iter().map(|stream| stream.from.as_ref());
            let process = Some(pidfd).filter(|_| self.ended.is_none());
            ready(open.chain([process]), most)?
        };
        for (stream, _) in streams.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
            stream.take()?;
        }
        if ready[2] {
            self.ended = self.child.try_wait()?;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Which of some descriptors have something to say.
fn ready<'a>(
    descriptors: impl Iterator<Item = Option<&'a OwnedFd>>,
    most: Duration,
) -> io::Result<Vec<bool>> {
    let all: Vec<Option<&OwnedFd>> = descriptors.collect();
    let mut polled: Vec<PollFd<'_>> =
        all.iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos().max(1)) };
    match poll(&mut polled, Some(&most)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let mut said = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(all.iter().map(|fd| fd.is_some() && said.next().unwrap_or(false)).collect())
}

fn too_late(deadline: Duration) -> io::Error {
    let message = format!("no answer in {} s; is its daemon alive?", deadline.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// One stream of a program's, kept up to a bound and read to its end.
struct Stream {
    from: Option<OwnedFd>,
    bytes: Vec<u8>,
    most: usize,
    overflown: bool,
}

impl Stream {
    fn new(from: Option<OwnedFd>, most: usize) -> Self {
        Self { from, bytes: Vec::new(), most, overflown: false }
    }

    fn take(&mut self) -> io::Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let mut piece = [0; 16 << 10];
        match rustix::io::read(from, &mut piece) {
            Ok(0) => self.from = None,
            Ok(count) => self.keep(&piece[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn keep(&mut self, mut piece: &[u8]) {
        let room = self.most - self.bytes.len();
        self.overflown |= piece.len() > room;
        // Reading from a slice into a vector cannot fail.
        let _ = piece.by_ref().take(room as u64).read_to_end(&mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(script: &str, deadline: Duration, output: usize) -> Result<Answer> {
        run(Command::new("sh").args(["-c", script]), "sh", &Bounds { deadline, output, cancel: None })
    }

    fn source(error: &Error) -> String {
        std::error::Error::source(error).unwrap().to_string()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_streams_and_the_status_come_back() {
        let answer = shell("echo out; echo err >&2; exit 3", LONG, ANSWER).unwrap();
        assert_eq!((answer.stdout.as_slice(), answer.complaint().as_str()), (&b"out\n"[..], "err"));
        assert_eq!(answer.status.code(), Some(3));
        assert_eq!(shell("exit 4", LONG, ANSWER).unwrap().complaint(), "it ended with exit status: 4");
    }

    #[test]
    fn who_takes_too_long_is_killed_with_what_it_started() {
        let temp = tempfile::tempdir().unwrap();
        let pid = temp.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        let error = shell(&script, Duration::from_millis(500), ANSWER).unwrap_err();
        assert!(source(&error).starts_with("no answer in 0.5 s"), "{}", source(&error));
        let pid = std::fs::read_to_string(pid).unwrap();
        let until = Instant::now() + LONG;
        while lives(pid.trim()) {
            assert!(Instant::now() < until, "process {pid} goes on");
            std::thread::yield_now();
        }
    }

    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.starts_with(" Z"))
    }

    #[test]
    fn output_has_a_bound() {
        let error = shell("head -c 3000 /dev/zero", LONG, 2_000).unwrap_err();
        assert_eq!(source(&error), "it says more than 2000 bytes");
        let answer = shell("head -c 3000000 /dev/zero >&2; echo fine", LONG, 2_000).unwrap();
        assert_eq!((answer.stdout.as_slice(), answer.stderr.len()), (&b"fine\n"[..], ANSWER));
    }

    #[test]
    fn who_is_asked_to_stop_stops() {
        let flag = CancelFlag::default();
        flag.cancel();
        let bounds = Bounds { deadline: LONG, output: ANSWER, cancel: Some(&flag) };
        let stopped = run(Command::new("sleep").arg("1000"), "sleep", &bounds);
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }

    #[test]
    fn a_missing_program_says_what_to_install() {
        let bounds = Bounds { deadline: LONG, output: ANSWER, cancel: None };
        let error = run(&mut Command::new("/nonexistent/docker"), "docker ps", &bounds).unwrap_err();
        assert_eq!(error.to_string(), "cannot run /nonexistent/docker");
        assert!(source(&error).contains("not installed"));
    }

    #[test]
    fn what_is_quoted_is_tame_and_short() {
        assert_eq!(tame("a\x1b[31mb\r\nc", 100), "a [31mb \nc");
        assert_eq!(tame("äöü", 3), "ü");
    }
}
