//! Operations that anybody may do to a tree, on the model and on the real thing alike.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use sandboxer_testkit::manifest::{move_entry, set_xattr};

use super::model::{File, Node, Tree, is_within};

/// Kept by every directory, so that the test itself can go on without being root.
const OWN_DIRECTORY: u32 = 0o700;

/// One edit of a tree.
#[derive(Clone, Debug)]
pub enum Edit {
    Write(String, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String),
    Mkdir(String),
    Remove(String),
    RemoveTree(String),
    Rename(String, String),
    Chmod(String, u32),
    Symlink(String, String),
    Hardlink(String, String),
    Xattr(String, Vec<u8>),
}

/// A path of one to three components out of few names, so that operations meet.
pub fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", "sp ace"]);
    prop::collection::vec(name, 1..=3).prop_map(|parts| parts.join("/"))
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

/// Any edit.
pub fn edit() -> impl Strategy<Value = Edit> {
    let mode = prop::sample::select(vec![0o600, 0o644, 0o755, 0o700]);
    let target = prop::sample::select(vec!["a", "../b", "/nowhere", "c/a"]).prop_map(str::to_owned);
    prop_oneof![
        6 => (path(), content()).prop_map(|(p, c)| Edit::Write(p, c)),
        1 => (path(), content()).prop_map(|(p, c)| Edit::Append(p, c)),
        1 => path().prop_map(Edit::Truncate),
        4 => path().prop_map(Edit::Mkdir),
        2 => path().prop_map(Edit::Remove),
        1 => path().prop_map(Edit::RemoveTree),
        3 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        2 => (path(), mode).prop_map(|(p, m)| Edit::Chmod(p, m)),
        1 => (path(), target).prop_map(|(p, t)| Edit::Symlink(p, t)),
        2 => (path(), path()).prop_map(|(from, to)| Edit::Hardlink(from, to)),
        1 => (path(), content()).prop_map(|(p, c)| Edit::Xattr(p, c)),
    ]
}

impl Edit {
    /// Does it to the model; false where it makes no sense there, and must not be done to the real tree either.
    pub fn model(&self, tree: &mut Tree) -> bool {
        match self {
            Self::Write(path, content) if !tree.has(path) && tree.has_parent(path) => {
                tree.add_file(path, File { content: content.clone(), mode: 0o644, colour: None });
            }
            Self::Write(path, content) => match tree.file_mut(path) {
                Some(file) => file.content.clone_from(content),
                None => return false,
            },
            Self::Append(path, more) => match tree.file_mut(path) {
                Some(file) => file.content.extend_from_slice(more),
                None => return false,
            },
            Self::Truncate(path) => match tree.file_mut(path) {
                Some(file) => file.content.truncate(file.content.len() / 2),
                None => return false,
            },
            Self::Mkdir(path) if !tree.has(path) && tree.has_parent(path) => {
                tree.nodes.insert(path.clone(), Node::Dir { mode: 0o755 });
            }
            Self::Remove(path) if tree.has(path) && !tree.is_dir(path) => tree.remove(path),
            Self::RemoveTree(path) if tree.is_dir(path) => tree.remove(path),
            Self::Rename(from, to) => return rename(tree, from, to),
            Self::Chmod(path, mode) => match tree.nodes.get_mut(path) {
                Some(Node::Dir { mode: old }) => *old = *mode | OWN_DIRECTORY,
                Some(Node::File(_)) => tree.file_mut(path).unwrap().mode = *mode,
                _ => return false,
            },
            Self::Symlink(path, target) if !tree.has(path) && tree.has_parent(path) => {
                tree.nodes.insert(path.clone(), Node::Link { target: target.clone() });
            }
            Self::Hardlink(from, to) if tree.file(from).is_some() && !tree.has(to) && tree.has_parent(to) => {
                let node = tree.nodes[from].clone();
                tree.nodes.insert(to.clone(), node);
            }
            Self::Xattr(path, value) => match tree.file_mut(path) {
                Some(file) => file.colour = Some(value.clone()),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Does it to the real tree at `root`.
    pub fn real(&self, root: &Path) {
        let at = |path: &str| root.join(path);
        match self {
            Self::Write(path, content) => {
                let fresh = !at(path).exists();
                fs::write(at(path), content).unwrap();
                if fresh {
                    fs::set_permissions(at(path), fs::Permissions::from_mode(0o644)).unwrap();
                }
            }
            Self::Append(path, more) => {
                fs::OpenOptions::new().append(true).open(at(path)).unwrap().write_all(more).unwrap();
            }
            Self::Truncate(path) => {
                let file = fs::OpenOptions::new().write(true).open(at(path)).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            }
            Self::Mkdir(path) => {
                fs::create_dir(at(path)).unwrap();
                fs::set_permissions(at(path), fs::Permissions::from_mode(0o755)).unwrap();
            }
            Self::Remove(path) => fs::remove_file(at(path)).unwrap(),
            Self::RemoveTree(path) => fs::remove_dir_all(at(path)).unwrap(),
            Self::Rename(from, to) => move_entry(&at(from), &at(to)),
            Self::Chmod(path, mode) => {
                let own = if at(path).is_dir() { OWN_DIRECTORY } else { 0 };
                fs::set_permissions(at(path), fs::Permissions::from_mode(mode | own)).unwrap();
            }
            Self::Symlink(path, target) => symlink(target, at(path)).unwrap(),
            Self::Hardlink(from, to) => fs::hard_link(at(from), at(to)).unwrap(),
            Self::Xattr(path, value) => assert!(set_xattr(&at(path), "user.colour", value)),
        }
    }
}

/// Renames onto nothing, or a file onto another file.
fn rename(tree: &mut Tree, from: &str, to: &str) -> bool {
    if !tree.has(from) || !tree.has_parent(to) || is_within(to, from) || is_within(from, to) {
        return false;
    }
    let same_file =
        || matches!((&tree.nodes[from], &tree.nodes[to]), (Node::File(a), Node::File(b)) if a == b);
    if tree.has(to) && (tree.is_dir(to) || tree.is_dir(from) || same_file()) {
        return false;
    }
    tree.nodes.remove(to);
    tree.rename(from, to);
    true
}
