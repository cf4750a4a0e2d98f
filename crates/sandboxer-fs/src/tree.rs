//! A workspace of files: an original, its copy, and the verbs that a strategy needs.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use sandboxer_core::contract::{CancelFlag, NoProgress, Progress};
use sandboxer_core::model::{Change, CommitRequest, CommitResult, DiffKind, DiffView, OpId, RelPath};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::base::PACK;
use crate::checkpoint::Checkpoints;
use crate::clone::{CloneJob, CloneReport, clone_tree};
use crate::commit::{self, CommitFiles, Journal, Prepare, Record, Revert, Settling};
use crate::content::read_all;
use crate::copy::{self, Meta, Transfer};
use crate::diff::{Comparison, differences};
use crate::durable;
use crate::filter::{Filter, Patterns};
use crate::lock::ResourceLock;
use crate::manifest::Manifest;
use crate::pack::PackWriter;
use crate::park::{self, Assembly, Parked};
use crate::pool;
use crate::restore::{Restored, restore};
use crate::rollback::FromOriginal;
use crate::root::{Dir, Root, stamp_of_fd};
use crate::stamp::Stamp;
use crate::xattrs::{self, Xattrs};

/// What a workspace is made of; kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The directory that is isolated (a single file's parent).
    pub original: PathBuf,
    /// What of it.
    #[serde(default)]
    pub patterns: Patterns,
    /// Whether copies share blocks with the original.
    #[serde(default)]
    pub reflink: bool,
    /// How many bytes of base content are kept for merging.
    #[serde(default)]
    pub keep_base: u64,
}

/// How the work is done.
#[derive(Clone)]
pub struct Means {
    /// On how many threads.
    pub threads: usize,
    /// How long to wait for the resource's lock.
    pub lock_wait: Duration,
    /// Hears of long work.
    pub progress: Arc<dyn Progress>,
    /// Looked at between entries.
    pub cancel: CancelFlag,
}

impl Default for Means {
    fn default() -> Self {
        Self {
            threads: pool::default_threads(),
            lock_wait: Duration::from_secs(10),
            progress: Arc::new(NoProgress),
            cancel: CancelFlag::default(),
        }
    }
}

/// Under which names a commit is kept.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    /// What it is logged as; without, it cannot be taken back.
    pub operation: Option<OpId>,
    /// The operation that it takes back, if that is what it does.
    pub undo: Option<OpId>,
}

/// An original and its copy.
pub struct Workspace {
    home: PathBuf,
    spec: Spec,
    original: Root,
    copy: Root,
    filter: Filter,
    means: Means,
}

const SPEC: &str = "workspace.json";
const TREE: &str = "tree";
const BASE: &str = "base.manifest";
/// In a fresh copy that has everything.
const READY: &str = "done";

impl Workspace {
    /// Copies `spec`'s original into the existing directory `home`. Where it fails, `home` is the caller's to remove.
    pub fn create(home: &Path, spec: Spec, means: Means) -> Result<(Self, CloneReport)> {
        Self::create_packing(home, &home.join(PACK), spec, means)
    }

    fn create_packing(home: &Path, pack: &Path, spec: Spec, means: Means) -> Result<(Self, CloneReport)> {
        let json = serde_json::to_vec_pretty(&spec).map_err(|e| Error::corrupt(home, e.to_string()))?;
        let tree = home.join(TREE);
        std::fs::create_dir(&tree).map_err(|e| Error::io("create directory", &tree, e))?;
        let space = Self::assemble(home, spec, means)?;
        let pack = PackWriter::open(pack, space.spec.keep_base)?;
        let report = clone_tree(&CloneJob {
            source: &space.original,
            target: &space.copy,
            manifest: &home.join(BASE),
            filter: &space.filter,
            transfer: space.transfer(),
            pack: Some(&pack),
            threads: space.means.threads,
            progress: space.means.progress.as_ref(),
            cancel: &space.means.cancel,
        })?;
        durable::write(&home.join(SPEC), &json)?;
        Ok((space, report))
    }

    /// Opens the workspace at `home`.
    pub fn open(home: &Path, means: Means) -> Result<Self> {
        let path = home.join(SPEC);
        let json = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        let spec = serde_json::from_slice(&json).map_err(|e| Error::corrupt(&path, e.to_string()))?;
        Self::assemble(home, spec, means)
    }

    fn assemble(home: &Path, spec: Spec, means: Means) -> Result<Self> {
        Ok(Self {
            original: Root::open(&spec.original)?,
            copy: Root::open(home.join(TREE))?,
            filter: Filter::new(&spec.patterns)?,
            home: home.to_path_buf(),
            spec,
            means,
        })
    }

    /// Where to work.
    pub fn path(&self) -> PathBuf {
        let tree = self.home.join(TREE);
        match &self.spec.patterns.only {
            Some(name) => tree.join(name.as_path()),
            None => tree,
        }
    }

    fn transfer(&self) -> Transfer {
        if self.spec.reflink { Transfer::Reflink } else { Transfer::Bytes }
    }

    fn files(&self) -> CommitFiles {
        CommitFiles::new(&self.home)
    }

    fn base(&self) -> Result<Manifest> {
        Manifest::load(&self.home.join(BASE))
    }

    fn comparison<'a>(&'a self, manifest: &'a Manifest) -> Comparison<'a> {
        Comparison {
            original: &self.original,
            copy: &self.copy,
            manifest,
            filter: &self.filter,
            threads: self.means.threads,
            cancel: &self.means.cancel,
        }
    }

    /// The content of a file.
    pub fn read(&self, path: &RelPath) -> Result<Vec<u8>> {
        self.check_inside(path)?;
        let not_found = || Error::not_found("file", path.to_string());
        let parent = self.copy.find_parent(path)?.ok_or_else(not_found)?;
        let fd = open_regular(&parent, path)?.ok_or_else(not_found)?;
        let size = stamp_of_fd(&fd).map_err(|e| Error::io("examine", self.copy.shown(path), e))?.size;
        read_all(fd, size).map_err(|e| Error::io("read", self.copy.shown(path), e))
    }

    /// Replaces the content of a file, or makes it and the directories above it.
    pub fn write(&self, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.check_inside(path)?;
        let parent = match path.parent() {
            Some(parent) => self.copy.create_dirs(&parent, 0o777)?,
            None => self.copy.as_dir()?,
        };
        let workshop = self.workshop()?;
        replace_file((&workshop, "writing"), &parent, path, content)
    }

    /// Refuses paths that the patterns leave out: a write there would never be seen again.
    fn check_inside(&self, path: &RelPath) -> Result<()> {
        if self.filter.passes_all(path, false) {
            return Ok(());
        }
        Err(Error::refused(format!("{path} is not part of this workspace (its patterns leave it out)")))
    }

    fn workshop(&self) -> Result<Dir> {
        Root::open(&self.home)?.create_dirs(&RelPath::parse("workshop")?, 0o700)
    }

    /// Everything that differs from the base.
    pub fn diff(&self) -> Result<DiffView> {
        let base = self.base()?;
        Ok(differences(&self.comparison(&base))?.view())
    }

    /// The lock that a commit holds from before it looks until it is done.
    pub fn lock(&self) -> Result<ResourceLock> {
        let resource = match &self.spec.patterns.only {
            Some(name) => self.spec.original.join(name.as_path()),
            None => self.spec.original.clone(),
        };
        ResourceLock::acquire(&resource, self.means.lock_wait, &self.means.cancel)
    }

    /// Makes a commit ready. The caller holds the lock.
    pub fn prepare(&self, request: &CommitRequest, logged: &Logged) -> Result<CommitResult> {
        let files = self.files();
        if commit::is_decided(&files) {
            self.carry_out()?;
        }
        if let Some(operation) = &logged.operation
            && commit::load_undo(&files, operation)?.is_some()
        {
            return Err(Error::refused(format!("{operation} was carried out already")));
        }
        let journal = match &logged.undo {
            Some(undoes) => self.prepare_undo(request, undoes, logged)?,
            None => self.prepare_commit(request, logged)?,
        };
        if let Err(error) = journal.publish(&files.prepared()) {
            let _ = commit::abort(&files);
            return Err(error);
        }
        let Journal { digest, entries, notices, .. } = journal;
        Ok(CommitResult { digest, entries, notices, ..CommitResult::default() })
    }

    fn prepare_commit(&self, request: &CommitRequest, logged: &Logged) -> Result<Journal> {
        let (base, files) = (self.base()?, self.files());
        let operation = logged.operation.clone();
        let pack = PackWriter::open(&self.home.join(PACK), self.spec.keep_base)?;
        let job = Prepare {
            comparison: self.comparison(&base),
            files: &files,
            request,
            operation,
            pack: Some(&pack),
            workshop: &self.workshop()?,
        };
        commit::prepare(&job)
    }

    fn prepare_undo(&self, request: &CommitRequest, undoes: &OpId, logged: &Logged) -> Result<Journal> {
        commit::prepare_undo(&Revert {
            original: &self.original,
            manifest: &self.base()?,
            files: &self.files(),
            undoes,
            operation: logged.operation.clone(),
            digest: request.digest.as_ref(),
            cancel: &self.means.cancel,
        })
    }

    /// Makes what was prepared real; clears up where nothing was. The caller holds the lock. Where `logged` was finished
    /// before, it says again what it did.
    pub fn finish(&self, logged: &Logged) -> Result<CommitResult> {
        let files = self.files();
        commit::decide(&files)?;
        let decided = commit::is_decided(&files);
        let result = self.carry_out()?;
        match &logged.operation {
            Some(operation) if !decided => {
                Ok(commit::load_undo(&files, operation)?.map_or(result, Record::result))
            }
            _ => Ok(result),
        }
    }

    fn carry_out(&self) -> Result<CommitResult> {
        let copy = Settling { copy: &self.copy, workshop: &self.workshop()? };
        commit::finish(&self.files(), &self.original, &self.home.join(BASE), &copy)
    }

    /// Forgets how to take `operation` back.
    pub fn forget_undo(&self, operation: &OpId) -> Result<()> {
        commit::forget_undo(&self.files(), operation)
    }

    /// Forgets what was prepared, and what somebody was interrupted at writing.
    pub fn abort(&self) -> Result<()> {
        durable::discard_temporary(&self.home.join(BASE))?;
        commit::abort(&self.files())
    }

    /// The base again, within `scope`.
    pub fn rollback(&self, scope: &[RelPath]) -> Result<Restored> {
        let base = self.base()?;
        let transfer = self.transfer();
        let mut source = FromOriginal { original: &self.original, transfer, buffer: Vec::new() };
        let mut restored = restore(&self.comparison(&base), scope, &mut source, &self.workshop()?)?;
        self.flush(&restored)?;
        base.rewrite(std::mem::take(&mut restored.edits))?;
        Ok(restored)
    }

    /// Removes from the copy what can be had again from the original. Tells how many entries are work.
    pub fn park(&self) -> Result<usize> {
        let base = self.base()?;
        let parked = park::park(&self.home, &self.comparison(&base))?;
        Ok(parked.present.len() + parked.absent.len())
    }

    /// Puts the workspace at `home` together again from the original and what was parked. One that is not parked is
    /// left as it is; where it fails, it is parked as it was.
    pub fn unpark(home: &Path, means: Means) -> Result<Self> {
        Self::settle_unparking(home)?;
        if let Some(parked) = Parked::load(home)? {
            if let Err(error) = Self::put_together(home, &parked, &means) {
                // The first error is the one to tell; what is left is removed the next time.
                let _ = Self::settle_unparking(home);
                return Err(error);
            }
            Self::settle_unparking(home)?;
        }
        Self::open(home, means)
    }

    /// Makes a fresh copy of the original beside what is parked, with the work laid over it.
    fn put_together(home: &Path, parked: &Parked, means: &Means) -> Result<()> {
        let (fresh, _) = park::places(home);
        std::fs::create_dir(&fresh).map_err(|e| Error::io("create directory", &fresh, e))?;
        let space = Self::open(home, means.clone())?;
        // What is kept for merging goes on in the pack that is there: records of the old base point into it.
        let (renewed, _) = Self::create_packing(&fresh, &home.join(PACK), space.spec.clone(), means.clone())?;
        let assembly = Assembly {
            parked: &space.copy,
            manifest: &space.base()?,
            fresh: &renewed.copy,
            fresh_manifest: &fresh.join(BASE),
        };
        park::lay_over(&assembly, parked)?;
        // The only other copy of the work goes when this one is in its place.
        fs::syncfs(&renewed.copy).map_err(|e| Error::io("flush", &fresh, e))?;
        durable::write(&fresh.join(READY), b"")
    }

    /// Finishes an unparking that had everything ready when it was interrupted, and forgets one that had not.
    pub fn settle_unparking(home: &Path) -> Result<()> {
        let (fresh, old_tree) = park::places(home);
        if fresh.join(READY).exists() && Parked::load(home)?.is_some() {
            Self::change_places(home, &fresh, &old_tree)?;
            park::forget(home)?;
        }
        crate::remove_tree(&old_tree)?;
        crate::remove_tree(&fresh)
    }

    /// What is left to do is told by what is there.
    fn change_places(home: &Path, fresh: &Path, old_tree: &Path) -> Result<()> {
        let tree = home.join(TREE);
        if fresh.join(TREE).exists() {
            if tree.exists() && !old_tree.exists() {
                rename(&tree, old_tree)?;
            }
            rename(&fresh.join(TREE), &tree)?;
        }
        if fresh.join(BASE).exists() {
            rename(&fresh.join(BASE), &home.join(BASE))?;
        }
        durable::sync_dir(home)
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.home.join("checkpoints"))
    }

    /// Keeps the present state.
    pub fn checkpoint(&self, name: &str) -> Result<PathBuf> {
        let base = self.base()?;
        self.checkpoints().take(name, &self.comparison(&base))
    }

    /// Forgets a kept state, with what it alone holds.
    pub fn drop_checkpoint(&self, name: &str) -> Result<()> {
        self.checkpoints().drop(name)
    }

    /// Brings a kept state back.
    pub fn restore(&self, name: &str) -> Result<Restored> {
        let kept = self.checkpoints().load(name)?;
        let mut source = self.checkpoints().source()?;
        let restored = restore(&self.comparison(&kept), &[], &mut source, &self.workshop()?)?;
        self.flush(&restored)?;
        Ok(restored)
    }

    /// What was brought back has to be there after a power cut too: unflushed, its files would come back empty.
    fn flush(&self, restored: &Restored) -> Result<()> {
        if restored.count == 0 {
            return Ok(());
        }
        fs::syncfs(&self.copy).map_err(|e| Error::io("flush", self.copy.path(), e))
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename into place", to, e))
}

/// Opens a regular file; `None` where nothing is there. Links and pipes are refused, not followed.
pub fn open_regular(parent: &Dir, path: &RelPath) -> Result<Option<std::os::fd::OwnedFd>> {
    let shown = || parent.shown(path.name());
    let fd = match parent.try_open(path.name(), OFlags::RDONLY | OFlags::NONBLOCK, 0) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => {
            return Err(Error::Refused {
                reason: format!("{path} is a symbolic link, and links are not followed"),
                hint: Some("name the file that it points to".to_owned()),
            });
        }
        Err(e) => return Err(Error::io("open", shown(), e)),
    };
    let stamp = stamp_of_fd(&fd).map_err(|e| Error::io("examine", shown(), e))?;
    if stamp.is_file() { Ok(Some(fd)) } else { Err(Error::refused(format!("{path} is not a regular file"))) }
}

/// Replaces `path` in `parent` by a new file made in `workshop`, keeping mode, owner and attributes of the old one.
pub fn replace_file(
    (workshop, temporary): (&Dir, &str),
    parent: &Dir,
    path: &RelPath,
    content: &[u8],
) -> Result<Change> {
    let old = existing(parent, path)?;
    crate::remove_entry(workshop, temporary.as_bytes())?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let fd = workshop.open(temporary.as_bytes(), flags, 0o666, "create")?;
    let failed = |e| Error::io("write", parent.shown(path.name()), e);
    write_all(&fd, content).map_err(failed)?;
    // Cheap for what is written by hand, and right where the file is the resource's own.
    fs::fsync(&fd).map_err(failed)?;
    if let Some((stamp, xattrs)) = &old {
        let fresh = stamp_of_fd(&fd).map_err(failed)?;
        let meta = Meta { mtime: fresh.mtime, ..Meta::of(stamp, xattrs.clone()) };
        copy::finish_file(&fd, &meta).map_err(failed)?;
    }
    fs::renameat(workshop, temporary, parent, path.name()).map_err(failed)?;
    let kind = if old.is_some() { DiffKind::Modified } else { DiffKind::Created };
    let old_size = old.map(|(stamp, _)| stamp.size);
    Ok(Change { path: path.clone(), kind, old_size, new_size: content.len() as u64 })
}

fn existing(parent: &Dir, path: &RelPath) -> Result<Option<(Stamp, Xattrs)>> {
    let Some(fd) = open_regular(parent, path)? else { return Ok(None) };
    let failed = |e| Error::io("examine", parent.shown(path.name()), e);
    Ok(Some((stamp_of_fd(&fd).map_err(failed)?, xattrs::read(&fd).map_err(failed)?)))
}

/// Writes all of `content`.
pub(crate) fn write_all(fd: impl AsFd, content: &[u8]) -> rustix::io::Result<()> {
    let mut rest = content;
    while !rest.is_empty() {
        match rustix::io::write(&fd, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
