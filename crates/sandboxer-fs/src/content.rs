//! Content of both sides of a difference, for rendering.

use std::path::Path;

use rustix::fs::OFlags;
use sandboxer_core::model::{DiffEntry, Node, NodeType, RelPath};
use sandboxer_core::{Error, Result};

use crate::root::{Dir, Root, stamp_of_fd};

/// Files larger than this are not read whole for a person to look at.
pub const RENDER_LIMIT: u64 = 64 << 20;

/// Both sides of an entry: file content or link targets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// The base's, read from the original.
    pub old: Option<Vec<u8>>,
    /// The sandbox's.
    pub new: Option<Vec<u8>>,
}

/// Reads both sides of `entry`. Follows no link, on either side.
pub fn load_sides(base: &Path, sandbox: &Path, entry: &DiffEntry) -> Result<Sides> {
    let old_path = entry.from.as_ref().unwrap_or(&entry.path);
    Ok(Sides {
        old: load_side(base, old_path, entry.old.as_ref())?,
        new: load_side(sandbox, &entry.path, entry.new.as_ref())?,
    })
}

fn load_side(at: &Path, path: &RelPath, node: Option<&Node>) -> Result<Option<Vec<u8>>> {
    let Some(node) = node else { return Ok(None) };
    // A single file is isolated through its parent, and its location is the file itself.
    let root = if at.is_dir() { at } else { at.parent().unwrap_or(at) };
    let Some(parent) = Root::open(root)?.find_parent(path)? else { return Ok(None) };
    match node.node_type {
        NodeType::File => read_file(&parent, path.name()),
        NodeType::Symlink => Ok(parent.read_link(path.name()).ok()),
        _ => Ok(None),
    }
}

fn read_file(parent: &Dir, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let fd = match parent.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            return Ok(None);
        }
        Err(e) => return Err(Error::io("open", parent.shown(name), e)),
    };
    let stamp = stamp_of_fd(&fd).map_err(|e| Error::io("examine", parent.shown(name), e))?;
    if !stamp.is_file() {
        return Ok(None);
    }
    if stamp.size > RENDER_LIMIT {
        return Err(Error::refused(format!("{} is too large to be shown", parent.shown(name).display())));
    }
    read_all(fd, stamp.size).map(Some).map_err(|e| Error::io("read", parent.shown(name), e))
}

/// Files larger than this are not handed over in one piece: a sandbox's content decides its size.
pub const READ_LIMIT: u64 = 1 << 30;

/// Everything an open file holds.
pub fn read_all(fd: std::os::fd::OwnedFd, size: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, ErrorKind, Read};
    let too_large =
        || Error::new(ErrorKind::FileTooLarge, "it is larger than 1 GiB; open it by its path instead");
    if size > READ_LIMIT {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(0))?;
    std::fs::File::from(fd).take(READ_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > READ_LIMIT { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use sandboxer_core::model::DiffKind;

    fn node(node_type: NodeType) -> Option<Node> {
        Some(Node {
            node_type,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            digest: None,
            target: None,
            xattrs: None,
        })
    }

    #[test]
    fn both_sides_are_read_and_no_link_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (base, copy) = (temp.path().join("base"), temp.path().join("copy"));
        std::fs::create_dir(&base).unwrap();
        std::fs::create_dir(&copy).unwrap();
        std::fs::write(base.join("old"), "before").unwrap();
        std::fs::write(copy.join("new"), "after").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", copy.join("link")).unwrap();
        let mut entry = DiffEntry::new(RelPath::parse("new").unwrap(), DiffKind::Renamed);
        entry.from = Some(RelPath::parse("old").unwrap());
        (entry.old, entry.new) = (node(NodeType::File), node(NodeType::File));
        let sides = load_sides(&base, &copy, &entry).unwrap();
        assert_eq!(sides, Sides { old: Some(b"before".to_vec()), new: Some(b"after".to_vec()) });
        let mut link = DiffEntry::new(RelPath::parse("link").unwrap(), DiffKind::Created);
        link.new = node(NodeType::Symlink);
        assert_eq!(load_sides(&base, &copy, &link).unwrap().new, Some(b"/etc/passwd".to_vec()));
        link.new = node(NodeType::File);
        assert_eq!(load_sides(&base, &copy, &link).unwrap().new, None);
        link.new = node(NodeType::Directory);
        assert_eq!(load_sides(&base, &copy, &link).unwrap(), Sides::default());
    }
}
