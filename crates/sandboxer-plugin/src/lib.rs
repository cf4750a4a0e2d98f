//! Custom strategies: a plugin is a process that speaks JSON-RPC over its standard input and output.
//!
//! [`envelope`] is the conversation, whatever it is about; [`strategy`] is the role with the nine methods of
//! [`SandboxStrategy`](sandboxer_core::contract::SandboxStrategy): [`declaration`] on the side of the host, [`serve`] on the side of
//! a plugin that is written in Rust.
//!
//! ```no_run
//! # use sandboxer_core::contract::{Capabilities, SandboxStrategy};
//! # fn strategy() -> impl SandboxStrategy + 'static { Unwritten }
//! # struct Unwritten;
//! # use sandboxer_core::{Result, model::*};
//! # impl SandboxStrategy for Unwritten {
//! #     fn create(&self, _: &PlanId, _: &Resource) -> Result<SandboxRef> { todo!() }
//! #     fn read(&self, _: &SandboxRef, _: &RelPath) -> Result<Vec<u8>> { todo!() }
//! #     fn write(&self, _: &SandboxRef, _: &RelPath, _: &[u8]) -> Result<Change> { todo!() }
//! #     fn diff(&self, _: &SandboxRef) -> Result<DiffView> { todo!() }
//! #     fn commit(&self, _: &SandboxRef, _: &CommitRequest) -> Result<CommitResult> { todo!() }
//! #     fn rollback(&self, _: &SandboxRef) -> Result<RollbackResult> { todo!() }
//! #     fn checkpoint(&self, _: &SandboxRef, _: &CheckpointId) -> Result<Option<std::path::PathBuf>> { todo!() }
//! #     fn restore_checkpoint(&self, _: &SandboxRef, _: &CheckpointId) -> Result<RollbackResult> { todo!() }
//! #     fn cleanup(&self, _: &SandboxRef) -> Result<()> { todo!() }
//! # }
//! fn main() -> std::process::ExitCode {
//!     sandboxer_plugin::serve(strategy(), Capabilities { checkpoints: true, ..Capabilities::default() })
//! }
//! ```

pub mod check;
pub mod envelope;
pub mod strategy;

pub use strategy::{Served, Start, declaration, serve, serve_with};
