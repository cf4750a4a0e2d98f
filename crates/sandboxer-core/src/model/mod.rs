//! Plain values that cross every boundary of the system: serialisable, immutable once handed out.

mod commit;
mod diff;
mod ids;
mod path;
mod reference;
mod resource;
mod results;
mod rows;

pub use commit::{
    CommitRequest, CommitResult, Conflict, ConflictHunk, History, HunkSelection, Notice, OnConflict, Phase,
    Revision,
};
pub use diff::{Change, DiffEntry, DiffKind, DiffView, Node, NodeType, digest_of};
pub use ids::{CheckpointId, OpId, PlanId, ResourceId, SandboxId};
pub use path::{PathError, RelPath};
pub use reference::{Part, Range, SandboxRef};
pub use resource::Resource;
pub use results::{AccessResult, CheckpointResult, RollbackResult, SandboxResult};
pub use rows::{Row, RowChange};
