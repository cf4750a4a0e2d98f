//! The `.gitattributes` that count for a commit: those that it will have.
//!
//! They are read from what is staged, which was looked at, or from the commit that it comes after. What the sandbox has besides may be something that
//! nobody has chosen, and may be another file in the next moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::{Journal, Step};
use sandboxer_fs::content::read_all;
use sandboxer_fs::root::{Root, stamp_of_fd};
use sandboxer_git::attributes::AttributeFiles;
use sandboxer_git::ledger::Ledger;
use sandboxer_git::oid::Oid;

use super::knowledge::InBase;

/// Files as a commit under way will have them.
pub struct AsCommitted<'a> {
    stage: &'a std::path::Path,
    /// The names on the stage of what it puts in place; none for what it takes away.
    changed: BTreeMap<&'a RelPath, Option<&'a str>>,
    before: InBase,
    read: Mutex<HashMap<RelPath, Option<Vec<u8>>>>,
}

impl<'a> AsCommitted<'a> {
    /// What `journal` does to the files of `before`.
    pub fn of(journal: &'a Journal, ledger: &Ledger, before: Option<&Oid>) -> Self {
        let mut changed = BTreeMap::new();
        for step in &journal.steps {
            match step {
                Step::Delete { path, .. } => drop(changed.insert(path, None)),
                Step::Place { path, staged, .. } => drop(changed.insert(path, Some(staged.as_str()))),
                Step::Dress { .. } => {}
            }
        }
        let before = InBase::of(ledger, before);
        Self { stage: &journal.stage, changed, before, read: Mutex::default() }
    }

    fn look(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        match self.changed.get(path) {
            Some(Some(staged)) => self.staged(staged),
            Some(None) => Ok(None),
            None => self.before.content(path),
        }
    }

    /// Git does not follow a link there.
    fn staged(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let stage = Root::open(self.stage)?.as_dir()?;
        if !stage.stamp(name.as_bytes())?.is_some_and(|stamp| stamp.is_file()) {
            return Ok(None);
        }
        let fd = stage.open(name.as_bytes(), OFlags::RDONLY, 0, "open")?;
        let failed = |e: std::io::Error| Error::io("read", stage.shown(name.as_bytes()), e);
        let size = stamp_of_fd(&fd).map_err(|e| failed(e.into()))?.size;
        read_all(fd, size).map(Some).map_err(failed)
    }
}

impl AttributeFiles for AsCommitted<'_> {
    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(path) {
            return Ok(known.clone());
        }
        let found = self.look(path)?;
        read.insert(path.clone(), found.clone());
        Ok(found)
    }
}
