//! Where a snapshot is kept.

use std::fs::File;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{CheckpointId, PlanId, Resource, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;
use sandboxer_fs::scratch::{self, NewWorkspace};
use sandboxer_sqlite::{
    Connection, Mode, Way, clone, clone_confined, companions, copy_content, exact_difference,
};

use crate::engine::encode;

/// One workspace.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub dir: PathBuf,
    /// The database that the clone is of.
    pub original: PathBuf,
    /// The clone, in a directory that has nothing else but what SQLite keeps beside it.
    pub clone: PathBuf,
    /// A directory that the database lies in, and whose workspace in the same sandbox leaves it out.
    pub within: Option<PathBuf>,
}

impl Place {
    /// Clones the resource, and says how.
    pub fn create(home: &Path, plan: &PlanId, resource: &Resource) -> Result<(Self, Way)> {
        let original = resource.require_path()?.to_path_buf();
        scratch::require(&original)?;
        let name =
            original.file_name().ok_or_else(|| Error::not_found("database", resource.location.clone()))?;
        let new = new_workspace(home, plan, resource, &original)?;
        let files = new.path().join("files");
        make_dir(&files)?;
        let within = resource.properties.get("within").and_then(|value| value.as_str()).map(PathBuf::from);
        let place = Self { dir: new.path().to_path_buf(), clone: files.join(name), original, within };
        let way = clone(&place.original, &place.clone)?;
        clone(&place.clone, &place.base())?;
        same_permissions(&place.original, &place.clone)?;
        durable::sync_dir(&files)?;
        durable::sync_dir(&place.dir)?;
        new.keep();
        Ok((place, way))
    }

    /// The workspace that a ref is of.
    pub fn of(sandbox: &SandboxRef) -> Result<Self> {
        let path = |key: &'static str| {
            let missing = || Error::corrupt(sandbox.resource_id.as_str(), format!("its ref has no {key}"));
            sandbox.text(key).map(PathBuf::from).ok_or_else(missing)
        };
        let within = sandbox.text("within").map(PathBuf::from);
        Ok(Self { dir: path("dir")?, original: path("original")?, clone: path("path")?, within })
    }

    /// The ref that leads here.
    pub fn written_to(&self, reference: SandboxRef) -> SandboxRef {
        let reference = match &self.within {
            Some(within) => reference.with_path("within", within),
            None => reference,
        };
        reference
            .with_path("path", &self.clone)
            .with_path("dir", &self.dir)
            .with_path("original", &self.original)
            .with_path("companions", self.clone.parent().unwrap_or(&self.dir))
    }

    /// What the clone was at first, or when it was last committed.
    pub fn base(&self) -> PathBuf {
        self.dir.join("base.db")
    }

    /// Where commits are made ready.
    pub fn commit(&self) -> PathBuf {
        self.dir.join("commit")
    }

    /// The clone as it was when a commit was prepared.
    pub fn frozen(&self) -> PathBuf {
        self.commit().join("clone.db")
    }

    /// What the base is to be, where not everything of the clone could be committed.
    pub fn next(&self) -> PathBuf {
        self.commit().join("base.db")
    }

    pub fn checkpoint(&self, id: &CheckpointId) -> PathBuf {
        self.dir.join("checkpoints").join(format!("{}.db", encode(id.as_str())))
    }

    /// Keeps the clone's present state; one of that name is replaced.
    pub fn take_checkpoint(&self, id: &CheckpointId) -> Result<PathBuf> {
        let path = self.checkpoint(id);
        let dir = self.dir.join("checkpoints");
        make_dir(&dir)?;
        let fresh = dir.join("new");
        remove_database(&fresh)?;
        clone_confined(&self.clone, &fresh)?;
        replace(&fresh, &path)?;
        Ok(path)
    }

    /// Makes the clone what `kept` is, for programs that have it open, too; how many rows and definitions differed.
    pub fn bring_back(&self, kept: &Path) -> Result<u64> {
        match self.bring_back_content(kept) {
            // The clone is no database any more, or one with other pages, or something was put in its place: nothing in it is
            // worth keeping.
            Err(Error::Corrupt { .. } | Error::Io { .. } | Error::Refused { .. }) => {
                self.bring_back_file(kept).map(|()| 1)
            }
            result => result,
        }
    }

    fn bring_back_content(&self, kept: &Path) -> Result<u64> {
        let difference = exact_difference(kept, &self.clone)?;
        let changes = difference.changes();
        let (from, to) =
            (Connection::open(kept, Mode::ReadWrite)?, Connection::open(&self.clone, Mode::Confined)?);
        copy_content(&from, &to)?;
        Ok((changes.rows.len() + changes.schema.len()) as u64)
    }

    fn bring_back_file(&self, kept: &Path) -> Result<()> {
        let fresh = self.dir.join("new.db");
        remove_database(&fresh)?;
        clone(kept, &fresh)?;
        same_permissions(&self.original, &fresh)?;
        make_dir(&self.dir.join("files"))?;
        // A directory, say, that a rename would not replace.
        for file in companions(&self.clone).iter().chain([&self.clone]) {
            sandboxer_fs::remove_tree(file)?;
        }
        replace(&fresh, &self.clone)
    }
}

/// On the original's filesystem, where that shares blocks; in the state directory, where not.
fn new_workspace(home: &Path, plan: &PlanId, resource: &Resource, original: &Path) -> Result<NewWorkspace> {
    let state = scratch::in_state(home);
    for root in scratch::on_filesystem_of(home, original, None) {
        let Ok(new) = NewWorkspace::create(home, &root, plan, resource) else { continue };
        if root == state || shares_blocks(new.path()) {
            return Ok(new);
        }
    }
    NewWorkspace::create(home, &state, plan, resource)
}

fn shares_blocks(dir: &Path) -> bool {
    let (one, other) = (dir.join("probe"), dir.join("probe-2"));
    let shared = || -> std::io::Result<()> {
        std::fs::write(&one, [0; 4096])?;
        rustix::fs::ioctl_ficlone(File::create(&other)?, File::open(&one)?)?;
        Ok(())
    };
    let shares = shared().is_ok();
    let removed = std::fs::remove_file(&one).and(std::fs::remove_file(&other));
    shares && removed.is_ok()
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| Error::io("create directory", dir, error))
}

fn same_permissions(from: &Path, to: &Path) -> Result<()> {
    let Ok(metadata) = std::fs::metadata(from) else { return Ok(()) };
    std::fs::set_permissions(to, metadata.permissions())
        .map_err(|error| Error::io("set permissions of", to, error))
}

/// Removes a database with what SQLite keeps beside it.
pub(super) fn remove_database(path: &Path) -> Result<()> {
    companions(path).iter().try_for_each(|beside| durable::remove(beside))?;
    durable::remove(path)
}

/// Puts one database in the place of another. What was kept beside that one goes first: SQLite would take it for the new one's.
pub(super) fn replace(fresh: &Path, path: &Path) -> Result<()> {
    for beside in companions(path).iter().chain(&companions(fresh)) {
        durable::remove(beside)?;
    }
    std::fs::rename(fresh, path).map_err(|error| Error::io("replace", path, error))?;
    path.parent().map_or(Ok(()), durable::sync_dir)
}

/// Makes `commit/` anew.
pub(super) fn fresh_dir(dir: &Path) -> Result<()> {
    sandboxer_fs::remove_tree(dir)?;
    make_dir(dir)
}
