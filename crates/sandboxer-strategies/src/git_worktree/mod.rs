//! A branch of a checkout that cannot hurt the repository.
//!
//! The files are an overlay's, or a copy's where that does not work ([`crate::overlay`]). What is added is a repository of the sandbox's own in the
//! place of `.git` ([`making`]), a difference that shows what git shows ([`knowledge`]), and a commit that is one in the user's repository too: [`changes`] makes
//! it from what the engine has staged, [`composing`] and [`committing`] make it ready, and [`sequel`] carries it out within the engine's own commit.

mod about;
mod attributing;
mod blocked;
mod changes;
mod committing;
mod composing;
mod keeping;
mod knowledge;
mod laying;
mod making;
mod sequel;
mod spec;
mod undoing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, PlanId, RelPath, Resource, RollbackResult,
    SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry, StrategyOptions};
use sandboxer_core::{Error, Result};
use sandboxer_fs::space::Means;

use crate::copies::{self, home_of};
use crate::overlay::OverlayStrategy;
use crate::phases::Phases;
pub use about::{About, about};
use knowledge::Memory;
use sequel::Held;
use spec::GitSpec;

/// The name it is registered under.
pub const NAME: &str = "git_worktree";

/// Where the private repository is in the tree.
const PRIVATE: &str = ".git";

/// The registration.
pub fn entry() -> StrategyEntry {
    StrategyEntry {
        name: NAME.to_owned(),
        summary: "a branch of a git checkout, with a repository of its own; files as overlay has them"
            .to_owned(),
        origin: "built-in".to_owned(),
        capabilities: capabilities(),
        options: Default::default(),
        factory: Arc::new(|name, options, context| Ok(Arc::new(GitWorktree::new(name, options, context)?))),
    }
}

/// What it can do: all that an overlay can, but for moving to another base.
fn capabilities() -> Capabilities {
    Capabilities {
        looks_through: true,
        branches: true,
        resource_types: vec!["git-checkout".to_owned()],
        ..copies::capabilities()
    }
}

/// The strategy.
pub struct GitWorktree {
    name: String,
    files: OverlayStrategy,
    phases: Phases,
    held: Held,
}

impl GitWorktree {
    /// A strategy called `name`.
    pub fn new(name: &str, options: &StrategyOptions, context: &StrategyContext) -> Result<Self> {
        let mut options = options.clone();
        let files = options.remove("files");
        let overlay = OverlayStrategy::new(name, &options, context)?;
        let files = match files.as_ref().map(|value| value.as_str()) {
            None | Some(Some("overlay")) => overlay,
            Some(Some("copy")) => overlay.without_mounts(),
            Some(_) => {
                return Err(Error::usage(format!(
                    "option \"files\" of strategy {name:?} is \"overlay\" or \"copy\""
                )));
            }
        };
        Ok(Self { name: name.to_owned(), files, phases: Phases::default(), held: Held::default() })
    }

    /// The workspace that a resource's property `parked` names, brought up again.
    fn bring_up(&self, plan: &PlanId, resource: &Resource, home: &Path) -> Result<SandboxRef> {
        let made = self.files.create(plan, resource)?;
        keeping::unpark(home)?;
        Ok(self.dressed(made, &GitSpec::load(home)?))
    }
}

impl SandboxStrategy for GitWorktree {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        match resource.properties.get("parked").and_then(|v| v.as_str()) {
            Some(home) => self.bring_up(plan_id, resource, Path::new(home)),
            None => self.make(plan_id, resource),
        }
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        self.files.read(sandbox, path)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.files.write(sandbox, path, content)
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        let home = home_of(sandbox)?;
        let spec = GitSpec::load(&home)?;
        let memory = Arc::new(Memory::of(&home, spec)?);
        let means = Means { history: Some(memory.clone()), ..self.files.means() };
        let space = self.files.open_space(&home, means)?;
        self.screened(space, &memory.spec, memory.base.clone())?.diff()
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.commit_phase(sandbox, request)
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        let (home, scope) = (home_of(sandbox)?, sandbox.scope()?);
        let laid = self.laid_within(&home, &scope)?;
        let result = self.files.rollback(sandbox)?;
        self.lay_again(&home, &laid)?;
        if scope.is_empty() {
            self.reset_private(sandbox)?;
        }
        Ok(result)
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        let place = self.files.checkpoint(sandbox, checkpoint_id)?;
        keeping::keep(&home_of(sandbox)?, checkpoint_id)?;
        Ok(place)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let result = self.files.restore_checkpoint(sandbox, checkpoint_id)?;
        keeping::bring_back(&home_of(sandbox)?, checkpoint_id)?;
        Ok(result)
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let home = home_of(sandbox)?;
        match sandbox.part()? {
            Some(part) => {
                keeping::clean_up(&home, &part)?;
                self.files.cleanup(sandbox)
            }
            None => self.clean_up_all(sandbox, &home),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod view_tests;
