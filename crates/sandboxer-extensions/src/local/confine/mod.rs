//! What init takes from itself, for good, before it starts a command. Every process that it forks has the same restrictions.
//!
//! The order matters. [`privileges`] comes first: without capabilities nothing below can be undone. [`landlock`] opens the paths
//! that it is told of. [`watch`] and [`seccomp`] come last, since they refuse system calls that the others make.

pub mod landlock;
pub mod privileges;
pub mod seccomp;
pub mod watch;

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// A step that the kernel refused. Nothing may be started then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was to be done, as in "cannot …".
    pub step: String,
    /// The kernel's answer, and what is behind it where that is known.
    pub why: String,
}

impl Step {
    fn new(step: impl Into<String>, why: impl Display) -> Self {
        Self { step: step.into(), why: why.to_string() }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.why)
    }
}

impl std::error::Error for Step {}
