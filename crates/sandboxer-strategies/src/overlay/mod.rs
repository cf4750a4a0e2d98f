//! Overlay: the kernel shows the original with the sandbox's changes over it, and nothing is copied.
//!
//! [`mounts`] sees to it that a workspace is mounted, once; [`making`] finds a way to mount a new one, or falls back to a copy and says
//! why; [`checkpoints`] freezes and goes back; [`neighbours`] keeps what other sandboxes see. Reading, comparing and
//! committing are the file engine's, as for copies.

mod checkpoints;
mod making;
mod mounts;
mod neighbours;
mod notices;
mod sweeper;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, Part, Phase, PlanId, RelPath, Resource,
    RollbackResult, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::CommitFiles;
use sandboxer_fs::overlay::refresh::refresh;
use sandboxer_fs::overlay::space::{OverlaySpace, OverlaySpec};
use sandboxer_fs::overlay::stack::Places;
use sandboxer_fs::space::{Means, Space};
use sandboxer_fs::tree::Workspace;
use sandboxer_keeper::Unmounted;
use serde_json::json;

use crate::copies::{self, CopyStrategy, Mode, home_of};
use crate::copy_on_write;
use crate::options::FileOptions;
use crate::phases::Phases;
pub(crate) use making::Ground;
pub use making::probe;
use mounts::Mounts;
pub use neighbours::{Watchers, remove_workspace};
pub use sweeper::sweep_if_asked;

/// The name it is registered under.
pub const NAME: &str = "overlay";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "an OverlayFS mount: nothing is copied; falls back to copy_on_write".to_owned(),
        origin: "built-in".to_owned(),
        capabilities: capabilities(),
        options: Default::default(),
        factory: Arc::new(|name, options, context| {
            Ok(Arc::new(OverlayStrategy::new(name, options, context)?))
        }),
    }
}

/// What it can do: all that copies can.
fn capabilities() -> Capabilities {
    Capabilities { looks_through: true, refreshes: true, ..copies::capabilities() }
}

/// The strategy.
pub struct OverlayStrategy {
    name: String,
    options: FileOptions,
    context: StrategyContext,
    mounts: Arc<Mounts>,
    fallback: CopyStrategy,
    /// A file cannot be the lower layer of an overlay: a single one is copied.
    single_files: CopyStrategy,
    phases: Phases,
    /// Whether overlays are tried at all.
    mounts_anything: bool,
}

impl OverlayStrategy {
    /// A strategy called `name`.
    pub fn new(name: &str, options: &StrategyOptions, context: &StrategyContext) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            options: FileOptions::parse(name, options)?,
            mounts: Arc::new(Mounts::new(&context.home, context.program.as_deref())),
            fallback: CopyStrategy::new(copy_on_write::NAME, Mode::Reflink, options, context)?,
            single_files: CopyStrategy::new(name, Mode::Bytes, options, context)?,
            context: context.clone(),
            phases: Phases::default(),
            mounts_anything: true,
        })
    }

    /// The same strategy, always as a copy.
    pub(crate) fn without_mounts(self) -> Self {
        Self { mounts_anything: false, ..self }
    }

    /// The strategy of a workspace that is a copy.
    fn copy_of(&self, sandbox: &SandboxRef) -> Result<Option<&CopyStrategy>> {
        Ok((!is_overlay(&home_of(sandbox)?)).then_some(&self.single_files))
    }

    /// How the engine is to work.
    pub(crate) fn means(&self) -> Means {
        self.options.means(&self.context)
    }

    fn open(&self, sandbox: &SandboxRef) -> Result<OverlaySpace> {
        self.open_at(&home_of(sandbox)?)
    }

    fn open_at(&self, home: &Path) -> Result<OverlaySpace> {
        self.open_with(home, self.means())
    }

    fn open_with(&self, home: &Path, means: Means) -> Result<OverlaySpace> {
        let spec = spec_at(home)?;
        let merged = self.mounts.ensure(home, &spec)?;
        OverlaySpace::open(home, &merged, spec, means)
    }

    /// A workspace that this strategy made, as an overlay or as a copy, opened for somebody who works on it in his own way.
    pub(crate) fn open_space(&self, home: &Path, means: Means) -> Result<Box<dyn Space>> {
        if is_overlay(home) {
            return Ok(Box::new(self.open_with(home, means)?));
        }
        Ok(Box::new(Workspace::open(home, means)?))
    }

    fn reference(&self, plan: &PlanId, resource: &Resource, home: &Path, spec: &OverlaySpec) -> SandboxRef {
        let places = Places::new(home);
        let path = if spec.keeper.is_some() { places.tree() } else { places.merged() };
        copies::reference(plan, resource, &self.name, home, &path)
            .with_path("notices", &notices::place(home))
            .with_path("work", &places.upper())
            .with_path("preserved", &places.preserve())
    }

    /// Ends the mount of a workspace that stays. Nothing may work in it: what is put away has to hold still.
    fn release(&self, home: &Path, spec: &OverlaySpec) -> Result<()> {
        let lock = Mounts::lock(home)?;
        let reached = self.mounts.reached(home, spec)?;
        if self.mounts.unmount(home, spec, &lock)? == Unmounted::Busy {
            let holders = reached.map(|at| self.mounts.holders(&at)).unwrap_or_default();
            return Err(busy(home, &holders));
        }
        self.end_keeper(home, spec)
    }

    /// Ends the mount of a workspace that goes. Whoever still works in it keeps nothing by that.
    fn abandon(&self, home: &Path, spec: &OverlaySpec) -> Result<()> {
        let lock = Mounts::lock(home)?;
        self.mounts.take_away(home, spec, &lock)?;
        self.end_keeper(home, spec)?;
        // From here on it is no neighbour of anybody's commit, however long its files take to go.
        OverlaySpec::remove(home)
    }

    fn end_keeper(&self, home: &Path, spec: &OverlaySpec) -> Result<()> {
        neighbours::end_keeper(&self.context.home, &self.mounts, home, spec)
    }

    /// Moves a workspace onto what the original is now; the answer says in `refreshed` what came of it.
    fn refresh(&self, plan: &PlanId, resource: &Resource, home: &Path) -> Result<SandboxRef> {
        let space = self.open_at(home)?;
        let _lock = space.lock()?;
        let done = refresh(&space, &|| self.mounts.renew(home, space.spec()))?;
        let merged: Vec<String> = done.merged.iter().map(ToString::to_string).collect();
        let told = json!({"merged": merged, "updated": done.updated, "conflicts": done.conflicts});
        Ok(self.reference(plan, resource, home, space.spec()).with("refreshed", told))
    }

    fn clean_up_part(&self, sandbox: &SandboxRef, part: &Part) -> Result<()> {
        let home = home_of(sandbox)?;
        if !home.exists() {
            return Ok(());
        }
        match part {
            Part::Undo(operation) => sandboxer_fs::commit::forget_undo(&CommitFiles::new(&home), operation),
            Part::Checkpoint(id) => self.forget_checkpoint(&home, id),
            // The upper is the work already.
            Part::Unchanged => self.release(&home, &spec_at(&home)?),
        }
    }
}

/// Whether the workspace at `home` is an overlay, or was one before it was removed.
pub(crate) fn is_overlay(home: &Path) -> bool {
    !home.join("workspace.json").exists()
}

fn spec_at(home: &Path) -> Result<OverlaySpec> {
    OverlaySpec::load(home)?.ok_or_else(|| Error::corrupt(home, "it is no workspace of an overlay"))
}

/// A keeper knows no owner but its user, and the kernel says so in a way that nobody understands.
fn foreign(path: &RelPath, error: Error) -> Error {
    match error {
        Error::Io { source, .. } if source.raw_os_error() == Some(Errno::OVERFLOW.raw_os_error()) => {
            Error::Refused {
                reason: format!(
                    "{path} or a directory above it belongs to another user, and an overlay in a user namespace cannot change that ({source})"
                ),
                hint: Some("make it yours in the original, or use `--strategy copy_on_write`".to_owned()),
            }
        }
        other => other,
    }
}

/// Names who works in a workspace.
fn busy(home: &Path, holders: &[sandboxer_keeper::mount::Holder]) -> Error {
    let who: Vec<String> = holders.iter().take(5).map(|h| format!("{} ({})", h.pid, h.name)).collect();
    let holder = (!who.is_empty()).then(|| who.join(", "));
    Error::Busy { path: Places::new(home).merged(), holder }
}

impl SandboxStrategy for OverlayStrategy {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        if let Some(parked) = resource.properties.get("parked").and_then(|v| v.as_str()) {
            if !is_overlay(Path::new(parked)) {
                return self.single_files.create(plan_id, resource);
            }
            let space = self.open_at(Path::new(parked))?;
            return Ok(self.reference(plan_id, resource, Path::new(parked), space.spec()));
        }
        if let Some(home) = resource.properties.get("refresh").and_then(|v| v.as_str()) {
            return self.refresh(plan_id, resource, Path::new(home));
        }
        self.make(plan_id, resource, None)
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.read(sandbox, path),
            None => self.open(sandbox)?.read_within(path, sandbox.range()?),
        }
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.write(sandbox, path, content),
            None => self.open(sandbox)?.write(path, content).map_err(|error| foreign(path, error)),
        }
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.diff(sandbox),
            None => self.open(sandbox)?.diff(),
        }
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.commit(sandbox, request),
            None => match self.open(sandbox) {
                Err(_) if request.phase == Phase::Abort => self.phases.abort_unopened(&home_of(sandbox)?),
                space => self.phases.commit(&space?, sandbox, request),
            },
        }
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.rollback(sandbox),
            None => self.roll_back(sandbox),
        }
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.checkpoint(sandbox, checkpoint_id),
            None => self.take_checkpoint(sandbox, checkpoint_id).map(Some),
        }
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        match self.copy_of(sandbox)? {
            Some(copy) => copy.restore_checkpoint(sandbox, checkpoint_id),
            None => self.go_back(sandbox, checkpoint_id),
        }
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        if let Some(copy) = self.copy_of(sandbox)? {
            return copy.cleanup(sandbox);
        }
        if let Some(part) = sandbox.part()? {
            return self.clean_up_part(sandbox, &part);
        }
        let home = home_of(sandbox)?;
        if let Some(spec) = OverlaySpec::load(&home)? {
            self.end_commit(&home, &spec)?;
            self.abandon(&home, &spec)?;
        }
        drop(self.phases.let_go(&home));
        sweeper::finish(&Places::new(&home))?;
        sandboxer_fs::remove_tree(&home)?;
        Watchers::of(&self.context).clear_graves()
    }
}

impl OverlayStrategy {
    /// A stage on another filesystem goes with the workspace. A decided commit is finished first.
    fn end_commit(&self, home: &Path, spec: &OverlaySpec) -> Result<()> {
        let files = CommitFiles::new(home);
        if !files.note().exists() && !files.prepared().exists() && !files.journal().exists() {
            return Ok(());
        }
        match self.open_at(home) {
            Ok(space) => self.phases.end(&space),
            Err(_) => self.phases.end_unopened(home, &spec.original),
        }
    }
}
