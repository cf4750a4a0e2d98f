//! The keeper itself: what runs in the process that holds the namespaces.
//!
//! It takes its namespaces before there is a second thread, locks its directory, listens, and says through a pipe that it is
//! ready. From then on it answers each connection in a thread of its own, so that whoever is slow or silent keeps nobody
//! else waiting. It ends when it is told to, and when its directory is gone.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::geteuid;

use crate::process::{Seat, settle_in, tell};
use crate::socket::{PROMPT, hear, peer, say};
use crate::wire::{Failure, Identity, PROTOCOL, Reply, Request, Startup, check_seen};
use crate::{Kind, Overlay, Unmounted, mount, namespaces};

/// The name that a keeper is started under.
pub(crate) const NAME: &str = "sandbox-keeper";

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
    match seat(Path::new(&directory)) {
        Ok(seat) => {
            tell(&Startup::Ready);
            let shared = Arc::new(Shared::default());
            seat.serve(|client| shared.clone().answer_apart(client));
            shared.unmount_all();
            exit(0)
        }
        Err(why) => {
            tell(&why);
            exit(1)
        }
    }
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    /// What is mounted, in that order. Also makes one mount or unmount wait for the other.
    mounts: Mutex<Vec<PathBuf>>,
    clients: AtomicUsize,
}

fn seat(path: &Path) -> Result<Seat, Startup> {
    settle_in(c"sandbox-keeper");
    namespaces::enter().map_err(Startup::Failed)?;
    Seat::take(path).map_err(Startup::Failed)?.ok_or(Startup::Taken)
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
            Request::Replace { overlay, seen } => {
                let _mounts = self.mounts();
                check_seen(&overlay, &seen)?;
                mount::replace(&overlay, Kind::User)?;
                Ok(Reply::Done)
            }
            Request::Unmount { at } => self.unmount(&at),
            Request::IsBusy { at } => {
                let _mounts = self.mounts();
                Ok(Reply::Busy(mount::is_busy(&at)?))
            }
            Request::Renew { at } => {
                let _mounts = self.mounts();
                mount::renew(&at)?;
                Ok(Reply::Done)
            }
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
