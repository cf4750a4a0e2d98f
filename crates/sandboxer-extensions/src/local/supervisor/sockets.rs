//! Sockets of the host that somebody inside could connect to, although nothing there can be written.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is private inside anyway.
const PRIVATE: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc"];

/// The paths of sockets that somebody listens or receives on, as this process sees them now.
pub(super) fn listening() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    let mut paths: Vec<PathBuf> = table.split(|byte| *byte == b'\n').skip(1).filter_map(path_of).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// `address: references protocol flags type state inode path`.
fn path_of(line: &[u8]) -> Option<PathBuf> {
    let slash = line.iter().position(|byte| *byte == b'/')?;
    let path = Path::new(std::ffi::OsStr::from_bytes(&line[slash..]));
    let is_private = PRIVATE.iter().any(|private| path.starts_with(private));
    (!is_private).then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_outside_of_what_is_private_count() {
        let line =
            |path: &str| path_of(format!("0000: 00000002 00000000 00010000 0001 01 77 {path}").as_bytes());
        assert_eq!(line("/var/lib/db/db.sock"), Some("/var/lib/db/db.sock".into()));
        assert_eq!(line("/run/docker.sock"), None);
        assert_eq!(line("@abstract"), None);
        assert_eq!(line(""), None);
    }

    #[test]
    fn a_socket_that_listens_is_found() -> std::io::Result<()> {
        let directory = tempfile::tempdir_in("/var/lib").or_else(|_| tempfile::tempdir())?;
        let path = directory.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path)?;
        assert_eq!(listening().contains(&path), !PRIVATE.iter().any(|private| path.starts_with(private)));
        Ok(())
    }
}
