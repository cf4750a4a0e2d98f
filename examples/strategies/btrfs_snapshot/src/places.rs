//! The snapshots of one sandbox, in the workspace directory that the host made for it.
//!
//! All that outlasts a call is writable: the host clears a workspace up by removing its files where this strategy cannot be
//! asked any more, and a read-only snapshot would stay for ever. What `btrfs send` needs is made for the moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandboxer_core::model::{CheckpointId, SandboxRef};
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;

use crate::command::{Access, Btrfs};

/// The places in one workspace.
#[derive(Clone, Debug)]
pub struct Places {
    pub home: PathBuf,
    pub btrfs: Btrfs,
}

impl Places {
    pub fn of(sandbox: &SandboxRef, btrfs: &Btrfs) -> Result<Self> {
        let scratch = sandbox.text("scratch").map(PathBuf::from);
        let home =
            scratch.ok_or_else(|| Error::corrupt(sandbox.resource_id.as_str(), "its ref has no scratch"))?;
        Ok(Self { home, btrfs: btrfs.clone() })
    }

    /// Where the work is done.
    pub fn tree(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// What it is compared with.
    pub fn base(&self) -> PathBuf {
        self.home.join("base")
    }

    /// What the base is once a commit is carried out.
    pub fn next_base(&self) -> PathBuf {
        self.home.join("base.next")
    }

    fn last_base(&self) -> PathBuf {
        self.home.join("base.last")
    }

    fn checkpoints(&self) -> PathBuf {
        self.home.join("checkpoints")
    }

    /// Where a checkpoint is kept.
    pub fn checkpoint(&self, id: &CheckpointId) -> PathBuf {
        self.checkpoints().join(encoded(id.as_str()))
    }

    /// Puts a writable snapshot of `source` at `place`, instead of what is there. Whoever looks finds the one or the other.
    pub fn put(&self, source: &Path, place: &Path) -> Result<()> {
        let fresh = place.with_extension("fresh");
        self.btrfs.delete(&fresh)?;
        self.btrfs.snapshot(source, &fresh, Access::Writable)?;
        let flags = if place.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        renameat_with(CWD, &fresh, CWD, place, flags).map_err(|e| Error::io("put in place", place, e))?;
        durable::sync_dir(&self.home)?;
        self.btrfs.delete(&fresh)
    }

    /// Keeps the tree as a checkpoint.
    pub fn keep(&self, id: &CheckpointId) -> Result<PathBuf> {
        let (dir, place) = (self.checkpoints(), self.checkpoint(id));
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        self.put(&self.tree(), &place)?;
        durable::sync_dir(&dir)?;
        Ok(place)
    }

    /// Makes the next base the base. Repeated after an interruption it goes on where it was, and does nothing where it was done.
    pub fn adopt_next_base(&self) -> Result<()> {
        let (base, next, last) = (self.base(), self.next_base(), self.last_base());
        if next.exists() {
            if base.exists() {
                self.btrfs.delete(&last)?;
                rename(&base, &last)?;
            }
            rename(&next, &base)?;
            durable::sync_dir(&self.home)?;
        }
        self.btrfs.delete(&last)
    }

    /// Removes what was made ready for a commit that did not come to be.
    pub fn forget_next_base(&self) -> Result<()> {
        self.btrfs.delete(&self.next_base())
    }

    /// Read-only snapshots of two states, for as long as the guard lives.
    pub fn freeze(&self, earlier: &Path, later: &Path) -> Result<Frozen<'_>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("frozen-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let frozen = Frozen { btrfs: &self.btrfs, dir: self.home.join(name) };
        frozen.discard()?;
        std::fs::create_dir(&frozen.dir).map_err(|e| Error::io("create directory", &frozen.dir, e))?;
        self.btrfs.snapshot(earlier, &frozen.earlier(), Access::ReadOnly)?;
        self.btrfs.snapshot(later, &frozen.later(), Access::ReadOnly)?;
        Ok(frozen)
    }

    /// Deletes every snapshot that is left. What else is there is the host's to remove.
    pub fn delete_all(&self) -> Result<()> {
        for dir in [self.home.clone(), self.checkpoints()].into_iter().chain(self.frozen()) {
            for place in listed(&dir)?.into_iter().filter(|path| crate::command::is_subvolume(path)) {
                self.btrfs.delete(&place)?;
            }
        }
        Ok(())
    }

    /// What a killed command left.
    fn frozen(&self) -> Vec<PathBuf> {
        let is_frozen =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("frozen-"));
        listed(&self.home).unwrap_or_default().into_iter().filter(is_frozen).collect()
    }
}

/// Two snapshots that nobody can change.
#[must_use = "the snapshots are deleted when this is dropped"]
pub struct Frozen<'a> {
    btrfs: &'a Btrfs,
    dir: PathBuf,
}

impl Frozen<'_> {
    pub fn earlier(&self) -> PathBuf {
        self.dir.join("earlier")
    }

    pub fn later(&self) -> PathBuf {
        self.dir.join("later")
    }

    fn discard(&self) -> Result<()> {
        self.btrfs.delete(&self.earlier())?;
        self.btrfs.delete(&self.later())?;
        sandboxer_fs::remove_tree(&self.dir)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // What cannot be deleted now goes with the sandbox.
        let _ = self.discard().inspect_err(|error| eprintln!("{error}"));
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| Error::io("rename into place", to, e))
}

fn listed(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| Error::io("list directory", dir, e))?,
    };
    let path = |entry: std::io::Result<std::fs::DirEntry>| Ok(entry?.path());
    entries.map(path).collect::<std::io::Result<_>>().map_err(|e| Error::io("list directory", dir, e))
}

/// A name as one that a directory can hold: what is no plain letter is a number.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_apart_and_in_their_directory() {
        assert_eq!(encoded("cp_1-a"), "cp_1-a");
        assert_eq!(encoded("../é"), "%2e%2e%2f%c3%a9");
        assert_ne!(encoded("a.b"), encoded("a%2eb"));
    }
}
