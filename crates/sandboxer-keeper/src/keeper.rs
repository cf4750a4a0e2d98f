//! One keeper, as seen from outside.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use sandboxer_core::{Error, Result};

use crate::socket::{PROMPT, connect, hear, peer, say};
use crate::wire::{PROTOCOL, Reply, Request, seen, unexpected};
use crate::{Overlay, Unmounted, mount};

/// An unmount that is not volatile writes everything back first. A keeper that dies meanwhile is noticed at once.
const WORK: Duration = Duration::from_secs(600);

/// A keeper that runs, and was seen to be ours.
#[derive(Clone, Debug)]
pub struct Keeper {
    dir: PathBuf,
    pid: u32,
}

impl Keeper {
    /// The keeper that listens in `dir`, if one does.
    pub(crate) fn in_dir(dir: &Path) -> Result<Option<Self>> {
        let mut asked = ask(dir, &Request::Hello, PROMPT);
        if matches!(&asked, Err(Error::Io { source, .. }) if was_killed(source)) {
            asked = ask(dir, &Request::Hello, PROMPT);
        }
        let asked = match asked {
            Err(Error::Io { source, .. }) if nobody_listens(&source) => return Ok(None),
            asked => asked?,
        };
        let Reply::Hello { protocol, pid } = asked.reply else {
            return Err(unexpected(dir, &asked.reply));
        };
        if pid != asked.pid {
            return Err(Error::corrupt(dir, format!("process {} answers for keeper {pid}", asked.pid)));
        }
        if protocol != PROTOCOL {
            return Err(other_version(pid, protocol));
        }
        Ok(Some(Self { dir: dir.to_path_buf(), pid }))
    }

    /// The keeper that a process of ours just became.
    pub(crate) fn of_child(dir: &Path, child: &std::process::Child) -> Self {
        Self { dir: dir.to_path_buf(), pid: child.id() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where something that the keeper mounted is seen from outside: `path` below `/proc/PID/root`.
    pub fn reach(&self, path: &Path) -> PathBuf {
        self.root().join(relative(path))
    }

    /// Mounts an overlay in the keeper's namespace, of the kind [`Kind::User`](crate::Kind::User). See
    /// [`mount::mount`]. Paths are absolute, and have to lead the keeper where they lead us.
    pub fn mount(&self, overlay: &Overlay) -> Result<()> {
        if let Some(path) = relative_path(overlay) {
            return Err(Error::usage(format!("{} is not an absolute path", path.display())));
        }
        self.have_done(&Request::Mount { seen: seen(overlay)?, overlay: overlay.clone() })
    }

    /// Mounts an overlay in place of the one there. See [`mount::replace`].
    pub fn replace(&self, overlay: &Overlay) -> Result<()> {
        self.have_done(&Request::Replace { seen: seen(overlay)?, overlay: overlay.clone() })
    }

    /// Whether something works in an overlay there. See [`mount::is_busy`].
    pub fn is_busy(&self, at: &Path) -> Result<bool> {
        match self.ask(&Request::IsBusy { at: at.to_path_buf() })? {
            Reply::Busy(is_busy) => Ok(is_busy),
            reply => Err(unexpected(&self.dir, &reply)),
        }
    }

    /// Unmounts an overlay there, if nobody works in it.
    pub fn unmount(&self, at: &Path) -> Result<Unmounted> {
        match self.ask(&Request::Unmount { at: at.to_path_buf() })? {
            Reply::Unmounted(unmounted) => Ok(unmounted),
            reply => Err(unexpected(&self.dir, &reply)),
        }
    }

    /// Has the kernel look again at what an overlay there shows. See [`mount::renew`].
    pub fn renew(&self, at: &Path) -> Result<()> {
        self.have_done(&Request::Renew { at: at.to_path_buf() })
    }

    /// Whether an overlay is mounted right at `at` there. The keeper is not asked.
    pub fn is_mounted(&self, at: &Path) -> Result<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::open(self.root(), flags, Mode::empty()) {
            Ok(root) => mount::is_mounted_below(&root, relative(at)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(Error::io("open directory", self.root(), e)),
        }
    }

    /// Tells it to unmount what it can and to end.
    pub(crate) fn quit(&self) -> Result<()> {
        self.have_done(&Request::Quit)
    }

    fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.pid).into()
    }

    fn have_done(&self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(&self.dir, &reply)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        let asked = ask(&self.dir, request, WORK)?;
        if asked.pid != self.pid {
            return Err(Error::refused(format!("keeper {} was replaced by {}", self.pid, asked.pid)));
        }
        Ok(asked.reply)
    }
}

struct Asked {
    pid: u32,
    reply: Reply,
}

fn ask(dir: &Path, request: &Request, patience: Duration) -> Result<Asked> {
    let mut socket = connect(dir).map_err(|e| Error::io("reach the keeper in", dir, e))?;
    let (pid, uid) = peer(&socket).map_err(|e| Error::io("reach the keeper in", dir, e))?;
    if uid != geteuid().as_raw() {
        return Err(Error::refused(format!("keeper {pid} in {} belongs to user {uid}", dir.display())));
    }
    let no_answer = |e| no_answer(dir, pid, e);
    say(&mut socket, request, Instant::now() + PROMPT).map_err(no_answer)?;
    match hear(&mut socket, Instant::now() + patience).map_err(no_answer)? {
        Reply::Failed(failure) => Err(failure.into_error()),
        reply => Ok(Asked { pid, reply }),
    }
}

/// Silence is told apart from an end: a keeper that hangs has to be killed by somebody.
fn no_answer(dir: &Path, pid: u32, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::TimedOut {
        let hint = Some(format!("kill {pid} ends it, and what works in its mounts loses them"));
        return Error::Refused { reason: format!("keeper {pid} in {} does not answer", dir.display()), hint };
    }
    Error::io("hear from the keeper in", dir, source)
}

fn other_version(pid: u32, protocol: u32) -> Error {
    Error::Refused {
        reason: format!(
            "keeper {pid} speaks version {protocol} of the protocol, this program version {PROTOCOL}"
        ),
        hint: Some(format!(
            "destroy the sandbox with the program that made it, or `kill {pid}` and the next command starts another"
        )),
    }
}

/// Whether the keeper was killed after the connection was made. Its socket is closed then.
fn was_killed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
    )
}

fn relative_path(overlay: &Overlay) -> Option<&PathBuf> {
    let others = [&overlay.upper, &overlay.work, &overlay.at];
    overlay.lowers.iter().chain(others).find(|path| path.is_relative())
}

/// A path from the root, relative to the root.
fn relative(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let slashes = bytes.iter().take_while(|byte| **byte == b'/').count();
    Path::new(std::ffi::OsStr::from_bytes(&bytes[slashes..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_the_process() {
        let keeper = Keeper { dir: "/d".into(), pid: 7 };
        assert_eq!(keeper.reach(Path::new("/a/b")), Path::new("/proc/7/root/a/b"));
        assert_eq!(keeper.reach(Path::new("//a")), Path::new("/proc/7/root/a"));
        assert_eq!(keeper.pid(), 7);
    }

    #[test]
    fn only_absolute_paths_mean_the_same_to_both() {
        let keeper = Keeper { dir: "/no/such".into(), pid: 7 };
        let overlay = Overlay {
            lowers: vec!["/".into(), "here".into()],
            upper: "/".into(),
            work: "/".into(),
            at: "/".into(),
            volatile: true,
        };
        assert!(
            matches!(keeper.mount(&overlay), Err(Error::Usage { message, .. }) if message.contains("here"))
        );
    }

    #[test]
    fn a_keeper_that_is_gone_mounts_nothing() {
        let keeper = Keeper { dir: "/no/such".into(), pid: u32::MAX };
        assert!(!keeper.is_mounted(Path::new("/")).unwrap());
        assert!(keeper.unmount(Path::new("/")).is_err());
        assert!(Keeper::in_dir(&keeper.dir).unwrap().is_none());
    }

    /// What becomes of a keeper that answers every connection with these bytes.
    fn found(answer: String) -> Result<Option<Keeper>> {
        let temp = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
        let fake = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            assert_eq!(hear::<Request>(&mut client, Instant::now() + PROMPT).unwrap(), Request::Hello);
            std::io::Write::write_all(&mut client, answer.as_bytes()).unwrap();
        });
        let found = Keeper::in_dir(temp.path());
        fake.join().unwrap();
        found
    }

    #[test]
    fn only_what_is_a_keeper_is_taken_for_one() {
        let hello = |protocol, pid| format!("{{\"hello\":{{\"protocol\":{protocol},\"pid\":{pid}}}}}\n");
        let us = std::process::id();
        assert_eq!(found(hello(PROTOCOL, us)).unwrap().unwrap().pid(), us);
        assert!(matches!(found(hello(PROTOCOL, 1)), Err(Error::Corrupt { .. })));
        let Err(Error::Refused { reason, .. }) = found(hello(PROTOCOL + 1, us)) else { panic!() };
        assert!(reason.contains("version 2"), "{reason}");
        assert!(matches!(found("\"done\"\n".into()), Err(Error::Corrupt { .. })));
        assert!(matches!(found("garbage\n".into()), Err(Error::Io { .. })));
        assert!(matches!(found(String::new()), Err(Error::Io { .. })));
    }

    #[test]
    fn a_keeper_that_is_killed_before_it_answers_does_not_run() {
        let temp = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
        // Closed with the request unread: the client gets `ECONNRESET`.
        let fake = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            drop(listener);
            let mut poll = [rustix::event::PollFd::new(&client, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut poll, None).unwrap();
        });
        assert!(Keeper::in_dir(temp.path()).unwrap().is_none());
        fake.join().unwrap();
    }

    #[test]
    fn what_is_to_be_done_is_said() {
        let Error::Refused { reason, hint } = other_version(7, 9) else { panic!() };
        assert!(reason.contains("version 9") && hint.unwrap().contains("kill 7"));
        let Error::Refused { hint, .. } = no_answer(Path::new("/d"), 7, io::ErrorKind::TimedOut.into())
        else {
            panic!()
        };
        assert!(hint.unwrap().contains("kill 7"));
    }
}
