//! Bringing a copy back to a state that a manifest describes: the base, or a checkpoint.
//!
//! Both are the same work with content from different places. It only touches what differs, puts every file in place by a rename,
//! and can be repeated after a crash: what is right already is left alone.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::{self, AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use crate::base::Base;
use crate::clone::{dress_dir, link_below, make_link};
use crate::copy::{self, Meta};
use crate::diff::{Candidate, Comparison, Delta, Links, Scan, describe_all, pair_renames};
use crate::manifest::{Edits, Entry};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;

/// Where content comes from.
pub trait Source {
    /// Makes the file `name` in `to` with the content and attributes that `entry` had at `path`. Returns what the base is
    /// from now on, or `None` where the content is no more.
    fn fetch(&mut self, path: &RelPath, entry: &Entry, to: &Dir, name: &[u8]) -> Result<Option<Entry>>;

    /// Whether the content can be fetched, as far as that can be known beforehand.
    fn verify(&mut self, _path: &RelPath, _entry: &Entry) -> Result<()> {
        Ok(())
    }

    /// What a directory or link is to be: `entry`, or what it has become at its source; `None` where it is no more.
    fn current(&mut self, path: &RelPath, entry: &Entry) -> Result<Option<Entry>>;
}

/// What was done.
#[derive(Debug, Default)]
pub struct Restored {
    /// Entries brought back, removed or changed.
    pub count: u64,
    /// What the manifest should say from now on.
    pub edits: Edits,
    /// Paths that could not come back because their source has none any more.
    pub gone: Vec<RelPath>,
}

const TEMPORARY: &[u8] = b"restoring";

/// What of the copy is brought back.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// What lies at or below these paths, with what belongs to it; everything, where there are none.
    Below(&'a [RelPath]),
    /// These entries alone.
    Exactly(&'a BTreeSet<RelPath>),
}

/// Brings what of the copy is within `scope` back to the comparison's manifest. Files are made in
/// `workshop`, a directory on the copy's filesystem, before they take their place.
pub fn restore(
    comparison: &Comparison<'_>,
    scope: Scope<'_>,
    source: &mut dyn Source,
    workshop: &Dir,
) -> Result<Restored> {
    let Scan { candidates: mut all, links, .. } = comparison.base.scan(comparison)?;
    all.sort_by(|a, b| a.path.cmp(&b.path));
    let deltas = describe_all(comparison, all.clone(), &links)?;
    let differing: BTreeSet<_> = deltas.iter().map(|d| d.entry.path.clone()).collect();
    let linked = names_that_stay(&all, &differing);
    let candidates = match scope {
        Scope::Below([]) => all,
        Scope::Below(paths) => within(all, deltas, paths)?,
        Scope::Exactly(paths) => all.into_iter().filter(|c| paths.contains(&c.path)).collect(),
    };
    let mut run = Run {
        copy: comparison.copy,
        source,
        workshop,
        links: &links,
        base: comparison.base,
        linked,
        dirs: BTreeMap::new(),
        restored: Restored::default(),
        latest: 0,
    };
    run.verify(&candidates, &differing)?;
    run.open_up(&candidates)?;
    run.bring_back(comparison, &candidates, &differing)?;
    run.remove_intruders(&candidates, &differing)?;
    run.dress_dirs(comparison)?;
    copy::wait_past(run.latest);
    Ok(run.restored)
}

/// What tells files apart in a manifest: names with the same identity are links of one file.
fn identity(entry: &Entry) -> Option<(u64, i64)> {
    entry.base.or(entry.copy).filter(Stamp::is_file).map(|stamp| (stamp.ino, stamp.btime))
}

/// Names that still are the files they were: what was linked to them is linked again.
fn names_that_stay(
    all: &[Candidate],
    differing: &BTreeSet<RelPath>,
) -> BTreeMap<(u64, i64), (RelPath, Entry)> {
    let stays = |c: &Candidate| {
        let base = c.base.clone().filter(|_| !differing.contains(&c.path))?;
        let before = base.copy?;
        c.now.filter(|now| now.same_inode(&before))?;
        Some((identity(&base)?, (c.path.clone(), base)))
    };
    all.iter().filter_map(stays).collect()
}

/// The candidates within `scope`, with what belongs to them: a rename goes back as a whole, or what was renamed would be
/// lost, and what comes back needs the directories that it was in. Refuses where something else takes the place of such a directory.
fn within(all: Vec<Candidate>, deltas: Vec<Delta>, scope: &[RelPath]) -> Result<Vec<Candidate>> {
    let mut scope = scope.to_vec();
    for entry in pair_renames(deltas).into_iter().map(|d| d.entry) {
        if let (Some(from), true) = (&entry.from, entry.is_selected(&scope)) {
            scope.extend([from.clone(), entry.path]);
        }
    }
    let chosen = |path: &RelPath| scope.iter().any(|s| path.is_within(s));
    let mut above = BTreeSet::new();
    for candidate in all.iter().filter(|c| c.base.is_some() && chosen(&c.path)) {
        above.extend(std::iter::successors(candidate.path.parent(), RelPath::parent));
    }
    let is_lost_dir = |c: &Candidate| above.contains(&c.path) && !c.now.is_some_and(|now| now.is_dir());
    let in_the_way = |c: &&Candidate| is_lost_dir(c) && !chosen(&c.path) && c.now.is_some();
    if let Some(Candidate { path, .. }) = all.iter().find(in_the_way) {
        return Err(Error::Refused {
            reason: format!(
                "{path} is not a directory in the sandbox any more, and is not among what is rolled back"
            ),
            hint: Some(format!("roll {path} back as well, or move it away")),
        });
    }
    Ok(all.into_iter().filter(|c| chosen(&c.path) || is_lost_dir(c)).collect())
}

struct Run<'a> {
    copy: &'a Root,
    source: &'a mut dyn Source,
    workshop: &'a Dir,
    links: &'a Links,
    base: &'a dyn Base,
    /// A name of each file that is in place again, or stayed there, by its identity in the manifest.
    linked: BTreeMap<(u64, i64), (RelPath, Entry)>,
    /// Directories that were made or differ, with what they are to be.
    dirs: BTreeMap<RelPath, Entry>,
    restored: Restored,
    latest: i64,
}

impl Run<'_> {
    /// Nothing that is there is replaced before all that is to come back is known to be good.
    fn verify(&mut self, candidates: &[Candidate], differing: &BTreeSet<RelPath>) -> Result<()> {
        for candidate in candidates.iter().filter(|c| differing.contains(&c.path)) {
            if let Some(base) = candidate.base.as_ref().filter(|b| b.node_type() == NodeType::File) {
                self.source.verify(&candidate.path, base)?;
            }
        }
        Ok(())
    }

    /// Directories that their owner may not change are opened for the moment; they are dressed in the end.
    fn open_up(&mut self, candidates: &[Candidate]) -> Result<()> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let above = |c: &Candidate| std::iter::successors(c.path.parent(), RelPath::parent);
        let mut dirs: BTreeSet<RelPath> = candidates.iter().flat_map(above).collect();
        dirs.extend(candidates.iter().filter(|c| c.now.is_some_and(|s| s.is_dir())).map(|c| c.path.clone()));
        for path in dirs {
            let Some(parent) = self.copy.find_parent(&path)? else { continue };
            let closed = parent.stamp(path.name())?.is_some_and(|s| s.is_dir() && s.mode & 0o700 != 0o700);
            if closed {
                // Not ours to open: what is to be done in it says so better.
                let _ = fs::chmodat(&parent, path.name(), Mode::RWXU, AtFlags::empty());
                if let Some(entry) = self.base.find(&path)? {
                    self.dirs.insert(path, entry);
                }
            }
        }
        Ok(())
    }

    fn remove_intruders(&mut self, candidates: &[Candidate], differing: &BTreeSet<RelPath>) -> Result<()> {
        let intruder = |c: &&Candidate| c.base.is_none() && c.now.is_some() && differing.contains(&c.path);
        for candidate in candidates.iter().filter(intruder) {
            crate::remove_below(self.copy, &candidate.path)?;
            self.restored.count += 1;
        }
        Ok(())
    }

    fn bring_back(
        &mut self,
        comparison: &Comparison<'_>,
        candidates: &[Candidate],
        differing: &BTreeSet<RelPath>,
    ) -> Result<()> {
        for Candidate { path, base, now } in candidates {
            let Some(base) = base else { continue };
            if differing.contains(path) {
                comparison.cancel.check()?;
                self.put(path.clone(), base)?;
            } else if let (Some(copy), Some(now)) = (base.copy, now) {
                self.retime(path, &copy, now)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, path: RelPath, base: &Entry) -> Result<()> {
        let made = match base.node_type() {
            NodeType::Directory => self.put_dir(&path, base)?,
            NodeType::File => self.put_file(&path, base)?,
            NodeType::Symlink => self.put_link(&path, base)?,
            _ => return Ok(()),
        };
        if made.is_none() {
            self.restored.gone.push(path.clone());
        }
        self.restored.count += 1;
        self.restored.edits.insert(path, made);
        Ok(())
    }

    fn put_dir(&mut self, path: &RelPath, base: &Entry) -> Result<Option<Entry>> {
        let Some(wanted) = self.source.current(path, base)? else {
            crate::remove_below(self.copy, path)?;
            return Ok(None);
        };
        if !self.copy.stamp(path)?.is_some_and(|now| now.is_dir()) {
            let Some(parent) = self.copy.find_parent(path)? else { return Ok(None) };
            crate::remove_entry(self.workshop, TEMPORARY)?;
            self.workshop.make_dir(TEMPORARY, 0o700)?;
            self.place(&parent, path)?;
        }
        self.dirs.insert(path.clone(), wanted.clone());
        Ok(Some(wanted))
    }

    fn put_file(&mut self, path: &RelPath, base: &Entry) -> Result<Option<Entry>> {
        crate::remove_entry(self.workshop, TEMPORARY)?;
        let entry = match self.known_link(base)? {
            Some(entry) => entry,
            None => match self.source.fetch(path, base, self.workshop, TEMPORARY)? {
                Some(entry) => entry,
                None => {
                    crate::remove_below(self.copy, path)?;
                    return Ok(None);
                }
            },
        };
        let Some(parent) = self.copy.find_parent(path)? else { return Ok(None) };
        self.place(&parent, path)?;
        let stamp = parent.stamp(path.name())?;
        self.latest = self.latest.max(stamp.map_or(0, |s| s.ctime));
        let entry = Entry { copy: stamp, ..entry };
        if let Some(identity) = identity(base) {
            self.linked.insert(identity, (path.clone(), entry.clone()));
        }
        Ok(Some(entry))
    }

    /// Puts what was made in the workshop in its place. The path is at no time without either of the two, so that whoever is
    /// interrupted leaves it as it was or as it is to be.
    fn place(&self, parent: &Dir, path: &RelPath) -> Result<()> {
        let failed = |e| Error::io("put back", self.copy.shown(path), e);
        match fs::renameat(self.workshop, TEMPORARY, parent, path.name()) {
            // A directory and something else do not replace one another.
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY) => {}
            placed => return placed.map_err(failed),
        }
        match fs::renameat_with(self.workshop, TEMPORARY, parent, path.name(), RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::XDEV) => {
                crate::remove_entry(parent, path.name())?;
                fs::renameat(self.workshop, TEMPORARY, parent, path.name()).map_err(failed)
            }
            Err(e) => Err(failed(e)),
            Ok(()) => crate::remove_entry(self.workshop, TEMPORARY),
        }
    }

    /// Another name of the same file that is in place already: linked, not copied.
    fn known_link(&self, base: &Entry) -> Result<Option<Entry>> {
        let Some(identity) = identity(base) else { return Ok(None) };
        let untouched = self.untouched_name(base)?;
        let restored = self.linked.get(&identity);
        let Some((first, entry)) = restored.or(untouched.as_ref()) else { return Ok(None) };
        link_below(self.copy, first, self.workshop, TEMPORARY)?;
        Ok(Some(entry.clone()))
    }

    /// A name of the same file that nobody has touched.
    fn untouched_name(&self, base: &Entry) -> Result<Option<(RelPath, Entry)>> {
        let group = base.copy.and_then(|copy| self.links.get(&copy.ino));
        let Some(path) = group.and_then(|g| g.untouched.clone()) else { return Ok(None) };
        let known = self.base.find(&path)?.filter(|entry| identity(entry) == identity(base));
        Ok(known.map(|entry| (path, entry)))
    }

    fn put_link(&mut self, path: &RelPath, base: &Entry) -> Result<Option<Entry>> {
        let Some(wanted) = self.source.current(path, base)? else {
            crate::remove_below(self.copy, path)?;
            return Ok(None);
        };
        crate::remove_entry(self.workshop, TEMPORARY)?;
        let like = wanted.base.or(wanted.copy).unwrap_or_default();
        make_link(self.workshop, TEMPORARY, &wanted.target, &like)?;
        let Some(parent) = self.copy.find_parent(path)? else { return Ok(None) };
        self.place(&parent, path)?;
        Ok(Some(Entry { copy: parent.stamp(path.name())?, ..wanted }))
    }

    /// The same content under another time: a touch, undone without counting as a change.
    fn retime(&mut self, path: &RelPath, wanted: &Stamp, now: &Stamp) -> Result<()> {
        if now.is_dir() || wanted.mtime == now.mtime {
            return Ok(());
        }
        let Some(parent) = self.copy.find_parent(path)? else { return Ok(()) };
        fs::utimensat(&parent, path.name(), &copy::timestamps(wanted.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::io("set time of", self.copy.shown(path), e))
    }

    /// Directories last, deepest first: putting things into them changes their times, and their modes may forbid it.
    fn dress_dirs(&mut self, comparison: &Comparison<'_>) -> Result<()> {
        let above: BTreeSet<_> = self.restored.edits.keys().filter_map(RelPath::parent).collect();
        for path in above {
            if let (false, Some(entry)) = (self.dirs.contains_key(&path), comparison.base.find(&path)?) {
                self.dirs.insert(path, entry);
            }
        }
        let dirs = std::mem::take(&mut self.dirs);
        for (path, entry) in dirs.into_iter().rev() {
            let Ok(dir) = self.copy.open_dir(&path) else { continue };
            let like = entry.copy.or(entry.base).unwrap_or_default();
            let stamp = dress_dir(&dir, &Meta::of(&like, entry.xattrs.clone()))?;
            self.latest = self.latest.max(stamp.ctime);
            if let Some(Some(edit)) = self.restored.edits.get_mut(&path) {
                edit.copy = Some(stamp);
            }
        }
        Ok(())
    }
}
