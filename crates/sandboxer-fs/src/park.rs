//! Parking: a workspace without what can be had again from the original.
//!
//! To park, everything that is as it was in the base is removed from the copy; what stays is the work, and a list of it. To bring it back, the
//! original is copied anew, beside what was parked, and the work is laid over that copy. Changed paths keep their record of
//! the old base, so that an original that has moved on meanwhile is still found in conflict. Both can be interrupted at any point
//! and begun again: the list is written first and removed last.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::clone::{dress_dir, link_below, make_link};
use crate::copy::{Meta, Transfer, copy_file};
use crate::diff::{Comparison, Differences};
use crate::durable;
use crate::manifest::{Edits, Entry, Manifest, ROOT};
use crate::root::{Dir, Root};
use crate::xattrs;

const LIST: &str = "parked.json";

/// What is parked: every path that differs from the base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// What is there, and differs.
    pub present: BTreeSet<RelPath>,
    /// What the base has, and the work does not.
    pub absent: BTreeSet<RelPath>,
}

impl Parked {
    fn of(differences: &Differences) -> Self {
        let mut parked = Self::default();
        for delta in &differences.deltas {
            let path = delta.entry.path.clone();
            parked.absent.extend(delta.entry.from.clone());
            match delta.now {
                Some(_) => parked.present.insert(path),
                None => parked.absent.insert(path),
            };
        }
        parked
    }

    /// What is parked in the workspace at `home`; `None` where nothing is.
    pub fn load(home: &Path) -> Result<Option<Self>> {
        let path = home.join(LIST);
        match std::fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(&path, e.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", path, e)),
        }
    }

    fn store(&self, home: &Path) -> Result<()> {
        let path = home.join(LIST);
        let json = serde_json::to_vec(self).map_err(|e| Error::corrupt(&path, e.to_string()))?;
        durable::write(&path, &json)
    }
}

/// Removes from the copy what is as it was in the base.
pub fn park(home: &Path, comparison: &Comparison<'_>, base: &Manifest) -> Result<Parked> {
    let parked = match Parked::load(home)? {
        Some(begun) => begun,
        None => {
            let parked = Parked::of(&crate::diff::differences(comparison)?);
            parked.store(home)?;
            parked
        }
    };
    let mut directories = Vec::new();
    for (path, entry) in base.below(ROOT, None)? {
        if parked.present.contains(&path) {
            continue;
        }
        match entry.child {
            Some(_) => directories.push(path),
            None => remove_unchanged(comparison.copy, &path, &entry)?,
        }
    }
    // Deepest first; one that holds work stays.
    for path in directories.into_iter().rev() {
        if let Ok(Some(parent)) = comparison.copy.find_parent(&path) {
            let _ = while_open(&parent, || fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR));
        }
    }
    Ok(parked)
}

/// What a program has written to since the list was made is work too: it stays where it is.
fn remove_unchanged(copy: &Root, path: &RelPath, entry: &Entry) -> Result<()> {
    let Ok(Some(parent)) = copy.find_parent(path) else { return Ok(()) };
    let now = parent.stamp(path.name())?;
    let same =
        |base: &crate::stamp::Stamp| now.is_some_and(|now| base.same_inode(&now) && base.same_state(&now));
    if !entry.copy.as_ref().is_some_and(same) {
        return Ok(());
    }
    let removed = while_open(&parent, || fs::unlinkat(&parent, path.name(), AtFlags::empty()));
    match removed {
        Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(e) => Err(Error::io("remove", copy.shown(path), e)),
    }
}

/// Does something in a directory that its owner may not change, and gives it its mode back.
fn while_open<T>(dir: &Dir, work: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match work() {
        Err(Errno::ACCESS) => {}
        done => return done,
    }
    let mode = Mode::from_raw_mode(crate::root::stamp_of_fd(dir)?.permissions());
    fs::fchmod(dir, mode | Mode::RWXU)?;
    let done = work();
    fs::fchmod(dir, mode)?;
    done
}

/// Where a parked workspace is put together again.
pub struct Assembly<'a> {
    /// The copy as it was parked.
    pub parked: &'a Root,
    /// The base's record as it was parked.
    pub manifest: &'a Manifest,
    /// A fresh copy of the original.
    pub fresh: &'a Root,
    /// The fresh copy's record.
    pub fresh_manifest: &'a Path,
}

/// Lays the work over a fresh copy.
pub fn lay_over(assembly: &Assembly<'_>, parked: &Parked) -> Result<()> {
    let Work { found: mut work, closed } = work_in(assembly.parked, assembly.manifest)?;
    work.extend(parked.present.iter().cloned());
    let fresh_base = Manifest::load(assembly.fresh_manifest)?;
    let mut run = LayOver {
        assembly,
        fresh_base: &fresh_base,
        absent: &parked.absent,
        edits: Edits::new(),
        links: HashMap::new(),
        dirs: BTreeMap::new(),
        closed,
    };
    for path in &parked.absent {
        run.leave_away(path)?;
    }
    for path in &work {
        run.lay(path)?;
    }
    run.dress()?;
    fresh_base.rewrite(run.edits)
}

/// What is in a parked copy.
#[derive(Default)]
struct Work {
    found: BTreeSet<RelPath>,
    /// Directories that could not be looked into and were opened, with the modes that they had.
    closed: BTreeMap<RelPath, u32>,
}

/// What is in the parked copy besides directories: all of it is work, also what came after the list was made; but for what
/// could not be removed and is still as it was.
fn work_in(parked: &Root, manifest: &Manifest) -> Result<Work> {
    let mut work = Work::default();
    let mut waiting: Vec<Option<RelPath>> = vec![None];
    while let Some(at) = waiting.pop() {
        let dir = open_for_us(parked, at.as_ref(), &mut work.closed)?;
        for listed in crate::list::sorted(&dir)? {
            let path = crate::manifest::join(at.as_ref(), &listed.name)?;
            let Some(stamp) = dir.stamp(&listed.name)? else { continue };
            let base = manifest.find(&path)?;
            if stamp.is_dir() {
                waiting.push(Some(path.clone()));
            }
            let as_it_was = match &base {
                Some(entry) => stamp.is_dir() || entry.copy.is_some_and(|copy| copy.untouched(&stamp)),
                None => false,
            };
            if !as_it_was {
                work.found.insert(path);
            }
        }
    }
    Ok(work)
}

fn open_for_us(parked: &Root, at: Option<&RelPath>, closed: &mut BTreeMap<RelPath, u32>) -> Result<Dir> {
    let (Some(path), Err(Errno::ACCESS)) = (at, at.map_or(Ok(()), |path| parked.open_dir(path).map(drop)))
    else {
        return parked.dir(at);
    };
    let parent = parked.parent_of(path)?;
    if let Some(stamp) = parent.stamp(path.name())? {
        closed.insert(path.clone(), stamp.permissions());
    }
    fs::chmodat(&parent, path.name(), Mode::RWXU, AtFlags::empty())
        .map_err(|e| Error::io("open", parked.shown(path), e))?;
    parked.dir(at)
}

struct LayOver<'a> {
    assembly: &'a Assembly<'a>,
    fresh_base: &'a Manifest,
    /// What the work has removed.
    absent: &'a BTreeSet<RelPath>,
    edits: Edits,
    /// The first name of each file with several, by its inode.
    links: HashMap<u64, RelPath>,
    /// Directories to be dressed when they are full.
    dirs: BTreeMap<RelPath, Meta>,
    /// The modes of directories of the parked copy that had to be opened.
    closed: BTreeMap<RelPath, u32>,
}

impl LayOver<'_> {
    /// Takes away what the work has removed. What the original has lost as well is no difference any more.
    fn leave_away(&mut self, path: &RelPath) -> Result<()> {
        if self.fresh_base.find(path)?.is_none() {
            return Ok(());
        }
        self.open_parent(path)?;
        crate::remove_below(self.assembly.fresh, path)?;
        self.keep_record(path)?;
        self.overlook_below(path)
    }

    /// What the original has got below a directory that the work has removed or replaced was never seen here, and is not removed in
    /// anybody's name.
    fn overlook_below(&mut self, path: &RelPath) -> Result<()> {
        let entry = self.fresh_base.find(path)?;
        let child = entry.and_then(|entry| entry.child);
        let below = child.map(|id| self.fresh_base.below(id, Some(path))).transpose()?;
        let unseen = below.into_iter().flatten().filter(|(path, _)| !self.absent.contains(path));
        self.edits.extend(unseen.map(|(path, _)| (path, None)));
        Ok(())
    }

    /// The record of the old base stays, so that what the original has become is told from what it was.
    fn keep_record(&mut self, path: &RelPath) -> Result<()> {
        let old = self.assembly.manifest.find(path)?;
        for above in std::iter::successors(path.parent(), RelPath::parent) {
            let is_dir = |entry: Entry| entry.node_type() == NodeType::Directory;
            let known = self.edits.contains_key(&above) || self.fresh_base.find(&above)?.is_some_and(is_dir);
            if let (false, Some(entry)) = (known, self.assembly.manifest.find(&above)?) {
                self.edits.insert(above, Some(Entry { child: None, ..entry }));
            }
        }
        // A copy's stamp from before parking is nobody's any more.
        let old = old.map(|entry| {
            let never = entry.copy.map(|copy| crate::stamp::Stamp { ino: 0, ctime: 0, ..copy });
            Entry { child: None, copy: never, ..entry }
        });
        self.edits.insert(path.clone(), old);
        Ok(())
    }

    fn lay(&mut self, path: &RelPath) -> Result<()> {
        let Some(from) = self.assembly.parked.find_parent(path)? else { return Ok(()) };
        let Some(stamp) = from.stamp(path.name())? else { return Ok(()) };
        let to = self.parent(path)?;
        let there = to.stamp(path.name())?;
        if there.is_some_and(|there| !(there.is_dir() && stamp.is_dir())) {
            crate::remove_entry(&to, path.name())?;
            self.overlook_below(path)?;
        }
        match stamp.node_type() {
            NodeType::Directory => self.lay_dir(path, &from, &to, there.is_some_and(|s| s.is_dir()))?,
            NodeType::Symlink => drop(make_link(&to, path.name(), &from.read_link(path.name())?, &stamp)?),
            NodeType::File => self.lay_file(path, &from, &to, &stamp)?,
            // Pipes, sockets and devices are never committed, and nothing is lost with them.
            _ => return Ok(()),
        }
        let both_made_it = stamp.is_dir() && there.is_some_and(|s| s.is_dir());
        if both_made_it && self.assembly.manifest.find(path)?.is_none() {
            return Ok(());
        }
        self.keep_record(path)
    }

    fn lay_dir(&mut self, path: &RelPath, from: &Dir, to: &Dir, exists: bool) -> Result<()> {
        if !exists {
            to.make_dir(path.name(), 0o700)?;
        }
        let mut meta = meta_of(&from.dir(path.name())?)?;
        meta.mode = self.closed.get(path).copied().unwrap_or(meta.mode);
        self.dirs.insert(path.clone(), meta);
        Ok(())
    }

    /// A directory of the fresh copy that its owner may not change is opened for the moment; it is dressed in the end.
    fn open_parent(&mut self, path: &RelPath) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        let Some(stamp) =
            self.assembly.fresh.stamp(&parent)?.filter(|s| s.is_dir() && s.mode & 0o700 != 0o700)
        else {
            return Ok(());
        };
        self.open_parent(&parent)?;
        let failed = |e| Error::io("open", self.assembly.fresh.shown(&parent), e);
        let above = self.assembly.fresh.parent_of(&parent)?;
        fs::chmodat(&above, parent.name(), Mode::RWXU, AtFlags::empty()).map_err(failed)?;
        let meta = Meta { mode: stamp.permissions(), ..meta_of(&self.assembly.fresh.dir(Some(&parent))?)? };
        self.dirs.entry(parent).or_insert(meta);
        Ok(())
    }

    /// Directories that are made again are what they were, from `path` up to the first that is there.
    fn dress_later(&mut self, path: &RelPath) -> Result<()> {
        for above in std::iter::successors(Some(path.clone()), RelPath::parent) {
            if self.assembly.fresh.stamp(&above)?.is_some_and(|s| s.is_dir()) {
                break;
            }
            let meta = meta_of(&self.assembly.parked.dir(Some(&above))?)?;
            self.dirs.entry(above).or_insert(meta);
        }
        Ok(())
    }

    fn lay_file(&mut self, path: &RelPath, from: &Dir, to: &Dir, stamp: &crate::stamp::Stamp) -> Result<()> {
        if stamp.nlink > 1 {
            if let Some(first) = self.links.get(&stamp.ino) {
                return link_below(self.assembly.fresh, first, to, path.name());
            }
            self.links.insert(stamp.ino, path.clone());
        }
        copy_file((from, path.name()), (to, path.name()), Transfer::Prefer, &mut Vec::new()).map(drop)
    }

    /// The directory that holds `path` in the fresh copy; one that the original has lost is made again.
    fn parent(&mut self, path: &RelPath) -> Result<Dir> {
        let Some(parent) = path.parent() else { return self.assembly.fresh.as_dir() };
        if self.assembly.fresh.stamp(&parent)?.is_none_or(|s| !s.is_dir()) {
            self.remove_what_is_no_directory(&parent)?;
            self.dress_later(&parent)?;
        }
        self.open_parent(path)?;
        self.assembly.fresh.create_dirs(&parent, 0o755)
    }

    /// Removes what the original has in place of a directory at or above `path`.
    fn remove_what_is_no_directory(&self, path: &RelPath) -> Result<()> {
        for above in std::iter::successors(Some(path.clone()), RelPath::parent) {
            if self.assembly.fresh.stamp(&above)?.is_some_and(|stamp| !stamp.is_dir()) {
                return crate::remove_below(self.assembly.fresh, &above);
            }
        }
        Ok(())
    }

    fn dress(&mut self) -> Result<()> {
        for (path, meta) in std::mem::take(&mut self.dirs).into_iter().rev() {
            dress_dir(&self.assembly.fresh.dir(Some(&path))?, &meta)?;
        }
        Ok(())
    }
}

fn meta_of(dir: &Dir) -> Result<Meta> {
    let attributes = xattrs::read(dir).map_err(|e| Error::io("read attributes of", dir.shown_self(), e))?;
    Ok(Meta::of(&dir.stamp_self()?, attributes))
}

/// The list is gone: nothing is parked any more.
pub fn forget(home: &Path) -> Result<()> {
    durable::remove(&home.join(LIST))
}

/// Where a fresh copy is made, and where the parked one goes when it is done.
pub fn places(home: &Path) -> (PathBuf, PathBuf) {
    (home.join("fresh"), home.join("tree.parked"))
}
