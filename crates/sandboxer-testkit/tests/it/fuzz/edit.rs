//! What programs and users do to a tree, as lines of shell.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;

use super::tree::{Node, is_within, parent};

pub const FILES: [&str; 8] = ["f", "g", "d/x", "d/y", "d/e/z", "n/a", "n/m/b", "h"];
pub const DIRECTORIES: [&str; 5] = ["d", "d/e", "n", "n/m", "empty"];

/// Fills the directory in which it runs.
pub const FIRST_TREE: &str =
    "mkdir -p d/e empty && for f in f g d/x d/y d/e/z; do seq -f \"$f %g\" 6 > $f; done";

/// One edit. It is left out where it makes no sense.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Adds a line to a file, or makes one.
    Append(&'static str),
    /// Writes other content to the same file.
    Overwrite(&'static str),
    /// Changes a line, as `sed -i` does: by a new file that takes the place of the old one.
    ChangeLine(&'static str, u8),
    /// Writes a new file and renames it into place, as editors do.
    SaveAs(&'static str),
    Remove(&'static str),
    RemoveTree(&'static str),
    MakeDirectory(&'static str),
    Move(&'static str, &'static str),
    Chmod(&'static str, &'static str),
    Symlink(&'static str),
    /// Gives a file a second name.
    HardLink(&'static str, &'static str),
    FileToDirectory(&'static str),
    DirectoryToFile(&'static str),
}

/// An edit as it is done.
pub struct Planned {
    /// The command, to be run at the root of the tree.
    pub line: String,
    /// The entries that it changes, with everything below them.
    pub targets: Vec<&'static str>,
}

pub fn any_path() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => select(&FILES[..]), 2 => select(&DIRECTORIES[..])]
}

pub fn any_edit() -> impl Strategy<Value = Edit> {
    // Some names often, so that both sides meet.
    let file = || prop_oneof![1 => select(&["g", "d/x", "n/a"][..]), 1 => select(&FILES[..])];
    let directory = || select(&DIRECTORIES[..]);
    prop_oneof![
        3 => file().prop_map(Edit::Append),
        2 => file().prop_map(Edit::Overwrite),
        3 => (file(), 1..7u8).prop_map(|(path, line)| Edit::ChangeLine(path, line)),
        3 => file().prop_map(Edit::SaveAs),
        4 => file().prop_map(Edit::Remove),
        2 => directory().prop_map(Edit::RemoveTree),
        3 => directory().prop_map(Edit::MakeDirectory),
        2 => (file(), file()).prop_map(|(from, to)| Edit::Move(from, to)),
        2 => (directory(), directory()).prop_map(|(from, to)| Edit::Move(from, to)),
        2 => (file(), select(&["600", "755"][..])).prop_map(|(path, mode)| Edit::Chmod(path, mode)),
        1 => (directory(), select(&["700", "755"][..])).prop_map(|(path, mode)| Edit::Chmod(path, mode)),
        1 => file().prop_map(Edit::Symlink),
        1 => (file(), file()).prop_map(|(from, to)| Edit::HardLink(from, to)),
        1 => file().prop_map(Edit::FileToDirectory),
        1 => directory().prop_map(Edit::DirectoryToFile),
    ]
}

impl Edit {
    /// How it is done in the tree at `root`, where no other edit has the number `n`; `None` where it makes no sense.
    pub fn plan(&self, root: &Path, n: u32) -> Option<Planned> {
        let node = |path: &str| Node::read(&root.join(path));
        let is_dir = |path: &str| node(path).as_ref().is_some_and(Node::is_dir);
        let is_file = |path: &str| node(path).as_ref().is_some_and(Node::is_file);
        let has_parent = |path: &str| parent(path).is_none_or(is_dir);
        let is_writable = |path: &str| is_file(path) || (node(path).is_none() && has_parent(path));
        let (line, makes_sense) = match self {
            Self::Append(p) => (format!("echo 'added {n}' >> {p}"), is_writable(p)),
            Self::Overwrite(p) => (format!("printf 'new {n}\\nlast\\n' > {p}"), is_writable(p)),
            Self::ChangeLine(p, at) => (format!("sed -i '{at}s/$/ changed {n}/' {p}"), is_file(p)),
            Self::SaveAs(p) => (format!("echo 'saved {n}' > {p}.new && mv {p}.new {p}"), is_writable(p)),
            Self::Remove(p) => (format!("rm {p}"), node(p).is_some() && !is_dir(p)),
            Self::RemoveTree(p) => (format!("rm -r {p}"), is_dir(p)),
            Self::MakeDirectory(p) => (format!("mkdir {p}"), node(p).is_none() && has_parent(p)),
            Self::Move(from, to) => {
                let is_free = has_parent(to) && (node(to).is_none() || (!is_dir(from) && is_file(to)));
                let is_nested = is_within(to, from) || is_within(from, to);
                (format!("mv -T {from} {to}"), node(from).is_some() && is_free && !is_nested)
            }
            Self::Chmod(p, mode) => (format!("chmod {mode} {p}"), is_file(p) || is_dir(p)),
            Self::Symlink(p) => (format!("ln -s target{n} {p}"), node(p).is_none() && has_parent(p)),
            Self::HardLink(from, to) => {
                (format!("ln {from} {to}"), is_file(from) && node(to).is_none() && has_parent(to))
            }
            Self::FileToDirectory(p) => {
                (format!("rm {p} && mkdir {p} && echo 'inner {n}' > {p}/inner"), is_file(p))
            }
            Self::DirectoryToFile(p) => (format!("rm -r {p} && echo 'flat {n}' > {p}"), is_dir(p)),
        };
        makes_sense.then(|| Planned { line, targets: self.targets() })
    }

    fn targets(&self) -> Vec<&'static str> {
        match self {
            Self::Move(from, to) | Self::HardLink(from, to) => vec![from, to],
            Self::Append(p)
            | Self::Overwrite(p)
            | Self::ChangeLine(p, _)
            | Self::SaveAs(p)
            | Self::Remove(p)
            | Self::RemoveTree(p)
            | Self::MakeDirectory(p)
            | Self::Chmod(p, _)
            | Self::Symlink(p)
            | Self::FileToDirectory(p)
            | Self::DirectoryToFile(p) => vec![p],
        }
    }
}

/// The other names of the files among `targets`, which change with them.
pub fn other_names(root: &Path, targets: &[&'static str]) -> Vec<&'static str> {
    let inode = |path: &str| {
        let meta = fs::symlink_metadata(root.join(path)).ok()?;
        (meta.is_file() && meta.nlink() > 1).then(|| (meta.dev(), meta.ino()))
    };
    let changed: Vec<_> = targets.iter().filter_map(|target| inode(target)).collect();
    FILES.into_iter().filter(|path| inode(path).is_some_and(|found| changed.contains(&found))).collect()
}
