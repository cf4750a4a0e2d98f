//! What is told of sandboxes, whatever the surface: documents, patches and errors.
//!
//! The fields of the documents are a contract: `docs/cli.md` lists them, snapshot tests hold them. A path that is not UTF-8 stands
//! lossily in `path` and exactly in `path_b64`; nothing else about a name is altered. An error becomes a [`Told`]: a kind, a sentence,
//! a path, and hints on what to type next. What it looks like on a screen, and which code a program exits with, is the surface's affair.

mod catalogue;
mod checkpoints;
mod commits;
pub mod conflicts;
mod differences;
pub mod events;
pub mod git;
mod hints;
pub mod notices;
pub mod patch;
mod paths;
pub mod reached;
mod rules;
mod sandboxes;
mod schema;
mod told;
#[cfg(feature = "databases")]
mod transactions;
pub mod words;

pub use catalogue::{ExtensionsDocument, HostsDocument, ProfilesDocument, WithOrigin};
pub use checkpoints::{
    CheckpointDocument, CheckpointsDocument, KeptCheckpointDocument, NamedResult, RollbackDocument,
};
pub use commits::{
    AbortDocument, CommitDocument, OperationDocument, PatchDocument, ShowDocument, UndoDocument,
};
pub use conflicts::Detail;
pub use differences::{DiffDocument, EntryDocument, PatchedDiffDocument, Summary, octal};
pub use paths::PathText;
pub use rules::{FailedPlace, FailedRule};
pub use sandboxes::{
    EnvironmentDocument, SandboxDocument, SandboxesDocument, StatusDocument, WorkspaceDocument,
    state_sentence,
};
pub use schema::schema_of;
pub use told::{Candidates, ErrorDocument, InvalidPlugin, Kind, Told};
