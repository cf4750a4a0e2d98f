//! Waiting for the kernel, not for ever.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The first pause. The kernel is mostly done before it is over.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(5);

/// Asks until the answer is yes (`true`) or `patience` is at an end (`false`).
pub(super) fn until(patience: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    let mut pause = SHORTEST;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
}
