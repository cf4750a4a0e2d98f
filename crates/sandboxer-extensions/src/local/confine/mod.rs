//! What init takes from itself, for good, before it starts a command. Every process that it forks has the same restrictions.
//!
//! The order matters. [`privileges`] comes first: without capabilities nothing below can be undone. [`landlock`] opens the paths
//! that it is told of. [`watch`] and [`seccomp`] come last, since they refuse system calls that the others make.

pub mod landlock;
pub mod privileges;
pub mod seccomp;
pub mod watch;

pub use super::refusal::Refusal;
