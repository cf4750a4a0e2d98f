//! How long to wait after a failure: twice as long each time, never quite the same, and five minutes at the most.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(300);

/// The wait after `failures` in a row.
pub(crate) fn wait(failures: u32) -> Duration {
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST);
    // Many machines lose a hub at the same time, and are not to come back at the same time.
    doubled.mul_f64(1.0 - chance() / 2.0)
}

/// A number from 0 to 1. Every `RandomState` has keys of its own.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_and_stays_below_five_minutes() {
        for failures in 0..40_u32 {
            let whole = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST);
            let wait = wait(failures);
            assert!(wait >= whole / 2 && wait <= whole, "{failures}: {wait:?}");
        }
        assert!(wait(40) >= LONGEST / 2);
    }

    #[test]
    fn it_is_not_always_the_same() {
        let waits: std::collections::HashSet<Duration> = (0..20).map(|_| wait(9)).collect();
        assert!(waits.len() > 1);
    }
}
