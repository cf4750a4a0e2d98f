//! Counting calls, failing them on demand, and catching two at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use sandboxer_core::{Error, Result};

/// How often each method was called, and which call is to fail next.
///
/// Commits are counted by phase: `commit` (whole), `prepare`, `finish`, `abort`; a `finish` with nothing prepared is
/// counted once more as `finish without prepare`.
#[derive(Debug, Default)]
pub struct Calls {
    counts: Mutex<BTreeMap<&'static str, usize>>,
    failing: Mutex<BTreeSet<&'static str>>,
}

impl Calls {
    /// How often `method` was called.
    pub fn of(&self, method: &str) -> usize {
        self.counts.lock().unwrap().get(method).copied().unwrap_or(0)
    }

    /// Makes the next call of `method` fail before it does anything.
    pub fn fail_next(&self, method: &'static str) {
        self.failing.lock().unwrap().insert(method);
    }

    pub(super) fn count(&self, method: &'static str) -> Result<()> {
        *self.counts.lock().unwrap().entry(method).or_default() += 1;
        if self.failing.lock().unwrap().remove(method) {
            let source = std::io::Error::other("failed on demand");
            return Err(Error::io("pretend to", method, source));
        }
        Ok(())
    }
}

static AT_WORK: LazyLock<Mutex<BTreeSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// Held for the length of a call that changes a sandbox.
pub(super) struct Busy(PathBuf);

impl Busy {
    pub(super) fn enter(file: &Path, method: &str) -> Self {
        let alone = AT_WORK.lock().unwrap().insert(file.to_path_buf());
        assert!(alone, "contract: {method} while another call changes {}", file.display());
        Self(file.to_path_buf())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Ok(mut at_work) = AT_WORK.lock() {
            at_work.remove(&self.0);
        }
    }
}
