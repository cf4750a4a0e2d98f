//! The journal of a commit: everything that is to be done, written down before any of it is.

use std::path::{Path, PathBuf};

use sandboxer_core::Result;
use sandboxer_core::model::{Conflict, DiffEntry, Notice, OpId, RelPath};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::diff::Delta;
use crate::manifest::Entry;
use crate::sealed;
use crate::stamp::Stamp;
use crate::xattrs::Xattrs;

const MAGIC: &[u8; 8] = b"SBXJRNL\x03";

/// A commit, ready to be made real.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// The directory with the new content, on the original's filesystem.
    pub stage: PathBuf,
    /// Digest of what is committed.
    pub digest: String,
    /// In the order in which they are done.
    pub steps: Vec<Step>,
    /// What is committed, for the result.
    #[serde(with = "as_json")]
    pub entries: Vec<DiffEntry>,
    /// What was altered on the way.
    pub notices: Vec<Notice>,
    /// What it is logged as. What it displaces is kept under that name, so that it can be taken back.
    pub operation: Option<OpId>,
    /// The operation that it takes back; what was kept for that goes when this is done.
    pub undoes: Option<OpId>,
    /// What the base said of each path before.
    pub before: Vec<(RelPath, Option<Entry>)>,
    /// Files of the copy that take what was committed, because it is a merge.
    pub settles: Vec<Settle>,
    /// Where the base is not what the steps put in place: an operation that is taken back had gone over something else.
    pub rebased: Vec<(RelPath, Option<Entry>)>,
}

/// Where the stage is in a workspace's own directory.
pub const STAGE: &str = "stage";

impl Journal {
    /// Where directories go that are removed from the original while an overlay shows them: a mount lists nothing of a directory that one of its
    /// layers has lost, not even what it has copied. The directory is there when somebody needs it. `None` where the stage
    /// is not beside the workspaces, and nothing can be moved there.
    pub fn graves(&self) -> Option<PathBuf> {
        let home = self.stage.parent().filter(|_| self.stage.ends_with(STAGE))?;
        Some(home.parent()?.join("graves"))
    }

    /// Whether directories are removed.
    pub fn removes_directories(&self) -> bool {
        self.steps.iter().any(Step::removes_directory)
    }
}

impl Step {
    /// Whether it removes a directory.
    pub fn removes_directory(&self) -> bool {
        matches!(self, Self::Delete { old, .. } if old.is_dir())
    }
}

/// A file of the copy that is to become what was committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settle {
    /// Where.
    pub path: RelPath,
    /// What it must be; what was written into it meanwhile is left alone.
    pub old: Stamp,
}

impl Settle {
    /// What a difference asks for, before anything is staged for it.
    pub fn of(delta: &Delta) -> Option<Self> {
        let old = delta.plan.copy.as_ref().filter(|_| delta.plan.settles)?.stamp;
        Some(Self { path: delta.entry.path.clone(), old })
    }
}

/// What a [`Step::Delete`] removes where nothing is left to remove, and only the base has to forget it.
pub const NOTHING: Stamp = Stamp {
    ino: 0,
    size: 0,
    mtime: 0,
    ctime: 0,
    btime: 0,
    mode: 0,
    uid: 0,
    gid: 0,
    nlink: 0,
    dev: 0,
    blocks: 0,
};

/// One thing to do. Each can be told apart from having been done, and doing it again is harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Remove the entry, if it is still `old`.
    Delete {
        /// Where.
        path: RelPath,
        /// What it must be.
        old: Stamp,
    },
    /// Put a staged entry in place of `old`, or where nothing was.
    Place {
        /// Where.
        path: RelPath,
        /// Its name in the stage.
        staged: String,
        /// What must be there; `None` for nothing.
        old: Option<Stamp>,
        /// What the staged entry is.
        new: Stamp,
        /// The base from now on; its `base` stamp is taken when it is in place.
        entry: Entry,
    },
    /// Give an entry that stays another mode, owner or attributes.
    Dress {
        /// Where.
        path: RelPath,
        /// What it must be, mode and owner aside.
        old: Stamp,
        /// What to give it.
        dress: Dress,
        /// The base from now on.
        entry: Entry,
    },
}

/// What an entry is given besides content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dress {
    /// Permission bits.
    pub mode: u32,
    /// Owner, if it is to change.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// Modification time: a new directory's, which filling it has changed.
    pub mtime: Option<i64>,
}

impl Step {
    /// Where it happens.
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Delete { path, .. } | Self::Place { path, .. } | Self::Dress { path, .. } => path,
        }
    }
}

/// Values that leave out what is empty, which only a self-describing format can read back.
pub(super) mod as_json {
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    pub fn serialize<T: Serialize, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(values).map_err(ser::Error::custom)?)
    }

    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// What carrying a journal out came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Steps that were not done because somebody had changed the entry.
    pub conflicts: Vec<Conflict>,
}

impl Journal {
    /// Writes the journal to `path`, durably and at once.
    pub fn publish(&self, path: &Path) -> Result<()> {
        store(self, path)
    }

    /// Reads the journal at `path`; `None` where there is none.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        load(path)
    }
}

/// Writes a value to `path`, durably and at once, with a checksum.
pub(super) fn store<T: Serialize>(value: &T, path: &Path) -> Result<()> {
    sealed::store(MAGIC, value, path)
}

/// Reads the value at `path`; `None` where there is none.
pub(super) fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    sealed::load(MAGIC, path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use sandboxer_core::Error;
    use sandboxer_core::model::DiffKind;

    #[test]
    fn comes_back_as_it_was_or_not_at_all() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("journal");
        assert_eq!(Journal::load(&path).unwrap(), None);
        let entry = RelPath::from_bytes(&b"odd\xff"[..]).unwrap();
        let journal = Journal {
            stage: "/stage".into(),
            digest: "blake3:0".into(),
            steps: vec![Step::Delete { path: entry.clone(), old: Stamp { ino: 3, ..Stamp::default() } }],
            entries: vec![DiffEntry::new(entry, DiffKind::Deleted)],
            ..Journal::default()
        };
        journal.publish(&path).unwrap();
        assert_eq!(Journal::load(&path).unwrap(), Some(journal));
        let good = std::fs::read(&path).unwrap();
        for bad in [&good[..good.len() - 1], &good[..12], &good[1..]] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(Journal::load(&path), Err(Error::Corrupt { .. })));
        }
    }
}
