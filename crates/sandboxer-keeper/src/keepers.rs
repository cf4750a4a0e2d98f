//! The keepers of one state directory: finding, starting and ending them.
//!
//! Each has a directory of its own with its `socket` and a `lock` that it holds while it lives. Who starts or ends one first
//! takes its turn by locking the directory, so two at once get one keeper.

use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandboxer_core::{Error, Result};

use crate::chain::in_words;
use crate::keeper::Keeper;
use crate::mount::{Trial, unique};
use crate::serve::NAME;
use crate::wire::Startup;
use crate::work;

/// How long somebody else's turn, the start or the end of a keeper may take.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(2);

/// The keepers of one state directory.
#[derive(Clone, Debug)]
pub struct Keepers {
    dir: PathBuf,
    program: PathBuf,
}

/// Keepers that this process started. They are its children, and somebody has to hear of their end.
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

impl Keepers {
    /// The keepers in `dir`, which need not be there yet. New ones are started from `program`, which has to call
    /// [`serve_if_asked`](crate::serve_if_asked) first; `/proc/self/exe` will do.
    pub fn new(dir: &Path, program: &Path) -> Self {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        Self { dir, program: program.to_path_buf() }
    }

    /// The keeper `id`: the one that runs, or a new one.
    pub fn start(&self, id: &str) -> Result<Keeper> {
        if let Some(keeper) = self.find(id)? {
            return Ok(keeper);
        }
        let dir = self.dir_of(id)?;
        let _turn = Turn::take(&dir, true)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(keeper) = Keeper::in_dir(&dir)? {
                return Ok(keeper);
            }
            if let Some(keeper) = self.spawn(&dir)? {
                return Ok(keeper);
            }
            // One that is just dying still holds its lock.
            check(deadline, &dir, "a keeper that does not listen")?;
            sleep(POLL);
        }
    }

    /// The keeper `id`, if it runs.
    pub fn find(&self, id: &str) -> Result<Option<Keeper>> {
        reap();
        Keeper::in_dir(&self.dir_of(id)?)
    }

    /// Tells the keeper `id` to quit, waits until it is gone and removes its directory. What is mounted and not busy is
    /// unmounted by then; whoever still works in one of its mounts keeps that for itself. It not running is fine.
    pub fn end(&self, id: &str) -> Result<()> {
        let dir = self.dir_of(id)?;
        let _turn = match Turn::take(&dir, false) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            turn => turn?,
        };
        if let Some(keeper) = Keeper::in_dir(&dir)? {
            quit(&keeper, &dir)?;
        }
        reap();
        work::remove(&dir)
    }

    /// Whether keepers work here: starts one, has it mount something throw-away, works in that, and ends it. The error is
    /// the reason, in words.
    pub fn try_user(&self) -> Result<(), String> {
        let id = unique("try");
        let tried = self.try_with(&id);
        let ended = self.end(&id).map_err(|e| in_words(&e));
        tried.and(ended)
    }

    /// The keepers that run: their ids and process ids.
    pub fn running(&self) -> Vec<(String, u32)> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        ids.filter_map(|id| Some((self.find(&id).ok()??.pid(), id))).map(|(pid, id)| (id, pid)).collect()
    }

    fn try_with(&self, id: &str) -> Result<(), String> {
        let keeper = self.start(id).map_err(|error| match error {
            Error::Unavailable { reason, .. } => reason,
            other => in_words(&other),
        })?;
        let trial = Trial::new(&self.dir.join(id)).map_err(|e| in_words(&e))?;
        let overlay = trial.overlay();
        keeper.mount(&overlay).map_err(|e| in_words(&e))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounted = fs::open(keeper.reach(&overlay.at), flags, Mode::empty())
            .map_err(|e| format!("a mount of another process cannot be reached through /proc: {e}"))?;
        Trial::exercise(&mounted)
    }

    /// The directory of a keeper. An id is one plain name.
    fn dir_of(&self, id: &str) -> Result<PathBuf> {
        if id.is_empty() || id.starts_with('.') || id.contains(['/', '\0']) {
            return Err(Error::usage(format!("{id:?} is no name for a keeper")));
        }
        Ok(self.dir.join(id))
    }

    /// Starts a process and waits until it listens. `None`: another one holds the lock.
    fn spawn(&self, dir: &Path) -> Result<Option<Keeper>> {
        let failed = |e| Error::io("start a keeper from", &self.program, e);
        let mut command = Command::new(&self.program);
        command.arg0(NAME).arg(dir).current_dir("/");
        // Where coverage is measured, the keeper's counts.
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| name == "LLVM_PROFILE_FILE"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        match startup(&mut child) {
            Ok(Startup::Ready) => {
                let keeper = Keeper::of_child(dir, &child);
                CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).push(child);
                Ok(Some(keeper))
            }
            Ok(Startup::Taken) => child.wait().map(|_| None).map_err(failed),
            Ok(Startup::Failed(reason)) => {
                let _ = child.wait();
                Err(Error::Unavailable { strategy: "overlay".to_owned(), path: dir.to_path_buf(), reason })
            }
            Err(e) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(failed(e))
            }
        }
    }
}

/// The one line that a new keeper says.
fn startup(child: &mut Child) -> io::Result<Startup> {
    let pipe = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    if !readable(&pipe)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a word"));
    }
    Ok(serde_json::from_str(&line)?)
}

fn quit(keeper: &Keeper, dir: &Path) -> Result<()> {
    let pid = i32::try_from(keeper.pid()).ok().and_then(Pid::from_raw);
    let process = pid.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    keeper.quit()?;
    match process {
        Ok(process) if !readable(&process).map_err(|e| Error::io("wait for", dir, e))? => {
            Err(Error::Busy { path: dir.to_path_buf(), holder: Some(format!("keeper {}", keeper.pid())) })
        }
        Ok(_) | Err(Errno::SRCH) => Ok(()),
        Err(e) => Err(Error::io("wait for", dir, e)),
    }
}

/// Waits until there is something to read, or in the case of a process, until it has ended.
fn readable(fd: impl AsFd) -> io::Result<bool> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            answer => return Ok(answer? > 0),
        }
    }
}

/// Buries the children that have died.
fn reap() {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

fn check(deadline: Instant, dir: &Path, holder: &str) -> Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    Err(Error::Busy { path: dir.to_path_buf(), holder: Some(holder.to_owned()) })
}

/// The right to start or end the keeper of one directory; given back when dropped.
#[must_use]
struct Turn {
    _dir: OwnedFd,
}

impl Turn {
    fn take(path: &Path, create: bool) -> Result<Self> {
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

fn is_at(dir: &OwnedFd, path: &Path) -> bool {
    let identity = |stat: fs::Stat| (stat.st_dev, stat.st_ino);
    matches!((fs::fstat(dir), fs::lstat(path)), (Ok(ours), Ok(now)) if identity(ours) == identity(now))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_name() {
        let keepers = Keepers::new(Path::new("/state/keepers"), Path::new("/bin/true"));
        assert_eq!(keepers.dir_of("sb_1").unwrap(), Path::new("/state/keepers/sb_1"));
        for id in ["", ".", "..", ".x", "a/b", "a\0b"] {
            assert!(matches!(keepers.dir_of(id), Err(Error::Usage { .. })), "{id:?}");
        }
    }

    #[test]
    fn where_nothing_is_nothing_runs() {
        let temp = tempfile::tempdir().unwrap();
        let keepers = Keepers::new(&temp.path().join("keepers"), Path::new("/bin/true"));
        assert!(keepers.find("a").unwrap().is_none());
        assert_eq!(keepers.running(), []);
        keepers.end("a").unwrap();
        assert!(!temp.path().join("keepers").exists());
    }

    #[test]
    fn a_program_that_is_no_keeper_is_named() {
        let temp = tempfile::tempdir().unwrap();
        for (program, why) in [("/bin/true", "without a word"), ("/no/such", "No such file")] {
            let keepers = Keepers::new(temp.path(), Path::new(program));
            let error = in_words(&keepers.start("a").unwrap_err());
            assert!(error.contains(program) && error.contains(why), "{error}");
            assert!(keepers.try_user().unwrap_err().contains(why));
        }
        assert_eq!(keepers_left(temp.path()), ["a"]);
    }

    fn keepers_left(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}
