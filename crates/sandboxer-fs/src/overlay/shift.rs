//! From one state of an overlay to another: what differs between them, and how to get there while something works in it.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::{NodeType, RelPath};

use super::base::attributes;
use super::layer::Layer;
use super::space::{OverlaySpace, OverlaySpec};
use super::stack::{LayerId, Places};
use super::touched::touched;
use super::view::{Found, View};
use crate::base::Base;
use crate::copy::{Transfer, copy_file};
use crate::diff::{Candidate, Comparison, Scan};
use crate::filter::Filter;
use crate::manifest::{Edits, Entry};
use crate::restore::{Restored, Scope, Source, restore};
use crate::root::{Dir, Root};
use crate::space::Space;

/// Where an entry is before and after.
type Sides = (Option<Found>, Option<Found>);

/// Two states of one overlay.
pub struct Shift {
    from: Vec<Layer>,
    to: Vec<Layer>,
    /// How many of the lowest layers both have.
    common: usize,
    preserve: Layer,
    bottom: Root,
}

impl Shift {
    /// From the present state, whose frozen layers are `from`, to that of the layers `to`; lowest first.
    pub fn open(spec: &OverlaySpec, places: &Places, from: &[LayerId], to: &[LayerId]) -> Result<Self> {
        let layer = |id: &LayerId| Layer::open(&places.layer(*id), spec.marks);
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let mut present = vec![Layer::open(&places.upper(), spec.marks)?];
        for id in from.iter().rev() {
            present.push(layer(id)?);
        }
        Ok(Self {
            from: present,
            to: to.iter().rev().map(layer).collect::<Result<_>>()?,
            common,
            preserve: Layer::open(&places.preserve(), spec.marks)?,
            bottom: Root::open(&spec.original)?,
        })
    }

    fn view<'a>(&'a self, layers: &'a [Layer]) -> View<'a> {
        View { layers: layers.iter().chain([&self.preserve]).collect(), bottom: &self.bottom }
    }

    /// How many entries that pass `filter` are shown otherwise. Files are not read for it: one that is in another place counts.
    pub fn count(&self, filter: &Filter, cancel: &CancelFlag) -> Result<u64> {
        let differing = self.differing(filter, cancel)?;
        let counts = |path: &RelPath, (was, is): Sides| {
            let is_dir = is.or(was).is_some_and(|found| found.stamp.is_dir());
            differs(was, is) && filter.passes_all(path, is_dir)
        };
        Ok(differing.into_iter().filter(|(path, sides)| counts(path, *sides)).count() as u64)
    }

    /// Every path where the two may differ, and where each of them has it.
    fn differing(&self, filter: &Filter, cancel: &CancelFlag) -> Result<BTreeMap<RelPath, Sides>> {
        let (from, to) = (self.view(&self.from), self.view(&self.to));
        let own = |layers: &'_ [Layer]| layers.len() - self.common;
        let layers: Vec<&Layer> =
            self.from[..own(&self.from)].iter().chain(&self.to[..own(&self.to)]).collect();
        let (mut found, mut hidden) = (BTreeMap::new(), BTreeSet::new());
        for (path, facts) in touched(&layers, filter, 1, cancel)?.paths {
            let (was, is) = (from.find(&path)?, to.find(&path)?);
            let is_dir = |found: Option<Found>| found.is_some_and(|found| found.stamp.is_dir());
            if is_dir(was) && (!is_dir(is) || facts.hides_below()) {
                below(&from, &path, &mut hidden)?;
            }
            if is_dir(is) && (!is_dir(was) || facts.hides_below()) {
                below(&to, &path, &mut hidden)?;
            }
            found.insert(path, (was, is));
        }
        for path in hidden {
            if let std::collections::btree_map::Entry::Vacant(free) = found.entry(path) {
                let both = (from.find(free.key())?, to.find(free.key())?);
                free.insert(both);
            }
        }
        Ok(found)
    }
}

fn below(view: &View<'_>, dir: &RelPath, paths: &mut BTreeSet<RelPath>) -> Result<()> {
    let mut waiting = vec![dir.clone()];
    while let Some(dir) = waiting.pop() {
        for name in view.names(Some(&dir))? {
            let path = dir.join(&name);
            if view.find(&path)?.is_some_and(|found| found.stamp.is_dir()) {
                waiting.push(path.clone());
            }
            paths.insert(path);
        }
    }
    Ok(())
}

fn differs(was: Option<Found>, is: Option<Found>) -> bool {
    match (was.map(|f| f.stamp), is.map(|f| f.stamp)) {
        (None, None) => false,
        (Some(was), Some(is)) if was.is_dir() && is.is_dir() => was.mode != is.mode || !was.same_owner(&is),
        (Some(was), Some(is)) => (was.ino, was.dev) != (is.ino, is.dev),
        _ => true,
    }
}

/// Changes what differs, entry by entry through the mount of `space`: for an overlay that cannot be unmounted.
pub fn through_the_mount(space: &OverlaySpace, shift: &Shift) -> Result<Restored> {
    let pair = space.pair();
    let target = Target { shift, view: shift.view(&shift.to) };
    let comparison = pair.comparison(&target);
    let mut source = FromView { view: shift.view(&shift.to), buffer: Vec::new() };
    let restored = pair.with_workshop(|shop| restore(&comparison, Scope::Below(&[]), &mut source, shop))?;
    Ok(Restored { edits: Edits::new(), ..restored })
}

/// A state to go to, as something to compare with.
struct Target<'a> {
    shift: &'a Shift,
    view: View<'a>,
}

impl Base for Target<'_> {
    fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        let Some(found) = self.view.find(path)? else { return Ok(None) };
        let parent = self.view.open_parent(path, &found)?;
        let mut entry = Entry { name: path.name().to_vec(), base: Some(found.stamp), ..Entry::default() };
        match found.stamp.node_type() {
            NodeType::Symlink => entry.target = parent.read_link(path.name())?,
            NodeType::File | NodeType::Directory => entry.xattrs = attributes(&parent, path.name())?,
            _ => {}
        }
        Ok(Some(entry))
    }

    fn scan(&self, comparison: &Comparison<'_>) -> Result<Scan> {
        let mut found = BTreeMap::new();
        for path in self.shift.differing(comparison.filter, comparison.cancel)?.into_keys() {
            let (base, now) = (self.find(&path)?, comparison.copy.stamp(&path)?);
            let is_dir = now.or(base.as_ref().and_then(|b| b.base)).is_some_and(|stamp| stamp.is_dir());
            if (base.is_some() || now.is_some()) && comparison.filter.passes_all(&path, is_dir) {
                found.insert(path.clone(), Candidate { path, base, now });
            }
        }
        Ok(Scan { candidates: found.into_values().collect(), ..Scan::default() })
    }

    fn recorded(&self) -> Result<Vec<(RelPath, Entry)>> {
        Ok(Vec::new())
    }

    fn rewrite(&self, _edits: Edits) -> Result<()> {
        Ok(())
    }
}

/// Content as a view shows it.
struct FromView<'a> {
    view: View<'a>,
    buffer: Vec<u8>,
}

impl Source for FromView<'_> {
    fn fetch(&mut self, path: &RelPath, entry: &Entry, to: &Dir, name: &[u8]) -> Result<Option<Entry>> {
        let Some(found) = self.view.find(path)? else { return Ok(None) };
        let from = self.view.open_parent(path, &found)?;
        let copied = copy_file((&from, path.name()), (to, name), Transfer::Prefer, &mut self.buffer)?;
        Ok(Some(Entry { copy: Some(copied.target), hash: copied.hash, ..entry.clone() }))
    }

    fn current(&mut self, _path: &RelPath, entry: &Entry) -> Result<Option<Entry>> {
        Ok(Some(entry.clone()))
    }
}
