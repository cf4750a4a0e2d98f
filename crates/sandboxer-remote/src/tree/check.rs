//! Whether what comes from a host meets only what is as we remember it.

use std::collections::{BTreeSet, HashMap, HashSet};

use sandboxer_core::Error;

use super::entry::{Entry, Kind, Name, above, parent, shown};
use super::record::Known;
use super::told::Told;

/// How many paths are named.
const NAMED: usize = 10;

/// Both sides, and what is to become of ours.
pub(super) struct Meeting<'a> {
    pub here: HashMap<&'a [u8], &'a Entry>,
    pub base: &'a Known,
    pub told: &'a Told,
    /// Whether it is about one file, whose directory is not ours.
    pub single: bool,
    /// What a fetch that was cut may have written or removed: nobody else's work.
    pub ours: &'a HashSet<Name>,
}

impl<'a> Meeting<'a> {
    pub fn new(
        here: &'a [Entry],
        base: &'a Known,
        told: &'a Told,
        single: bool,
        ours: &'a HashSet<Name>,
    ) -> Self {
        let here = here.iter().map(|entry| (entry.path.as_slice(), entry)).collect();
        Self { here, base, told, single, ours }
    }

    /// What is to be here in the end, for what differs there. A device or a pipe is not brought here: what it replaced is gone.
    pub fn wanted(&self, path: &[u8]) -> Option<&'a Entry> {
        self.told.present.get(path).filter(|entry| entry.is_carried())
    }

    /// Whether nothing is to be here in the end.
    pub fn is_doomed(&self, path: &[u8]) -> bool {
        self.told.gone.contains(path) || self.told.present.get(path).is_some_and(|entry| !entry.is_carried())
    }

    /// Everything that was changed on both sides.
    pub fn conflicts(&self) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        let differing = self.told.present.keys().chain(&self.told.gone);
        found.extend(differing.filter(|path| !self.may_change(path) || !self.has_place(path)).cloned());
        if !self.told.present.is_empty() || !self.told.gone.is_empty() {
            let stays = |path: &&&[u8]| !self.is_doomed(path) && !self.ours.contains(**path);
            let covered = self.here.keys().filter(stays).filter(|path| self.loses_its_directory(path));
            found.extend(covered.map(|path| path.to_vec()));
        }
        found
    }

    fn may_change(&self, path: &[u8]) -> bool {
        if self.ours.contains(path) {
            return true;
        }
        let Some(here) = self.here.get(path) else {
            // Removed here, and changed there; or removed on both sides, or new there.
            return self.base.get(path).is_none() || self.is_doomed(path) || self.base_is_directory(path);
        };
        let remembered = match self.base.get(path) {
            // A directory's own particulars are nobody's work.
            Some(known) if known.kind == Kind::Directory => here.kind == Kind::Directory,
            Some(known) => known.holds_the_same(here),
            None => false,
        };
        // What looks like what comes was brought by a fetch that was cut. It comes again all the same: what is there may have been made anew
        // with the same time.
        let same = self.wanted(path).is_some_and(|wanted| match wanted.kind {
            Kind::Directory => here.kind == Kind::Directory,
            _ => wanted.looks_like(here),
        });
        remembered || same
    }

    /// A directory that was removed here, and there had its time changed: what matters is what is in it.
    fn base_is_directory(&self, path: &[u8]) -> bool {
        self.base.get(path).is_some_and(|known| known.kind == Kind::Directory)
    }

    /// Whether what comes has a directory to go to.
    fn has_place(&self, path: &[u8]) -> bool {
        let (Some(_), Some(parent)) = (self.wanted(path), parent(path)) else { return true };
        let is_here = || self.here.get(parent).is_some_and(|here| here.kind == Kind::Directory);
        let stays = || self.single || is_here() && !self.is_doomed(parent);
        self.wanted(parent).map_or_else(stays, |wanted| wanted.kind == Kind::Directory)
    }

    fn loses_its_directory(&self, path: &[u8]) -> bool {
        let goes = |path: &[u8]| {
            self.is_doomed(path) || self.wanted(path).is_some_and(|wanted| wanted.kind != Kind::Directory)
        };
        above(path).any(goes)
    }
}

/// What is said of them.
pub(super) fn error(conflicts: &BTreeSet<Name>, host: &str) -> Error {
    let mut named: Vec<String> = conflicts.iter().take(NAMED).map(|path| shown(path)).collect();
    if conflicts.len() > NAMED {
        named.push(format!("and {} more", conflicts.len() - NAMED));
    }
    Error::Refused {
        reason: format!("changed here and on {host} as well: {}", named.join(", ")),
        hint: Some(
            "nothing was written; undo what was changed here, or move it away, and try again".to_owned(),
        ),
    }
}
