//! What a live mount has for its own, and the original has or had too.
//!
//! An entry that was taken over before somebody else's commit removed it; and what the sandbox made in a directory of its own, and
//! committed. When a program in the sandbox removes such an entry, the kernel finds nothing below and leaves no whiteout; the next
//! mount would show it again. So the paths are noted. A scan takes those that are gone for deleted, and before each mount they get
//! their whiteout.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Mode};
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use super::layer::{Layer, Marks};
use super::stack::{Places, Stack};
use crate::durable;
use crate::sealed;

const MAGIC: &[u8; 8] = b"SBXTAKN\x01";

fn place(home: &Path) -> PathBuf {
    home.join("taken-over")
}

/// Notes what the mount of the workspace at `home` has taken over.
pub fn note(home: &Path, paths: impl IntoIterator<Item = RelPath>) -> Result<()> {
    let mut all = load(home)?;
    let before = all.len();
    all.extend(paths);
    if all.len() == before { Ok(()) } else { sealed::store(MAGIC, &all, &place(home)) }
}

/// What it has taken over.
pub fn load(home: &Path) -> Result<BTreeSet<RelPath>> {
    Ok(sealed::load(MAGIC, &place(home))?.unwrap_or_default())
}

/// Forgets it: the state that had it is left.
pub fn forget(home: &Path) -> Result<()> {
    if place(home).exists() { durable::remove(&place(home)) } else { Ok(()) }
}

/// Makes whiteouts for what was taken over and is gone since. The overlay is not mounted.
pub fn settle(home: &Path, marks: Marks, places: &Places, stack: &Stack) -> Result<()> {
    let Some(all) = sealed::load::<BTreeSet<RelPath>>(MAGIC, &place(home))? else { return Ok(()) };
    let upper = Layer::open(&places.upper(), marks)?;
    let lower = stack.lowers(places);
    let lower = lower.iter().map(|dir| Layer::open(dir, marks)).collect::<Result<Vec<_>>>()?;
    // Parents come first: below one that is gone nothing is left to hide.
    for path in &all {
        let mut layers = [&upper].into_iter().chain(&lower);
        if layers.any(|layer| layer.root.stamp(path).is_ok_and(|found| found.is_some())) {
            continue;
        }
        let Some(parent) = upper.root.find_parent(path)? else { continue };
        fs::mknodat(&parent, path.name(), FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|e| Error::io("make a whiteout at", parent.shown(path.name()), e))?;
    }
    forget(home)
}
