//! The base of an overlay is an instant: what the original was then, it still is, unless its ctime says otherwise.
//!
//! Programs can set every time of a file but its ctime, and the kernel gives it the clock's time. So the instant is the ctime of a file that was
//! touched just then on the same filesystem, and an entry with that ctime or a later one has changed since. Two things can spoil
//! it. Stamps may be coarser than the moments between them: then we wait for the next one. And a clock may be
//! stepped back: the distance between real time and boot time tells, and the instant moves back as far.

use std::path::Path;
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::time::{ClockId, clock_gettime};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::root::{Root, stamp_of_fd};
use crate::stamp::Stamp;

/// When a base was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instant {
    /// Nanoseconds since 1970, by the original's filesystem.
    pub at: i64,
    /// The clock, when it was taken.
    pub clock: Clock,
    /// How many nanoseconds behind that clock one was seen since.
    #[serde(default)]
    pub stepped_back: i64,
}

/// What tells a stepped clock from one that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Which boot of the machine.
    pub boot: String,
    /// Real time, nanoseconds since 1970.
    pub real: i64,
    /// Real time without the time since boot: the same for as long as nobody steps the clock.
    pub offset: i64,
}

/// Two clocks are read one after the other; what lies between is not a step.
const JITTER: i64 = 5_000_000;

/// The coarsest stamps that are waited for: two seconds, of old filesystems.
const COARSEST: Duration = Duration::from_millis(2_100);

impl Instant {
    /// Now, by the filesystem of `original`; or, where that cannot be written to, by that of `scratch`.
    pub fn take(original: &Root, scratch: &Path) -> Result<Self> {
        let probe = match unnamed_in(original.path()) {
            Ok(probe) => probe,
            Err(_) => unnamed_in(scratch).map_err(|e| Error::io("take the time in", scratch, e))?,
        };
        let at = next_stamp(&probe).map_err(|e| Error::io("take the time in", original.path(), e))?;
        Ok(Self { at, clock: Clock::now(), stepped_back: 0 })
    }

    /// Whether an entry with this stamp has changed since.
    pub fn is_before(&self, stamp: &Stamp) -> bool {
        self.is_before_time(stamp.ctime)
    }

    /// Whether `time` is `other` or later, even if the clock was stepped back in between. Both are times of the filesystem.
    pub fn is_since(&self, other: i64, time: i64) -> bool {
        time >= other.saturating_sub(self.stepped_back)
    }

    /// Whether a time of the filesystem is this one or a later one.
    pub fn is_before_time(&self, time: i64) -> bool {
        self.is_since(self.at, time)
    }

    /// Takes notice of what the clock says now. Whether it is further behind than it was ever seen.
    pub fn notice(&mut self, now: &Clock) -> bool {
        let back = match now.boot == self.clock.boot {
            true => self.clock.offset - now.offset,
            false => self.at - now.real,
        };
        let further = back > JITTER && back > self.stepped_back;
        if further {
            self.stepped_back = back;
        }
        further
    }
}

impl Clock {
    /// What the clock says.
    pub fn now() -> Self {
        let nanos = |t: Timespec| t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec);
        let real = nanos(clock_gettime(ClockId::Realtime));
        let offset = real - nanos(clock_gettime(ClockId::Boottime));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned(), real, offset }
    }
}

fn unnamed_in(dir: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    fs::open(dir, flags, Mode::RUSR | Mode::WUSR)
}

/// A stamp that nothing done before has, and everything done from now on has or exceeds.
fn next_stamp(probe: &std::os::fd::OwnedFd) -> rustix::io::Result<i64> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let touch = || -> rustix::io::Result<i64> {
        fs::futimens(probe, &Timestamps { last_access: now, last_modification: now })?;
        // Being looked at is what makes the kernel tell the next touch from this one.
        Ok(stamp_of_fd(probe)?.ctime)
    };
    let first = touch()?;
    let started = std::time::Instant::now();
    loop {
        let next = touch()?;
        if next > first || started.elapsed() > COARSEST {
            return Ok(next);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn taken(dir: &Path) -> Instant {
        Instant::take(&Root::open(dir).unwrap(), dir).unwrap()
    }

    fn stamp(path: &Path) -> Stamp {
        stamp_of_fd(std::fs::File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn what_was_done_before_and_after_are_told_apart_every_time() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let temp = tempfile::tempdir_in(dir).unwrap();
            for round in 0..200 {
                let (before, after) =
                    (temp.path().join(format!("b{round}")), temp.path().join(format!("a{round}")));
                std::fs::write(&before, "x").unwrap();
                std::fs::write(&after, "x").unwrap();
                let instant = taken(temp.path());
                std::fs::write(&after, "y").unwrap();
                assert!(!instant.is_before(&stamp(&before)), "{round}");
                assert!(instant.is_before(&stamp(&after)), "{round}");
            }
            assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 400, "the probe has no name");
        }
    }

    #[test]
    fn a_clock_stepped_back_moves_the_instant_back() {
        let clock = Clock { boot: "b".into(), real: 10_000_000_000, offset: 7_000_000_000 };
        let mut instant = Instant { at: 9_000_000_000, clock: clock.clone(), stepped_back: 0 };
        let edit = Stamp { ctime: 6_500_000_000, ..Stamp::default() };
        assert!(!instant.notice(&Clock { real: 12_000_000_000, ..clock.clone() }), "time goes by");
        assert!(!instant.is_before(&edit));
        assert!(instant.notice(&Clock { offset: 4_000_000_000, ..clock.clone() }), "three seconds back");
        assert!(instant.is_before(&edit));
        assert!(!instant.notice(&clock), "and forward again");
        assert!(instant.is_before(&edit), "what was done in between is remembered");
    }

    #[test]
    fn after_a_reboot_only_a_clock_that_is_behind_tells() {
        let clock = Clock { boot: "b".into(), real: 10_000_000_000, offset: 7_000_000_000 };
        let mut instant = Instant { at: 9_000_000_000, clock, stepped_back: 0 };
        assert!(!instant.notice(&Clock { boot: "c".into(), real: 20_000_000_000, offset: 1 }));
        assert!(instant.notice(&Clock { boot: "c".into(), real: 4_000_000_000, offset: 1 }));
        assert_eq!(instant.stepped_back, 5_000_000_000);
    }
}
