//! What a keeper writes down of a commit, so that others can tell what became of it when it is gone.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use sandboxer_core::model::CommitResult;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::engine::Prepared;

const FILE: &str = "record.json";

/// A commit that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The caller's name for it.
    pub operation: String,
    /// What the database is asked by.
    pub prepared: Prepared,
    /// What it does.
    pub result: CommitResult,
    /// Whether it is known to be real.
    pub committed: bool,
    /// Whether finishing was tried in vain, because there was nothing left to commit.
    #[serde(default)]
    pub vain: bool,
}

impl Record {
    /// The last commit that was begun in `dir`.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|e| Error::corrupt(&path, e.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", path, e)),
        }
    }

    /// The same, if it is that operation.
    pub fn of(dir: &Path, operation: &str) -> Result<Option<Self>> {
        Ok(Self::read(dir)?.filter(|record| record.operation == operation))
    }

    /// Writes it down for good.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let (path, new) = (dir.join(FILE), dir.join("record.new"));
        let text = serde_json::to_vec(self).map_err(|e| Error::corrupt(&path, e.to_string()))?;
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        let published =
            written.and_then(|()| fs::rename(&new, &path)).and_then(|()| File::open(dir)?.sync_all());
        published.map_err(|e| Error::io("write", path, e))
    }

    /// Forgets it.
    pub fn forget(dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_there_until_it_is_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(temp.path()).unwrap(), None);
        let record = Record {
            operation: "op_1".into(),
            prepared: Prepared::Durable(json!({"gid": "x"})),
            result: CommitResult { digest: "d".into(), ..CommitResult::default() },
            committed: false,
            vain: false,
        };
        record.write(temp.path()).unwrap();
        assert_eq!(Record::read(temp.path()).unwrap(), Some(record));
        Record::forget(temp.path()).unwrap();
        Record::forget(temp.path()).unwrap();
        assert_eq!(Record::read(temp.path()).unwrap(), None);
        std::fs::write(temp.path().join(FILE), "{").unwrap();
        assert!(matches!(Record::read(temp.path()), Err(Error::Corrupt { .. })));
    }
}
