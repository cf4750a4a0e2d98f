//! Taking an operation back: a commit of its inverse, prepared from what was kept of it.

use std::collections::BTreeSet;

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{Conflict, DiffEntry, DiffKind, DiffView, OpId, RelPath};
use sandboxer_core::{Error, Result};

use super::journal::{Dress, Journal, NOTHING, Step};
use super::stage::Stage;
use super::staging::STAGE_THREADS;
use super::steps::Steps;
use super::undo::{self, Kept, Record, Touched};
use super::{CommitFiles, clear};
use crate::base::Base;
use crate::diff::{describe_content, original_moved};
use crate::hash::ContentHash;
use crate::list;
use crate::manifest::Entry;
use crate::pool;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;

/// What to take back, and where.
pub struct Revert<'a> {
    /// The original.
    pub original: &'a Root,
    /// The base.
    pub base: &'a dyn Base,
    /// The workspace's files.
    pub files: &'a CommitFiles,
    /// The operation to take back.
    pub undoes: &'a OpId,
    /// What taking it back is logged as.
    pub operation: Option<OpId>,
    /// Refuse unless this is the digest of what would be done.
    pub digest: Option<&'a String>,
    /// Looked at before anything is decided.
    pub cancel: &'a CancelFlag,
}

/// Checks, stages and returns the journal, not yet written. On an error nothing is left behind.
pub fn prepare(job: &Revert<'_>) -> Result<Journal> {
    let record =
        undo::load(job.files, job.undoes)?.ok_or_else(|| not_kept(job.undoes, "it is no longer kept"))?;
    if let Some(reason) = &record.lost {
        return Err(not_kept(job.undoes, reason));
    }
    let present = check(job, &record)?;
    let stage = Stage::create(job.original, job.files.home(), &job.files.note())?;
    let journal = build(job, record, &present, &stage);
    if journal.is_err() {
        // The first error is the one to tell.
        let _ = clear(job.files);
    }
    journal
}

fn not_kept(operation: &OpId, reason: &str) -> Error {
    Error::Refused {
        reason: format!("{operation} cannot be taken back: {reason}"),
        hint: Some("change the files back by hand, or in a new sandbox".to_owned()),
    }
}

/// What is at each touched path now. Anything that is not as the operation left it is a conflict.
fn check(job: &Revert<'_>, record: &Record) -> Result<Vec<Option<Stamp>>> {
    let ours: BTreeSet<&RelPath> = record.touched.iter().map(|t| &t.path).collect();
    let (mut conflicts, mut present, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
    for touched in &record.touched {
        let moved = original_moved(job.original, &touched.path, touched.after.as_ref(), &mut buffer)?;
        let reason = match moved {
            Some(reason) => Some(since(reason)),
            None => obstacle(job.original, touched, &ours)?,
        };
        conflicts.extend(reason.map(|reason| Conflict::new(touched.path.clone(), reason)));
        present.push(job.original.stamp(&touched.path)?);
    }
    if conflicts.is_empty() { Ok(present) } else { Err(Error::Conflict { conflicts }) }
}

fn since(reason: &str) -> String {
    let what = reason.trim_end_matches(" too").replace(" in the original", "");
    format!("{what} since that operation")
}

/// What stands in the way although the entry itself is as it was left.
fn obstacle(original: &Root, touched: &Touched, ours: &BTreeSet<&RelPath>) -> Result<Option<String>> {
    let is_dir = |entry: Option<&Entry>| entry.is_some_and(|e| e.base.is_some_and(|s| s.is_dir()));
    if is_dir(touched.after.as_ref()) && !touched.found.is_some_and(|found| found.is_dir()) {
        let Ok(dir) = original.open_dir(&touched.path) else { return Ok(None) };
        let stranger = list::sorted(&dir)?.into_iter().find(|l| !ours.contains(&touched.path.join(&l.name)));
        return Ok(stranger.map(|l| {
            format!("holds {} now, which that operation did not put there", String::from_utf8_lossy(&l.name))
        }));
    }
    let Some(parent) = touched.path.parent().filter(|_| touched.found.is_some()) else { return Ok(None) };
    let there = ours.contains(&parent) || original.stamp(&parent)?.is_some_and(|s| s.is_dir());
    Ok((!there).then(|| "its directory is gone since that operation".to_owned()))
}

fn build(job: &Revert<'_>, record: Record, present: &[Option<Stamp>], stage: &Stage) -> Result<Journal> {
    let view = DiffView::new(record.entries.iter().map(inverse).collect());
    if let Some(expected) = job.digest.filter(|d| **d != view.digest) {
        return Err(Error::DigestMismatch { expected: expected.clone(), found: view.digest });
    }
    let staged = stage_all(job, &record, stage)?;
    stage.root.as_dir()?.sync()?;
    job.cancel.check()?;
    let mut steps = Steps::default();
    for (at, (touched, staged)) in record.touched.iter().zip(staged).enumerate() {
        add(&mut steps, at, touched, present[at], staged);
    }
    let mut before = Vec::with_capacity(record.touched.len());
    for touched in &record.touched {
        before.push((touched.path.clone(), job.base.find(&touched.path)?));
    }
    let other_base = record.touched.iter().filter(|t| !t.found_base());
    let rebased = other_base.map(|t| (t.path.clone(), t.before.clone().map(without_child))).collect();
    Ok(Journal {
        stage: stage.root.path().to_path_buf(),
        digest: view.digest,
        steps: steps.in_order(),
        entries: view.entries,
        notices: Vec::new(),
        operation: job.operation.clone(),
        undoes: Some(job.undoes.clone()),
        before,
        settles: Vec::new(),
        rebased,
    })
}

/// Something on the stage that comes back, and what the original has there from then on.
struct Staged {
    stamp: Option<Stamp>,
    entry: Entry,
}

/// Puts what comes back onto the stage.
fn stage_all(job: &Revert<'_>, record: &Record, stage: &Stage) -> Result<Vec<Staged>> {
    let kept = Root::open(undo::place_of(job.files, job.undoes)?)?.as_dir()?;
    let to = stage.root.as_dir()?;
    let files: Vec<(usize, &Kept, Option<ContentHash>)> = record
        .touched
        .iter()
        .enumerate()
        .filter_map(|(at, t)| Some((at, t.kept.as_ref()?, t.kept_hash())))
        .collect();
    let threads = STAGE_THREADS.min(files.len()).max(1);
    pool::work(threads, files, Vec::new, |buffer, (at, kept_entry, hash), _| {
        job.cancel.check()?;
        undo::fetch(&kept, kept_entry, hash, &to, at.to_string().as_bytes(), buffer)
    })?;
    let mut staged = Vec::with_capacity(record.touched.len());
    for (at, touched) in record.touched.iter().enumerate() {
        let name = at.to_string();
        if comes_back_as_directory(touched) {
            to.make_dir(name.as_bytes(), 0o700)?;
        }
        let stamp = to.stamp(name.as_bytes())?;
        staged.push(Staged { stamp, entry: entry_of(touched, &to, name.as_bytes())? });
    }
    Ok(staged)
}

/// What the original has when an entry is back: the base as a rule, or what the operation had gone over.
fn entry_of(touched: &Touched, stage: &Dir, name: &[u8]) -> Result<Entry> {
    let before = touched.before.clone().unwrap_or_default();
    let entry = Entry { name: touched.path.name().to_vec(), child: None, base: None, ..before };
    if touched.found_base() {
        return Ok(entry);
    }
    let entry = Entry { copy: touched.found, kept: None, ..entry };
    match touched.kept.as_ref().map(|kept| kept.stamp) {
        Some(stamp) if stamp.is_file() => {
            let failed = |e| Error::io("read", stage.shown(name), e);
            let seen = describe_content(&stage.open_file(name)?, &mut Vec::new()).map_err(failed)?;
            Ok(Entry { hash: seen.hash, xattrs: seen.xattrs, target: Vec::new(), ..entry })
        }
        Some(_) => Ok(Entry { hash: None, target: stage.read_link(name)?, ..entry }),
        None => Ok(entry),
    }
}

fn comes_back_as_directory(touched: &Touched) -> bool {
    let is_dir = |entry: Option<&Entry>| entry.and_then(|e| e.base).is_some_and(|s| s.is_dir());
    touched.found.is_some_and(|found| found.is_dir()) && !is_dir(touched.after.as_ref())
}

fn add(steps: &mut Steps, at: usize, touched: &Touched, now: Option<Stamp>, staged: Staged) {
    let path = touched.path.clone();
    let Staged { stamp: staged, entry } = staged;
    // A directory cannot be exchanged for what comes back in its place: what it holds goes first, then it goes itself.
    let goes = touched.found.is_none() || (staged.is_some() && now.is_some_and(|now| now.is_dir()));
    match now.filter(|_| goes) {
        Some(stamp) => steps.deletes.push(Step::Delete { path: path.clone(), old: stamp }),
        None if touched.found.is_none() => {
            steps.deletes.push(Step::Delete { path: path.clone(), old: NOTHING });
        }
        None => {}
    }
    let old = now.filter(|_| !goes);
    let Some(found) = touched.found else { return };
    let like = touched.before.as_ref().and_then(|b| b.base).filter(|_| touched.found_base()).unwrap_or(found);
    match staged {
        Some(new) => place(steps, at, path, old, new, like, entry),
        None => {
            let dress = dress_like(&like, &entry, &old.unwrap_or_default(), false);
            steps.dresses.push(Step::Dress { path, old: old.unwrap_or_default(), dress, entry });
        }
    }
}

fn place(
    steps: &mut Steps,
    at: usize,
    path: RelPath,
    old: Option<Stamp>,
    new: Stamp,
    like: Stamp,
    entry: Entry,
) {
    if new.is_dir() {
        let dress = dress_like(&like, &entry, &new, true);
        steps.dresses.push(Step::Dress { path: path.clone(), old: new, dress, entry: entry.clone() });
    }
    steps.places.push(Step::Place { path, staged: at.to_string(), old, new, entry });
}

/// What makes an entry that is `now` what it was.
fn dress_like(like: &Stamp, entry: &Entry, now: &Stamp, with_time: bool) -> Dress {
    Dress {
        mode: like.permissions(),
        owner: Some((like.uid, like.gid)).filter(|_| !like.same_owner(now)),
        xattrs: entry.xattrs.clone(),
        mtime: Some(like.mtime).filter(|_| with_time),
    }
}

fn without_child(entry: Entry) -> Entry {
    Entry { child: None, ..entry }
}

/// What taking an entry back does.
fn inverse(entry: &DiffEntry) -> DiffEntry {
    let kind = match entry.kind {
        DiffKind::Created => DiffKind::Deleted,
        DiffKind::Deleted => DiffKind::Created,
        other => other,
    };
    let (path, from) = match &entry.from {
        Some(from) => (from.clone(), Some(entry.path.clone())),
        None => (entry.path.clone(), None),
    };
    let (old, new) = (entry.new.clone(), entry.old.clone());
    DiffEntry { from, old, new, binary: entry.binary, ..DiffEntry::new(path, kind) }
}
