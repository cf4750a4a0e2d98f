//! What has to be sent, and what has to go first.

use std::collections::{HashMap, HashSet};

use super::entry::{Entry, Kind, Name, order, parent, shown};
use super::record::Known;
use super::told::Told;

/// What a send does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Whether each entry here goes over.
    pub goes: Vec<bool>,
    /// How many of them differ; the others are directories that something is written into, whose times have to be set again.
    pub differ: u64,
    /// What is removed there, without what is in it.
    pub gone: Vec<Name>,
    /// Directories there that cannot be written to as they are.
    pub closed: Vec<Name>,
    pub refused: Vec<String>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && !self.goes.contains(&true)
    }
}

/// What is known of the tree there: what differs from its list was told, the rest is as we remember it.
struct There<'a> {
    base: &'a Known,
    told: &'a Told,
}

impl<'a> There<'a> {
    fn get(&self, path: &[u8]) -> Option<&'a Entry> {
        let remembered = || self.base.get(path).filter(|_| !self.told.gone.contains(path));
        self.told.present.get(path).or_else(remembered)
    }

    fn differs(&self, path: &[u8]) -> bool {
        self.told.present.contains_key(path) || self.told.gone.contains(path)
    }

    fn all(&self) -> impl Iterator<Item = &'a Name> {
        let remembered = self.base.keys().filter(|path| !self.differs(path));
        remembered.chain(self.told.present.keys())
    }
}

/// `here` is in the order of [`order`].
pub(super) fn of(here: &[Entry], base: &Known, told: &Told) -> Plan {
    let there = There { base, told };
    let mut plan = Plan { goes: here.iter().map(|entry| goes(entry, &there)).collect(), ..Plan::default() };
    plan.join_links(here);
    plan.differ = plan.goes.iter().filter(|goes| **goes).count() as u64;
    plan.remove(here, &there);
    plan.dress(here, &there);
    plan.refuse(here);
    plan
}

fn goes(entry: &Entry, there: &There<'_>) -> bool {
    let changed = there.base.get(&entry.path).is_none_or(|known| !known.untouched(entry));
    if entry.kind == Kind::Other || !changed && !there.differs(&entry.path) {
        return false;
    }
    let Some(found) = there.get(&entry.path) else { return true };
    // Of a send that was cut, what arrived whole has its time; tar sets it last. Without one, the time there may be anybody's work.
    let arrived = there.told.cut && !entry.linked && there.told.present.contains_key(&entry.path);
    let is_enough = arrived || entry.kind == Kind::Directory;
    !(is_enough && found.looks_like(entry))
}

impl Plan {
    /// Names of one file go together, or they would be several.
    fn join_links(&mut self, here: &[Entry]) {
        let marked = here.iter().zip(&self.goes).filter(|(entry, goes)| entry.linked && **goes);
        let files: HashSet<u64> = marked.map(|(entry, _)| entry.inode).collect();
        for (entry, goes) in here.iter().zip(&mut self.goes) {
            *goes |= entry.linked && files.contains(&entry.inode);
        }
    }

    fn remove(&mut self, here: &[Entry], there: &There<'_>) {
        let kinds: HashMap<&[u8], Kind> =
            here.iter().map(|entry| (entry.path.as_slice(), entry.kind)).collect();
        let stays = |path: &Name| {
            there.get(path).is_some_and(|found| {
                kinds.get(path.as_slice()) == Some(&found.kind) && found.kind != Kind::Other
            })
        };
        let mut gone: Vec<&Name> = there.all().filter(|path| !path.is_empty() && !stays(path)).collect();
        gone.sort_unstable_by(|a, b| order(a, b));
        for path in gone {
            let covered = self.gone.last().is_some_and(|above| is_below(path, above));
            if !covered {
                self.gone.push(path.clone());
            }
        }
    }

    /// Directories that something is written into or removed from go too: their times change by that.
    fn dress(&mut self, here: &[Entry], there: &There<'_>) {
        let sent = here.iter().zip(&self.goes).filter(|(_, goes)| **goes).map(|(entry, _)| &entry.path);
        let touched: HashSet<&[u8]> = sent.chain(&self.gone).filter_map(|path| parent(path)).collect();
        let closed = |path: &[u8]| {
            there.get(path).is_some_and(|found| found.kind == Kind::Directory && found.mode & 0o700 != 0o700)
        };
        self.closed = touched.iter().filter(|path| closed(path)).map(|path| path.to_vec()).collect();
        self.closed.sort_unstable_by(|a, b| order(a, b));
        for (entry, goes) in here.iter().zip(&mut self.goes) {
            *goes |= entry.kind == Kind::Directory && touched.contains(entry.path.as_slice());
        }
    }

    fn refuse(&mut self, here: &[Entry]) {
        for (entry, goes) in here.iter().zip(&self.goes) {
            if entry.kind == Kind::Other {
                self.refused.push(format!("{}: a device, socket or pipe", shown(&entry.path)));
            } else if *goes && entry.kind != Kind::Link && entry.mode != entry.plain_mode() {
                self.refused.push(format!("{}: its set-id or sticky bits", shown(&entry.path)));
            }
        }
    }
}

pub(super) fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}
