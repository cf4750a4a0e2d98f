//! Ctrl-C and its kin. A signal sets a flag and ends the command that is being measured; every step looks at the flag,
//! so that the way out is an ordinary return and each guard on that way (mounts, directories) gets to clean up.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// The command that is being measured.
static UNDER_WAY: Slot = Slot(Mutex::new(None));

/// A child by its descriptor, which, unlike its number, cannot come to mean another process.
struct Slot(Mutex<Option<OwnedFd>>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, child: &Child) {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        *self.lock() = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    }

    fn end(&self) {
        if let Some(child) = self.lock().as_ref() {
            // It may be gone already, which is just as well.
            let _ = pidfd_send_signal(child, Signal::TERM);
        }
    }
}

/// While this lives, a signal that asks us to stop ends the child, too.
#[must_use]
pub struct Watch;

impl Watch {
    /// Watches `child`, which nobody has waited for yet.
    pub fn over(child: &Child) -> Self {
        UNDER_WAY.put(child);
        Self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *UNDER_WAY.lock() = None;
    }
}

/// Whether the user wants to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for the signals that ask a program to stop.
    pub fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let told = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                told.0.store(true, Ordering::Relaxed);
                UNDER_WAY.end();
            }
        });
        Ok(interrupt)
    }

    /// An error if asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_child_in_a_slot_can_be_ended() {
        let slot = Slot(Mutex::new(None));
        slot.end();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        slot.put(&child);
        slot.end();
        assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
        slot.end();
    }

    #[test]
    fn a_set_flag_stops_the_next_step() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.check(), Ok(()));
        interrupt.0.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.check(), Err(Failure::Interrupted));
    }
}
