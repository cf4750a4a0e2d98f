//! What has to be done through a mount itself, for it to go on showing what it shows.

use std::collections::BTreeSet;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::base::OverlayBase;
use super::layer::Meaning;
use super::preserve::in_layers;
use super::shelf::may_read;
use crate::clone::dress_dir;
use crate::copy::Meta;
use crate::filter::RESERVED;
use crate::list;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// Has the mount take for its own what it still has from the original.
pub(super) fn take_over(base: &OverlayBase<'_>, merged: &Root, paths: &BTreeSet<RelPath>) -> Result<()> {
    for path in paths.iter().filter(|path| !in_layers(base, path)) {
        let Some(parent) = merged.find_parent(path)? else { continue };
        let Some(stamp) = parent.stamp(path.name())? else { continue };
        match touch(&parent, path.name(), &stamp) {
            // What we may not read we cannot keep.
            Err(_) if !may_read(&parent, path.name(), &stamp) => {}
            touched => touched.map_err(|e| Error::io("keep for another sandbox", merged.shown(path), e))?,
        }
    }
    Ok(())
}

/// Makes a directory the mount's own. One that is merged with a directory which is then removed could not be listed any more, so
/// everything in it moves to a new one that takes its place. Whoever works in it loses it: hence only where the removed
/// directory cannot be kept (see [`Journal::graves`]).
pub(super) fn detach(base: &OverlayBase<'_>, merged: &Root, path: &RelPath) -> Result<()> {
    let (Some(parent), Ok(dir)) = (merged.find_parent(path)?, merged.open_dir(path)) else { return Ok(()) };
    if base.original.open_dir(path).is_err() || is_opaque(base, path)? {
        return Ok(());
    }
    let name = RelPath::single(&[RESERVED, b"taking-over"].concat())?;
    crate::remove_below(merged, &name)?;
    let own = merged.create_dirs(&name, 0o700)?;
    let failed = |e| Error::io("keep for another sandbox", merged.shown(path), e);
    let attributes = xattrs::read(&dir).map_err(failed)?;
    let meta = Meta::of(&dir.stamp_self()?, attributes);
    for listed in list::names_and_types(&dir)? {
        fs::renameat(&dir, &listed.name, &own, &listed.name).map_err(failed)?;
    }
    parent.remove(path.name(), true)?;
    fs::renameat(merged, name.name(), &parent, path.name()).map_err(failed)?;
    dress_dir(&own, &meta).map(drop)
}

pub(super) fn is_opaque(base: &OverlayBase<'_>, path: &RelPath) -> Result<bool> {
    let Some(upper) = base.layers.first() else { return Ok(false) };
    let Some(parent) = upper.root.find_parent(path)? else { return Ok(false) };
    let Some(stamp) = parent.stamp(path.name())? else { return Ok(false) };
    Ok(upper.meaning(&parent, path.name(), &stamp)? == Meaning::Directory { opaque: true })
}

/// Changes nothing, in a way that makes the kernel copy the entry up.
pub(super) fn touch(parent: &Dir, name: &[u8], stamp: &Stamp) -> rustix::io::Result<()> {
    match stamp.node_type() {
        NodeType::File => match parent.try_open(name, OFlags::WRONLY | OFlags::NONBLOCK, 0) {
            // Read-only, or being executed: its mode is set to what it is.
            Err(Errno::ACCESS | Errno::TXTBSY) => same_mode(parent, name, stamp),
            opened => opened.map(drop),
        },
        NodeType::Directory => same_mode(parent, name, stamp),
        _ => {
            let times = crate::copy::timestamps(stamp.mtime);
            fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

pub(super) fn same_mode(parent: &Dir, name: &[u8], stamp: &Stamp) -> rustix::io::Result<()> {
    fs::chmodat(parent, name, Mode::from_raw_mode(stamp.permissions()), AtFlags::empty())
}

/// The mode of the empty file by which [`hide`] has the kernel look again. Files have none like it, so one that was left is known.
const HOLDER: u32 = 0o1600;

pub(super) fn is_holder(stamp: Stamp) -> bool {
    stamp.is_file() && stamp.size == 0 && stamp.permissions() == HOLDER
}

pub(super) fn make_holder(parent: &Dir, name: &[u8]) -> rustix::io::Result<()> {
    parent.try_open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, HOLDER).map(drop)
}

/// Makes a whiteout through the mount. One that was asked for the name before it was there still says that nothing is: then a file is
/// made and removed, and the kernel looks again.
pub(super) fn hide(merged: &Root, path: &RelPath) -> Result<()> {
    let Some(parent) = merged.find_parent(path)? else { return Ok(()) };
    if parent.stamp(path.name())?.is_some() {
        return crate::remove_entry(&parent, path.name());
    }
    match make_holder(&parent, path.name()) {
        Ok(()) => parent.remove(path.name(), false),
        Err(Errno::EXIST) => crate::remove_entry(&parent, path.name()),
        Err(e) => Err(Error::io("hide from another sandbox", merged.shown(path), e)),
    }
}
