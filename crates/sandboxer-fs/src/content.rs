//! Content of both sides of a difference, for rendering.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use sandboxer_core::model::{DiffEntry, Node, NodeType, Range, RelPath};
use sandboxer_core::{Error, Result};

use crate::root::{Dir, Root, stamp_of_fd};
use crate::space::open_regular;

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

/// The content of the regular file at `path`, or what of it is within `range`. Follows no link.
pub fn read_regular(root: &Root, path: &RelPath, range: Option<Range>) -> Result<Vec<u8>> {
    let not_found = || Error::not_found("file", path.to_string());
    let parent = root.find_parent(path)?.ok_or_else(not_found)?;
    let fd = open_regular(&parent, path)?.ok_or_else(not_found)?;
    let size = stamp_of_fd(&fd).map_err(|e| Error::io("examine", root.shown(path), e))?.size;
    let content = match range {
        Some(range) => read_part(fd, size, range),
        None => read_all(fd, size),
    };
    content.map_err(|e| Error::io("read", root.shown(path), e))
}

/// Everything an open file holds.
pub fn read_all(fd: OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    read_up_to(File::from(fd), size, u64::MAX)
}

/// What an open file holds within `range`.
fn read_part(fd: OwnedFd, size: u64, range: Range) -> io::Result<Vec<u8>> {
    let mut file = File::from(fd);
    match file.seek(SeekFrom::Start(range.offset)) {
        // No file can be that long here.
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(Vec::new()),
        found => found?,
    };
    read_up_to(file, size.saturating_sub(range.offset), range.length)
}

/// What is left of `file`, which should be `left` bytes, up to `most`.
fn read_up_to(file: File, left: u64, most: u64) -> io::Result<Vec<u8>> {
    let too_large =
        || io::Error::new(ErrorKind::FileTooLarge, "it is larger than 1 GiB; open it by its path instead");
    let expected = left.min(most);
    if expected > READ_LIMIT {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(0))?;
    file.take(most.min(READ_LIMIT + 1)).read_to_end(&mut bytes)?;
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
    fn a_part_is_what_lies_within_the_range() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "0123456789").unwrap();
        let (root, path) = (Root::open(temp.path()).unwrap(), RelPath::parse("file").unwrap());
        let read = |offset, length| read_regular(&root, &path, Some(Range { offset, length })).unwrap();
        assert_eq!(read(0, 4), b"0123");
        assert_eq!(read(4, 4), b"4567");
        assert_eq!(read(8, 4), b"89");
        assert_eq!(read(0, u64::MAX), b"0123456789");
        for (offset, length) in [(10, 1), (3, 0), (u64::MAX, u64::MAX), (i64::MAX as u64, 9)] {
            assert_eq!(read(offset, length), b"", "{offset} {length}");
        }
        assert_eq!(read_regular(&root, &path, None).unwrap(), b"0123456789");
    }

    #[test]
    fn a_large_file_is_read_in_parts_alone() {
        let temp = tempfile::tempdir().unwrap();
        let file = File::create(temp.path().join("file")).unwrap();
        file.set_len(READ_LIMIT + 3).unwrap();
        let (root, path) = (Root::open(temp.path()).unwrap(), RelPath::parse("file").unwrap());
        let read = |offset, length| read_regular(&root, &path, Some(Range { offset, length }));
        assert_eq!(read(READ_LIMIT, 9).unwrap(), [0; 3]);
        assert!(read(0, u64::MAX).is_err());
        assert!(read_regular(&root, &path, None).is_err());
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
