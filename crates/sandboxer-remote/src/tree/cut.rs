//! What a fetch that was cut has done here.
//!
//! Its names are noted before anything is written, and stay noted until both sides are equal again. The host tells only what differs from its
//! list: what it made, let us bring half of, and took back again, it does not tell of. So whatever is noted and not told has to be here as
//! it was when both sides were last equal.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use sandboxer_core::Result;

use super::entry::{Entry, Name};
use super::record::{self, Known};
use super::told::Told;

/// Noted like a name, which none is: the list that the names differ from follows.
const LIST: &[u8] = b"./";
/// Likewise: the record of an entry as it was when it had come. Whoever changes it after that has done work.
const CAME: &[u8] = b"/";

/// What was noted.
pub(super) struct Cut {
    /// The word of the list that the host compared with; what was noted about another one is done with.
    list: Name,
    /// What may have been written or removed, and is not somebody's work since.
    pub names: HashSet<Name>,
    /// How those are that had come when it ended with an error. Of one that was killed nobody knows.
    came: Known,
}

impl Cut {
    pub fn load(record: &Path, told: &Told, here: &[Entry]) -> Result<Self> {
        let list = [LIST, told.base.as_deref().unwrap_or_default().as_bytes()].concat();
        let mut noted = record::being_fetched(record)?;
        if !noted.remove(&list) {
            noted.clear();
        }
        let came = noted.iter().filter_map(|note| Entry::parse(note.strip_prefix(CAME)?));
        let mut came: Known = came.map(|entry| (entry.path.clone(), entry)).collect();
        noted.retain(|note| !note.starts_with(CAME));
        if !came.is_empty() {
            let here = by_path(here);
            let is_ours =
                |known: &Entry| here.get(known.path.as_slice()).is_some_and(|h| known.holds_the_same(h));
            came.retain(|_, known| is_ours(known));
        }
        noted.extend(came.keys().cloned());
        Ok(Self { list, names: noted, came })
    }

    /// Adds to what the host tells what it has taken back: what came new is gone there, and what was changed or removed is as it was.
    pub fn tell(&self, told: &mut Told, base: &Known, here: &[Entry]) {
        if self.names.is_empty() {
            return;
        }
        let here = by_path(here);
        let untold = |path: &&Name| !told.present.contains_key(*path) && !told.gone.contains(*path);
        let untold: Vec<&Name> = self.names.iter().filter(untold).collect();
        for path in untold {
            match (base.get(path), here.get(path.as_slice())) {
                (None, Some(_)) => drop(told.gone.insert(path.clone())),
                (Some(known), found) if found.is_none_or(|found| !known.holds_the_same(found)) => {
                    told.present.insert(path.clone(), known.clone());
                }
                _ => {}
            }
        }
    }

    /// These too, of which some have come.
    pub fn and<'a>(&'a self, more: impl Iterator<Item = &'a Name>, came: Known) -> Self {
        let mut all = Self { list: self.list.clone(), names: self.names.clone(), came: self.came.clone() };
        for name in more {
            all.came.remove(name);
            all.names.insert(name.clone());
        }
        all.came.extend(came);
        all
    }

    pub fn note(&self, record: &Path) -> Result<()> {
        let came: Vec<Name> = self.came.values().map(|entry| [CAME, &entry.record()].concat()).collect();
        let bare = self.names.iter().filter(|name| !self.came.contains_key(*name));
        record::begin_fetching(record, bare.chain(&came).chain([&self.list]))
    }

    /// Both sides are equal: what is done here from now on is somebody's work.
    pub fn forget(&self, record: &Path) -> Result<()> {
        if self.names.is_empty() { Ok(()) } else { record::begin_fetching(record, [].into_iter()) }
    }
}

fn by_path(entries: &[Entry]) -> HashMap<&[u8], &Entry> {
    entries.iter().map(|entry| (entry.path.as_slice(), entry)).collect()
}
