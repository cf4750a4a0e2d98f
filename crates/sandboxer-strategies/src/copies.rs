//! The strategy behind `filesystem_copy` and `copy_on_write`: a copy of the resource, compared with its base.

use std::path::{Path, PathBuf};

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, Part, Phase, PlanId, RelPath, Resource,
    RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::checkpoint::Checkpoints;
use sandboxer_fs::commit::CommitFiles;
use sandboxer_fs::filter::Patterns;
use sandboxer_fs::restore::Restored;
use sandboxer_fs::scratch::{self, NewWorkspace};
use sandboxer_fs::space::Space;
use sandboxer_fs::tree::{Spec, Workspace};

use crate::options::FileOptions;
use crate::phases::Phases;
use crate::probe::{self, CannotShare};

/// How the copy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Blocks are shared with the original, or the strategy falls back to a plain copy and says so.
    Reflink,
    /// Bytes are copied.
    Bytes,
}

/// Name of the strategy that `copy_on_write` falls back to.
pub const FALLBACK: &str = "filesystem_copy";

/// A strategy that copies.
pub struct CopyStrategy {
    name: String,
    mode: Mode,
    options: FileOptions,
    context: StrategyContext,
    phases: Phases,
}

/// What both can do.
pub fn capabilities() -> Capabilities {
    Capabilities {
        isolates: true,
        file_tree: true,
        faithful: true,
        two_phase: true,
        prepare_ends: false,
        select_paths: true,
        select_hunks: true,
        keeps_base: true,
        resolves: false,
        scoped_rollback: true,
        checkpoints: true,
        undo: true,
        parts: true,
        looks_through: false,
        refreshes: false,
        branches: false,
        ranges: true,
        resource_types: ["fs-directory", "fs-file", "fs-mount", "git-checkout"].map(str::to_owned).to_vec(),
    }
}

impl CopyStrategy {
    /// A strategy called `name`.
    pub fn new(name: &str, mode: Mode, options: &StrategyOptions, context: &StrategyContext) -> Result<Self> {
        let options = FileOptions::parse(name, options)?;
        Ok(Self { name: name.to_owned(), mode, options, context: context.clone(), phases: Phases::default() })
    }

    fn open(&self, sandbox: &SandboxRef) -> Result<Workspace> {
        Workspace::open(&home_of(sandbox)?, self.options.means(&self.context))
    }

    /// Where blocks can be shared with `original`, or why nowhere.
    fn sharing_root(&self, original: &Path) -> Result<PathBuf, String> {
        let roots = scratch::on_filesystem_of(&self.context.home, original, self.options.scratch.as_deref());
        let mut reason = "no directory on its filesystem can be written".to_owned();
        for root in roots {
            match probe::can_share(&root) {
                Ok(()) => return Ok(root),
                Err(CannotShare::Unwritable(why)) => reason = why,
                Err(CannotShare::Unsupported(why)) => return Err(why),
            }
        }
        Err(reason)
    }

    fn make(
        &self,
        plan: &PlanId,
        resource: &Resource,
        root: &Path,
        spec: Spec,
        name: &str,
    ) -> Result<SandboxRef> {
        let new = NewWorkspace::create(&self.context.home, root, plan, resource)?;
        let (space, _) = Workspace::create(new.path(), spec, self.options.means(&self.context))?;
        let path = space.path();
        Ok(reference(plan, resource, name, &new.keep(), &path))
    }

    /// A part that is gone already, or whose workspace is, is as it should be.
    fn clean_up_part(&self, sandbox: &SandboxRef, part: &Part) -> Result<()> {
        if !home_of(sandbox)?.exists() {
            return Ok(());
        }
        match part {
            Part::Undo(operation) => {
                sandboxer_fs::commit::forget_undo(&CommitFiles::new(&home_of(sandbox)?), operation)
            }
            // Not by way of the workspace: it cannot be opened where the original is gone.
            Part::Checkpoint(id) => {
                Checkpoints::new(&home_of(sandbox)?.join("checkpoints")).drop(id.as_str())
            }
            Part::Unchanged => {
                Workspace::settle_unparking(&home_of(sandbox)?)?;
                self.open(sandbox)?.park().map(drop)
            }
        }
    }

    fn bring_back(&self, plan: &PlanId, resource: &Resource, home: &Path) -> Result<SandboxRef> {
        let space = Workspace::unpark(home, self.options.means(&self.context))?;
        Ok(reference(plan, resource, &self.name, home, &space.path()))
    }
}

pub(crate) fn reference(
    plan: &PlanId,
    resource: &Resource,
    name: &str,
    home: &Path,
    path: &Path,
) -> SandboxRef {
    SandboxRef::new(plan.clone(), resource.id.clone(), name)
        .with_path("path", path)
        .with("base", resource.location.as_str())
        .with_path("history", &CommitFiles::new(home).undo())
        .with_path("dir", home)
}

pub(crate) fn home_of(sandbox: &SandboxRef) -> Result<PathBuf> {
    let dir = sandbox.text("dir").map(PathBuf::from);
    dir.ok_or_else(|| Error::corrupt(sandbox.resource_id.as_str(), "its ref has no directory"))
}

/// What of the filesystem a resource is: a directory, or one name in its parent. Of `ours`, what lies inside is left out:
/// a workspace would be copied into itself.
pub(crate) fn spec_of(resource: &Resource, mut patterns: Patterns, ours: &[PathBuf]) -> Result<Spec> {
    use std::os::unix::ffi::OsStrExt;
    let path = resource.require_path()?;
    scratch::require(path)?;
    let original = match (path.is_dir(), path.parent(), path.file_name()) {
        (true, _, _) => path.to_path_buf(),
        (false, Some(parent), Some(name)) => {
            patterns.only = Some(RelPath::single(name.as_bytes())?);
            parent.to_path_buf()
        }
        _ => return Err(Error::not_found("resource", resource.location.clone())),
    };
    for inside in ours.iter().filter_map(|dir| dir.strip_prefix(&original).ok()) {
        if !inside.as_os_str().is_empty() {
            patterns.skip.push(RelPath::parse(inside)?);
        }
    }
    Ok(Spec { original, root: None, patterns, reflink: false, keep_base: 0 })
}

pub(crate) fn no_fallback(resource: &Resource) -> bool {
    resource.properties.get("no_fallback").is_some_and(|v| v == true)
}

impl SandboxStrategy for CopyStrategy {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        if let Some(parked) = resource.properties.get("parked").and_then(|v| v.as_str()) {
            return self.bring_back(plan_id, resource, Path::new(parked));
        }
        let patterns = self.options.patterns(resource);
        let plain = self.options.scratch.clone().unwrap_or_else(|| scratch::in_state(&self.context.home));
        let ours = [self.context.home.clone(), scratch::in_state(&self.context.home), plain.clone()];
        let spec = Spec { keep_base: self.options.keep_base, ..spec_of(resource, patterns, &ours)? };
        if spec.patterns.only.is_none() && plain == spec.original {
            return Err(Error::usage(format!(
                "the scratch directory {} is the resource itself",
                plain.display()
            )));
        }
        if self.mode == Mode::Bytes {
            return self.make(plan_id, resource, &plain, spec, &self.name);
        }
        match self.sharing_root(&spec.original) {
            Ok(root) => self.make(plan_id, resource, &root, Spec { reflink: true, ..spec }, &self.name),
            Err(reason) if no_fallback(resource) => Err(Error::Unavailable {
                strategy: self.name.clone(),
                path: (&resource.location).into(),
                reason,
            }),
            Err(reason) => {
                let made = self.make(plan_id, resource, &plain, spec, FALLBACK)?;
                Ok(made.with("fallback_reason", reason))
            }
        }
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        self.open(sandbox)?.read_within(path, sandbox.range()?)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.open(sandbox)?.write(path, content)
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        self.open(sandbox)?.diff()
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        match self.open(sandbox) {
            Err(_) if request.phase == Phase::Abort => self.phases.abort_unopened(&home_of(sandbox)?),
            space => self.phases.commit(&space?, sandbox, request),
        }
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let restored = self.open(sandbox)?.rollback(&sandbox.scope()?)?;
        Ok(rollback_result(None, &restored, "rolled back to the base"))
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.open(sandbox)?.checkpoint(checkpoint_id.as_str()).map(Some)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let restored = self.open(sandbox)?.restore(checkpoint_id.as_str())?;
        let done = format!("restored checkpoint {checkpoint_id}");
        Ok(rollback_result(Some(checkpoint_id.clone()), &restored, &done))
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let home = home_of(sandbox)?;
        if let Some(part) = sandbox.part()? {
            return self.clean_up_part(sandbox, &part);
        }
        if home.exists() {
            // A stage on another filesystem goes with the workspace. A decided commit is finished first.
            match Workspace::open(&home, self.options.means(&self.context)) {
                Ok(space) => self.phases.end(&space)?,
                Err(_) => match Spec::load(&home)? {
                    Some(spec) => self.phases.end_unopened(&home, &spec.original)?,
                    None => sandboxer_fs::commit::forget(&CommitFiles::new(&home))?,
                },
            }
        }
        drop(self.phases.let_go(&home));
        sandboxer_fs::remove_tree(&home)
    }
}

pub(crate) fn rollback_result(
    checkpoint_id: Option<CheckpointId>,
    restored: &Restored,
    done: &str,
) -> RollbackResult {
    let entries = if restored.count == 1 { "entry" } else { "entries" };
    let mut message = format!("{done}: {} {entries} changed back", restored.count);
    if let Some(first) = restored.gone.first() {
        let others = restored.gone.len() - 1;
        message += &format!("; {first} is gone from the original and stays away");
        if others > 0 {
            message += &format!(" ({others} more like it)");
        }
    }
    RollbackResult { success: true, checkpoint_id, restored_files: restored.count, message }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "copies_tests.rs"]
mod tests;
