//! What ends a benchmark early. Three things must be told apart: a row that cannot run here (it is listed as skipped),
//! a step that went wrong, and a person who pressed Ctrl-C. Each carries words that name the step and the path.

use std::fmt;
use std::path::Path;

/// A result of the benchmark.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why there is no number.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot be measured on this machine, and that is nobody's fault.
    Skipped(String),
    /// A step went wrong.
    Failed(String),
    /// The user wants to stop.
    Interrupted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl Failure {
    /// A failed step.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The same once more, for the next row that rests on what could not be made.
    pub fn again(&self) -> Self {
        match self {
            Self::Skipped(reason) => Self::Skipped(reason.clone()),
            Self::Failed(reason) => Self::Failed(reason.clone()),
            Self::Interrupted => Self::Interrupted,
        }
    }
}

/// Names the step and the path of an error.
pub trait During<T> {
    /// The same result, with an error that says `cannot STEP PATH: reason`.
    fn during(self, step: &str, path: &Path) -> Result<T>;
}

impl<T, E: fmt::Display> During<T> for std::result::Result<T, E> {
    fn during(self, step: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Failure::new(format!("cannot {step} {}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_error_names_step_and_path() {
        let result = std::fs::read("/no/such/file").during("read", Path::new("/no/such/file"));
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with("failed: cannot read /no/such/file: "), "{message}");
    }
}
