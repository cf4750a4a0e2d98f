//! Ports on loopback that no other test takes.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Below the ports that the kernel gives to connections, so that no connection takes one.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// Reserves a free port of 127.0.0.1 for as long as this process lives.
///
/// A lock file per port keeps other tests from it until the server that is meant for it listens. Its directory does not
/// depend on `TMPDIR`: all tests of the machine share the ports.
pub fn reserve_port() -> u16 {
    let directory = Path::new("/tmp/sandboxer-test-ports");
    if fs::create_dir(directory).is_ok() {
        fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
    }
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap();
    let candidates = (0..COUNT).map(|n| FIRST + (start + n) % COUNT);
    candidates.into_iter().find(|port| reserve(directory, *port)).expect("a free port on loopback")
}

fn reserve(directory: &Path, port: u16) -> bool {
    // Another user's lock file cannot be opened: that port is taken.
    let lock = File::options().create(true).append(true).open(directory.join(port.to_string()));
    let Ok(lock) = lock else { return false };
    let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        && TcpListener::bind(("127.0.0.1", port)).is_ok();
    if is_free {
        // Held until the process ends.
        std::mem::forget(lock);
    }
    is_free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_given_once() {
        let first = reserve_port();
        assert_ne!(first, reserve_port());
        TcpListener::bind(("127.0.0.1", first)).unwrap();
    }
}
