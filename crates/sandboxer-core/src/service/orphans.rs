//! Directories that no sandbox owns: what a killed create left, or a destroy that could not finish.
//!
//! Strategies keep workspaces in `ws_*` directories under scratch roots: `scratch` in the state directory, and the ones
//! listed in `scratch-roots`. Each holds an `owner.json` that says whose it is, and is locked while it is being made.
//! A directory is an orphan only if it is ours, nobody holds its lock, and neither the store nor a descriptor on disk
//! names it. Descriptors count because the store may have been lost: uncommitted work is not garbage, it waits for
//! `adopt`.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use serde::Deserialize;

use super::descriptor::Descriptor;
use super::lock::SandboxLock;
use super::manager::{SandboxManager, explain};
use super::{GcReport, Sandbox, SandboxState};
use crate::model::SandboxId;
use crate::{Error, Result};

/// A directory without an owner, in a scratch root that others may share, is left alone for this long.
const GRACE: Duration = Duration::from_secs(60 * 60);

/// Who a workspace directory belongs to.
#[derive(Deserialize)]
struct Owner {
    plan_id: String,
    resource_id: String,
    home: PathBuf,
}

/// What is in use, as the store and the descriptors say.
struct InUse {
    directories: HashSet<PathBuf>,
    inodes: HashSet<(u64, u64)>,
    /// Plan and resource of workspaces that are being made at the moment: their directories are in no ref yet.
    in_the_making: HashSet<(String, String)>,
}

impl SandboxManager {
    /// Removes orphans into `report`. `recovering` is the sandbox whose lock the caller holds and whose half-made
    /// workspaces are therefore nobody's.
    pub(super) fn remove_orphans(
        &self,
        recovering: Option<&SandboxId>,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<()> {
        // The directories are listed before the store is read: whatever is listed had its row by then.
        let own_scratch = self.parts.home.join("scratch");
        let mut candidates = Vec::new();
        for root in self.scratch_roots()? {
            match subdirectories(&root, "ws_") {
                Ok(found) => candidates.extend(found),
                Err(error) => report.failed.push(explain(&error)),
            }
        }
        let sandboxes = subdirectories(&self.sandboxes_dir(), "sbx_")?;
        let in_use = self.in_use(recovering)?;
        for path in candidates {
            let exclusive = path.parent() == Some(&own_scratch);
            self.remove_if_orphan(&path, exclusive, &in_use, dry_run, report);
        }
        for path in sandboxes {
            self.remove_if_ownerless(&path, dry_run, report)?;
        }
        Ok(())
    }

    /// The directories in which a workspace was being made when its maker was killed.
    pub(super) fn half_made(&self, sandbox: &Sandbox, workspace: &super::Workspace) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for root in self.scratch_roots()? {
            found.extend(subdirectories(&root, "ws_")?);
        }
        found.retain(|path| {
            read_owner(path).is_some_and(|owner| {
                owner.plan_id == sandbox.plan_id.as_str()
                    && owner.resource_id == workspace.resource.id.as_str()
                    && is_same_directory(&owner.home, &self.parts.home)
            })
        });
        Ok(found)
    }

    fn scratch_roots(&self) -> Result<Vec<PathBuf>> {
        let list = self.parts.home.join("scratch-roots");
        let mut roots = vec![self.parts.home.join("scratch")];
        match fs::read_to_string(&list) {
            Ok(text) => roots.extend(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", list, error)),
        }
        let mut seen = HashSet::new();
        roots.retain(|root| seen.insert(root.clone()));
        Ok(roots)
    }

    fn in_use(&self, recovering: Option<&SandboxId>) -> Result<InUse> {
        let mut in_use =
            InUse { directories: HashSet::new(), inodes: HashSet::new(), in_the_making: HashSet::new() };
        for sandbox in self.store.present()? {
            in_use.add(&sandbox);
            let is_whole = sandbox.state.is_open() || sandbox.state == SandboxState::Parked;
            if !is_whole && recovering != Some(&sandbox.id) {
                let of = |w: &super::Workspace| (sandbox.plan_id.to_string(), w.resource.id.to_string());
                in_use.in_the_making.extend(sandbox.workspaces.iter().map(of));
            }
        }
        for directory in subdirectories(&self.sandboxes_dir(), "sbx_")? {
            if self.store.sandbox(&id_of(&directory))?.is_none() {
                // A damaged descriptor is an error: what it named may be somebody's work, so a person has to look.
                Descriptor::read(&directory)?.iter().for_each(|found| in_use.add(&found.sandbox));
            }
        }
        Ok(in_use)
    }

    fn remove_if_orphan(
        &self,
        path: &Path,
        exclusive: bool,
        in_use: &InUse,
        dry_run: bool,
        report: &mut GcReport,
    ) {
        let Some(directory) = open_directory(path) else { return };
        if in_use.has(path, &directory) || !self.is_abandoned(path, &directory, exclusive, in_use) {
            return;
        }
        // Held to the end of the removal, so that nobody else removes it at the same time.
        if directory.try_lock().is_ok() {
            self.remove_into(path, dry_run, report);
        }
    }

    fn is_abandoned(&self, path: &Path, directory: &File, exclusive: bool, in_use: &InUse) -> bool {
        match read_owner(path) {
            Some(owner) if !is_same_directory(&owner.home, &self.parts.home) => false,
            Some(owner) => !in_use.in_the_making.contains(&(owner.plan_id, owner.resource_id)),
            // In our own scratch, with nothing in the making, it can be nobody's.
            None if exclusive => in_use.in_the_making.is_empty(),
            None => is_older_than_grace(directory),
        }
    }

    /// A sandbox's directory without a row and without a descriptor is what a create or destroy of a lost database left.
    fn remove_if_ownerless(&self, path: &Path, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let known = self.store.sandbox(&id_of(path))?.is_some_and(|sandbox| !sandbox.state.is_gone());
        if known || path.join("sandbox.json").exists() {
            return Ok(());
        }
        if let Ok(Some(_lock)) = SandboxLock::try_acquire(path) {
            self.remove_into(path, dry_run, report);
        }
        Ok(())
    }

    fn remove_into(&self, path: &Path, dry_run: bool, report: &mut GcReport) {
        let removed = if dry_run { Ok(()) } else { self.remove_dir(path) };
        match removed {
            Ok(()) => report.removed.push(path.to_path_buf()),
            Err(error) => report.failed.push(explain(&error)),
        }
    }
}

impl InUse {
    fn add(&mut self, sandbox: &Sandbox) {
        for directory in sandbox.workspaces.iter().filter_map(|w| w.sandbox_ref.text("dir")) {
            // By inode as well: the state directory may be reached by another path today.
            if let Ok(found) = fs::metadata(directory) {
                self.inodes.insert((found.dev(), found.ino()));
            }
            self.directories.insert(PathBuf::from(directory));
        }
    }

    fn has(&self, path: &Path, directory: &File) -> bool {
        // What cannot be looked at is not touched.
        let Ok(found) = directory.metadata() else { return true };
        self.directories.contains(path) || self.inodes.contains(&(found.dev(), found.ino()))
    }
}

/// Directories in `parent` whose name begins like that; none where `parent` is missing.
pub(super) fn subdirectories(parent: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Error::io("list", parent, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("list", parent, error))?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn id_of(sandbox_dir: &Path) -> SandboxId {
    SandboxId::from_string(sandbox_dir.file_name().unwrap_or_default().to_string_lossy())
}

fn open_directory(path: &Path) -> Option<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

fn read_owner(path: &Path) -> Option<Owner> {
    serde_json::from_slice(&fs::read(path.join("owner.json")).ok()?).ok()
}

fn is_same_directory(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    one == other || identity(one).is_some_and(|id| identity(other) == Some(id))
}

fn is_older_than_grace(directory: &File) -> bool {
    let modified = directory.metadata().and_then(|found| found.modified());
    let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > GRACE)
}
