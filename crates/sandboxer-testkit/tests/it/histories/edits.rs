//! What people and programs do to a tree, on the model and on the real one alike.

use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;

use sandboxer_testkit::manifest::move_entry;

use super::tree::{Node, Tree, has_parent, is_dir, is_within, remove_below};

pub const LINES: usize = 12;
const TEXTS: [&str; 8] = ["a", "run", "d/c", "d/e/f", "new", "d/new", "n/x", "m/x"];
const BINARIES: [&str; 2] = ["bin", "d/bin"];
const DIRECTORIES: [&str; 5] = ["d", "d/e", "n", "m", "empty"];
const LINKS: [&str; 2] = ["link", "d/link"];

/// One edit.
#[derive(Clone)]
pub enum Edit {
    /// Another text in one line of a file, or a new file of such lines.
    Line(&'static str, usize, u8),
    /// A line more.
    Insert(&'static str, usize, u8),
    /// A line less.
    Cut(&'static str, usize),
    /// Other binary content.
    Binary(&'static str, u8),
    Mkdir(&'static str),
    Remove(&'static str),
    RemoveTree(&'static str),
    Rename(&'static str, &'static str),
    Chmod(&'static str, u32),
    Symlink(&'static str, u8),
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(path, at, text) => write!(f, "line {at} of {path} := v{text}"),
            Self::Insert(path, at, text) => write!(f, "insert v{text} before line {at} of {path}"),
            Self::Cut(path, at) => write!(f, "cut line {at} of {path}"),
            Self::Binary(path, text) => write!(f, "binary {path} := v{text}"),
            Self::Mkdir(path) => write!(f, "mkdir {path}"),
            Self::Remove(path) => write!(f, "rm {path}"),
            Self::RemoveTree(path) => write!(f, "rm -r {path}"),
            Self::Rename(from, to) => write!(f, "mv {from} {to}"),
            Self::Chmod(path, mode) => write!(f, "chmod {mode:o} {path}"),
            Self::Symlink(path, to) => write!(f, "ln -s target{to} {path}"),
        }
    }
}

fn text_path() -> impl Strategy<Value = &'static str> {
    // Two of them often, so that both sides meet.
    prop_oneof![3 => select(&["a", "d/c"][..]), 2 => select(&TEXTS[..])]
}

/// Any path that there may be.
pub fn path() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => text_path(),
        1 => select(&BINARIES[..]),
        2 => select(&DIRECTORIES[..]),
        1 => select(&LINKS[..]),
    ]
}

/// Any edit.
pub fn edit() -> impl Strategy<Value = Edit> {
    let at = || prop_oneof![select(&[1, LINES - 1][..]), 0..LINES];
    let name = prop_oneof![4 => text_path(), 1 => select(&BINARIES[..]), 1 => select(&LINKS[..])];
    let mode = select(&[0o600, 0o644, 0o755][..]);
    let directory_mode = select(&[0o700, 0o755][..]);
    prop_oneof![
        10 => (text_path(), at(), 0..3u8).prop_map(|(p, at, v)| Edit::Line(p, at, v)),
        2 => (text_path(), at(), 0..3u8).prop_map(|(p, at, v)| Edit::Insert(p, at, v)),
        2 => (text_path(), at()).prop_map(|(p, at)| Edit::Cut(p, at)),
        2 => (select(&BINARIES[..]), 0..3u8).prop_map(|(p, v)| Edit::Binary(p, v)),
        2 => select(&DIRECTORIES[..]).prop_map(Edit::Mkdir),
        3 => name.prop_map(Edit::Remove),
        1 => select(&DIRECTORIES[..]).prop_map(Edit::RemoveTree),
        2 => (text_path(), text_path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => (select(&["d", "d/e", "n"][..]), select(&["n", "m"][..])).prop_map(|(from, to)| Edit::Rename(from, to)),
        3 => (text_path(), mode).prop_map(|(p, m)| Edit::Chmod(p, m)),
        1 => (select(&["d", "empty"][..]), directory_mode).prop_map(|(p, m)| Edit::Chmod(p, m)),
        1 => (select(&LINKS[..]), 0..2u8).prop_map(|(p, t)| Edit::Symlink(p, t)),
    ]
}

fn numbered() -> Vec<String> {
    (0..LINES).map(|n| format!("line {n}")).collect()
}

/// The text of a file of lines.
pub fn text(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// What every history begins with.
pub fn first_tree() -> Tree {
    let file = |bytes: Vec<u8>, mode| Node::File { bytes, mode };
    let prose = || text(&numbered());
    let directory = || Node::Dir { mode: 0o755 };
    [
        ("a", file(prose(), 0o644)),
        ("run", file(b"#!/bin/sh\nexit 0\n".to_vec(), 0o755)),
        ("bin", file(b"\0\x01binary".to_vec(), 0o644)),
        ("link", Node::Link { target: "a".to_owned() }),
        ("empty", directory()),
        ("d", directory()),
        ("d/c", file([prose(), b"c\n".to_vec()].concat(), 0o600)),
        ("d/e", directory()),
        ("d/e/f", file([b"f\n".to_vec(), prose()].concat(), 0o644)),
    ]
    .map(|(path, node)| (path.to_owned(), node))
    .into()
}

/// Makes a real tree of a model.
pub fn write(root: &Path, tree: &Tree) {
    tree.iter().for_each(|(path, node)| put(&root.join(path), node));
}

fn put(at: &Path, node: &Node) {
    let mode = |mode: &u32| fs::set_permissions(at, fs::Permissions::from_mode(*mode)).unwrap();
    match node {
        Node::Dir { mode: m } => {
            fs::create_dir(at).unwrap();
            mode(m);
        }
        Node::File { bytes, mode: m } => {
            fs::write(at, bytes).unwrap();
            mode(m);
        }
        Node::Link { target } => symlink(target, at).unwrap(),
    }
}

impl Edit {
    /// What it makes of a tree; `None` where it makes no sense there, or no difference.
    pub fn applied(&self, tree: &Tree) -> Option<Tree> {
        let mut new = tree.clone();
        match self {
            Self::Line(path, at, value) => edit_lines(&mut new, path, |lines| {
                let at = *at % lines.len().max(1);
                match lines.get_mut(at) {
                    Some(line) => *line = format!("line {at} v{value}"),
                    None => lines.push(format!("line 0 v{value}")),
                }
            })?,
            Self::Insert(path, at, value) => edit_lines(&mut new, path, |lines| {
                lines.insert(*at % (lines.len() + 1), format!("inserted v{value}"));
            })?,
            Self::Cut(path, at) => edit_lines(&mut new, path, |lines| {
                if lines.len() > 1 {
                    lines.remove(*at % lines.len());
                }
            })?,
            Self::Binary(path, value) => {
                let bytes = format!("\0binary {path} v{value}").into_bytes();
                let mode = tree.get(*path).map_or(0o644, Node::mode);
                has_parent(tree, path).then(|| new.insert((*path).to_owned(), Node::File { bytes, mode }))?;
            }
            Self::Mkdir(path) => {
                let free = has_parent(tree, path) && !tree.contains_key(*path);
                free.then(|| new.insert((*path).to_owned(), Node::Dir { mode: 0o755 }))?;
            }
            Self::Remove(path) => drop(new.remove(*path).filter(|node| !node.is_dir())?),
            Self::RemoveTree(path) => remove_below(&mut new, path),
            Self::Rename(from, to) => rename(&mut new, from, to)?,
            Self::Chmod(path, mode) => {
                let node = new.remove(*path)?.with_mode(*mode);
                new.insert((*path).to_owned(), node);
            }
            Self::Symlink(path, to) => {
                let target = format!("target{to}");
                has_parent(tree, path).then(|| new.insert((*path).to_owned(), Node::Link { target }))?;
            }
        }
        (new != *tree).then_some(new)
    }

    /// Does the same to the real tree at `root`, in the way a program would.
    pub fn real(&self, root: &Path, old: &Tree, new: &Tree) {
        match self {
            Self::RemoveTree(path) => fs::remove_dir_all(root.join(path)).unwrap(),
            Self::Rename(from, to) => move_entry(&root.join(from), &root.join(to)),
            Self::Line(path, ..)
            | Self::Insert(path, ..)
            | Self::Cut(path, ..)
            | Self::Binary(path, _)
            | Self::Mkdir(path)
            | Self::Remove(path)
            | Self::Chmod(path, _)
            | Self::Symlink(path, _) => replace(&root.join(path), old.get(*path), new.get(*path)),
        }
    }
}

fn replace(at: &Path, old: Option<&Node>, new: Option<&Node>) {
    match (old, new) {
        (Some(old), Some(new)) if old.same_content(new) => {
            fs::set_permissions(at, fs::Permissions::from_mode(new.mode())).unwrap();
        }
        (Some(Node::File { .. }), Some(Node::File { bytes, .. })) => fs::write(at, bytes).unwrap(),
        (old, new) => {
            if old.is_some() {
                fs::remove_file(at).unwrap();
            }
            if let Some(new) = new {
                put(at, new);
            }
        }
    }
}

fn edit_lines(tree: &mut Tree, path: &str, edit: impl FnOnce(&mut Vec<String>)) -> Option<()> {
    let (mut found, mode) = match tree.get(path) {
        Some(Node::File { bytes, mode }) => (lines(bytes), *mode),
        None if has_parent(tree, path) => (numbered(), 0o644),
        _ => return None,
    };
    edit(&mut found);
    tree.insert(path.to_owned(), Node::File { bytes: text(&found), mode });
    Some(())
}

fn rename(tree: &mut Tree, from: &str, to: &str) -> Option<()> {
    let nested = is_within(to, from) || is_within(from, to);
    if !tree.contains_key(from) || nested || !has_parent(tree, to) || is_dir(tree, to) {
        return None;
    }
    if is_dir(tree, from) && tree.contains_key(to) {
        return None;
    }
    let moved: Vec<String> = tree.keys().filter(|p| is_within(p, from)).cloned().collect();
    for path in moved {
        let node = tree.remove(&path)?;
        tree.insert(format!("{to}{}", &path[from.len()..]), node);
    }
    Some(())
}
