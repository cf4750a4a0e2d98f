//! Tests that cannot run here say so, and say why; nothing is skipped in silence.

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that skipped tests are listed in, one line each.
pub(crate) const LOG: &str = "SANDBOXER_SKIP_LOG";

/// Reports that the present test (or a part of it) is skipped, and why: on stderr, and in the file named by
/// `SANDBOXER_SKIP_LOG` if there is one.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    skip_as(&name, reason);
}

/// The same under a name that many tests share, so that a list of what was skipped can be added up.
pub(crate) fn skip_as(name: &str, reason: &str) {
    let line = format!("skipped: {name}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os(LOG) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Whether sweeps run whole instead of as a sample: `SANDBOXER_TEST_FULL=1`.
pub fn full() -> bool {
    std::env::var_os("SANDBOXER_TEST_FULL").is_some_and(|value| value == "1")
}
