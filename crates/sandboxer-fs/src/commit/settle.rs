//! Merges reach the sandbox too: what was committed as one, and what a person has to resolve.
//!
//! A file of the copy is only ever replaced as it was when it was read; if a program has written to it since, it is left alone,
//! and its base stays what it was, so that the next commit finds the same conflict again.

use rustix::fs::{self, OFlags, RenameFlags};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use super::apply::cannot_flag;
use super::journal::Journal;
use super::prepare::Prepare;
use super::resolve::Marked;
use crate::copy::{self, Meta};
use crate::diff::{Seen, describe_content};
use crate::manifest::Edits;
use crate::root::{Dir, Root};
use crate::space::{open_regular, write_all};
use crate::stamp::Stamp;

/// The copy, and where files for it are made.
pub struct Settling<'a> {
    /// The copy.
    pub copy: &'a Root,
    /// A directory on its filesystem.
    pub workshop: &'a Dir,
}

const TEMPORARY: &[u8] = b"settling";

/// Gives the copy what was committed as a merge. Returns the paths where that could not be done.
pub fn settle(
    journal: &Journal,
    original: &Root,
    copy: &Settling<'_>,
    edits: &mut Edits,
) -> Result<Vec<RelPath>> {
    let mut unsettled = Vec::new();
    for settle in &journal.settles {
        let Some(Some(entry)) = edits.get_mut(&settle.path) else { continue };
        let done = match entry.hash {
            Some(hash) => settle_one(&settle.path, &settle.old, hash, original, copy)?,
            None => None,
        };
        match done {
            Some(stamp) => entry.copy = Some(stamp),
            None => unsettled.push(settle.path.clone()),
        }
    }
    if !journal.settles.is_empty() {
        copy::wait_past(edits.values().flatten().filter_map(|e| e.copy).map(|s| s.ctime).max().unwrap_or(0));
    }
    Ok(unsettled)
}

/// The copy's stamp when it is what was committed, `None` where it could not be made that.
fn settle_one(
    path: &RelPath,
    old: &Stamp,
    hash: crate::hash::ContentHash,
    original: &Root,
    copy: &Settling<'_>,
) -> Result<Option<Stamp>> {
    let Some(now) = look(copy.copy, path)? else { return Ok(None) };
    let Some(content) = look(original, path)?.filter(|seen| seen.hash == Some(hash)) else { return Ok(None) };
    let same = |a: &Seen, b: &Seen| (a.hash, a.stamp.mode, &a.xattrs) == (b.hash, b.stamp.mode, &b.xattrs);
    if same(&now, &content) {
        // A commit that was killed right after the exchange has left the old file in the workshop.
        let is_left = copy.workshop.stamp(TEMPORARY)?.is_some_and(|out| old.same_inode(&out));
        return match copy.copy.find_parent(path)? {
            Some(parent) if is_left => look_at_what_came_out(copy.workshop, &parent, path, old),
            _ => Ok(Some(now.stamp)),
        };
    }
    if !old.untouched(&now.stamp) {
        return Ok(None);
    }
    let Some(parent) = original.find_parent(path)? else { return Ok(None) };
    let Some(fd) = open_regular(&parent, path)? else { return Ok(None) };
    let bytes = crate::content::read_all(fd, content.stamp.size)
        .map_err(|e| Error::io("read", original.shown(path), e))?;
    replace(copy.copy, copy.workshop, path, (&now, &content), &bytes)
}

fn look(root: &Root, path: &RelPath) -> Result<Option<Seen>> {
    let Some(parent) = root.find_parent(path)? else { return Ok(None) };
    let Ok(Some(fd)) = open_regular(&parent, path) else { return Ok(None) };
    let seen = describe_content(&fd, &mut Vec::new()).map_err(|e| Error::io("read", root.shown(path), e))?;
    Ok(Some(seen))
}

/// Replaces a file of the copy that still is `old` by one with the mode and attributes of `like`; `None` where it is not.
fn replace(
    copy: &Root,
    workshop: &Dir,
    path: &RelPath,
    (old, like): (&Seen, &Seen),
    content: &[u8],
) -> Result<Option<Stamp>> {
    crate::remove_entry(workshop, TEMPORARY)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let fd = workshop.open(TEMPORARY, flags, 0o600, "create")?;
    let failed = |e| Error::io("write", copy.shown(path), e);
    write_all(&fd, content).map_err(failed)?;
    let fresh = crate::root::stamp_of_fd(&fd).map_err(failed)?;
    let merged = Stamp { mode: like.stamp.mode, ..old.stamp };
    let meta = Meta { mtime: fresh.mtime, ..Meta::of(&merged, like.xattrs.clone()) };
    copy::finish_file(&fd, &meta).map_err(failed)?;
    // Or a power cut leaves an empty file, which the next commit would take for work.
    fs::fsync(&fd).map_err(failed)?;
    let Some(parent) = copy.find_parent(path)? else { return Ok(None) };
    if !parent.stamp(path.name())?.is_some_and(|now| old.stamp.untouched(&now)) {
        crate::remove_entry(workshop, TEMPORARY)?;
        return Ok(None);
    }
    match fs::renameat_with(workshop, TEMPORARY, &parent, path.name(), RenameFlags::EXCHANGE) {
        Ok(()) => look_at_what_came_out(workshop, &parent, path, &old.stamp),
        Err(e) if cannot_flag(e) => {
            fs::renameat(workshop, TEMPORARY, &parent, path.name()).map_err(failed)?;
            parent.stamp(path.name())
        }
        Err(e) => Err(failed(e)),
    }
}

/// What a program wrote in the moment of the exchange goes back into its place.
fn look_at_what_came_out(workshop: &Dir, parent: &Dir, path: &RelPath, old: &Stamp) -> Result<Option<Stamp>> {
    let failed = |e| Error::io("write", parent.shown(path.name()), e);
    let placed = parent.stamp(path.name())?;
    let meant = workshop.stamp(TEMPORARY)?.is_some_and(|out| old.same_inode(&out) && old.same_state(&out));
    if !meant {
        fs::renameat_with(workshop, TEMPORARY, parent, path.name(), RenameFlags::EXCHANGE).map_err(failed)?;
    }
    crate::remove_entry(workshop, TEMPORARY)?;
    Ok(placed.filter(|_| meant))
}

/// Puts merges into the sandbox for a person to look at; the original's present version is their base from then on.
pub fn mark(job: &Prepare<'_>, marked: &[Marked]) -> Result<()> {
    let (copy, mut edits, mut changed) = (job.comparison.copy, Edits::new(), None);
    for file in marked {
        match replace(copy, job.workshop, &file.path, (&file.copy, &file.merged), &file.content)? {
            Some(_) => drop(edits.insert(file.path.clone(), Some(file.base.clone()))),
            None => changed = Some(copy.shown(&file.path)),
        }
    }
    if !edits.is_empty() {
        job.comparison.base.rewrite(edits)?;
    }
    let holder = Some("it changed while it was being merged; nothing was committed".to_owned());
    changed.map_or(Ok(()), |path| Err(Error::Busy { path, holder }))
}
