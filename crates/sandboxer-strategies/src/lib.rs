//! The built-in strategies. Each module has an `entry()` that registers it under its name.
//!
//! `overlay` copies nothing and falls back to the other two; `filesystem_copy` and `copy_on_write` are one strategy with two ways of getting
//! data across; `none` isolates nothing and says so by its name.

mod copies;
pub mod copy_on_write;
pub mod filesystem_copy;
pub mod git_worktree;
pub mod none;
mod options;
pub mod overlay;
mod phases;
mod probe;

pub use probe::{StrategyHealth, probe};

/// First thing in the `main` of a program that keepers are started from: does what this process was started for, if it was started
/// by a strategy, and never returns then. There must be no second thread yet.
pub fn serve_if_asked() {
    sandboxer_keeper::serve_if_asked();
    sandboxer_keeper::enter::enter_if_asked();
    overlay::sweep_if_asked();
}
