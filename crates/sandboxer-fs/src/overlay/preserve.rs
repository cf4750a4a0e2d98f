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
use super::layer::{Layer, Meaning};
use super::records::{Records, Says, says};
use super::space::OverlaySpec;
use super::stack::{Places, Stack};
use super::taken;
use super::view::View;
use crate::base::Base;
use crate::clone::{dress_dir, make_link};
use crate::commit::{Journal, Step};
use crate::copy::{Meta, Transfer, copy_file};
use crate::filter::{Filter, RESERVED};
use crate::hash::ContentHash;
use crate::list;
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
        note_directories(&base, changes.paths.iter(), &mut edits)?;
        base.rewrite(edits)?;
        match &self.merged {
            Some(merged) => {
                let merged = Root::open(merged)?;
                take_over(&base, &merged, &changes)?;
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
fn note_directories<'p>(
    base: &OverlayBase<'_>,
    paths: impl Iterator<Item = &'p RelPath>,
    edits: &mut Edits,
) -> Result<()> {
    let parents: BTreeSet<RelPath> = paths.filter_map(RelPath::parent).collect();
    for dir in parents {
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
pub(super) fn note_own_directories(base: &OverlayBase<'_>, journal: &Journal) -> Result<()> {
    let mut edits = Edits::new();
    note_directories(base, journal.steps.iter().map(Step::path), &mut edits)?;
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

/// Notes which inodes the workspace's own commit has replaced.
pub(super) fn note_replaced(records: &Records, journal: &Journal) -> Result<()> {
    let old = journal.steps.iter().filter_map(|step| match step {
        Step::Place { old, .. } => old.map(|stamp| stamp.ino),
        Step::Delete { old, .. } => Some(old.ino),
        Step::Dress { .. } => None,
    });
    records.add_replaced(old.collect())
}

/// For an undo: the workspace goes on showing what it shows, of which some may be the original's alone by now.
pub(super) fn keep_own(base: &OverlayBase<'_>, merged: &Root, journal: &Journal) -> Result<()> {
    let here = base.original.path();
    take_over(base, merged, &Changes::of(journal, here, here, &Filter::all()))
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
        // Noted, but so far it took nothing to hide it.
        Says::Here(None) => return shelf.white_out(path).map(drop),
        Says::Silent => drop_stale(base, path, edits)?,
    }
    if shelf.white_out(path)? {
        edits.insert(path.clone(), None);
    }
    Ok(())
}

/// A layer that entries are copied to before they change.
pub(super) struct Shelf<'a> {
    /// What shows them now.
    pub from: View<'a>,
    /// The layer.
    pub to: Root,
    /// On the layer's filesystem.
    pub making: Making,
}

/// What became of an entry that was to be copied.
pub(super) enum Put {
    /// Nothing is to be copied, or it is there already.
    Nothing,
    /// It is somebody else's, and we may not read it.
    Unreadable,
    /// It is there now. With the hash of its content.
    Done(Option<ContentHash>),
}

/// A directory where entries are made before they are put in place, so that what is in place is whole. It goes with what is in it.
pub(super) struct Making {
    path: PathBuf,
    dir: Dir,
}

impl Making {
    /// The one entry that is being made.
    const ENTRY: &[u8] = b"entry";

    /// An empty one at `path`, whatever a crash has left there.
    fn at(path: &Path) -> Result<Self> {
        crate::remove_tree(path)?;
        std::fs::create_dir(path).map_err(|e| Error::io("create directory", path, e))?;
        Ok(Self { path: path.to_path_buf(), dir: Root::open(path)?.as_dir()? })
    }

    /// Has `make` make an entry, which then is the entry `name` of `to`, or leaves nothing.
    fn put<T>(&self, to: &Dir, name: &[u8], make: impl FnOnce(&Dir, &[u8]) -> Result<T>) -> Result<T> {
        let put = || {
            let made = make(&self.dir, Self::ENTRY)?;
            fs::renameat(&self.dir, Self::ENTRY, to, name)
                .map_err(|e| Error::io("rename into place", to.shown(name), e))?;
            // What is seen from the next mount on must not depend on luck.
            to.sync().map(|()| made)
        };
        let done = put();
        if done.is_err() {
            let _ = self.dir.remove(Self::ENTRY, false);
        }
        done
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // What stays is removed by the next.
        let _ = crate::remove_tree(&self.path);
    }
}

impl Shelf<'_> {
    /// Copies the entry at `path`.
    pub fn put(&self, path: &RelPath) -> Result<Put> {
        let Some(found) = self.from.find(path)? else { return Ok(Put::Nothing) };
        if self.to.stamp(path)?.is_some() {
            return Ok(Put::Nothing);
        }
        let from = self.from.open_parent(path, &found)?;
        if !may_read(&from, path.name(), &found.stamp) {
            return Ok(Put::Unreadable);
        }
        let Some(to) = self.parent(path)? else { return Ok(Put::Nothing) };
        match found.stamp.node_type() {
            NodeType::File => {
                let copy = |to: &Dir, name: &[u8]| copy_flushed(&from, path.name(), to, name);
                self.making.put(&to, path.name(), copy).map(Put::Done)
            }
            NodeType::Symlink => {
                let target = from.read_link(path.name())?;
                let link = |to: &Dir, name: &[u8]| make_link(to, name, &target, &found.stamp);
                self.making.put(&to, path.name(), link).map(|_| Put::Done(None))
            }
            NodeType::Directory => self.dir(&to, path).map(|_| Put::Done(None)),
            _ => Ok(Put::Nothing),
        }
    }

    /// Makes a whiteout at `path`, where nothing is shown yet. Whether there is one now that was not there.
    pub fn white_out(&self, path: &RelPath) -> Result<bool> {
        let is_free = self.from.find(path)?.is_none() && self.to.stamp(path)?.is_none();
        if !is_free || !self.shows_parent(path)? {
            return Ok(false);
        }
        let Some(to) = self.parent(path)? else { return Ok(false) };
        fs::mknodat(&to, path.name(), FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|e| Error::io("make a whiteout at", to.shown(path.name()), e))?;
        Ok(true)
    }

    fn shows_parent(&self, path: &RelPath) -> Result<bool> {
        match path.parent() {
            Some(parent) => Ok(self.from.find(&parent)?.is_some_and(|found| found.stamp.is_dir())),
            None => Ok(true),
        }
    }

    /// The directory that holds `path` in the layer, made like the one that is shown. `None` where it is hidden there.
    fn parent(&self, path: &RelPath) -> Result<Option<Dir>> {
        let Some(parent) = path.parent() else { return self.to.as_dir().map(Some) };
        match self.to.stamp(&parent)? {
            Some(stamp) if stamp.is_dir() => return self.to.dir(Some(&parent)).map(Some),
            Some(_) => return Ok(None),
            None => {}
        }
        match self.parent(&parent)? {
            Some(above) => self.dir(&above, &parent).map(Some),
            None => Ok(None),
        }
    }

    fn dir(&self, to: &Dir, path: &RelPath) -> Result<Dir> {
        let Some(found) = self.from.find(path)? else {
            return Err(Error::not_found("directory", path.to_string()));
        };
        to.make_dir(path.name(), 0o700)?;
        let (made, like) = (to.dir(path.name())?, self.from.open_parent(path, &found)?.dir(path.name())?);
        let attributes =
            xattrs::read(&like).map_err(|e| Error::io("read attributes of", like.shown_self(), e))?;
        dress_dir(&made, &Meta::of(&like.stamp_self()?, attributes))?;
        Ok(made)
    }
}

/// Whether the content of an entry may be read, if it is of a kind that has any.
fn may_read(parent: &Dir, name: &[u8], stamp: &Stamp) -> bool {
    let is_opened = matches!(stamp.node_type(), NodeType::File | NodeType::Directory);
    let open = || parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0);
    !(is_opened && matches!(open(), Err(Errno::ACCESS | Errno::PERM)))
}

fn copy_flushed(from: &Dir, name: &[u8], to: &Dir, as_name: &[u8]) -> Result<Option<ContentHash>> {
    let copied = copy_file((from, name), (to, as_name), Transfer::Prefer, &mut Vec::new())?;
    let flushed = fs::fsync(to.open_file(as_name)?);
    flushed.map_err(|e| Error::io("flush", to.shown(as_name), e))?;
    Ok(copied.hash)
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

/// Has the mount take for its own what it still has from the original.
fn take_over(base: &OverlayBase<'_>, merged: &Root, changes: &Changes) -> Result<()> {
    for path in changes.paths.iter().filter(|path| !in_layers(base, path)) {
        let Some(parent) = merged.find_parent(path)? else { continue };
        let Some(stamp) = parent.stamp(path.name())? else { continue };
        match touch(&parent, path.name(), &stamp) {
            // What we may not read we cannot keep.
            Err(_) if !may_read(&parent, path.name(), &stamp) => {}
            touched => touched.map_err(|e| Error::io("keep for another sandbox", merged.shown(path), e))?,
        }
    }
    Ok(())
}

/// Makes a directory the mount's own. One that is merged with a directory which is then removed could not be listed any more, so
/// everything in it moves to a new one that takes its place. Whoever works in it loses it: hence only where the removed
/// directory cannot be kept (see [`Journal::graves`]).
fn detach(base: &OverlayBase<'_>, merged: &Root, path: &RelPath) -> Result<()> {
    let (Some(parent), Ok(dir)) = (merged.find_parent(path)?, merged.open_dir(path)) else { return Ok(()) };
    if base.original.open_dir(path).is_err() || is_opaque(base, path)? {
        return Ok(());
    }
    let name = RelPath::single(&[RESERVED, b"taking-over"].concat())?;
    crate::remove_below(merged, &name)?;
    let own = merged.create_dirs(&name, 0o700)?;
    let failed = |e| Error::io("keep for another sandbox", merged.shown(path), e);
    let attributes = xattrs::read(&dir).map_err(failed)?;
    let meta = Meta::of(&dir.stamp_self()?, attributes);
    for listed in list::names_and_types(&dir)? {
        fs::renameat(&dir, &listed.name, &own, &listed.name).map_err(failed)?;
    }
    parent.remove(path.name(), true)?;
    fs::renameat(merged, name.name(), &parent, path.name()).map_err(failed)?;
    dress_dir(&own, &meta).map(drop)
}

fn is_opaque(base: &OverlayBase<'_>, path: &RelPath) -> Result<bool> {
    let Some(upper) = base.layers.first() else { return Ok(false) };
    let Some(parent) = upper.root.find_parent(path)? else { return Ok(false) };
    let Some(stamp) = parent.stamp(path.name())? else { return Ok(false) };
    Ok(upper.meaning(&parent, path.name(), &stamp)? == Meaning::Directory { opaque: true })
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

/// The mode of the empty file by which [`hide`] has the kernel look again. Files have none like it, so one that was left is known.
const HOLDER: u32 = 0o1600;

fn is_holder(stamp: Stamp) -> bool {
    stamp.is_file() && stamp.size == 0 && stamp.permissions() == HOLDER
}

fn make_holder(parent: &Dir, name: &[u8]) -> rustix::io::Result<()> {
    parent.try_open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, HOLDER).map(drop)
}

/// Makes a whiteout through the mount. One that was asked for the name before it was there still says that nothing is: then a file is
/// made and removed, and the kernel looks again.
fn hide(merged: &Root, path: &RelPath) -> Result<()> {
    let Some(parent) = merged.find_parent(path)? else { return Ok(()) };
    if parent.stamp(path.name())?.is_some() {
        return crate::remove_entry(&parent, path.name());
    }
    match make_holder(&parent, path.name()) {
        Ok(()) => parent.remove(path.name(), false),
        Err(Errno::EXIST) => crate::remove_entry(&parent, path.name()),
        Err(e) => Err(Error::io("hide from another sandbox", merged.shown(path), e)),
    }
}

#[cfg(test)]
#[path = "preserve_tests.rs"]
mod tests;
