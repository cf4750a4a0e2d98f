//! A step of containment that could not be made. Nothing runs then.

use std::error::Error as _;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What the system refused, and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What was attempted, as a verb phrase: `mount proc`.
    pub step: String,
    /// What the system answered.
    pub reason: String,
}

impl Refusal {
    /// A refusal in words.
    pub fn new(step: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { step: step.into(), reason: reason.to_string() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.reason)
    }
}

impl std::error::Error for Refusal {}

impl From<sandboxer_core::Error> for Refusal {
    fn from(error: sandboxer_core::Error) -> Self {
        let said = error.to_string();
        let step = said.strip_prefix("cannot ").unwrap_or(&said).to_owned();
        let reason = error.source().map_or_else(|| "it failed".to_owned(), ToString::to_string);
        Self::new(step, reason)
    }
}

/// Turns an answer of the system into a refusal.
pub(crate) trait Refused<T> {
    /// Says what was attempted.
    fn refused(self, step: impl FnOnce() -> String) -> Result<T, Refusal>;
}

impl<T, E: Into<std::io::Error>> Refused<T> for Result<T, E> {
    fn refused(self, step: impl FnOnce() -> String) -> Result<T, Refusal> {
        self.map_err(|error| Refusal::new(step(), in_words(&error.into())))
    }
}

/// A refusal of `step`.
pub(crate) fn refuse<T>(step: String, error: &std::io::Error) -> Result<T, Refusal> {
    Err(Refusal::new(step, in_words(error)))
}

fn in_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let said = text.split(" (os error").next().unwrap_or(&text).to_owned();
    error.source().map_or(said.clone(), |source| format!("{said}: {source}"))
}
