//! Workspaces that are copied to where their environment is: what has changed there is brought here before anybody looks, and what changes here
//! is sent there afterwards.
//!
//! A mark says that something here has not been sent. It is made while the environment is held still and goes before it is let go of, and nobody
//! lets go of what has one, so nothing changes there meanwhile: whoever comes next sends first, and loses nothing.
//!
//! Who replaces everything has not looked at what is there. Until they have done it, another mark says so, and that one lets nobody send: what is there
//! may be work that nobody has seen. Whoever comes next brings it here as ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::steps::READY;
use crate::contract::EnvironmentExtension;
use crate::environment::{Environment, Handle, Mount, WorkspaceAccess};
use crate::model::{CheckpointId, SandboxId};
use crate::service::manager::{SandboxManager, Still, explain};
use crate::service::{Sandbox, Target};
use crate::{Error, Result};

/// The mark, in the sandbox's directory.
const UNSENT: &str = "unsent";
/// The other mark, beside it. Where both are, everything has been replaced.
const REPLACING: &str = "replacing";
/// What checkpoints cover besides workspaces, in the sandbox's directory.
const KEPT: &str = "kept";
/// What is being kept, beside it. No checkpoint begins with a dot.
const PART: &str = ".part";

/// The copies of a sandbox's workspaces, and what keeps them.
struct Copies {
    extension: Arc<dyn EnvironmentExtension>,
    handle: Handle,
    mounts: Vec<Mount>,
    /// Where marks are.
    directory: PathBuf,
}

impl Copies {
    fn send(&self) -> Result<()> {
        self.extension.send(&self.handle, &self.mounts)?;
        unmark(&self.directory)
    }

    fn fetch(&self) -> Result<bool> {
        self.extension.fetch(&self.handle, &self.mounts)
    }

    fn has(&self, mark: &str) -> bool {
        self.directory.join(mark).exists()
    }

    fn mark(&self, mark: &str) -> Result<()> {
        let mark = self.directory.join(mark);
        std::fs::write(&mark, []).map_err(|error| Error::io("write", mark, error))
    }

    /// Before work that changes workspaces. Where everything was brought here, and has stood still since, nothing there is unknown: whatever becomes of the
    /// work, also by a kill, sending what is here loses nothing. What has not been sent has stood still since it was known, too.
    fn begin(&self, still: &Still) -> Result<()> {
        match still.is_brought_in() || self.has(UNSENT) {
            true => self.mark(UNSENT),
            false => self.mark(REPLACING),
        }
    }

    /// Whether what is here now is to be sent: not where half of it was replaced, by somebody who has not looked at what is there.
    fn decide(&self, is_done: bool) -> Result<bool> {
        if is_done {
            self.mark(UNSENT)?;
        }
        Ok(self.has(UNSENT))
    }

    fn send_if_decided(&self, is_done: bool) -> Result<()> {
        if self.decide(is_done)? { self.send() } else { Ok(()) }
    }
}

impl SandboxManager {
    /// `None` where workspaces are not copied, or nothing is there that they were copied to.
    fn copies(&self, sandbox: &Sandbox) -> Result<Option<Copies>> {
        let Some((environment, handle)) = copied(sandbox) else { return Ok(None) };
        let definition = self.parts.environments.definition(&environment.route.extension_id)?;
        if definition.capabilities.workspaces != WorkspaceAccess::Transfer {
            return Ok(None);
        }
        self.bring_up(&Target { workspaces: sandbox.workspaces.clone(), sandbox: sandbox.clone() })?;
        Ok(Some(Copies {
            extension: self.extension_of(environment)?,
            handle: handle.clone(),
            mounts: self.mounts(sandbox, environment, WorkspaceAccess::Transfer)?,
            directory: self.sandbox_dir(&sandbox.id),
        }))
    }

    /// Whether the workspaces of a sandbox are copied somewhere now.
    pub(in crate::service) fn has_copies(&self, sandbox: &Sandbox) -> Result<bool> {
        Ok(self.copies(sandbox)?.is_some())
    }

    /// Makes workspaces and copies equal. The caller holds the lock, and the environment still.
    pub(in crate::service) fn bring_in(&self, sandbox: &Sandbox) -> Result<()> {
        let Some(copies) = self.copies(sandbox)? else { return Ok(()) };
        if copies.has(UNSENT) {
            return copies.send();
        }
        let was_cut = copies.has(REPLACING);
        let fetched =
            copies.fetch().map_err(|error| if was_cut { half_replaced(sandbox, &error) } else { error })?;
        let known_to_be_lost = sandbox.environment.as_ref().is_some_and(|e| e.failure.is_some());
        match fetched {
            false if !known_to_be_lost => Err(gone(sandbox)),
            // What was replaced before it was cut is here only, and now everything is.
            true if was_cut => copies.send_if_decided(true),
            _ => Ok(()),
        }
    }

    /// Whether something here has not been sent.
    pub(in crate::service) fn is_unsent(&self, id: &SandboxId) -> bool {
        self.sandbox_dir(id).join(UNSENT).exists()
    }

    /// What is made now begins with what is here: nothing is left to be sent.
    pub(in crate::service) fn forget_unsent(&self, id: &SandboxId) -> Result<()> {
        unmark(&self.sandbox_dir(id))
    }

    /// The same before a sandbox ends, where what is gone is gone.
    pub(in crate::service) fn bring_in_last(&self, sandbox: &Sandbox) -> Result<()> {
        let Some(copies) = self.copies(sandbox)? else { return Ok(()) };
        let unreached = |error| cannot_fetch(sandbox, &error);
        let held = copies.extension.hold_still(&copies.handle).map_err(unreached)?;
        if !copies.has(UNSENT) {
            copies.fetch().map_err(unreached)?;
        }
        // What follows takes it down: it is not let go of again.
        std::mem::forget(held);
        Ok(())
    }

    /// For those who look without a lock: what has changed elsewhere is here when this returns.
    pub(in crate::service) fn look_elsewhere(&self, target: &Target) -> Result<()> {
        if !self.has_copies(&target.sandbox)? {
            return Ok(());
        }
        self.lock_still(target).map(drop)
    }

    /// What could not be sent before is sent now, so that whoever enters an environment finds it as it should be, and running.
    pub(in crate::service) fn send_what_is_left(&self, sandbox: &Sandbox) -> Result<()> {
        let Some(copies) = self.copies(sandbox)? else { return Ok(()) };
        if !copies.has(UNSENT) {
            return copies.extension.let_go(&copies.handle);
        }
        let held = copies.extension.hold_still(&copies.handle)?;
        match copies.send() {
            Ok(()) => Ok(()),
            Err(error) => {
                std::mem::forget(held);
                Err(error)
            }
        }
    }

    /// Does work that changes workspaces, and sends what it has changed. What became of either is told apart: what is done here is done.
    pub(in crate::service) fn sending<T>(
        &self,
        stills: &mut [Still],
        targets: &[Target],
        work: impl FnOnce() -> Result<T>,
    ) -> (Result<T>, Result<()>) {
        let copies = targets.iter().map(|target| self.copies(&target.sandbox));
        let copies: Vec<Option<Copies>> = match copies.collect() {
            Ok(copies) => copies,
            Err(error) => return (Err(error), Ok(())),
        };
        let begin =
            |(copies, still): (&Option<Copies>, &Still)| copies.as_ref().map_or(Ok(()), |c| c.begin(still));
        let marked = copies.iter().zip(stills.iter()).try_for_each(begin);
        if let Err(error) = marked {
            // Nothing has changed yet.
            copies.iter().flatten().for_each(|copies| drop(unmark(&copies.directory)));
            return (Err(error), Ok(()));
        }
        let done = work();
        let mut sent = Ok(());
        for ((copies, still), target) in copies.iter().zip(stills).zip(targets) {
            if let Err(error) = copies.as_ref().map_or(Ok(()), |c| c.send_if_decided(done.is_ok())) {
                still.leave_held();
                sent = sent.and(Err(not_sent(&target.sandbox, &error)));
            }
        }
        (done, sent)
    }

    /// The same for one target, where sending is part of the work.
    pub(in crate::service) fn sending_one<T>(
        &self,
        still: &mut Still,
        target: &Target,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (done, sent) = self.sending(std::slice::from_mut(still), std::slice::from_ref(target), work);
        let done = done?;
        sent.map(|()| done)
    }

    /// The same where the copies are taken down next: what is here is marked, and whoever comes after a kill does not look there for something newer.
    pub(in crate::service) fn without_sending<T>(
        &self,
        still: &mut Still,
        target: &Target,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(copies) = self.copies(&target.sandbox)? else { return work() };
        copies.begin(still)?;
        let done = work();
        if copies.decide(done.is_ok())? {
            still.leave_held();
        }
        done
    }

    /// Keeps what a checkpoint covers besides workspaces. The caller holds everything still, and no checkpoint has that name: what is there is of one
    /// that was killed before it was written down.
    pub(in crate::service) fn keep_besides(&self, target: &Target, id: &CheckpointId) -> Result<()> {
        let place = self.kept_dir(&target.sandbox.id, id);
        self.remove_dir(&place)?;
        let Some((environment, handle)) = copied(&target.sandbox) else { return Ok(()) };
        let part = place.with_file_name(PART);
        self.remove_dir(&part)?;
        if self.extension_of(environment)?.keep(handle, &part)? {
            std::fs::rename(&part, &place).map_err(|error| Error::io("rename", &part, error))?;
        }
        Ok(())
    }

    /// Where that is, if a checkpoint has any.
    pub(in crate::service) fn kept_besides(&self, sandbox: &SandboxId, id: &str) -> Option<PathBuf> {
        Some(self.kept_dir(sandbox, &CheckpointId::from_string(id))).filter(|place| place.exists())
    }

    /// Forgets it.
    pub(in crate::service) fn forget_besides(&self, sandbox: &SandboxId, id: &CheckpointId) -> Result<()> {
        self.remove_dir(&self.kept_dir(sandbox, id))
    }

    fn kept_dir(&self, sandbox: &SandboxId, id: &CheckpointId) -> PathBuf {
        self.sandbox_dir(sandbox).join(KEPT).join(Path::new(id.as_str()))
    }
}

/// The environment of a sandbox and its handle, where it was made. One that was found to be lost may have work in it all the same: services that have
/// ended, a host that was started again.
fn copied(sandbox: &Sandbox) -> Option<(&Environment, &Handle)> {
    let environment = sandbox.environment.as_deref()?;
    Some((environment, environment.handle.as_ref().filter(|_| environment.step == READY)?))
}

/// The one that lets nobody send goes first: cut in between, what is here is sent once more.
fn unmark(directory: &Path) -> Result<()> {
    [REPLACING, UNSENT].map(|mark| directory.join(mark)).iter().try_for_each(
        |mark| match std::fs::remove_file(mark) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", mark, error))
            }
            _ => Ok(()),
        },
    )
}

fn gone(sandbox: &Sandbox) -> Error {
    Error::Refused {
        reason: format!(
            "what the workspaces of {} were copied to is gone from {}",
            sandbox.name,
            sandbox.host()
        ),
        hint: Some(format!(
            "`sandbox reconcile`, then `sandbox recreate {}`: it begins with what was brought here last",
            sandbox.name
        )),
    }
}

fn half_replaced(sandbox: &Sandbox, error: &Error) -> Error {
    Error::Refused {
        reason: format!(
            "a rollback or restore was cut, and what has changed on {} cannot be brought here: {}",
            sandbox.host(),
            explain(error)
        ),
        hint: Some(format!(
            "nothing on the host was touched; to throw it away: `sandbox rollback {0}`, or `sandbox restore {0} CHECKPOINT`",
            sandbox.name
        )),
    }
}

/// Whoever failed knows best what to do about it.
fn cannot_fetch(sandbox: &Sandbox, error: &Error) -> Error {
    let advice = match error.root() {
        Error::Refused { hint: Some(hint), .. } | Error::Usage { hint: Some(hint), .. } => hint,
        _ => "try again when that is put right, or the host is there again",
    };
    Error::Refused {
        reason: format!("what has changed on {} cannot be brought here: {}", sandbox.host(), explain(error)),
        hint: Some(format!(
            "{advice}; without those changes: `sandbox destroy {0} --discard`, or `--force` where the host is gone for good",
            sandbox.name
        )),
    }
}

fn not_sent(sandbox: &Sandbox, error: &Error) -> Error {
    Error::Refused {
        reason: format!("it is done here, and {} could not be told: {}", sandbox.host(), explain(error)),
        hint: Some(format!(
            "its services stand still until the next command reaches them, such as `sandbox diff {}`",
            sandbox.name
        )),
    }
}
