//! Content onto the stage: new inodes, linked as the sandbox has them linked.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags};
use sandboxer_core::model::{DiffKind, NodeType, Notice, RelPath};
use sandboxer_core::{Error, Result};

use super::prepare::Prepare;
use super::privileges;
use super::stage::Stage;
use crate::clone::make_link;
use crate::copy::{self, Meta, Transfer};
use crate::diff::{Delta, Links, Seen, node_of};
use crate::hash::ContentHash;
use crate::pool;
use crate::root::{Root, stamp_of_fd};
use crate::space::write_all;
use crate::stamp::Stamp;
use crate::xattrs;

/// Flushing waits for the disk, not for a processor: more threads than cores, so that flushes share a journal commit.
pub const STAGE_THREADS: usize = 8;

/// What of an entry is committed, decided once.
#[derive(Default)]
pub struct Allowed {
    pub mode: u32,
    pub owner: (u32, u32),
    pub xattrs: xattrs::Xattrs,
    pub notices: Vec<Notice>,
}

impl Allowed {
    fn of(delta: &Delta) -> Self {
        let Some(seen) = &delta.now else { return Self::default() };
        let mut notices = Vec::new();
        let mode = privileges::allowed_mode(delta, seen, &mut notices);
        let xattrs = privileges::allowed_xattrs(delta, seen, &mut notices);
        Self { mode, owner: privileges::owner(delta, seen), xattrs, notices }
    }
}

/// A delta and the stamp of what was staged for it.
pub type Staged = (Delta, Option<Stamp>);

/// How an entry gets onto the stage.
enum How {
    /// It does not: a deletion, or a change of metadata alone.
    Nothing,
    /// As a new inode.
    New,
    /// As another name of the entry staged under that number.
    LinkTo(usize),
    /// As another name of a file that the original has and keeps.
    LinkToOriginal(RelPath),
}

/// Stages what is new of each delta. An entry that a program removes meanwhile is left out: a later commit finds what became of it.
pub fn stage_all(
    job: &Prepare<'_>,
    mut deltas: Vec<Delta>,
    links: &Links,
    stage: &Stage,
) -> Result<(Vec<Staged>, Vec<Allowed>)> {
    let how = plan(&deltas, links);
    let fresh: Vec<usize> = (0..how.len()).filter(|at| matches!(how[*at], How::New)).collect();
    let threads = STAGE_THREADS.min(fresh.len()).max(1);
    let workers = pool::work(threads, fresh, StageWorker::default, |worker, at, _| {
        job.comparison.cancel.check()?;
        let done = stage_new(job, &deltas[at], &stage.root, at, &mut worker.buffer)?;
        worker.done.push((at, done));
        Ok(())
    })?;
    let mut stamps: Vec<Option<Stamp>> = vec![None; deltas.len()];
    let mut removed = BTreeSet::new();
    for (at, made) in workers.into_iter().flat_map(|w| w.done) {
        match made {
            Some(new) => {
                stamps[at] = Some(new.stamp);
                deltas[at].plan.kept = new.kept;
                note_seen(&mut deltas[at], new.seen);
            }
            None => drop(removed.insert(at)),
        }
    }
    for (at, how) in how.iter().enumerate() {
        match how {
            How::LinkTo(first) if removed.contains(first) => drop(removed.insert(at)),
            How::LinkTo(first) => link_staged(&mut deltas, at, *first, &stage.root)?,
            How::LinkToOriginal(path) if link_original(job, path, at, &stage.root)? => {}
            // The original has moved on: the content is staged instead.
            How::LinkToOriginal(_) => match stage_new(job, &deltas[at], &stage.root, at, &mut Vec::new())? {
                Some(new) => note_seen(&mut deltas[at], new.seen),
                None => drop(removed.insert(at)),
            },
            How::Nothing | How::New => continue,
        }
        stamps[at] = stage.root.as_dir()?.stamp(at.to_string().as_bytes())?;
    }
    let staged = deltas.into_iter().zip(stamps).enumerate().filter(|(at, _)| !removed.contains(at));
    let staged: Vec<Staged> = staged.map(|(_, staged)| staged).collect();
    // A link raises the count of names of what was staged before it.
    let allowed = staged.iter().map(|(delta, _)| Allowed::of(delta)).collect();
    Ok((staged, allowed))
}

/// What was staged is what is committed.
fn note_seen(delta: &mut Delta, seen: Seen) {
    delta.entry.new = Some(node_of(&seen));
    delta.now = Some(seen);
}

#[derive(Default)]
struct StageWorker {
    buffer: Vec<u8>,
    done: Vec<(usize, Option<New>)>,
}

/// A new inode on the stage.
struct New {
    /// What it was made from.
    seen: Seen,
    /// What it is.
    stamp: Stamp,
    /// Where in the pack its content is kept.
    kept: Option<u64>,
}

fn plan(deltas: &[Delta], links: &Links) -> Vec<How> {
    let mut first_of: HashMap<u64, usize> = HashMap::new();
    let decide = |(at, delta): (usize, &Delta)| {
        let stays = delta.entry.kind == DiffKind::Metadata && !delta.plan.whole;
        let Some(seen) = delta.now.as_ref().filter(|_| !stays) else { return How::Nothing };
        if !seen.stamp.is_file() || seen.stamp.nlink < 2 || delta.plan.content.is_some() {
            return How::New;
        }
        if let Some(kept) = links.get(&seen.stamp.ino).and_then(|g| g.untouched.clone()) {
            return How::LinkToOriginal(kept);
        }
        match first_of.get(&seen.stamp.ino) {
            Some(first) => How::LinkTo(*first),
            None => {
                first_of.insert(seen.stamp.ino, at);
                How::New
            }
        }
    };
    deltas.iter().enumerate().map(decide).collect()
}

/// Stages one entry as a new inode; `None` if it is no longer in the copy.
fn stage_new(
    job: &Prepare<'_>,
    delta: &Delta,
    stage: &Root,
    at: usize,
    buffer: &mut Vec<u8>,
) -> Result<Option<New>> {
    let name = at.to_string();
    let to = stage.as_dir()?;
    let copy = job.comparison.copy;
    let Some(seen) = delta.now.clone() else { return Err(changed(copy, &delta.entry.path)) };
    match (seen.stamp.node_type(), &delta.plan.content) {
        (NodeType::File, Some(content)) => stage_content(job, delta, seen, content, stage, &name).map(Some),
        (NodeType::File, None) => stage_file(job, delta, stage, &name, buffer),
        (NodeType::Symlink, _) => {
            let (uid, gid) = privileges::owner(delta, &seen);
            let stamp = make_link(&to, name.as_bytes(), &seen.target, &Stamp { uid, gid, ..seen.stamp })?;
            Ok(Some(New { seen, stamp, kept: None }))
        }
        _ => {
            to.make_dir(name.as_bytes(), 0o700)?;
            let stamp = to.stamp(name.as_bytes())?.unwrap_or_default();
            Ok(Some(New { seen, stamp, kept: None }))
        }
    }
}

/// Stages content that is not the copy's own: some hunks, or a merge.
fn stage_content(
    job: &Prepare<'_>,
    delta: &Delta,
    seen: Seen,
    content: &[u8],
    stage: &Root,
    name: &str,
) -> Result<New> {
    let write = |e| Error::io("stage", stage.path().join(name), e);
    let target = copy::create_file(&stage.as_dir()?, name.as_bytes(), 0o600)?;
    write_all(&target, content).map_err(write)?;
    // It is new, whatever the copy's age: nobody who compares times must miss it.
    let Stamp { size, mtime, .. } = stamp_of_fd(&target).map_err(write)?;
    let seen =
        Seen { stamp: Stamp { size, mtime, ..seen.stamp }, hash: Some(ContentHash::of(content)), ..seen };
    let stamp = dress_file(delta, &seen, &target).map_err(write)?;
    Ok(New { seen, stamp, kept: job.pack.and_then(|pack| pack.keep(content)) })
}

fn stage_file(
    job: &Prepare<'_>,
    delta: &Delta,
    stage: &Root,
    name: &str,
    buffer: &mut Vec<u8>,
) -> Result<Option<New>> {
    let (path, copy) = (&delta.entry.path, job.comparison.copy);
    let read = |e| Error::io("read", copy.shown(path), e);
    let Some(source) = copy.find_file(path)? else { return Ok(None) };
    let before = copy::settled_stamp(&source).map_err(read)?;
    if !before.is_file() {
        return Err(changed(copy, path));
    }
    let xattrs = xattrs::read(&source).map_err(read)?;
    let to = stage.as_dir()?;
    let target = copy::create_file(&to, name.as_bytes(), 0o600)?;
    let copied = copy::copy_steadily(&source, before, &target, Transfer::Prefer, buffer)
        .map_err(|e| Error::io("stage", copy.shown(path), e))?;
    if !copied.steady {
        return Err(changed(copy, path));
    }
    let seen = Seen { stamp: copied.source, hash: copied.hash, xattrs, target: Vec::new() };
    let write = |e| Error::io("stage", stage.path().join(name), e);
    let stamp = dress_file(delta, &seen, &target).map_err(write)?;
    // Hashing it has left a small one in the buffer.
    let pack = job.pack.filter(|pack| pack.wants(seen.stamp.size));
    let kept = pack.and_then(|pack| pack.keep(buffer.get(..seen.stamp.size as usize)?));
    Ok(Some(New { seen, stamp, kept }))
}

/// Gives a staged file what is allowed of its attributes, and flushes it.
fn dress_file(delta: &Delta, seen: &Seen, target: &OwnedFd) -> rustix::io::Result<Stamp> {
    let staged = Delta { now: Some(seen.clone()), ..delta.clone() };
    let allowed = Allowed::of(&staged);
    let (uid, gid) = allowed.owner;
    let meta = Meta { mode: allowed.mode, uid, gid, mtime: seen.stamp.mtime, xattrs: allowed.xattrs };
    let stamp = copy::finish_file(target, &meta)?;
    fs::fsync(target)?;
    Ok(stamp)
}

fn changed(copy: &Root, path: &RelPath) -> Error {
    let holder = Some("it kept changing while it was read; nothing was committed".to_owned());
    Error::Busy { path: copy.shown(path), holder }
}

fn link_staged(deltas: &mut [Delta], at: usize, first: usize, stage: &Root) -> Result<()> {
    let (from, to) = (first.to_string(), at.to_string());
    let linked = fs::linkat(stage, from.as_str(), stage, to.as_str(), AtFlags::empty());
    linked.map_err(|e| Error::io("link", stage.path().join(&to), e))?;
    deltas[at].now = deltas[first].now.clone();
    deltas[at].entry.new = deltas[first].entry.new.clone();
    Ok(())
}

/// The sandbox linked a new name to a file it did not change: so does the commit, to the original's own file. Returns whether
/// that is still the file.
fn link_original(job: &Prepare<'_>, kept: &RelPath, at: usize, stage: &Root) -> Result<bool> {
    let original = job.comparison.original;
    let to = at.to_string();
    let linked = original.parent_of(kept).and_then(|parent| {
        fs::linkat(&parent, kept.name(), stage, to.as_str(), AtFlags::empty())
            .map_err(|e| Error::io("link", original.shown(kept), e))
    });
    let expected = job.comparison.base.find(kept)?.and_then(|e| e.base);
    let found = stage.as_dir()?.stamp(to.as_bytes())?;
    match (linked, expected, found) {
        (Ok(()), Some(base), Some(found)) if base.same_inode(&found) && base.same_state(&found) => Ok(true),
        _ => crate::remove_entry(&stage.as_dir()?, to.as_bytes()).map(|()| false),
    }
}
