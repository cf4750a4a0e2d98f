//! The end of a sandbox: on request, because its time is up, or because nobody owns what is left of it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::json;

use super::lock::InUse;
use super::manager::{SandboxManager, explain, new_operation};
use super::{Ended, GcReport, Operation, Sandbox, SandboxState, Target, Uncommitted, Workspace};
use crate::Result;
use crate::model::SandboxId;
use crate::store::{Moment, OperationEnd};

impl SandboxManager {
    /// Ends a sandbox: removes everything that belongs to it but the resource. What it holds of uncommitted work is put
    /// away or thrown away, as asked. Ending what has ended is fine. A failure leaves it `destroying`; call again. One that a
    /// command is running in is busy.
    pub fn destroy(&self, target: &Target, uncommitted: Uncommitted) -> Result<Ended> {
        let id = &target.sandbox.id;
        self.permit_on(target, "destroy")?;
        if target.sandbox.state.is_gone() {
            return Ok(Ended::Already(target.sandbox.state));
        }
        let lock = self.lock(id)?;
        InUse::check_none(&self.sandbox_dir(id), &lock)?;
        self.recover_before_destroy(&target.sandbox)?;
        match self.store.sandbox(id)? {
            Some(sandbox) if !sandbox.state.is_gone() => self.end_locked(sandbox, uncommitted, "destroyed"),
            found => {
                self.drop_dir_of_closed(id);
                Ok(Ended::Already(found.map_or(SandboxState::Destroyed, |s| s.state)))
            }
        }
    }

    /// Ends a sandbox whose lock the caller holds.
    pub(super) fn end_locked(&self, sandbox: Sandbox, uncommitted: Uncommitted, why: &str) -> Result<Ended> {
        if uncommitted == Uncommitted::Discard {
            self.destroy_locked(&sandbox)?;
            return Ok(Ended::Destroyed);
        }
        if sandbox.state == SandboxState::Parked {
            return Ok(Ended::Already(SandboxState::Parked));
        }
        let target = Target { workspaces: sandbox.workspaces.clone(), sandbox };
        // A strategy that is not configured any more can neither tell nor clean up.
        target.workspaces.iter().try_for_each(|w| self.capabilities_of(w).map(drop))?;
        self.bring_in_last(&target.sandbox)?;
        match self.pending(&target) {
            0 => self.destroy_locked(&target.sandbox).map(|()| Ended::Destroyed),
            changes => {
                self.park_locked(&target, changes, why)?;
                Ok(Ended::Parked { changes })
            }
        }
    }

    /// How many paths differ in what is isolated. Where nobody can tell, something does.
    pub(super) fn pending(&self, target: &Target) -> usize {
        if !target.sandbox.state.is_open() {
            return 0;
        }
        // Of what cannot be asked, nobody knows that it does not.
        let isolated = |w: &&Workspace| !self.capabilities_of(w).is_ok_and(|can| !can.isolates);
        let workspaces: Vec<_> = target.workspaces.iter().filter(isolated).cloned().collect();
        let isolated = Target { workspaces, ..target.clone() };
        let diff = self.diff_unasked(&isolated, &[]);
        diff.map_or(1, |diff| diff.workspaces.iter().map(|w| w.entries.len()).sum())
    }

    /// A commit that was decided is finished before its sandbox goes; unless there is nothing left to commit to.
    fn recover_before_destroy(&self, sandbox: &Sandbox) -> Result<()> {
        // Whether something is still at a URL, its strategy alone could tell.
        let is_gone = |w: &Workspace| w.resource.path().is_some_and(|path| !path.exists());
        let gone = |sandbox: &Sandbox| sandbox.workspaces.iter().all(is_gone);
        match self.recover_operations(&sandbox.id) {
            Err(_) if gone(sandbox) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Ends a sandbox whose strategy does not: everything that is known of it here is removed, and uncommitted work with it. Says, of
    /// each workspace that its strategy could not clean up, why not; what such a strategy made elsewhere stays there.
    pub fn abandon(&self, target: &Target) -> Result<Vec<String>> {
        let id = &target.sandbox.id;
        self.permit_on(target, "destroy")?;
        let lock = self.lock_as_it_is(id)?;
        InUse::check_none(&self.sandbox_dir(id), &lock)?;
        let Some(sandbox) = self.store.sandbox(id)?.filter(|sandbox| !sandbox.state.is_gone()) else {
            self.drop_dir_of_closed(id);
            return Ok(Vec::new());
        };
        let mut left = Vec::new();
        let environment = self.tear_down_environment(&sandbox);
        left.extend(
            environment.err().map(|e| format!("extension {}: {}", sandbox.extension_id(), explain(&e))),
        );
        let nothing_more = || Ok(());
        self.end_for_good(&sandbox, nothing_more, |workspace| {
            let Err(error) = self.cleanup_workspace(workspace) else { return Ok(()) };
            if error.is_already_decided() {
                // Without its journal the original would stay half written.
                return Err(error);
            }
            left.push(format!("strategy {}: {}", workspace.sandbox_ref.strategy_name, explain(&error)));
            super::park::home_of(workspace).map_or(Ok(()), |home| self.remove_dir(home))
        })?;
        Ok(left)
    }

    /// Removes a sandbox whose lock the caller holds.
    pub(super) fn destroy_locked(&self, sandbox: &Sandbox) -> Result<()> {
        let tear_down = || self.tear_down_environment(sandbox);
        self.end_for_good(sandbox, tear_down, |workspace| self.cleanup_workspace(workspace))
    }

    /// The environment goes before the workspaces that it holds on to.
    fn end_for_good(
        &self,
        sandbox: &Sandbox,
        tear_down: impl FnOnce() -> Result<()>,
        clean_up: impl FnMut(&Workspace) -> Result<()>,
    ) -> Result<()> {
        self.parts.runtime.end(&sandbox.id)?;
        let operation = new_operation(&sandbox.id, "destroy", json!({}));
        self.store.begin_in_state(&sandbox.id, SandboxState::Destroying, &operation)?;
        let ended = tear_down().and_then(|()| self.each_made(sandbox, clean_up));
        ended.map_err(|error| self.log_failure(&operation, error))?;
        // Nothing else that was begun in it goes on.
        let unfinished = self.store.unfinished_operations(&sandbox.id)?;
        let ends: Vec<_> = unfinished.iter().map(|operation| end_with_sandbox(sandbox, operation)).collect();
        self.close(&sandbox.id, SandboxState::Destroyed, &ends)
    }

    /// Ends a sandbox whose workspaces are gone. The state goes first and the directory, with the lock in it, second:
    /// whoever comes to hold a new lock by then finds the state closed. The operations go last, so that a directory that
    /// is left is found by recovery.
    pub(super) fn close(&self, id: &SandboxId, state: SandboxState, ends: &[OperationEnd]) -> Result<()> {
        self.store.close(id, state)?;
        match self.remove_dir(&self.sandbox_dir(id)) {
            Ok(()) => self.store.end_all(ends),
            // Somebody may just have locked it to look; recovery removes it.
            Err(_) => Ok(()),
        }
    }

    /// Taking the lock of a sandbox that is gone has made its directory again. Where it cannot be removed, somebody else
    /// has just done the same and will try too.
    pub(super) fn drop_dir_of_closed(&self, id: &SandboxId) {
        let there = self.store.sandbox(id).map(|found| found.is_some_and(|sandbox| !sandbox.state.is_gone()));
        if matches!(there, Ok(false)) {
            let _ = self.remove_dir(&self.sandbox_dir(id));
        }
    }

    /// Removes what may be gone already.
    pub(super) fn remove_dir(&self, path: &Path) -> Result<()> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(());
        }
        (self.parts.remove_tree)(path)
    }

    /// Ends sandboxes whose time is up; uncommitted work is parked. One query where there are none.
    /// Plugins are not started for it: their sandboxes wait for `gc`.
    pub fn enforce_ttl(&self) -> Result<GcReport> {
        let at_hand = |sandbox: &Sandbox| self.is_at_hand(sandbox);
        self.end_expired(at_hand, Uncommitted::Park, false)
    }

    fn end_expired(
        &self,
        is_meant: impl Fn(&Sandbox) -> bool,
        uncommitted: Uncommitted,
        dry_run: bool,
    ) -> Result<GcReport> {
        let mut report = GcReport::default();
        // One that does not answer would be waited for once for each of its sandboxes.
        let mut silent: HashSet<String> = HashSet::new();
        for sandbox in self.store.expired(&Moment::now())?.into_iter().filter(is_meant) {
            self.parts.cancel.check()?;
            let maker = format!("{} on {}", sandbox.extension_id(), sandbox.host());
            if silent.contains(&maker) {
                report.failed.push(format!("sandbox {}: {maker} does not answer", sandbox.name));
                continue;
            }
            match self.end_one_expired(&sandbox, uncommitted, dry_run) {
                Ok(Some(Ended::Parked { .. })) => report.parked.push(sandbox.id),
                Ok(Some(_)) => report.expired.push(sandbox.id),
                Ok(None) => report.kept.push(sandbox.id),
                Err(error) => {
                    report.failed.push(format!("sandbox {}: {}", sandbox.name, explain(&error)));
                    silent.extend((!self.answers(&sandbox)).then_some(maker));
                }
            }
        }
        Ok(report)
    }

    /// `None` where somebody is at work in it, or a command is running.
    fn end_one_expired(
        &self,
        sandbox: &Sandbox,
        uncommitted: Uncommitted,
        dry_run: bool,
    ) -> Result<Option<Ended>> {
        let directory = self.sandbox_dir(&sandbox.id);
        let Some(lock) = self.try_lock(&sandbox.id)? else { return Ok(None) };
        if InUse::check_none(&directory, &lock).is_err() {
            return Ok(None);
        }
        self.recover_operations(&sandbox.id)?;
        let Some(sandbox) = self.store.sandbox(&sandbox.id)?.filter(|sandbox| sandbox.state.is_open()) else {
            self.drop_dir_of_closed(&sandbox.id);
            return Ok(Some(Ended::Destroyed));
        };
        // Somebody may have given it more time since it was looked for.
        if !self.store.is_expired(&sandbox.id, &Moment::now())? {
            return Ok(None);
        }
        if !dry_run {
            return self.end_locked(sandbox, uncommitted, "its time was up").map(Some);
        }
        let target = Target { workspaces: sandbox.workspaces.clone(), sandbox };
        Ok(Some(match self.pending(&target) {
            changes if changes > 0 && uncommitted == Uncommitted::Park => Ended::Parked { changes },
            _ => Ended::Destroyed,
        }))
    }

    /// Ends what has expired, removes what nobody owns and keeps within the budgets; a dry run only says what it would do.
    pub fn gc(&self, uncommitted: Uncommitted, dry_run: bool) -> Result<GcReport> {
        let mut failed = Vec::new();
        if !dry_run {
            let recovered = self.recover_whatever(|_| true)?;
            failed.extend(
                recovered
                    .into_iter()
                    .filter(|r| r.failed)
                    .map(|r| format!("{}: {}", r.sandbox_id, r.message)),
            );
            self.parts.runtime.sweep()?;
        }
        let mut report = self.end_expired(|_| true, uncommitted, dry_run)?;
        report.failed.extend(failed);
        self.remove_orphans(None, dry_run, &mut report)?;
        report.environments = self.reconcile_used(dry_run)?;
        report.failed.append(&mut report.environments.failed);
        if !dry_run {
            self.keep_within_budget(None)?;
            self.forget_old_events()?;
        }
        Ok(report)
    }
}

/// How an operation ends whose sandbox is gone.
pub(super) fn end_with_sandbox(sandbox: &Sandbox, operation: &Operation) -> OperationEnd {
    let (state, summary) = match operation.kind.as_str() {
        "destroy" => ("done", format!("sandbox {} destroyed", sandbox.name)),
        _ => ("failed", "interrupted".to_owned()),
    };
    OperationEnd { id: operation.id.clone(), state, summary, details: operation.details.clone() }
}
