//! Reading what an agent wrote: beneath a directory handle, regular files only, no more than is asked for.
//!
//! Nothing here is an error that stops the user. A file that is not what it should be, that is too large or that cannot be read, is as good
//! as none; who asks says what that means.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::{Dir, Root, stamp_of_fd};

/// What became of a look at a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// It was read.
    Whole(T),
    /// There is nothing, or something that is not a regular file.
    Nothing,
    /// It is there, but too large or not to be read.
    Unreadable,
}

impl<T> Found<T> {
    pub(crate) fn whole(self) -> Option<T> {
        match self {
            Self::Whole(value) => Some(value),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

/// The path below a root that is made of this text; `None` where it would not stay there.
pub(crate) fn below(text: impl AsRef<[u8]>) -> Option<RelPath> {
    RelPath::from_bytes(text.as_ref()).ok()
}

/// The directory `path` of `tree`, if it is one that can be opened.
pub(crate) fn dir(tree: &Root, path: &str) -> Option<Dir> {
    tree.open_dir(&below(path)?).ok()
}

/// The content of the file at `path`, up to `limit` bytes.
pub(crate) fn read(tree: &Root, path: &RelPath, limit: u64) -> Found<Vec<u8>> {
    match tree.find_parent(path) {
        Ok(Some(parent)) => read_in(&parent, path.name(), limit),
        Ok(None) => Found::Nothing,
        Err(_) => Found::Unreadable,
    }
}

/// The content of the file `name` of `dir`, up to `limit` bytes.
pub(crate) fn read_in(dir: &Dir, name: &[u8], limit: u64) -> Found<Vec<u8>> {
    let fd = match open(dir, name, limit) {
        Found::Whole(fd) => fd,
        Found::Nothing => return Found::Nothing,
        Found::Unreadable => return Found::Unreadable,
    };
    let mut bytes = Vec::new();
    match File::from(fd).take(limit + 1).read_to_end(&mut bytes) {
        Ok(read) if read as u64 <= limit => Found::Whole(bytes),
        _ => Found::Unreadable,
    }
}

/// Opens the regular file `name` of `dir` if it has no more than `limit` bytes.
fn open(dir: &Dir, name: &[u8], limit: u64) -> Found<OwnedFd> {
    // A device is not opened at all: that alone can do something.
    match dir.stamp(name) {
        Ok(Some(stamp)) if stamp.is_file() => {}
        Ok(_) => return Found::Nothing,
        Err(_) => return Found::Unreadable,
    }
    let Ok(fd) = dir.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0) else { return Found::Unreadable };
    match stamp_of_fd(&fd) {
        Ok(stamp) if !stamp.is_file() => Found::Nothing,
        Ok(stamp) if stamp.size <= limit => Found::Whole(fd),
        _ => Found::Unreadable,
    }
}

/// Copies the file `name` of `dir` to the new file `to`, which is ours, and says how many bytes it had. Fails only where the writing does.
pub(crate) fn copy_out(dir: &Dir, name: &[u8], to: &Path, limit: u64) -> Result<Found<u64>> {
    let from = match open(dir, name, limit) {
        Found::Whole(fd) => fd,
        Found::Nothing => return Ok(Found::Nothing),
        Found::Unreadable => return Ok(Found::Unreadable),
    };
    let mut file = File::create(to).map_err(|e| Error::io("create", to, e))?;
    let copied = std::io::copy(&mut File::from(from).take(limit + 1), &mut file);
    let copied = copied.map_err(|e| Error::io("write", to, e))?;
    Ok(if copied > limit { Found::Unreadable } else { Found::Whole(copied) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_modest_size_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::write(at("file"), "content").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 30).unwrap();
        let tree = Root::open(temp.path()).unwrap();
        let look = |name: &str| read(&tree, &below(name).unwrap(), 100);
        assert_eq!(look("file"), Found::Whole(b"content".to_vec()));
        for odd in ["link", "dir", "pipe", "none", "link/x", "none/x"] {
            assert_eq!(look(odd), Found::Nothing, "{odd}");
        }
        assert_eq!(look("huge"), Found::Unreadable);
        let top = tree.as_dir().unwrap();
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("copy");
        assert_eq!(copy_out(&top, b"file", &to, 100).unwrap(), Found::Whole(7));
        assert_eq!(std::fs::read(&to).unwrap(), b"content");
        assert_eq!(copy_out(&top, b"huge", &to, 100).unwrap(), Found::Unreadable);
        assert_eq!(copy_out(&top, b"link", &to, 100).unwrap(), Found::Nothing);
    }
}
