//! Ctrl-C. A signal only sets a flag; every step looks at it, so that the way out is an ordinary return and each guard
//! on that way (mounts, directories) gets to clean up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Result};

/// Whether the user wants to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for the signals that ask a program to stop.
    pub fn listen() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Failure::new(format!("cannot listen for signal {signal}: {error}")))?;
        }
        Ok(Self(flag))
    }

    /// An error if asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_flag_stops_the_next_step() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.check(), Ok(()));
        interrupt.0.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.check(), Err(Failure::Interrupted));
    }
}
