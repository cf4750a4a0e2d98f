//! The base of a workspace, entry by entry: what the original was and what its copy was, when they were the same.
//!
//! A manifest is a file of chunks, one per directory, in no particular order: several threads append to it while a tree is
//! copied, and nobody holds more than a directory of it in memory. A checksum at its end tells a whole one from a torn one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::base::Base;
use crate::diff::{Comparison, Scan, scan};
use crate::durable;
use crate::hash::ContentHash;
use crate::stamp::Stamp;
use crate::xattrs::Xattrs;

/// Which directory of a manifest.
pub type DirId = u32;

/// The root's own chunk.
pub const ROOT: DirId = 0;

const MAGIC: &[u8; 8] = b"SBXTREE\x02";
const CHECKSUM: usize = 32;

/// One entry of the base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", from = "Stored")]
pub struct Entry {
    /// Its name; empty for the root.
    pub name: Vec<u8>,
    /// The chunk of a directory.
    pub child: Option<DirId>,
    /// The original's stamp; `None` in checkpoints.
    pub base: Option<Stamp>,
    /// The copy's stamp; `None` for what is never copied (pipes, sockets, devices).
    pub copy: Option<Stamp>,
    /// Hash of the content, where it was read.
    pub hash: Option<ContentHash>,
    /// Where in the pack the content is, if it is kept.
    pub kept: Option<u64>,
    /// Extended attributes of both.
    pub xattrs: Xattrs,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

impl Entry {
    /// What it is.
    pub fn node_type(&self) -> NodeType {
        let stamp = self.base.or(self.copy);
        stamp.map_or(NodeType::Directory, |s| s.node_type())
    }
}

/// One directory of the base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// First, so that an index is built without decoding the rest.
    pub id: DirId,
    /// The directory itself.
    pub own: Entry,
    /// What it holds, sorted by name. A directory among them has nothing but its name and `child`.
    pub entries: Vec<Entry>,
}

impl Chunk {
    /// The entry called `name`.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.position(name).ok().map(|at| &self.entries[at])
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|e| e.name.as_slice().cmp(name))
    }

    fn set(&mut self, entry: Entry) {
        match self.position(&entry.name) {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }
}

/// An entry as it is stored: a copy's stamp mostly repeats the original's.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    name: Vec<u8>,
    child: Option<DirId>,
    base: Option<Stamp>,
    copy: CopyStamp,
    hash: Option<ContentHash>,
    kept: Option<u64>,
    xattrs: Xattrs,
    target: Vec<u8>,
}

#[derive(Clone, Serialize, Deserialize)]
enum CopyStamp {
    None,
    Like { ino: u64, ctime: i64, btime: i64, nlink: u32 },
    Full(Stamp),
}

impl From<Entry> for Stored {
    fn from(entry: Entry) -> Self {
        let Entry { name, child, base, copy, hash, kept, xattrs, target } = entry;
        let copy = match (copy, base) {
            (None, _) => CopyStamp::None,
            (Some(c), Some(base)) if c.same_state(&base) => {
                CopyStamp::Like { ino: c.ino, ctime: c.ctime, btime: c.btime, nlink: c.nlink }
            }
            (Some(c), _) => CopyStamp::Full(c),
        };
        Self { name, child, base, copy, hash, kept, xattrs, target }
    }
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        let Stored { name, child, base, copy, hash, kept, xattrs, target } = stored;
        let copy = match copy {
            CopyStamp::None => None,
            CopyStamp::Full(stamp) => Some(stamp),
            CopyStamp::Like { ino, ctime, btime, nlink } => {
                Some(Stamp { ino, ctime, btime, nlink, ..base.unwrap_or_default() })
            }
        };
        Self { name, child, base, copy, hash, kept, xattrs, target }
    }
}

/// Writes a manifest; chunks come from several threads.
#[must_use = "a manifest that is not finished is not there"]
pub struct ManifestWriter {
    out: Mutex<Out>,
    path: PathBuf,
}

struct Out {
    file: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        self.put(&(chunk.len() as u32).to_le_bytes())?;
        self.put(chunk)
    }

    /// Writes the mark of the end and the checksum.
    fn end(mut self) -> std::io::Result<File> {
        let checksum = *self.hasher.finalize().as_bytes();
        self.file.write_all(&0_u32.to_le_bytes())?;
        self.file.write_all(&checksum)?;
        self.file.into_inner().map_err(std::io::IntoInnerError::into_error)
    }
}

impl ManifestWriter {
    /// Starts a manifest beside `path`; [`ManifestWriter::finish`] puts it there.
    pub fn create(path: &Path) -> Result<Self> {
        let file = durable::create_temporary(path)?;
        let mut out = Out { file: BufWriter::with_capacity(256 * 1024, file), hasher: blake3::Hasher::new() };
        out.put(MAGIC).map_err(|e| Error::io("write", path, e))?;
        Ok(Self { out: Mutex::new(out), path: path.to_path_buf() })
    }

    /// Adds a directory.
    pub fn append(&self, chunk: &Chunk) -> Result<()> {
        let bytes = postcard::to_stdvec(chunk).map_err(|e| Error::corrupt(&self.path, e.to_string()))?;
        self.append_raw(&bytes)
    }

    fn append_raw(&self, chunk: &[u8]) -> Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let written = out.put_chunk(chunk).map_err(|e| Error::io("write", &self.path, e));
        durable::or_discard(&self.path, written)
    }

    /// Makes the manifest durable and puts it in place, all at once.
    pub fn finish(self) -> Result<()> {
        let out = self.out.into_inner().unwrap_or_else(PoisonError::into_inner);
        let file = durable::or_discard(&self.path, out.end().map_err(|e| Error::io("write", &self.path, e)))?;
        durable::publish(&file, &self.path)
    }
}

/// A manifest in memory, undecoded.
pub struct Manifest {
    bytes: Vec<u8>,
    /// Where each directory's chunk is, by id; a hole has length 0.
    index: Vec<(u32, u32)>,
    path: PathBuf,
}

impl Manifest {
    /// Reads and verifies the manifest at `path`.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let damaged = |reason: &str| Error::corrupt(path, reason);
        let end = bytes.len().checked_sub(CHECKSUM + 4).ok_or_else(|| damaged("it is too short"))?;
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("it is no manifest of a known version"));
        }
        if blake3::hash(&bytes[..end]).as_bytes() != &bytes[end + 4..] {
            return Err(damaged("its checksum does not match"));
        }
        let index = index_of(&bytes[..end]).ok_or_else(|| damaged("a chunk has no valid length"))?;
        Ok(Self { bytes, index, path: path.to_path_buf() })
    }

    /// One directory.
    pub fn chunk(&self, id: DirId) -> Result<Chunk> {
        let raw =
            self.raw(id).ok_or_else(|| Error::corrupt(&self.path, format!("directory {id} is missing")))?;
        postcard::from_bytes(raw).map_err(|e| Error::corrupt(&self.path, e.to_string()))
    }

    fn raw(&self, id: DirId) -> Option<&[u8]> {
        let (offset, len) = *self.index.get(id as usize)?;
        (len > 0).then(|| &self.bytes[offset as usize..(offset + len) as usize])
    }

    /// The chunk of the directory at `path`; the root's for `None`.
    pub fn find_dir(&self, path: Option<&RelPath>) -> Result<Option<Chunk>> {
        let mut chunk = self.chunk(ROOT)?;
        for name in path.iter().flat_map(|p| p.components()) {
            match chunk.find(name).and_then(|e| e.child) {
                Some(child) => chunk = self.chunk(child)?,
                None => return Ok(None),
            }
        }
        Ok(Some(chunk))
    }

    /// The entry at `path`, a directory's own particulars included.
    pub fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        let Some(parent) = self.find_dir(path.parent().as_ref())? else { return Ok(None) };
        match parent.find(path.name()) {
            Some(Entry { child: Some(child), .. }) => Ok(Some(self.own(*child)?)),
            found => Ok(found.cloned()),
        }
    }

    /// A directory's own entry.
    pub fn own(&self, id: DirId) -> Result<Entry> {
        let own = self.chunk(id)?.own;
        Ok(Entry { child: Some(id), ..own })
    }

    /// Everything below the directory `id`, parents before children, each with its path.
    pub fn below(&self, id: DirId, prefix: Option<&RelPath>) -> Result<Vec<(RelPath, Entry)>> {
        let mut found = Vec::new();
        let mut waiting = vec![(id, prefix.cloned())];
        while let Some((id, prefix)) = waiting.pop() {
            for entry in self.chunk(id)?.entries {
                let path = join(prefix.as_ref(), &entry.name)?;
                if let Some(child) = entry.child {
                    waiting.push((child, Some(path.clone())));
                    found.push((path, self.own(child)?));
                } else {
                    found.push((path, entry));
                }
            }
        }
        Ok(found)
    }

    /// Writes this manifest with `edits` made, to where it came from.
    pub fn rewrite(&self, edits: Edits) -> Result<()> {
        let plan = Rewrite::plan(self, edits)?;
        let writer = ManifestWriter::create(&self.path)?;
        for id in 0..plan.next_id {
            match plan.chunks.get(&id) {
                Some(Some(chunk)) => writer.append(chunk)?,
                Some(None) => {}
                None => self.raw(id).map_or(Ok(()), |raw| writer.append_raw(raw))?,
            }
        }
        writer.finish()
    }
}

impl Base for Manifest {
    fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        Manifest::find(self, path)
    }

    fn scan(&self, comparison: &Comparison<'_>) -> Result<Scan> {
        scan(comparison, self)
    }

    fn recorded(&self) -> Result<Vec<(RelPath, Entry)>> {
        self.below(ROOT, None)
    }

    fn rewrite(&self, edits: Edits) -> Result<()> {
        Manifest::rewrite(self, edits)
    }
}

/// A path with one more name.
pub fn join(prefix: Option<&RelPath>, name: &[u8]) -> Result<RelPath> {
    match prefix {
        Some(prefix) => Ok(prefix.join(name)),
        None => Ok(RelPath::single(name)?),
    }
}

fn index_of(bytes: &[u8]) -> Option<Vec<(u32, u32)>> {
    let mut index = Vec::new();
    let mut at = MAGIC.len();
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        let chunk = bytes.get(at + 4..at + 4 + len as usize)?;
        let (id, _) = postcard::take_from_bytes::<DirId>(chunk).ok()?;
        let id = id as usize;
        if id >= index.len() {
            index.resize(id + 1, (0, 0));
        }
        index[id] = (u32::try_from(at + 4).ok()?, len);
        at += 4 + len as usize;
    }
    Some(index)
}

/// Changes to a manifest: what is there now (`Some`) or gone (`None`), by path. Parents come before children by order.
pub type Edits = BTreeMap<RelPath, Option<Entry>>;

/// Which chunks change (`Some`) or go (`None`).
struct Rewrite<'a> {
    manifest: &'a Manifest,
    chunks: BTreeMap<DirId, Option<Chunk>>,
    next_id: DirId,
}

impl<'a> Rewrite<'a> {
    fn plan(manifest: &'a Manifest, edits: Edits) -> Result<Self> {
        let next_id = manifest.index.len() as DirId;
        let mut plan = Self { manifest, chunks: BTreeMap::new(), next_id };
        for (path, entry) in edits {
            match entry {
                Some(entry) => plan.set(&path, entry)?,
                None => plan.remove(&path)?,
            }
        }
        Ok(plan)
    }

    fn chunk(&mut self, id: DirId) -> Result<Option<&mut Chunk>> {
        if let std::collections::btree_map::Entry::Vacant(slot) = self.chunks.entry(id) {
            slot.insert(Some(self.manifest.chunk(id)?));
        }
        Ok(self.chunks.get_mut(&id).and_then(Option::as_mut))
    }

    fn dir_id(&mut self, path: Option<&RelPath>) -> Result<Option<DirId>> {
        let mut id = ROOT;
        for name in path.iter().flat_map(|p| p.components()) {
            let child = self.chunk(id)?.and_then(|c| c.find(name)).and_then(|e| e.child);
            match child {
                Some(child) => id = child,
                None => return Ok(None),
            }
        }
        Ok(Some(id))
    }

    fn set(&mut self, path: &RelPath, mut entry: Entry) -> Result<()> {
        let Some(parent) = self.dir_id(path.parent().as_ref())? else {
            return Err(Error::corrupt(&self.manifest.path, format!("{path} has no parent")));
        };
        entry.name = path.name().to_vec();
        let existing = self.chunk(parent)?.and_then(|c| c.find(path.name())).and_then(|e| e.child);
        if entry.node_type() == NodeType::Directory {
            let id = self.set_dir(existing, entry)?;
            entry = Entry { name: path.name().to_vec(), child: Some(id), ..Entry::default() };
        } else if let Some(old) = existing {
            self.drop_dir(old)?;
        }
        if let Some(chunk) = self.chunk(parent)? {
            chunk.set(entry);
        }
        Ok(())
    }

    fn set_dir(&mut self, existing: Option<DirId>, own: Entry) -> Result<DirId> {
        if let Some(id) = existing {
            if let Some(chunk) = self.chunk(id)? {
                chunk.own = own;
            }
            return Ok(id);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.chunks.insert(id, Some(Chunk { id, own, entries: Vec::new() }));
        Ok(id)
    }

    fn remove(&mut self, path: &RelPath) -> Result<()> {
        let Some(parent) = self.dir_id(path.parent().as_ref())? else { return Ok(()) };
        let Some(chunk) = self.chunk(parent)? else { return Ok(()) };
        let Ok(at) = chunk.position(path.name()) else { return Ok(()) };
        match chunk.entries.remove(at).child {
            Some(child) => self.drop_dir(child),
            None => Ok(()),
        }
    }

    fn drop_dir(&mut self, id: DirId) -> Result<()> {
        let mut waiting = vec![id];
        while let Some(id) = waiting.pop() {
            let children =
                self.chunk(id)?.map(|c| c.entries.iter().filter_map(|e| e.child).collect::<Vec<_>>());
            waiting.extend(children.into_iter().flatten());
            self.chunks.insert(id, None);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
