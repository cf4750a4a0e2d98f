//! What is written down of an overlay's base: the paths whose base is not simply what the original has.
//!
//! Another process may add to it, to keep what this sandbox sees while it commits. So nobody writes back what was read long ago: an
//! update reads, changes and writes under a lock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::manifest::{Edits, Entry};
use crate::sealed;
use crate::stamp::Stamp;

const MAGIC: &[u8; 8] = b"SBXRCRD\x01";

const REPLACED: &[u8; 8] = b"SBXRPLC\x01";

/// What is written down, by path; `None` says that nothing is there.
pub type Recorded = BTreeMap<RelPath, Option<Entry>>;

/// By what an entry that was replaced is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Replaced {
    /// Its inode number.
    pub ino: u64,
    /// Its last modification.
    pub mtime: i64,
    /// Its size.
    pub size: u64,
}

impl From<Stamp> for Replaced {
    fn from(stamp: Stamp) -> Self {
        Self { ino: stamp.ino, mtime: stamp.mtime, size: stamp.size }
    }
}

/// The records of one workspace.
#[derive(Clone, Debug)]
pub struct Records {
    path: PathBuf,
}

/// What the records say of a path.
#[derive(Debug, PartialEq)]
pub enum Says<'a> {
    /// This is there, or nothing.
    Here(&'a Option<Entry>),
    /// Nothing can be there: a directory above it is not.
    Nothing,
    /// They do not say.
    Silent,
}

impl Records {
    /// Those of the workspace at `home`.
    pub fn new(home: &Path) -> Self {
        Self { path: home.join("base.records") }
    }

    /// All of them.
    pub fn load(&self) -> Result<Recorded> {
        Ok(sealed::load(MAGIC, &self.path)?.unwrap_or_default())
    }

    /// Adds to them, durably.
    pub fn update(&self, edits: Edits) -> Result<()> {
        if edits.is_empty() {
            return Ok(());
        }
        let _held = self.lock()?;
        let mut all = self.load()?;
        all.extend(edits.into_iter().map(|(path, entry)| (path, entry.map(|e| Entry { child: None, ..e }))));
        sealed::store(MAGIC, &all, &self.path)
    }

    /// What the original had, and this workspace's commits have replaced: what was copied up from it still looks like it.
    pub fn replaced(&self) -> Result<BTreeSet<Replaced>> {
        Ok(sealed::load(REPLACED, &self.replaced_place())?.unwrap_or_default())
    }

    /// Adds to that.
    pub fn add_replaced(&self, replaced: BTreeSet<Replaced>) -> Result<()> {
        let _held = self.lock()?;
        let mut all = self.replaced()?;
        let known = all.len();
        all.extend(replaced);
        if all.len() > known { sealed::store(REPLACED, &all, &self.replaced_place()) } else { Ok(()) }
    }

    fn replaced_place(&self) -> PathBuf {
        self.path.with_extension("replaced-files")
    }

    /// Has these and no others from now on, durably.
    pub fn replace(&self, edits: Edits) -> Result<()> {
        let _held = self.lock()?;
        let all: Recorded = edits
            .into_iter()
            .map(|(path, entry)| (path, entry.map(|e| Entry { child: None, ..e })))
            .collect();
        sealed::store(MAGIC, &all, &self.path)
    }

    /// Forgets all of them.
    pub fn clear(&self) -> Result<()> {
        let _held = self.lock()?;
        crate::durable::remove(&self.replaced_place())?;
        crate::durable::remove(&self.path)
    }

    fn lock(&self) -> Result<File> {
        let home = self.path.parent().unwrap_or(&self.path);
        let place = home.join("base.lock");
        let file = File::options().create(true).append(true).open(&place);
        let file = file.map_err(|e| Error::io("open", &place, e))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| Error::io("lock", &place, e))?;
        Ok(file)
    }
}

/// What `recorded` says of `path`.
pub fn says<'a>(recorded: &'a Recorded, path: &RelPath) -> Says<'a> {
    if let Some(entry) = recorded.get(path) {
        return Says::Here(entry);
    }
    let is_dir = |e: &Entry| e.node_type() == sandboxer_core::model::NodeType::Directory;
    let above = std::iter::successors(path.parent(), RelPath::parent).find_map(|p| recorded.get(&p));
    match above {
        Some(entry) if !entry.as_ref().is_some_and(is_dir) => Says::Nothing,
        _ => Says::Silent,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rel(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn entry(mode: u32) -> Option<Entry> {
        Some(Entry { base: Some(Stamp { mode, ..Stamp::default() }), ..Entry::default() })
    }

    #[test]
    fn updates_add_up_and_survive() {
        let temp = tempfile::tempdir().unwrap();
        let records = Records::new(temp.path());
        assert!(records.load().unwrap().is_empty());
        records.update(Edits::from([(rel("a"), entry(0o100_644)), (rel("b"), None)])).unwrap();
        records.update(Edits::from([(rel("a"), None)])).unwrap();
        let all = Records::new(temp.path()).load().unwrap();
        assert_eq!(all, Recorded::from([(rel("a"), None), (rel("b"), None)]));
        std::fs::write(temp.path().join("base.records"), "junk").unwrap();
        assert!(matches!(records.load(), Err(Error::Corrupt { .. })));
        records.clear().unwrap();
        assert!(records.load().unwrap().is_empty());
    }

    #[test]
    fn updates_from_several_threads_are_all_kept() {
        let temp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let records = Records::new(temp.path());
                scope.spawn(move || {
                    for n in 0..10 {
                        records.update(Edits::from([(rel(&format!("{thread}-{n}")), None)])).unwrap();
                    }
                });
            }
        });
        assert_eq!(Records::new(temp.path()).load().unwrap().len(), 40);
    }

    #[test]
    fn what_was_replaced_adds_up() {
        let temp = tempfile::tempdir().unwrap();
        let records = Records::new(temp.path());
        let [one, two, three] = [1, 2, 3].map(|ino| Replaced { ino, mtime: 0, size: 0 });
        records.add_replaced(BTreeSet::from([one, two])).unwrap();
        records.add_replaced(BTreeSet::from([two, three])).unwrap();
        assert_eq!(records.replaced().unwrap(), BTreeSet::from([one, two, three]));
        records.clear().unwrap();
        assert!(records.replaced().unwrap().is_empty());
    }

    #[test]
    fn what_lies_below_nothing_is_nothing() {
        let all = Recorded::from([
            (rel("gone"), None),
            (rel("dir"), entry(0o040_755)),
            (rel("file"), entry(0o100_644)),
        ]);
        assert_eq!(says(&all, &rel("gone")), Says::Here(&None));
        assert_eq!(says(&all, &rel("gone/x/y")), Says::Nothing);
        assert_eq!(says(&all, &rel("file/x")), Says::Nothing);
        assert_eq!(says(&all, &rel("dir/x")), Says::Silent);
        assert_eq!(says(&all, &rel("other")), Says::Silent);
    }
}
