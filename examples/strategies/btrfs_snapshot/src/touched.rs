//! Which paths may differ between two snapshots, at a cost in proportion to what was done.

use std::collections::{BTreeSet, HashSet};

use rustix::fs::FileType;
use sandboxer_core::Result;
use sandboxer_core::model::RelPath;
use sandboxer_fs::list;
use sandboxer_fs::manifest::join;
use sandboxer_fs::root::Root;

use crate::command::Btrfs;
use crate::stream::Touch;

/// Paths of either tree. More than differ, never fewer.
pub type Touched = BTreeSet<RelPath>;

/// The paths that may differ between two read-only snapshots.
///
/// The names in a stream are those of the moment, and need not exist in either tree. But whatever gets another name is moved, it or a
/// directory above it, in one step or several. The first step begins at the name that it has in the old tree, the last one ends at the one
/// that it has in the new tree; so all below the two ends of every step is all that has moved.
pub fn between(btrfs: &Btrfs, old: &Root, new: &Root) -> Result<Touched> {
    let mut touches = Vec::new();
    btrfs.compare(old.path(), new.path(), |touch| touches.push(touch))?;
    let mut touched = Touched::new();
    for touch in touches {
        match touch {
            Touch::At(path) => drop(touched.insert(path)),
            Touch::Moved { from, to } => {
                add_all_below(old, Some(&from), &mut touched)?;
                add_all_below(new, Some(&to), &mut touched)?;
                touched.extend([from, to]);
            }
        }
    }
    add_other_names(old, new, &mut touched)?;
    Ok(touched)
}

/// A file with several names is told of by one of them. Where one was touched the trees are walked for the others.
fn add_other_names(old: &Root, new: &Root, touched: &mut Touched) -> Result<()> {
    let mut several = HashSet::new();
    for root in [old, new] {
        for path in touched.iter() {
            let stamp = root.stamp(path)?.filter(|stamp| stamp.nlink > 1 && !stamp.is_dir());
            several.extend(stamp.map(|stamp| stamp.ino));
        }
    }
    if several.is_empty() {
        return Ok(());
    }
    for root in [old, new] {
        let mut all = Touched::new();
        add_all_below(root, None, &mut all)?;
        for path in all {
            if root.stamp(&path)?.is_some_and(|stamp| !stamp.is_dir() && several.contains(&stamp.ino)) {
                touched.insert(path);
            }
        }
    }
    Ok(())
}

/// Everything below `dir`; nothing where there is no directory.
fn add_all_below(root: &Root, dir: Option<&RelPath>, found: &mut Touched) -> Result<()> {
    let mut waiting = vec![dir.cloned()];
    while let Some(dir) = waiting.pop() {
        let opened = match &dir {
            Some(path) => match root.open_dir(path) {
                Ok(opened) => opened,
                Err(_) if !root.stamp(path)?.is_some_and(|stamp| stamp.is_dir()) => continue,
                Err(_) => root.dir(Some(path))?,
            },
            None => root.dir(None)?,
        };
        for listed in list::names_and_types(&opened)? {
            let path = join(dir.as_ref(), &listed.name)?;
            if listed.kind == FileType::Directory {
                waiting.push(Some(path.clone()));
            }
            found.insert(path);
        }
    }
    Ok(())
}
