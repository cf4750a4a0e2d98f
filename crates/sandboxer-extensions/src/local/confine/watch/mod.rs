//! Tells which writes outside were tried, so that a summary can name them.
//!
//! A filter of its own has the kernel ask before each call that may write to a path. The answer is always the same: go on. Nothing is
//! decided here and nothing kept out; mounts and Landlock do that. So it does not matter that a process can change the path while it
//! is looked at, nor that symbolic links are not followed: what is told may be wrong of a process that wants it to be.
//!
//! If the watcher dies, watched calls fail with ENOSYS. It is a thread of the supervisor, which takes everything inside along.

mod calls;
mod judge;
mod notify;
mod process;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use self::judge::Judge;
use super::{Refusal, seccomp};

/// A write outside that was tried. Each path is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where, as it is called inside.
    pub path: PathBuf,
}

/// Installs the watching filter in this process, which must have one thread, for good. The descriptor is for [`Watcher::start`] in
/// another process; until that runs, this one waits at whatever it opens to write.
pub fn install() -> Result<OwnedFd, Refusal> {
    let program =
        seccomp::program(&calls::rules()).map_err(|e| Refusal::new("compile the filter that watches", e))?;
    notify::install(&program).map_err(|errno| Refusal::new("install the filter that watches", errno))
}

/// A thread that watches until this is dropped, or nobody is left to be watched.
#[must_use = "nobody is watched, and watched calls fail, once it is dropped"]
pub struct Watcher {
    thread: Option<JoinHandle<()>>,
    stop: Arc<OwnedFd>,
}

impl Watcher {
    /// Starts to answer what comes from `listener`. A path outside `writable` that somebody tried to write is told to `on_refused`,
    /// in that thread; further calls wait as long as it takes. At most 1,000 are.
    pub fn start(
        listener: OwnedFd,
        writable: Vec<PathBuf>,
        on_refused: Arc<dyn Fn(Refused) + Send + Sync>,
    ) -> io::Result<Self> {
        notify::wake_on_one_processor(&listener);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let mut judge = Judge::new(writable);
        let watch = move || {
            while is_asked(&listener, &stopped) && answer(&listener, &mut judge, &*on_refused) {}
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Self { thread: Some(thread), stop })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It cannot fail: the counter is far from full.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // What was told until then is told, whatever became of it.
            let _ = thread.join();
        }
    }
}

/// Waits until somebody asks. Nobody does once all who have the filter are gone.
fn is_asked(listener: &OwnedFd, stop: &OwnedFd) -> bool {
    let mut both = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    loop {
        match poll(&mut both, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => return both[1].revents().is_empty() && both[0].revents().contains(PollFlags::IN),
        }
    }
}

/// Asks what has to be asked while the process waits, lets it go on, and thinks about it afterwards. Whether there may be a next.
fn answer(listener: &OwnedFd, judge: &mut Judge, on_refused: &dyn Fn(Refused)) -> bool {
    let notification = match notify::receive(listener) {
        Ok(notification) => notification,
        // Whoever asked is dead by now, or this thread was interrupted.
        Err(errno) => return matches!(errno, Errno::ENOENT | Errno::EINTR),
    };
    let attempts = process::attempts(&notification);
    notify::go_on(listener, &notification);
    for path in attempts.iter().filter_map(|attempt| judge.refused(attempt)) {
        on_refused(Refused { path });
    }
    true
}
