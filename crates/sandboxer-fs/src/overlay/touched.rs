//! Which paths an overlay has to say anything about: a walk over its layers, never over the tree below them.

use std::collections::{BTreeMap, HashMap, HashSet};

use sandboxer_core::Result;
use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::RelPath;

use super::layer::{Layer, Meaning, Origin};
use crate::filter::Filter;
use crate::list;
use crate::manifest;
use crate::pool::{self, Queue};
use crate::root::Dir;
use crate::stamp::Stamp;

/// Everything that the layers of a stack name, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Parents come before what they hold; the root itself is not among them.
    pub paths: BTreeMap<RelPath, Facts>,
    /// The inodes of what lies in layers below the topmost: what was copied up from there names them as its origin.
    pub lower_inos: HashSet<u64>,
}

/// What the layers say about one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Some layer has a whiteout here.
    pub whiteout: bool,
    /// Some layer has an opaque directory here.
    pub opaque: bool,
    /// Some layer has a file, link, directory or other entry here.
    pub entry: bool,
    /// Of the lowest layer that has an entry here: a higher layer's origin is in a lower layer.
    pub origin: Option<Origin>,
    /// Birth time of that layer's entry; 0 if the filesystem has none.
    pub btime: i64,
    /// Of the topmost layer's entry, where that is a file with several names: its inode in the layer, how many names of it
    /// that layer has, and how many it has altogether.
    pub links: Option<(u64, u32, u32)>,
}

impl Facts {
    /// Whether what lies below a directory here is hidden, wherever that comes from. A directory that was made where a lower layer
    /// has a whiteout is not marked opaque.
    pub fn hides_below(&self) -> bool {
        self.opaque || (self.whiteout && self.entry)
    }
}

/// A name in a layer.
struct Seen {
    layer: usize,
    path: RelPath,
    stamp: Stamp,
    meaning: Meaning,
    origin: Option<Origin>,
}

struct DirTask {
    layer: usize,
    path: Option<RelPath>,
}

/// Walks the layers, topmost first. What goes away during the walk is left out, and so are directories that `filter` leaves out.
pub fn touched(layers: &[&Layer], filter: &Filter, threads: usize, cancel: &CancelFlag) -> Result<Touched> {
    let first = (0..layers.len()).map(|layer| DirTask { layer, path: None }).collect();
    let found = pool::work(threads, first, Vec::new, |seen, task, queue| {
        cancel.check()?;
        walk_dir(layers[task.layer], filter, &task, queue, seen)
    })?;
    let mut seen: Vec<Seen> = found.into_iter().flatten().collect();
    seen.sort_unstable_by_key(|seen| seen.layer);
    Ok(gather(seen))
}

fn walk_dir(
    layer: &Layer,
    filter: &Filter,
    task: &DirTask,
    queue: &Queue<DirTask>,
    seen: &mut Vec<Seen>,
) -> Result<()> {
    let Some(dir) = layer.find_dir(task.path.as_ref())? else { return Ok(()) };
    for listed in list::names_and_types(&dir)? {
        let path = manifest::join(task.path.as_ref(), &listed.name)?;
        if let Some(found) = look_at(layer, task.layer, &dir, path)? {
            if found.stamp.is_dir() {
                if !filter.is_all() && !filter.passes(&found.path, true) {
                    continue;
                }
                queue.push(DirTask { layer: task.layer, path: Some(found.path.clone()) });
            }
            seen.push(found);
        }
    }
    Ok(())
}

fn look_at(layer: &Layer, number: usize, dir: &Dir, path: RelPath) -> Result<Option<Seen>> {
    let name = path.name();
    let Some(stamp) = dir.stamp(name)? else { return Ok(None) };
    let meaning = layer.meaning(dir, name, &stamp)?;
    let origin = if meaning == Meaning::Whiteout { None } else { layer.origin(dir, name)? };
    Ok(Some(Seen { layer: number, path, stamp, meaning, origin }))
}

/// Puts together what the layers have, which come topmost first.
fn gather(all: Vec<Seen>) -> Touched {
    let names = count_names(&all);
    let is_lower = |seen: &&Seen| seen.layer > 0 && seen.meaning != Meaning::Whiteout;
    let lower_inos = all.iter().filter(is_lower).map(|seen| seen.stamp.ino).collect();
    let mut paths = BTreeMap::<RelPath, Facts>::new();
    for seen in all {
        let links = names.get(&(seen.layer, seen.stamp.ino)).filter(|_| has_several_names(&seen));
        let links = links.map(|&names| (seen.stamp.ino, names, seen.stamp.nlink));
        let facts = paths.entry(seen.path).or_default();
        if seen.meaning == Meaning::Whiteout {
            facts.whiteout = true;
            continue;
        }
        if !facts.entry {
            facts.links = links;
        }
        facts.entry = true;
        facts.opaque |= seen.meaning == Meaning::Directory { opaque: true };
        facts.origin = seen.origin;
        facts.btime = seen.stamp.btime;
    }
    Touched { paths, lower_inos }
}

fn count_names(all: &[Seen]) -> HashMap<(usize, u64), u32> {
    let mut names = HashMap::new();
    for seen in all.iter().filter(|seen| has_several_names(seen)) {
        *names.entry((seen.layer, seen.stamp.ino)).or_default() += 1;
    }
    names
}

/// Whiteouts are names of one device, to save inodes: that says nothing.
fn has_several_names(seen: &Seen) -> bool {
    seen.meaning == Meaning::Entry && seen.stamp.nlink > 1
}

#[cfg(test)]
#[path = "touched_tests.rs"]
mod tests;
