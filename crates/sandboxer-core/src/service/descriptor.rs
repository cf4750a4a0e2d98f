//! `sandboxes/<id>/sandbox.json`: the sandbox as it was made, beside its lock, so that losing the database loses no
//! work. Written whole: a new file, synced, renamed into place, the directory synced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CheckpointRecord, Sandbox};
use crate::{Error, Result};

/// What `adopt` needs of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Descriptor {
    #[serde(flatten)]
    pub sandbox: Sandbox,
    #[serde(default)]
    pub checkpoints: Vec<CheckpointRecord>,
}

impl Descriptor {
    /// Replaces the descriptor in a sandbox's directory. Durable when it returns.
    pub fn write(&self, directory: &Path) -> Result<()> {
        self.write_with(directory, write_synced)?;
        sync_directory(directory)
    }

    /// The same, but not durable before [`flush_new`].
    pub fn write_unflushed(&self, directory: &Path) -> Result<()> {
        self.write_with(directory, |path, json| fs::write(path, json))
    }

    fn write_with(
        &self,
        directory: &Path,
        write: impl Fn(&Path, &[u8]) -> std::io::Result<()>,
    ) -> Result<()> {
        let (path, new) = (path_in(directory), directory.join("sandbox.json.new"));
        let json = serde_json::to_vec_pretty(self).map_err(|error| Error::io("encode", &path, error))?;
        let written = write(&new, &json).map_err(|error| Error::io("write", &new, error));
        let rename = || fs::rename(&new, &path).map_err(|error| Error::io("rename into place", &path, error));
        // What failed leaves nothing behind.
        written.and_then(|()| rename()).inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// The descriptor in a sandbox's directory; `None` where there is none.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = path_in(directory);
        match fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(&path, e.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", path, error)),
        }
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("sandbox.json")
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the descriptor of a new sandbox durable, with the directory that it is in.
pub(super) fn flush_new(directory: &Path) -> Result<()> {
    sync_directory(&path_in(directory))?;
    sync_directory(directory)?;
    directory.parent().map_or(Ok(()), sync_directory)
}

/// Flushes a directory, or a file.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::io("sync", path, error))
}
