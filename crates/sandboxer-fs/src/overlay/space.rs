//! A workspace whose tree is an overlay over the original. It has to be mounted, which is the caller's affair: here it is a path.

use std::path::{Path, PathBuf};

use sandboxer_core::model::{Change, CommitResult, DiffKind, DiffView, RelPath};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::base::OverlayBase;
use super::instant::{Clock, Instant};
use super::layer::{Layer, Marks};
use super::new_names::{NewNames, parent_directories, record_after_commit};
use super::preserve;
use super::records::{Records, Says, says};
use super::stack::{Places, Stack, dress_like};
use super::taken;
use crate::base::{Base, PACK};
use crate::commit::{Journal, Step};
use crate::content::read_all;
use crate::copy::Transfer;
use crate::diff::{Delta, differences};
use crate::durable;
use crate::filter::{Filter, Patterns};
use crate::hash::ContentHash;
use crate::identity::DirectoryIdentity;
use crate::manifest::{Edits, Entry};
use crate::pack::PackWriter;
use crate::restore::{Restored, Scope, Source, restore};
use crate::rollback::FromOriginal;
use crate::root::{Dir, Root, stamp_of_fd};
use crate::space::{Logged, Means, Pair, Space, Workshop, finish, replace_in};

/// What an overlay workspace is made of; kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySpec {
    /// The directory that is isolated.
    pub original: PathBuf,
    /// The directory itself, when the sandbox was made: another one may be at its path later.
    pub root: DirectoryIdentity,
    /// What of it counts.
    #[serde(default)]
    pub patterns: Patterns,
    /// Where the kernel keeps its marks, and by that who mounts it.
    pub marks: Marks,
    /// Whether what was written last may be lost when the machine goes down.
    pub volatile: bool,
    /// The keeper that mounts it, where it is not us.
    #[serde(default)]
    pub keeper: Option<String>,
    /// When the original was the base.
    pub instant: Instant,
    /// How many bytes of base content are kept for merging.
    #[serde(default)]
    pub keep_base: u64,
    /// What of its base is its own, and nobody's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ground: Option<RelPath>,
}

const SPEC: &str = "overlay.json";

impl OverlaySpec {
    /// The spec of the workspace at `home`; `None` where it is none of an overlay.
    pub fn load(home: &Path) -> Result<Option<Self>> {
        let path = home.join(SPEC);
        match std::fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(&path, e.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", path, e)),
        }
    }

    /// Forgets it: what is left at `home` is no overlay any more.
    pub fn remove(home: &Path) -> Result<()> {
        let path = home.join(SPEC);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
            _ => Ok(()),
        }
    }

    /// Writes it down, durably.
    pub fn store(&self, home: &Path) -> Result<()> {
        let path = home.join(SPEC);
        let json = serde_json::to_vec_pretty(self).map_err(|e| Error::corrupt(&path, e.to_string()))?;
        durable::write(&path, &json)
    }

    /// Writes that of a new workspace, as durably as what will be in it.
    pub fn store_new(&self, home: &Path) -> Result<()> {
        if !self.volatile {
            return self.store(home);
        }
        let path = home.join(SPEC);
        let json = serde_json::to_vec_pretty(self).map_err(|e| Error::corrupt(&path, e.to_string()))?;
        durable::write_lazily(&path, &json)
    }

    /// Makes the directories of a new workspace in the existing directory `home`.
    pub fn lay_out(original: &Path, home: &Path) -> Result<Places> {
        let places = Places::new(home);
        places.make()?;
        // The root of the mount is the upper's.
        dress_like(&places.preserve(), original)?;
        dress_like(&places.upper(), original)?;
        Ok(places)
    }

    /// The directories that the upper is laid over, topmost first.
    pub fn lowers(&self, places: &Places, stack: &Stack) -> Result<Vec<PathBuf>> {
        let mut lowers = stack.lowers(places);
        if !Layer::open(&places.preserve(), self.marks)?.is_empty()? {
            lowers.push(places.preserve());
        }
        lowers.push(self.original.clone());
        Ok(lowers)
    }
}

/// An original, and an overlay over it.
pub struct OverlaySpace {
    spec: OverlaySpec,
    places: Places,
    pair: Pair,
}

impl OverlaySpace {
    /// Opens the workspace at `home`, which is mounted and reached by `merged`.
    pub fn open(home: &Path, merged: &Path, mut spec: OverlaySpec, means: Means) -> Result<Self> {
        if spec.instant.notice(&Clock::now()) {
            spec.store(home)?;
        }
        let pair = Pair {
            home: home.to_path_buf(),
            resource: spec.original.clone(),
            original: Root::open_original(&spec.original)?,
            copy: Root::open(merged)?,
            shown: Filter::new(&spec.patterns)?,
            filter: Filter::new(&spec.patterns)?,
            means,
            keep_base: spec.keep_base,
            workshop: Workshop::Inside,
        };
        Ok(Self { spec, places: Places::new(home), pair })
    }

    /// What it is made of.
    pub fn spec(&self) -> &OverlaySpec {
        &self.spec
    }

    /// Its directories.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What it is compared with.
    pub fn overlay_base(&self) -> Result<OverlayBase<'_>> {
        let stack = Stack::load(&self.places)?;
        let dirs = [self.places.upper()].into_iter().chain(stack.lowers(&self.places));
        let layers = dirs.map(|dir| Layer::open(&dir, self.spec.marks)).collect::<Result<_>>()?;
        let records = Records::new(&self.pair.home);
        Ok(OverlayBase {
            original: &self.pair.original,
            instant: &self.spec.instant,
            recorded: records.load()?,
            records,
            layers,
            preserve: Root::open(self.places.preserve())?,
            taken: taken::load(&self.pair.home)?,
            new_names: NewNames::load(&self.pair.home)?,
        })
    }

    /// The base of a file that is about to be replaced, with its content kept for merging.
    fn with_content(&self, path: &RelPath, entry: Entry) -> Result<Entry> {
        let Some(stamp) = entry.base.filter(|stamp| stamp.is_file() && stamp.is_known()) else {
            return Ok(entry);
        };
        let pack = PackWriter::open(&self.pair.home.join(PACK), self.pair.keep_base)?;
        let read = || -> Option<Vec<u8>> {
            let fd = self.pair.original.parent_of(path).ok()?.open_file(path.name()).ok()?;
            let content = read_all(fd.try_clone().ok()?, stamp.size).ok()?;
            stamp_of_fd(&fd).is_ok_and(|now| stamp.untouched(&now)).then_some(content)
        };
        let Some(content) = pack.wants(stamp.size).then(read).flatten() else { return Ok(entry) };
        Ok(Entry { kept: pack.keep(&content), hash: Some(ContentHash::of(&content)), ..entry })
    }

    /// The base again within `scope`, entry by entry through the mount.
    pub fn rollback(&self, scope: &[RelPath]) -> Result<Restored> {
        let base = self.overlay_base()?;
        let original =
            FromOriginal { original: &self.pair.original, transfer: Transfer::Prefer, buffer: Vec::new() };
        let preserve =
            FromOriginal { original: &base.preserve, transfer: Transfer::Prefer, buffer: Vec::new() };
        let mut source = FromBase { preserve, original };
        let comparison = self.pair.comparison(&base);
        let mut restored =
            self.pair.with_workshop(|shop| restore(&comparison, Scope::Below(scope), &mut source, shop))?;
        base.rewrite(std::mem::take(&mut restored.edits))?;
        Ok(restored)
    }
}

impl Space for OverlaySpace {
    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn pair_mut(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn base(&self) -> Result<Box<dyn Base + '_>> {
        Ok(Box::new(self.overlay_base()?))
    }

    fn check_original(&self) -> Result<()> {
        self.spec.root.check(&self.pair.original)
    }

    fn diff(&self) -> Result<DiffView> {
        let base = self.overlay_base()?;
        let found = differences(&self.pair.shown(&base))?;
        remember(&base, &found.deltas)?;
        Ok(found.view())
    }

    fn finish(&self, logged: &Logged) -> Result<CommitResult> {
        if let Some(prepared) = Journal::load(&self.pair.files().prepared())? {
            preserve::keep_for_checkpoints(&self.spec, &self.places, &prepared)?;
            let base = self.overlay_base()?;
            preserve::note_own_directories(&base, &self.pair.home, &prepared)?;
            if prepared.undoes.is_some() {
                preserve::keep_own(&base, &self.pair.copy, &prepared)?;
            }
        }
        finish(self, logged)
    }

    fn applied(&self, journal: &Journal) -> Result<()> {
        preserve::note_replaced(&Records::new(&self.pair.home), journal)?;
        let made_inside = preserve::in_own_directories(&self.overlay_base()?, journal)?;
        taken::note(&self.pair.home, made_inside)?;
        if journal.undoes.is_some() {
            preserve::hide_own(&self.overlay_base()?, &self.pair.copy, journal)?;
        }
        let directories = parent_directories(journal.steps.iter().map(Step::path));
        record_after_commit(&self.overlay_base()?, &self.pair.home, directories)?;
        preserve::forget_preserved(&self.places, journal)
    }

    /// A file that is replaced has no origin by which its base could be told later: so that is written down first.
    fn write(&self, path: &RelPath, content: &[u8]) -> Result<Change> {
        let base = self.overlay_base()?;
        if says(&base.recorded, path) == Says::Silent && base.layers.iter().all(|l| no_entry(l, path)) {
            let entry = base.find(path)?.map(|entry| self.with_content(path, entry)).transpose()?;
            base.rewrite(Edits::from([(path.clone(), entry)]))?;
        }
        replace_in(&self.pair, path, content)
    }
}

/// Writes down the base of what was found changed, and of the directories above it, while it is still known: an entry that was
/// replaced says nothing of what was there.
fn remember(base: &OverlayBase<'_>, deltas: &[Delta]) -> Result<()> {
    let is_known = |entry: &Entry| entry.base.is_some_and(|stamp| stamp.is_known());
    let mut edits = Edits::new();
    for delta in deltas.iter().filter(|delta| !delta.entry.moved) {
        let path = delta.entry.from.as_ref().unwrap_or(&delta.entry.path);
        if is_new_in_shared_directory(base, delta)? {
            edits.insert(delta.entry.path.clone(), None);
        }
        let Some(entry) = delta.base.clone().filter(is_known) else { continue };
        if says(&base.recorded, path) == Says::Silent {
            edits.insert(path.clone(), Some(entry));
        }
        for above in std::iter::successors(path.parent(), RelPath::parent) {
            if edits.contains_key(&above) || says(&base.recorded, &above) != Says::Silent {
                break;
            }
            if let Some(dir) = base.find(&above)?.filter(is_known) {
                edits.insert(above, Some(dir));
            }
        }
    }
    base.rewrite(edits)
}

/// Whether the delta has a new name in a directory that the original has, too.
fn is_new_in_shared_directory(base: &OverlayBase<'_>, delta: &Delta) -> Result<bool> {
    let path = &delta.entry.path;
    let is_new = matches!(delta.entry.kind, DiffKind::Created | DiffKind::Renamed);
    if !is_new || says(&base.recorded, path) != Says::Silent {
        return Ok(false);
    }
    path.parent()
        .map_or(Ok(true), |above| Ok(base.original.stamp(&above)?.is_some_and(|found| found.is_dir())))
}

fn no_entry(layer: &Layer, path: &RelPath) -> bool {
    layer.root.stamp(path).is_ok_and(|found| found.is_none())
}

/// Content of the base: from what was preserved, else from the original.
struct FromBase<'a> {
    preserve: FromOriginal<'a>,
    original: FromOriginal<'a>,
}

impl FromBase<'_> {
    /// What was preserved is the base as it is recorded: its own stamps say nothing about the original.
    fn preserved(&mut self, path: &RelPath, entry: &Entry) -> Result<bool> {
        let there = self.preserve.original.stamp(path)?;
        Ok(there.is_some_and(|stamp| stamp.node_type() == entry.node_type()))
    }
}

impl Source for FromBase<'_> {
    fn fetch(&mut self, path: &RelPath, entry: &Entry, to: &Dir, name: &[u8]) -> Result<Option<Entry>> {
        if !self.preserved(path, entry)? {
            return self.original.fetch(path, entry, to, name);
        }
        let made = self.preserve.fetch(path, entry, to, name)?;
        Ok(made.map(|made| Entry { base: entry.base, hash: entry.hash.or(made.hash), ..made }))
    }

    fn current(&mut self, path: &RelPath, entry: &Entry) -> Result<Option<Entry>> {
        if !self.preserved(path, entry)? {
            return self.original.current(path, entry);
        }
        let made = self.preserve.current(path, entry)?;
        Ok(made.map(|made| Entry { base: entry.base, ..made }))
    }
}
