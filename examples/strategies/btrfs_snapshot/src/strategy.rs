//! The nine methods.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sandboxer_core::contract::{Capabilities, SandboxStrategy};
use sandboxer_core::model::{
    Change, CheckpointId, CommitRequest, CommitResult, DiffView, PlanId, RelPath, Resource, RollbackResult,
    SandboxRef,
};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::{self, CommitFiles};
use sandboxer_fs::filter::{Filter, Patterns};
use sandboxer_fs::root::Root;
use sandboxer_fs::space::Space;
use serde_json::json;

use crate::command::{Access, Btrfs, RUN, is_on_btrfs, is_subvolume};
use crate::places::Places;
use crate::prune::prune;
use crate::space::SnapshotSpace;

/// Isolates subvolumes by snapshots.
pub struct SnapshotStrategy {
    name: String,
    btrfs: Btrfs,
}

/// What it can do.
pub fn capabilities() -> Capabilities {
    Capabilities {
        file_tree: true,
        faithful: true,
        select_paths: true,
        checkpoints: true,
        ranges: true,
        resource_types: ["fs-directory", "fs-mount"].map(str::to_owned).to_vec(),
        ..Capabilities::default()
    }
}

impl SnapshotStrategy {
    pub fn new(name: &str, btrfs: Btrfs) -> Self {
        Self { name: name.to_owned(), btrfs }
    }

    fn open(&self, sandbox: &SandboxRef) -> Result<SnapshotSpace> {
        SnapshotSpace::open(sandbox, &self.btrfs)
    }

    fn places(&self, sandbox: &SandboxRef) -> Result<Places> {
        Places::of(sandbox, &self.btrfs)
    }

    fn require_subvolume(&self, path: &Path) -> Result<()> {
        path.symlink_metadata().map_err(|e| Error::io("examine", path, e))?;
        if !is_on_btrfs(path) {
            return self.unavailable(path, "it is not on a btrfs filesystem");
        }
        if is_subvolume(path) {
            return Ok(());
        }
        let shown = path.display();
        let how = format!("make one with `btrfs subvolume create {shown}.new`, and move the content there");
        self.unavailable(path, &format!("it is a directory and no subvolume; {how}"))
    }

    fn unavailable<T>(&self, path: &Path, reason: &str) -> Result<T> {
        let (strategy, path) = (self.name.clone(), path.to_path_buf());
        Err(Error::Unavailable { strategy, path, reason: reason.to_owned() })
    }

    /// Snapshots of `original`: first the base, then the tree of that, so that nothing can come in between.
    fn make(&self, original: &Path, places: &Places, patterns: &Patterns) -> Result<()> {
        self.btrfs.snapshot(original, &places.base(), Access::Writable)?;
        if *patterns != Patterns::default() {
            prune(&Root::open(places.base())?, &Filter::new(patterns)?)?;
        }
        self.btrfs.snapshot(&places.base(), &places.tree(), Access::Writable)
    }

    /// The tree as it is in the snapshot at `source`.
    fn go_back(&self, sandbox: &SandboxRef, source: &Path) -> Result<RollbackResult> {
        let restored_files = self.open(sandbox)?.differences_from(source)?.entries.len() as u64;
        let places = self.places(sandbox)?;
        places.put(source, &places.tree())?;
        let message = format!("{restored_files} changed back");
        Ok(RollbackResult { success: true, checkpoint_id: None, restored_files, message })
    }
}

impl SandboxStrategy for SnapshotStrategy {
    fn create(&self, plan_id: &PlanId, resource: &Resource) -> Result<SandboxRef> {
        let original = resource.require_path()?;
        self.require_subvolume(original)?;
        let Some(scratch) = resource.properties.get("scratch").and_then(|value| value.as_str()) else {
            return Err(Error::usage("the host gave no scratch directory"));
        };
        let sandbox = SandboxRef::new(plan_id.clone(), resource.id.clone(), &*self.name)
            .with("scratch", scratch)
            .with_path("original", original);
        let places = self.places(&sandbox)?;
        if !is_on_btrfs(&places.home) {
            let reason = format!("snapshots stay on their filesystem, and {scratch} is on another one");
            return self.unavailable(original, &reason);
        }
        let patterns = Patterns {
            include: resource.string_list("include"),
            exclude: resource.string_list("exclude"),
            ..Patterns::default()
        };
        match self.make(original, &places, &patterns) {
            Err(Error::Io { step: RUN, source, .. }) if source.kind() == ErrorKind::NotFound => {
                let how = "install btrfs-progs, or say where it is with the option `btrfs`";
                return self.unavailable(original, &format!("the command `btrfs` is not there; {how}"));
            }
            made => made?,
        }
        let sandbox = sandbox.with_path("path", &places.tree()).with_path("base", &places.base());
        Ok(sandbox.with("patterns", json!(patterns)))
    }

    fn read(&self, sandbox: &SandboxRef, path: &RelPath) -> Result<Vec<u8>> {
        self.open(sandbox)?.read_within(path, sandbox.range()?)
    }

    fn write(&self, sandbox: &SandboxRef, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.open(sandbox)?.write(path, content)
    }

    fn diff(&self, sandbox: &SandboxRef) -> Result<DiffView> {
        self.open(sandbox)?.differences_from(&self.places(sandbox)?.base())
    }

    fn commit(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        self.open(sandbox)?.commit(request)
    }

    fn rollback(&self, sandbox: &SandboxRef) -> Result<RollbackResult> {
        self.go_back(sandbox, &self.places(sandbox)?.base())
    }

    fn checkpoint(&self, sandbox: &SandboxRef, checkpoint_id: &CheckpointId) -> Result<Option<PathBuf>> {
        self.places(sandbox)?.keep(checkpoint_id).map(Some)
    }

    fn restore_checkpoint(
        &self,
        sandbox: &SandboxRef,
        checkpoint_id: &CheckpointId,
    ) -> Result<RollbackResult> {
        let kept = self.places(sandbox)?.checkpoint(checkpoint_id);
        if !is_subvolume(&kept) {
            return Err(Error::not_found("checkpoint", checkpoint_id.as_str()));
        }
        let restored = self.go_back(sandbox, &kept)?;
        Ok(RollbackResult { checkpoint_id: Some(checkpoint_id.clone()), ..restored })
    }

    fn cleanup(&self, sandbox: &SandboxRef) -> Result<()> {
        let places = self.places(sandbox)?;
        if !places.home.exists() {
            return Ok(());
        }
        // A decided commit is finished as the sandbox is opened; what was only prepared goes, its stage in the original included.
        if let Err(error) = self.open(sandbox).and_then(|space| space.abort()) {
            eprintln!("{error}");
            commit::forget(&CommitFiles::new(&places.home))?;
        }
        places.delete_all()
    }
}
