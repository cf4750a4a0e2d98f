//! Content onto the stage: new inodes, linked as the sandbox has them linked.

use std::collections::HashMap;

use rustix::fs::{self, AtFlags};
use sandboxer_core::model::{DiffKind, NodeType, Notice, RelPath};
use sandboxer_core::{Error, Result};

use super::prepare::Prepare;
use super::privileges;
use super::stage::Stage;
use crate::clone::make_link;
use crate::copy::{self, Meta, Transfer};
use crate::diff::{Delta, Links, Seen, node_of};
use crate::pool;
use crate::root::Root;
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

/// Stages what is new of each delta.
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
        let done = stage_new(job.comparison.copy, &deltas[at], &stage.root, at, &mut worker.buffer)?;
        worker.done.push((at, done));
        Ok(())
    })?;
    let mut stamps: Vec<Option<Stamp>> = vec![None; deltas.len()];
    for (at, (seen, stamp)) in workers.into_iter().flat_map(|w| w.done) {
        deltas[at].entry.new = Some(node_of(&seen));
        deltas[at].now = Some(seen);
        stamps[at] = Some(stamp);
    }
    for (at, how) in how.iter().enumerate() {
        match how {
            How::LinkTo(first) => link_staged(&mut deltas, at, *first, &stage.root)?,
            How::LinkToOriginal(path) => {
                if let Some(seen) = link_original(job, path, &deltas[at], at, &stage.root)? {
                    deltas[at].entry.new = Some(node_of(&seen));
                    deltas[at].now = Some(seen);
                }
            }
            How::Nothing | How::New => continue,
        }
        stamps[at] = stage.root.as_dir()?.stamp(at.to_string().as_bytes())?;
    }
    // A link raises the count of names of what was staged before it.
    let allowed = deltas.iter().map(Allowed::of).collect();
    Ok((deltas.into_iter().zip(stamps).collect(), allowed))
}

#[derive(Default)]
struct StageWorker {
    buffer: Vec<u8>,
    done: Vec<(usize, (Seen, Stamp))>,
}

fn plan(deltas: &[Delta], links: &Links) -> Vec<How> {
    let mut first_of: HashMap<u64, usize> = HashMap::new();
    let decide = |(at, delta): (usize, &Delta)| {
        let Some(seen) = delta.now.as_ref().filter(|_| delta.entry.kind != DiffKind::Metadata) else {
            return How::Nothing;
        };
        if !seen.stamp.is_file() || seen.stamp.nlink < 2 {
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

/// Stages one entry as a new inode and tells what it was made from.
fn stage_new(
    copy: &Root,
    delta: &Delta,
    stage: &Root,
    at: usize,
    buffer: &mut Vec<u8>,
) -> Result<(Seen, Stamp)> {
    let name = at.to_string();
    let to = stage.as_dir()?;
    let Some(seen) = delta.now.clone() else { return Err(changed(copy, &delta.entry.path)) };
    match seen.stamp.node_type() {
        NodeType::File => stage_file(copy, delta, stage, &name, buffer),
        NodeType::Symlink => {
            let (uid, gid) = privileges::owner(delta, &seen);
            let stamp = make_link(&to, name.as_bytes(), &seen.target, &Stamp { uid, gid, ..seen.stamp })?;
            Ok((seen, stamp))
        }
        _ => {
            to.make_dir(name.as_bytes(), 0o700)?;
            Ok((seen, to.stamp(name.as_bytes())?.unwrap_or_default()))
        }
    }
}

fn stage_file(
    copy: &Root,
    delta: &Delta,
    stage: &Root,
    name: &str,
    buffer: &mut Vec<u8>,
) -> Result<(Seen, Stamp)> {
    let path = &delta.entry.path;
    let read = |e| Error::io("read", copy.shown(path), e);
    let source = copy.parent_of(path)?.open_file(path.name())?;
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
    let staged = Delta { now: Some(seen.clone()), ..delta.clone() };
    let allowed = Allowed::of(&staged);
    let (uid, gid) = allowed.owner;
    let meta = Meta { mode: allowed.mode, uid, gid, mtime: seen.stamp.mtime, xattrs: allowed.xattrs };
    let write = |e| Error::io("stage", stage.path().join(name), e);
    let stamp = copy::finish_file(&target, &meta).map_err(write)?;
    fs::fsync(&target).map_err(write)?;
    Ok((seen, stamp))
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

/// The sandbox linked a new name to a file it did not change: so does the commit, to the original's own file. Where that
/// has moved on, the content is staged instead; what was staged then is returned.
fn link_original(
    job: &Prepare<'_>,
    kept: &RelPath,
    delta: &Delta,
    at: usize,
    stage: &Root,
) -> Result<Option<Seen>> {
    let original = job.comparison.original;
    let to = at.to_string();
    let linked = original.parent_of(kept).and_then(|parent| {
        fs::linkat(&parent, kept.name(), stage, to.as_str(), AtFlags::empty())
            .map_err(|e| Error::io("link", original.shown(kept), e))
    });
    let expected = job.comparison.manifest.find(kept)?.and_then(|e| e.base);
    let found = stage.as_dir()?.stamp(to.as_bytes())?;
    match (linked, expected, found) {
        (Ok(()), Some(base), Some(found)) if base.same_inode(&found) && base.same_state(&found) => Ok(None),
        _ => {
            crate::remove_entry(&stage.as_dir()?, to.as_bytes())?;
            stage_new(job.comparison.copy, delta, stage, at, &mut Vec::new()).map(|(seen, _)| Some(seen))
        }
    }
}
