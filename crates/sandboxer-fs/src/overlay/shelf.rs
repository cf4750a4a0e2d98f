//! A layer that entries are put into before they change, whole or not at all.

use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::view::View;
use crate::clone::{dress_dir, make_link};
use crate::copy::{Meta, Transfer, copy_file};
use crate::hash::ContentHash;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// A layer that entries are copied to before they change.
pub(super) struct Shelf<'a> {
    /// What shows them now.
    pub from: View<'a>,
    /// The layer.
    pub to: Root,
    /// On the layer's filesystem.
    pub making: Making,
}

/// What became of an entry that was to be copied.
pub(super) enum Put {
    /// Nothing is to be copied, or it is there already.
    Nothing,
    /// It is somebody else's, and we may not read it.
    Unreadable,
    /// It is there now. With the hash of its content.
    Done(Option<ContentHash>),
}

/// A directory where entries are made before they are put in place, so that what is in place is whole. It goes with what is in it.
pub(super) struct Making {
    path: PathBuf,
    dir: Dir,
}

impl Making {
    /// The one entry that is being made.
    const ENTRY: &[u8] = b"entry";

    /// An empty one at `path`, whatever a crash has left there.
    pub fn at(path: &Path) -> Result<Self> {
        crate::remove_tree(path)?;
        std::fs::create_dir(path).map_err(|e| Error::io("create directory", path, e))?;
        Ok(Self { path: path.to_path_buf(), dir: Root::open(path)?.as_dir()? })
    }

    /// Has `make` make an entry, which then is the entry `name` of `to`, or leaves nothing.
    pub fn put<T>(&self, to: &Dir, name: &[u8], make: impl FnOnce(&Dir, &[u8]) -> Result<T>) -> Result<T> {
        let put = || {
            let made = make(&self.dir, Self::ENTRY)?;
            fs::renameat(&self.dir, Self::ENTRY, to, name)
                .map_err(|e| Error::io("rename into place", to.shown(name), e))?;
            // What is seen from the next mount on must not depend on luck.
            to.sync().map(|()| made)
        };
        let done = put();
        if done.is_err() {
            let _ = self.dir.remove(Self::ENTRY, false);
        }
        done
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // What stays is removed by the next.
        let _ = crate::remove_tree(&self.path);
    }
}

impl Shelf<'_> {
    /// Copies the entry at `path`.
    pub fn put(&self, path: &RelPath) -> Result<Put> {
        let Some(found) = self.from.find(path)? else { return Ok(Put::Nothing) };
        if self.to.stamp(path)?.is_some() {
            return Ok(Put::Nothing);
        }
        let from = self.from.open_parent(path, &found)?;
        if !may_read(&from, path.name(), &found.stamp) {
            return Ok(Put::Unreadable);
        }
        let Some(to) = self.parent(path)? else { return Ok(Put::Nothing) };
        match found.stamp.node_type() {
            NodeType::File => {
                let copy = |to: &Dir, name: &[u8]| copy_flushed(&from, path.name(), to, name);
                self.making.put(&to, path.name(), copy).map(Put::Done)
            }
            NodeType::Symlink => {
                let target = from.read_link(path.name())?;
                let link = |to: &Dir, name: &[u8]| make_link(to, name, &target, &found.stamp);
                self.making.put(&to, path.name(), link).map(|_| Put::Done(None))
            }
            NodeType::Directory => self.dir(&to, path).map(|_| Put::Done(None)),
            _ => Ok(Put::Nothing),
        }
    }

    /// Makes a whiteout at `path`, where nothing is shown yet. Whether there is one now that was not there.
    pub fn white_out(&self, path: &RelPath) -> Result<bool> {
        let is_free = self.from.find(path)?.is_none() && self.to.stamp(path)?.is_none();
        if !is_free || !self.shows_parent(path)? {
            return Ok(false);
        }
        let Some(to) = self.parent(path)? else { return Ok(false) };
        fs::mknodat(&to, path.name(), FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|e| Error::io("make a whiteout at", to.shown(path.name()), e))?;
        Ok(true)
    }

    fn shows_parent(&self, path: &RelPath) -> Result<bool> {
        match path.parent() {
            Some(parent) => Ok(self.from.find(&parent)?.is_some_and(|found| found.stamp.is_dir())),
            None => Ok(true),
        }
    }

    /// The directory that holds `path` in the layer, made like the one that is shown. `None` where it is hidden there.
    fn parent(&self, path: &RelPath) -> Result<Option<Dir>> {
        let Some(parent) = path.parent() else { return self.to.as_dir().map(Some) };
        match self.to.stamp(&parent)? {
            Some(stamp) if stamp.is_dir() => return self.to.dir(Some(&parent)).map(Some),
            Some(_) => return Ok(None),
            None => {}
        }
        match self.parent(&parent)? {
            Some(above) => self.dir(&above, &parent).map(Some),
            None => Ok(None),
        }
    }

    fn dir(&self, to: &Dir, path: &RelPath) -> Result<Dir> {
        let Some(found) = self.from.find(path)? else {
            return Err(Error::not_found("directory", path.to_string()));
        };
        to.make_dir(path.name(), 0o700)?;
        let (made, like) = (to.dir(path.name())?, self.from.open_parent(path, &found)?.dir(path.name())?);
        let attributes =
            xattrs::read(&like).map_err(|e| Error::io("read attributes of", like.shown_self(), e))?;
        dress_dir(&made, &Meta::of(&like.stamp_self()?, attributes))?;
        Ok(made)
    }
}

/// Whether the content of an entry may be read, if it is of a kind that has any.
pub(super) fn may_read(parent: &Dir, name: &[u8], stamp: &Stamp) -> bool {
    let is_opened = matches!(stamp.node_type(), NodeType::File | NodeType::Directory);
    let open = || parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0);
    !(is_opened && matches!(open(), Err(Errno::ACCESS | Errno::PERM)))
}

pub(super) fn copy_flushed(from: &Dir, name: &[u8], to: &Dir, as_name: &[u8]) -> Result<Option<ContentHash>> {
    let copied = copy_file((from, name), (to, as_name), Transfer::Prefer, &mut Vec::new())?;
    let flushed = fs::fsync(to.open_file(as_name)?);
    flushed.map_err(|e| Error::io("flush", to.shown(as_name), e))?;
    Ok(copied.hash)
}
