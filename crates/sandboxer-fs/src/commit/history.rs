//! The patch of an operation, for people who want to see later what it did.
//!
//! It is made when both sides are at hand: what was displaced lies beside the record, what came lies in the original. It is
//! kept with the record, and goes with it.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use sandboxer_core::Result;
use sandboxer_core::model::{DiffEntry, Node, NodeType, RelPath};

use super::undo::{Kept, Record};
use crate::content::read_all;
use crate::patch;
use crate::root::{Dir, Root};

/// The name of the patch beside a record.
pub const PATCH: &str = "patch";
/// Larger files are named, not shown.
const LARGEST: u64 = 1 << 20;
/// A patch does not get larger than this.
const LARGEST_PATCH: usize = 16 << 20;

/// Writes the patch of what `record` tells into `place`. It is a convenience: where it fails, there is none.
pub fn write(record: &Record, original: &Root, place: &Path) {
    let patch = render(record, original, place).unwrap_or_default();
    let _ = std::fs::write(place.join(PATCH), patch);
}

fn render(record: &Record, original: &Root, place: &Path) -> Result<Vec<u8>> {
    let kept: HashMap<&RelPath, &Kept> =
        record.touched.iter().filter_map(|t| Some((&t.path, t.kept.as_ref()?))).collect();
    let beside = Root::open(place)?.as_dir()?;
    let mut patch = Vec::new();
    for (at, entry) in record.entries.iter().enumerate() {
        if patch.len() > LARGEST_PATCH {
            let _ = writeln!(patch, "# {} more entries are not shown", record.entries.len() - at);
            break;
        }
        if entry.binary || [&entry.old, &entry.new].into_iter().flatten().any(|n| n.size > LARGEST) {
            // In quotes and escaped: a name with a line break must not pass for lines of the patch.
            let _ = writeln!(patch, "# {:?}: {}", entry.path, sizes(entry));
            continue;
        }
        let from = entry.from.as_ref().unwrap_or(&entry.path);
        let old = entry.old.as_ref().and_then(|node| match kept.get(from) {
            Some(kept) => side(&beside, kept.name.as_bytes(), node),
            // Only its mode changed: both sides have the same content.
            None => below(original, &entry.path, node),
        });
        let new = entry.new.as_ref().and_then(|node| below(original, &entry.path, node));
        let _ = patch::render_entry(entry, old.as_deref(), new.as_deref(), &mut patch);
    }
    Ok(patch)
}

fn sizes(entry: &DiffEntry) -> String {
    let size =
        |node: &Option<Node>| node.as_ref().map_or("nothing".to_owned(), |n| format!("{} bytes", n.size));
    format!("{} → {}, not shown", size(&entry.old), size(&entry.new))
}

fn below(root: &Root, path: &RelPath, node: &Node) -> Option<Vec<u8>> {
    side(&root.find_parent(path).ok()??, path.name(), node)
}

fn side(dir: &Dir, name: &[u8], node: &Node) -> Option<Vec<u8>> {
    match node.node_type {
        NodeType::File => read_all(dir.open_file(name).ok()?, node.size).ok(),
        NodeType::Symlink => dir.read_link(name).ok(),
        _ => None,
    }
}
