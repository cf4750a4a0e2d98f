//! Rollback: the base again, with content from the original.
//!
//! What has changed in the original meanwhile comes back in its present version, and that version is the base from then on:
//! the old one is nowhere any more.

use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use crate::copy::{Transfer, copy_file};
use crate::manifest::Entry;
use crate::restore::Source;
use crate::root::{Dir, Root};
use crate::xattrs;

/// Content from the original.
pub struct FromOriginal<'a> {
    /// The original.
    pub original: &'a Root,
    /// How data gets across.
    pub transfer: Transfer,
    /// For reading.
    pub buffer: Vec<u8>,
}

impl Source for FromOriginal<'_> {
    fn fetch(&mut self, path: &RelPath, entry: &Entry, to: &Dir, name: &[u8]) -> Result<Option<Entry>> {
        let is_file = self.original.stamp(path)?.is_some_and(|s| s.is_file());
        if !is_file {
            return Ok(None);
        }
        let from = self.original.parent_of(path)?;
        let copied = match copy_file((&from, path.name()), (to, name), self.transfer, &mut self.buffer) {
            Ok(copied) => copied,
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        let hash = copied.hash.filter(|_| copied.steady);
        let (base, copy) = (Some(copied.source), Some(copied.target));
        Ok(Some(Entry { base, copy, hash, xattrs: copied.xattrs, ..entry.clone() }))
    }

    fn current(&mut self, path: &RelPath, entry: &Entry) -> Result<Option<Entry>> {
        let Some(base) = self.original.stamp(path)?.filter(|s| s.node_type() == entry.node_type()) else {
            return Ok(None);
        };
        let mut entry = Entry { base: Some(base), copy: Some(base), ..entry.clone() };
        let parent = self.original.parent_of(path)?;
        if base.node_type() == NodeType::Symlink {
            entry.target = parent.read_link(path.name())?;
        } else {
            let dir = parent.dir(path.name())?;
            entry.xattrs =
                xattrs::read(&dir).map_err(|e| Error::io("read attributes of", dir.shown_self(), e))?;
        }
        Ok(Some(entry))
    }
}
