//! What no rename can change, whoever asks: entries that are marked immutable or append-only, and mount points.
//!
//! Asked before the decision, because afterwards a step that fails would leave the original between old and new.

use std::collections::BTreeMap;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use super::journal::Journal;
use crate::root::{Dir, Root};

/// Refuses a journal that cannot be carried out because something in `original` cannot be changed.
pub fn refuse_fixed(original: &Root, journal: &Journal) -> Result<()> {
    let mut by_parent = BTreeMap::<Option<RelPath>, Vec<&RelPath>>::new();
    for step in &journal.steps {
        by_parent.entry(step.path().parent()).or_default().push(step.path());
    }
    let mut entries = Vec::new();
    for (parent, paths) in by_parent {
        let Some(dir) = original.find_parent(paths[0])? else { continue };
        if let Some(mark) = mark_of(attributes(&dir, b"")?) {
            let shown = parent.map_or_else(|| ".".to_owned(), |parent| parent.to_string());
            entries.push((paths[0].clone(), format!("its directory {shown} {mark} in the original")));
            continue;
        }
        for path in paths {
            let reason = why_fixed(attributes(&dir, path.name())?);
            entries.extend(reason.map(|reason| (path.clone(), reason)));
        }
    }
    if entries.is_empty() { Ok(()) } else { Err(Error::Uncommittable { entries }) }
}

fn why_fixed(attributes: StatxAttributes) -> Option<String> {
    if attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Some("something is mounted there in the original".to_owned());
    }
    mark_of(attributes).map(|mark| format!("it {mark} in the original"))
}

fn mark_of(attributes: StatxAttributes) -> Option<&'static str> {
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        return Some("is immutable (chattr -i changes that)");
    }
    attributes.contains(StatxAttributes::APPEND).then_some("is append-only (chattr -a changes that)")
}

/// The attributes of the entry `name`, of the directory itself where that is empty; none where nothing is there.
fn attributes(dir: &Dir, name: &[u8]) -> Result<StatxAttributes> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    match statx(dir, name, flags, StatxFlags::TYPE) {
        Ok(found) => Ok(found.stx_attributes),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(StatxAttributes::empty()),
        Err(e) => Err(Error::io("examine", dir.shown(name), e)),
    }
}
