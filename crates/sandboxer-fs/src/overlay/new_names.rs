//! Which names in the upper layer are new, and did not replace a file of the original.
//!
//! The upper does not tell: `sed -i` leaves a file without an origin. If such a file is then deleted from the original, it looks
//! new. The ctime of its directory tells whether any name was changed there after the file was made. Our own commits change that
//! ctime too, so each commit records the new names, the uncertain ones, and the ctime that it left behind.

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

const MAGIC: &[u8; 8] = b"SBXNEWN\x01";
const FILE_NAME: &str = "new-names";

/// What the commits of a workspace and its neighbours recorded about new names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNames {
    /// The ctime of each directory (`None` is the root) when all names in it were recorded. A name without a record is younger.
    pub checked_at: BTreeMap<Option<RelPath>, i64>,
    /// Names that could not be told apart at that time.
    pub uncertain: BTreeSet<RelPath>,
}

impl NewNames {
    /// Loads the record of the workspace at `home`. A power cut may damage it; names are uncertain then.
    pub fn load(home: &Path) -> Result<Self> {
        match sealed::load(MAGIC, &home.join(FILE_NAME)) {
            Err(Error::Corrupt { .. }) => Ok(Self::default()),
            loaded => Ok(loaded?.unwrap_or_default()),
        }
    }

    fn store(&self, home: &Path) -> Result<()> {
        sealed::store_lazily(MAGIC, self, &home.join(FILE_NAME))
    }
}

/// The directories that hold `paths`; `None` is the root.
pub fn parent_directories<'p>(paths: impl Iterator<Item = &'p RelPath>) -> BTreeSet<Option<RelPath>> {
    paths.map(RelPath::parent).collect()
}

/// Records the new and the uncertain names in `directories`, which a commit is about to change.
pub fn record_before_commit(
    base: &OverlayBase<'_>,
    home: &Path,
    directories: &BTreeSet<Option<RelPath>>,
    edits: &mut Edits,
) -> Result<()> {
    let mut names = base.new_names.clone();
    for dir in directories {
        for (path, btime) in unrecorded_names(base, dir.as_ref())? {
            match base.may_replace_deleted(&path, btime)? {
                true => drop(names.uncertain.insert(path)),
                false => drop(edits.entry(path).or_insert(None)),
            }
        }
    }
    if names == base.new_names { Ok(()) } else { names.store(home) }
}

/// Records the ctimes that a commit left behind, and as new what programs created during the commit.
pub fn record_after_commit(
    base: &OverlayBase<'_>,
    home: &Path,
    directories: BTreeSet<Option<RelPath>>,
) -> Result<()> {
    let (mut names, mut edits) = (base.new_names.clone(), Edits::new());
    for dir in directories {
        let Some(stamp) = base.original.find_dir_stamp(dir.as_ref())? else { continue };
        let created = unrecorded_names(base, dir.as_ref())?.into_keys();
        edits.extend(created.filter(|path| !names.uncertain.contains(path)).map(|path| (path, None)));
        names.checked_at.insert(dir, stamp.ctime);
    }
    base.rewrite(edits)?;
    names.store(home)
}

/// The entries of a directory that are only in the layers, neither in the original nor in the records, each with its birth time.
fn unrecorded_names(base: &OverlayBase<'_>, dir: Option<&RelPath>) -> Result<BTreeMap<RelPath, i64>> {
    let mut found = BTreeMap::new();
    for layer in &base.layers {
        let Some(open) = layer.find_dir(dir)? else { continue };
        for listed in list::names_and_types(&open)? {
            let path = manifest::join(dir, &listed.name)?;
            let Some(stamp) = open.stamp(&listed.name)? else { continue };
            let is_known =
                says(&base.recorded, &path) != Says::Silent || base.original.stamp(&path)?.is_some();
            if !is_known && layer.meaning(&open, &listed.name, &stamp)? != Meaning::Whiteout {
                found.insert(path, stamp.btime);
            }
        }
    }
    Ok(found)
}
