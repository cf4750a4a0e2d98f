//! The built-in strategies. Each module has an `entry()` that registers it under its name.
//!
//! `overlay` copies nothing and falls back to the other two; `filesystem_copy` and `copy_on_write` are one strategy with two ways of getting
//! data across; `none` isolates nothing and says so by its name.

mod copies;
pub mod copy_on_write;
pub mod filesystem_copy;
pub mod none;
mod options;
pub mod overlay;
mod phases;
mod probe;
mod scratch;

pub use probe::{StrategyHealth, probe};
