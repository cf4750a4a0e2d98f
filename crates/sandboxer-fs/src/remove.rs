//! Removal of whole trees, however deep, with few descriptors and never through a link.

use std::cell::Cell;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::list::names_and_types;
use crate::root::{Dir, Root};

/// Below this depth a subtree is first moved up to the top, so that the recursion, the open descriptors and the length
/// of paths stay bounded.
const MAX_DEPTH: usize = 64;

/// Removes the tree at `path` whole. It not being there is fine. Directories without permission are given it.
pub fn remove_tree(path: &Path) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::usage(format!("cannot remove {}", path.display())));
    };
    match Root::open(parent) {
        Ok(root) => remove_entry(&root.as_dir()?, name.as_bytes()),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(other) => Err(other),
    }
}

/// Removes the entry `name` of `dir`, a whole tree if it is a directory.
pub fn remove_entry(dir: &Dir, name: &[u8]) -> Result<()> {
    match dir.stamp(name)? {
        None => Ok(()),
        Some(stamp) if !stamp.is_dir() => dir.remove(name, false),
        Some(_) => {
            let top = Top { dir: open_writable(dir, name)?, moved: Cell::new(0) };
            empty(&top.dir, &top, 0)?;
            dir.remove(name, true)
        }
    }
}

/// Removes what is at `path` below `root`.
pub fn remove_below(root: &Root, path: &RelPath) -> Result<()> {
    match root.find_parent(path)? {
        Some(parent) => remove_entry(&parent, path.name()),
        None => Ok(()),
    }
}

fn empty(dir: &Dir, top: &Top, depth: usize) -> Result<()> {
    loop {
        let entries = names_and_types(dir)?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            remove_one(dir, &entry.name, top, depth)?;
        }
    }
}

fn remove_one(dir: &Dir, name: &[u8], top: &Top, depth: usize) -> Result<()> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
        Err(e) => return Err(Error::io("remove", dir.shown(name), e)),
    }
    if depth >= MAX_DEPTH && move_to_top(dir, name, top) {
        return Ok(());
    }
    let child = open_writable(dir, name)?;
    empty(&child, top, depth + 1)?;
    dir.remove(name, true)
}

/// The top of what is being removed, and how many subtrees were moved up to it.
struct Top {
    dir: Dir,
    moved: Cell<u64>,
}

/// Moves a subtree right below the top, where it gets its turn: `empty` lists again until nothing is left. A name that
/// somebody has taken is passed over, within reason.
fn move_to_top(dir: &Dir, name: &[u8], top: &Top) -> bool {
    (0..100).any(|_| {
        let free = format!(".deep-{}", top.moved.replace(top.moved.get() + 1));
        fs::renameat_with(dir, name, &top.dir, free.as_bytes(), fs::RenameFlags::NOREPLACE).is_ok()
    })
}

fn open_writable(dir: &Dir, name: &[u8]) -> Result<Dir> {
    if let Ok(child) = dir.dir(name) {
        let writable = child.stamp_self()?.permissions() & 0o700 == 0o700;
        if !writable {
            // Not our own directory: the removals below tell better what is wrong than this would.
            let _ = fs::fchmod(&child, Mode::RWXU);
        }
        return Ok(child);
    }
    grant(dir, name);
    dir.dir(name)
}

/// Gives the owner access to a directory that cannot even be opened. The entry was opened as itself, not through a
/// link, and the change goes to what was opened.
fn grant(dir: &Dir, name: &[u8]) {
    use std::os::fd::AsRawFd;
    if let Ok(entry) = dir.try_open(name, OFlags::PATH | OFlags::DIRECTORY, 0) {
        let _ = fs::chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), Mode::RWXU);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_outside_is_touched_and_nothing_inside_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("canary"), "alive").unwrap();
        let tree = temp.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        std::fs::write(tree.join("a/b/file"), "x").unwrap();
        std::fs::set_permissions(tree.join("a/b"), std::fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(std::fs::read_to_string(outside.join("canary")).unwrap(), "alive");
        remove_tree(&tree).unwrap();
        remove_tree(&temp.path().join("no/such/parent")).unwrap();
        assert!(remove_tree(Path::new("/")).is_err());
    }

    /// As the kernel leaves the work directory of an overlay that an ordinary user mounted.
    fn leave_a_work_directory(home: &Path) {
        let work = home.join("work");
        std::fs::create_dir_all(work.join("work/incompat/volatile")).unwrap();
        let inner = Root::open(work.join("work")).unwrap();
        fs::mknodat(&inner, "#1f", fs::FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        for dir in ["work/incompat/volatile", "work/incompat", "work"] {
            std::fs::set_permissions(work.join(dir), std::fs::Permissions::from_mode(0o000)).unwrap();
        }
    }

    #[test]
    fn an_ordinary_user_removes_what_the_kernel_left_without_permissions() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_path_buf();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&home, Some(65534), Some(65534)).unwrap();
        }
        let removed = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                // Of this thread alone; with it go all capabilities.
                rustix::thread::set_thread_gid(fs::Gid::from_raw(65534)).unwrap();
                rustix::thread::set_thread_uid(fs::Uid::from_raw(65534)).unwrap();
            }
            leave_a_work_directory(&home);
            assert!(std::fs::read_dir(home.join("work/work")).is_err(), "it can be read as it is");
            remove_tree(&home.join("work")).unwrap();
            !home.join("work").exists()
        });
        assert!(removed.join().unwrap());
    }
}
