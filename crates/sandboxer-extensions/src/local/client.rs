//! Runtimes as their clients see them: found, started, asked and ended.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use sandboxer_core::contract::{Quiet, Runtime};
use sandboxer_core::model::SandboxId;
use sandboxer_core::{Error, Result};

use super::limits::remove_paths;
use super::refusal::Refusal;
use super::report::{Process, Ready};
use super::spec::Spec;
use super::supervisor::{CGROUPS, NAME};
use super::wire::{PROTOCOL, Reply, Request, be_impatient, receive, send};

/// How long somebody else's start or end may take.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// The runtimes of one state directory. Each is in the directory of its sandbox.
#[derive(Clone, Debug)]
pub struct Runtimes {
    sandboxes: PathBuf,
    program: PathBuf,
}

/// A client of a runtime.
#[derive(Debug)]
pub struct Attached {
    pub(super) socket: UnixStream,
    ready: Ready,
}

/// What came of asking for a runtime.
#[derive(Debug)]
pub enum Started {
    /// It is there; it may have been there before, and be another one than was asked for.
    Attached(Box<Attached>),
    /// Something of it is not to be had here.
    Refused(Refusal),
}

/// A supervisor that waits to be told what to hold. Dropped, it goes.
#[must_use]
#[derive(Debug)]
pub struct Called {
    socket: UnixStream,
    child: Option<Child>,
}

impl Called {
    fn hold(mut self, spec: &Spec, directory: &Path) -> Result<Started> {
        let failed = |e: io::Error| Error::io("start a runtime in", directory, e);
        let socket = self.socket.try_clone().map_err(failed)?;
        let start = Request::Start { spec: Box::new(spec.clone()), directory: directory.to_path_buf() };
        match ask(&socket, &start).map_err(failed)? {
            Reply::Ready(ready) => {
                // It outlives us, or ends with us; if it ends before, somebody has to hear of it.
                CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).extend(self.child.take());
                Ok(Started::Attached(Box::new(Attached { socket, ready: *ready })))
            }
            Reply::Refused(refusal) => Ok(Started::Refused(refusal)),
            other => Err(unexpected(directory, &other)),
        }
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = self.socket.shutdown(Shutdown::Both);
            let _ = child.wait();
        }
    }
}

/// Supervisors that this process started. They are its children, and somebody has to hear of their end.
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Buries the children that have died.
fn reap() {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Everything inside stands still until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Frozen {
    _socket: UnixStream,
}

impl Runtimes {
    /// The runtimes of the state directory `home`. New ones are started from `program`, whose `main` begins with
    /// [`supervise_if_asked`](super::supervise_if_asked).
    pub fn new(home: &Path, program: &Path) -> Self {
        Self { sandboxes: home.join("sandboxes"), program: program.to_path_buf() }
    }

    /// Where the runtime of a sandbox has its files.
    pub fn directory(&self, sandbox: &str) -> PathBuf {
        self.sandboxes.join(sandbox).join("runtime")
    }

    /// A client of the sandbox's runtime, if it runs.
    pub fn find(&self, sandbox: &str) -> Result<Option<Attached>> {
        reap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.find_once(sandbox) {
                // It is about to end: its socket goes in a moment, and somebody else's may come.
                Err(Error::Io { source, .. }) if ended(&source) && Instant::now() < deadline => {
                    std::thread::sleep(POLL);
                }
                found => return found,
            }
        }
    }

    fn find_once(&self, sandbox: &str) -> Result<Option<Attached>> {
        let directory = self.directory(sandbox);
        let Some(socket) =
            connect(&directory).map_err(|e| Error::io("reach the runtime in", &directory, e))?
        else {
            return Ok(None);
        };
        // Both at once: each answer is a way there and back.
        let said = send(&socket, &Request::Hello, &[]).and_then(|()| send(&socket, &Request::Attach, &[]));
        let asked = said.and_then(|()| hear_greeting(&socket)).and_then(|()| hear(&socket));
        match asked {
            Ok(Reply::Ready(ready)) => {
                // Everything may be standing still just now, and a command starts when that is over.
                let patient = socket.set_read_timeout(None);
                patient.map_err(|e| Error::io("reach the runtime in", &directory, e))?;
                Ok(Some(Attached { socket, ready: *ready }))
            }
            Ok(Reply::Done) => Ok(None),
            Ok(other) => Err(unexpected(&directory, &other)),
            Err(e) => Err(Error::io("hear from the runtime in", &directory, e)),
        }
    }

    /// Calls for a supervisor that waits to be told what to hold. It takes a moment to get there, in which something else can
    /// be done; one that is not needed in the end goes with the answer.
    pub fn call(&self) -> Result<Called> {
        let failed = |e: io::Error| Error::io("start a runtime from", &self.program, e);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = std::process::Command::new(&self.program);
        command.arg0(NAME).current_dir("/").env_clear();
        // Where coverage is measured, the runtime's counts.
        command.envs(std::env::vars_os().filter(|(name, _)| name == "LLVM_PROFILE_FILE"));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        // The command holds the other end, whose closing is how we hear of a death; it goes here.
        Ok(Called { socket: ours, child: Some(child) })
    }

    /// A client of the sandbox's runtime: of the one that runs, or of a new one.
    pub fn start(&self, spec: &Spec) -> Result<Started> {
        self.start_with(None, spec)
    }

    /// The same; a new one is held by the supervisor that was called before.
    pub fn start_with(&self, called: Option<Called>, spec: &Spec) -> Result<Started> {
        if let Some(found) = self.find(&spec.sandbox)? {
            return Ok(Started::Attached(Box::new(found)));
        }
        let directory = self.directory(&spec.sandbox);
        let _turn = Turn::take(&directory, Instant::now() + PATIENCE)?;
        // Somebody may have had a turn before us.
        if let Some(found) = self.find(&spec.sandbox)? {
            return Ok(Started::Attached(Box::new(found)));
        }
        called.map_or_else(|| self.call(), Ok)?.hold(spec, &directory)
    }

    /// Ends the sandbox's runtime with everything in it, and removes what one that was killed has left.
    pub fn end(&self, sandbox: &str) -> Result<()> {
        let directory = self.directory(sandbox);
        if !directory.exists() {
            return Ok(());
        }
        if let Some(attached) = self.find(sandbox)? {
            // Whatever it answers, it does so when everything has ended.
            let _ = ask(&attached.socket, &Request::End);
        }
        wait_until_free(&directory)?;
        clear(&directory)
    }

    /// Removes what runtimes that were killed have left. Those that run are left alone.
    pub fn sweep(&self) -> Result<Vec<String>> {
        let mut swept = Vec::new();
        for sandbox in self.sandboxes()? {
            if self.is_running(&sandbox)? == Some(false) {
                clear(&self.directory(&sandbox))?;
                swept.push(sandbox);
            }
        }
        Ok(swept)
    }

    /// The sandboxes that have a directory, whether or not anything runs in them.
    pub(super) fn sandboxes(&self) -> Result<Vec<String>> {
        match std::fs::read_dir(&self.sandboxes) {
            Ok(entries) => {
                Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(Error::io("list", &self.sandboxes, e)),
        }
    }

    /// Whether the sandbox's runtime lives; `None` where there is nothing of one.
    pub(super) fn is_running(&self, sandbox: &str) -> Result<Option<bool>> {
        let directory = self.directory(sandbox);
        let is_used = [CGROUPS, "socket"].iter().any(|name| directory.join(name).exists());
        if is_used { is_free(&directory).map(|free| Some(!free)) } else { Ok(None) }
    }

    /// Stops everything in the sandbox until the answer is dropped. `None` where nothing runs.
    pub fn freeze(&self, sandbox: &str) -> Result<Option<Frozen>> {
        let Some(Attached { socket, .. }) = self.find(sandbox)? else { return Ok(None) };
        let directory = self.directory(sandbox);
        match ask(&socket, &Request::Freeze) {
            Ok(Reply::Done) => Ok(Some(Frozen { _socket: socket })),
            Ok(Reply::Refused(refusal)) => Err(Error::refused(refusal.to_string())),
            Ok(other) => Err(unexpected(&directory, &other)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Error::io("freeze what runs in", &directory, e)),
        }
    }
}

impl Attached {
    /// What the runtime is.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// What runs in it.
    pub fn processes(&self) -> Result<Vec<Process>> {
        match ask(&self.socket, &Request::Processes) {
            Ok(Reply::Processes(processes)) => Ok(processes),
            Ok(_) => Ok(Vec::new()),
            Err(e) => Err(Error::io("list what runs in", &self.ready.spec.sandbox, e)),
        }
    }
}

/// The right to start the runtime of one directory; given back when dropped.
struct Turn {
    _file: File,
}

impl Turn {
    fn take(directory: &Path, deadline: Instant) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(|e| Error::io("create directory", directory, e))?;
        let path = directory.join("turn");
        let file =
            File::options().create(true).append(true).open(&path).map_err(|e| Error::io("open", &path, e))?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(_) if Instant::now() < deadline => std::thread::sleep(POLL),
                Err(e) => return Err(Error::io("lock", &path, e)),
            }
        }
    }
}

/// A path to an open directory that is short enough for the address of a socket.
pub(super) fn short(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Connects to the runtime in `directory`, if somebody listens there.
fn connect(directory: &Path) -> io::Result<Option<UnixStream>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from);
    let connected = opened.and_then(|opened| UnixStream::connect(short(&File::from(opened)).join("socket")));
    match connected {
        Ok(socket) => {
            be_impatient(&socket)?;
            Ok(Some(socket))
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => Err(e),
    }
}

fn hear_greeting(socket: &UnixStream) -> io::Result<()> {
    match hear(socket)? {
        Reply::Hello { protocol: PROTOCOL, .. } => Ok(()),
        Reply::Hello { protocol, pid } => Err(io::Error::other(format!(
            "process {pid} speaks version {protocol} of the protocol, this program version {PROTOCOL}"
        ))),
        other => Err(io::Error::other(format!("it says {other:?}"))),
    }
}

fn ask(socket: &UnixStream, request: &Request) -> io::Result<Reply> {
    send(socket, request, &[])?;
    hear(socket)
}

fn hear(socket: &UnixStream) -> io::Result<Reply> {
    receive(socket)?.map(|(reply, _)| reply).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Whether whoever was spoken to is gone.
fn ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn unexpected(directory: &Path, reply: &Reply) -> Error {
    Error::corrupt(directory, format!("the runtime answers {reply:?}"))
}

/// Whether no supervisor lives in `directory`.
fn is_free(directory: &Path) -> Result<bool> {
    match File::open(directory.join("lock")) {
        Ok(file) => Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::io("open", directory.join("lock"), e)),
    }
}

fn wait_until_free(directory: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_free(directory)? {
        if Instant::now() > deadline {
            let holder = Some("its runtime does not end".to_owned());
            return Err(Error::Busy { path: directory.to_path_buf(), holder });
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Removes the cgroups that are written down. Nobody lives in `directory`.
fn clear(directory: &Path) -> Result<()> {
    let list = directory.join(CGROUPS);
    let paths: Vec<PathBuf> =
        std::fs::read_to_string(&list).unwrap_or_default().lines().map(PathBuf::from).collect();
    remove_paths(&paths)?;
    let _ = std::fs::remove_file(directory.join("socket"));
    match std::fs::remove_file(&list) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &list, e)),
        _ => Ok(()),
    }
}

impl Runtime for Runtimes {
    fn quiesce(&self, sandbox: &SandboxId) -> Result<Option<Quiet>> {
        Ok(self.freeze(sandbox.as_str())?.map(|frozen| Box::new(frozen) as Quiet))
    }

    fn end(&self, sandbox: &SandboxId) -> Result<()> {
        Self::end(self, sandbox.as_str())
    }

    fn sweep(&self) -> Result<Vec<String>> {
        Self::sweep(self)
    }
}
