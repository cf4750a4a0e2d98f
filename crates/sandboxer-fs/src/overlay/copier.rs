//! Makes entries of a new layer just as they are in another, marks included.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags, makedev};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::attrs;
use super::layer::{Marks, OPAQUE, ORIGIN, UUID, device_number};
use crate::clone;
use crate::copy::{self, Meta, Transfer};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs::Xattrs;

/// The target, and what is remembered on the way.
pub(super) struct Copier {
    pub(super) to: Root,
    links: HashMap<FileId, RelPath>,
    /// Until the filesystem has said no.
    shares_blocks: bool,
    buffer: Vec<u8>,
}

/// Number of the layer, inode and birth: a number that is used again while a live layer is copied is another file.
type FileId = (usize, u64, i64);

/// An entry to be copied.
pub(super) struct Source<'a> {
    /// Which of several layers.
    pub(super) layer: usize,
    pub(super) dir: &'a Dir,
    pub(super) path: &'a RelPath,
    pub(super) stamp: Stamp,
    pub(super) remark: &'a Remark,
}

/// The marks that are to be other than those of the source.
#[derive(Clone, Debug)]
pub(super) struct Remark {
    pub(super) marks: Marks,
    /// `Some` replaces the origin, by none if need be.
    pub(super) origin: Option<Option<Vec<u8>>>,
    /// `Some` says whether the directory is opaque.
    pub(super) opaque: Option<bool>,
    /// Whether it has an origin in any case, be it one that tells nothing.
    pub(super) copied_up: bool,
}

/// What came of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is there.
    Made,
    /// It is there, and the source was written while it was read.
    Unsteady,
    /// The source was gone.
    Gone,
    /// The source has become something else; nothing was made.
    Replaced,
}

impl Remark {
    /// Marks as they are.
    pub(super) fn none(marks: Marks) -> Self {
        Self { marks, origin: None, opaque: None, copied_up: false }
    }

    fn apply(&self, attributes: &mut Xattrs) {
        let mut put = |mark: &str, value: Option<Vec<u8>>| {
            let name = self.marks.attribute(mark).into_bytes();
            match value {
                Some(value) => attributes.insert(name, value),
                None => attributes.remove(&name),
            }
        };
        // Which mount an upper belongs to is not what it shows.
        put(UUID, None);
        if let Some(origin) = &self.origin {
            put(ORIGIN, origin.clone());
        }
        if let Some(opaque) = self.opaque {
            put(OPAQUE, opaque.then(|| b"y".to_vec()));
        }
        if self.copied_up {
            attributes.entry(self.marks.attribute(ORIGIN).into_bytes()).or_default();
        }
    }
}

impl Copier {
    /// Copies into the empty directory `to`.
    pub(super) fn new(to: &Path) -> Result<Self> {
        Ok(Self { to: Root::open(to)?, links: HashMap::new(), shares_blocks: true, buffer: Vec::new() })
    }

    /// Makes the entry in `to`, under its own name. A directory is made only: it is dressed when all that it holds is there.
    pub(super) fn copy(&mut self, source: &Source<'_>, to: &Dir) -> Result<Outcome> {
        match source.stamp.node_type() {
            NodeType::File => self.copy_file(source, to),
            NodeType::Symlink => self.copy_symlink(source, to),
            NodeType::Directory => to.make_dir(source.name(), 0o700).map(|()| Outcome::Made),
            _ => copy_special(source, to),
        }
    }

    fn copy_file(&mut self, source: &Source<'_>, to: &Dir) -> Result<Outcome> {
        let fd = match source.dir.try_open(source.name(), OFlags::RDONLY | OFlags::NONBLOCK, 0) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Outcome::Gone),
            Err(e) => return source.replaced_or(e),
        };
        let stamp = copy::settled_stamp(&fd).map_err(source.failed("examine"))?;
        if !stamp.is_file() {
            return Ok(Outcome::Replaced);
        }
        let id = (source.layer, stamp.ino, stamp.btime);
        if let Some(first) = self.links.get(&id) {
            return clone::link_below(&self.to, first, to, source.name()).map(|()| Outcome::Made);
        }
        let steady = self.copy_open_file(source, &fd, stamp, to)?;
        if stamp.nlink > 1 {
            self.links.insert(id, source.path.clone());
        }
        Ok(if steady { Outcome::Made } else { Outcome::Unsteady })
    }

    fn copy_symlink(&mut self, source: &Source<'_>, to: &Dir) -> Result<Outcome> {
        let id = (source.layer, source.stamp.ino, source.stamp.btime);
        if let Some(first) = self.links.get(&id) {
            return clone::link_below(&self.to, first, to, source.name()).map(|()| Outcome::Made);
        }
        let outcome = copy_link(source, to)?;
        if outcome == Outcome::Made && source.stamp.nlink > 1 {
            self.links.insert(id, source.path.clone());
        }
        Ok(outcome)
    }

    fn copy_open_file(&mut self, source: &Source<'_>, fd: &OwnedFd, stamp: Stamp, to: &Dir) -> Result<bool> {
        let mut attributes = attrs::all_of(fd).map_err(source.failed("read attributes of"))?;
        source.remark.apply(&mut attributes);
        let target = copy::create_file(to, source.name(), stamp.permissions())?;
        let copied = self.copy_data(fd, stamp, &target).map_err(source.failed("copy"))?;
        dress(&target, &copied.source, attributes)
            .map_err(|e| Error::io("set attributes of", to.shown(source.name()), e))?;
        Ok(copied.steady)
    }

    fn copy_data(&mut self, from: &OwnedFd, stamp: Stamp, to: &OwnedFd) -> rustix::io::Result<copy::Copied> {
        if self.shares_blocks {
            match copy::copy_steadily(from, stamp, to, Transfer::Reflink, &mut self.buffer) {
                Ok(copied) => return Ok(copied),
                // Whatever is wrong beyond that, copying finds out as well.
                Err(_) => self.shares_blocks = false,
            }
        }
        copy::copy_steadily(from, stamp, to, Transfer::Bytes, &mut self.buffer)
    }

    /// Gives the directory at `path` what `from` has, all that it holds being there.
    pub(super) fn finish_dir(&self, from: &Dir, path: Option<&RelPath>, remark: &Remark) -> Result<()> {
        let failed = |e| Error::io("read attributes of", from.shown_self(), e);
        let mut attributes = attrs::all_of(from).map_err(failed)?;
        remark.apply(&mut attributes);
        let to = self.to.dir(path)?;
        dress(to.fd(), &from.stamp_self()?, attributes)
            .map_err(|e| Error::io("set attributes of", to.shown_self(), e))
    }
}

impl Source<'_> {
    fn name(&self) -> &[u8] {
        self.path.name()
    }

    fn failed(&self, step: &'static str) -> impl Fn(Errno) -> Error {
        let shown = self.dir.shown(self.name());
        move |e| Error::io(step, &shown, e)
    }

    /// What cannot be opened may have become a whiteout, or anything else, just now.
    fn replaced_or(&self, error: Errno) -> Result<Outcome> {
        match self.dir.stamp(self.name())? {
            Some(now) if now.is_file() => Err(self.failed("open")(error)),
            Some(_) => Ok(Outcome::Replaced),
            None => Ok(Outcome::Gone),
        }
    }
}

/// Makes a whiteout. Anybody may: it is the one device that needs no privilege.
pub(super) fn make_whiteout(to: &Dir, name: &[u8]) -> Result<()> {
    fs::mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0)
        .map_err(|e| Error::io("create whiteout", to.shown(name), e))
}

fn copy_link(source: &Source<'_>, to: &Dir) -> Result<Outcome> {
    let name = source.name();
    let target = match fs::readlinkat(source.dir, name, Vec::new()) {
        Ok(target) => target.into_bytes(),
        Err(Errno::NOENT) => return Ok(Outcome::Gone),
        Err(Errno::INVAL) => return Ok(Outcome::Replaced),
        Err(e) => return Err(source.failed("read link")(e)),
    };
    clone::make_link(to, name, &target, &source.stamp)?;
    label(source, to)
}

fn copy_special(source: &Source<'_>, to: &Dir) -> Result<Outcome> {
    let (name, stamp) = (source.name(), &source.stamp);
    let (major, minor) = match device_number(source.dir, name) {
        Ok(number) => number,
        Err(Errno::NOENT) => return Ok(Outcome::Gone),
        Err(e) => return Err(source.failed("examine")(e)),
    };
    let (kind, mode) = (FileType::from_raw_mode(stamp.mode), Mode::from_raw_mode(stamp.permissions()));
    let failed = |e| Error::io("create", to.shown(name), e);
    fs::mknodat(to, name, kind, mode, makedev(major, minor)).map_err(failed)?;
    // Without privilege it stays ours, as a link does.
    let owner = (Some(Uid::from_raw(stamp.uid)), Some(Gid::from_raw(stamp.gid)));
    let _ = fs::chownat(to, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
    fs::chmodat(to, name, mode, AtFlags::empty()).map_err(failed)?;
    fs::utimensat(to, name, &copy::timestamps(stamp.mtime), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    label(source, to)
}

/// Gives an entry that cannot be opened its attributes.
fn label(source: &Source<'_>, to: &Dir) -> Result<Outcome> {
    let name = source.name();
    let mut attributes = attrs::all(source.dir, name)?;
    source.remark.apply(&mut attributes);
    // Only files and directories have attributes of this kind: an origin from another layer has no place here.
    attributes.retain(|attribute, _| !attribute.starts_with(b"user."));
    for (attribute, value) in &attributes {
        unless_security(attribute, attrs::set(to, name, attribute, value))
            .map_err(|e| Error::io("set attributes of", to.shown(name), e))?;
    }
    Ok(Outcome::Made)
}

/// Gives something open its attributes, owner, mode and times. What belongs to the system's security comes last: giving a
/// file away clears its capabilities.
fn dress(fd: &OwnedFd, stamp: &Stamp, attributes: Xattrs) -> rustix::io::Result<()> {
    let (security, others) = attributes.into_iter().partition(|(name, _)| is_security(name));
    let security: Xattrs = security;
    copy::finish_file(fd, &Meta::of(stamp, others))?;
    for (name, value) in &security {
        unless_security(name, fs::fsetxattr(fd.as_fd(), name.as_slice(), value, XattrFlags::empty()))?;
    }
    Ok(())
}

fn is_security(name: &[u8]) -> bool {
    name.starts_with(b"security.")
}

/// Labels and capabilities can be read by all and set by few: they come along where they may.
fn unless_security(name: &[u8], answer: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match answer {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) if is_security(name) => Ok(()),
        other => other,
    }
}
