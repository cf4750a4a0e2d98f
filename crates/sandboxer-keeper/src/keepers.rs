//! The keepers of one state directory: finding, starting and ending them.
//!
//! Each has a directory of its own with its `socket` and a `lock` that it holds while it lives. Who starts or ends one first
//! takes its turn by locking the directory, so two at once get one keeper.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{self, Mode, OFlags};
use sandboxer_core::{Error, Result};

use crate::chain::in_words;
use crate::keeper::Keeper;
use crate::mount::{Trial, unique};
use crate::process::{Leaving, PATIENCE, Turn, hear_startup, reap, remember, until_started};
use crate::serve::NAME;
use crate::wire::Startup;
use crate::work;

/// The keepers of one state directory.
#[derive(Clone, Debug)]
pub struct Keepers {
    dir: PathBuf,
    program: PathBuf,
}

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
        until_started(&dir, || match Keeper::in_dir(&dir)? {
            Some(keeper) => Ok(Some(keeper)),
            None => self.spawn(&dir),
        })
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
        match hear_startup(&mut child, PATIENCE) {
            Ok(Startup::Ready) => {
                let keeper = Keeper::of_child(dir, &child);
                remember(child);
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

fn quit(keeper: &Keeper, dir: &Path) -> Result<()> {
    let leaving = Leaving::of(keeper.pid());
    keeper.quit()?;
    match leaving.wait().map_err(|e| Error::io("wait for", dir, e))? {
        true => Ok(()),
        false => {
            Err(Error::Busy { path: dir.to_path_buf(), holder: Some(format!("keeper {}", keeper.pid())) })
        }
    }
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
