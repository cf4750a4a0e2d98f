//! A workspace that is a copy of its original.

use std::path::{Path, PathBuf};

use rustix::fs;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::base::{Base, PACK};
use crate::checkpoint::Checkpoints;
use crate::clone::{CloneJob, CloneReport, clone_tree};
use crate::commit;
use crate::copy::Transfer;
use crate::durable;
use crate::filter::{Filter, Patterns};
use crate::identity::DirectoryIdentity;
use crate::manifest::Manifest;
use crate::pack::PackWriter;
use crate::park::{self, Assembly, Parked};
use crate::restore::{Restored, Scope, restore};
use crate::rollback::FromOriginal;
use crate::root::Root;
use crate::space::{Means, Pair, Space, Workshop};

/// What a workspace is made of; kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The directory that is isolated (a single file's parent).
    pub original: PathBuf,
    /// Its identity when it was copied.
    #[serde(default)]
    pub root: Option<DirectoryIdentity>,
    /// What of it.
    #[serde(default)]
    pub patterns: Patterns,
    /// Whether copies share blocks with the original.
    #[serde(default)]
    pub reflink: bool,
    /// How many bytes of base content are kept for merging.
    #[serde(default)]
    pub keep_base: u64,
}

/// An original and its copy.
pub struct Workspace {
    spec: Spec,
    pair: Pair,
}

const SPEC: &str = "workspace.json";
const TREE: &str = "tree";
const BASE: &str = "base.manifest";
/// In a fresh copy that has everything.
const READY: &str = "done";

impl Spec {
    /// The spec of the workspace at `home`; `None` where that is no copy.
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
}

impl Workspace {
    /// Copies `spec`'s original into the existing directory `home`. Where it fails, `home` is the caller's to remove.
    pub fn create(home: &Path, spec: Spec, means: Means) -> Result<(Self, CloneReport)> {
        Self::create_packing(home, &home.join(PACK), spec, means)
    }

    fn create_packing(home: &Path, pack: &Path, spec: Spec, means: Means) -> Result<(Self, CloneReport)> {
        let root = Some(DirectoryIdentity::read(&Root::open(&spec.original)?)?);
        let spec = Spec { root, ..spec };
        let json = serde_json::to_vec_pretty(&spec).map_err(|e| Error::corrupt(home, e.to_string()))?;
        let tree = home.join(TREE);
        std::fs::create_dir(&tree).map_err(|e| Error::io("create directory", &tree, e))?;
        let space = Self::assemble(home, spec, means)?;
        let pack = PackWriter::open(pack, space.spec.keep_base)?;
        let report = clone_tree(&CloneJob {
            source: &space.pair.original,
            target: &space.pair.copy,
            manifest: &home.join(BASE),
            filter: &space.pair.filter,
            transfer: space.transfer(),
            pack: Some(&pack),
            threads: space.pair.means.threads,
            progress: space.pair.means.progress.as_ref(),
            cancel: &space.pair.means.cancel,
        })?;
        durable::write(&home.join(SPEC), &json)?;
        Ok((space, report))
    }

    /// Opens the workspace at `home`.
    pub fn open(home: &Path, means: Means) -> Result<Self> {
        let spec = Spec::load(home)?.ok_or_else(|| Error::corrupt(home, "it has no workspace.json"))?;
        Self::assemble(home, spec, means)
    }

    fn assemble(home: &Path, spec: Spec, means: Means) -> Result<Self> {
        let resource = match &spec.patterns.only {
            Some(name) => spec.original.join(name.as_path()),
            None => spec.original.clone(),
        };
        let pair = Pair {
            home: home.to_path_buf(),
            resource,
            original: Root::open_original(&spec.original)?,
            copy: Root::open(home.join(TREE))?,
            shown: Filter::new(&spec.patterns)?,
            filter: Filter::new(&spec.patterns)?,
            means,
            keep_base: spec.keep_base,
            workshop: Workshop::Beside,
        };
        Ok(Self { spec, pair })
    }

    /// Where to work.
    pub fn path(&self) -> PathBuf {
        let tree = self.pair.home.join(TREE);
        match &self.spec.patterns.only {
            Some(name) => tree.join(name.as_path()),
            None => tree,
        }
    }

    fn transfer(&self) -> Transfer {
        if self.spec.reflink { Transfer::Reflink } else { Transfer::Bytes }
    }

    /// The manifest that the copy is compared with.
    pub fn manifest(&self) -> Result<Manifest> {
        Manifest::load(&self.pair.home.join(BASE))
    }

    /// The base again, within `scope`.
    pub fn rollback(&self, scope: &[RelPath]) -> Result<Restored> {
        let base = self.manifest()?;
        let transfer = self.transfer();
        let mut source = FromOriginal { original: &self.pair.original, transfer, buffer: Vec::new() };
        let comparison = self.pair.comparison(&base);
        let mut restored =
            self.pair.with_workshop(|shop| restore(&comparison, Scope::Below(scope), &mut source, shop))?;
        self.flush(&restored)?;
        base.rewrite(std::mem::take(&mut restored.edits))?;
        Ok(restored)
    }

    /// Removes from the copy what can be had again from the original. Tells how many entries are work.
    pub fn park(&self) -> Result<usize> {
        let base = self.manifest()?;
        let parked = park::park(&self.pair.home, &self.pair.comparison(&base), &base)?;
        Ok(parked.present.len() + parked.absent.len())
    }

    /// Puts the workspace at `home` together again from the original and what was parked. One that is not parked is
    /// left as it is; where it fails, it is parked as it was.
    pub fn unpark(home: &Path, means: Means) -> Result<Self> {
        Self::settle_unparking(home)?;
        if let Some(parked) = Parked::load(home)? {
            if let Err(error) = Self::put_together(home, &parked, &means) {
                // The first error is the one to tell; what is left is removed the next time.
                let _ = Self::settle_unparking(home);
                return Err(error);
            }
            Self::settle_unparking(home)?;
        }
        Self::open(home, means)
    }

    /// Makes a fresh copy of the original beside what is parked, with the work laid over it.
    fn put_together(home: &Path, parked: &Parked, means: &Means) -> Result<()> {
        let (fresh, _) = park::places(home);
        std::fs::create_dir(&fresh).map_err(|e| Error::io("create directory", &fresh, e))?;
        let space = Self::open(home, means.clone())?;
        // What is kept for merging goes on in the pack that is there: records of the old base point into it.
        let (renewed, _) = Self::create_packing(&fresh, &home.join(PACK), space.spec.clone(), means.clone())?;
        let assembly = Assembly {
            parked: &space.pair.copy,
            manifest: &space.manifest()?,
            fresh: &renewed.pair.copy,
            fresh_manifest: &fresh.join(BASE),
        };
        park::lay_over(&assembly, parked)?;
        // The only other copy of the work goes when this one is in its place.
        fs::syncfs(&renewed.pair.copy).map_err(|e| Error::io("flush", &fresh, e))?;
        durable::write(&fresh.join(READY), b"")
    }

    /// Finishes an unparking that had everything ready when it was interrupted, and forgets one that had not.
    pub fn settle_unparking(home: &Path) -> Result<()> {
        let (fresh, old_tree) = park::places(home);
        if fresh.join(READY).exists() && Parked::load(home)?.is_some() {
            Self::change_places(home, &fresh, &old_tree)?;
            park::forget(home)?;
        }
        crate::remove_tree(&old_tree)?;
        crate::remove_tree(&fresh)
    }

    /// What is left to do is told by what is there.
    fn change_places(home: &Path, fresh: &Path, old_tree: &Path) -> Result<()> {
        let tree = home.join(TREE);
        if fresh.join(TREE).exists() {
            if tree.exists() && !old_tree.exists() {
                rename(&tree, old_tree)?;
            }
            rename(&fresh.join(TREE), &tree)?;
        }
        if fresh.join(BASE).exists() {
            rename(&fresh.join(BASE), &home.join(BASE))?;
        }
        durable::sync_dir(home)
    }

    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.pair.home.join("checkpoints"))
    }

    /// Keeps the present state.
    pub fn checkpoint(&self, name: &str) -> Result<PathBuf> {
        let base = self.manifest()?;
        self.checkpoints().take(name, &self.pair.comparison(&base), &base)
    }

    /// Forgets a kept state, with what it alone holds.
    pub fn drop_checkpoint(&self, name: &str) -> Result<()> {
        self.checkpoints().drop(name)
    }

    /// Brings a kept state back.
    pub fn restore(&self, name: &str) -> Result<Restored> {
        let kept = self.checkpoints().load(name)?;
        let mut source = self.checkpoints().source()?;
        let comparison = self.pair.comparison(&kept);
        let restored =
            self.pair.with_workshop(|shop| restore(&comparison, Scope::Below(&[]), &mut source, shop))?;
        self.flush(&restored)?;
        Ok(restored)
    }

    /// What was brought back has to be there after a power cut too: unflushed, its files would come back empty.
    fn flush(&self, restored: &Restored) -> Result<()> {
        if restored.count == 0 {
            return Ok(());
        }
        fs::syncfs(&self.pair.copy).map_err(|e| Error::io("flush", self.pair.copy.path(), e))
    }
}

impl Space for Workspace {
    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn pair_mut(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn base(&self) -> Result<Box<dyn Base + '_>> {
        Ok(Box::new(self.manifest()?))
    }

    fn check_original(&self) -> Result<()> {
        self.spec.root.as_ref().map_or(Ok(()), |root| root.check(&self.pair.original))
    }

    /// Also what somebody was interrupted at writing.
    fn abort(&self) -> Result<()> {
        durable::discard_temporary(&self.pair.home.join(BASE))?;
        commit::abort(&self.pair.files())
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename into place", to, e))
}
