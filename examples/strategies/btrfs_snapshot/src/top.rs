//! The time of a subvolume's top directory.
//!
//! Nothing can be renamed from one subvolume to another, so a commit puts its files together in the original itself, and that
//! moves the time of its top. Where nothing at the top was committed it goes back.

use std::collections::BTreeMap;

use sandboxer_core::{Error, Result};
use sandboxer_fs::copy::timestamps;
use sandboxer_fs::list;
use sandboxer_fs::root::Root;

/// A directory as it was; dropped, its time goes back if all that it names is what it was.
pub struct Top<'a> {
    root: &'a Root,
    mtime: i64,
    named: Named,
}

/// Names, and the inodes that they are of.
type Named = BTreeMap<Vec<u8>, u64>;

impl<'a> Top<'a> {
    pub fn of(root: &'a Root) -> Result<Self> {
        Ok(Self { root, mtime: root.as_dir()?.stamp_self()?.mtime, named: named_in(root)? })
    }

    fn put_back(&self) -> Result<()> {
        let failed = |e| Error::io("set the time of", self.root.path(), e);
        if named_in(self.root)? == self.named {
            rustix::fs::futimens(self.root.as_dir()?, &timestamps(self.mtime)).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Top<'_> {
    fn drop(&mut self) {
        // A commit that was made is not undone by a wrong time.
        let _ = self.put_back().inspect_err(|error| eprintln!("{error}"));
    }
}

fn named_in(root: &Root) -> Result<Named> {
    let dir = root.as_dir()?;
    let mut named = Named::new();
    for listed in list::names_and_types(&dir)? {
        if let Some(stamp) = dir.stamp(&listed.name)? {
            named.insert(listed.name, stamp.ino);
        }
    }
    Ok(named)
}
