//! A sandbox's time to live, and its environment made again.

use jiff::SignedDuration;
use serde_json::json;

use super::steps::{failed, unmade};
use crate::service::create::expiry;
use crate::service::lock::{InUse, SandboxLock};
use crate::service::manager::SandboxManager;
use crate::service::{Sandbox, Target};
use crate::store::now;
use crate::{Error, Result};

impl SandboxManager {
    /// Has a sandbox end `ttl` from now, whenever it would have. Repeating it is fine.
    pub fn extend(&self, target: &Target, ttl: SignedDuration) -> Result<Sandbox> {
        self.permit_on(target, "extend")?;
        let (_lock, target) = self.lock_open(target)?;
        let expires_at = expiry(now(), Some(ttl))?;
        self.store.set_expiry(&target.sandbox.id, expires_at)?;
        let extended = Sandbox { expires_at, ..target.sandbox };
        self.describe(&extended)?;
        Ok(extended)
    }

    /// Takes the environment of a sandbox down and makes it again around the same workspaces, which keep what was done in them; with a checkpoint,
    /// they are brought back to that first. Where it cannot be made, the sandbox is there without it, and says why.
    pub fn recreate(&self, target: &Target, from: Option<&str>) -> Result<Sandbox> {
        self.permit_on(target, "recreate")?;
        if target.sandbox.environment.is_none() {
            return Err(no_environment(&target.sandbox));
        }
        let (_lock, target) = match from {
            Some(checkpoint) => self.lock_restored(target, checkpoint)?,
            None => self.lock_unused(target)?,
        };
        let told = |sandbox: &Sandbox| {
            (format!("environment of {} made again", sandbox.name), json!({"from": from}))
        };
        self.logged(&target.sandbox.id, "recreate", json!({}), || self.make_again(&target, from), told)
    }

    fn lock_unused(&self, target: &Target) -> Result<(SandboxLock, Target)> {
        let (lock, target) = self.lock_open(target)?;
        InUse::check_none(&self.sandbox_dir(&target.sandbox.id), &lock)?;
        Ok((lock, target))
    }

    /// The same, with the workspaces brought back to a checkpoint. Services elsewhere stand still from then on: what they did would be brought in.
    fn lock_restored(&self, target: &Target, checkpoint: &str) -> Result<(SandboxLock, Target)> {
        let (mut still, target) = self.lock_still_to_replace(target)?;
        InUse::check_none(&self.sandbox_dir(&target.sandbox.id), still.lock())?;
        self.checkpoint_service().restore_at_last(&mut still, &target, checkpoint)?;
        Ok((still.into_lock(), target))
    }

    fn make_again(&self, target: &Target, from: Option<&str>) -> Result<Sandbox> {
        if from.is_none() {
            self.bring_in_last(&target.sandbox)?;
        }
        self.tear_down_environment(&target.sandbox)?;
        self.bring_up(target)?;
        let mut sandbox = self.require_open(&target.sandbox.id, &target.sandbox.name)?;
        let Some(mut environment) = sandbox.environment.take() else { return Err(no_environment(&sandbox)) };
        unmade(&mut environment);
        environment.kept = from.and_then(|checkpoint| self.kept_besides(&sandbox.id, checkpoint));
        match self.make(&sandbox, &mut environment) {
            Ok(()) => {
                environment.kept = None;
                self.store.tell_of_environment(&sandbox.id, &environment, "recreated", None)?;
                sandbox.environment = Some(environment);
                self.describe(&sandbox)?;
                Ok(sandbox)
            }
            Err(error) => {
                sandbox.environment = Some(environment);
                self.give_up(sandbox, &error);
                Err(error)
            }
        }
    }

    /// What was half made goes; the sandbox stays, and says why it has no environment.
    fn give_up(&self, sandbox: Sandbox, error: &Error) {
        let torn_down = self.tear_down_environment(&sandbox);
        let Some(environment) = &sandbox.environment else { return };
        let mut environment = failed(environment, error);
        if torn_down.is_ok() {
            unmade(&mut environment);
        }
        let reason = environment.failure.as_ref().map(|f| format!("{}: {}", f.step, f.reason));
        let _ = self.store.tell_of_environment(&sandbox.id, &environment, "lost", reason.as_deref());
    }
}

fn no_environment(sandbox: &Sandbox) -> Error {
    Error::Usage {
        message: format!(
            "sandbox {} was made without a profile: there is no environment to make again",
            sandbox.name
        ),
        hint: Some("make one with an environment: `sandbox create --profile ID`".to_owned()),
    }
}
