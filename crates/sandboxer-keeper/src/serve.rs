//! The keeper itself: what runs in the process that holds the namespaces.
//!
//! It takes its namespaces before there is a second thread, locks its directory, listens, and says through a pipe that it is
//! ready. From then on it answers each connection in a thread of its own, so that whoever is slow or silent keeps nobody
//! else waiting. It ends when it is told to, and when its directory is gone.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{geteuid, setsid, umask};

use crate::socket::{PROMPT, address, hear, peer, say};
use crate::wire::{Failure, Identity, PROTOCOL, Reply, Request, Startup, check_seen};
use crate::{Kind, Overlay, Unmounted, mount, namespaces};

/// The name that a keeper is started under.
pub(crate) const NAME: &str = "sandbox-keeper";

/// How often a keeper looks whether its directory is still there.
const LOOK: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// More connections than this at once are not answered.
const MAX_CLIENTS: usize = 32;

/// First thing in `main`: serves and exits if this process was started as a keeper (its name is `sandbox-keeper`).
/// Returns at once in every other process. There must be no second thread yet.
pub fn serve_if_asked() {
    let mut arguments = std::env::args_os();
    if arguments.next().as_deref() != Some(OsStr::new(NAME)) {
        return;
    }
    let directory = arguments.next().unwrap_or_default();
    close_what_was_inherited();
    match Server::new(Path::new(&directory)) {
        Ok(server) => {
            tell(&Startup::Ready);
            server.serve();
            exit(0)
        }
        Err(why) => {
            tell(&why);
            exit(1)
        }
    }
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
fn tell(what: &Startup) {
    let mut line = serde_json::to_vec(what).unwrap_or_default();
    line.push(b'\n');
    let pipe = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3);
    if let Ok(null) = fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let _ = pipe.map(|pipe| rustix::io::write(&pipe, &line));
}

struct Server {
    path: PathBuf,
    dir: OwnedFd,
    listener: OwnedFd,
    /// Held for as long as this process lives.
    _lock: OwnedFd,
    shared: Arc<Shared>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    /// What is mounted, in that order. Also makes one mount or unmount wait for the other.
    mounts: Mutex<Vec<PathBuf>>,
    clients: AtomicUsize,
}

impl Server {
    fn new(path: &Path) -> Result<Self, Startup> {
        let failed =
            |what: &str, errno: Errno| Startup::Failed(format!("{what} {}: {errno}", path.display()));
        let _ = rustix::thread::set_name(c"sandbox-keeper");
        // Whoever started us may already lead a session; what counts is not to belong to a terminal.
        let _ = setsid();
        umask(Mode::from_raw_mode(0o077));
        namespaces::enter().map_err(Startup::Failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|e| failed("cannot open", e))?;
        let lock = lock(&dir).map_err(|e| failed("cannot lock", e))?.ok_or(Startup::Taken)?;
        let listener = listen(&dir).map_err(|e| failed("cannot listen in", e))?;
        Ok(Self { path: path.to_path_buf(), dir, listener, _lock: lock, shared: Arc::default() })
    }

    fn serve(&self) {
        while self.is_wanted() {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            if let Ok(1..) = poll(&mut waiting, Some(&LOOK)) {
                self.accept();
            }
        }
        self.shared.unmount_all();
    }

    /// Whether the directory is still there, and still the same.
    fn is_wanted(&self) -> bool {
        let identity = |stat: fs::Stat| (stat.st_dev, stat.st_ino);
        match fs::statat(fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => fs::fstat(&self.dir).is_ok_and(|ours| identity(ours) == identity(now)),
            // Any other answer tells nothing, and mounts are not given up for nothing.
            Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }

    fn accept(&self) {
        match net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(client) => self.shared.clone().answer_apart(client.into()),
            // Out of descriptors, most likely: some will be given back.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
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

/// Whoever holds the lock may remove what a dead keeper left.
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

impl Shared {
    fn answer_apart(self: Arc<Self>, client: UnixStream) {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let shared = self.clone();
        let answer = move || {
            shared.answer(client);
            shared.clients.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(answer).is_err() {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Hears one request, says one reply. Whoever cannot be heard or told has gone, or is nobody to care for.
    fn answer(&self, mut client: UnixStream) {
        let request = match admitted(&client) {
            Ok(()) => hear(&mut client, Instant::now() + PROMPT).map_err(|e| Failure::refusal(e.to_string())),
            Err(refusal) => Err(refusal),
        };
        let quits = matches!(request, Ok(Request::Quit));
        let reply = request.and_then(|request| self.reply(request)).unwrap_or_else(Reply::Failed);
        let _ = say(&mut client, &reply, Instant::now() + PROMPT);
        if quits {
            exit(0);
        }
    }

    fn reply(&self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Hello => Ok(Reply::Hello { protocol: PROTOCOL, pid: std::process::id() }),
            Request::Mount { overlay, seen } => self.mount(&overlay, &seen),
            Request::Unmount { at } => self.unmount(&at),
            Request::Quit => {
                self.unmount_all();
                Ok(Reply::Done)
            }
        }
    }

    fn mount(&self, overlay: &Overlay, seen: &[Identity]) -> Result<Reply, Failure> {
        let mut mounts = self.mounts();
        check_seen(overlay, seen)?;
        mount::mount(overlay, Kind::User)?;
        mounts.push(overlay.at.clone());
        Ok(Reply::Done)
    }

    fn unmount(&self, at: &Path) -> Result<Reply, Failure> {
        let mut mounts = self.mounts();
        let unmounted = mount::unmount(at)?;
        if unmounted != Unmounted::Busy {
            mounts.retain(|mounted| mounted != at);
        }
        Ok(Reply::Unmounted(unmounted))
    }

    /// The kernel would drop the mounts with the last process anyway, but some time afterwards; whoever waits for our end
    /// may want to mount the same upper again.
    fn unmount_all(&self) {
        for at in self.mounts().drain(..).rev() {
            let _ = mount::unmount(&at);
        }
    }

    fn mounts(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only our own user is answered. Others cannot come through the directory, except for root. In this namespace every other
/// user looks like the one that stands for nobody.
fn admitted(client: impl AsFd) -> Result<(), Failure> {
    match peer(client) {
        Ok((_, uid)) if uid == geteuid().as_raw() => Ok(()),
        Ok(_) => Err(Failure::refusal("this keeper belongs to another user")),
        Err(e) => Err(Failure::refusal(format!("it cannot be known who asks: {e}"))),
    }
}
