//! Custom strategies: a plugin is a process that speaks JSON-RPC over its standard input and output.
//!
//! [`envelope`] is the conversation, whatever it is about; [`strategy`] is the role with the nine methods of
//! [`SandboxStrategy`](sandboxer_core::contract::SandboxStrategy): [`declaration`] on the side of the host, [`serve`] on the side of
//! a plugin that is written in Rust. [`extension`] is the role of what makes environments, with both sides, too.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use sandboxer_core::contract::{Capabilities, SandboxStrategy};
//!
//! fn be_plugin(strategy: impl SandboxStrategy + 'static) -> ExitCode {
//!     sandboxer_plugin::serve(strategy, Capabilities { checkpoints: true, ..Capabilities::default() })
//! }
//! ```

pub mod check;
mod check_record;
pub mod envelope;
pub mod extension;
mod python;
mod source;
pub mod strategy;

pub use check_record::CheckRecord;
pub use extension::{ServedExtension, serve_extension, serve_extension_with};
pub use strategy::{Served, Start, declaration, serve, serve_with};
