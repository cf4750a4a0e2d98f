//! One layer, and what its names mean.
//!
//! A name in a layer stands for itself, hides what is below it (a whiteout), or is a directory that hides what the
//! directories below it hold (an opaque one). The kernel writes the latter two as devices and extended attributes; which attributes
//! count depends on how the overlay is mounted, and the other kind is content like any other. Taken for marks, it would let
//! whoever works in a sandbox delete what he has only labelled.

use std::path::Path;

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::attrs;
use crate::list;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;

/// Which extended attributes hold an overlay's marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Marks {
    /// `trusted.overlay.`: mounted by root.
    Trusted,
    /// `user.overlay.`: mounted with `userxattr`, as ordinary users do.
    User,
}

/// Says that a directory is opaque (`y`), or that it has whiteouts which are attributes (`x`).
pub(super) const OPAQUE: &str = "opaque";
/// Names the lower entry that this one was copied up from.
pub(super) const ORIGIN: &str = "origin";
/// Identifies the mount that an upper belongs to.
pub(super) const UUID: &str = "uuid";
/// Makes an empty file a whiteout.
const WHITEOUT: &str = "whiteout";

/// The step at which it turns out that somebody may not make marks of some kind.
pub const MARKING: &str = "mark as opaque";

impl Marks {
    /// The full name of a mark.
    pub fn attribute(self, mark: &str) -> String {
        match self {
            Self::Trusted => format!("trusted.overlay.{mark}"),
            Self::User => format!("user.overlay.{mark}"),
        }
    }
}

/// A directory that is, was or will be a layer of an overlay.
#[derive(Debug)]
pub struct Layer {
    /// The directory.
    pub root: Root,
    /// Where its marks are.
    pub marks: Marks,
}

/// What a name in a layer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing is here, whatever the layers below hold.
    Whiteout,
    /// A directory.
    Directory {
        /// Whether it hides the directories below it.
        opaque: bool,
    },
    /// A file, a link, or anything else that hides what is below it.
    Entry,
}

/// What an entry was copied up from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its inode number; `None` where the kernel left none (as in user mode) or its form is not known.
    pub ino: Option<u64>,
}

impl Layer {
    /// Makes `name` in a directory of the layer hide what the layers below have there.
    pub fn hide(&self, dir: &Dir, name: &[u8]) -> Result<()> {
        super::copier::make_whiteout(dir, name)
    }

    /// Makes the directory `name` at the top hide what the layers below have under that name.
    pub fn make_opaque(&self, name: &str) -> Result<()> {
        let dir = self.root.open_dir(&sandboxer_core::model::RelPath::parse(name)?);
        let attribute = self.marks.attribute(OPAQUE);
        let set = dir.and_then(|dir| fs::fsetxattr(&dir, &attribute, b"y", fs::XattrFlags::empty()));
        set.map_err(|e| Error::io(MARKING, self.root.path().join(name), e))
    }

    /// Opens the layer at `path`, which the caller trusts.
    pub fn open(path: &Path, marks: Marks) -> Result<Self> {
        Ok(Self { root: Root::open(path)?, marks })
    }

    /// What the entry `name` of the open directory `dir` of this layer means.
    pub fn meaning(&self, dir: &Dir, name: &[u8], stamp: &Stamp) -> Result<Meaning> {
        if stamp.is_dir() {
            let opaque = self.mark(dir, name, OPAQUE)?.as_deref() == Some(b"y");
            return Ok(Meaning::Directory { opaque });
        }
        let is_whiteout = is_whiteout_device(dir, name, stamp)? || self.is_whiteout_file(dir, name, stamp)?;
        Ok(if is_whiteout { Meaning::Whiteout } else { Meaning::Entry })
    }

    /// A file is a whiteout only in a directory that says that it has such.
    fn is_whiteout_file(&self, dir: &Dir, name: &[u8], stamp: &Stamp) -> Result<bool> {
        Ok(stamp.is_file()
            && stamp.size == 0
            && self.mark(dir, name, WHITEOUT)?.is_some()
            && attrs::get_own(dir, &self.marks.attribute(OPAQUE))?.as_deref() == Some(b"x"))
    }

    /// What the entry `name` was copied up from. `None`: it was made in this layer, or it had several names when it was
    /// copied up, of which the kernel keeps no origin.
    pub fn origin(&self, dir: &Dir, name: &[u8]) -> Result<Option<Origin>> {
        let value = self.mark(dir, name, ORIGIN)?;
        Ok(value.map(|handle| Origin { ino: inode_of(&handle) }))
    }

    /// Whether nothing was changed in it.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(list::names_and_types(&self.root.dir(None)?)?.is_empty())
    }

    /// The directory at `path`; `None` where this layer has none.
    pub(super) fn find_dir(&self, path: Option<&sandboxer_core::model::RelPath>) -> Result<Option<Dir>> {
        let Some(path) = path else { return self.root.as_dir().map(Some) };
        match self.root.open_dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(Error::io("open directory", self.root.shown(path), e)),
        }
    }

    pub(super) fn mark(&self, dir: &Dir, name: &[u8], mark: &str) -> Result<Option<Vec<u8>>> {
        attrs::get(dir, name, &self.marks.attribute(mark))
    }
}

/// Whether it is a character device with the number 0:0, which is a whiteout in every layer.
pub(super) fn is_whiteout_device(dir: &Dir, name: &[u8], stamp: &Stamp) -> Result<bool> {
    const CHARACTER_DEVICE: u32 = 0o020_000;
    if stamp.mode & 0o170_000 != CHARACTER_DEVICE {
        return Ok(false);
    }
    match device_number(dir, name) {
        Ok(number) => Ok(number == (0, 0)),
        Err(Errno::NOENT) => Ok(true),
        Err(e) => Err(Error::io("examine", dir.shown(name), e)),
    }
}

/// The number of a device.
pub(super) fn device_number(dir: &Dir, name: &[u8]) -> rustix::io::Result<(u32, u32)> {
    let stat = fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    Ok((stat.stx_rdev_major, stat.stx_rdev_minor))
}

/// Length of what comes before the file handle: version, magic, length, flags, type, and the filesystem's UUID.
const HEADER: usize = 21;
const MAGIC: u8 = 0xfb;
const BIG_ENDIAN: u8 = 1;

/// The inode number in the kernel's `overlay.origin`. What a file handle holds is each filesystem's own business; these
/// are the forms of ext4 and its likes, tmpfs, XFS and Btrfs.
fn inode_of(origin: &[u8]) -> Option<u64> {
    let handle = origin.get(HEADER..)?;
    let (version, flags) = (origin[0], origin[3]);
    let is_ours = (flags & BIG_ENDIAN != 0) == cfg!(target_endian = "big");
    if version != 0 || origin[1] != MAGIC || usize::from(origin[2]) != origin.len() || !is_ours {
        return None;
    }
    match (origin[4], handle.len()) {
        (0x01, 8) => word(handle, 0),
        (0x01, 12) => Some(word(handle, 4)? | word(handle, 8)? << 32),
        (0x81, 12) | (0x4d..=0x4f, 20..) => Some(u64::from_ne_bytes(handle.get(..8)?.try_into().ok()?)),
        _ => None,
    }
}

fn word(handle: &[u8], at: usize) -> Option<u64> {
    let bytes = handle.get(at..at + 4)?.try_into().ok()?;
    Some(u64::from(u32::from_ne_bytes(bytes)))
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
