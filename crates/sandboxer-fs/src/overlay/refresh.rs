//! Moving an overlay onto what the original is now.
//!
//! What only the sandbox changed stays; what only the original changed is shown; what both changed is merged, or stays a conflict. It all happens
//! through the mount, so that whatever works in the sandbox goes on. Each step leaves a sandbox that is right by itself: only the last
//! one moves the instant.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::Result;
use sandboxer_core::model::{CommitRequest, Conflict, NodeType, OnConflict, RelPath};

use super::base::OverlayBase;
use super::instant::Instant;
use super::layer::Layer;
use super::preserve::in_layers;
use super::records::Recorded;
use super::space::{OverlaySpace, OverlaySpec};
use crate::base::Base;
use crate::commit::{Prepare, Rebased, rebase};
use crate::copy::Transfer;
use crate::filter::Filter;
use crate::list;
use crate::manifest::{Edits, Entry};
use crate::restore::{Scope, restore};
use crate::rollback::FromOriginal;
use crate::space::Space;
use crate::stamp::Stamp;

type Bases = Vec<(RelPath, Option<Entry>)>;

/// What a refresh did.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// Files that have the changes of both sides now.
    pub merged: Vec<RelPath>,
    /// How many entries were brought up to date, beside all those that are simply seen through.
    pub updated: u64,
    /// What is still in conflict.
    pub conflicts: Vec<Conflict>,
}

/// Moves `space` onto the original's present state. `renew` has its mount show that.
pub fn refresh(space: &OverlaySpace, renew: &dyn Fn() -> Result<()>) -> Result<Refreshed> {
    let pair = space.pair();
    space.check_original()?;
    let instant = Instant::take(&pair.original, &pair.home)?;
    // What the mount remembers is older than the instant.
    renew()?;
    let held = held_entries(space, &instant)?;
    let mut rebased = merge(space)?;
    let base = space.overlay_base()?;
    rebased.bases.extend(contested_below(&base, &rebased.bases)?);
    base.rewrite(rebased.bases.iter().cloned().collect())?;
    let kept: BTreeSet<RelPath> = rebased.bases.iter().map(|(path, _)| path.clone()).collect();
    let (updated, mut edits) = bring_up_to_date(space, &instant, &rebased.differing, &held)?;
    OverlaySpec { instant, ..space.spec().clone() }.store(&pair.home)?;
    edits.extend(records_of_new_names(&base)?);
    // By the new instant everything else is what the original has.
    edits.extend(rebased.bases);
    base.records.replace(edits)?;
    forget_preserved(space, &kept)?;
    renew()?;
    Ok(Refreshed { merged: rebased.merged, updated, conflicts: rebased.conflicts })
}

/// The records of names that are still new.
fn records_of_new_names(base: &OverlayBase<'_>) -> Result<Edits> {
    let mut edits = Edits::new();
    for (path, _) in base.recorded.iter().filter(|(_, entry)| entry.is_none()) {
        if in_layers(base, path) && base.original.stamp(path)?.is_none() {
            edits.insert(path.clone(), None);
        }
    }
    Ok(edits)
}

/// The bases of what the original has below directories in conflict, as far as the sandbox did not know it: by the new instant it
/// would seem to have been there all along, and to be deleted with its directory.
fn contested_below(base: &OverlayBase<'_>, contested: &[(RelPath, Option<Entry>)]) -> Result<Bases> {
    let is_dir = |entry: &Entry| entry.node_type() == NodeType::Directory;
    let directories = contested.iter().filter(|(_, entry)| entry.as_ref().is_some_and(is_dir));
    let mut waiting: Vec<RelPath> = directories.map(|(path, _)| path.clone()).collect();
    let mut bases = Bases::new();
    while let Some(dir) = waiting.pop() {
        let Ok(open) = base.original.open_dir(&dir) else { continue };
        for listed in list::names_and_types(&open)? {
            let path = dir.join(&listed.name);
            let known = base.find(&path)?;
            if known.as_ref().is_some_and(is_dir) {
                waiting.push(path.clone());
            }
            if !known.as_ref().is_some_and(|entry| entry.base.is_some_and(|stamp| stamp.is_known())) {
                bases.push((path, known));
            }
        }
    }
    Ok(bases)
}

fn merge(space: &OverlaySpace) -> Result<Rebased> {
    let (pair, base) = (space.pair(), space.base()?);
    let request = CommitRequest { on_conflict: OnConflict::Merge, ..CommitRequest::default() };
    pair.with_workshop(|workshop| {
        rebase(&Prepare {
            comparison: pair.shown(base.as_ref()),
            files: &pair.files(),
            request: &request,
            operation: None,
            pack: None,
            workshop,
            history: pair.means.history.as_deref(),
        })
    })
}

/// The base that has nothing but what the original is at `instant`.
fn present_base<'a>(space: &'a OverlaySpace, instant: &'a Instant) -> Result<OverlayBase<'a>> {
    let before = space.overlay_base()?;
    let preserve = Layer::open(&space.places().preserve(), space.spec().marks)?;
    let layers = before.layers.into_iter().chain([preserve]).collect();
    Ok(OverlayBase { instant, recorded: Recorded::new(), layers, ..before })
}

/// What the overlay holds that the original does not have like that at `instant`.
fn held_entries(space: &OverlaySpace, instant: &Instant) -> Result<BTreeMap<RelPath, Option<Stamp>>> {
    let present = present_base(space, instant)?;
    let scan = present.scan(&space.pair().comparison(&present))?;
    Ok(scan.candidates.into_iter().map(|candidate| (candidate.path, candidate.now)).collect())
}

/// What the overlay holds of the original without having changed it is of another time: it becomes what the original has. What was not
/// there, or was something else, before the changes were told apart is a change that a program has made since.
fn bring_up_to_date(
    space: &OverlaySpace,
    instant: &Instant,
    differing: &BTreeSet<RelPath>,
    held: &BTreeMap<RelPath, Option<Stamp>>,
) -> Result<(u64, Edits)> {
    let (pair, present) = (space.pair(), present_base(space, instant)?);
    let is_held = |path: &RelPath, now: Option<Stamp>| match (held.get(path), now) {
        (Some(Some(then)), Some(now)) => then.untouched(&now) || (then.is_dir() && now.is_dir()),
        (Some(then), now) => then.is_none() && now.is_none(),
        (None, _) => false,
    };
    let comparison = pair.comparison(&present);
    let stale: BTreeSet<RelPath> = present
        .scan(&comparison)?
        .candidates
        .into_iter()
        .filter(|candidate| is_held(&candidate.path, candidate.now))
        .map(|candidate| candidate.path)
        .filter(|path| !differing.iter().any(|ours| path.is_within(ours) || ours.is_within(path)))
        .collect();
    if stale.is_empty() {
        return Ok((0, Edits::new()));
    }
    let mut source =
        FromOriginal { original: &pair.original, transfer: Transfer::Prefer, buffer: Vec::new() };
    let mut restored =
        pair.with_workshop(|shop| restore(&comparison, Scope::Exactly(&stale), &mut source, shop))?;
    let mut edits: Edits =
        stale.iter().map(|path| Ok((path.clone(), present.find(path)?))).collect::<Result<_>>()?;
    edits.append(&mut restored.edits);
    present.rewrite(edits.clone())?;
    Ok((restored.count, edits))
}

/// Only what is in conflict still needs its old base.
fn forget_preserved(space: &OverlaySpace, kept: &BTreeSet<RelPath>) -> Result<()> {
    let preserve = Layer::open(&space.places().preserve(), space.spec().marks)?;
    let cancel = &space.pair().means.cancel;
    for path in super::touched::touched(&[&preserve], &Filter::all(), 1, cancel)?.paths.into_keys().rev() {
        if !kept.iter().any(|kept| kept.is_within(&path)) {
            crate::remove_below(&preserve.root, &path)?;
        }
    }
    Ok(())
}
