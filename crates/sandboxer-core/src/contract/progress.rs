//! How a mute library tells of long work, and how it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Hears of long work. Called from several threads; must be quick.
pub trait Progress: Send + Sync {
    /// A step begins; `total` is its number of entries, if known.
    fn begin(&self, _step: &str, _total: Option<u64>) {}
    /// More of the present step is done: entries and bytes since the last call.
    fn advance(&self, _entries: u64, _bytes: u64) {}
    /// The present step is over.
    fn end(&self) {}
    /// This was left out of what was done, or is not as it was: each in a line of its own, for people.
    fn left_out(&self, _what: &[String]) {}
}

/// Tells nobody.
#[derive(Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Set by whoever runs the library when the user wants to stop; looked at between entries of long work.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// A flag over a bool that a signal handler sets.
    pub fn from_shared(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_seen_through_every_copy() {
        let shared = Arc::new(AtomicBool::new(false));
        let flag = CancelFlag::from_shared(shared.clone());
        let copy = flag.clone();
        assert!(!copy.is_cancelled() && copy.check().is_ok());
        shared.store(true, Ordering::Relaxed);
        assert!(copy.is_cancelled());
        assert!(matches!(flag.check(), Err(Error::Cancelled)));
    }

    #[test]
    fn cancelling_one_flag_leaves_others_alone() {
        let (flag, other) = (CancelFlag::default(), CancelFlag::default());
        flag.cancel();
        assert!(flag.is_cancelled() && !other.is_cancelled());
    }

    #[test]
    fn a_listener_need_not_hear_everything() {
        let listener: &dyn Progress = &NoProgress;
        listener.begin("copy", Some(3));
        listener.advance(1, 4096);
        listener.end();
        listener.left_out(&["a device".to_owned()]);
    }
}
