//! Places for mounts, reached through no link.
//!
//! What a workspace holds is hostile, and so may be a link on the way to a place in it. Nothing here follows one: every place is opened as
//! what it is, made one name at a time, and mounted on by its descriptor.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::refusal::{Refusal, Refused};

const DIRECT: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// What is at `path`. A link on the way, or there, is an error.
pub(crate) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), DIRECT)
}

/// Whether there is anything at `path`, and no link on the way.
pub(crate) fn is_there(path: &Path) -> bool {
    open(path).is_ok()
}

/// What is at `path`; a directory or a file is made there where nothing is.
pub(crate) fn make(path: &Path, directory: bool) -> Result<OwnedFd, Refusal> {
    let failed = || format!("make a place to mount at {}", path.display());
    match open(path) {
        Err(Errno::NOENT) => {}
        found => return found.refused(failed),
    }
    let mut at = open(Path::new("/")).refused(failed)?;
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    for (position, name) in names.iter().enumerate() {
        let is_directory = directory || position + 1 < names.len();
        at = step(&at, name.as_ref(), is_directory).refused(failed)?;
    }
    Ok(at)
}

/// One name further down.
fn step(dir: &OwnedFd, name: &Path, directory: bool) -> rustix::io::Result<OwnedFd> {
    let reach = || fs::openat2(dir, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), DIRECT);
    match reach() {
        Err(Errno::NOENT) if directory => fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))?,
        Err(Errno::NOENT) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(fs::openat(dir.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)?);
        }
        found => return found,
    }
    reach()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn places_are_made_and_found() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        make(&root.join("a/b/c"), true).unwrap();
        make(&root.join("a/b/f"), false).unwrap();
        make(&root.join("a/b/f"), false).unwrap();
        assert!(root.join("a/b/c").is_dir() && root.join("a/b/f").is_file());
        assert!(is_there(&root.join("a/b")) && !is_there(&root.join("a/x")));
    }

    #[test]
    fn nothing_is_made_or_found_behind_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("outside")).unwrap();
        std::os::unix::fs::symlink("outside", root.join("link")).unwrap();
        assert!(make(&root.join("link/new"), true).is_err());
        assert!(make(&root.join("link"), true).is_err());
        assert!(!is_there(&root.join("link")));
        assert_eq!(std::fs::read_dir(root.join("outside")).unwrap().count(), 0);
    }
}
