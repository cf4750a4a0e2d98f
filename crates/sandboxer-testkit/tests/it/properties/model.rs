//! The simplest thing that behaves like a tree of files: names, and what they name.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_testkit::manifest::{Kind, Manifest};

/// What a file, directory or link is, as far as a diff can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir { mode: u32 },
    /// A file: the number of its inode in [`Tree::files`].
    File(usize),
    /// A link.
    Link { target: String },
}

/// A file's content, whatever its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    pub colour: Option<Vec<u8>>,
}

/// A tree by path.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: BTreeMap<String, Node>,
    pub files: BTreeMap<usize, File>,
    next: usize,
}

/// One entry with nothing shared: what two trees are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flat {
    pub kind: Kind,
    pub mode: u32,
    pub hash: Option<String>,
    pub target: Option<String>,
    pub colour: Option<Vec<u8>>,
}

pub fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

pub fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Tree {
    pub fn is_dir(&self, path: &str) -> bool {
        matches!(self.nodes.get(path), Some(Node::Dir { .. }))
    }

    pub fn has(&self, path: &str) -> bool {
        self.nodes.contains_key(path)
    }

    /// Whether something can be made at `path`: its parent is a directory.
    pub fn has_parent(&self, path: &str) -> bool {
        parent(path).is_none_or(|p| self.is_dir(p))
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        match self.nodes.get(path)? {
            Node::File(id) => self.files.get(id),
            _ => None,
        }
    }

    pub fn file_mut(&mut self, path: &str) -> Option<&mut File> {
        match self.nodes.get(path)? {
            Node::File(id) => self.files.get_mut(id),
            _ => None,
        }
    }

    pub fn add_file(&mut self, path: &str, file: File) {
        self.next += 1;
        self.files.insert(self.next, file);
        self.nodes.insert(path.to_owned(), Node::File(self.next));
    }

    /// The path and everything below it.
    pub fn subtree(&self, path: &str) -> Vec<String> {
        self.nodes.keys().filter(|p| is_within(p, path)).cloned().collect()
    }

    pub fn remove(&mut self, path: &str) {
        self.nodes.retain(|p, _| !is_within(p, path));
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        for path in self.subtree(from) {
            let node = self.nodes.remove(&path).unwrap();
            self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
        }
    }

    /// Every entry with nothing shared.
    pub fn flat(&self) -> BTreeMap<String, Flat> {
        self.nodes.iter().map(|(path, node)| (path.clone(), self.flatten(node))).collect()
    }

    fn flatten(&self, node: &Node) -> Flat {
        let plain = Flat { kind: Kind::Directory, mode: 0, hash: None, target: None, colour: None };
        match node {
            Node::Dir { mode } => Flat { mode: *mode, ..plain },
            Node::Link { target } => Flat { kind: Kind::Symlink, target: Some(target.clone()), ..plain },
            Node::File(id) => {
                let file = &self.files[id];
                let hash = Some(blake3::hash(&file.content).to_hex().to_string());
                Flat { kind: Kind::File, mode: file.mode, hash, target: None, colour: file.colour.clone() }
            }
        }
    }
}

/// A real tree in the same terms.
pub fn flat_of(manifest: &Manifest) -> BTreeMap<String, Flat> {
    let entries = manifest.entries.iter().filter(|(path, _)| !path.as_os_str().is_empty());
    entries
        .map(|(path, entry)| {
            let flat = Flat {
                kind: entry.kind,
                mode: if entry.kind == Kind::Symlink { 0 } else { entry.mode },
                hash: entry.hash.clone(),
                target: entry.target.as_ref().map(|t| t.to_str().unwrap().to_owned()),
                colour: entry.xattrs.get(std::ffi::OsStr::new("user.colour")).cloned(),
            };
            (path.to_str().unwrap().to_owned(), flat)
        })
        .collect()
}

/// The paths at which two trees differ.
pub fn changed(old: &BTreeMap<String, Flat>, new: &BTreeMap<String, Flat>) -> BTreeSet<String> {
    old.keys().chain(new.keys()).filter(|path| old.get(*path) != new.get(*path)).cloned().collect()
}
