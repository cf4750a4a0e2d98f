//! Trees as they are found on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir {
        mode: u32,
    },
    File {
        mode: u32,
        text: String,
    },
    Link {
        target: String,
    },
    /// An entry that the kernel lists and does not open.
    Unreadable {
        error: String,
    },
}

/// Entries by path.
pub type Tree = BTreeMap<String, Node>;

impl Node {
    /// The entry at `path`, or `None` if there is none.
    pub fn read(path: &Path) -> Option<Self> {
        match Self::try_read(path) {
            Ok(node) => Some(node),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(error) => Some(Self::Unreadable { error: error.to_string() }),
        }
    }

    fn try_read(path: &Path) -> std::io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_dir() {
            Ok(Self::Dir { mode })
        } else if meta.is_symlink() {
            Ok(Self::Link { target: fs::read_link(path)?.display().to_string() })
        } else {
            Ok(Self::File { mode, text: String::from_utf8_lossy(&fs::read(path)?).into_owned() })
        }
    }

    pub fn is_dir(&self) -> bool {
        matches!(self, Self::Dir { .. })
    }

    pub fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// The lines of a file; none for anything else.
    pub fn lines(&self) -> BTreeSet<&str> {
        match self {
            Self::File { text, .. } => text.lines().collect(),
            _ => BTreeSet::new(),
        }
    }
}

/// Reads everything below `root`, but for git's own directory.
pub fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    read_below(root, "", &mut tree);
    tree.retain(|path, _| path != ".git" && !path.starts_with(".git/"));
    tree
}

/// Reads the entry at `path` below `root`, and everything below that.
pub fn read_subtree(root: &Path, path: &str) -> Tree {
    let mut tree = Tree::new();
    if let Some(node) = Node::read(&root.join(path)) {
        if node.is_dir() {
            read_below(root, path, &mut tree);
        }
        tree.insert(path.to_owned(), node);
    }
    tree
}

fn read_below(root: &Path, dir: &str, tree: &mut Tree) {
    let Ok(listed) = fs::read_dir(root.join(dir)) else { return };
    for entry in listed.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        // A listed name that cannot be looked up is an entry all the same.
        let missing = || Node::Unreadable { error: "listed, and not found".to_owned() };
        let node = Node::read(&root.join(&path)).unwrap_or_else(missing);
        if node.is_dir() && path != ".git" {
            read_below(root, &path, tree);
        }
        tree.insert(path, node);
    }
}

/// The paths at which two trees differ.
pub fn differing(old: &Tree, new: &Tree) -> BTreeSet<String> {
    old.keys().chain(new.keys()).filter(|path| old.get(*path) != new.get(*path)).cloned().collect()
}

pub fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

pub fn is_within(path: &str, ancestor: &str) -> bool {
    ancestor.is_empty()
        || path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a change of one can matter to the other: one contains the other, or both are in one directory.
pub fn is_related(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a) || parent(a) == parent(b)
}
