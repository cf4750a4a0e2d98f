//! Commits to one resource exclude one another, whoever makes them: a plugin's commit holds the lock that built-ins take.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{CommitRequest, CommitResult, Phase, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::lock::{self, ResourceLock};

const POLL: Duration = Duration::from_millis(10);

/// Held from before a commit looks until it is done.
enum Held {
    /// A path, with everything above it.
    Path(#[expect(dead_code, reason = "held, not looked at")] ResourceLock),
    /// What is at a URL: a file of ours stands for it.
    Url(#[expect(dead_code, reason = "held, not looked at")] File),
}

/// The locks of a strategy's commits; those between two phases by workspace.
pub(super) struct Locks {
    /// Where locks of what has no path are kept.
    pub directory: PathBuf,
    /// How long to wait for others.
    pub wait: Duration,
    held: Mutex<HashMap<PathBuf, Held>>,
}

impl Locks {
    pub fn new(directory: PathBuf, wait: Duration) -> Self {
        Self { directory, wait, held: Mutex::default() }
    }

    /// Does `work`, which is the phase of a commit that `request` asks for, with the resource locked from `prepare` to `finish`.
    pub fn during(
        &self,
        sandbox: &SandboxRef,
        workspace: &Path,
        request: &CommitRequest,
        cancel: &CancelFlag,
        work: impl FnOnce() -> Result<CommitResult>,
    ) -> Result<CommitResult> {
        let held = match (request.phase, self.let_go(workspace)) {
            (Phase::Abort, held) => held,
            (_, Some(held)) => Some(held),
            (_, None) => Some(self.acquire(sandbox, cancel)?),
        };
        let done = work()?;
        if let (Phase::Prepare, Some(held)) = (request.phase, held) {
            self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(workspace.to_path_buf(), held);
        }
        Ok(done)
    }

    /// Gives back what a commit that was prepared holds.
    pub fn forget(&self, workspace: &Path) {
        drop(self.let_go(workspace));
    }

    fn let_go(&self, workspace: &Path) -> Option<Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(workspace)
    }

    fn acquire(&self, sandbox: &SandboxRef, cancel: &CancelFlag) -> Result<Held> {
        let id = sandbox.resource_id.as_str();
        match id.strip_prefix("path:") {
            Some(path) => ResourceLock::acquire(Path::new(path), self.wait, cancel).map(Held::Path),
            None => self.acquire_url(id, cancel).map(Held::Url),
        }
    }

    fn acquire_url(&self, id: &str, cancel: &CancelFlag) -> Result<File> {
        crate::python::make_private(&self.directory)?;
        let path = self.directory.join(blake3::hash(id.as_bytes()).to_hex().as_str());
        let opened = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(|error| Error::io("open", &path, error))?;
        let deadline = Instant::now() + self.wait;
        while !lock::try_exclusive(&file) {
            cancel.check()?;
            if Instant::now() >= deadline {
                return Err(Error::Busy {
                    path,
                    holder: Some("another commit to the same resource".to_owned()),
                });
            }
            std::thread::sleep(POLL);
        }
        Ok(file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sandboxer_core::model::{PlanId, ResourceId};

    use super::*;

    fn sandbox(id: &str) -> SandboxRef {
        SandboxRef::new(PlanId::generate(), ResourceId::from_string(id), "mine")
    }

    fn phase(locks: &Locks, sandbox: &SandboxRef, workspace: &str, phase: Phase) -> Result<CommitResult> {
        let request = CommitRequest { phase, ..CommitRequest::default() };
        let done = || Ok(CommitResult::default());
        locks.during(sandbox, Path::new(workspace), &request, &CancelFlag::default(), done)
    }

    #[test]
    fn a_resource_is_locked_from_prepare_to_finish() {
        let dir = tempfile::tempdir().unwrap();
        for id in [format!("path:{}", dir.path().display()), "url:s3://stock".to_owned()] {
            let locks = || Locks::new(dir.path().join("locks"), Duration::from_millis(30));
            let (one, other, sandbox) = (locks(), locks(), sandbox(&id));
            phase(&one, &sandbox, "/ws_1", Phase::Prepare).unwrap();
            assert!(
                matches!(phase(&other, &sandbox, "/ws_2", Phase::Whole), Err(Error::Busy { .. })),
                "{id}"
            );
            phase(&one, &sandbox, "/ws_1", Phase::Finish).unwrap();
            phase(&other, &sandbox, "/ws_2", Phase::Prepare).unwrap();
            assert!(phase(&one, &sandbox, "/ws_1", Phase::Whole).is_err());
            phase(&other, &sandbox, "/ws_2", Phase::Abort).unwrap();
            phase(&one, &sandbox, "/ws_1", Phase::Whole).unwrap();
        }
    }

    #[test]
    fn a_failure_and_an_end_give_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::new(dir.path().join("locks"), Duration::from_millis(30));
        let sandbox = sandbox("url:s3://stock");
        let request = CommitRequest { phase: Phase::Prepare, ..CommitRequest::default() };
        let fails = || Err(Error::refused("no"));
        assert!(locks.during(&sandbox, Path::new("/ws"), &request, &CancelFlag::default(), fails).is_err());
        phase(&locks, &sandbox, "/other", Phase::Prepare).unwrap();
        locks.forget(Path::new("/other"));
        phase(&locks, &sandbox, "/ws", Phase::Whole).unwrap();
    }
}
