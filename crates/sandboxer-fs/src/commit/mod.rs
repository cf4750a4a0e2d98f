//! Making changes real, safely: stage, write down, make it so.
//!
//! [`prepare`] reads what is to be committed into new inodes on the original's filesystem, checks it against the original and
//! writes a journal. From the moment the journal is published the commit is decided: [`finish`] carries it out, and after a
//! crash carries it out again, until it is done. [`abort`] forgets what was prepared.

mod apply;
mod check;
mod fixed;
mod history;
mod journal;
mod prepare;
mod privileges;
mod rebase;
mod relieve;
mod resolve;
mod revert;
mod settle;
mod stage;
mod staging;
mod steps;
mod undo;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{CommitResult, DiffEntry, Notice};
use sandboxer_core::{Error, Result};

use crate::base::Base;
use crate::durable;
use crate::manifest::{Edits, Entry};
use crate::root::Root;
use crate::stamp::Stamp;

pub use apply::OnFailure;
pub use fixed::refuse_fixed;
pub use journal::{Dress, Journal, Outcome, Settle, Step};
pub use prepare::{Prepare, prepare};
pub use rebase::{Rebased, rebase};
pub use relieve::relieve;
pub use resolve::LABELS;
pub(crate) use resolve::{LARGEST, read_file};
pub use revert::{Revert, prepare as prepare_undo};
pub use settle::Settling;
pub use undo::{Kept, Record, Touched, forget as forget_undo, load as load_undo};

/// The files of a workspace that a commit uses.
#[derive(Clone, Debug)]
pub struct CommitFiles {
    home: PathBuf,
}

impl CommitFiles {
    /// For the workspace at `home`.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_path_buf() }
    }

    /// A published journal: the commit is decided.
    pub fn journal(&self) -> PathBuf {
        self.home.join("commit.journal")
    }

    /// A journal that somebody else decides about.
    pub fn prepared(&self) -> PathBuf {
        self.home.join("commit.prepared")
    }

    /// Where the stage is.
    pub fn note(&self) -> PathBuf {
        self.home.join("commit.stage")
    }

    /// Where content goes that could not be put in place.
    pub fn parking(&self) -> PathBuf {
        self.home.join("parked")
    }

    /// Where what takes operations back is kept.
    pub fn undo(&self) -> PathBuf {
        self.home.join("undo")
    }

    /// The workspace's own directory.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

/// Decides for what was prepared. A workspace with nothing prepared has nothing to decide.
pub fn decide(files: &CommitFiles) -> Result<()> {
    match std::fs::rename(files.prepared(), files.journal()) {
        Ok(()) => durable::sync_dir(files.home()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("publish", files.journal(), e)),
    }
}

/// Whether a decided commit waits to be carried out.
pub fn is_decided(files: &CommitFiles) -> bool {
    files.journal().exists()
}

/// Carries out a decided commit and clears up. Without one, clears up what an interrupted one left. `applied` hears of it when
/// everything is in place. The caller holds the resource's lock.
pub fn finish(
    files: &CommitFiles,
    original: &Root,
    base: &dyn Base,
    copy: &Settling<'_>,
    applied: &dyn Fn(&Journal) -> Result<()>,
    on_failure: OnFailure,
) -> Result<CommitResult> {
    let Some(journal) = Journal::load(&files.journal())? else {
        clear(files)?;
        return Ok(CommitResult::default());
    };
    let (outcome, mut edits) = apply::apply(&journal, original, &files.parking(), on_failure)?;
    applied(&journal)?;
    // What was replaced leaves the original's files before their stamps are taken: its names may be links of files that stay.
    let shelved = undo::shelve(&journal, files)?;
    if let Some(undone) = &journal.undoes {
        undo::forget(files, undone)?;
        restamp(original, &mut edits)?;
    }
    refresh_links(base, &journal, original, &mut edits)?;
    let unsettled = settle::settle(&journal, original, copy, &mut edits)?;
    let record = undo::record(&journal, &outcome, &edits, shelved, files)?;
    if let (Some(record), Some(operation)) = (&record, &journal.operation) {
        history::write(record, original, &undo::place_of(files, operation)?);
    }
    // A program has written to the copy since: its base stays what it was, and the next commit finds the conflict again.
    unsettled.iter().for_each(|path| drop(edits.remove(path)));
    for (path, entry) in &journal.rebased {
        edits.entry(path.clone()).and_modify(|edit| edit.clone_from(entry));
    }
    base.rewrite(edits)?;
    clear(files)?;
    let Journal { digest, mut entries, mut notices, .. } = journal;
    entries.retain(|e| !outcome.conflicts.iter().any(|c| c.path == e.path));
    let lost = record.as_ref().and_then(|r| r.lost.clone());
    notices.extend(lost.and_then(|reason| cannot_be_undone(&entries, reason)));
    let undo_bytes = record.filter(|r| r.lost.is_none()).map(|r| r.bytes);
    let conflicts = outcome.conflicts;
    Ok(CommitResult { digest, entries, notices, conflicts, undo_bytes, ..CommitResult::default() })
}

fn cannot_be_undone(entries: &[DiffEntry], reason: String) -> Option<Notice> {
    let path = entries.first()?.path.clone();
    Some(Notice { path, message: format!("committed, but it cannot be undone: {reason}") })
}

/// What was put back had another name until just now, where it was kept; losing that changed its stamp and nothing else.
fn restamp(original: &Root, edits: &mut Edits) -> Result<()> {
    for (path, entry) in edits.iter_mut().filter_map(|(path, entry)| Some((path, entry.as_mut()?))) {
        let Some(before) = entry.base.filter(Stamp::is_known) else { continue };
        let now = original.stamp(path)?.filter(|now| before.same_inode(now) && before.same_state(now));
        entry.base = Some(now.unwrap_or(before));
    }
    Ok(())
}

/// Forgets what was prepared. What was decided cannot be forgotten.
pub fn abort(files: &CommitFiles) -> Result<()> {
    if is_decided(files) {
        return Err(Error::already_decided(format!("in {}", files.home().display())));
    }
    clear(files)
}

/// Removes what a commit left outside the workspace, where the original itself is out of reach and nothing can be finished.
pub fn forget(files: &CommitFiles) -> Result<()> {
    clear(files)
}

/// Removes what an interrupted commit left. The note goes last: as long as it is there, an interrupted clearing can be repeated.
pub fn clear(files: &CommitFiles) -> Result<()> {
    for path in [files.journal(), files.prepared(), files.note()] {
        durable::discard_temporary(&path)?;
    }
    durable::remove(&files.journal())?;
    durable::remove(&files.prepared())?;
    if let Some(stage) = stage::noted(&files.note()) {
        stage::Stage::discard(&stage)?;
        // On another filesystem its removal has to be durable before the note's: or it comes back after a power cut
        // and nobody knows of it.
        if let Some(parent) = stage.parent().filter(|parent| *parent != files.home() && parent.exists()) {
            durable::sync_dir(parent)?;
        }
    }
    durable::remove(&files.note())
}

/// Replacing one name of a file with several changes the stamps of the others, which nobody edited.
fn refresh_links(base: &dyn Base, journal: &Journal, original: &Root, edits: &mut Edits) -> Result<()> {
    let touched: HashSet<u64> = journal.steps.iter().flat_map(linked_inodes).collect();
    if touched.is_empty() {
        return Ok(());
    }
    for (path, entry) in base.recorded()? {
        let Some(before) = entry.base.filter(|s| touched.contains(&s.ino)) else { continue };
        if edits.contains_key(&path) {
            continue;
        }
        let now = original.stamp(&path)?.filter(|now| before.same_inode(now) && before.same_state(now));
        if let Some(now) = now {
            edits.insert(path, Some(Entry { base: Some(now), ..entry }));
        }
    }
    Ok(())
}

fn linked_inodes(step: &Step) -> Vec<u64> {
    let stamps = match step {
        Step::Delete { old, .. } | Step::Dress { old, .. } => vec![*old],
        Step::Place { old, new, .. } => old.iter().chain([new]).copied().collect(),
    };
    stamps.into_iter().filter(|s| !s.is_dir() && s.nlink > 1).map(|s| s.ino).collect()
}
