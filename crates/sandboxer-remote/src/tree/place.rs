//! Where the tree is here.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::{Dir, Root};

use super::entry::parent;
use super::walk::{self, Tree};

/// The root that everything happens below, and the name of the one file in it if there is only one.
pub(super) struct Place {
    pub root: Root,
    pub single: Option<RelPath>,
}

impl Place {
    /// A directory is a tree; whatever else is there, or nothing, is a single file of its directory.
    pub fn open(local: &Path) -> Result<Self> {
        if local.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Ok(Self { root: Root::open(local)?, single: None });
        }
        let name = local
            .file_name()
            .ok_or_else(|| Error::usage(format!("{} is no path of a file", local.display())))?;
        let above = local.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self { root: Root::open(above)?, single: Some(RelPath::single(name.as_bytes())?) })
    }

    /// What is here now. A single file has the name that it has there.
    pub fn walk(&self, there: &[u8], cancel: &CancelFlag) -> Result<Tree> {
        match &self.single {
            Some(name) => walk::single(&self.root, name, there),
            None => walk::tree(&self.root, cancel),
        }
    }

    /// The directory of an entry, and its name in it; `None` for the root itself.
    pub fn dir_of(&self, path: &[u8]) -> Result<Option<(Dir, Vec<u8>)>> {
        if let Some(name) = &self.single {
            return Ok(Some((self.root.as_dir()?, name.as_bytes().to_vec())));
        }
        let Some(above) = parent(path) else { return Ok(None) };
        let name = path[above.len()..].strip_prefix(b"/").unwrap_or(path).to_vec();
        Ok(Some((self.dir(above)?, name)))
    }

    /// The directory at `path`; the root where that is empty.
    pub fn dir(&self, path: &[u8]) -> Result<Dir> {
        if path.is_empty() {
            return self.root.as_dir();
        }
        self.root.dir(Some(&RelPath::from_bytes(path)?))
    }
}
