//! Checkpoints of an overlay: layers that are frozen, and states that are gone back to.

use std::path::{Path, PathBuf};

use sandboxer_core::model::{CheckpointId, RollbackResult, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::filter::Filter;
use sandboxer_fs::overlay::layer::Layer;
use sandboxer_fs::overlay::shift::{self, Shift};
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::overlay::stack::{LayerId, Places, Stack};
use sandboxer_fs::overlay::taken;
use sandboxer_fs::overlay::transfer::copy_layer;
use sandboxer_fs::restore::Restored;

use super::mounts::Mounts;
use super::{OverlayStrategy, notices, spec_at, sweeper};
use crate::copies::{home_of, rollback_result};

impl OverlayStrategy {
    /// Keeps the present state.
    pub(super) fn take_checkpoint(&self, sandbox: &SandboxRef, id: &CheckpointId) -> Result<PathBuf> {
        let (home, spec, places) = self.prepared(sandbox)?;
        let lock = Mounts::lock(&home)?;
        let mut stack = Stack::load(&places)?;
        match self.mounts.replace(&home, &spec, &lock, || self.freeze(&home, &spec, &mut stack, id))? {
            None => self.copy_checkpoint(&home, &spec, &mut stack, id),
            Some(()) => Ok(stack.layers.last().map_or(places.upper(), |top| places.layer(*top))),
        }
    }

    fn freeze(&self, home: &Path, spec: &OverlaySpec, stack: &mut Stack, id: &CheckpointId) -> Result<()> {
        let places = Places::new(home);
        stack.settle(&places)?;
        taken::settle(home, spec.marks, &places, stack)?;
        stack.freeze(id.as_str(), &places)?;
        let squashed = stack.squash(id.as_str(), spec.marks, &places, &self.context.cancel);
        if squashed.is_err() {
            // Nobody hears of a checkpoint that could not be finished.
            stack.forget(id.as_str(), &places)?;
        }
        squashed
    }

    /// Something works in it: what was changed is copied, and the mount stays.
    fn copy_checkpoint(
        &self,
        home: &Path,
        spec: &OverlaySpec,
        stack: &mut Stack,
        id: &CheckpointId,
    ) -> Result<PathBuf> {
        let places = Places::new(home);
        let number = stack.take_number(&places);
        let (to, temporary) = (places.layer(number), places.layer(number).with_extension("new"));
        sandboxer_fs::remove_tree(&temporary)?;
        std::fs::create_dir(&temporary).map_err(|e| Error::io("create directory", &temporary, e))?;
        let upper = Layer::open(&places.upper(), spec.marks)?;
        let copied = copy_layer(&upper, &temporary, &self.context.cancel);
        if let Err(error) = copied {
            let _ = sandboxer_fs::remove_tree(&temporary);
            return Err(error);
        }
        std::fs::rename(&temporary, &to).map_err(|e| Error::io("rename into place", &to, e))?;
        stack.adopt(id.as_str(), number, &places)?;
        let unsteady = copied?.unsteady;
        let caught = match unsteady.first() {
            Some(first) => {
                format!("; {} files changed while they were copied, {first} among them", unsteady.len())
            }
            None => String::new(),
        };
        let text = format!(
            "checkpoint {id} was taken while something worked in the sandbox: its changes were copied{caught}"
        );
        notices::add(home, &text)?;
        Ok(to)
    }

    /// Brings a kept state back.
    pub(super) fn go_back(&self, sandbox: &SandboxRef, id: &CheckpointId) -> Result<RollbackResult> {
        let (home, spec, places) = self.prepared(sandbox)?;
        let target = Stack::load(&places)?.checkpoint(id.as_str())?.clone();
        let restored = self.switch(&home, &spec, &places, target, Some(id))?;
        Ok(rollback_result(Some(id.clone()), &restored, &format!("restored checkpoint {id}")))
    }

    /// The base again: all of it, or within the ref's scope.
    pub(super) fn roll_back(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let scope = sandbox.scope()?;
        let restored = if scope.is_empty() {
            let (home, spec, places) = self.prepared(sandbox)?;
            let ground = Stack::load(&places)?.ground;
            self.switch(&home, &spec, &places, ground, None)?
        } else {
            self.open(sandbox)?.rollback(&scope)?
        };
        Ok(rollback_result(None, &restored, "rolled back to the base"))
    }

    /// Leaves the present state for that of the layers `target`.
    fn switch(
        &self,
        home: &Path,
        spec: &OverlaySpec,
        places: &Places,
        target: Vec<LayerId>,
        name: Option<&CheckpointId>,
    ) -> Result<Restored> {
        let lock = Mounts::lock(home)?;
        let mut stack = Stack::load(places)?;
        let shift = Shift::open(spec, places, &stack.layers, &target)?;
        let switch = || {
            let count = shift.count(&counted(spec)?, &self.context.cancel)?;
            stack.settle(places)?;
            stack.switch(target, places)?;
            // Each commit since has laid a layer below the checkpoint.
            if let Some(name) = name {
                stack.squash(name.as_str(), spec.marks, places, &self.context.cancel)?;
            }
            taken::forget(home)?;
            Ok(Restored { count, ..Restored::default() })
        };
        let Some(restored) = self.mounts.replace(home, spec, &lock, switch)? else {
            drop(lock);
            return shift::through_the_mount(&self.open_at(home)?, &shift);
        };
        sweeper::start(self.context.program.as_deref(), places);
        Ok(restored)
    }

    /// Forgets a kept state, with what it alone holds.
    pub(super) fn forget_checkpoint(&self, home: &Path, id: &CheckpointId) -> Result<()> {
        let places = Places::new(home);
        let _lock = Mounts::lock(home)?;
        Stack::load(&places)?.forget(id.as_str(), &places)?;
        sweeper::start(self.context.program.as_deref(), &places);
        Ok(())
    }

    fn prepared(&self, sandbox: &SandboxRef) -> Result<(PathBuf, OverlaySpec, Places)> {
        let home = home_of(sandbox)?;
        let spec = spec_at(&home)?;
        let places = Places::new(&home);
        Ok((home, spec, places))
    }
}

/// What is counted among what was brought back.
fn counted(spec: &OverlaySpec) -> Result<Filter> {
    let mut patterns = spec.patterns.clone();
    patterns.skip.extend(spec.ground.clone());
    Filter::new(&patterns)
}
