//! What an overlay is compared with: the original as it was at an instant, but for the paths that are written down.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::instant::Instant;
use super::layer::{Layer, Origin};
use super::new_names::NewNames;
use super::records::{Recorded, Records, Replaced, Says, says};
use super::touched::{Facts, Touched, touched};
use crate::base::Base;
use crate::diff::{Candidate, Comparison, Scan};
use crate::list;
use crate::manifest::{Edits, Entry};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// The base of one overlay.
pub struct OverlayBase<'a> {
    /// The original.
    pub original: &'a Root,
    /// When the original was the base.
    pub instant: &'a Instant,
    /// Where other paths are written down.
    pub records: Records,
    /// What they say.
    pub recorded: Recorded,
    /// Where changes are, topmost first.
    pub layers: Vec<Layer>,
    /// What others have replaced in the original.
    pub preserve: Root,
    /// What a live mount took for its own: gone there, it leaves no whiteout.
    pub taken: BTreeSet<RelPath>,
    /// Which names in the layers are known to be new.
    pub new_names: NewNames,
}

impl OverlayBase<'_> {
    /// What the original has at `path`, as far as it can be the base.
    pub(super) fn in_original(&self, path: &RelPath) -> Result<Option<Entry>> {
        let Some(parent) = self.original.find_parent(path)? else { return Ok(None) };
        match parent.stamp(path.name())? {
            Some(stamp) => self.entry(&parent, path.name(), stamp).map(Some),
            None => Ok(None),
        }
    }

    fn entry(&self, parent: &Dir, name: &[u8], stamp: Stamp) -> Result<Entry> {
        let moved = self.instant.is_before(&stamp);
        let base = if moved { stamp.at_unknown_time() } else { stamp };
        let mut entry = Entry { name: name.to_vec(), base: Some(base), ..Entry::default() };
        match stamp.node_type() {
            NodeType::Symlink => entry.target = parent.read_link(name)?,
            NodeType::File | NodeType::Directory => entry.xattrs = attributes(parent, name)?,
            _ => {}
        }
        Ok(entry)
    }

    /// Everything of the base below the directory at `path`.
    fn below(&self, path: &RelPath) -> Result<BTreeMap<RelPath, Entry>> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![path.clone()];
        while let Some(dir) = waiting.pop() {
            for path in self.names_in(&dir)? {
                let Some(entry) = self.find(&path)? else { continue };
                if entry.node_type() == NodeType::Directory {
                    waiting.push(path.clone());
                }
                found.insert(path, entry);
            }
        }
        Ok(found)
    }

    fn names_in(&self, dir: &RelPath) -> Result<BTreeSet<RelPath>> {
        let mut paths = BTreeSet::new();
        if let Ok(open) = self.original.open_dir(dir) {
            paths.extend(list::names_and_types(&open)?.into_iter().map(|listed| dir.join(&listed.name)));
        }
        let recorded = self.recorded.range(dir.clone()..).take_while(|(path, _)| path.is_within(dir));
        paths.extend(recorded.map(|(path, _)| path.clone()).filter(|p| p.parent().as_ref() == Some(dir)));
        Ok(paths)
    }

    fn sources(&self, touched: &Touched) -> Result<Sources> {
        let mut sources = Sources { inos: touched.lower_inos.clone(), ..Sources::default() };
        // What a commit has replaced since.
        self.recorded.values().flatten().filter_map(|entry| entry.base).for_each(|stamp| sources.add(stamp));
        self.records.replaced()?.into_iter().for_each(|replaced| sources.add(replaced));
        let mut hidden = Vec::new();
        for (path, facts) in &touched.paths {
            let Some(stamp) = self.original.stamp(path)? else { continue };
            sources.add(stamp);
            sources.linked.extend(facts.links.map(|(ino, ..)| ino));
            if stamp.is_dir() && (!facts.entry || facts.hides_below()) {
                hidden.push(path);
            }
        }
        // Most of the time nothing came out of a directory that is gone.
        let is_found = |origin: Origin| origin.ino.is_some_and(|ino| sources.inos.contains(&ino));
        if touched.paths.values().filter_map(|facts| facts.origin).all(is_found) {
            return Ok(sources);
        }
        for path in hidden {
            self.below(path)?.values().filter_map(|entry| entry.base).for_each(|stamp| sources.add(stamp));
        }
        Ok(sources)
    }

    /// Whether an entry was copied up from something else than the original has at its path.
    fn is_swapped(&self, path: &RelPath, origin: Option<Origin>) -> Result<bool> {
        let Some(origin) = origin else { return Ok(false) };
        let Some(ino) = origin.ino else { return self.was_put_here(path) };
        let is_it = |root: &Root| root.stamp(path).map(|found| found.is_some_and(|stamp| stamp.ino == ino));
        Ok(!(is_it(self.original)? || is_it(&self.preserve)?))
    }

    /// Whether the original has another directory than the one that is written down, and that by nobody's commit.
    fn is_another_directory(&self, path: &RelPath, recorded: Option<&Entry>) -> Result<bool> {
        let Some(was) = recorded.and_then(|e| e.base).filter(|s| s.is_dir() && s.is_known()) else {
            return Ok(false);
        };
        let is_another = self.original.stamp(path)?.is_some_and(|now| now.is_dir() && !now.same_inode(&was));
        Ok(is_another && self.preserve.stamp(path)?.is_none())
    }

    /// Whether the directory at `path` was moved there since the instant. What is moved keeps its mtime and gets a ctime, and so does the
    /// directory that it is moved to.
    fn was_put_here(&self, path: &RelPath) -> Result<bool> {
        let Some(stamp) = self.original.stamp(path)?.filter(Stamp::is_dir) else { return Ok(false) };
        let is_moved = self.instant.is_before(&stamp) && !self.instant.is_before(&written(&stamp));
        Ok(is_moved && self.instant.is_before(&written(&self.dir_above(path)?)))
    }

    /// Whether the new entry at `path`, made at `btime`, may have replaced a file that was then deleted from the original: a name in
    /// its directory has changed there since.
    pub(super) fn may_replace_deleted(&self, path: &RelPath, btime: i64) -> Result<bool> {
        let above = path.parent();
        let Some(dir) = self.original.find_dir_stamp(above.as_ref())? else { return Ok(false) };
        if self.new_names.uncertain.contains(path) {
            return Ok(true);
        }
        let is_checked = self.new_names.checked_at.get(&above) == Some(&dir.ctime);
        let since = if btime == 0 { self.instant.at } else { btime };
        Ok(!is_checked && self.instant.is_since(since, dir.ctime))
    }

    /// Whether anything may have been added to, or have gone from, the directory of `path` since the instant.
    fn has_changed_around(&self, path: &RelPath) -> Result<bool> {
        Ok(self.instant.is_before(&self.dir_above(path)?))
    }

    /// The nearest directory above `path` that the original has.
    fn dir_above(&self, path: &RelPath) -> Result<Stamp> {
        for above in std::iter::successors(path.parent(), RelPath::parent) {
            if let Some(stamp) = self.original.stamp(&above)?.filter(Stamp::is_dir) {
                return Ok(stamp);
            }
        }
        self.original.as_dir()?.stamp_self()
    }
}

/// The stamp with the last write of its content, or of its list of names, as the only change.
fn written(stamp: &Stamp) -> Stamp {
    Stamp { ctime: stamp.mtime, ..*stamp }
}

/// What the original has where anything was changed: an entry that came from there was renamed or linked.
#[derive(Default)]
struct Sources {
    inos: HashSet<u64>,
    /// By mtime and size, which a rename keeps. Kernels that name no inode leave no better trace.
    ages: HashSet<(i64, u64)>,
    /// Inodes, in a layer, of files that have several names, and one of them is of the original.
    linked: HashSet<u64>,
}

impl Sources {
    fn add(&mut self, was: impl Into<Replaced>) {
        let was = was.into();
        self.inos.insert(was.ino);
        self.ages.insert((was.mtime, was.size));
    }
}

/// The attributes of an entry, as far as they may be read.
pub(super) fn attributes(parent: &Dir, name: &[u8]) -> Result<xattrs::Xattrs> {
    use rustix::fs::OFlags;
    use rustix::io::Errno;
    match parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0) {
        Ok(fd) => xattrs::read(&fd).map_err(|e| Error::io("read attributes of", parent.shown(name), e)),
        // What may not be read has none that we could compare.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::LOOP | Errno::NXIO) => {
            Ok(xattrs::Xattrs::new())
        }
        Err(e) => Err(Error::io("open", parent.shown(name), e)),
    }
}

impl Base for OverlayBase<'_> {
    fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        match says(&self.recorded, path) {
            Says::Here(entry) => Ok(entry.clone()),
            Says::Nothing => Ok(None),
            Says::Silent => self.in_original(path),
        }
    }

    fn scan(&self, comparison: &Comparison<'_>) -> Result<Scan> {
        let layers: Vec<&Layer> = self.layers.iter().collect();
        let all = touched(&layers, comparison.filter, comparison.threads, comparison.cancel)?;
        let sources = self.sources(&all)?;
        let mut run = Run {
            base: self,
            comparison,
            found: BTreeMap::new(),
            swapped: BTreeSet::new(),
            sources,
            scan: Scan::default(),
        };
        for (path, facts) in &all.paths {
            run.visit(path, facts, &all)?;
        }
        run.gone_from_taken()?;
        let Run { found, mut scan, .. } = run;
        scan.candidates = found.into_values().collect();
        Ok(scan)
    }

    fn recorded(&self) -> Result<Vec<(RelPath, Entry)>> {
        let entries = self.recorded.iter();
        Ok(entries.filter_map(|(path, entry)| Some((path.clone(), entry.clone()?))).collect())
    }

    fn rewrite(&self, edits: Edits) -> Result<()> {
        self.records.update(edits)
    }
}

struct Run<'a> {
    base: &'a OverlayBase<'a>,
    comparison: &'a Comparison<'a>,
    found: BTreeMap<RelPath, Candidate>,
    /// Directories of the original that are others than those the changes were made in.
    swapped: BTreeSet<RelPath>,
    sources: Sources,
    scan: Scan,
}

impl Run<'_> {
    fn visit(&mut self, path: &RelPath, facts: &Facts, all: &Touched) -> Result<()> {
        self.comparison.cancel.check()?;
        let now = self.comparison.copy.stamp(path)?;
        let is_dir = now.is_some_and(|s| s.is_dir());
        if !self.comparison.filter.passes_all(path, is_dir) {
            return Ok(());
        }
        let base = self.base_of(path, facts, now.as_ref())?;
        if let Some(now) = now.filter(|now| now.nlink > 1 && !now.is_dir()) {
            let group = self.scan.links.entry(now.ino).or_default();
            group.names = group.names.max(facts.links.map_or(now.nlink, |(_, names, _)| names));
            if base.as_ref().is_some_and(|b| b.node_type() == NodeType::File) {
                group.relinked.push(path.clone());
            }
        }
        let was_dir = base.as_ref().is_some_and(|b| b.node_type() == NodeType::Directory);
        if was_dir && (!is_dir || facts.hides_below()) {
            self.hidden_below(path)?;
        }
        let untouched = |b: &Entry, now: Stamp| b.copy.is_some_and(|copy| copy.untouched(&now));
        match (&base, now) {
            (None, None) => {}
            (Some(b), Some(now)) if !is_dir && untouched(b, now) => {}
            (None, Some(_)) if self.is_uncertain(path, facts, all)? => {
                self.scan.uncertain.insert(path.clone());
                self.found.insert(path.clone(), Candidate { path: path.clone(), base, now });
            }
            _ => drop(self.found.insert(path.clone(), Candidate { path: path.clone(), base, now })),
        }
        Ok(())
    }

    /// Whether the entry at `path` looks new, and may have replaced a file that is deleted from the original by now.
    fn is_uncertain(&self, path: &RelPath, facts: &Facts, all: &Touched) -> Result<bool> {
        if says(&self.base.recorded, path) != Says::Silent || self.is_in_new_directory(path, all)? {
            return Ok(false);
        }
        self.base.may_replace_deleted(path, facts.btime)
    }

    /// Whether the directory of `path` was made inside. If a commit has created it in the original since, that one is younger.
    fn is_in_new_directory(&self, path: &RelPath, all: &Touched) -> Result<bool> {
        let Some(above) = path.parent() else { return Ok(false) };
        let Some(facts) = all.paths.get(&above).filter(|facts| facts.entry) else { return Ok(false) };
        let in_original = self.base.original.stamp(&above)?;
        Ok(facts.origin.is_none() || in_original.is_some_and(|dir| dir.btime > facts.btime))
    }

    /// The base at `path`; of unknown content where the original is not what the sandbox's entry came from.
    fn base_of(&mut self, path: &RelPath, facts: &Facts, now: Option<&Stamp>) -> Result<Option<Entry>> {
        let is_recorded = says(&self.base.recorded, path) != Says::Silent;
        let base = self.base.find(path)?;
        if is_recorded {
            if self.base.is_another_directory(path, base.as_ref())? {
                self.swapped.insert(path.clone());
            }
            return Ok(base);
        }
        let in_swapped = path.parent().is_some_and(|parent| self.swapped.contains(&parent));
        let moved_here = self.moved_here(path, facts, now)?;
        if in_swapped || (!moved_here && self.base.is_swapped(path, facts.origin)?) {
            if base.as_ref().is_some_and(|b| b.node_type() == NodeType::Directory) {
                self.swapped.insert(path.clone());
            }
            return Ok(self.unknown(base, facts, now));
        }
        match base {
            None if !moved_here => Ok(self.unknown(None, facts, now)),
            known => Ok(known),
        }
    }

    /// Whether the entry was copied up elsewhere, and renamed or linked to `path`. In user mode the kernel does not tell what it was copied up
    /// from. Then it came from elsewhere if it looks like something that did, or if nothing can have gone from here.
    fn moved_here(&self, path: &RelPath, facts: &Facts, now: Option<&Stamp>) -> Result<bool> {
        // The kernel renames no directory that the original has.
        if now.is_some_and(|now| now.is_dir()) {
            return Ok(false);
        }
        match facts.origin {
            None => Ok(false),
            Some(Origin { ino: Some(ino) }) => Ok(self.sources.inos.contains(&ino)),
            Some(Origin { ino: None }) if self.base.original.stamp(path)?.is_some() => Ok(false),
            Some(Origin { ino: None }) => {
                let is_linked = facts.links.is_some_and(|(ino, ..)| self.sources.linked.contains(&ino));
                let is_known = now.is_some_and(|now| self.sources.ages.contains(&(now.mtime, now.size)));
                Ok(is_linked || is_known || !self.base.has_changed_around(path)?)
            }
        }
    }

    /// Something was there when the sandbox changed it, and is there no more or is something else.
    fn unknown(&self, base: Option<Entry>, facts: &Facts, now: Option<&Stamp>) -> Option<Entry> {
        if let Some(mut entry) = base {
            entry.base = entry.base.map(Stamp::at_unknown_time);
            return Some(entry);
        }
        let was_there = facts.origin.is_some() || (facts.whiteout && !facts.entry);
        let stamp = now.filter(|_| was_there)?.at_unknown_time();
        Some(Entry { base: Some(stamp), ..Entry::default() })
    }

    /// What a live mount has for its own leaves no whiteout when it is removed: see [`taken`](super::taken).
    fn gone_from_taken(&mut self) -> Result<()> {
        for path in &self.base.taken {
            if self.found.contains_key(path) || self.comparison.copy.stamp(path)?.is_some() {
                continue;
            }
            let Some(base) = self.base.find(path)? else { continue };
            if self.comparison.filter.passes_all(path, base.node_type() == NodeType::Directory) {
                let candidate = Candidate { path: path.clone(), base: Some(base), now: None };
                self.found.insert(path.clone(), candidate);
            }
        }
        Ok(())
    }

    /// What the base has below a directory that is gone or was made anew, and the sandbox does not show.
    fn hidden_below(&mut self, path: &RelPath) -> Result<()> {
        for (path, entry) in self.base.below(path)? {
            let passes = self.comparison.filter.passes_all(&path, entry.node_type() == NodeType::Directory);
            if passes && self.comparison.copy.stamp(&path)?.is_none() {
                let candidate = Candidate { path: path.clone(), base: Some(entry), now: None };
                self.found.entry(path).or_insert(candidate);
            }
        }
        Ok(())
    }
}
