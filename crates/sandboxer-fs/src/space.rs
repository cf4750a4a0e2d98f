//! A workspace of files: an original, the tree that is worked in, and the verbs that a strategy needs.
//!
//! How the tree is kept apart from the original is a copy's affair ([`crate::tree`]) or an overlay's ([`crate::overlay`]); reading,
//! writing, comparing and committing are the same for both, over a [`Base`] that each of them has in its own way.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use sandboxer_core::contract::{CancelFlag, NoProgress, Progress};
use sandboxer_core::model::{
    Change, CommitRequest, CommitResult, Conflict, DiffEntry, DiffKind, DiffView, OpId, Range, RelPath,
};
use sandboxer_core::{Error, Result};

use crate::base::{Base, PACK};
use crate::commit::{self, CommitFiles, Journal, OnFailure, Prepare, Record, Revert, Settling};
use crate::content::read_regular;
use crate::copy::{self, Meta};
use crate::diff::{Comparison, differences};
use crate::filter::{Filter, RESERVED};
use crate::hash::ContentHash;
use crate::lock::ResourceLock;
use crate::pack::PackWriter;
use crate::pool;
use crate::root::{Dir, Root, stamp_of_fd};
use crate::stamp::Stamp;
use crate::xattrs::{self, Xattrs};

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
    /// Who else looks at the original.
    pub neighbours: Arc<dyn Neighbours>,
    /// What the original's own history knows, where it has one.
    pub history: Option<Arc<dyn History>>,
}

impl Default for Means {
    fn default() -> Self {
        Self {
            threads: pool::default_threads(),
            lock_wait: Duration::from_secs(10),
            progress: Arc::new(NoProgress),
            cancel: CancelFlag::default(),
            neighbours: Arc::new(Nobody),
            history: None,
        }
    }
}

/// The original's own history: it knows what was put there on purpose, and what was there before.
pub trait History: Send + Sync {
    /// For each of `entries`: what is in the way of its commit, and why. Where nothing is, what the original has there is safe in its history, and a
    /// change of both sides may be merged unasked.
    fn in_the_way(&self, entries: &[DiffEntry]) -> Result<Vec<Option<Conflict>>>;

    /// Whether it has something else at `path` now than it had when the sandbox was made.
    fn has_moved(&self, path: &RelPath) -> Result<bool>;

    /// The content that the sandbox was made from at `path`, if that is known.
    fn base(&self, path: &RelPath) -> Result<Option<Vec<u8>>>;

    /// Keeps content of the base that a difference was made against, for whoever shows it.
    fn keep(&self, _hash: ContentHash, _content: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Workspaces that look through to the same original, and go on seeing what they saw when a commit changes it.
pub trait Neighbours: Send + Sync {
    /// Called before the commit of the workspace at `committer` is decided. An error stops it.
    fn keep_old(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()>;

    /// Called when a decided commit has been carried out, and again if that was interrupted.
    fn hide_new(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()>;
}

/// Nobody else looks.
pub struct Nobody;

impl Neighbours for Nobody {
    fn keep_old(&self, _: &Path, _: &Root, _: &Journal) -> Result<()> {
        Ok(())
    }

    fn hide_new(&self, _: &Path, _: &Root, _: &Journal) -> Result<()> {
        Ok(())
    }
}

/// Under which names a commit is kept.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    /// What it is logged as; without, it cannot be taken back.
    pub operation: Option<OpId>,
    /// The operation that it takes back, if that is what it does.
    pub undo: Option<OpId>,
    /// What becomes of a step that fails when it is applied.
    pub on_failure: OnFailure,
}

/// Where files are made before they take their place: on the filesystem of the tree that is worked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workshop {
    /// In the workspace's own directory.
    Beside,
    /// In the tree, under a name that is never part of a difference, and only for as long as it is needed.
    Inside,
}

/// The name of the workshop in a tree.
fn workshop_inside() -> Result<RelPath> {
    Ok(RelPath::single(&[RESERVED, b"workshop"].concat())?)
}

/// An original and the tree that is worked in.
pub struct Pair {
    /// The workspace's own directory.
    pub home: PathBuf,
    /// The resource itself: what is locked.
    pub resource: PathBuf,
    /// The directory that is isolated (a single file's parent).
    pub original: Root,
    /// The tree that is worked in.
    pub copy: Root,
    /// What of it is in the sandbox.
    pub filter: Filter,
    /// What of that a difference shows and a commit takes.
    pub shown: Filter,
    /// How the work is done.
    pub means: Means,
    /// How many bytes of base content are kept for merging.
    pub keep_base: u64,
    /// Where files are made.
    pub workshop: Workshop,
}

impl Pair {
    /// The files that its commits use.
    pub fn files(&self) -> CommitFiles {
        CommitFiles::new(&self.home)
    }

    /// The two trees, compared by way of `base`.
    pub fn comparison<'a>(&'a self, base: &'a dyn Base) -> Comparison<'a> {
        self.compare_within(&self.filter, base)
    }

    /// The same, of what is shown.
    pub fn shown<'a>(&'a self, base: &'a dyn Base) -> Comparison<'a> {
        self.compare_within(&self.shown, base)
    }

    fn compare_within<'a>(&'a self, filter: &'a Filter, base: &'a dyn Base) -> Comparison<'a> {
        Comparison {
            original: &self.original,
            copy: &self.copy,
            base,
            filter,
            threads: self.means.threads,
            cancel: &self.means.cancel,
            history: self.means.history.as_deref(),
        }
    }

    /// Lets `work` make files in the workshop.
    pub fn with_workshop<T>(&self, work: impl FnOnce(&Dir) -> Result<T>) -> Result<T> {
        if self.workshop == Workshop::Beside {
            return work(&Root::open(&self.home)?.create_dirs(&RelPath::parse("workshop")?, 0o700)?);
        }
        self.clear_workshop()?;
        let done = work(&self.copy.create_dirs(&workshop_inside()?, 0o700)?);
        self.clear_workshop()?;
        done
    }

    /// Removes from the tree what a killed command left in the workshop there, or a program put there.
    fn clear_workshop(&self) -> Result<()> {
        match self.workshop {
            Workshop::Inside => crate::remove_below(&self.copy, &workshop_inside()?),
            Workshop::Beside => Ok(()),
        }
    }

    /// Refuses paths that the patterns leave out: a write there would never be seen again.
    fn check_inside(&self, path: &RelPath) -> Result<()> {
        if self.filter.passes_all(path, false) {
            return Ok(());
        }
        Err(Error::refused(format!("{path} is not part of this workspace (its patterns leave it out)")))
    }
}

/// A workspace of files, however its tree is kept apart.
pub trait Space {
    /// Its trees.
    fn pair(&self) -> &Pair;

    /// Its trees, to be set up otherwise before anything is done.
    fn pair_mut(&mut self) -> &mut Pair;

    /// Its base, as it is written down now.
    fn base(&self) -> Result<Box<dyn Base + '_>>;

    /// Refuses if another directory is at the original's path than the one that the workspace was made from. By default, any will do.
    fn check_original(&self) -> Result<()> {
        Ok(())
    }

    /// The content of a file.
    fn read(&self, path: &RelPath) -> Result<Vec<u8>> {
        self.read_within(path, None)
    }

    /// The content of a file, or what of it is within `range`.
    fn read_within(&self, path: &RelPath, range: Option<Range>) -> Result<Vec<u8>> {
        self.pair().check_inside(path)?;
        read_regular(&self.pair().copy, path, range)
    }

    /// Replaces the content of a file, or makes it and the directories above it.
    fn write(&self, path: &RelPath, content: &[u8]) -> Result<Change> {
        replace_in(self.pair(), path, content)
    }

    /// Everything that differs from the base.
    fn diff(&self) -> Result<DiffView> {
        let base = self.base()?;
        Ok(differences(&self.pair().shown(base.as_ref()))?.view())
    }

    /// The lock that a commit holds from before it looks until it is done.
    fn lock(&self) -> Result<ResourceLock> {
        let Pair { resource, means, .. } = self.pair();
        ResourceLock::acquire(resource, means.lock_wait, &means.cancel)
    }

    /// Makes a commit ready. The caller holds the lock.
    fn prepare(&self, request: &CommitRequest, logged: &Logged) -> Result<CommitResult> {
        self.check_original()?;
        let files = self.pair().files();
        if commit::is_decided(&files) {
            self.carry_out(OnFailure::Stop)?;
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
        let published = commit::refuse_fixed(&self.pair().original, &journal)
            .and_then(|()| journal.publish(&files.prepared()));
        if let Err(error) = published {
            let _ = commit::abort(&files);
            return Err(error);
        }
        let Journal { digest, entries, notices, .. } = journal;
        Ok(CommitResult { digest, entries, notices, ..CommitResult::default() })
    }

    /// A part of [`Space::prepare`].
    fn prepare_commit(&self, request: &CommitRequest, logged: &Logged) -> Result<Journal> {
        let (pair, base) = (self.pair(), self.base()?);
        let files = pair.files();
        let operation = logged.operation.clone();
        let pack = PackWriter::open(&pair.home.join(PACK), pair.keep_base)?;
        pair.with_workshop(|workshop| {
            commit::prepare(&Prepare {
                comparison: pair.shown(base.as_ref()),
                files: &files,
                request,
                operation,
                pack: Some(&pack),
                workshop,
                history: pair.means.history.as_deref(),
            })
        })
    }

    /// A part of [`Space::prepare`].
    fn prepare_undo(&self, request: &CommitRequest, undoes: &OpId, logged: &Logged) -> Result<Journal> {
        commit::prepare_undo(&Revert {
            original: &self.pair().original,
            base: self.base()?.as_ref(),
            files: &self.pair().files(),
            undoes,
            operation: logged.operation.clone(),
            digest: request.digest.as_ref(),
            cancel: &self.pair().means.cancel,
        })
    }

    /// Makes what was prepared real; clears up where nothing was. The caller holds the lock. Where `logged` was finished
    /// before, it says again what it did.
    fn finish(&self, logged: &Logged) -> Result<CommitResult> {
        finish(self, logged)
    }

    /// Called when a decided commit has been carried out, and again if that was interrupted.
    fn applied(&self, _journal: &Journal) -> Result<()> {
        Ok(())
    }

    /// Carries out a decided commit; clears up where there is none.
    fn carry_out(&self, on_failure: OnFailure) -> Result<CommitResult> {
        let pair = self.pair();
        let files = pair.files();
        if !commit::is_decided(&files) {
            pair.clear_workshop()?;
            return commit::clear(&files).map(|()| CommitResult::default());
        }
        let base = self.base()?;
        let applied = |journal: &Journal| {
            self.applied(journal)?;
            pair.means.neighbours.hide_new(&pair.home, &pair.original, journal)
        };
        pair.with_workshop(|workshop| {
            let copy = Settling { copy: &pair.copy, workshop };
            commit::finish(&files, &pair.original, base.as_ref(), &copy, &applied, on_failure)
        })
    }

    /// Forgets how to take `operation` back.
    fn forget_undo(&self, operation: &OpId) -> Result<()> {
        commit::forget_undo(&self.pair().files(), operation)
    }

    /// Forgets what was prepared.
    fn abort(&self) -> Result<()> {
        self.pair().clear_workshop()?;
        commit::abort(&self.pair().files())
    }
}

/// See [`Space::finish`].
pub(crate) fn finish<S: Space + ?Sized>(space: &S, logged: &Logged) -> Result<CommitResult> {
    let Pair { home, original, means, .. } = space.pair();
    let files = space.pair().files();
    if let Some(prepared) = Journal::load(&files.prepared())? {
        means.neighbours.keep_old(home, original, &prepared)?;
    }
    commit::decide(&files)?;
    let decided = commit::is_decided(&files);
    let result = space.carry_out(logged.on_failure)?;
    match &logged.operation {
        Some(operation) if !decided => {
            Ok(commit::load_undo(&files, operation)?.map_or(result, Record::result))
        }
        _ => Ok(result),
    }
}

/// Replaces the content of a file of the tree that is worked in.
pub(crate) fn replace_in(pair: &Pair, path: &RelPath, content: &[u8]) -> Result<Change> {
    pair.check_inside(path)?;
    let parent = match path.parent() {
        Some(parent) => pair.copy.create_dirs(&parent, 0o777)?,
        None => pair.copy.as_dir()?,
    };
    pair.with_workshop(|workshop| replace_file((workshop, "writing"), &parent, path, content))
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
