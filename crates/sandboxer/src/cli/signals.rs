//! Ctrl-C and SIGTERM. They set a flag that long work looks at between entries; nothing is torn down in a handler.
//!
//! Before its commit point a commit sees the flag and undoes; after it the flag is not looked at any more, so a second
//! Ctrl-C waits like the first. Where we wait for a person instead (a prompt), the signal's usual meaning is put back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sandboxer_core::contract::CancelFlag;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The flags that the handlers set and look at.
#[derive(Clone, Default)]
pub struct Signals {
    asked_to_stop: Arc<AtomicBool>,
    default_action: Arc<AtomicBool>,
}

impl Signals {
    /// Takes over SIGINT and SIGTERM.
    pub fn install() -> io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&signals.default_action))?;
            flag::register(signal, Arc::clone(&signals.asked_to_stop))?;
        }
        Ok(signals)
    }

    /// The flag as the library wants it.
    pub fn cancel_flag(&self) -> CancelFlag {
        CancelFlag::from_shared(Arc::clone(&self.asked_to_stop))
    }

    /// Forgets a signal that was meant for somebody else: a command that `run` waited for.
    pub fn forget(&self) {
        self.asked_to_stop.store(false, Ordering::Relaxed);
    }

    /// Runs `ask` with the signals' usual meaning: Ctrl-C at a prompt ends the program.
    pub fn interruptible<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.default_action.store(true, Ordering::SeqCst);
        if self.asked_to_stop.load(Ordering::SeqCst) {
            // It came between the question and this line, and nobody would hear of it.
            let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
        }
        let answer = ask();
        self.default_action.store(false, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_signal_is_seen_and_can_be_forgotten() {
        let signals = Signals::install().unwrap();
        assert!(!signals.cancel_flag().is_cancelled());
        signal_hook::low_level::raise(SIGINT).unwrap();
        assert!(signals.cancel_flag().is_cancelled());
        signals.forget();
        assert!(!signals.cancel_flag().is_cancelled());
        assert!(signals.interruptible(|| signals.default_action.load(Ordering::Relaxed)));
        assert!(!signals.default_action.load(Ordering::Relaxed));
    }
}
