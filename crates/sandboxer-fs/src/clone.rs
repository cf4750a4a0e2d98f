//! The copy of a tree, made by several threads, with the manifest of its base.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, FileType, Gid, Uid};
use sandboxer_core::contract::{CancelFlag, Progress};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::copy::{self, Copied, Meta, SourceFile, Transfer};
use crate::filter::{Filter, RESERVED};
use crate::list::{self, Listed};
use crate::manifest::{self, Chunk, DirId, Edits, Entry, Manifest, ManifestWriter};
use crate::pack::PackWriter;
use crate::pool::{self, Queue};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// What to copy, and how.
pub struct CloneJob<'a> {
    /// The original.
    pub source: &'a Root,
    /// An empty directory.
    pub target: &'a Root,
    /// Where the manifest goes.
    pub manifest: &'a Path,
    /// What to leave out.
    pub filter: &'a Filter,
    /// How data gets across.
    pub transfer: Transfer,
    /// Where base content is kept for merging, as far as it goes.
    pub pack: Option<&'a PackWriter>,
    /// On how many threads.
    pub threads: usize,
    /// Hears of it.
    pub progress: &'a dyn Progress,
    /// Looked at between directories.
    pub cancel: &'a CancelFlag,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneReport {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of file content.
    pub bytes: u64,
}

struct DirTask {
    path: Option<RelPath>,
    id: DirId,
}

struct Shared<'a> {
    job: &'a CloneJob<'a>,
    manifest: ManifestWriter,
    next_id: AtomicU32,
    /// The names of files with several, by inode, and the base of each such file.
    links: Mutex<HashMap<u64, (Vec<RelPath>, Entry)>>,
    latest: AtomicI64,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// Copies the tree and writes its manifest. On an error the target and the manifest are left half done, for the caller
/// to throw away.
pub fn clone_tree(job: &CloneJob<'_>) -> Result<CloneReport> {
    let shared = Shared {
        job,
        manifest: ManifestWriter::create(job.manifest)?,
        next_id: AtomicU32::new(manifest::ROOT + 1),
        links: Mutex::default(),
        latest: AtomicI64::new(0),
        entries: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    job.progress.begin("copying", None);
    let first = vec![DirTask { path: None, id: manifest::ROOT }];
    let done =
        pool::work(job.threads, first, Vec::new, |buffer, task, queue| shared.copy_dir(&task, queue, buffer));
    job.progress.end();
    done?;
    let report = CloneReport { entries: shared.entries.into_inner(), bytes: shared.bytes.into_inner() };
    let links = shared.links.into_inner().unwrap_or_else(PoisonError::into_inner);
    shared.manifest.finish()?;
    let latest = restamp_links(job, links)?.max(shared.latest.into_inner());
    copy::wait_past(latest);
    Ok(report)
}

/// Each further name of a file changes its stamp: those of files with several are taken when all names are there.
fn restamp_links(job: &CloneJob<'_>, links: HashMap<u64, (Vec<RelPath>, Entry)>) -> Result<i64> {
    let mut edits = Edits::new();
    let mut latest = 0;
    for (names, entry) in links.into_values().filter(|(names, _)| names.len() > 1) {
        let copy = job.target.stamp(&names[0])?;
        latest = latest.max(copy.map_or(0, |s| s.ctime));
        edits.extend(names.into_iter().map(|path| (path, Some(Entry { copy, ..entry.clone() }))));
    }
    if !edits.is_empty() {
        Manifest::load(job.manifest)?.rewrite(edits)?;
    }
    Ok(latest)
}

impl Shared<'_> {
    fn copy_dir(&self, task: &DirTask, queue: &Queue<DirTask>, buffer: &mut Vec<u8>) -> Result<()> {
        self.job.cancel.check()?;
        let from = self.job.source.dir(task.path.as_ref())?;
        let to = self.job.target.dir(task.path.as_ref())?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for listed in list::sorted(&from)? {
            if let Some(entry) = self.copy_entry(task, &from, &to, listed, queue, buffer)? {
                bytes += entry.base.map_or(0, |s| s.size);
                entries.push(entry);
            }
        }
        let own = self.finish_dir(&from, &to, task)?;
        self.count(entries.len() as u64, bytes);
        self.manifest.append(&Chunk { id: task.id, own, entries })
    }

    fn count(&self, entries: u64, bytes: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.job.progress.advance(entries, bytes);
    }

    fn copy_entry(
        &self,
        task: &DirTask,
        from: &Dir,
        to: &Dir,
        listed: Listed,
        queue: &Queue<DirTask>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Entry>> {
        let kind = self.kind_of(from, &listed)?;
        let is_dir = kind == FileType::Directory;
        let path = || manifest::join(task.path.as_ref(), &listed.name);
        let is_ours = listed.name.starts_with(RESERVED);
        if (is_ours || !self.job.filter.is_all()) && !self.job.filter.passes(&path()?, is_dir) {
            return Ok(None);
        }
        match kind {
            FileType::Directory => self.queue_dir(path()?, to, listed.name, queue).map(Some),
            FileType::RegularFile => self.copy_regular(task, from, to, listed.name, buffer),
            FileType::Symlink => self.copy_link(from, to, listed.name).map(Some),
            _ => special(from, listed.name),
        }
    }

    fn kind_of(&self, from: &Dir, listed: &Listed) -> Result<FileType> {
        if listed.kind != FileType::Unknown {
            return Ok(listed.kind);
        }
        let stamp = from.stamp(&listed.name)?;
        Ok(stamp.map_or(FileType::Unknown, |s| FileType::from_raw_mode(s.mode)))
    }

    fn queue_dir(&self, path: RelPath, to: &Dir, name: Vec<u8>, queue: &Queue<DirTask>) -> Result<Entry> {
        // Mostly the mode that it ends with; what it must have until then is the owner's access.
        to.make_dir(&name, 0o755)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        queue.push(DirTask { path: Some(path), id });
        Ok(Entry { name, child: Some(id), ..Entry::default() })
    }

    /// Copies a file; one that vanished between the listing and now is simply not there.
    fn copy_regular(
        &self,
        task: &DirTask,
        from: &Dir,
        to: &Dir,
        name: Vec<u8>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Entry>> {
        let Some(source) = SourceFile::open(from, &name)? else { return Ok(None) };
        if source.stamp.nlink > 1 {
            let path = manifest::join(task.path.as_ref(), &name)?;
            return self.copy_linked(path, source, to, &name, buffer).map(Some);
        }
        let copied = source.copy_keeping(to, &name, self.job.transfer, self.job.pack, buffer)?;
        Ok(Some(self.entry(name, copied)))
    }

    /// Copies the first name of a file and links the others to it.
    fn copy_linked(
        &self,
        path: RelPath,
        source: SourceFile<'_>,
        to: &Dir,
        name: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<Entry> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let ino = source.stamp.ino;
        if let Some((names, entry)) = links.get_mut(&ino) {
            link_below(self.job.target, &names[0], to, name)?;
            names.push(path);
            return Ok(Entry { name: name.to_vec(), ..entry.clone() });
        }
        let copied = source.copy_keeping(to, name, self.job.transfer, self.job.pack, buffer)?;
        let entry = self.entry(name.to_vec(), copied);
        links.insert(ino, (vec![path], entry.clone()));
        Ok(entry)
    }

    fn entry(&self, name: Vec<u8>, copied: Copied) -> Entry {
        self.latest.fetch_max(copied.target.ctime, Ordering::Relaxed);
        let Copied { source, target, hash, xattrs, steady, kept } = copied;
        // A source that never held still has a stamp that will not match again: a commit there is a conflict.
        let hash = hash.filter(|_| steady);
        Entry { name, base: Some(source), copy: Some(target), hash, kept, xattrs, ..Entry::default() }
    }

    fn copy_link(&self, from: &Dir, to: &Dir, name: Vec<u8>) -> Result<Entry> {
        let base = from
            .stamp(&name)?
            .ok_or_else(|| Error::not_found("link", from.shown(&name).to_string_lossy()))?;
        let target = from.read_link(&name)?;
        let copy = make_link(to, &name, &target, &base)?;
        self.latest.fetch_max(copy.ctime, Ordering::Relaxed);
        Ok(Entry { name, base: Some(base), copy: Some(copy), target, ..Entry::default() })
    }

    fn finish_dir(&self, from: &Dir, to: &Dir, task: &DirTask) -> Result<Entry> {
        let base = from.stamp_self()?;
        let xattrs = xattrs::read(from).map_err(|e| Error::io("read attributes of", from.shown_self(), e))?;
        let copy = dress_dir(to, &Meta::of(&base, xattrs.clone()))?;
        self.latest.fetch_max(copy.ctime, Ordering::Relaxed);
        let name = task.path.as_ref().map_or(Vec::new(), |p| p.name().to_vec());
        Ok(Entry { name, base: Some(base), copy: Some(copy), xattrs, ..Entry::default() })
    }
}

/// Pipes, sockets and devices are remembered, so that their absence is no deletion, and never copied.
fn special(from: &Dir, name: Vec<u8>) -> Result<Option<Entry>> {
    let base = from.stamp(&name)?;
    Ok(base.map(|base| Entry { name, base: Some(base), ..Entry::default() }))
}

/// Makes `name` in `to` another name of the file at `first` below `root`.
pub fn link_below(root: &Root, first: &RelPath, to: &Dir, name: &[u8]) -> Result<()> {
    let parent = root.parent_of(first)?;
    fs::linkat(&parent, first.name(), to, name, AtFlags::empty())
        .map_err(|e| Error::io("link", to.shown(name), e))
}

/// Makes a symbolic link with the owner and time of `like`.
pub fn make_link(to: &Dir, name: &[u8], target: &[u8], like: &Stamp) -> Result<Stamp> {
    let shown = || to.shown(name);
    fs::symlinkat(target, to, name).map_err(|e| Error::io("create link", shown(), e))?;
    let made = to.stamp(name)?.unwrap_or_default();
    if !made.same_owner(like) {
        // Without privilege the link stays ours, which means nothing for a link.
        let _ = fs::chownat(
            to,
            name,
            Some(Uid::from_raw(like.uid)),
            Some(Gid::from_raw(like.gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        );
    }
    let times = copy::timestamps(like.mtime);
    fs::utimensat(to, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| Error::io("set time of", shown(), e))?;
    Ok(to.stamp(name)?.unwrap_or_default())
}

/// Gives an open directory its attributes, owner, mode and times.
pub fn dress_dir(dir: &Dir, meta: &Meta) -> Result<Stamp> {
    let step = |e| Error::io("set attributes of", dir.shown_self(), e);
    xattrs::replace(dir, &meta.xattrs).map_err(step)?;
    copy::finish_node(dir.fd(), meta).map_err(step)
}
