//! Mounts by descriptor: made where nobody sees them, then put in place.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, FileType};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use super::places;
use super::refusal::{Refusal, Refused, refuse};
use super::system::{Attributes, RDONLY, change_mount};

/// How many files a directory in memory may hold.
const INODES: &str = "400k";

/// A mount that is nowhere yet.
pub(crate) struct Detached(OwnedFd);

impl Detached {
    /// What is at `path`, once more, with what is mounted below it.
    pub fn copy_of(path: &Path) -> Result<Self, Refusal> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, path, flags).refused(|| format!("bind {}", path.display()))?;
        Ok(Self(tree))
    }

    /// The link at `path` itself, once more.
    pub fn copy_of_link(path: &Path) -> Result<Self, Refusal> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        let tree = open_tree(CWD, path, flags).refused(|| format!("bind {}", path.display()))?;
        Ok(Self(tree))
    }

    /// A new filesystem of `kind`.
    pub fn new(kind: &str, options: &[(&str, &OsStr)], attributes: MountAttrFlags) -> Result<Self, Refusal> {
        let failed = || format!("mount {kind}");
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).refused(failed)?;
        for (name, value) in options {
            let set = match value.is_empty() {
                true => fsconfig_set_flag(&context, *name),
                false => fsconfig_set_string(&context, *name, *value),
            };
            set.refused(|| format!("mount {kind} with {name}={}", value.display()))?;
        }
        fsconfig_create(&context).refused(failed)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).refused(failed)?;
        Ok(Self(mount))
    }

    /// An empty directory in memory, which may take `size` of that: so many bytes, or a share.
    pub fn tmpfs(mode: &str, size: &str, attributes: MountAttrFlags) -> Result<Self, Refusal> {
        let options = [("mode", mode), ("size", size), ("nr_inodes", INODES), ("source", "sandbox")]
            .map(|(k, v)| (k, OsStr::new(v)));
        Self::new(
            "tmpfs",
            &options,
            attributes | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        )
    }

    /// Sets attributes, on everything below as well.
    pub fn with(self, set: u64) -> Result<Self, Refusal> {
        let wanted = Attributes { set, propagation: 0 };
        change_mount(&self.0, Path::new(""), true, wanted).refused(|| "restrict a mount".to_owned())?;
        Ok(self)
    }

    /// Puts it at `path`, where something has to be.
    pub fn attach(self, path: &Path) -> Result<OwnedFd, Refusal> {
        let at = places::open(path).refused(|| format!("mount at {}", path.display()))?;
        self.attach_to(&at, path)
    }

    /// Puts it at `path`, where something is made if there is nothing.
    pub fn attach_new(self, path: &Path) -> Result<OwnedFd, Refusal> {
        let at = places::make(path, is_directory(&self.0))?;
        self.attach_to(&at, path)
    }

    fn attach_to(self, at: &OwnedFd, path: &Path) -> Result<OwnedFd, Refusal> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.0, "", at, "", flags).refused(|| format!("mount at {}", path.display()))?;
        Ok(self.0)
    }
}

impl AsFd for Detached {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Nothing can be written to the mount at `path` any more; what is mounted below it stays as it is.
pub(crate) fn seal(path: &Path) -> Result<(), Refusal> {
    let wanted = Attributes { set: RDONLY, propagation: 0 };
    change_mount(CWD, path, false, wanted).refused(|| format!("make {} read-only", path.display()))
}

/// Covers what is at `path`: a directory with an empty one, anything else with what `nothing` is a copy of. Says whether it was a
/// directory. A link is left: what it leads to is hidden by its own name.
pub(crate) fn cover(path: &Path, nothing: &Path) -> Result<bool, Refusal> {
    let at = match places::open(path) {
        Ok(at) => at,
        // Nothing to hide, and nobody outside of a workspace can put anything there.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(false),
        Err(e) => return refuse(format!("look at {}", path.display()), &e.into()),
    };
    let is_directory = is_directory(&at);
    let over = match is_directory {
        true => Detached::tmpfs("0755", "1m", MountAttrFlags::empty())?,
        false => Detached::copy_of(nothing)?.with(RDONLY)?,
    };
    over.attach_to(&at, path)?;
    Ok(is_directory)
}

/// Makes a directory a mount point, by itself over itself: it can neither be renamed nor removed then.
pub(crate) fn pin(path: &Path) -> Result<(), Refusal> {
    match places::open(path) {
        Ok(at) if is_directory(&at) => Detached::copy_of(path)?.attach_to(&at, path).map(drop),
        _ => Ok(()),
    }
}

fn is_directory(at: impl AsFd) -> bool {
    fs::fstat(at).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// The mount points of this namespace, in the order in which they were mounted.
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let field = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(unescape);
    Ok(table.split(|byte| *byte == b'\n').filter_map(field).collect())
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => bytes.push(*first),
        }
    }
    PathBuf::from(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&bytes))
}

/// Takes a mount away; whoever works in it keeps it. It not being possible leaves it, covered like everything else.
pub(crate) fn detach(path: &Path) {
    let _ = unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_of_mount_points_are_read() {
        assert_eq!(unescape(b"/a\\040b\\134c\\012"), Path::new("/a b\\c\n"));
        assert_eq!(unescape(b"/a\\04"), Path::new("/a\\04"));
        assert!(mount_points().is_ok_and(|all| all.iter().any(|path| path == Path::new("/"))));
    }
}
