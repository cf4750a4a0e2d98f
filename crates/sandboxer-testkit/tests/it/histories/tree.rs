//! Plain maps of what is where, and the real trees read into them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What is at a path.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    Dir { mode: u32 },
    File { bytes: Vec<u8>, mode: u32 },
    Link { target: String },
}

/// Everything by path.
pub type Tree = BTreeMap<String, Node>;

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir { mode } => write!(f, "directory {mode:o}"),
            Self::File { bytes, mode } => write!(f, "file {mode:o} {:?}", String::from_utf8_lossy(bytes)),
            Self::Link { target } => write!(f, "link to {target}"),
        }
    }
}

impl Node {
    pub fn is_dir(&self) -> bool {
        matches!(self, Self::Dir { .. })
    }

    pub fn mode(&self) -> u32 {
        match self {
            Self::Dir { mode } | Self::File { mode, .. } => *mode,
            Self::Link { .. } => 0,
        }
    }

    pub fn with_mode(self, mode: u32) -> Self {
        match self {
            Self::Dir { .. } => Self::Dir { mode },
            Self::File { bytes, .. } => Self::File { bytes, mode },
            link => link,
        }
    }

    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::File { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Whether all but the mode is the same.
    pub fn same_content(&self, other: &Self) -> bool {
        self.clone().with_mode(0) == other.clone().with_mode(0)
    }
}

pub fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

pub fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub fn is_dir(tree: &Tree, path: &str) -> bool {
    tree.get(path).is_some_and(Node::is_dir)
}

pub fn has_parent(tree: &Tree, path: &str) -> bool {
    parent(path).is_none_or(|parent| is_dir(tree, parent))
}

/// Sets what is at a path, `None` for nothing.
pub fn set(tree: &mut Tree, path: &str, node: Option<Node>) {
    match node {
        Some(node) => drop(tree.insert(path.to_owned(), node)),
        None => drop(tree.remove(path)),
    }
}

pub fn remove_below(tree: &mut Tree, path: &str) {
    tree.retain(|p, _| !is_within(p, path));
}

/// The paths at which two trees differ.
pub fn changed(old: &Tree, new: &Tree) -> BTreeSet<String> {
    old.keys().chain(new.keys()).filter(|path| old.get(*path) != new.get(*path)).cloned().collect()
}

/// The tree at `root`, without `root` itself.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(root, "", &mut tree);
    tree
}

fn collect(dir: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let meta = entry.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        let node = if meta.is_dir() {
            collect(&entry.path(), &format!("{path}/"), tree);
            Node::Dir { mode }
        } else if meta.is_symlink() {
            Node::Link { target: fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned() }
        } else {
            Node::File { bytes: fs::read(entry.path()).unwrap(), mode }
        };
        tree.insert(path, node);
    }
}

/// Where two trees differ, for a person.
pub fn explain(expected: &Tree, found: &Tree) -> String {
    let line =
        |path: &String| format!("  {path}: expected {:?}, found {:?}\n", expected.get(path), found.get(path));
    changed(expected, found).iter().map(line).collect()
}
