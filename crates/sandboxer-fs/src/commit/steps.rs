//! What is to be done, in an order in which it can be done.

use sandboxer_core::model::{DiffKind, RelPath};

use super::check::Present;
use super::journal::{Dress, NOTHING, Step};
use super::staging::Allowed;
use crate::diff::{Delta, Plan, Seen};
use crate::manifest::Entry;
use crate::stamp::Stamp;

/// Steps by kind, to be put in order.
#[derive(Default)]
pub struct Steps {
    pub deletes: Vec<Step>,
    pub places: Vec<Step>,
    pub dresses: Vec<Step>,
}

impl Steps {
    /// What a set of differences takes.
    pub fn of(deltas: &[Delta], stamps: &[Option<Stamp>], present: &[Present], allowed: &[Allowed]) -> Self {
        let mut steps = Self::default();
        for (at, delta) in deltas.iter().enumerate() {
            steps.add(at, delta, stamps[at], &present[at], &allowed[at]);
        }
        steps
    }

    fn add(&mut self, at: usize, delta: &Delta, staged: Option<Stamp>, present: &Present, allowed: &Allowed) {
        let path = delta.entry.path.clone();
        let mut old = present.at;
        if let Some(from) = &delta.entry.from {
            self.deletes.push(Step::Delete { path: from.clone(), old: present.from.unwrap_or(NOTHING) });
        }
        let goes = delta.entry.kind == DiffKind::Deleted;
        let makes_way = delta.entry.kind == DiffKind::Type && old.is_some_and(|s| s.is_dir());
        if let Some(stamp) = old.filter(|_| goes || makes_way) {
            self.deletes.push(Step::Delete { path: path.clone(), old: stamp });
            old = None;
        }
        if goes && present.at.is_none() {
            // Gone from both: what is left to do is to forget it.
            self.deletes.push(Step::Delete { path: path.clone(), old: NOTHING });
        }
        let Some(seen) = delta.now.as_ref().filter(|_| !goes) else { return };
        let entry = manifest_entry(&path, seen, &delta.plan);
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
    pub fn in_order(self) -> Vec<Step> {
        let depth = |step: &Step| step.path().components().count();
        let Self { mut deletes, mut places, mut dresses } = self;
        deletes.sort_by_key(|s| std::cmp::Reverse(depth(s)));
        places.sort_by_key(depth);
        dresses.sort_by_key(|s| std::cmp::Reverse(depth(s)));
        deletes.into_iter().chain(places).chain(dresses).collect()
    }
}

/// The base from now on. A copy that is not what was committed gets a stamp that it can never have, so that what was left out
/// of it stays pending.
fn manifest_entry(path: &RelPath, seen: &Seen, plan: &Plan) -> Entry {
    let never = Stamp { ctime: 0, ino: 0, ..seen.stamp };
    Entry {
        name: path.name().to_vec(),
        child: None,
        base: None,
        copy: Some(if plan.content.is_some() { never } else { seen.stamp }),
        hash: seen.hash,
        kept: plan.kept,
        xattrs: seen.xattrs.clone(),
        target: seen.target.clone(),
    }
}
