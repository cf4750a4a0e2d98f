//! What takes a commit back: the entries that it displaced, and a record of what was where before and after.
//!
//! Applying a journal exchanges inodes, so what was displaced lies on the stage when all is done. The stage as a whole becomes
//! `undo/<operation>/` by one rename; only a stage on another filesystem is copied. The record doubles as proof that the operation
//! was carried out.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use rustix::fs::{self, OFlags};
use sandboxer_core::model::{CommitResult, Conflict, DiffEntry, Notice, OpId, RelPath};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::CommitFiles;
use super::journal::{self, Journal, NOTHING, Outcome, Step};
use super::stage::Stage;
use crate::clone::make_link;
use crate::copy::{Transfer, copy_file, hash_fd};
use crate::durable;
use crate::hash::ContentHash;
use crate::list;
use crate::manifest::{Edits, Entry};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;

const RECORD: &str = "record";

/// What an operation did to the original.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Digest of what was committed.
    pub digest: String,
    /// What was committed.
    #[serde(with = "journal::as_json")]
    pub entries: Vec<DiffEntry>,
    /// What was altered on the way.
    pub notices: Vec<Notice>,
    /// Path by path.
    pub touched: Vec<Touched>,
    /// Why it cannot be taken back, if it cannot.
    pub lost: Option<String>,
    /// What was left alone because somebody had edited it after the decision.
    #[serde(with = "journal::as_json")]
    pub conflicts: Vec<Conflict>,
    /// What is kept takes on disk.
    pub bytes: u64,
}

/// One path that an operation changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Touched {
    /// Where.
    pub path: RelPath,
    /// The base's entry before; `None` where nothing was there.
    pub before: Option<Entry>,
    /// The base's entry after.
    pub after: Option<Entry>,
    /// What was displaced, beside the record.
    pub kept: Option<Kept>,
    /// What the operation found there: the base as a rule, or what it was told to go over.
    pub found: Option<Stamp>,
}

impl Touched {
    /// The hash of what is kept, if it is known: what was gone over was never the base, and nobody read it.
    pub fn kept_hash(&self) -> Option<ContentHash> {
        self.before.as_ref().filter(|_| self.found_base()).and_then(|before| before.hash)
    }

    /// Whether what was there before was the base. If not, taking the operation back must leave that to be seen.
    pub fn found_base(&self) -> bool {
        match (self.before.as_ref().and_then(|b| b.base), &self.found) {
            (Some(base), _) if !base.is_known() => false,
            (Some(base), Some(found)) if base.is_dir() => found.is_dir() && base.mode == found.mode,
            (Some(base), Some(found)) => base.same_inode(found) && base.same_state(found),
            (base, found) => base.is_none() && found.is_none(),
        }
    }
}

/// A displaced entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its name beside the record.
    pub name: String,
    /// What it is.
    pub stamp: Stamp,
}

impl Record {
    /// What the operation answered.
    pub fn result(self) -> CommitResult {
        let undo_bytes = Some(self.bytes).filter(|_| self.lost.is_none());
        let Self { digest, entries, notices, conflicts, .. } = self;
        CommitResult { digest, entries, notices, conflicts, undo_bytes, ..CommitResult::default() }
    }
}

/// Where what takes `operation` back is kept.
pub fn place_of(files: &CommitFiles, operation: &OpId) -> Result<PathBuf> {
    let name = operation.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 200 || !name.chars().all(plain) {
        return Err(Error::usage(format!("{name:?} is no operation")));
    }
    Ok(files.undo().join(name))
}

/// The record of `operation`; `None` where nothing is kept of it.
pub fn load(files: &CommitFiles, operation: &OpId) -> Result<Option<Record>> {
    journal::load(&place_of(files, operation)?.join(RECORD))
}

/// Forgets how to take `operation` back.
pub fn forget(files: &CommitFiles, operation: &OpId) -> Result<()> {
    crate::remove_tree(&place_of(files, operation)?)
}

/// What a commit displaced, as it is kept.
#[derive(Default)]
pub struct Shelved {
    kept: HashMap<RelPath, Kept>,
    lost: Option<String>,
}

/// Puts away what the journal's steps displaced, or throws it away where nobody can ask for it back.
pub fn shelve(journal: &Journal, files: &CommitFiles) -> Result<Shelved> {
    let Some(operation) = &journal.operation else {
        Stage::discard(&journal.stage)?;
        return Ok(Shelved::default());
    };
    let place = place_of(files, operation)?;
    if let Ok(stage) = Root::open(&journal.stage) {
        // Keeping is a service: the commit itself is done, and must not fail for want of room.
        if let Err(error) = put_away(journal, &stage, &place) {
            crate::remove_tree(&place)?;
            Stage::discard(&journal.stage)?;
            let lost = Some(format!("what it replaced could not be kept: {error}"));
            return Ok(Shelved { lost, ..Shelved::default() });
        }
    }
    find_kept(journal, &place)
}

fn put_away(journal: &Journal, stage: &Root, place: &Path) -> Result<()> {
    let dir = stage.as_dir()?;
    let wanted: HashSet<Vec<u8>> =
        displaced(journal, &dir)?.into_iter().map(|(_, name)| name.into_bytes()).collect();
    for listed in list::sorted(&dir)?.into_iter().filter(|l| !wanted.contains(&l.name)) {
        crate::remove_entry(&dir, &listed.name)?;
    }
    let undo = place.parent().unwrap_or(place);
    std::fs::create_dir_all(undo).map_err(|e| Error::io("create directory", undo, e))?;
    crate::remove_tree(place)?;
    if journal.stage.parent() == undo.parent() {
        wanted.iter().try_for_each(|name| separate(&dir, name))?;
        std::fs::rename(&journal.stage, place).map_err(|e| Error::io("keep", place, e))?;
        return durable::sync_dir(undo);
    }
    copy_out(&dir, &wanted, place)?;
    Stage::discard(&journal.stage)
}

/// The names on the stage of what each path had, as far as it is there.
fn displaced(journal: &Journal, stage: &Dir) -> Result<Vec<(RelPath, String)>> {
    let mut found = Vec::new();
    for (number, step) in journal.steps.iter().enumerate() {
        let (old, names) = match step {
            Step::Delete { old, .. } => (old, vec![format!("gone-{number}")]),
            Step::Place { old: Some(old), staged, .. } => {
                (old, vec![staged.clone(), format!("was-{staged}")])
            }
            _ => continue,
        };
        for name in names.into_iter().filter(|_| !old.is_dir()) {
            let is_it = |stamp: Stamp| stamp.node_type() == old.node_type() && stamp.same_state(old);
            if stage.stamp(name.as_bytes())?.is_some_and(is_it) {
                found.push((step.path().clone(), name));
                break;
            }
        }
    }
    Ok(found)
}

/// A displaced file with other names in the original is copied: whoever writes to it there must not write to it here.
fn separate(dir: &Dir, name: &[u8]) -> Result<()> {
    if !dir.stamp(name)?.is_some_and(|stamp| stamp.is_file() && stamp.nlink > 1) {
        return Ok(());
    }
    let temporary = b"separate";
    crate::remove_entry(dir, temporary)?;
    copy_file((dir, name), (dir, temporary), Transfer::Prefer, &mut Vec::new())?;
    fs::renameat(dir, temporary.as_slice(), dir, name).map_err(|e| Error::io("keep", dir.shown(name), e))
}

fn copy_out(from: &Dir, names: &HashSet<Vec<u8>>, place: &Path) -> Result<()> {
    std::fs::create_dir(place).map_err(|e| Error::io("create directory", place, e))?;
    let (root, mut buffer) = (Root::open(place)?, Vec::new());
    let to = root.as_dir()?;
    for name in names {
        match from.stamp(name)? {
            Some(stamp) if stamp.is_file() => {
                copy_file((from, name), (&to, name), Transfer::Prefer, &mut buffer)?;
            }
            Some(stamp) => drop(make_link(&to, name, &from.read_link(name)?, &stamp)?),
            None => {}
        }
    }
    // One flush for all of them.
    fs::syncfs(&root).map_err(|e| Error::io("flush", place, e))
}

fn find_kept(journal: &Journal, place: &Path) -> Result<Shelved> {
    std::fs::create_dir_all(place).map_err(|e| Error::io("create directory", place, e))?;
    let dir = Root::open(place)?.as_dir()?;
    let mut shelved = Shelved::default();
    for (path, name) in displaced(journal, &dir)? {
        let stamp = dir.stamp(name.as_bytes())?.unwrap_or_default();
        shelved.kept.insert(path, Kept { name, stamp });
    }
    Ok(shelved)
}

/// Writes down what the journal did: `edits` is what the base says from now on.
pub fn record(
    journal: &Journal,
    outcome: &Outcome,
    edits: &Edits,
    mut shelved: Shelved,
    files: &CommitFiles,
) -> Result<Option<Record>> {
    let Some(operation) = &journal.operation else { return Ok(None) };
    let place = place_of(files, operation)?;
    std::fs::create_dir_all(&place).map_err(|e| Error::io("create directory", &place, e))?;
    let found = found(journal);
    let mut touched = Vec::new();
    for (path, before) in &journal.before {
        let Some(after) = edits.get(path) else { continue };
        if outcome.conflicts.iter().any(|c| c.path == *path) {
            continue;
        }
        let found = found.get(path).map(|stamp| **stamp);
        let (before, after) = (before.clone(), after.clone());
        touched.push(Touched { path: path.clone(), before, after, kept: shelved.kept.remove(path), found });
    }
    let mut record = Record {
        digest: journal.digest.clone(),
        entries: journal.entries.clone(),
        notices: journal.notices.clone(),
        // Blocks, not sizes: a sparse file takes what it holds.
        bytes: touched.iter().filter_map(|t| t.kept.as_ref()).map(|kept| kept.stamp.blocks * 512).sum(),
        touched,
        lost: shelved.lost,
        conflicts: outcome.conflicts.clone(),
    };
    record.entries.retain(|e| !outcome.conflicts.iter().any(|c| c.path == e.path));
    record.lost = record.lost.take().or_else(|| missing(journal, &record));
    journal::store(&record, &place.join(RECORD))?;
    Ok(Some(record))
}

/// What the steps found at their paths.
fn found(journal: &Journal) -> HashMap<&RelPath, &Stamp> {
    let (mut found, mut placed) = (HashMap::new(), HashSet::new());
    for step in &journal.steps {
        match step {
            Step::Delete { path, old } if *old == NOTHING => drop(found.remove(path)),
            Step::Delete { path, old } => drop(found.insert(path, old)),
            Step::Place { path, old, .. } => {
                placed.insert(path);
                old.as_ref().map(|old| found.insert(path, old));
            }
            // What is dressed after it was placed is our own.
            Step::Dress { path, old, .. } if !placed.contains(path) => drop(found.insert(path, old)),
            Step::Dress { .. } => {}
        }
    }
    found
}

/// A path that had content which is not there any more.
fn missing(journal: &Journal, record: &Record) -> Option<String> {
    let replaced: HashSet<&RelPath> = journal.steps.iter().filter_map(replaces_content).collect();
    let lost = record.touched.iter().find(|t| t.kept.is_none() && replaced.contains(&t.path));
    lost.map(|t| format!("what {} was before is not kept: its filesystem cannot exchange two files", t.path))
}

fn replaces_content(step: &Step) -> Option<&RelPath> {
    match step {
        Step::Delete { old, .. } if *old == NOTHING => None,
        Step::Delete { path, old } | Step::Place { path, old: Some(old), .. } if !old.is_dir() => Some(path),
        _ => None,
    }
}

/// Makes a kept entry appear on a stage: as another name where that is possible, as a copy elsewhere. Content whose hash
/// is known has to have it still.
pub fn fetch(
    from: &Dir,
    kept: &Kept,
    hash: Option<ContentHash>,
    to: &Dir,
    name: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let kept_name = kept.name.as_bytes();
    let now = from.stamp(kept_name)?;
    if !now.is_some_and(|now| now.same_inode(&kept.stamp) && now.same_state(&kept.stamp)) {
        return Err(Error::corrupt(from.shown(kept_name), "it is not what was kept"));
    }
    if fs::linkat(from, kept_name, to, name, fs::AtFlags::empty()).is_err() {
        match kept.stamp.is_file() {
            true => drop(copy_file((from, kept_name), (to, name), Transfer::Prefer, buffer)?),
            false => drop(make_link(to, name, &from.read_link(kept_name)?, &kept.stamp)?),
        }
    }
    if kept.stamp.is_file() {
        // Whoever wrote it last may never have flushed it.
        let fd = to.open(name, OFlags::RDONLY, 0, "open")?;
        fs::fsync(&fd).map_err(|e| Error::io("flush", to.shown(name), e))?;
        let found =
            hash_fd(&fd, kept.stamp.size, buffer).map_err(|e| Error::io("read", to.shown(name), e))?;
        if hash.is_some_and(|hash| hash != found) {
            return Err(Error::corrupt(from.shown(kept_name), "it is not what was kept"));
        }
    }
    Ok(())
}
