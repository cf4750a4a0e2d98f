//! The protocol that every extension implements.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{CancelFlag, Quiet};
use crate::Result;
use crate::environment::{Cost, Found, Handle, Health, Host, Mount, Provision, Ready, Way};
use crate::model::SandboxId;

/// Makes environments, and takes them away.
///
/// Everything that it makes carries the sandbox's id as a label, so that what the store does not know can be found. All calls may be repeated, by
/// another process, after a crash at any instant of the first one.
pub trait EnvironmentExtension: Send + Sync {
    /// Checks that every method is there and can be called as it will be; a plugin is started for it. What is compiled into this
    /// program needs no such check.
    ///
    /// # Errors
    /// [`crate::Error::InvalidPlugin`] names every method that is missing or cannot be called.
    fn verify(&self) -> Result<()> {
        Ok(())
    }

    /// Makes it, or finds what an earlier call for the same sandbox made and completes that. What is half made on a failure is the
    /// caller's to tear down.
    fn provision(&self, request: &Provision) -> Result<Handle>;

    /// Waits until it can be used. Running out of time is an error that says what is missing. Knows nothing of applications.
    fn wait_ready(&self, handle: &Handle, deadline: Duration, cancel: &CancelFlag) -> Result<Ready>;

    /// Removes everything that carries the sandbox's id, with or without a handle. Nothing there is fine. `Ok` is proof: it has looked.
    fn teardown(&self, sandbox: &SandboxId, handle: Option<&Handle>) -> Result<()>;

    /// What there is of one sandbox, or of all that carry our label.
    fn inspect(&self, sandbox: Option<&SandboxId>) -> Result<Vec<Found>>;

    /// What an hour of it costs, where its definition alone does not tell.
    fn estimate_cost(&self, _request: &Provision) -> Result<Option<Cost>> {
        Ok(None)
    }

    /// Whether it can be used now. Cheap.
    fn health(&self) -> Health {
        Health::Healthy
    }

    /// The same extension as it is on one host: what it inspects and how it is, is that host's. `None` where hosts make no difference.
    fn on(&self, _host: &Host) -> Result<Option<Arc<dyn EnvironmentExtension>>> {
        Ok(None)
    }

    /// Brings what has changed in copied workspaces back to `mounts`, on this machine. `false` where there is nothing to bring back from.
    fn fetch(&self, _handle: &Handle, _mounts: &[Mount]) -> Result<bool> {
        Ok(true)
    }

    /// Makes the copies of `mounts` as they are on this machine, whatever has changed there.
    fn send(&self, _handle: &Handle, _mounts: &[Mount]) -> Result<()> {
        Ok(())
    }

    /// Keeps what a checkpoint covers besides the workspaces, in the directory `into`, which is not there yet. Provisioning can be asked to begin with
    /// it. `false` where there is nothing of the kind.
    fn keep(&self, _handle: &Handle, _into: &Path) -> Result<bool> {
        Ok(false)
    }

    /// The arguments of a program on this machine that goes that way; `None` where there is no such way but [`Handle::exec`].
    fn line(&self, _handle: &Handle, _way: &Way<'_>) -> Result<Option<Vec<OsString>>> {
        Ok(None)
    }

    /// Holds still what runs in it, until the answer is dropped. `None` where nothing runs, or where somebody else does it.
    fn hold_still(&self, _handle: &Handle) -> Result<Option<Quiet>> {
        Ok(None)
    }

    /// Lets go on what an earlier hold left standing still: whoever held it was killed, or could not reach it any more. Cheap where nothing was. The caller
    /// has seen to it that nobody holds it now.
    fn let_go(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }
}
