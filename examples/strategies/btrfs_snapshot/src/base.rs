//! The base of a sandbox, for the file engine: a snapshot, and the paths that may differ from it.

use rustix::fs::OFlags;
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::base::Base;
use sandboxer_fs::copy::hash_fd;
use sandboxer_fs::diff::{Candidate, Comparison, Scan};
use sandboxer_fs::manifest::{Edits, Entry};
use sandboxer_fs::root::{Dir, Root};
use sandboxer_fs::stamp::Stamp;
use sandboxer_fs::xattrs;

use crate::places::Places;
use crate::touched::Touched;

/// A snapshot that others are compared with.
///
/// A snapshot has the inodes of what it was made from, times included: what has the same stamp in both was touched in neither.
pub struct SnapshotBase<'a> {
    /// The snapshot.
    pub snapshot: &'a Root,
    /// The original.
    pub original: &'a Root,
    /// Where anything may differ.
    pub touched: &'a Touched,
    /// Where the next base waits while a commit is carried out.
    pub places: &'a Places,
}

impl SnapshotBase<'_> {
    fn entry(&self, path: &RelPath, stamp: Stamp) -> Result<Entry> {
        let parent = self.snapshot.parent_of(path)?;
        let known = Some(stamp);
        let entry = Entry { name: path.name().to_vec(), base: known, copy: known, ..Entry::default() };
        match stamp.node_type() {
            NodeType::Symlink => Ok(Entry { target: parent.read_link(path.name())?, ..entry }),
            NodeType::File | NodeType::Directory => with_content(&parent, path.name(), entry, &stamp),
            _ => Ok(entry),
        }
    }
}

impl SnapshotBase<'_> {
    /// A commit makes new inodes in the original. Where it has one of the very same state and content, that is the base: a new name of the
    /// file becomes a link to it.
    fn committed_as(&self, path: &RelPath, entry: &Entry) -> Result<Option<Stamp>> {
        let Some((found, base)) = self.original.stamp(path)?.zip(entry.base.filter(Stamp::is_file)) else {
            return Ok(None);
        };
        if found.same_inode(&base) || !found.same_state(&base) {
            return Ok(None);
        }
        let parent = self.original.parent_of(path)?;
        let theirs = with_content(&parent, path.name(), Entry::default(), &found)?;
        let same = theirs.hash.is_some() && theirs.hash == entry.hash && theirs.xattrs == entry.xattrs;
        Ok(same.then_some(found))
    }
}

/// The entry with its attributes, and the hash of its content.
fn with_content(parent: &Dir, name: &[u8], entry: Entry, stamp: &Stamp) -> Result<Entry> {
    let failed = |e| Error::io("read", parent.shown(name), e);
    let fd = match parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0) {
        Ok(fd) => fd,
        // What may not be read has nothing that we could compare.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(entry),
        Err(e) => return Err(failed(e)),
    };
    let hash = match stamp.is_file() {
        true => Some(hash_fd(&fd, stamp.size, &mut Vec::new()).map_err(failed)?),
        false => None,
    };
    Ok(Entry { hash, xattrs: xattrs::read(&fd).map_err(failed)?, ..entry })
}

impl Base for SnapshotBase<'_> {
    fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        let Some(stamp) = self.snapshot.stamp(path)? else { return Ok(None) };
        let entry = self.entry(path, stamp)?;
        Ok(Some(Entry { base: self.committed_as(path, &entry)?.or(entry.base), ..entry }))
    }

    fn scan(&self, comparison: &Comparison<'_>) -> Result<Scan> {
        let mut scan = Scan::default();
        for path in self.touched {
            comparison.cancel.check()?;
            let (base, now) = (self.snapshot.stamp(path)?, comparison.copy.stamp(path)?);
            let is_dir = now.or(base).is_some_and(|stamp| stamp.is_dir());
            if comparison.filter.passes_all(path, is_dir) {
                self.add(&mut scan, path, base, now)?;
            }
        }
        Ok(scan)
    }

    /// Nothing: the snapshot says it all.
    fn recorded(&self) -> Result<Vec<(RelPath, Entry)>> {
        Ok(Vec::new())
    }

    /// What was committed is the base. The snapshot that has it was made before the commit was decided.
    fn rewrite(&self, _: Edits) -> Result<()> {
        self.places.adopt_next_base()
    }
}

impl SnapshotBase<'_> {
    fn add(&self, scan: &mut Scan, path: &RelPath, base: Option<Stamp>, now: Option<Stamp>) -> Result<()> {
        let untouched = base.zip(now).is_some_and(|(base, now)| base.untouched(&now));
        if let Some(now) = now.filter(|now| now.nlink > 1 && !now.is_dir()) {
            // No name of a file is outside the subvolume that it is in.
            let group = scan.links.entry(now.ino).or_default();
            group.names = now.nlink;
            if untouched {
                group.untouched = Some(path.clone());
            } else if base.is_some_and(|base| base.same_inode(&now)) {
                group.relinked.push(path.clone());
            }
        }
        if !untouched && (base.is_some() || now.is_some()) {
            let base = base.map(|stamp| self.entry(path, stamp)).transpose()?;
            scan.candidates.push(Candidate { path: path.clone(), base, now });
        }
        Ok(())
    }
}
