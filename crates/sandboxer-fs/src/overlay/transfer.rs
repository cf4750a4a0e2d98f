//! Layers made from layers: copies, and several made one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use super::copier::{Copier, Outcome, Remark, Source, make_whiteout};
use super::layer::{Layer, Meaning, ORIGIN};
use crate::list;
use crate::manifest;
use crate::root::Dir;
use crate::stamp::Stamp;

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Whiteouts, files, directories and all else.
    pub entries: u64,
    /// What changed while it was read, however often it was tried again.
    pub unsteady: Vec<RelPath>,
}

/// How often a name whose entry is replaced under the copy is looked at again.
const TRIES: usize = 4;

/// Copies a layer as it is into the empty directory `to`: whiteouts, marks, attributes, owners, times, hard links, holes;
/// blocks are shared where possible. The layer may be the upper of a live mount: what goes away meanwhile is left out.
/// Nothing is flushed to disk.
pub fn copy_layer(from: &Layer, to: &Path, cancel: &CancelFlag) -> Result<Copied> {
    let copier = Copier::new(to)?;
    let remark = Remark::none(from.marks);
    let mut copy = LayerCopy { from, copier, remark, copied: Copied::default(), waiting: vec![None] };
    while let Some(path) = copy.waiting.pop() {
        copy.copy_dir(path, cancel)?;
    }
    Ok(copy.copied)
}

struct LayerCopy<'a> {
    from: &'a Layer,
    copier: Copier,
    remark: Remark,
    copied: Copied,
    /// Directories that are made and yet to be filled.
    waiting: Vec<Option<RelPath>>,
}

impl LayerCopy<'_> {
    fn copy_dir(&mut self, path: Option<RelPath>, cancel: &CancelFlag) -> Result<()> {
        let Some(from) = self.from.find_dir(path.as_ref())? else {
            return path.map_or(Ok(()), |path| self.take_back(path));
        };
        let to = self.copier.to.dir(path.as_ref())?;
        for listed in list::sorted(&from)? {
            cancel.check()?;
            self.copy_name(&from, manifest::join(path.as_ref(), &listed.name)?, &to)?;
        }
        self.copier.finish_dir(&from, path.as_ref(), &self.remark)
    }

    /// The directory went away after its name had been copied. What is there now may be a whiteout.
    fn take_back(&mut self, path: RelPath) -> Result<()> {
        let to = self.copier.to.parent_of(&path)?;
        to.remove(path.name(), true)?;
        self.copied.entries -= 1;
        match self.from.root.find_parent(&path)? {
            Some(from) => self.copy_name(&from, path, &to),
            None => Ok(()),
        }
    }

    fn copy_name(&mut self, from: &Dir, path: RelPath, to: &Dir) -> Result<()> {
        let mut outcome = Outcome::Replaced;
        for _ in 0..TRIES {
            let Some(stamp) = from.stamp(path.name())? else { return Ok(()) };
            let source = Source { layer: 0, dir: from, path: &path, stamp, remark: &self.remark };
            outcome = self.copier.copy(&source, to)?;
            if outcome != Outcome::Replaced {
                if stamp.is_dir() {
                    self.waiting.push(Some(path.clone()));
                }
                break;
            }
        }
        self.copied.entries += u64::from(matches!(outcome, Outcome::Made | Outcome::Unsteady));
        if matches!(outcome, Outcome::Unsteady | Outcome::Replaced) {
            self.copied.unsteady.push(path);
        }
        Ok(())
    }
}

/// Makes one layer of several (topmost first) that shows the same over anything, in the empty directory `to`; tells how
/// many entries it has. All have the same kind of marks, and nobody writes to them. Nothing is flushed to disk.
///
/// Whiteouts stay, as what is below is not known. A directory that hides what is below it, because it is opaque in some layer or
/// because a whiteout or a file lies between, is opaque. Origins are those of the lowest layer that has the entry; a directory with
/// whiteouts that has none there gets one that tells nothing.
pub fn squash(layers: &[&Layer], to: &Path, cancel: &CancelFlag) -> Result<u64> {
    let Some(topmost) = layers.first() else { return Ok(0) };
    let remark = Remark { opaque: Some(false), ..Remark::none(topmost.marks) };
    let first = Level { path: None, layers: (0..layers.len()).collect(), covered: false, remark };
    let mut squash = Squash { layers, copier: Copier::new(to)?, waiting: vec![first], entries: 0 };
    while let Some(level) = squash.waiting.pop() {
        squash.merge_dir(level, cancel)?;
    }
    Ok(squash.entries)
}

struct Squash<'a> {
    layers: &'a [&'a Layer],
    copier: Copier,
    waiting: Vec<Level>,
    entries: u64,
}

/// A directory of the result, made and yet to be filled.
struct Level {
    path: Option<RelPath>,
    /// The layers that it is merged from, topmost first.
    layers: Vec<usize>,
    /// Whether it, or a directory above it, hides all that is below the layers.
    covered: bool,
    remark: Remark,
}

/// What several layers make of one name.
struct Merged {
    /// Where the entry is that is shown.
    layer: usize,
    stamp: Stamp,
    meaning: Meaning,
    /// The layers whose directories are merged.
    dirs: Vec<usize>,
    /// Whether the layers further down are hidden.
    ended: bool,
    remark: Remark,
}

impl Squash<'_> {
    fn merge_dir(&mut self, level: Level, cancel: &CancelFlag) -> Result<()> {
        let mut by_layer = BTreeMap::<usize, Vec<(Vec<u8>, Merged)>>::new();
        for (name, merged) in self.merge_names(&level)? {
            by_layer.entry(merged.layer).or_default().push((name, merged));
        }
        let has_whiteouts =
            by_layer.values().flatten().any(|(_, merged)| merged.meaning == Meaning::Whiteout);
        let to = self.copier.to.dir(level.path.as_ref())?;
        for (layer, names) in by_layer {
            let from = self.layers[layer].root.dir(level.path.as_ref())?;
            for (name, merged) in names {
                cancel.check()?;
                self.make(&level, &from, &name, merged, &to)?;
            }
        }
        let topmost = self.layers[level.layers[0]].root.dir(level.path.as_ref())?;
        // Where the directory turns out to be the lowest, the kernel looks for whiteouts only in one that was copied up.
        let copied_up = has_whiteouts && !level.covered && level.path.is_some();
        let remark = Remark { copied_up, ..level.remark };
        self.copier.finish_dir(&topmost, level.path.as_ref(), &remark)
    }

    /// One directory is open at a time: there may be hundreds of layers.
    fn merge_names(&self, level: &Level) -> Result<BTreeMap<Vec<u8>, Merged>> {
        let mut names = BTreeMap::new();
        for &number in &level.layers {
            let layer = self.layers[number];
            let dir = layer.root.dir(level.path.as_ref())?;
            for listed in list::names_and_types(&dir)? {
                let Some(stamp) = dir.stamp(&listed.name)? else { continue };
                let meaning = layer.meaning(&dir, &listed.name, &stamp)?;
                match names.entry(listed.name) {
                    Entry::Vacant(name) => {
                        name.insert(Merged::new(number, stamp, meaning, &level.remark));
                    }
                    Entry::Occupied(mut name) => {
                        let origin = layer.mark(&dir, name.key(), ORIGIN)?;
                        name.get_mut().put_below(number, meaning, origin);
                    }
                }
            }
        }
        Ok(names)
    }

    fn make(&mut self, level: &Level, from: &Dir, name: &[u8], merged: Merged, to: &Dir) -> Result<()> {
        if merged.meaning == Meaning::Whiteout {
            // Where nothing is below, it hides nothing; and the kernel lists it where it does not merge.
            if !level.covered {
                make_whiteout(to, name)?;
                self.entries += 1;
            }
            return Ok(());
        }
        let path = manifest::join(level.path.as_ref(), name)?;
        let Merged { layer, stamp, dirs, remark, .. } = merged;
        let source = Source { layer, dir: from, path: &path, stamp, remark: &remark };
        if self.copier.copy(&source, to)? != Outcome::Made {
            let changed = from.shown(name);
            return Err(Error::refused(format!("{} changed while it was read", changed.display())));
        }
        self.entries += 1;
        if stamp.is_dir() {
            let covered = level.covered || remark.opaque == Some(true);
            self.waiting.push(Level { path: Some(path), layers: dirs, covered, remark });
        }
        Ok(())
    }
}

impl Merged {
    fn new(layer: usize, stamp: Stamp, meaning: Meaning, parent: &Remark) -> Self {
        let mut remark = Remark::none(parent.marks);
        let (mut dirs, mut ended) = (Vec::new(), true);
        if let Meaning::Directory { opaque } = meaning {
            (dirs, ended) = (vec![layer], opaque);
            remark.opaque = Some(opaque);
        }
        Self { layer, stamp, meaning, dirs, ended, remark }
    }

    fn put_below(&mut self, layer: usize, meaning: Meaning, origin: Option<Vec<u8>>) {
        if meaning != Meaning::Whiteout {
            self.remark.origin = Some(origin);
        }
        if self.ended {
            return;
        }
        self.ended = meaning != Meaning::Directory { opaque: false };
        self.remark.opaque = Some(self.ended);
        if matches!(meaning, Meaning::Directory { .. }) {
            self.dirs.push(layer);
        }
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
