//! Identity of a directory: whether the one at a path now is the one that was there before.
//!
//! Inode numbers are used again, and on overlayfs an inode has no lasting birth time. A file handle names the inode and its
//! generation, and on overlayfs it survives a copy-up.

use std::os::fd::{AsFd, AsRawFd};

use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::stamp::Stamp;

/// What identifies a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<FileHandle>,
}

/// The name that a filesystem gives to an inode, valid until the inode is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileHandle {
    kind: i32,
    bytes: Vec<u8>,
}

impl DirectoryIdentity {
    /// Reads the identity of `root`.
    pub fn read(root: &Root) -> Result<Self> {
        let dir = root.as_dir()?;
        Ok(Self { stamp: dir.stamp_self()?, handle: FileHandle::read(&dir) })
    }

    /// Whether `now` is the same directory. Without handles, inode number and birth time decide.
    pub fn is_same(&self, now: &Self) -> bool {
        match (&self.handle, &now.handle) {
            (Some(then), Some(now)) => then == now,
            _ => self.stamp.same_inode(&now.stamp),
        }
    }

    /// Refuses with a hint if another directory is at the path of `root` now.
    pub fn check(&self, root: &Root) -> Result<()> {
        if self.is_same(&Self::read(root)?) {
            return Ok(());
        }
        let path = root.path().display();
        Err(Error::Refused {
            reason: format!("{path} is not the directory that the sandbox was made from: it was replaced"),
            hint: Some(
                "move the other one away and put it back, or keep the changes: `sandbox diff --patch`"
                    .to_owned(),
            ),
        })
    }
}

/// `MAX_HANDLE_SZ` of the kernel.
const MAX_HANDLE_BYTES: usize = 128;

#[repr(C)]
struct HandleBuffer {
    length: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE_BYTES],
}

impl FileHandle {
    /// `None` if the filesystem has no handles.
    fn read(fd: impl AsFd) -> Option<Self> {
        // Before Linux 6.5 there is no `AT_HANDLE_FID`, and overlayfs has no handles.
        const AT_HANDLE_FID: i32 = 0x200;
        [AT_HANDLE_FID, 0].into_iter().find_map(|flag| Self::read_with(&fd, libc::AT_EMPTY_PATH | flag))
    }

    #[allow(unsafe_code)]
    fn read_with(fd: impl AsFd, flags: i32) -> Option<Self> {
        let mut buffer =
            HandleBuffer { length: MAX_HANDLE_BYTES as u32, kind: 0, bytes: [0; MAX_HANDLE_BYTES] };
        let mut mount = 0;
        // SAFETY: `buffer` begins like `file_handle`, and `length` says how many bytes follow that the kernel may write.
        let result = unsafe {
            libc::name_to_handle_at(
                fd.as_fd().as_raw_fd(),
                c"".as_ptr(),
                (&raw mut buffer).cast(),
                &raw mut mount,
                flags,
            )
        };
        let bytes = buffer.bytes.get(..buffer.length as usize)?;
        (result == 0).then(|| Self { kind: buffer.kind, bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    fn identity(path: &std::path::Path) -> DirectoryIdentity {
        DirectoryIdentity::read(&Root::open(path).unwrap()).unwrap()
    }

    #[test]
    fn an_edited_directory_is_the_same_and_a_replaced_one_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("d");
        fs::create_dir(&path).unwrap();
        let first = identity(&path);
        fs::write(path.join("f"), "x").unwrap();
        assert!(first.is_same(&identity(&path)));
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!first.is_same(&identity(&path)));
    }

    #[test]
    fn an_identity_that_was_stored_without_a_handle_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let stamp = root.as_dir().unwrap().stamp_self().unwrap();
        let stored = serde_json::to_string(&stamp).unwrap();
        let identity: DirectoryIdentity = serde_json::from_str(&stored).unwrap();
        assert!(identity.is_same(&DirectoryIdentity::read(&root).unwrap()));
        let now = DirectoryIdentity::read(&root).unwrap();
        let again: DirectoryIdentity = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(again.handle, now.handle);
    }
}
