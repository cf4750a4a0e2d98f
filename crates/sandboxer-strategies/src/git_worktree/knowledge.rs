//! What git knows of the paths that a commit is about: what the base, the tip and the user's index have there, and whether the user's own files are
//! just that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FileType;
use sandboxer_core::model::{Conflict, DiffEntry, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::content::read_all;
use sandboxer_fs::durable;
use sandboxer_fs::filter::Screen;
use sandboxer_fs::hash::ContentHash;
use sandboxer_fs::root::{Root, stamp_of_fd};
use sandboxer_fs::space::History;
use sandboxer_git::attributes::{self, AttributeFiles, Attributes, ToStore};
use sandboxer_git::index::{self, IndexEntry};
use sandboxer_git::ledger::Ledger;
use sandboxer_git::objects::{self, TreeEntry, Trees};
use sandboxer_git::oid::{ObjectFormat, Oid};
use sandboxer_git::screen::{Excludes, GitScreen, PrivateIndex, Tracked, names_git, nested_repository};
use sandboxer_git::settings::FileSettings;

use super::blocked::Blocked;
use super::changes::paths_of;
use super::spec::{GitSpec, place};

/// Symbolic links, as git calls their mode.
pub const LINK: u32 = 0o120_000;
/// Files that can be run.
pub const PROGRAM: u32 = 0o100_755;
/// All other files.
pub const FILE: u32 = 0o100_644;

/// A commit's answers, asked for one path at a time. Git is started with the first question.
#[derive(Clone)]
pub struct InBase(Arc<Asked>);

struct Asked {
    ledger: Ledger,
    commit: Option<Oid>,
    trees: Mutex<Option<Trees>>,
}

impl InBase {
    /// Of `commit`; of nothing, where there is none.
    pub fn of(ledger: &Ledger, commit: Option<&Oid>) -> Self {
        Self(Arc::new(Asked { ledger: ledger.clone(), commit: commit.cloned(), trees: Mutex::default() }))
    }

    /// What it has at `path`.
    pub fn entry(&self, path: &RelPath) -> Result<Option<TreeEntry>> {
        Ok(self.ask(|trees| trees.entry(path))?.flatten())
    }

    /// The content of the file that it has at `path`; `None` where that is none.
    pub fn content(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.entry(path)?.filter(|e| matches!(e.mode, FILE | PROGRAM)) else {
            return Ok(None);
        };
        self.ask(|trees| trees.blob(&entry.oid))
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Trees) -> Result<T>) -> Result<Option<T>> {
        let Some(commit) = &self.0.commit else { return Ok(None) };
        let mut trees = self.0.trees.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *trees {
            Some(trees) => question(trees),
            none => question(none.insert(Trees::of(&self.0.ledger, commit)?)),
        }
        .map(Some)
    }

    /// Whether it has anything there. What cannot be told is shown, so it has.
    fn has(&self, path: &RelPath) -> bool {
        !matches!(self.entry(path), Ok(None))
    }

    /// Whether it has files below that directory. What cannot be told is refused, so it has not.
    fn has_files_in(&self, dir: &RelPath) -> bool {
        matches!(self.entry(dir), Ok(Some(entry)) if is_tree(&entry))
    }
}

/// The screen before a difference, with what can never be committed.
pub struct View {
    screen: GitScreen<Known>,
    tree: Arc<Root>,
    base: InBase,
}

struct Known {
    base: InBase,
    index: PrivateIndex,
}

impl Tracked for Known {
    fn in_base(&self, path: &RelPath) -> bool {
        self.base.has(path)
    }

    fn in_index(&self) -> Arc<BTreeSet<RelPath>> {
        self.index.names()
    }
}

impl View {
    /// Of the tree at `tree`, for the workspace at `home`.
    pub fn of(spec: &GitSpec, home: &Path, tree: &Path, base: InBase) -> Result<Self> {
        let tree = Arc::new(Root::open(tree)?);
        let index = PrivateIndex::new(tree.clone(), place(home), spec.repository.format);
        let known = Known { base: base.clone(), index };
        Ok(Self { screen: GitScreen::new(tree.clone(), &excludes(spec)?, known), tree, base })
    }
}

impl Screen for View {
    fn hides(&self, path: &RelPath, is_dir: bool) -> bool {
        self.screen.hides(path, is_dir)
    }

    fn refuses(&self, path: &RelPath) -> Option<String> {
        if names_git(path) {
            return Some("git takes such a name for its own, and tracks nothing there".to_owned());
        }
        let nested = nested_repository(&self.tree, path, |dir| self.base.has_files_in(dir))?;
        Some(format!("{nested} is a repository of its own, which this one cannot track"))
    }
}

/// Ignore rules that are not in the tree.
fn excludes(spec: &GitSpec) -> Result<Excludes> {
    let repository = &spec.repository;
    let settings = FileSettings::of(repository)?;
    Ok(Excludes {
        repository: std::fs::read(repository.common_dir.join("info/exclude")).unwrap_or_default(),
        user: settings.excludes,
        ignore_case: settings.ignore_case,
    })
}

/// What is where, for the paths of one commit.
pub struct Facts {
    /// What the tip of the target has.
    pub tip: BTreeMap<RelPath, TreeEntry>,
    /// What the user's index has.
    pub index: BTreeMap<RelPath, IndexEntry>,
    /// Files of the user's that are as the index has them once they are converted; found out for all when one is asked for.
    converted: Mutex<Option<Arc<BTreeSet<RelPath>>>>,
}

/// Something of the user's in the way of a commit.
pub struct Way {
    /// What it is.
    pub reason: &'static str,
    /// Whether what is staged is neither in the tip nor in the file, so that it would be lost.
    pub is_only_staged: bool,
}

impl Facts {
    /// Asks git, once for each.
    pub fn of(spec: &GitSpec, ledger: &Ledger, tip: Option<&Oid>, paths: &[RelPath]) -> Result<Self> {
        let tip = match tip {
            Some(tip) => objects::tree_entries(ledger, tip, paths)?,
            None => BTreeMap::new(),
        };
        Ok(Self { tip, index: index::entries(&spec.repository, paths)?, converted: Mutex::default() })
    }

    /// What the user has at `path` that a commit would go over; `None` where it is as the tip has it.
    pub fn in_the_way(&self, work: &WorkTree<'_>, path: &RelPath) -> Result<Option<Way>> {
        let way = |reason| Ok(Some(Way { reason, is_only_staged: false }));
        let (tip, index) = (self.tip.get(path).filter(|t| !is_tree(t)), self.index.get(path));
        let file = work.entry(path, index.map(|entry| entry.mode))?;
        let Some(index) = index else {
            return match (tip, file) {
                (Some(_), _) => way("removed from the checkout's index, and not committed"),
                (None, Some(_)) => way("in the checkout too, and not tracked"),
                (None, None) => Ok(None),
            };
        };
        if index.stage != 0 {
            return way("in conflict in the checkout's index");
        }
        if tip.map(|t| (t.mode, &t.oid)) != Some((index.mode, &index.oid)) {
            let is_only_staged = file.as_ref() != Some(&(index.mode, index.oid.clone()));
            return Ok(Some(Way { reason: "staged in the checkout, and not committed", is_only_staged }));
        }
        match file {
            Some((mode, oid)) if mode == index.mode && oid == index.oid => Ok(None),
            // What is not checked out cannot be changed there.
            None if index.special.is_some() => Ok(None),
            None => way("deleted in the checkout, and not committed"),
            Some((mode, _)) if mode == index.mode && self.converts(work, path)? => Ok(None),
            Some(_) => way("changed in the checkout, and not committed"),
        }
    }
}

impl Facts {
    /// Whether the user's file at `path` is as the index has it once its line ends are git's.
    fn converts(&self, work: &WorkTree<'_>, path: &RelPath) -> Result<bool> {
        let mut converted = self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &*converted {
            Some(known) => known.clone(),
            None => converted.insert(Arc::new(work.converted(&self.index)?)).clone(),
        };
        Ok(known.contains(path))
    }
}

/// As git knows the modes of files; where a file's own says nothing, as it was known before.
pub fn mode_of_file(mode: u32, known: Option<u32>) -> u32 {
    match known {
        Some(known @ (FILE | PROGRAM)) => known,
        _ if mode & 0o100 != 0 => PROGRAM,
        _ => FILE,
    }
}

/// Whether it stands for a directory.
pub fn is_tree(entry: &TreeEntry) -> bool {
    entry.mode == 0o040_000
}

/// The user's files.
pub struct WorkTree<'a> {
    /// Where.
    pub root: &'a Root,
    /// Of which repository.
    pub spec: &'a GitSpec,
    /// The workspace's own directory, for what git has to convert.
    pub home: &'a Path,
    /// Whether files can be told to be programs by their mode.
    pub file_mode: bool,
}

impl WorkTree<'_> {
    /// Mode and object that the file at `path`, which is `known` to have some mode, would have, unconverted; `None` where there is none.
    fn entry(&self, path: &RelPath, known: Option<u32>) -> Result<Option<(u32, Oid)>> {
        let Some(parent) = self.root.find_parent(path)? else { return Ok(None) };
        let Some(stamp) = parent.stamp(path.name())? else { return Ok(None) };
        let format = self.spec.repository.format;
        match FileType::from_raw_mode(stamp.mode) {
            FileType::Symlink => Ok(Some((LINK, format.blob(&parent.read_link(path.name())?)))),
            FileType::RegularFile => {
                let mode = mode_of_file(stamp.mode, known.filter(|_| !self.file_mode));
                Ok(Some((mode, format.blob(&self.read(path)?.unwrap_or_default()))))
            }
            FileType::Directory => Ok(None),
            _ => Ok(Some((0, format.zero()))),
        }
    }

    /// The content of the file at `path`.
    pub fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let Some(parent) = self.root.find_parent(path)? else { return Ok(None) };
        let Some(fd) = sandboxer_fs::space::open_regular(&parent, path)? else { return Ok(None) };
        let failed = |e: std::io::Error| Error::io("read", self.root.shown(path), e);
        let size = stamp_of_fd(&fd).map_err(|e| failed(e.into()))?.size;
        read_all(fd, size).map(Some).map_err(failed)
    }

    /// The files that are what `index` has once their line ends are git's, and not before.
    fn converted(&self, index: &BTreeMap<RelPath, IndexEntry>) -> Result<BTreeSet<RelPath>> {
        let conversions = Conversions::of(self.spec, self.home)?;
        let attributes = conversions.within(self.root);
        let rules = attributes.of(&index.keys().cloned().collect::<Vec<_>>())?;
        let mut changed = Vec::new();
        for (path, entry) in index.iter().filter(|(path, _)| rules.get(*path).is_some_and(|r| r.converts)) {
            // What is no file is not converted.
            let content = self.read(path).ok().flatten();
            let content = content.filter(|content| self.spec.repository.format.blob(content) != entry.oid);
            if let Some(content) = content.filter(|content| rules[path].change(content)) {
                changed.push((path, content, &entry.oid));
            }
        }
        let asked = changed.iter().map(|(path, content, oid)| ToStore { path, content, before: Some(oid) });
        let stored = attributes.stored_all(&asked.collect::<Vec<_>>())?;
        let same = changed.iter().zip(stored);
        let same = same.filter(|((_, _, oid), stored)| self.spec.repository.format.blob(stored) == **oid);
        Ok(same.map(|((path, ..), _)| (*path).clone()).collect())
    }
}

/// How files become blobs, filters aside.
pub struct Conversions {
    settings: FileSettings,
    repository: Vec<u8>,
    work: PathBuf,
    objects: PathBuf,
    format: ObjectFormat,
}

impl Conversions {
    /// As the user and his repository want it.
    pub fn of(spec: &GitSpec, home: &Path) -> Result<Self> {
        Ok(Self {
            settings: FileSettings::of(&spec.repository)?,
            repository: attributes::of_repository(&spec.repository.common_dir)?,
            work: place(home),
            objects: spec.repository.objects(),
            format: spec.repository.format,
        })
    }

    /// Whether files can be told to be programs by their mode.
    pub fn file_mode(&self) -> bool {
        self.settings.file_mode
    }

    /// By the `.gitattributes` of `files`.
    pub fn within<'a>(&'a self, files: &'a dyn AttributeFiles) -> Attributes<'a> {
        Attributes {
            files,
            work: &self.work,
            objects: &self.objects,
            format: self.format,
            repository: &self.repository,
            user: &self.settings.attributes,
            autocrlf: self.settings.autocrlf.as_deref(),
            eol: self.settings.eol.as_deref(),
        }
    }
}

/// What the repository knows of what the engine finds moved.
pub struct Memory {
    /// The workspace's own directory.
    pub home: PathBuf,
    /// The workspace.
    pub spec: GitSpec,
    /// Its ledger.
    pub ledger: Ledger,
    /// The base commit's answers.
    pub base: InBase,
    /// The tip of the target.
    pub tip: Option<Oid>,
    /// Its answers.
    at_tip: InBase,
}

impl Memory {
    /// Of the workspace at `home`.
    pub fn of(home: &Path, spec: GitSpec) -> Result<Self> {
        let ledger = spec.ledger(home)?;
        let base = InBase::of(&ledger, spec.base.as_ref());
        let tip = spec.repository.branch_tip(spec.moves())?;
        let at_tip = InBase::of(&ledger, tip.as_ref());
        Ok(Self { home: home.to_path_buf(), spec, ledger, base, tip, at_tip })
    }
}

/// Where files of the base are kept that the checkout has no more, each named by its hash.
pub fn recalled(home: &Path) -> PathBuf {
    place(home).join("recalled")
}

impl History for Memory {
    fn in_the_way(&self, entries: &[DiffEntry]) -> Result<Vec<Option<Conflict>>> {
        let paths = paths_of(entries);
        let facts = Facts::of(&self.spec, &self.ledger, self.tip.as_ref(), &paths)?;
        let root = Root::open(&self.spec.repository.work_tree)?;
        let file_mode = FileSettings::of(&self.spec.repository)?.file_mode;
        let work = WorkTree { root: &root, spec: &self.spec, home: &self.home, file_mode };
        let blocked = Blocked::of(self, self.tip.as_ref(), &facts, true, entries)?;
        let each = entries.iter().map(|entry| match blocked.conflict(entry) {
            Some(conflict) => Ok(Some(conflict)),
            None => facts.about(&work, entry),
        });
        each.collect()
    }

    fn has_moved(&self, path: &RelPath) -> Result<bool> {
        if self.tip == self.spec.base {
            return Ok(false);
        }
        Ok(self.at_tip.entry(path)? != self.base.entry(path)?)
    }

    fn base(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        self.base.content(path)
    }

    fn keep(&self, hash: ContentHash, content: &[u8]) -> Result<()> {
        let dir = recalled(&self.home);
        let path = dir.join(hash.to_hex());
        if path.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        // Somebody else may be keeping the same.
        durable::write_lazily(&path, content).or_else(|e| if path.exists() { Ok(()) } else { Err(e) })
    }
}
