//! sandboxer as a library: isolate a resource, look at the difference, commit it or throw it away.
//!
//! This crate is a façade. The model, the contracts and the use cases are [`core`]'s, the file engine is [`fs`], the
//! built-in strategies are [`strategies`]; [`wiring`] joins them into a manager that knows every built-in by its name.
//! Nothing here prints or reads the environment: that is left to the binary `sandbox`.

pub use sandboxer_core as core;
pub use sandboxer_fs as fs;
pub use sandboxer_strategies as strategies;

pub use sandboxer_core::service::SandboxManager;
pub use sandboxer_core::{Error, Result};

pub mod wiring;
