//! Whether the original is still what the sandbox was made from, wherever the commit wants to write.

use std::collections::BTreeSet;

use rustix::fs::{Access, AtFlags};
use sandboxer_core::model::{Conflict, DiffKind, RelPath};
use sandboxer_core::{Error, Result};

use crate::diff::{Delta, Over, original_moved};
use crate::list;
use crate::root::Root;
use crate::stamp::Stamp;

/// A file that was replaced in the sandbox and then deleted from the original looks like a new one.
const MAY_BE_DELETED: &str =
    "new, or deleted from the original: its directory has changed there since the sandbox wrote it";

/// What the original has at the path of each delta: what a step will require to find there.
pub type Present = Over;

/// Checks all deltas; any conflict ends the commit before anything is touched.
pub fn check_all(original: &Root, deltas: &[Delta]) -> Result<Vec<Present>> {
    let mut conflicts = Vec::new();
    let mut present = Vec::with_capacity(deltas.len());
    for verdict in check_each(original, deltas)? {
        match verdict {
            Ok(found) => present.push(found),
            Err((path, reason)) => conflicts.push(Conflict::new(path, reason)),
        }
    }
    if conflicts.is_empty() { Ok(present) } else { Err(Error::Conflict { conflicts }) }
}

/// Checks each delta: what is there, or where and how the original has moved.
pub fn check_each(original: &Root, deltas: &[Delta]) -> Result<Vec<Verdict>> {
    let mut check = Check { original, going: going(deltas), coming: coming(deltas), buffer: Vec::new() };
    check.refuse_forbidden(deltas)?;
    deltas.iter().map(|delta| check.check(delta)).collect()
}

fn going(deltas: &[Delta]) -> BTreeSet<RelPath> {
    let gone = |d: &Delta| match d.entry.kind {
        DiffKind::Deleted => Some(d.entry.path.clone()),
        DiffKind::Renamed => d.entry.from.clone(),
        _ => None,
    };
    deltas.iter().filter_map(gone).collect()
}

fn coming(deltas: &[Delta]) -> BTreeSet<RelPath> {
    deltas.iter().filter(|d| d.entry.makes_directory()).map(|d| d.entry.path.clone()).collect()
}

struct Check<'a> {
    original: &'a Root,
    /// Paths that this commit removes.
    going: BTreeSet<RelPath>,
    /// Directories that this commit makes.
    coming: BTreeSet<RelPath>,
    buffer: Vec<u8>,
}

/// What would be answered after the decision, when it is too late: asked beforehand.
impl Check<'_> {
    fn refuse_forbidden(&self, deltas: &[Delta]) -> Result<()> {
        let euid = rustix::process::geteuid();
        if euid.is_root() {
            return Ok(());
        }
        let mut entries = Vec::new();
        for delta in deltas {
            if let Some(reason) = self.forbidden(delta, euid.as_raw())? {
                entries.push((delta.entry.path.clone(), reason));
            }
        }
        if entries.is_empty() { Ok(()) } else { Err(Error::Uncommittable { entries }) }
    }

    fn forbidden(&self, delta: &Delta, uid: u32) -> Result<Option<String>> {
        if delta.entry.kind == DiffKind::Metadata {
            let owner = self.original.stamp(&delta.entry.path)?.map(|s| s.uid);
            let not_ours = owner.is_some_and(|owner| owner != uid);
            return Ok(not_ours.then(|| "it belongs to another user in the original".to_owned()));
        }
        for path in delta.entry.from.iter().chain([&delta.entry.path]) {
            if let Some(reason) = self.unwritable(path, uid)? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    /// Why nothing can be put into or taken out of the directory that holds `path`.
    fn unwritable(&self, path: &RelPath, uid: u32) -> Result<Option<String>> {
        let Some(parent) = self.original.find_parent(path)? else { return Ok(None) };
        let access = Access::WRITE_OK | Access::EXEC_OK;
        if let Err(e) = rustix::fs::accessat(&parent, ".", access, AtFlags::EACCESS) {
            let shown = parent.shown_self().display();
            return Ok(Some(format!("{shown} cannot be written ({})", std::io::Error::from(e))));
        }
        let (dir, entry) = (parent.stamp_self()?, parent.stamp(path.name())?);
        let sticky = dir.mode & 0o1000 != 0 && dir.uid != uid && entry.is_some_and(|e| e.uid != uid);
        Ok(sticky
            .then(|| "it belongs to another user, in a directory where only owners may remove".to_owned()))
    }
}

/// What is there, or which path has moved and how.
pub type Verdict = Result<Present, (RelPath, String)>;

impl Check<'_> {
    fn check(&mut self, delta: &Delta) -> Result<Verdict> {
        let path = &delta.entry.path;
        if let Some(over) = &delta.plan.over {
            return self.check_over(delta, over);
        }
        let moved = match delta.entry.kind {
            DiffKind::Renamed => self.check_rename(delta)?,
            DiffKind::Created => self.check_new(path, delta)?,
            _ => self.moved(path, delta)?,
        };
        if let Some((path, reason)) = moved {
            return Ok(Err((path, reason)));
        }
        Ok(Ok(present(self.original, delta)?))
    }

    /// The original has moved and that was dealt with: what counts is that it has not moved again, and that there is room.
    fn check_over(&mut self, delta: &Delta, over: &Over) -> Result<Verdict> {
        let path = &delta.entry.path;
        let now = present(self.original, delta)?;
        let same = |then: Option<Stamp>, now: Option<Stamp>| match (then, now) {
            (Some(then), Some(now)) => then.untouched(&now),
            (then, now) => then.is_none() && now.is_none(),
        };
        if !same(over.at, now.at) || !same(over.from, now.from) {
            return Ok(Err((path.clone(), "changed in the original again in this very moment".to_owned())));
        }
        if delta.now.is_some()
            && let Some(reason) = self.lost_directory(path)?
        {
            return Ok(Err((path.clone(), reason.to_owned())));
        }
        match self.stranger(delta, &now)? {
            Some((path, name)) => Ok(Err((path, holds_unknown(&name)))),
            None => Ok(Ok(now)),
        }
    }

    /// A directory that gives way, or that was renamed, and what it holds that does not go with it.
    fn stranger(&self, delta: &Delta, now: &Present) -> Result<Option<(RelPath, String)>> {
        let stays = delta.entry.kind == DiffKind::Metadata && !delta.plan.whole;
        let path = Some(&delta.entry.path).filter(|_| !stays);
        let both_directories = now.at.is_some_and(|s| s.is_dir()) && delta.entry.makes_directory();
        let places = [(path.filter(|_| !both_directories), now.at), (delta.entry.from.as_ref(), now.from)];
        for (path, stamp) in places {
            let Some(path) = path.filter(|_| stamp.is_some_and(|s| s.is_dir())) else { continue };
            if let Some(name) = self.unknown_child(path)? {
                return Ok(Some((path.clone(), name)));
            }
        }
        Ok(None)
    }

    fn check_rename(&mut self, delta: &Delta) -> Result<Option<(RelPath, String)>> {
        let Some(from) = delta.entry.from.clone() else { return Ok(None) };
        match self.moved(&from, delta)? {
            Some(found) => Ok(Some(found)),
            None => self.check_new(&delta.entry.path, delta),
        }
    }

    /// Nothing may be there yet, but for a directory where a directory comes; and there must be a place to put it.
    fn check_new(&mut self, path: &RelPath, delta: &Delta) -> Result<Option<(RelPath, String)>> {
        let conflict = |reason: &str| Ok(Some((path.clone(), reason.to_owned())));
        if let Some(reason) = self.lost_directory(path)? {
            return conflict(reason);
        }
        match self.original.stamp(path)? {
            None if delta.entry.moved => conflict(MAY_BE_DELETED),
            None => Ok(None),
            Some(now) if now.is_dir() && delta.entry.makes_directory() => Ok(None),
            Some(_) => conflict("created in the original too"),
        }
    }

    /// Why the original has no directory to put `path` in, unless the commit makes it.
    fn lost_directory(&self, path: &RelPath) -> Result<Option<&'static str>> {
        let Some(parent) = path.parent().filter(|parent| !self.coming.contains(parent)) else {
            return Ok(None);
        };
        Ok(match self.original.stamp(&parent)? {
            Some(found) if found.is_dir() => None,
            Some(_) => Some("its directory was replaced in the original"),
            None => Some("its directory is gone from the original"),
        })
    }

    fn moved(&mut self, path: &RelPath, delta: &Delta) -> Result<Option<(RelPath, String)>> {
        let conflict = |reason: String| Ok(Some((path.clone(), reason)));
        if let Some(reason) = original_moved(self.original, path, delta.base.as_ref(), &mut self.buffer)? {
            return conflict(reason.to_owned());
        }
        let was_dir = delta.base.as_ref().and_then(|b| b.base).is_some_and(|s| s.is_dir());
        let stays = delta.entry.kind == DiffKind::Metadata;
        match if was_dir && !stays { self.unknown_child(path)? } else { None } {
            Some(name) => conflict(holds_unknown(&name)),
            None => Ok(None),
        }
    }

    /// Something in a directory that is to go which does not go with it.
    fn unknown_child(&self, path: &RelPath) -> Result<Option<String>> {
        let Ok(dir) = self.original.open_dir(path) else { return Ok(None) };
        let listed = list::sorted(&dir)?;
        let unknown = listed.into_iter().find(|l| !self.going.contains(&path.join(&l.name)));
        Ok(unknown.map(|l| String::from_utf8_lossy(&l.name).into_owned()))
    }
}

fn holds_unknown(name: &str) -> String {
    format!("holds {name} in the original, which the sandbox does not know")
}

/// What the original has now, where a delta is about.
pub fn present(original: &Root, delta: &Delta) -> Result<Present> {
    let from = match &delta.entry.from {
        Some(from) => original.stamp(from)?,
        None => None,
    };
    Ok(Present { at: original.stamp(&delta.entry.path)?, from })
}
