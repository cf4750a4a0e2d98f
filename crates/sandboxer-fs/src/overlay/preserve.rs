//! What an overlay goes on showing when somebody else's commit changes the original below it.
//!
//! A mount does not notice that a lower layer gained a file, so a layer of preserved entries alone would only help the next
//! mount. Hence three things for every entry that is about to change: a copy of it in `preserve`, for mounts to come; a record of it as this
//! workspace's base; and, where the overlay is mounted now, a copy-up through that very mount. What is new in the original is
//! hidden by a whiteout in `preserve`, and, once it is there, by one that the mount itself makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sandboxer_core::Result;
use sandboxer_core::model::RelPath;

use super::base::OverlayBase;
use super::layer::Layer;
use super::live::{detach, hide, is_holder, take_over};
use super::new_names::{NewNames, parent_directories, record_after_commit, record_before_commit};
use super::records::{Records, Replaced, Says, says};
use super::shelf::{Making, Put, Shelf};
use super::space::OverlaySpec;
use super::stack::{Places, Stack};
use super::taken;
use super::view::View;
use crate::base::Base;
use crate::commit::{Journal, Step};
use crate::filter::Filter;
use crate::list;
use crate::manifest::{Edits, Entry};
use crate::root::Root;
use crate::stamp::Stamp;

/// An overlay workspace that looks at an original which is about to change.
pub struct Watcher {
    /// Its own directory.
    pub home: PathBuf,
    /// What it is made of.
    pub spec: OverlaySpec,
    /// Where its mount is reached, if it is mounted.
    pub merged: Option<PathBuf>,
}

/// What a journal touches, in one workspace's own paths.
struct Changes {
    /// Everything.
    paths: BTreeSet<RelPath>,
    /// Directories that go, for good or for something else.
    leaving: BTreeSet<RelPath>,
}

impl Changes {
    fn of(journal: &Journal, original: &Path, watched: &Path, filter: &Filter) -> Self {
        let mut changes = Self { paths: BTreeSet::new(), leaving: BTreeSet::new() };
        for step in &journal.steps {
            let Some(path) = seen_from(watched, &original.join(step.path().as_path())) else { continue };
            let (is_dir, goes) = match step {
                Step::Place { old, new, .. } => (new.is_dir(), old.is_some_and(|old| old.is_dir())),
                Step::Delete { old, .. } => (old.is_dir(), old.is_dir()),
                Step::Dress { old, .. } => (old.is_dir(), false),
            };
            if !filter.passes_all(&path, is_dir) {
                continue;
            }
            if goes {
                changes.leaving.insert(path.clone());
            }
            changes.paths.insert(path);
        }
        changes
    }
}

/// `path` below `root`; `None` where it is not below it.
fn seen_from(root: &Path, path: &Path) -> Option<RelPath> {
    RelPath::parse(path.strip_prefix(root).ok()?).ok()
}

impl Watcher {
    /// Whether anything at or below `original` is, or holds, what this workspace looks at.
    pub fn looks_at(&self, original: &Path) -> bool {
        self.spec.original.starts_with(original) || original.starts_with(&self.spec.original)
    }

    /// Keeps what the journal is about to change. The journal is of a commit to `original`.
    pub fn keep_old(&self, original: &Root, journal: &Journal) -> Result<()> {
        let filter = Filter::new(&self.spec.patterns)?;
        let changes = Changes::of(journal, original.path(), &self.spec.original, &filter);
        if changes.paths.is_empty() {
            return Ok(());
        }
        let watched = Root::open(&self.spec.original)?;
        let (base, preserve) =
            (self.base(&watched)?, Layer::open(&self.places().preserve(), self.spec.marks)?);
        let from = View { layers: vec![&preserve], bottom: &watched };
        // Not in the layer: what is half made there would be seen from the next mount on.
        let making = Making::at(&self.home.join("making"))?;
        let shelf = Shelf { from, to: Root::open(self.places().preserve())?, making };
        let mut edits = Edits::new();
        for path in &changes.paths {
            match watched.stamp(path)? {
                Some(_) => keep(&base, &shelf, path, &mut edits)?,
                None => hide_before(&base, &shelf, path, &mut edits)?,
            }
        }
        let directories = parent_directories(changes.paths.iter());
        record_before_commit(&base, &self.home, &directories, &mut edits)?;
        note_directories(&base, directories, &mut edits)?;
        base.rewrite(edits)?;
        match &self.merged {
            Some(merged) => {
                let merged = Root::open(merged)?;
                take_over(&base, &merged, &changes.paths)?;
                taken::note(&self.home, changes.paths.iter().filter(|path| in_layers(&base, path)).cloned())?;
                match journal.graves() {
                    Some(_) => Ok(()),
                    // What they hold comes first.
                    None => changes.leaving.iter().rev().try_for_each(|path| detach(&base, &merged, path)),
                }
            }
            None => Ok(()),
        }
    }

    /// Hides what the journal has added.
    pub fn hide_new(&self, original: &Root, journal: &Journal) -> Result<()> {
        let filter = Filter::new(&self.spec.patterns)?;
        let changes = Changes::of(journal, original.path(), &self.spec.original, &filter);
        let merged = self.merged.as_ref().map(Root::open).transpose()?;
        let watched = Root::open(&self.spec.original)?;
        let base = self.base(&watched)?;
        for path in changes.paths.iter().filter(|path| is_free(&base, path)) {
            let Says::Here(None) = says(&base.recorded, path) else { continue };
            match &merged {
                Some(merged) if watched.stamp(path)?.is_some() => hide(merged, path)?,
                Some(_) => {}
                None => drop_holder(&base, path)?,
            }
        }
        record_after_commit(&base, &self.home, parent_directories(changes.paths.iter()))
    }

    fn places(&self) -> Places {
        Places::new(&self.home)
    }

    fn base<'a>(&'a self, original: &'a Root) -> Result<OverlayBase<'a>> {
        let (places, records) = (self.places(), Records::new(&self.home));
        let dirs = [places.upper()].into_iter().chain(Stack::load(&places)?.lowers(&places));
        Ok(OverlayBase {
            original,
            instant: &self.spec.instant,
            recorded: records.load()?,
            records,
            layers: dirs.map(|dir| Layer::open(&dir, self.spec.marks)).collect::<Result<_>>()?,
            preserve: Root::open(places.preserve())?,
            taken: taken::load(&self.home)?,
            new_names: NewNames::load(&self.home)?,
        })
    }
}

/// Whether a layer has anything, a whiteout included, at `path`.
pub(super) fn in_layers(base: &OverlayBase<'_>, path: &RelPath) -> bool {
    base.layers.iter().any(|layer| layer.root.stamp(path).is_ok_and(|found| found.is_some()))
}

/// Whether no layer has anything at `path` but what [`hide`] left there when it was killed.
fn is_free(base: &OverlayBase<'_>, path: &RelPath) -> bool {
    !in_layers(base, path) || has_holder(base, path)
}

fn has_holder(base: &OverlayBase<'_>, path: &RelPath) -> bool {
    let in_upper = |upper: &Layer| upper.root.stamp(path).is_ok_and(|found| found.is_some_and(is_holder));
    base.layers.first().is_some_and(in_upper)
}

/// Removes what [`hide`] left, where it is not mounted any more: `preserve` hides what is below.
fn drop_holder(base: &OverlayBase<'_>, path: &RelPath) -> Result<()> {
    match base.layers.first() {
        Some(upper) if has_holder(base, path) => crate::remove_below(&upper.root, path),
        _ => Ok(()),
    }
}

/// Notes what the directories are that a commit is about to write to: afterwards their times would say that anybody may have changed
/// them.
fn note_directories(
    base: &OverlayBase<'_>,
    directories: BTreeSet<Option<RelPath>>,
    edits: &mut Edits,
) -> Result<()> {
    for dir in directories.into_iter().flatten() {
        if edits.contains_key(&dir) || says(&base.recorded, &dir) != Says::Silent {
            continue;
        }
        let entry = base.in_original(&dir)?;
        if entry.as_ref().and_then(|e| e.base).is_some_and(|stamp| stamp.is_dir() && stamp.is_known()) {
            edits.insert(dir, entry);
        }
    }
    Ok(())
}

/// The same for a commit of the workspace itself.
pub(super) fn note_own_directories(base: &OverlayBase<'_>, home: &Path, journal: &Journal) -> Result<()> {
    let (directories, mut edits) = (parent_directories(journal.steps.iter().map(Step::path)), Edits::new());
    record_before_commit(base, home, &directories, &mut edits)?;
    note_directories(base, directories, &mut edits)?;
    for step in &journal.steps {
        if let Step::Place { path, new, .. } = step
            && new.is_dir()
        {
            note_strangers(base, path, &mut edits)?;
        }
    }
    base.rewrite(edits)
}

/// A directory that is committed where the workspace knew of nothing may be there already, by somebody else's commit: what that holds is
/// nothing that the workspace has deleted.
fn note_strangers(base: &OverlayBase<'_>, path: &RelPath, edits: &mut Edits) -> Result<()> {
    if matches!(says(&base.recorded, path), Says::Silent | Says::Here(Some(_))) {
        return Ok(());
    }
    let Ok(dir) = base.original.open_dir(path) else { return Ok(()) };
    for listed in list::names_and_types(&dir)? {
        edits.entry(path.join(&listed.name)).or_insert(None);
    }
    Ok(())
}

/// Notes what the workspace's own commit has replaced.
pub(super) fn note_replaced(records: &Records, journal: &Journal) -> Result<()> {
    let old = journal.steps.iter().filter_map(|step| match step {
        Step::Place { old, .. } => old.map(Replaced::from),
        Step::Delete { old, .. } => Some(Replaced::from(*old)),
        Step::Dress { .. } => None,
    });
    records.add_replaced(old.collect())
}

/// What the workspace's own commit has placed in directories that were made inside: a live mount does not know that the original
/// has them now.
pub(super) fn in_own_directories(base: &OverlayBase<'_>, journal: &Journal) -> Result<Vec<RelPath>> {
    let Some(upper) = base.layers.first() else { return Ok(Vec::new()) };
    let mut own = BTreeMap::new();
    let mut placed = Vec::new();
    for step in &journal.steps {
        let (Step::Place { path, .. }, Some(dir)) = (step, step.path().parent()) else { continue };
        let is_own = match own.get(&dir) {
            Some(is_own) => *is_own,
            None => *own.entry(dir.clone()).or_insert(is_made_inside(upper, &dir)?),
        };
        if is_own {
            placed.push(path.clone());
        }
    }
    Ok(placed)
}

/// Whether the directory at `path` is in `upper`, and was not copied up.
fn is_made_inside(upper: &Layer, path: &RelPath) -> Result<bool> {
    let Some(parent) = upper.root.find_parent(path)? else { return Ok(false) };
    let is_dir = parent.stamp(path.name())?.is_some_and(|stamp| stamp.is_dir());
    Ok(is_dir && upper.origin(&parent, path.name())?.is_none())
}

/// For an undo: the workspace goes on showing what it shows, of which some may be the original's alone by now.
pub(super) fn keep_own(base: &OverlayBase<'_>, merged: &Root, journal: &Journal) -> Result<()> {
    let here = base.original.path();
    take_over(base, merged, &Changes::of(journal, here, here, &Filter::all()).paths)
}

/// The same for what it does not show, once that is back in the original.
pub(super) fn hide_own(base: &OverlayBase<'_>, merged: &Root, journal: &Journal) -> Result<()> {
    for step in &journal.steps {
        let Step::Place { path, old: None, .. } = step else { continue };
        if is_free(base, path) && base.preserve.stamp(path)?.is_none() && base.original.stamp(path)?.is_some()
        {
            hide(merged, path)?;
        }
    }
    Ok(())
}

/// Keeps the old entry at `path`, and notes it as the base.
fn keep(base: &OverlayBase<'_>, shelf: &Shelf<'_>, path: &RelPath, edits: &mut Edits) -> Result<()> {
    let recorded = match says(&base.recorded, path) {
        Says::Nothing | Says::Here(None) => return Ok(()),
        Says::Here(Some(entry)) => Some(entry.clone()),
        Says::Silent => None,
    };
    let Some(mut entry) = base.in_original(path)? else { return Ok(()) };
    if recorded.is_none() {
        drop_stale(base, path, edits)?;
    }
    let is_made = |stamp: Stamp| stamp.is_dir() && recorded.is_none();
    entry.hash = match shelf.put(path)? {
        Put::Done(hash) => hash,
        // Made for what it holds.
        Put::Nothing if base.preserve.stamp(path)?.is_some_and(is_made) => None,
        Put::Unreadable if recorded.is_none() => {
            entry.base = entry.base.map(Stamp::at_unknown_time);
            edits.insert(path.clone(), Some(entry));
            return Ok(());
        }
        Put::Nothing | Put::Unreadable => return Ok(()),
    };
    if !in_layers(base, path) {
        // What it shows is its base, whoever changed it before.
        entry.base = base.original.stamp(path)?.or(entry.base);
    }
    let entry = match recorded {
        Some(recorded) => still_base(base, path, recorded, entry)?,
        None => entry,
    };
    edits.insert(path.clone(), Some(entry));
    Ok(())
}

/// What is the base of `path` of what is written down and what the original has: the latter where the workspace shows it.
fn still_base(base: &OverlayBase<'_>, path: &RelPath, recorded: Entry, found: Entry) -> Result<Entry> {
    let now = base.original.stamp(path)?;
    if recorded.base.zip(now).is_some_and(|(then, now)| then.untouched(&now)) {
        return Ok(Entry { hash: recorded.hash.or(found.hash), ..recorded });
    }
    let shown = View { layers: base.layers.iter().collect(), bottom: base.original }.find(path)?;
    Ok(if shown.is_some_and(|shown| shown.layer.is_none()) { found } else { recorded })
}

/// What was kept without being noted is of a commit that was cut short, and the original may have been changed since. The same goes for
/// what is in the way of `path`.
fn drop_stale(base: &OverlayBase<'_>, path: &RelPath, edits: &Edits) -> Result<()> {
    for path in std::iter::successors(Some(path.clone()), RelPath::parent) {
        let is_noted = edits.contains_key(&path) || says(&base.recorded, &path) != Says::Silent;
        let is_stale = |stamp: Stamp| !stamp.is_dir() && !is_noted;
        if base.preserve.stamp(&path)?.is_some_and(is_stale) {
            crate::remove_below(&base.preserve, &path)?;
        }
    }
    Ok(())
}

/// Hides what is to come at `path`, and notes that nothing is there.
fn hide_before(base: &OverlayBase<'_>, shelf: &Shelf<'_>, path: &RelPath, edits: &mut Edits) -> Result<()> {
    match says(&base.recorded, path) {
        Says::Nothing | Says::Here(Some(_)) => return Ok(()),
        // NewNames, but so far it took nothing to hide it.
        Says::Here(None) => return shelf.white_out(path).map(drop),
        Says::Silent => drop_stale(base, path, edits)?,
    }
    if shelf.white_out(path)? {
        edits.insert(path.clone(), None);
    }
    Ok(())
}

/// For a commit of the workspace itself: its checkpoints go on showing what they showed. One layer of old entries lies below all of them.
pub(super) fn keep_for_checkpoints(spec: &OverlaySpec, places: &Places, journal: &Journal) -> Result<()> {
    let mut stack = Stack::load(places)?;
    let changes = Changes::of(journal, &spec.original, &spec.original, &Filter::all());
    if stack.checkpoints.is_empty() || changes.paths.is_empty() {
        return Ok(());
    }
    let (id, layer) = stack.new_layer(places)?;
    let (preserve, original) = (Layer::open(&places.preserve(), spec.marks)?, Root::open(&spec.original)?);
    let from = View { layers: vec![&preserve], bottom: &original };
    let making = Making::at(&layer.with_extension("making"))?;
    let shelf = Shelf { from, to: Root::open(&layer)?, making };
    for path in &changes.paths {
        if matches!(shelf.put(path)?, Put::Nothing) {
            shelf.white_out(path)?;
        }
    }
    stack.put_below_checkpoints(id, places)
}

/// What the workspace has committed is its base: what was preserved of it before is not.
pub(super) fn forget_preserved(places: &Places, journal: &Journal) -> Result<()> {
    let preserve = Root::open(places.preserve())?;
    for step in &journal.steps {
        let path = step.path();
        let Some(kept) = preserve.stamp(path)? else { continue };
        let becomes_dir = match step {
            Step::Place { new, .. } => new.is_dir(),
            Step::Dress { old, .. } => old.is_dir(),
            Step::Delete { .. } => false,
        };
        if !(kept.is_dir() && becomes_dir) {
            crate::remove_below(&preserve, path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "preserve_tests.rs"]
mod tests;
