//! The present, by two clocks: the one on the wall, which people set, and the one that counts since this machine was started.

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::convert::now;

/// Where the kernel tells one start of the machine from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the clock on the wall.
    pub wall: Timestamp,
    /// Which start of the machine; `None` where that is not known, and the clock on the wall decides.
    pub boot: Option<String>,
    /// Microseconds since then, the time that it slept included.
    pub in_boot: i64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned());
        let since = clock_gettime(ClockId::Boottime);
        Self { wall: now(), boot, in_boot: since.tv_sec * 1_000_000 + since.tv_nsec / 1000 }
    }
}
