//! Carrying a journal out: idempotent, entry by entry, and never over somebody else's edit.
//!
//! Each step first looks at what is there. What is new already was done before a crash; what is still old is replaced, by an
//! exchange that is looked at once more afterwards, so that even an edit in the very moment is not lost; what is neither was edited
//! after the crash: it is left alone and the new content is put aside.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use sandboxer_core::model::{Conflict, NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::journal::{Dress, Journal, Outcome, Step};
use crate::copy::{Transfer, copy_file, timestamps};
use crate::list;
use crate::manifest::Edits;
use crate::pool;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

const SYNC_THREADS: usize = 8;

/// What becomes of a step that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The commit stops there. The next command continues it.
    #[default]
    Stop,
    /// The step is left out like one whose entry was changed in the original, and the commit ends.
    LeaveOut,
}

/// Carries out `journal` below `original`. New content that cannot be placed goes to `parking`.
pub fn apply(
    journal: &Journal,
    original: &Root,
    parking: &Path,
    on_failure: OnFailure,
) -> Result<(Outcome, Edits)> {
    let mut run = Run {
        original,
        on_failure,
        stage: Root::open(&journal.stage).ok(),
        parking,
        graves: journal.graves().and_then(|graves| Root::open(graves).ok()),
        prefix: journal.digest.rsplit(':').next().unwrap_or_default().chars().take(8).collect(),
        placed: placed(journal),
        outcome: Outcome::default(),
        edits: Edits::new(),
    };
    for (number, step) in journal.steps.iter().enumerate() {
        run.step(number, step)?;
    }
    sync_parents(journal, original)?;
    Ok((run.outcome, run.edits))
}

struct Run<'a> {
    original: &'a Root,
    on_failure: OnFailure,
    /// Gone where an earlier run got as far as removing it: then every step was done.
    stage: Option<Root>,
    parking: &'a Path,
    /// Where somebody still needs directories that are removed.
    graves: Option<Root>,
    /// Tells the parked files of this commit from those of others.
    prefix: String,
    /// What comes to each path.
    placed: HashMap<&'a RelPath, &'a Stamp>,
    outcome: Outcome,
    edits: Edits,
}

fn placed(journal: &Journal) -> HashMap<&RelPath, &Stamp> {
    let steps = journal.steps.iter();
    steps
        .filter_map(|step| if let Step::Place { path, new, .. } = step { Some((path, new)) } else { None })
        .collect()
}

/// What a step found.
enum Done {
    Yes,
    No(Cow<'static, str>),
}

impl Done {
    fn no(reason: &'static str) -> Self {
        Self::No(Cow::Borrowed(reason))
    }
}

impl Run<'_> {
    fn step(&mut self, number: usize, step: &Step) -> Result<()> {
        let done = match step {
            Step::Delete { path, old } => self.delete(number, path, old),
            Step::Place { path, staged, old, new, .. } => self.place(path, staged, old.as_ref(), new),
            Step::Dress { path, old, dress, .. } => self.dress(path, old, dress),
        };
        match done {
            Ok(Done::Yes) => self.record(step),
            Ok(Done::No(reason)) => self.conflict(step, &reason),
            Err(error) if self.on_failure == OnFailure::LeaveOut => self.conflict(step, &error.in_full()),
            Err(error) => Err(error),
        }
    }

    /// The base from now on.
    fn record(&mut self, step: &Step) -> Result<()> {
        let edit = match step {
            Step::Delete { .. } => None,
            Step::Place { path, entry, .. } | Step::Dress { path, entry, .. } => {
                let mut entry = entry.clone();
                if entry.base.is_none() {
                    entry.base = self.base_after(step, path)?;
                }
                Some(entry)
            }
        };
        self.edits.insert(step.path().clone(), edit);
        Ok(())
    }

    /// The stamp of what a step has put there; of what it meant to put there, where somebody has written to it since: then
    /// the next commit finds that out.
    fn base_after(&self, step: &Step, path: &RelPath) -> Result<Option<Stamp>> {
        let Some(now) = self.original.stamp(path)? else { return Ok(None) };
        let (meant, as_meant) = match step {
            Step::Place { new, .. } => (*new, now.same_inode(new) && now.same_state(new)),
            Step::Dress { old, .. } => {
                (*old, now.same_inode(old) && (now.size, now.mtime) == (old.size, old.mtime))
            }
            Step::Delete { .. } => return Ok(Some(now)),
        };
        Ok(Some(if now.is_dir() || as_meant { now } else { meant }))
    }

    fn conflict(&mut self, step: &Step, reason: &str) -> Result<()> {
        let parked = match step {
            Step::Place { path, staged, new, .. } if new.is_file() => self.park(path, staged)?,
            _ => None,
        };
        let (path, reason) = (step.path().clone(), reason.to_owned());
        let parked = parked.map(|p| p.to_string_lossy().into_owned());
        self.outcome.conflicts.push(Conflict { parked, ..Conflict::new(path, reason) });
        Ok(())
    }

    /// Puts the new content aside, durably. What was put aside before a crash is there already.
    fn park(&self, path: &RelPath, staged: &str) -> Result<Option<PathBuf>> {
        std::fs::create_dir_all(self.parking).map_err(|e| Error::io("create directory", self.parking, e))?;
        let shown: String = String::from_utf8_lossy(path.name()).chars().take(60).collect();
        let name = format!("{}-{staged}-{shown}", self.prefix);
        let parked = self.parking.join(&name);
        let Some(stage) = &self.stage else { return Ok(Some(parked).filter(|p| p.exists())) };
        let to = Root::open(self.parking)?.as_dir()?;
        let temporary = format!("{name}.new");
        crate::remove_entry(&to, temporary.as_bytes())?;
        let (from, mut buffer) = (stage.as_dir()?, Vec::new());
        copy_file((&from, staged.as_bytes()), (&to, temporary.as_bytes()), Transfer::Prefer, &mut buffer)?;
        let failed = |e| Error::io("park", &parked, e);
        fs::fsync(to.open_file(temporary.as_bytes())?).map_err(failed)?;
        fs::renameat(&to, temporary.as_str(), &to, name.as_str()).map_err(failed)?;
        to.sync()?;
        Ok(Some(parked))
    }

    fn delete(&self, number: usize, path: &RelPath, old: &Stamp) -> Result<Done> {
        let aside = format!("gone-{number}");
        let Some(parent) = self.original.find_parent(path)? else { return Ok(Done::Yes) };
        let Some(now) = parent.stamp(path.name())? else {
            return self.look_aside(&aside, &parent, path, old);
        };
        if now.is_dir() && old.is_dir() {
            return match &self.graves {
                Some(graves) => self.bury(&parent, path, &now, graves),
                None => remove_dir(&parent, path.name()),
            };
        }
        // A directory that made way for something else, before a crash.
        if old.is_dir() && self.placed.get(path).is_some_and(|new| now.same_inode(new)) {
            return Ok(Done::Yes);
        }
        if !is_old(&now, old) {
            return Ok(Done::no("changed in the original after the commit began"));
        }
        let Some(stage) = &self.stage else { return parent.remove(path.name(), false).map(|()| Done::Yes) };
        // Moved aside first and looked at again there: an edit between the look and the removal shows itself.
        let moved = fs::renameat(&parent, path.name(), stage, aside.as_str());
        moved.map_err(|e| Error::io("remove", self.original.shown(path), e))?;
        self.look_aside(&aside, &parent, path, old)
    }

    /// Moves an empty directory to where it stays for those who still look at it.
    fn bury(&self, parent: &Dir, path: &RelPath, now: &Stamp, graves: &Root) -> Result<Done> {
        let failed = |e| Error::io("remove directory", self.original.shown(path), e);
        if !is_empty(parent, path.name())? {
            return Ok(Done::no(NOT_EMPTY));
        }
        // Nothing else on this filesystem has that number, for as long as the directory lies there.
        let grave = now.ino.to_string();
        fs::renameat(parent, path.name(), graves, grave.as_str()).map_err(failed)?;
        if is_empty(&graves.as_dir()?, grave.as_bytes())? {
            return Ok(Done::Yes);
        }
        // Something came between the look and the move.
        let back = fs::renameat_with(graves, grave.as_str(), parent, path.name(), RenameFlags::NOREPLACE);
        back.map_err(|e| Error::io("put back", self.original.shown(path), e))?;
        Ok(Done::no(NOT_EMPTY))
    }

    /// Whether what was moved aside, now or before a crash, is what was meant; if not, it goes back.
    fn look_aside(&self, aside: &str, parent: &Dir, path: &RelPath, old: &Stamp) -> Result<Done> {
        let Some(stage) = &self.stage else { return Ok(Done::Yes) };
        let Some(found) = stage.as_dir()?.stamp(aside.as_bytes())? else { return Ok(Done::Yes) };
        if found.same_inode(old) && found.same_state(old) {
            return Ok(Done::Yes);
        }
        let back = fs::renameat_with(stage, aside, parent, path.name(), RenameFlags::NOREPLACE);
        back.map_err(|e| Error::io("put back", self.original.shown(path), e))?;
        Ok(Done::no("changed in the original while it was being removed"))
    }

    fn place(&self, path: &RelPath, staged: &str, old: Option<&Stamp>, new: &Stamp) -> Result<Done> {
        let Some(parent) = self.original.find_parent(path)? else {
            return Ok(Done::no("its directory is gone from the original"));
        };
        let now = parent.stamp(path.name())?;
        let both_directories = |now: &Stamp| old.is_none() && now.is_dir() && new.is_dir();
        if now.is_some_and(|now| both_directories(&now)) {
            return Ok(Done::Yes);
        }
        if now.is_some_and(|now| now.same_inode(new) && is_new(&now, new)) {
            return self.look_behind(staged, &parent, path, old);
        }
        let Some(stage) = &self.stage else {
            return Ok(Done::no("changed in the original after it was committed"));
        };
        let stage = stage.as_dir()?;
        match (now, old) {
            (None, None) => self.put_new(&stage, staged, &parent, path),
            (Some(now), Some(old)) if is_old(&now, old) => self.exchange(&stage, staged, &parent, path, old),
            (None, Some(_)) => Ok(Done::no("deleted in the original after the commit began")),
            (Some(_), None) => Ok(Done::no("created in the original after the commit began")),
            (Some(_), Some(_)) => Ok(Done::no("changed in the original after the commit began")),
        }
    }

    /// Whether what an exchange brought out, now or before a crash, is what was meant; if not, it goes back.
    fn look_behind(&self, staged: &str, parent: &Dir, path: &RelPath, old: Option<&Stamp>) -> Result<Done> {
        let (Some(stage), Some(old)) = (&self.stage, old) else { return Ok(Done::Yes) };
        let found = stage.as_dir()?.stamp(staged.as_bytes())?;
        if found.is_none_or(|found| found.same_inode(old) && found.same_state(old)) {
            return Ok(Done::Yes);
        }
        fs::renameat_with(stage, staged, parent, path.name(), RenameFlags::EXCHANGE)
            .map_err(|e| Error::io("put back", self.original.shown(path), e))?;
        Ok(Done::no("changed in the original while it was being replaced"))
    }

    fn put_new(&self, stage: &Dir, staged: &str, parent: &Dir, path: &RelPath) -> Result<Done> {
        match fs::renameat_with(stage, staged, parent, path.name(), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Done::Yes),
            Err(Errno::EXIST) => Ok(Done::no("created in the original after the commit began")),
            Err(e) if cannot_flag(e) => self.rename_plainly(stage, staged, parent, path),
            Err(e) => Err(Error::io("put in place", self.original.shown(path), e)),
        }
    }

    fn exchange(&self, stage: &Dir, staged: &str, parent: &Dir, path: &RelPath, old: &Stamp) -> Result<Done> {
        match fs::renameat_with(stage, staged, parent, path.name(), RenameFlags::EXCHANGE) {
            Ok(()) => self.look_behind(staged, parent, path, Some(old)),
            Err(e) if cannot_flag(e) => self.rename_plainly(stage, staged, parent, path),
            Err(e) => Err(Error::io("put in place", self.original.shown(path), e)),
        }
    }

    /// For filesystems that cannot exchange: the look before is all there is. What was there keeps a name on the stage, so
    /// that it can come back; a directory does not go over a file, so one of another type is moved there.
    fn rename_plainly(&self, stage: &Dir, staged: &str, parent: &Dir, path: &RelPath) -> Result<Done> {
        let failed = |e| Error::io("put in place", self.original.shown(path), e);
        let was = format!("was-{staged}");
        match (stage.stamp(staged.as_bytes())?, parent.stamp(path.name())?) {
            (Some(new), Some(old)) if new.node_type() != old.node_type() => {
                fs::renameat(parent, path.name(), stage, was.as_str()).map_err(failed)?;
            }
            // Where it cannot be linked either, the commit cannot be taken back, and its record says so.
            (_, Some(_)) => drop(fs::linkat(parent, path.name(), stage, was.as_str(), AtFlags::empty())),
            (_, None) => {}
        }
        fs::renameat(stage, staged, parent, path.name()).map_err(failed)?;
        Ok(Done::Yes)
    }

    fn dress(&self, path: &RelPath, old: &Stamp, dress: &Dress) -> Result<Done> {
        let Some(parent) = self.original.find_parent(path)? else {
            return Ok(Done::no("its directory is gone from the original"));
        };
        let now = parent.stamp(path.name())?;
        let same = now.filter(|now| now.same_inode(old) && now.node_type() == old.node_type());
        let Some(now) = same else { return Ok(Done::no("replaced in the original after the commit began")) };
        if now.is_file() && (now.size, now.mtime) != (old.size, old.mtime) {
            return Ok(Done::no("changed in the original after the commit began"));
        }
        if now.node_type() != NodeType::Symlink && !lawful_modes(old, dress).contains(&now.permissions()) {
            return Ok(Done::no("given another mode in the original after the commit began"));
        }
        let step = |e| Error::io("set attributes of", self.original.shown(path), e);
        dress_entry(&parent, path.name(), now.node_type(), dress).map_err(step)?;
        Ok(Done::Yes)
    }
}

fn is_empty(parent: &Dir, name: &[u8]) -> Result<bool> {
    Ok(list::names_and_types(&parent.dir(name)?)?.is_empty())
}

/// Whether a filesystem, or a kernel, knows renames only without flags.
pub(super) fn cannot_flag(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// What the owner needs for changing attributes.
const OWNER: u32 = 0o600;

/// The modes that an entry may have on the way from one to the other.
fn lawful_modes(old: &Stamp, dress: &Dress) -> [u32; 3] {
    [old.permissions(), dress.mode, dress.mode | OWNER]
}

/// Opens what is to be dressed; what even its owner cannot read is made readable for the moment, through a descriptor of
/// the very entry and not through its name.
fn open_to_dress(parent: &Dir, name: &[u8], dress: &Dress) -> rustix::io::Result<OwnedFd> {
    let open = || parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0);
    match open() {
        Err(Errno::ACCESS) => {
            let entry = parent.try_open(name, OFlags::PATH, 0)?;
            let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
            fs::chmod(path, Mode::from_raw_mode(dress.mode | OWNER))?;
            open()
        }
        opened => opened,
    }
}

fn dress_entry(parent: &Dir, name: &[u8], node_type: NodeType, dress: &Dress) -> rustix::io::Result<()> {
    if let Some((uid, gid)) = dress.owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if node_type == NodeType::Symlink {
        return Ok(());
    }
    let fd = open_to_dress(parent, name, dress)?;
    xattrs::replace(&fd, &dress.xattrs).or_else(|e| match e {
        // A read-only file takes no attributes: writable for the moment.
        Errno::ACCESS => {
            fs::fchmod(&fd, Mode::from_raw_mode(dress.mode | OWNER))?;
            xattrs::replace(&fd, &dress.xattrs)
        }
        other => Err(other),
    })?;
    fs::fchmod(&fd, Mode::from_raw_mode(dress.mode))?;
    if let Some(mtime) = dress.mtime {
        fs::futimens(&fd, &timestamps(mtime))?;
    }
    fs::fsync(&fd)
}

/// Untouched, or, for a file with several names, as it was but for the count of them that earlier steps changed.
fn is_old(now: &Stamp, old: &Stamp) -> bool {
    old.untouched(now) || (old.nlink > 1 && old.same_inode(now) && old.same_state(now))
}

/// A directory's time and size move as entries are put into it; for all else the state is what was staged.
fn is_new(now: &Stamp, new: &Stamp) -> bool {
    (now.is_dir() && new.is_dir()) || now.same_state(new)
}

const NOT_EMPTY: &str = "holds entries in the original that the sandbox does not know";

fn remove_dir(parent: &Dir, name: &[u8]) -> Result<Done> {
    match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Done::Yes),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Done::no(NOT_EMPTY)),
        Err(e) => Err(Error::io("remove directory", parent.shown(name), e)),
    }
}

/// Flushes every directory in which something was put or removed.
fn sync_parents(journal: &Journal, original: &Root) -> Result<()> {
    let parents: BTreeSet<_> = journal.steps.iter().map(|s| s.path().parent()).collect();
    let threads = SYNC_THREADS.min(parents.len()).max(1);
    pool::work(
        threads,
        parents.into_iter().collect(),
        || (),
        |(), parent, _| {
            let dir = match &parent {
                None => Some(original.as_dir()?),
                Some(path) => original.open_dir(path).ok(),
            };
            dir.map_or(Ok(()), |dir| dir.sync())
        },
    )?;
    Ok(())
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
