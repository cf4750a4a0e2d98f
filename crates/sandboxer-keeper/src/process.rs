//! What every process that stays is made of, whatever it keeps: a directory with a lock and a socket, a word to who started it, and a
//! turn for whoever starts or ends it.

use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid, umask};
use sandboxer_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::socket::address;

/// How long somebody else's turn, the start or the end of such a process may take.
pub const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(2);

/// How often a process that stays looks whether its directory is still there.
const LOOK: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Processes that this one started. They are its children, and somebody has to hear of their end.
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Remembers a child that stays.
pub fn remember(child: Child) {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).push(child);
}

/// Buries the children that have died.
pub fn reap() {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Makes this process one that stays: nothing inherited, no terminal, files that nobody else reads.
pub fn settle_in(name: &std::ffi::CStr) {
    close_what_was_inherited();
    let _ = rustix::thread::set_name(name);
    // Whoever started us may already lead a session; what counts is not to belong to a terminal.
    let _ = setsid();
    umask(Mode::from_raw_mode(0o077));
}

/// Somebody may wait for the end of a pipe that the program which started us was given, and knew nothing of.
fn close_what_was_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(number);
    }
}

/// Tells the one who started us, and lets go of the pipe; of standard output before, since from then on we may be looked
/// at.
pub fn tell(what: &impl Serialize) {
    let mut line = serde_json::to_vec(what).unwrap_or_default();
    line.push(b'\n');
    let pipe = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3);
    if let Ok(null) = fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let _ = pipe.map(|pipe| rustix::io::write(&pipe, &line));
}

/// The one line that a new process says.
pub fn hear_startup<T: DeserializeOwned>(child: &mut Child, patience: Duration) -> io::Result<T> {
    let pipe = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    if !readable(&pipe, patience)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a word"));
    }
    Ok(serde_json::from_str(&line)?)
}

/// The directory of a process that stays, with the lock that it holds while it lives and the socket that it listens on.
pub struct Seat {
    path: PathBuf,
    dir: OwnedFd,
    listener: OwnedFd,
    _lock: OwnedFd,
}

impl Seat {
    /// Takes the seat in the directory at `path`. `None`: another one has it.
    pub fn take(path: &Path) -> Result<Option<Self>, String> {
        let failed = |what: &str, errno: Errno| format!("{what} {}: {errno}", path.display());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|e| failed("cannot open", e))?;
        let Some(lock) = lock(&dir).map_err(|e| failed("cannot lock", e))? else { return Ok(None) };
        let listener = listen(&dir).map_err(|e| failed("cannot listen in", e))?;
        Ok(Some(Self { path: path.to_path_buf(), dir, listener, _lock: lock }))
    }

    /// Hands every client to `answer`, for as long as the directory is still there, and still the same.
    pub fn serve(&self, answer: impl Fn(UnixStream)) {
        while self.is_wanted() {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            if let Ok(1..) = poll(&mut waiting, Some(&LOOK)) {
                self.accept(&answer);
            }
        }
    }

    fn is_wanted(&self) -> bool {
        match fs::statat(fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => fs::fstat(&self.dir).is_ok_and(|ours| identity(&ours) == identity(&now)),
            // Any other answer tells nothing, and what is kept is not given up for nothing.
            Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }

    fn accept(&self, answer: impl Fn(UnixStream)) {
        match net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(client) => answer(client.into()),
            // Out of descriptors, most likely: some will be given back.
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

fn identity(stat: &fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn lock(dir: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = fs::openat(dir, "lock", flags, Mode::RUSR | Mode::WUSR)?;
    match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whoever holds the lock may remove what a dead one left.
fn listen(dir: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    match fs::unlinkat(dir, "socket", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let address = address(dir).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::bind(&listener, &address)?;
    net::listen(&listener, 128)?;
    Ok(listener)
}

/// A process that is to end, taken hold of before it is told to.
pub struct Leaving(rustix::io::Result<OwnedFd>);

impl Leaving {
    /// The process of that id.
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self(pid.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty())))
    }

    /// Waits until it is gone; false where it is still there after [`PATIENCE`].
    pub fn wait(self) -> io::Result<bool> {
        match self.0 {
            Ok(process) => readable(&process, PATIENCE),
            Err(Errno::SRCH) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }
}

/// Waits until there is something to read, or in the case of a process, until it has ended.
fn readable(fd: impl AsFd, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            answer => return Ok(answer? > 0),
        }
    }
}

/// The right to start or end the process of one directory; given back when dropped.
#[must_use]
pub struct Turn {
    _dir: OwnedFd,
}

impl Turn {
    /// Takes the turn, and makes the directory if `create` says so.
    pub fn take(path: &Path, create: bool) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if create {
                let mut builder = std::fs::DirBuilder::new();
                let created = builder.recursive(true).mode(0o700).create(path);
                created.map_err(|e| Error::io("create directory", path, e))?;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = fs::open(path, flags, Mode::empty());
            let dir = opened.map_err(|e| Error::io("open directory", path, e))?;
            match fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                // Whoever had the turn before may have removed the directory.
                Ok(()) if is_at(&dir, path) => return Ok(Self { _dir: dir }),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => sleep(POLL),
                Err(e) => return Err(Error::io("lock", path, e)),
            }
            check(deadline, path, "somebody who starts or ends its keeper")?;
        }
    }
}

/// Calls `start` until it gives something; one that is just dying still holds its lock.
pub fn until_started<T>(dir: &Path, mut start: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(started) = start()? {
            return Ok(started);
        }
        check(deadline, dir, "a keeper that does not listen")?;
        sleep(POLL);
    }
}

fn check(deadline: Instant, dir: &Path, holder: &str) -> Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Error::Busy { path: dir.to_path_buf(), holder: Some(holder.to_owned()) })
}

fn is_at(dir: &OwnedFd, path: &Path) -> bool {
    matches!((fs::fstat(dir), fs::lstat(path)), (Ok(ours), Ok(now)) if identity(&ours) == identity(&now))
}
