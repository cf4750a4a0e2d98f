//! The core of sandboxer: what a sandbox is, what a strategy promises, and the use cases built on both.
//!
//! The core is mute and synchronous. It prints nothing, reads no environment variable and knows no home directory:
//! settings, progress callbacks and a cancel flag come in as arguments. Everything that isolates a resource is reached
//! through the [`registry::StrategyRegistry`]; everything that is remembered goes through the [`store::Store`].

pub mod access;
pub mod config;
pub mod contract;
pub mod environment;
pub mod error;
pub mod model;
pub mod policy;
pub mod registry;
pub mod resolve;
pub mod service;
pub mod store;
pub mod types;
pub mod verification;

pub use error::{Error, Result};
