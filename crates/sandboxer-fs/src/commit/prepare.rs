//! From a difference to a journal.

use sandboxer_core::model::{CommitRequest, DiffKind, DiffView, Notice, OnConflict, OpId, RelPath};
use sandboxer_core::{Error, Result};

use super::check::{Present, check_all};
use super::journal::{Journal, Settle};
use super::resolve::{Resolved, resolve, select};
use super::settle;
use super::stage::Stage;
use super::staging::stage_all;
use super::steps::Steps;
use super::{CommitFiles, clear};
use crate::diff::{Comparison, Delta, Links, differences};
use crate::manifest::Entry;
use crate::pack::PackWriter;
use crate::root::{Dir, Root};
use crate::space::History;
use crate::stamp::Stamp;

/// What a commit is prepared from.
pub struct Prepare<'a> {
    /// Copy and original.
    pub comparison: Comparison<'a>,
    /// The workspace's files.
    pub files: &'a CommitFiles,
    /// What to commit.
    pub request: &'a CommitRequest,
    /// What it is logged as; without, it cannot be taken back.
    pub operation: Option<OpId>,
    /// Where committed content is kept for later merges.
    pub pack: Option<&'a PackWriter>,
    /// A directory on the copy's filesystem, for making files that go there.
    pub workshop: &'a Dir,
    /// What the original's own history knows.
    pub history: Option<&'a dyn History>,
}

/// Stages, checks and returns the journal, not yet written. On an error nothing is left behind.
pub fn prepare(job: &Prepare<'_>) -> Result<Journal> {
    let mut all = differences(&job.comparison)?;
    let staying = std::mem::take(&mut all.staying);
    let (deltas, links) = select(job, all)?;
    refuse_uncommittable(&deltas)?;
    let mut told = tell_staying(&staying, &deltas);
    // Nothing is staged for a commit that is bound to fail.
    let Resolved { mut deltas, notices, marked, conflicts } = resolve(job, deltas)?;
    if !conflicts.is_empty() {
        if job.request.on_conflict == OnConflict::Mark {
            settle::mark(job, &marked)?;
        }
        return Err(Error::Conflict { conflicts });
    }
    part_from_other_names(job.comparison.original, &mut deltas)?;
    let stage = Stage::create(job.comparison.original, job.files.home(), &job.files.note())?;
    let journal = build(job, deltas, &links, &stage).map(|mut journal| {
        told.extend(notices);
        journal.notices.splice(0..0, told);
        journal
    });
    if journal.is_err() {
        // The first error is the one to tell.
        let _ = clear(job.files);
    }
    journal
}

/// A file with several names goes as a whole where only its mode, owner or attributes change: another name may be outside the
/// original, and is nothing that a commit may change.
fn part_from_other_names(original: &Root, deltas: &mut [Delta]) -> Result<()> {
    for delta in deltas.iter_mut().filter(|delta| delta.entry.kind == DiffKind::Metadata) {
        let has_other_names = |stamp: Stamp| stamp.is_file() && stamp.nlink > 1;
        delta.plan.whole |= original.stamp(&delta.entry.path)?.is_some_and(has_other_names);
    }
    Ok(())
}

/// Where something of a directory goes that the sandbox has no more, it is said that the rest stays.
fn tell_staying(staying: &[RelPath], deltas: &[Delta]) -> Vec<Notice> {
    let goes_from = |dir: &RelPath| {
        let mut gone = deltas.iter().filter_map(|d| match d.entry.kind {
            DiffKind::Deleted => Some(&d.entry.path),
            _ => d.entry.from.as_ref(),
        });
        gone.any(|path| path.is_within(dir))
    };
    let tell = |dir: &RelPath| Notice {
        path: dir.clone(),
        message: "kept: it holds files that are ignored".to_owned(),
    };
    staying.iter().filter(|dir| goes_from(dir)).map(tell).collect()
}

fn refuse_uncommittable(deltas: &[Delta]) -> Result<()> {
    let refused = |d: &Delta| d.entry.refused.clone().map(|reason| (d.entry.path.clone(), reason));
    let entries: Vec<_> = deltas.iter().filter_map(refused).collect();
    if entries.is_empty() { Ok(()) } else { Err(Error::Uncommittable { entries }) }
}

fn build(job: &Prepare<'_>, deltas: Vec<Delta>, links: &Links, stage: &Stage) -> Result<Journal> {
    let settles = deltas.iter().filter_map(Settle::of).collect();
    let (staged, notices) = stage_all(job, deltas, links, stage)?;
    let (deltas, stamps): (Vec<_>, Vec<_>) = staged.into_iter().unzip();
    stage.root.as_dir()?.sync()?;
    if let Some(pack) = job.pack.filter(|_| deltas.iter().any(|d| d.plan.kept.is_some())) {
        pack.sync();
    }
    let view = DiffView::new(deltas.iter().map(|d| d.entry.clone()).collect());
    if let Some(expected) = job.request.digest.as_ref().filter(|d| **d != view.digest) {
        return Err(Error::DigestMismatch { expected: expected.clone(), found: view.digest });
    }
    // Again, after the time that staging took: what the steps require is what is there now.
    let present = check_all(job.comparison.original, &deltas)?;
    job.comparison.cancel.check()?;
    let before = deltas.iter().zip(&present).flat_map(before).collect();
    let steps = Steps::of(&deltas, &stamps, &present, &notices).in_order();
    let notices = notices.into_iter().flat_map(|n| n.notices).collect();
    Ok(Journal {
        stage: stage.root.path().to_path_buf(),
        digest: view.digest,
        steps,
        entries: view.entries,
        notices,
        operation: job.operation.clone(),
        undoes: None,
        before,
        settles,
        rebased: Vec::new(),
    })
}

/// What the base says of the paths that a delta touches. A new directory that the original has too is none of ours.
fn before((delta, present): (&Delta, &Present)) -> Vec<(RelPath, Option<Entry>)> {
    let (path, base) = (delta.entry.path.clone(), delta.base.clone());
    let is_ours = !(delta.entry.makes_directory() && present.at.is_some_and(|at| at.is_dir()));
    let (from, at) = match delta.entry.from.clone() {
        Some(from) => (Some((from, base)), (path, None)),
        None => (None, (path, base)),
    };
    from.into_iter().chain(Some(at).filter(|_| is_ours)).collect()
}
