//! What the core has to know of whatever runs in a sandbox: that it can be held still, and ended.

use std::any::Any;

use crate::Result;
use crate::model::SandboxId;

/// Everything in a sandbox stands still until this is dropped.
pub type Quiet = Box<dyn Any + Send>;

/// What runs in sandboxes.
pub trait Runtime: Send + Sync {
    /// Holds everything in a sandbox still, so that what is compared is what is committed. `None` where nothing runs.
    fn quiesce(&self, sandbox: &SandboxId) -> Result<Option<Quiet>>;

    /// Ends everything in a sandbox, and removes what was needed for it. Nothing running is fine.
    fn end(&self, sandbox: &SandboxId) -> Result<()>;

    /// Removes what is left of what was killed, in every sandbox; says in which.
    fn sweep(&self) -> Result<Vec<String>>;
}

/// Nothing ever runs: for callers that only handle files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingRuns;

impl Runtime for NothingRuns {
    fn quiesce(&self, _: &SandboxId) -> Result<Option<Quiet>> {
        Ok(None)
    }

    fn end(&self, _: &SandboxId) -> Result<()> {
        Ok(())
    }

    fn sweep(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
