//! What of a checkout is not as in a commit, and what of it git ignores: for a sandbox that is to begin clean, elsewhere, or without ignored files.
//!
//! Git looks at the user's files with a git directory of ours, sown like the agent's: a copy of the index, the same rules, no filters and no
//! programs. The user's own index is not written, not even refreshed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::git::{Git, Place, Version, version};
use crate::hostile;
use crate::oid::Oid;
use crate::private::{self, Seed};
use crate::scratch::own_place;
use crate::screen::holds_below;

/// The first git that collapses directories of ignored files and misses none.
const COLLAPSES: Version = Version { major: 2, minor: 32 };

/// A checkout to be looked at.
#[derive(Debug)]
pub struct Checkout<'a> {
    /// What its private repository would be made from; branch, base and refs do not matter.
    pub seed: Seed<'a>,
    /// The top of its files.
    pub work_tree: &'a Path,
    /// A directory of ours for what is needed meanwhile.
    pub work: &'a Path,
    /// Settings of the user's that count besides the repository's own, as `key=value`: `core.excludesFile`, `core.autocrlf`, `core.eol`.
    pub settings: &'a [OsString],
}

/// Something that is not as in the commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Differs {
    /// The commit has it so, and the work tree otherwise or not at all.
    Tracked {
        /// Where.
        path: RelPath,
        /// The mode that the commit gives it, such as `0o100644`.
        mode: u32,
        /// Its blob.
        blob: Oid,
    },
    /// The work tree has it, the commit has not, and it is not ignored.
    Extra {
        /// Where. A repository of its own is one entry.
        path: RelPath,
    },
}

impl Differs {
    /// Where it is.
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Tracked { path, .. } | Self::Extra { path } => path,
        }
    }
}

/// What of the work tree differs from `commit`; a file that was only touched does not. By path.
pub fn differing(checkout: &Checkout<'_>, commit: &Oid) -> Result<Vec<Differs>> {
    let view = View::open(checkout)?;
    let before = view.paths(&["ls-files", "-z", "--cached"])?;
    view.git().args(["read-tree", "--reset", commit.as_str()]).output()?;
    // It says by failing that something differs.
    view.git().args(["update-index", "-q", "--refresh"]).try_output()?;
    let words = ["diff-files", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=all"];
    let changes = parse_changes(&view.git().args(words).output()?)?;
    let same = view.same_content(&changes)?;
    let changes = changes.into_iter().filter(|change| !same.contains(&change.path));
    let mut found: Vec<Differs> = changes.map(Change::differs).collect();
    let now = view.paths(&["ls-files", "-z", "--cached"])?;
    let dropped = before.difference(&now).filter(|path| view.has(path)).cloned();
    let others = view.paths(&["ls-files", "-z", "--others", "--exclude-standard"])?;
    let extras: BTreeSet<RelPath> = others.into_iter().chain(dropped).collect();
    found.extend(extras.into_iter().map(|path| Differs::Extra { path }));
    found.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(found)
}

/// What of the work tree is ignored and not tracked; a directory that is ignored as a whole is one entry.
pub fn ignored(checkout: &Checkout<'_>) -> Result<Vec<RelPath>> {
    let view = View::open(checkout)?;
    let mut words = vec!["ls-files", "-z", "--others", "--ignored", "--exclude-standard"];
    // An older git leaves out, of directories, those that hold nothing but what is ignored.
    words.extend(version().is_ok_and(|version| version >= COLLAPSES).then_some("--directory"));
    let listed = view.paths(&words)?;
    // A directory that is not ignored itself is listed with what is ignored in it.
    Ok(listed.iter().filter(|path| !holds_below(&listed, path)).cloned().collect())
}

/// A git directory of ours over the user's files.
struct View<'a> {
    dir: PathBuf,
    checkout: &'a Checkout<'a>,
}

impl<'a> View<'a> {
    fn open(checkout: &'a Checkout<'a>) -> Result<Self> {
        let view = Self { dir: own_place(&checkout.work.join("view")), checkout };
        std::fs::create_dir_all(&view.dir).map_err(|e| Error::io("create directory", &view.dir, e))?;
        private::sow(&checkout.seed, &view.dir)?;
        Ok(view)
    }

    fn git(&self) -> Git {
        let tree = self.checkout.work_tree;
        let git = Git::at(Place::Dir(&self.dir)).env("GIT_WORK_TREE", tree).arg("-C").arg(tree);
        self.checkout.settings.iter().fold(git, |git, setting| git.set(setting))
    }

    /// Paths that git lists; a directory's has a slash at its end.
    fn paths(&self, words: &[&str]) -> Result<BTreeSet<RelPath>> {
        let told = self.git().args(words).output()?;
        let path = |text: &[u8]| hostile::below(text.strip_suffix(b"/").unwrap_or(text));
        Ok(told.split(|b| *b == 0).filter_map(path).collect())
    }

    /// Those whose content is the blob's once it is stored: git goes by the size alone where that has changed, as it does with line ends.
    fn same_content(&self, changes: &[Change]) -> Result<BTreeSet<RelPath>> {
        let asked: Vec<&Change> = changes.iter().filter(|change| change.is_same_kind()).collect();
        let paths: Vec<u8> = asked.iter().flat_map(|change| line_of(&change.path)).collect();
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        // Where a file goes away meanwhile, all of them count as different.
        let told = self.git().args(["hash-object", "--stdin-paths"]).feed(&paths).unwrap_or_default();
        let told = String::from_utf8_lossy(&told);
        let pairs = asked.iter().zip(told.lines());
        Ok(pairs
            .filter(|(change, oid)| change.blob.as_str() == *oid)
            .map(|(change, _)| change.path.clone())
            .collect())
    }

    fn has(&self, path: &RelPath) -> bool {
        self.checkout.work_tree.join(path.as_path()).symlink_metadata().is_ok()
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // What is left is removed by one that is made here later.
        let _ = sandboxer_fs::remove_tree(&self.dir);
    }
}

/// A path on a line of its own, quoted where it would not stay there.
fn line_of(path: &RelPath) -> Vec<u8> {
    let bytes = path.as_bytes();
    if !bytes.starts_with(b"\"") && !bytes.contains(&b'\n') && !bytes.ends_with(b"\r") {
        return [bytes, b"\n"].concat();
    }
    let octal = |byte: &u8| format!("\\{byte:03o}").into_bytes();
    [b"\"".to_vec(), bytes.iter().flat_map(octal).collect(), b"\"\n".to_vec()].concat()
}

/// A line of `diff-files`.
struct Change {
    path: RelPath,
    mode: u32,
    blob: Oid,
    /// The mode in the work tree; 0 where nothing is.
    found: u32,
}

impl Change {
    fn differs(self) -> Differs {
        Differs::Tracked { path: self.path, mode: self.mode, blob: self.blob }
    }

    /// Whether only its content can differ.
    fn is_same_kind(&self) -> bool {
        const REGULAR: u32 = 0o100_000;
        self.mode == self.found && self.mode & 0o170_000 == REGULAR
    }
}

/// Pairs of `:MODE MODE OID OID STATUS` and a path.
fn parse_changes(told: &[u8]) -> Result<Vec<Change>> {
    let mut fields = told.split(|b| *b == 0);
    let mut changes = Vec::new();
    while let (Some(line), Some(path)) = (fields.next(), fields.next()) {
        let line = String::from_utf8_lossy(line).into_owned();
        let odd = || Error::usage(format!("`git diff-files` said {line:?}"));
        let words: Vec<&str> = line.trim_start_matches(':').split(' ').collect();
        let [mode, found, blob, ..] = words.as_slice() else { return Err(odd()) };
        let number = |text: &str| u32::from_str_radix(text, 8).map_err(|_| odd());
        let (mode, found, blob) = (number(mode)?, number(found)?, blob.parse()?);
        changes.push(Change { path: RelPath::from_bytes(path)?, mode, blob, found });
    }
    Ok(changes)
}

#[cfg(test)]
#[path = "differing_tests.rs"]
mod tests;
