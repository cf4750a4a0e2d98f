//! The other overlays of a state directory, which a commit must not change under their users' eyes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::model::RelPath;
use sandboxer_core::registry::StrategyContext;
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::Journal;
use sandboxer_fs::overlay::preserve::Watcher;
use sandboxer_fs::overlay::space::OverlaySpec;
use sandboxer_fs::root::Root;
use sandboxer_fs::scratch;
use sandboxer_fs::space::Neighbours;
use sandboxer_fs::tree;
use sandboxer_keeper::Unmounted;

use super::mounts::{MountLock, Mounts};

/// All overlays of one state directory.
pub struct Watchers {
    home: PathBuf,
    mounts: Mounts,
}

impl Watchers {
    /// Those of the context's state directory.
    pub fn of(context: &StrategyContext) -> Arc<Self> {
        let mounts = Mounts::new(&context.home, context.program.as_deref());
        Arc::new(Self { home: context.home.clone(), mounts })
    }

    /// Those that look at `original`, but for the one that commits; nobody moves their layers meanwhile.
    fn looking_at(&self, original: &Path, committer: &Path) -> Result<Vec<(Watcher, MountLock)>> {
        let mut found = Vec::new();
        for home in workspaces(&self.home).into_iter().filter(|home| home != committer) {
            let Some(spec) = OverlaySpec::load(&home)? else { continue };
            let mut watcher = Watcher { home, spec, merged: None };
            if watcher.looks_at(original) {
                let lock = match Mounts::lock(&watcher.home) {
                    Err(_) if OverlaySpec::load(&watcher.home)?.is_none() => continue,
                    lock => lock?,
                };
                // One that went while we waited for it shows nothing to anybody.
                if OverlaySpec::load(&watcher.home)?.is_none() {
                    continue;
                }
                watcher.merged = self.mounts.reached(&watcher.home, &watcher.spec)?;
                found.push((watcher, lock));
            }
        }
        Ok(found)
    }

    /// The directories that other workspaces than the one at `committer` were made from.
    fn roots_of_others(&self, committer: &Path) -> Result<Vec<PathBuf>> {
        let mut roots = Vec::new();
        for home in workspaces(&self.home).into_iter().filter(|home| home != committer) {
            roots.extend(OverlaySpec::load(&home)?.map(|spec| spec.original));
            roots.extend(tree::Spec::load(&home)?.map(|spec| spec.original));
        }
        Ok(roots)
    }
}

impl Neighbours for Watchers {
    fn keep_old(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()> {
        if journal.removes_directories() {
            for root in self.roots_of_others(committer)? {
                refuse_to_remove_root(&root, original, journal)?;
            }
        }
        let watchers = self.looking_at(original.path(), committer)?;
        watchers.iter().try_for_each(|(watcher, _)| watcher.keep_old(original, journal))?;
        // An undo removes what the committer itself goes on showing.
        let is_own = journal.undoes.is_some() && OverlaySpec::load(committer)?.is_some();
        let is_mounted = is_own || watchers.iter().any(|(watcher, _)| watcher.merged.is_some());
        match journal.graves() {
            Some(graves) if is_mounted && journal.removes_directories() => {
                std::fs::create_dir_all(&graves).map_err(|e| Error::io("create directory", &graves, e))
            }
            _ => Ok(()),
        }
    }

    fn hide_new(&self, committer: &Path, original: &Root, journal: &Journal) -> Result<()> {
        let watchers = self.looking_at(original.path(), committer)?;
        for (watcher, _) in &watchers {
            watcher.hide_new(original, journal)?;
            self.mounts.renew(&watcher.home, &watcher.spec)?;
        }
        OverlaySpec::load(committer)?.map_or(Ok(()), |spec| self.mounts.renew(committer, &spec))
    }
}

/// A sandbox whose own root is gone could be neither read nor committed.
fn refuse_to_remove_root(root: &Path, original: &Root, journal: &Journal) -> Result<()> {
    let holds_root = |path: &RelPath| root.starts_with(original.path().join(path.as_path()));
    let gone = journal.steps.iter().find(|step| step.removes_directory() && holds_root(step.path()));
    gone.map_or(Ok(()), |step| {
        Err(Error::Refused {
            reason: format!(
                "{} cannot be removed or replaced: another sandbox was made from {}",
                step.path(),
                root.display()
            ),
            hint: Some("find it with `sandbox list`, and commit or destroy it first".to_owned()),
        })
    })
}

impl Watchers {
    /// Forgets directories that were removed from originals while overlays showed them, once no overlay is mounted any more.
    pub fn clear_graves(&self) -> Result<()> {
        let all = workspaces(&self.home);
        let places: BTreeSet<PathBuf> =
            all.iter().filter_map(|home| Some(home.parent()?.join("graves"))).collect();
        let own = scratch::in_state(&self.home).join("graves");
        let graves: Vec<PathBuf> = places.into_iter().chain([own]).filter(|place| place.exists()).collect();
        if graves.is_empty() {
            return Ok(());
        }
        for home in all {
            let spec = OverlaySpec::load(&home)?;
            if spec.is_some_and(|spec| !matches!(self.mounts.reached(&home, &spec), Ok(None))) {
                return Ok(());
            }
        }
        graves.iter().try_for_each(|place| sandboxer_fs::remove_tree(place))
    }
}

/// Every workspace directory of the state directory `home`.
pub fn workspaces(home: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_to_string(home.join("scratch-roots")).unwrap_or_default();
    let roots = [scratch::in_state(home)].into_iter().chain(list.lines().map(PathBuf::from));
    let inside = roots.flat_map(|root| std::fs::read_dir(root).into_iter().flatten().flatten());
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("ws_"));
    inside.map(|entry| entry.path()).filter(is_ours).collect()
}

/// Ends the keeper of the workspace at `home`, which belongs to the state directory `state`, unless it keeps another one too.
pub fn end_keeper(state: &Path, mounts: &Mounts, home: &Path, spec: &OverlaySpec) -> Result<()> {
    let Some(id) = &spec.keeper else { return Ok(()) };
    let has_it = |other: &PathBuf| {
        let spec = OverlaySpec::load(other).ok().flatten();
        other != home && spec.is_some_and(|spec| spec.keeper.as_ref() == Some(id))
    };
    match workspaces(state).iter().any(has_it) {
        true => Ok(()),
        false => mounts.keepers()?.end(id),
    }
}

/// Removes what is left of a workspace or any other tree of the state directory: an overlay is unmounted first, and a keeper
/// that keeps nothing else ended.
pub fn remove_workspace(path: &Path) -> Result<()> {
    if let Ok(Some(spec)) = OverlaySpec::load(path) {
        let lock = Mounts::lock(path)?;
        let state = keepers_home(path);
        let mounts = state.as_ref().map_or_else(|| Mounts::new(path, None), |state| Mounts::finding(state));
        if mounts.unmount(path, &spec, &lock)? == Unmounted::Busy {
            return Err(super::busy(path, &[]));
        }
        state.map_or(Ok(()), |state| end_keeper(&state, &mounts, path, &spec))?;
        OverlaySpec::remove(path)?;
    }
    sandboxer_fs::remove_tree(path)
}

/// The state directory that a workspace belongs to, as it says itself.
fn keepers_home(workspace: &Path) -> Option<PathBuf> {
    let owner: serde_json::Value =
        serde_json::from_slice(&std::fs::read(workspace.join("owner.json")).ok()?).ok()?;
    owner.get("home").and_then(|home| home.as_str()).map(PathBuf::from)
}
