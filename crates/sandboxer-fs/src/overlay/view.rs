//! What a stack of layers shows, worked out without a mount.
//!
//! The rules are the kernel's: at each component the layers are asked from the top down. A whiteout ends the search, so does
//! anything that is not a directory; directories are merged until one of them is opaque.

use std::collections::BTreeMap;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use super::layer::{Layer, Meaning, is_whiteout_device};
use crate::list;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;

/// Layers over a tree.
pub struct View<'a> {
    /// Topmost first.
    pub layers: Vec<&'a Layer>,
    /// What they lie over. Marks in its attributes mean nothing; a whiteout device is one here too.
    pub bottom: &'a Root,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which layer; `None` is the bottom.
    pub layer: Option<usize>,
    /// What is there. Of a directory that is merged from several: the topmost.
    pub stamp: Stamp,
}

/// One of the directories that are merged into the one that is shown.
struct Part {
    layer: Option<usize>,
    dir: Dir,
}

impl View<'_> {
    /// Where the entry at `path` is; `None` where nothing is shown.
    pub fn find(&self, path: &RelPath) -> Result<Option<Found>> {
        for part in self.merged(path.parent().as_ref())? {
            match self.look(&part, path.name())? {
                None => {}
                Some((Meaning::Whiteout, _)) => return Ok(None),
                Some((_, stamp)) => return Ok(Some(Found { layer: part.layer, stamp })),
            }
        }
        Ok(None)
    }

    /// The names shown in the directory at `path` (`None` is the root), sorted.
    pub fn names(&self, path: Option<&RelPath>) -> Result<Vec<Vec<u8>>> {
        let parts = self.merged(path)?;
        if parts.is_empty() {
            return Err(Error::not_found("directory", path.map_or(String::new(), ToString::to_string)));
        }
        let mut shown = BTreeMap::new();
        for part in parts {
            for listed in list::names_and_types(&part.dir)? {
                if let std::collections::btree_map::Entry::Vacant(name) = shown.entry(listed.name)
                    && let Some((meaning, _)) = self.look(&part, name.key())?
                {
                    name.insert(meaning != Meaning::Whiteout);
                }
            }
        }
        Ok(shown.into_iter().filter_map(|(name, is_shown)| is_shown.then_some(name)).collect())
    }

    /// The open parent directory of the entry found, for reading it.
    pub fn open_parent(&self, path: &RelPath, found: &Found) -> Result<Dir> {
        self.root(found.layer).parent_of(path)
    }

    fn root(&self, layer: Option<usize>) -> &Root {
        layer.map_or(self.bottom, |number| &self.layers[number].root)
    }

    /// The directories that make up the one at `path`, topmost first; none where no directory is shown.
    fn merged(&self, path: Option<&RelPath>) -> Result<Vec<Part>> {
        let all = (0..self.layers.len()).map(Some).chain([None]);
        let roots = all.map(|layer| Ok(Part { layer, dir: self.root(layer).as_dir()? }));
        let mut parts = roots.collect::<Result<Vec<_>>>()?;
        for name in path.iter().flat_map(|path| path.components()) {
            parts = self.descend(parts, name)?;
        }
        Ok(parts)
    }

    /// One step down. Each directory above is closed before the next is opened: a stack may have hundreds.
    fn descend(&self, above: Vec<Part>, name: &[u8]) -> Result<Vec<Part>> {
        let mut below = Vec::new();
        for part in above {
            let Some((meaning, _)) = self.look(&part, name)? else { continue };
            let Meaning::Directory { opaque } = meaning else { break };
            below.push(Part { layer: part.layer, dir: part.dir.dir(name)? });
            if opaque {
                break;
            }
        }
        Ok(below)
    }

    fn look(&self, part: &Part, name: &[u8]) -> Result<Option<(Meaning, Stamp)>> {
        let Some(stamp) = part.dir.stamp(name)? else { return Ok(None) };
        let meaning = match part.layer {
            Some(number) => self.layers[number].meaning(&part.dir, name, &stamp)?,
            None if stamp.is_dir() => Meaning::Directory { opaque: false },
            None if is_whiteout_device(&part.dir, name, &stamp)? => Meaning::Whiteout,
            None => Meaning::Entry,
        };
        Ok(Some((meaning, stamp)))
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
