//! Files that are to be otherwise than the checkout has them, and what cannot be had at all.
//!
//! `--clean`, `--from` and `--no-ignored` ask for files that the checkout has not. They are laid over it: among what an overlay preserves, or in a copy. They
//! belong to the base, and are written down there, so that no difference tells of them.

use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::hash::ContentHash;
use sandboxer_fs::manifest::{Edits, Entry};
use sandboxer_fs::overlay::layer::Layer;
use sandboxer_fs::overlay::stack::dress_like;
use sandboxer_fs::remove_below;
use sandboxer_fs::root::{Dir, Root};
use sandboxer_git::differing::{self, Checkout, Differs};
use sandboxer_git::index;
use sandboxer_git::ledger::Ledger;
use sandboxer_git::objects;
use sandboxer_git::oid::Oid;
use sandboxer_git::private::Seed;
use sandboxer_git::repository::Repository;
use sandboxer_git::settings;
use serde::{Deserialize, Serialize};

use super::GitWorktree;
use super::knowledge::{LINK, PROGRAM};
use super::making::Wanted;
use super::spec::{GitSpec, load_laid};

/// So many blobs are held at a time.
const BATCH: usize = 256;
/// A commit of another repository: an empty directory, until somebody fetches it.
const SUBMODULE: u32 = 0o160_000;

/// Submodules that are checked out: their files belong to repositories which the private one knows nothing of.
pub fn populated_submodules(repository: &Repository) -> Result<Vec<RelPath>> {
    let has_some = repository.work_tree.join(".gitmodules").symlink_metadata().is_ok()
        || repository.common_dir.join("modules").is_dir();
    if !has_some {
        return Ok(Vec::new());
    }
    let is_populated =
        |path: &RelPath| repository.work_tree.join(path.as_path()).join(".git").symlink_metadata().is_ok();
    Ok(index::submodules(repository)?.into_iter().filter(is_populated).collect())
}

/// What is to be otherwise.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Otherwise {
    there: Vec<(RelPath, u32, Oid)>,
    gone: Vec<RelPath>,
}

impl Otherwise {
    /// Asks git, where anything else is wanted than what the checkout has.
    pub fn find(
        repository: &Repository,
        wanted: &Wanted<'_>,
        base: Option<&Oid>,
        seed: Seed<'_>,
        work: &Path,
    ) -> Result<Self> {
        let mut found = Self::default();
        let settings = settings::to_pass_on(repository)?;
        let checkout = Checkout { seed, work_tree: &repository.work_tree, work, settings: &settings };
        if let Some(base) = base.filter(|_| wanted.other_files()) {
            for differs in differing::differing(&checkout, base)? {
                match differs {
                    Differs::Tracked { path, mode, blob } => found.there.push((path, mode, blob)),
                    Differs::Extra { path } => found.gone.push(path),
                }
            }
        }
        if !wanted.ignored {
            found.gone.extend(differing::ignored(&checkout)?);
        }
        Ok(found)
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.there.is_empty() && self.gone.is_empty()
    }

    /// What of it `wanted` is about.
    fn retain(&mut self, wanted: impl Fn(&RelPath) -> Result<bool>) -> Result<()> {
        let mut kept = Self::default();
        for one in std::mem::take(&mut self.there) {
            if wanted(&one.0)? {
                kept.there.push(one);
            }
        }
        for path in std::mem::take(&mut self.gone) {
            if wanted(&path)? {
                kept.gone.push(path);
            }
        }
        *self = kept;
        Ok(())
    }

    /// Lays it over what `to` is. Returns what the base has there from now on.
    pub fn lay(&self, ledger: &Ledger, to: &Onto<'_>) -> Result<Edits> {
        let mut edits = Edits::new();
        for path in &self.gone {
            to.remove(path, &mut edits)?;
        }
        for batch in self.there.chunks(BATCH) {
            let oids: Vec<Oid> =
                batch.iter().filter(|(_, mode, _)| *mode != SUBMODULE).map(|(.., oid)| oid.clone()).collect();
            let mut blobs = objects::read_blobs(ledger, &oids)?.into_iter();
            for (path, mode, _) in batch {
                let content = if *mode == SUBMODULE { None } else { blobs.next() };
                to.put(path, *mode, content.as_deref(), &mut edits)?;
            }
        }
        Ok(edits)
    }
}

/// What files are laid over.
pub enum Onto<'a> {
    /// A layer over the checkout.
    Layer(&'a Layer, &'a Root),
    /// A copy of it.
    Copy(&'a Root),
}

impl Onto<'_> {
    fn root(&self) -> &Root {
        match self {
            Self::Layer(layer, _) => &layer.root,
            Self::Copy(tree) => tree,
        }
    }

    fn remove(&self, path: &RelPath, edits: &mut Edits) -> Result<()> {
        remove_below(self.root(), path)?;
        if let Self::Layer(layer, _) = self {
            layer.hide(&self.parent(path, edits)?, path.name())?;
        }
        edits.insert(path.clone(), None);
        Ok(())
    }

    fn put(&self, path: &RelPath, mode: u32, content: Option<&[u8]>, edits: &mut Edits) -> Result<()> {
        let parent = self.parent(path, edits)?;
        remove_below(self.root(), path)?;
        let name = path.name();
        match content {
            None => parent.make_dir(name, 0o755)?,
            Some(target) if mode == LINK => {
                rustix::fs::symlinkat(target, &parent, name)
                    .map_err(|e| Error::io("create link", parent.shown(name), e))?;
            }
            Some(content) => write(&parent, name, if mode == PROGRAM { 0o755 } else { 0o644 }, content)?,
        }
        let entry = self.entry(&parent, name, content.filter(|_| mode != LINK))?;
        let target = content.filter(|_| mode == LINK).unwrap_or_default().to_vec();
        edits.insert(path.clone(), Some(Entry { target, ..entry }));
        Ok(())
    }

    /// The directory above `path`; like the checkout's where that has one, and a part of the base where not.
    fn parent(&self, path: &RelPath, edits: &mut Edits) -> Result<Dir> {
        let mut above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
        above.reverse();
        for dir in above {
            if self.root().stamp(&dir)?.is_some_and(|stamp| stamp.is_dir()) {
                continue;
            }
            // A file, or the mark of one that is gone.
            remove_below(self.root(), &dir)?;
            let holder = self.root().parent_of(&dir)?;
            holder.make_dir(dir.name(), 0o755)?;
            match self {
                Self::Layer(layer, original) if original.open_dir(&dir).is_ok() => {
                    dress_like(&layer.root.shown(&dir), &original.shown(&dir))?;
                    edits.remove(&dir);
                }
                _ => drop(edits.insert(dir.clone(), Some(self.entry(&holder, dir.name(), None)?))),
            }
        }
        self.root().parent_of(path)
    }

    /// What the base says of an entry. The original has it not, or otherwise: nothing that is there is the base.
    fn entry(&self, parent: &Dir, name: &[u8], content: Option<&[u8]>) -> Result<Entry> {
        let stamp = parent.stamp(name)?;
        let copy = stamp.filter(|_| matches!(self, Self::Copy(_)));
        let base = stamp.map(sandboxer_fs::stamp::Stamp::at_unknown_time);
        Ok(Entry { name: name.to_vec(), base, copy, hash: content.map(ContentHash::of), ..Entry::default() })
    }
}

impl GitWorktree {
    /// What a rollback within `scope` of a copy cannot have from the original, because it was laid over that. An overlay preserves it.
    pub(super) fn laid_within(&self, home: &Path, scope: &[RelPath]) -> Result<Otherwise> {
        let Some(mut laid) = load_laid(home)? else { return Ok(Otherwise::default()) };
        let space = self.files.open_space(home, self.files.means())?;
        let base = space.base()?;
        laid.retain(|path| {
            let is_meant = scope.is_empty() || scope.iter().any(|within| path.is_within(within));
            // What was committed since is the original's.
            let is_laid = |entry: &Entry| entry.base.is_some_and(|stamp| !stamp.is_known());
            Ok(is_meant && base.find(path)?.as_ref().is_none_or(is_laid))
        })?;
        Ok(laid)
    }

    /// Lays it again.
    pub(super) fn lay_again(&self, home: &Path, laid: &Otherwise) -> Result<()> {
        if laid.is_empty() {
            return Ok(());
        }
        let space = self.files.open_space(home, self.files.means())?;
        let ledger = GitSpec::load(home)?.ledger(home)?;
        space.base()?.rewrite(laid.lay(&ledger, &Onto::Copy(&space.pair().copy))?)
    }
}

fn write(dir: &Dir, name: &[u8], mode: u32, content: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let fd = dir.open(name, flags, mode, "create")?;
    let failed = |e: std::io::Error| Error::io("write", dir.shown(name), e);
    std::io::Write::write_all(&mut std::fs::File::from(fd), content).map_err(failed)?;
    rustix::fs::chmodat(dir, name, rustix::fs::Mode::from_raw_mode(mode), AtFlags::empty())
        .map_err(|e| Error::io("set the mode of", dir.shown(name), e))
}
