//! Until when it is certain what is new in a directory.
//!
//! Whether a name is new, or took the place of one that is gone, is told by the times of its directory, and our own commits
//! change those. So at a commit everything new is written down, with what is uncertain, and the time that the directory has after it:
//! any other name came later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::base::OverlayBase;
use super::layer::Meaning;
use super::records::{Says, says};
use crate::base::Base;
use crate::manifest::{self, Edits};
use crate::{list, sealed};

const MAGIC: &[u8; 8] = b"SBXNOTD\x01";
const NAME: &str = "noted-directories";

/// What a workspace knows of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// The last change of each directory when everything new in it was written down; `None` is the root.
    pub at: BTreeMap<Option<RelPath>, i64>,
    /// What was uncertain then, and stays so.
    pub uncertain: BTreeSet<RelPath>,
}

impl Noted {
    /// That of the workspace at `home`. What a power cut has damaged says nothing.
    pub fn load(home: &Path) -> Result<Self> {
        match sealed::load(MAGIC, &home.join(NAME)) {
            Err(Error::Corrupt { .. }) => Ok(Self::default()),
            loaded => Ok(loaded?.unwrap_or_default()),
        }
    }

    /// Writes it down.
    pub fn store(&self, home: &Path) -> Result<()> {
        sealed::store_lazily(MAGIC, self, &home.join(NAME))
    }
}

/// The directories that `paths` are in; `None` is the root.
pub fn directories_of<'p>(paths: impl Iterator<Item = &'p RelPath>) -> BTreeSet<Option<RelPath>> {
    paths.map(RelPath::parent).collect()
}

/// Before a commit changes `directories`: notes what is new in them, and what is uncertain.
pub fn before_commit(
    base: &OverlayBase<'_>,
    home: &Path,
    directories: &BTreeSet<Option<RelPath>>,
    edits: &mut Edits,
) -> Result<()> {
    let mut noted = base.noted.clone();
    for dir in directories {
        for (path, born) in unrecorded_in(base, dir.as_ref())? {
            match base.may_be_gone(&path, born)? {
                true => drop(noted.uncertain.insert(path)),
                false => drop(edits.entry(path).or_insert(None)),
            }
        }
    }
    if noted == base.noted { Ok(()) } else { noted.store(home) }
}

/// After it: what programs have made meanwhile is new as well.
pub fn after_commit(
    base: &OverlayBase<'_>,
    home: &Path,
    directories: BTreeSet<Option<RelPath>>,
) -> Result<()> {
    let (mut noted, mut edits) = (base.noted.clone(), Edits::new());
    for dir in directories {
        let Some(stamp) = base.original.find_dir_stamp(dir.as_ref())? else { continue };
        let names = unrecorded_in(base, dir.as_ref())?.into_keys();
        edits.extend(names.filter(|path| !noted.uncertain.contains(path)).map(|path| (path, None)));
        noted.at.insert(dir, stamp.ctime);
    }
    base.rewrite(edits)?;
    noted.store(home)
}

/// What the layers have in a directory, and neither the original nor the records; with its birth.
fn unrecorded_in(base: &OverlayBase<'_>, dir: Option<&RelPath>) -> Result<BTreeMap<RelPath, i64>> {
    let mut births = BTreeMap::new();
    for layer in &base.layers {
        let Some(open) = layer.find_dir(dir)? else { continue };
        for listed in list::names_and_types(&open)? {
            let path = manifest::join(dir, &listed.name)?;
            let Some(stamp) = open.stamp(&listed.name)? else { continue };
            let is_known =
                says(&base.recorded, &path) != Says::Silent || base.original.stamp(&path)?.is_some();
            if !is_known && layer.meaning(&open, &listed.name, &stamp)? != Meaning::Whiteout {
                births.insert(path, stamp.btime);
            }
        }
    }
    Ok(births)
}
