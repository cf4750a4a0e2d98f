//! One sandbox as the file engine sees it.

use std::path::{Path, PathBuf};

use sandboxer_core::model::{CommitRequest, CommitResult, DiffEntry, DiffView, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::base::Base;
use sandboxer_fs::commit;
use sandboxer_fs::commit::OnFailure;
use sandboxer_fs::copy::Transfer;
use sandboxer_fs::filter::{Filter, Patterns};
use sandboxer_fs::restore::{Scope, restore};
use sandboxer_fs::rollback::FromOriginal;
use sandboxer_fs::root::Root;
use sandboxer_fs::space::{Logged, Means, Pair, Space, Workshop};

use crate::base::SnapshotBase;
use crate::command::{Access, Btrfs};
use crate::places::{Frozen, Places};
use crate::top::Top;
use crate::touched::{self, Touched};

/// An original, a tree to look at or work in, and a base.
pub struct SnapshotSpace {
    places: Places,
    pair: Pair,
    base: Root,
    touched: Touched,
}

impl SnapshotSpace {
    /// The tree that is worked in. Nothing is known of what differs.
    pub fn open(sandbox: &SandboxRef, btrfs: &Btrfs) -> Result<Self> {
        let places = Places::of(sandbox, btrfs)?;
        if !places.base().exists() {
            // A commit that is decided was interrupted just there.
            places.adopt_next_base()?;
        }
        let original = original_of(sandbox)?;
        let filter = Filter::new(&patterns_of(sandbox)?)?;
        let pair = Pair {
            home: places.home.clone(),
            resource: original.clone(),
            original: Root::open(&original)?,
            copy: Root::open(places.tree())?,
            shown: filter.clone(),
            filter,
            means: Means::default(),
            keep_base: 0,
            workshop: Workshop::Inside,
        };
        let base = Root::open(places.base())?;
        let space = Self { places, pair, base, touched: Touched::new() };
        space.settle()?;
        Ok(space)
    }

    /// Finishes a commit that was decided and interrupted.
    fn settle(&self) -> Result<()> {
        if !commit::is_decided(&self.pair.files()) {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.carry_out(OnFailure::Stop).map(drop)
    }

    /// Frozen trees, and all that may differ between them.
    fn looking_at(&self, frozen: &Frozen<'_>) -> Result<Self> {
        let (base, copy) = (Root::open(frozen.earlier())?, Root::open(frozen.later())?);
        let touched = touched::between(&self.places.btrfs, &base, &copy)?;
        Ok(Self { places: self.places.clone(), pair: self.pair_over(copy, Workshop::Beside)?, base, touched })
    }

    fn over<'a>(&'a self, snapshot: &'a Root) -> SnapshotBase<'a> {
        let Self { pair: Pair { original, .. }, touched, places, .. } = self;
        SnapshotBase { snapshot, original, touched, places }
    }

    fn pair_over(&self, copy: Root, workshop: Workshop) -> Result<Pair> {
        let Pair { home, resource, original, filter, shown, means, .. } = &self.pair;
        Ok(Pair {
            home: home.clone(),
            resource: resource.clone(),
            original: Root::open(original.path())?,
            copy,
            filter: filter.clone(),
            shown: shown.clone(),
            means: means.clone(),
            keep_base: 0,
            workshop,
        })
    }

    /// What differs between the tree and the snapshot at `earlier`.
    pub fn differences_from(&self, earlier: &Path) -> Result<DiffView> {
        let frozen = self.places.freeze(earlier, &self.places.tree())?;
        self.looking_at(&frozen)?.diff()
    }

    /// Commits what is selected. What is compared, staged and the base afterwards is one snapshot, whatever programs do meanwhile.
    pub fn commit(&self, request: &CommitRequest) -> Result<CommitResult> {
        let _lock = self.lock()?;
        let _top = Top::of(&self.pair.original)?;
        let frozen = self.places.freeze(&self.places.base(), &self.places.tree())?;
        let looking = self.looking_at(&frozen)?;
        let committed = looking.prepare_and_finish(request, &frozen);
        if committed.is_err() && !commit::is_decided(&self.pair.files()) {
            // The first error is the one to tell.
            let _ = self.abort().and_then(|()| self.places.forget_next_base());
        }
        committed
    }

    fn prepare_and_finish(&self, request: &CommitRequest, frozen: &Frozen<'_>) -> Result<CommitResult> {
        let prepared = self.prepare(request, &Logged::default())?;
        let next = self.places.next_base();
        self.places.btrfs.delete(&next)?;
        if request.paths.is_empty() {
            self.places.btrfs.snapshot(&frozen.later(), &next, Access::Writable)?;
        } else {
            self.places.btrfs.snapshot(&frozen.earlier(), &next, Access::Writable)?;
            self.bring_over(&next, &prepared.entries)?;
        }
        self.finish(&Logged::default())
    }

    /// Makes `next`, which is as the base, what the frozen tree is where `entries` are about. Just there: a directory among them
    /// may hold more that differs.
    fn bring_over(&self, next: &Path, entries: &[DiffEntry]) -> Result<()> {
        let pair = self.pair_over(Root::open(next)?, Workshop::Inside)?;
        let from = &self.pair.copy;
        let touched = entries.iter().flat_map(|e| e.from.iter().chain([&e.path])).cloned().collect();
        let wanted = SnapshotBase { touched: &touched, ..self.over(from) };
        let mut content = FromOriginal { original: from, transfer: Transfer::Prefer, buffer: Vec::new() };
        pair.with_workshop(|shop| restore(&pair.comparison(&wanted), Scope::Below(&[]), &mut content, shop))?;
        rustix::fs::syncfs(&pair.copy).map_err(|e| Error::io("flush", next, e))
    }
}

impl Space for SnapshotSpace {
    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn pair_mut(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn base(&self) -> Result<Box<dyn Base + '_>> {
        Ok(Box::new(self.over(&self.base)))
    }
}

/// The subvolume that is isolated.
pub fn original_of(sandbox: &SandboxRef) -> Result<PathBuf> {
    let original = sandbox.text("original").map(PathBuf::from);
    original.ok_or_else(|| Error::corrupt(sandbox.resource_id.as_str(), "its ref has no original"))
}

fn patterns_of(sandbox: &SandboxRef) -> Result<Patterns> {
    let kept = sandbox.metadata.get("patterns").cloned().unwrap_or_default();
    let damaged = |e: serde_json::Error| Error::corrupt(sandbox.resource_id.as_str(), e.to_string());
    if kept.is_null() { Ok(Patterns::default()) } else { serde_json::from_value(kept).map_err(damaged) }
}
