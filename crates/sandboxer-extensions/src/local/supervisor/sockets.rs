//! Sockets of the host that somebody inside could connect to, although nothing there can be written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is private inside anyway.
const PRIVATE: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc"];

/// The paths of sockets that somebody listens or receives on, as this process sees them now.
pub(super) fn listening() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    let bound: Vec<Bound> = table.split(|byte| *byte == b'\n').skip(1).filter_map(bound).collect();
    let (absolute, relative): (Vec<_>, Vec<_>) =
        bound.into_iter().partition(|bound| bound.path.is_absolute());
    let mut paths: Vec<PathBuf> = absolute.into_iter().map(|bound| bound.path).collect();
    if !relative.is_empty() {
        paths.extend(where_they_are(&relative));
    }
    paths.retain(|path| !PRIVATE.iter().any(|private| path.starts_with(private)));
    paths.sort();
    paths.dedup();
    paths
}

/// A socket that has a name in the filesystem.
struct Bound {
    inode: Vec<u8>,
    /// As it was bound: it may be relative to whatever was the current directory then.
    path: PathBuf,
}

/// `address: references protocol flags type state inode path`.
fn bound(line: &[u8]) -> Option<Bound> {
    let mut fields = line.splitn(8, |byte| *byte == b' ').filter(|field| !field.is_empty());
    let inode = fields.nth(6)?.to_vec();
    let path = fields.next().filter(|path| !path.starts_with(b"@"))?;
    Some(Bound { inode, path: PathBuf::from(OsStr::from_bytes(path)) })
}

/// Sockets with relative names, by the current directories of those who hold them. Nobody else knows.
fn where_they_are(relative: &[Bound]) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.flat_map(|process| held_by(&process, relative)).collect()
}

fn held_by(process: &Path, relative: &[Bound]) -> Vec<PathBuf> {
    let held = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links: Vec<PathBuf> = held.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let is_held = |bound: &&Bound| {
        let link = [b"socket:[", &bound.inode[..], b"]"].concat();
        links.iter().any(|held| held.as_os_str().as_bytes() == link)
    };
    let held: Vec<&Bound> = relative.iter().filter(is_held).collect();
    let Some(directory) = (!held.is_empty()).then(|| std::fs::read_link(process.join("cwd")).ok()).flatten()
    else {
        return Vec::new();
    };
    held.into_iter().map(|bound| directory.join(&bound.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_filesystem_are_told_from_others() {
        let line =
            |path: &str| bound(format!("0000: 00000002 00000000 00010000 0001 01 77 {path}").as_bytes());
        let is = |path: &str| line(path).map(|bound| (bound.inode, bound.path));
        assert_eq!(is("/var/lib/a b/s"), Some((b"77".to_vec(), "/var/lib/a b/s".into())));
        assert_eq!(is("relative"), Some((b"77".to_vec(), "relative".into())));
        assert_eq!(is("@abstract"), None);
        assert_eq!(is(""), None);
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
