//! From a difference to a journal.

use std::collections::HashMap;

use rustix::fs::{self, AtFlags};
use sandboxer_core::model::{CommitRequest, DiffKind, DiffView, NodeType, Notice, OnConflict, RelPath};
use sandboxer_core::{Error, Result};

use super::check::{Present, check_all};
use super::journal::{Dress, Journal, Step};
use super::stage::Stage;
use super::{CommitFiles, clear, privileges};
use crate::clone::make_link;
use crate::copy::{self, Meta, Transfer};
use crate::diff::{Comparison, Delta, Links, Seen, differences, node_of};
use crate::manifest::Entry;
use crate::pool;
use crate::root::Root;
use crate::stamp::Stamp;
use crate::xattrs;

/// Flushing waits for the disk, not for a processor: more threads than cores, so that flushes share a journal commit.
const STAGE_THREADS: usize = 8;

/// What a commit is prepared from.
pub struct Prepare<'a> {
    /// Copy and original.
    pub comparison: Comparison<'a>,
    /// The workspace's files.
    pub files: &'a CommitFiles,
    /// What to commit.
    pub request: &'a CommitRequest,
}

/// Stages, checks and returns the journal, not yet written. On an error nothing is left behind.
pub fn prepare(job: &Prepare<'_>) -> Result<Journal> {
    if job.request.on_conflict != OnConflict::Fail || !job.request.hunks.is_empty() {
        return Err(Error::Unsupported {
            strategy: "of files".to_owned(),
            what: "merge or select hunks",
            reason: "this version commits whole files and refuses on conflict".to_owned(),
        });
    }
    let (deltas, links) = differences(&job.comparison)?.selected(&job.request.paths);
    refuse_uncommittable(&deltas)?;
    // Nothing is staged for a commit that is bound to fail.
    check_all(job.comparison.original, &deltas)?;
    let stage = Stage::create(job.comparison.original, job.files.home(), &job.files.note())?;
    let journal = build(job, deltas, &links, &stage);
    if journal.is_err() {
        // The first error is the one to tell.
        let _ = clear(job.files);
    }
    journal
}

fn refuse_uncommittable(deltas: &[Delta]) -> Result<()> {
    let refused = |d: &Delta| d.entry.refused.clone().map(|reason| (d.entry.path.clone(), reason));
    let entries: Vec<_> = deltas.iter().filter_map(refused).collect();
    if entries.is_empty() { Ok(()) } else { Err(Error::Uncommittable { entries }) }
}

fn build(job: &Prepare<'_>, deltas: Vec<Delta>, links: &Links, stage: &Stage) -> Result<Journal> {
    let (staged, notices) = stage_all(job, deltas, links, stage)?;
    let (deltas, stamps): (Vec<_>, Vec<_>) = staged.into_iter().unzip();
    stage.root.as_dir()?.sync()?;
    let view = DiffView::new(deltas.iter().map(|d| d.entry.clone()).collect());
    if let Some(expected) = job.request.digest.as_ref().filter(|d| **d != view.digest) {
        return Err(Error::DigestMismatch { expected: expected.clone(), found: view.digest });
    }
    // Again, after the time that staging took: what the steps require is what is there now.
    let present = check_all(job.comparison.original, &deltas)?;
    job.comparison.cancel.check()?;
    let steps = Steps::of(&deltas, &stamps, &present, &notices).in_order();
    let notices = notices.into_iter().flat_map(|n| n.notices).collect();
    Ok(Journal {
        stage: stage.root.path().to_path_buf(),
        digest: view.digest,
        steps,
        entries: view.entries,
        notices,
    })
}

/// What of an entry is committed, decided once.
#[derive(Default)]
struct Allowed {
    mode: u32,
    owner: (u32, u32),
    xattrs: xattrs::Xattrs,
    notices: Vec<Notice>,
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
type Staged = (Delta, Option<Stamp>);

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

fn stage_all(
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

/// Steps by kind, to be put in order.
#[derive(Default)]
struct Steps {
    deletes: Vec<Step>,
    places: Vec<Step>,
    dresses: Vec<Step>,
}

impl Steps {
    fn of(deltas: &[Delta], stamps: &[Option<Stamp>], present: &[Present], allowed: &[Allowed]) -> Self {
        let mut steps = Self::default();
        for (at, delta) in deltas.iter().enumerate() {
            steps.add(at, delta, stamps[at], &present[at], &allowed[at]);
        }
        steps
    }

    fn add(&mut self, at: usize, delta: &Delta, staged: Option<Stamp>, present: &Present, allowed: &Allowed) {
        let path = delta.entry.path.clone();
        let mut old = present.at;
        if let (Some(from), Some(stamp)) = (&delta.entry.from, present.from) {
            self.deletes.push(Step::Delete { path: from.clone(), old: stamp });
        }
        let goes = delta.entry.kind == DiffKind::Deleted;
        let makes_way = delta.entry.kind == DiffKind::Type && old.is_some_and(|s| s.is_dir());
        if let Some(stamp) = old.filter(|_| goes || makes_way) {
            self.deletes.push(Step::Delete { path: path.clone(), old: stamp });
            old = None;
        }
        let Some(seen) = delta.now.as_ref().filter(|_| !goes) else { return };
        let entry = manifest_entry(&path, seen);
        match staged {
            Some(new) => self.place(at, path, old, new, entry, seen, allowed),
            None => self.dress(path, old.unwrap_or_default(), entry, delta, seen, allowed),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one value for each field of the steps that it makes")]
    fn place(
        &mut self,
        at: usize,
        path: RelPath,
        old: Option<Stamp>,
        new: Stamp,
        entry: Entry,
        seen: &Seen,
        allowed: &Allowed,
    ) {
        let exists = old.is_some_and(|s| s.is_dir()) && new.is_dir();
        if new.is_dir() && !exists {
            let dress = Dress {
                mode: allowed.mode,
                owner: Some(allowed.owner).filter(|o| *o != (new.uid, new.gid)),
                xattrs: allowed.xattrs.clone(),
                mtime: Some(seen.stamp.mtime),
            };
            self.dresses.push(Step::Dress { path: path.clone(), old: new, dress, entry: entry.clone() });
        }
        let old = old.filter(|_| !exists);
        self.places.push(Step::Place { path, staged: at.to_string(), old, new, entry });
    }

    fn dress(
        &mut self,
        path: RelPath,
        old: Stamp,
        entry: Entry,
        delta: &Delta,
        seen: &Seen,
        allowed: &Allowed,
    ) {
        let changed = delta.base.as_ref().and_then(|b| b.copy).is_some_and(|c| !c.same_owner(&seen.stamp));
        let dress = Dress {
            mode: allowed.mode,
            owner: Some(allowed.owner).filter(|_| changed),
            xattrs: allowed.xattrs.clone(),
            mtime: None,
        };
        self.dresses.push(Step::Dress { path, old, dress, entry });
    }

    /// What goes goes deepest first; what comes comes shallowest first; directories get their modes when they are full.
    fn in_order(self) -> Vec<Step> {
        let depth = |step: &Step| step.path().components().count();
        let Self { mut deletes, mut places, mut dresses } = self;
        deletes.sort_by_key(|s| std::cmp::Reverse(depth(s)));
        places.sort_by_key(depth);
        dresses.sort_by_key(|s| std::cmp::Reverse(depth(s)));
        deletes.into_iter().chain(places).chain(dresses).collect()
    }
}

fn manifest_entry(path: &RelPath, seen: &Seen) -> Entry {
    Entry {
        name: path.name().to_vec(),
        child: None,
        base: None,
        copy: Some(seen.stamp),
        hash: seen.hash,
        xattrs: seen.xattrs.clone(),
        target: seen.target.clone(),
    }
}
