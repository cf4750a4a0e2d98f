//! The one protocol of isolation.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, PlanId, RelPath, Resource, RollbackResult,
    SandboxRef,
};

/// The names of the nine methods, in order. A plugin is verified against this list.
pub const METHODS: [&str; 9] =
    ["create", "read", "write", "diff", "commit", "rollback", "checkpoint", "restore_checkpoint", "cleanup"];

/// How a resource is isolated. Nine methods; there is no second, smaller protocol.
///
/// What every implementation promises:
/// - The resource is changed by `commit` alone (`none` is the exception that its name announces).
/// - A [`SandboxRef`] is valid in another process, after a restart, for as long as `cleanup` has not been called.
/// - An error leaves the resource as it was, and the sandbox either as it was or repeatable: calling again is safe.
/// - Callers hold the sandbox's lock, so no two calls that change one sandbox overlap. Programs may be changing the
///   sandbox's content at any time all the same.
/// - A gap is [`crate::Error::Unsupported`] with a reason, never a panic.
pub trait SandboxStrategy: Send + Sync {
    /// Isolates `resource`. Leaves nothing behind where it fails. Does not ask whether the plan has it already: that is
    /// the manager's business.
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef>;

    /// The content at `path` as the sandbox sees it (the part within the ref's `range`, where one is set). Follows no symbolic link.
    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>>;

    /// Replaces the content at `path`, making parent directories as needed. Follows no symbolic link.
    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change>;

    /// Everything that differs from the base, at a cost in proportion to what was done. Changes nothing, and is right
    /// about each entry even while programs run in the sandbox.
    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView>;

    /// Makes the selected differences real, or refuses and changes nothing. Durable when it returns. Afterwards the
    /// committed state is the base.
    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult>;

    /// Throws the differences away (those within the ref's `scope`, where one is set).
    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult>;

    /// Keeps the present state under that name. A name that exists is replaced. Returns the path where it is kept, if
    /// it is a path, in the ref's terms: nothing else may be assumed about it.
    fn checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<Option<std::path::PathBuf>>;

    /// Brings that state back. The base stays as it is, so a diff afterwards tells the checkpoint from the base.
    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult>;

    /// Removes every trace of the sandbox but the resource. Idempotent, also after a partial `create` or `cleanup`.
    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()>;
}

/// What a strategy can do, declared as data so that callers choose before they call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Changes stay away from the resource until commit. False for `none` alone.
    pub isolates: bool,
    /// The content is a tree of files at the ref's `path`, with the base readable at its `base`.
    pub file_tree: bool,
    /// The tree keeps everything that a filesystem has: times, links between files, attributes, access lists. `create` honours
    /// the patterns of what to leave out, and `diff` tells renames, and what has moved in the original.
    pub faithful: bool,
    /// `commit` has the phases prepare, finish and abort; otherwise `whole` only.
    pub two_phase: bool,
    /// A commit that was prepared and then aborted cannot be taken up again: it is prepared last, after everything was
    /// looked at in its `diff`, and held to the digest of that. An abort of what was never prepared leaves the work as it is.
    /// Goes with `two_phase`.
    pub prepare_ends: bool,
    /// `commit` takes paths.
    pub select_paths: bool,
    /// `commit` takes hunks of text files.
    pub select_hunks: bool,
    /// `rollback` honours the ref's `scope`.
    pub scoped_rollback: bool,
    /// It has checkpoints.
    pub checkpoints: bool,
    /// Base content is kept as far as its budget allows, however the original moves: `commit` can merge text three ways,
    /// and honours every value of `on_conflict`.
    pub keeps_base: bool,
    /// `commit` honours `ours` and `theirs` of `on_conflict`, entry by entry, without keeping its base; `keeps_base` includes it.
    pub resolves: bool,
    /// `commit` honours the ref's `operation` and `undo`: a commit can be taken back.
    pub undo: bool,
    /// `cleanup` honours the ref's `part`, and `create` the resource's property `parked`.
    pub parts: bool,
    /// Where nothing was changed, the sandbox shows the original as it is now, edits by hand and what the patterns leave out
    /// included. It is there only while something keeps it: `create` with the property `parked` brings it up again.
    pub looks_through: bool,
    /// `create` honours the resource's property `refresh`: it moves the workspace in that directory onto what the resource is now,
    /// and says in the ref's `refreshed` what was merged, updated and is in conflict.
    pub refreshes: bool,
    /// The resource has branches: `create` honours its properties `from`, `clean` and `ignored`, and `commit` the request's `branch`
    /// and `history`.
    pub branches: bool,
    /// `read` honours the ref's `range`: content goes through in pieces, and may be larger than memory.
    pub ranges: bool,
    /// The resource types it is made for; empty means any.
    pub resource_types: Vec<String>,
}

impl Default for Capabilities {
    /// The least a strategy can be: it isolates, and commits as a whole.
    fn default() -> Self {
        Self {
            isolates: true,
            file_tree: false,
            faithful: false,
            two_phase: false,
            prepare_ends: false,
            select_paths: false,
            select_hunks: false,
            scoped_rollback: false,
            checkpoints: false,
            keeps_base: false,
            resolves: false,
            undo: false,
            parts: false,
            looks_through: false,
            refreshes: false,
            branches: false,
            ranges: false,
            resource_types: Vec::new(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn unset_capabilities_are_the_least() {
        let least: Capabilities = serde_json::from_str("{}").unwrap();
        assert_eq!(least, Capabilities::default());
        assert!(least.isolates && !least.two_phase && !least.checkpoints && !least.keeps_base);
        let some: Capabilities = serde_json::from_str(r#"{"two_phase": true, "isolates": false}"#).unwrap();
        assert!(some.two_phase && !some.isolates && !some.file_tree);
    }
}
