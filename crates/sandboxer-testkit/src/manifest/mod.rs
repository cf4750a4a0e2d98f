//! What a tree is, entry by entry: a second opinion that shares no code with the file engine.
//!
//! [`Manifest::capture`] reads everything that can be said about a tree without following a link: type, mode, owner,
//! size, content, link target, extended attributes (ACLs among them), which names share an inode, times and holes.
//! [`Manifest::differences`] tells two of them apart in lines a person can read, as strictly as [`Facets`] says.

mod compare;
mod sample;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use compare::{Facets, Times};
pub use sample::{Sample, move_entry, rich_tree, set_acl, set_mtime, set_xattr, write_sparse};

/// Holes of less than this are not counted: filesystems round up in ways of their own.
const NOTICEABLE_HOLE: u64 = 64 * 1024;

/// What kind of thing an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Special,
}

/// Everything that is recorded about one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of a file; zero for everything else.
    pub size: u64,
    /// Hash of a file's content.
    pub hash: Option<String>,
    /// Target of a link.
    pub target: Option<PathBuf>,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// The first name, in sort order, of the same inode; `None` where there is only one name in the tree.
    pub linked_to: Option<PathBuf>,
    /// Modification time in seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Whether it has holes worth speaking of.
    pub sparse: bool,
    /// The inode.
    pub inode: u64,
}

/// A tree, entry by entry. The root itself is the entry with the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By path below the root.
    pub entries: BTreeMap<PathBuf, Entry>,
}

impl Manifest {
    /// Reads the tree (or the single file) at `root`.
    pub fn capture(root: &Path) -> Self {
        let mut manifest = Self::default();
        manifest.add(root, PathBuf::new());
        manifest.group_links();
        manifest
    }

    /// Reads what is at `path`, and nothing below it.
    pub fn capture_one(path: &Path) -> Entry {
        Entry::read(path)
    }

    /// The entry at `path`, which must be there.
    pub fn entry(&self, path: impl AsRef<Path>) -> &Entry {
        let path = path.as_ref();
        self.entries.get(path).unwrap_or_else(|| panic!("{path:?} is not in the tree: {:?}", self.names()))
    }

    /// Whether there is an entry at `path`.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.entries.contains_key(path.as_ref())
    }

    /// The paths in order, without the root.
    pub fn names(&self) -> Vec<&Path> {
        self.entries.keys().map(PathBuf::as_path).filter(|p| !p.as_os_str().is_empty()).collect()
    }

    /// How many regular files there are.
    pub fn files(&self) -> usize {
        self.entries.values().filter(|e| e.kind == Kind::File).count()
    }

    fn add(&mut self, root: &Path, relative: PathBuf) {
        let path = if relative.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&relative) };
        let entry = Entry::read(&path);
        let directory = entry.kind == Kind::Directory;
        self.entries.insert(relative.clone(), entry);
        if directory {
            for child in fs::read_dir(&path).unwrap_or_else(|e| panic!("cannot list {path:?}: {e}")) {
                self.add(root, relative.join(child.unwrap().file_name()));
            }
        }
    }

    fn group_links(&mut self) {
        let mut first: BTreeMap<u64, (PathBuf, usize)> = BTreeMap::new();
        for (path, entry) in self.entries.iter().filter(|(_, e)| e.kind != Kind::Directory) {
            first.entry(entry.inode).or_insert_with(|| (path.clone(), 0)).1 += 1;
        }
        for entry in self.entries.values_mut().filter(|e| e.kind != Kind::Directory) {
            let (path, names) = &first[&entry.inode];
            entry.linked_to = (*names > 1).then(|| path.clone());
        }
    }
}

impl Entry {
    fn read(path: &Path) -> Self {
        let meta = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("cannot stat {path:?}: {e}"));
        let kind = kind_of(&meta);
        let size = if kind == Kind::File { meta.len() } else { 0 };
        Self {
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            size,
            hash: (kind == Kind::File).then(|| hash(path)),
            target: (kind == Kind::Symlink).then(|| fs::read_link(path).unwrap()),
            xattrs: read_xattrs(path),
            linked_to: None,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            sparse: size.saturating_sub(meta.blocks() * 512) >= NOTICEABLE_HOLE,
            inode: meta.ino(),
        }
    }
}

fn kind_of(meta: &fs::Metadata) -> Kind {
    let file_type = meta.file_type();
    match () {
        () if file_type.is_file() => Kind::File,
        () if file_type.is_dir() => Kind::Directory,
        () if file_type.is_symlink() => Kind::Symlink,
        () => {
            debug_assert!(
                file_type.is_fifo()
                    || file_type.is_socket()
                    || file_type.is_char_device()
                    || file_type.is_block_device()
            );
            Kind::Special
        }
    }
}

fn hash(path: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut file = fs::File::open(path).unwrap_or_else(|e| panic!("cannot read {path:?}: {e}"));
    std::io::copy(&mut file, &mut hasher).unwrap();
    hasher.finalize().to_hex().to_string()
}

fn read_xattrs(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0u8; 64 * 1024];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return BTreeMap::new() };
    names.truncate(length);
    let mut found = BTreeMap::new();
    for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 64 * 1024];
        let length =
            rustix::fs::lgetxattr(path, CString::new(name).unwrap().as_c_str(), &mut value[..]).unwrap();
        value.truncate(length);
        found.insert(std::ffi::OsStr::from_bytes(name).to_owned(), value);
    }
    found
}

#[cfg(test)]
mod tests;
