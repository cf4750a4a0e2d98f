//! What an overlay goes on showing when somebody else's commit changes the original below it.
//!
//! A mount does not notice that a lower layer gained a file, so a layer of preserved entries alone would only help the next
//! mount. Hence three things for every entry that is about to change: a copy of it in `preserve`, for mounts to come; a record of it as this
//! workspace's base; and, where the overlay is mounted now, a copy-up through that very mount. What is new in the original is
//! hidden by a whiteout in `preserve`, and, once it is there, by one that the mount itself makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use super::base::OverlayBase;
use super::layer::Layer;
use super::records::{Records, Says, says};
use super::space::OverlaySpec;
use super::stack::{Places, Stack};
use crate::base::Base;
use crate::clone::{dress_dir, make_link};
use crate::commit::{Journal, Step};
use crate::copy::{Meta, Transfer, copy_file};
use crate::filter::Filter;
use crate::manifest::{Edits, Entry};
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// An overlay workspace that looks at an original which is about to change.
pub struct Watcher {
    /// Its own directory.
    pub home: PathBuf,
    /// What it is made of.
    pub spec: OverlaySpec,
    /// Where its mount is reached, if it is mounted.
    pub merged: Option<PathBuf>,
}

/// What a journal does, in one workspace's own paths.
struct Changes {
    /// Entries that are replaced, removed or changed.
    old: BTreeSet<RelPath>,
    /// Entries that come where nothing was; of a new directory, only the directory.
    new: BTreeSet<RelPath>,
}

impl Changes {
    fn of(journal: &Journal, original: &Path, watched: &Path, filter: &Filter) -> Self {
        let (mut old, mut all_new) = (BTreeSet::new(), BTreeSet::new());
        for step in &journal.steps {
            let Some(path) = seen_from(watched, &original.join(step.path().as_path())) else { continue };
            let (is_dir, is_new) = match step {
                Step::Place { old, new, .. } => (new.is_dir(), old.is_none()),
                Step::Delete { old, .. } | Step::Dress { old, .. } => (old.is_dir(), false),
            };
            if filter.passes_all(&path, is_dir) {
                if is_new {
                    all_new.insert(path)
                } else {
                    old.insert(path)
                };
            }
        }
        let is_topmost = |path: &RelPath| !path.parent().is_some_and(|parent| all_new.contains(&parent));
        let new = all_new.iter().filter(|path| is_topmost(path) && !old.contains(*path)).cloned().collect();
        Self { old, new }
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
        if changes.old.is_empty() && changes.new.is_empty() {
            return Ok(());
        }
        let watched = Root::open(&self.spec.original)?;
        let keeping = Keeping { base: self.base(&watched)?, preserve: Root::open(self.places().preserve())? };
        let mut edits = Edits::new();
        for path in &changes.old {
            keeping.keep(path, &mut edits)?;
        }
        for path in &changes.new {
            keeping.white_out(path, &mut edits)?;
        }
        keeping.base.rewrite(edits)?;
        match &self.merged {
            Some(merged) => copy_up(&keeping, &Root::open(merged)?, &changes.old),
            None => Ok(()),
        }
    }

    /// Hides what the journal has added.
    pub fn hide_new(&self, original: &Root, journal: &Journal) -> Result<()> {
        let Some(merged) = &self.merged else { return Ok(()) };
        let filter = Filter::new(&self.spec.patterns)?;
        let changes = Changes::of(journal, original.path(), &self.spec.original, &filter);
        let (merged, watched) = (Root::open(merged)?, Root::open(&self.spec.original)?);
        let base = self.base(&watched)?;
        for path in changes.new.iter().filter(|path| !in_layers(&base, path)) {
            let Says::Here(None) = says(&base.recorded, path) else { continue };
            if watched.stamp(path)?.is_some() {
                hide(&merged, path)?;
            }
        }
        Ok(())
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
        })
    }
}

/// Whether a layer has anything, a whiteout included, at `path`.
fn in_layers(base: &OverlayBase<'_>, path: &RelPath) -> bool {
    base.layers.iter().any(|layer| layer.root.stamp(path).is_ok_and(|found| found.is_some()))
}

struct Keeping<'a> {
    base: OverlayBase<'a>,
    preserve: Root,
}

impl Keeping<'_> {
    /// Keeps the entry at `path` as it is in the original.
    fn keep(&self, path: &RelPath, edits: &mut Edits) -> Result<()> {
        let recorded = match says(&self.base.recorded, path) {
            Says::Nothing | Says::Here(None) => return Ok(()),
            Says::Here(Some(entry)) => Some(entry.clone()),
            Says::Silent => None,
        };
        let Some(mut entry) = self.base.in_original(path)? else { return Ok(()) };
        if self.preserve.stamp(path)?.is_some() {
            return Ok(());
        }
        let Some(hash) = self.copy(path, &entry)? else { return Ok(()) };
        entry.hash = hash;
        if !in_layers(&self.base, path) {
            // What it shows is its base, whoever changed it before.
            entry.base = self.base.original.stamp(path)?.or(entry.base);
        }
        edits.insert(path.clone(), Some(recorded.unwrap_or(entry)));
        Ok(())
    }

    /// Copies an entry into `preserve`. `None` where it cannot be there, else the hash of its content.
    fn copy(&self, path: &RelPath, entry: &Entry) -> Result<Option<Option<crate::hash::ContentHash>>> {
        let Some(to) = self.parent(path)? else { return Ok(None) };
        let from = self.base.original.parent_of(path)?;
        match entry.node_type() {
            NodeType::File => {
                let copied =
                    copy_file((&from, path.name()), (&to, path.name()), Transfer::Prefer, &mut Vec::new())?;
                // What the neighbour sees from its next mount on must not depend on luck.
                fs::fsync(to.open_file(path.name())?)
                    .map_err(|e| Error::io("flush", to.shown(path.name()), e))?;
                Ok(Some(copied.hash))
            }
            NodeType::Symlink => {
                make_link(&to, path.name(), &entry.target, &entry.base.unwrap_or_default())?;
                Ok(Some(None))
            }
            NodeType::Directory => self.dir(&to, path).map(|_| Some(None)),
            _ => Ok(None),
        }
    }

    /// The directory that holds `path` in `preserve`, made like the original's. `None` where it is hidden there.
    fn parent(&self, path: &RelPath) -> Result<Option<Dir>> {
        let Some(parent) = path.parent() else { return self.preserve.as_dir().map(Some) };
        match self.preserve.stamp(&parent)? {
            Some(stamp) if stamp.is_dir() => return self.preserve.dir(Some(&parent)).map(Some),
            Some(_) => return Ok(None),
            None => {}
        }
        match self.parent(&parent)? {
            Some(above) => self.dir(&above, &parent).map(Some),
            None => Ok(None),
        }
    }

    fn dir(&self, to: &Dir, path: &RelPath) -> Result<Dir> {
        to.make_dir(path.name(), 0o700)?;
        let (made, like) = (to.dir(path.name())?, self.base.original.dir(Some(path))?);
        let attributes =
            xattrs::read(&like).map_err(|e| Error::io("read attributes of", like.shown_self(), e))?;
        dress_dir(&made, &Meta::of(&like.stamp_self()?, attributes))?;
        Ok(made)
    }

    /// Hides what is to come at `path` from mounts to come.
    fn white_out(&self, path: &RelPath, edits: &mut Edits) -> Result<()> {
        let is_open =
            says(&self.base.recorded, path) == Says::Silent && self.base.in_original(path)?.is_none();
        if !is_open || self.preserve.stamp(path)?.is_some() {
            return Ok(());
        }
        if let Some(parent) = path.parent()
            && !self.base.original.stamp(&parent)?.is_some_and(|stamp| stamp.is_dir())
        {
            return Ok(());
        }
        let Some(to) = self.parent(path)? else { return Ok(()) };
        fs::mknodat(&to, path.name(), FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|e| Error::io("make a whiteout at", to.shown(path.name()), e))?;
        edits.insert(path.clone(), None);
        Ok(())
    }
}

/// Has the mount copy up what it still takes from the original.
fn copy_up(keeping: &Keeping<'_>, merged: &Root, paths: &BTreeSet<RelPath>) -> Result<()> {
    for path in paths.iter().filter(|path| !in_layers(&keeping.base, path)) {
        let Some(parent) = merged.find_parent(path)? else { continue };
        let Some(stamp) = parent.stamp(path.name())? else { continue };
        touch(&parent, path.name(), &stamp)
            .map_err(|e| Error::io("keep for another sandbox", merged.shown(path), e))?;
    }
    Ok(())
}

/// Changes nothing, in a way that makes the kernel copy the entry up.
fn touch(parent: &Dir, name: &[u8], stamp: &Stamp) -> rustix::io::Result<()> {
    match stamp.node_type() {
        NodeType::File => match parent.try_open(name, OFlags::WRONLY | OFlags::NONBLOCK, 0) {
            // Read-only, or being executed: its mode is set to what it is.
            Err(Errno::ACCESS | Errno::TXTBSY) => same_mode(parent, name, stamp),
            opened => opened.map(drop),
        },
        NodeType::Directory => same_mode(parent, name, stamp),
        _ => {
            let times = crate::copy::timestamps(stamp.mtime);
            fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    }
}

fn same_mode(parent: &Dir, name: &[u8], stamp: &Stamp) -> rustix::io::Result<()> {
    fs::chmodat(parent, name, Mode::from_raw_mode(stamp.permissions()), AtFlags::empty())
}

/// Makes a whiteout through the mount. One that was asked for the name before it was there still says that nothing is: then a file is
/// made and removed, and the kernel looks again.
fn hide(merged: &Root, path: &RelPath) -> Result<()> {
    let Some(parent) = merged.find_parent(path)? else { return Ok(()) };
    if parent.stamp(path.name())?.is_some() {
        return crate::remove_entry(&parent, path.name());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    match parent.try_open(path.name(), flags, 0o600) {
        Ok(_) => parent.remove(path.name(), false),
        Err(Errno::EXIST) => crate::remove_entry(&parent, path.name()),
        Err(e) => Err(Error::io("hide from another sandbox", merged.shown(path), e)),
    }
}
