//! The work directory of an overlay, which the kernel leaves behind and refuses to find again.
//!
//! What the kernel makes in it has mode 000. Nothing here goes through a link or into another mount: directories are
//! opened as themselves, given permission, and only then looked into.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};

/// Far more than the kernel ever makes.
const MAX_DEPTH: usize = 64;

/// Removes the work directory of a mount that is gone and makes a new, empty one. Says whether the old one had the
/// kernel's mark of a `volatile` mount: that, found in another boot, means that what was written last may not be whole.
pub fn fresh_work(work: &Path) -> Result<bool> {
    let marked = is_marked(work).map_err(|e| Error::io("look into", work, e))?;
    remove(work)?;
    fs::mkdir(work, Mode::RWXU).map_err(|e| Error::io("create directory", work, e))?;
    Ok(marked)
}

/// Removes whatever is at `path`. It not being there is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::usage(format!("cannot remove {}", path.display())));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::open(parent, flags, Mode::empty()).and_then(|parent| remove_entry(&parent, name.as_bytes(), 0))
    {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::io("remove", path, e)),
    }
}

/// The mark is a directory in a directory in the kernel's directory in the work directory.
pub(crate) fn is_marked(work: &Path) -> rustix::io::Result<bool> {
    let mut dir = match fs::open(work, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(false),
        Err(e) => return Err(e),
    };
    for name in ["work", "incompat", "volatile"] {
        dir = match granted(&dir, name.as_bytes()) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            Err(e) => return Err(e),
        };
    }
    Ok(true)
}

fn remove_entry(parent: impl AsFd, name: &[u8], depth: usize) -> rustix::io::Result<()> {
    match fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) if depth < MAX_DEPTH => {}
        Err(e) => return Err(e),
    }
    let dir = granted(&parent, name)?;
    for child in names(&dir)? {
        remove_entry(&dir, child.to_bytes(), depth + 1)?;
    }
    fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory as itself and gives its owner access, if that is us.
fn granted(parent: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let dir = fs::openat2(parent, OsStr::from_bytes(name), flags, Mode::empty(), resolve)?;
    // If it is not, whatever is done next tells better what is wrong.
    let _ = fs::chmodat(CWD, format!("/proc/self/fd/{}", dir.as_raw_fd()), Mode::RWXU, AtFlags::empty());
    Ok(dir)
}

fn names(dir: &OwnedFd) -> rustix::io::Result<Vec<std::ffi::CString>> {
    let is_child = |name: &CStr| name != c"." && name != c"..";
    let listed = fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(listed)? {
        let entry = entry?;
        if is_child(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn an_old_one_is_replaced_and_its_mark_reported() {
        let temp = tempfile::tempdir().unwrap();
        let work = temp.path().join("work");
        assert!(!fresh_work(&work).unwrap());
        assert_eq!(mode(&work), 0o700);
        std::fs::create_dir_all(work.join("work/incompat/volatile")).unwrap();
        std::fs::write(work.join("work/incompat/volatile/dirty"), "").unwrap();
        for part in ["work/incompat/volatile", "work/incompat", "work"] {
            std::fs::set_permissions(work.join(part), Permissions::from_mode(0o000)).unwrap();
        }
        assert!(fresh_work(&work).unwrap());
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
        assert!(!fresh_work(&work).unwrap());
    }

    #[test]
    fn nothing_behind_a_link_is_touched() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        std::fs::create_dir_all(outside.join("work/incompat/volatile")).unwrap();
        std::fs::set_permissions(&outside, Permissions::from_mode(0o755)).unwrap();
        let work = temp.path().join("work");
        symlink(&outside, &work).unwrap();
        assert!(!fresh_work(&work).unwrap());
        symlink(&outside, work.join("work")).unwrap();
        assert!(!fresh_work(&work).unwrap());
        assert!(outside.join("work/incompat/volatile").is_dir());
        assert_eq!(mode(&outside), 0o755);
        assert!(remove(Path::new("/")).is_err());
        remove(&temp.path().join("no/such")).unwrap();
    }

    #[test]
    fn what_is_far_too_deep_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let deep = temp.path().join("d/".repeat(MAX_DEPTH + 5));
        std::fs::create_dir_all(deep).unwrap();
        assert!(remove(&temp.path().join("d")).is_err());
    }
}
