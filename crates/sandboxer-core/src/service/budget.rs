//! Room: what is kept of the past is bounded, and goes oldest first.
//!
//! Undo data, checkpoints and parked work are on record with their size and age. Whenever something is added, the record is weighed
//! against `state.max_size`, and the filesystem that holds it against `state.min_free`. What has to go is logged as an operation of its own and
//! told to whoever caused it. Undo data and checkpoints go before parked work, which is the only copy of somebody's work; what is pinned stays.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::manager::{SandboxManager, new_operation};
use super::park::{HISTORY, PARKED, home_of};
use super::{KeptItem, Sandbox, SandboxState, Target, Workspace};
use crate::model::{CheckpointId, OpId, Part, SandboxId};
use crate::{Error, Result};

/// Where the space is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskReport {
    /// Sandbox by sandbox, parked ones included, the largest first.
    pub sandboxes: Vec<SandboxDisk>,
    /// The state database.
    pub database: u64,
    /// What budgets may remove, in the order in which it would go.
    pub kept: Vec<KeptItem>,
    /// All that is kept together.
    pub kept_bytes: u64,
    /// `state.max_size`.
    pub max_size: u64,
    /// What the filesystem of the state directory has free, and what is to be left.
    pub free: u64,
    /// `state.min_free`, in bytes.
    pub min_free: u64,
}

/// What one sandbox takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SandboxDisk {
    /// Which.
    pub sandbox_id: SandboxId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: super::SandboxState,
    /// Its copies. Blocks that a copy shares with its original are counted here too.
    pub copies: u64,
    /// What tells a copy from its base.
    pub base: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// What takes commits back.
    pub undo: u64,
    /// Everything else.
    pub other: u64,
    /// All of it.
    pub total: u64,
}

impl SandboxManager {
    /// Where the space is.
    pub fn disk_report(&self) -> Result<DiskReport> {
        let mut sandboxes: Vec<SandboxDisk> = self
            .store
            .sandboxes(false)?
            .into_iter()
            .chain(self.store.parked()?)
            .map(|s| measure(&s))
            .collect();
        sandboxes.sort_by_key(|disk| std::cmp::Reverse(disk.total));
        // The meters are a courtesy here: what was measured is told whether or not it can be kept.
        let _ = self.note_disk(&sandboxes);
        let kept = self.store.kept()?;
        let database = ["state.db", "state.db-wal", "state.db-shm"].map(|name| self.parts.home.join(name));
        let (free, min_free) = self.room(&self.parts.home);
        Ok(DiskReport {
            sandboxes,
            database: database.iter().map(|path| disk_use(path)).sum(),
            kept_bytes: kept.iter().map(|item| item.bytes).sum(),
            kept,
            max_size: self.parts.settings.max_size,
            free,
            min_free,
        })
    }

    /// Free bytes of the filesystem that holds `path`, and how many are to be left. Where nobody can tell, there is room.
    fn room(&self, path: &Path) -> (u64, u64) {
        let existing = path.ancestors().find(|p| p.exists()).unwrap_or(path);
        match rustix::fs::statvfs(existing) {
            Ok(found) => {
                let floor = self.parts.settings.min_free.of(found.f_blocks * found.f_frsize);
                (found.f_bavail * found.f_frsize, floor)
            }
            Err(_) => (u64::MAX, 0),
        }
    }

    /// Makes sure that there is room for something new beside `places`; refuses where there is none. Parked work does not
    /// go for it.
    pub(super) fn make_room(&self, held: &SandboxId, places: &[PathBuf], what: &str) -> Result<()> {
        self.prune(Some(held), &is_work)?;
        for place in places {
            let (free, floor) = self.room(place);
            if free < floor {
                return Err(Error::Refused {
                    reason: format!(
                        "{what} would leave less free space than `state.min_free` asks for on the filesystem of {} ({free} bytes are free, {floor} are to be left)",
                        place.display()
                    ),
                    hint: Some("see where the space is: `sandbox usage --disk`".to_owned()),
                });
            }
        }
        Ok(())
    }

    /// Removes what is kept, oldest first, until the budgets are met or nothing is left that may go. `held` is the sandbox
    /// whose lock the caller holds.
    pub(super) fn keep_within_budget(&self, held: Option<&SandboxId>) -> Result<()> {
        self.prune(held, &|_| false)
    }

    /// The same, but for what is spared.
    fn prune(&self, held: Option<&SandboxId>, is_spared: &dyn Fn(&KeptItem) -> bool) -> Result<()> {
        let mut kept = self.store.kept()?;
        let max_size = self.parts.settings.max_size;
        put_hopeless_first(&mut kept, max_size);
        self.put_largest_owner_first(&mut kept)?;
        let (mut total, mut homes) = (bytes_of(kept.iter()), HashMap::new());
        for item in kept.iter().filter(|item| !item.pinned && !is_spared(item)) {
            let over = total > max_size;
            if !over && !self.is_short(item, &mut homes)? {
                continue;
            }
            // What is being parked at this moment is not what makes room for itself.
            if item.item == item.sandbox_id.as_str() && held == Some(&item.sandbox_id) {
                continue;
            }
            let why = if over { "state.max_size" } else { "state.min_free" };
            // What cannot go now is logged, and does not keep the rest from going.
            if let Err(Error::Cancelled) = self.remove_kept(item, held, why) {
                return Err(Error::Cancelled);
            }
            // Measured again: others may have kept or removed something meanwhile, and so may recovery.
            total = self.kept_bytes()?;
        }
        Ok(())
    }

    /// Whoever keeps the most makes room first: nobody's work goes because somebody else keeps on putting things away.
    fn put_largest_owner_first(&self, kept: &mut [KeptItem]) -> Result<()> {
        let mut owners: HashMap<SandboxId, Option<String>> = HashMap::new();
        for item in kept.iter() {
            if !owners.contains_key(&item.sandbox_id) {
                let owner = self.store.sandbox(&item.sandbox_id)?.and_then(|sandbox| sandbox.principal);
                owners.insert(item.sandbox_id.clone(), owner);
            }
        }
        let owner_of = |item: &KeptItem| owners.get(&item.sandbox_id).cloned().flatten();
        let mut totals: HashMap<Option<String>, u64> = HashMap::new();
        for item in kept.iter() {
            *totals.entry(owner_of(item)).or_default() += item.bytes;
        }
        // Stable: of one owner the order stays, oldest first.
        kept.sort_by_cached_key(|item| {
            let owner = owner_of(item);
            (std::cmp::Reverse(totals.get(&owner).copied().unwrap_or(0)), owner)
        });
        Ok(())
    }

    /// Whether an item lies on a filesystem that is short of room: elsewhere, removing it would help nobody.
    fn is_short(&self, item: &KeptItem, homes: &mut HashMap<SandboxId, Vec<PathBuf>>) -> Result<bool> {
        if !homes.contains_key(&item.sandbox_id) {
            let sandbox = self.store.sandbox(&item.sandbox_id)?;
            let workspaces = sandbox.map(|sandbox| sandbox.workspaces).unwrap_or_default();
            let places = workspaces.iter().filter_map(home_of).map(Path::to_path_buf).collect();
            homes.insert(item.sandbox_id.clone(), places);
        }
        let mut places = homes.get(&item.sandbox_id).into_iter().flatten();
        Ok(places.any(|place| {
            let (free, floor) = self.room(place);
            free < floor
        }))
    }

    fn kept_bytes(&self) -> Result<u64> {
        Ok(bytes_of(self.store.kept()?.iter()))
    }

    /// Does nothing where somebody is at work in that sandbox, or where the item may not go any more.
    fn remove_kept(&self, item: &KeptItem, held: Option<&SandboxId>, why: &str) -> Result<()> {
        let id = &item.sandbox_id;
        if held == Some(id) {
            return self.remove_locked(item, why);
        }
        let Some(_lock) = self.try_lock(id)? else { return Ok(()) };
        // Only here: what the holder of `held` has begun is still under way.
        self.recover_operations(id)?;
        let removed = self.remove_locked(item, why);
        self.drop_dir_of_closed(id);
        removed
    }

    /// Removes an item of a sandbox whose lock is held.
    fn remove_locked(&self, item: &KeptItem, why: &str) -> Result<()> {
        let Some(sandbox) = self.still_removable(item)? else { return Ok(()) };
        let told = describe(item, &sandbox);
        let summary = format!("removed {told} to keep within `{why}`");
        let operation = new_operation(
            &sandbox.id,
            "drop",
            json!({"kind": item.kind, "item": item.item, "bytes": item.bytes, "why": why}),
        );
        self.store.begin(&operation)?;
        self.remove_content(item, &sandbox).map_err(|error| self.log_failure(&operation, error))?;
        let details = operation.details.clone();
        self.store.end(&crate::store::OperationEnd {
            id: operation.id,
            state: "done",
            summary: summary.clone(),
            details,
        })?;
        (self.parts.on_removal)(&summary);
        Ok(())
    }

    /// The sandbox of an item that is still kept and still may go. Until its lock was taken, somebody may have taken it
    /// up again, pinned it or removed it.
    fn still_removable(&self, item: &KeptItem) -> Result<Option<Sandbox>> {
        let is_it =
            |k: &KeptItem| (&k.sandbox_id, &k.kind, &k.item) == (&item.sandbox_id, &item.kind, &item.item);
        if !self.store.kept()?.iter().any(|k| is_it(k) && !k.pinned) {
            return Ok(None);
        }
        let goes_whole = [PARKED, HISTORY].contains(&item.kind.as_str());
        let may_go = |sandbox: &Sandbox| match goes_whole {
            true => sandbox.state == SandboxState::Parked,
            false => sandbox.state == SandboxState::Parked || sandbox.state.is_open(),
        };
        Ok(self.store.sandbox(&item.sandbox_id)?.filter(may_go))
    }

    fn remove_content(&self, item: &KeptItem, sandbox: &Sandbox) -> Result<()> {
        match item.kind.as_str() {
            PARKED | HISTORY => return self.destroy_locked(sandbox),
            "checkpoint" => {
                return self.drop_checkpoint(sandbox, &CheckpointId::from_string(item.item.as_str()));
            }
            _ => self.drop_part(&sandbox.workspaces, &Part::Undo(OpId::from_string(item.item.as_str())))?,
        }
        self.store.forget(&sandbox.id, &item.kind, &item.item)
    }

    fn drop_checkpoint(&self, sandbox: &Sandbox, id: &CheckpointId) -> Result<()> {
        self.store.remove_checkpoints(&sandbox.id, std::slice::from_ref(id))?;
        self.drop_part(&sandbox.workspaces, &Part::Checkpoint(id.clone()))?;
        self.store.forget(&sandbox.id, "checkpoint", id.as_str())?;
        self.settle_checkpoints(sandbox).map(drop)
    }

    /// Measures the checkpoints of a sandbox and writes down what each takes, so that together it is what is on disk:
    /// content that several share is freed with the last of them. The newest takes what the others leave; returns that.
    pub(super) fn settle_checkpoints(&self, sandbox: &Sandbox) -> Result<u64> {
        let mut left: u64 = checkpoint_places(sandbox).iter().map(|path| disk_use(path)).sum();
        let mut kept = self.store.kept()?;
        kept.retain(|item| item.kind == "checkpoint" && item.sandbox_id == sandbox.id);
        let Some(newest) = kept.pop() else { return Ok(0) };
        for older in kept {
            let bytes = older.bytes.min(left);
            self.record_size(&older, bytes)?;
            left -= bytes;
        }
        self.record_size(&newest, left).map(|()| left)
    }

    fn record_size(&self, item: &KeptItem, bytes: u64) -> Result<()> {
        match item.bytes == bytes {
            true => Ok(()),
            false => self.store.keep(&item.sandbox_id, &item.kind, &item.item, bytes),
        }
    }

    /// Has the strategies that can remove a part of their workspaces do so.
    pub(super) fn drop_part(&self, workspaces: &[Workspace], part: &Part) -> Result<()> {
        for workspace in workspaces {
            if self.capabilities_of(workspace).is_ok_and(|can| can.parts) {
                self.strategy_of(workspace)?.cleanup(&workspace.sandbox_ref.clone().for_part(part))?;
            }
        }
        Ok(())
    }

    /// Whether a new checkpoint fits once others have gone for it. Where it cannot, none go; parked work never does.
    fn makes_room_for(&self, target: &Target, id: &CheckpointId) -> Result<bool> {
        let (sandbox_id, max_size) = (&target.sandbox.id, self.parts.settings.max_size);
        let is_new = |item: &KeptItem| {
            item.kind == "checkpoint" && item.item == id.as_str() && item.sandbox_id == *sandbox_id
        };
        let stays = |item: &&KeptItem| item.pinned || is_work(item) || is_new(item);
        if bytes_of(self.store.kept()?.iter().filter(stays)) > max_size {
            return Ok(false);
        }
        self.prune(Some(sandbox_id), &|item| is_work(item) || is_new(item))?;
        Ok(self.kept_bytes()? <= max_size)
    }

    /// Puts a new checkpoint on record; one that does not fit is taken back.
    pub(super) fn account_checkpoint(&self, target: &Target, id: &CheckpointId) -> Result<()> {
        let sandbox = &target.sandbox;
        self.store.keep(&sandbox.id, "checkpoint", id.as_str(), 0)?;
        let bytes = self.settle_checkpoints(sandbox)?;
        if self.makes_room_for(target, id)? {
            return Ok(());
        }
        self.drop_checkpoint(sandbox, id)?;
        Err(Error::Refused {
            reason: format!(
                "the checkpoint takes {bytes} bytes, which do not fit into `state.max_size` ({} bytes) beside what is pinned or parked",
                self.parts.settings.max_size
            ),
            hint: Some("see what is kept: `sandbox usage --disk`".to_owned()),
        })
    }
}

/// Where a sandbox's checkpoints are kept, as far as that is a place of their own.
fn checkpoint_places(sandbox: &Sandbox) -> Vec<PathBuf> {
    sandbox.workspaces.iter().filter_map(home_of).map(|home| home.join("checkpoints")).collect()
}

fn bytes_of<'a>(items: impl Iterator<Item = &'a KeptItem>) -> u64 {
    items.map(|item| item.bytes).sum()
}

/// Whether an item is the only copy of somebody's work.
fn is_work(item: &KeptItem) -> bool {
    item.kind == PARKED
}

/// What does not fit beside that which goes last or not at all has to go whatever else does: first, so that nothing goes
/// in vain.
fn put_hopeless_first(kept: &mut [KeptItem], max_size: u64) {
    let stays = |item: &KeptItem| item.pinned || is_work(item);
    let lasting = bytes_of(kept.iter().filter(|item| stays(item)));
    kept.sort_by_key(|item| stays(item) || item.bytes.saturating_add(lasting) <= max_size);
}

fn describe(item: &KeptItem, sandbox: &Sandbox) -> String {
    match item.kind.as_str() {
        "undo" => format!("what takes back {} of sandbox {} ({} bytes)", item.item, sandbox.name, item.bytes),
        "checkpoint" => {
            format!("checkpoint {} of sandbox {} ({} bytes)", item.item, sandbox.name, item.bytes)
        }
        HISTORY => format!("what takes back the commits of sandbox {} ({} bytes)", sandbox.name, item.bytes),
        _ => format!("the parked work of sandbox {} ({} bytes)", sandbox.name, item.bytes),
    }
}

pub(super) fn measure(sandbox: &Sandbox) -> SandboxDisk {
    let mut disk = SandboxDisk {
        sandbox_id: sandbox.id.clone(),
        name: sandbox.name.clone(),
        state: sandbox.state,
        copies: 0,
        base: 0,
        checkpoints: 0,
        undo: 0,
        other: 0,
        total: 0,
    };
    let homes = sandbox.workspaces.iter().filter_map(home_of);
    for entry in homes.filter_map(|home| fs::read_dir(home).ok()).flatten().flatten() {
        let bytes = disk_use(&entry.path());
        disk.total += bytes;
        match entry.file_name().to_string_lossy().as_ref() {
            "tree" | "tree.parked" | "fresh" => disk.copies += bytes,
            "base.manifest" | "base.pack" => disk.base += bytes,
            "checkpoints" => disk.checkpoints += bytes,
            "undo" => disk.undo += bytes,
            _ => disk.other += bytes,
        }
    }
    disk
}

/// What a file or a tree takes on disk; a file with several names is counted once. What cannot be looked at counts nothing.
pub(super) fn disk_use(path: &Path) -> u64 {
    let (mut total, mut seen, mut waiting) = (0, HashSet::new(), vec![path.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        let Ok(found) = path.symlink_metadata() else { continue };
        if found.nlink() > 1 && !found.is_dir() && !seen.insert((found.dev(), found.ino())) {
            continue;
        }
        total += found.blocks() * 512;
        if found.is_dir() {
            waiting.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    total
}
