//! The real trees, the model of each, and the comparison of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::Error;
use sandboxer_core::contract::SandboxStrategy;
use sandboxer_core::model::{
    CheckpointId, CommitRequest, CommitResult, DiffEntry, PlanId, RelPath, Resource, SandboxRef,
};
use sandboxer_core::registry::{StrategyContext, StrategyEntry};
use sandboxer_testkit::manifest::{Facets, Manifest};
use sandboxer_testkit::mounts::DetachBelow;
use tempfile::TempDir;

use super::model::{Flat, Tree, changed, flat_of, is_within, parent};
use super::ops::Edit;

type FlatTree = BTreeMap<String, Flat>;

pub struct World {
    strategy: Arc<dyn SandboxStrategy>,
    sandbox: SandboxRef,
    tree: PathBuf,
    original: PathBuf,
    /// Whether it shows the original where nothing was changed. Then foreign edits show too, and names do not share what is
    /// copied up through one of them: neither is in the model.
    looks_through: bool,
    _mounts: DetachBelow,
    dir: TempDir,
    /// What the sandbox has.
    mine: Tree,
    /// What its differences are counted from.
    base: FlatTree,
    /// What the original has.
    theirs: FlatTree,
    /// Where somebody edited the original since the base: a commit there may (and, on the same path, must) be refused.
    moved: BTreeSet<String>,
    checkpoints: BTreeMap<u8, Tree>,
}

impl World {
    pub fn new(entry: &StrategyEntry, dir: &Path, first: &[Edit]) -> Self {
        let dir = TempDir::with_prefix_in("world-", dir).unwrap();
        let original = dir.path().join("original");
        std::fs::create_dir(&original).unwrap();
        let mut mine = Tree::default();
        let looks_through = entry.capabilities.looks_through;
        for edit in first.iter().filter(|edit| !(looks_through && is_link(edit))) {
            if edit.model(&mut mine) {
                edit.real(&original);
            }
        }
        let context = StrategyContext::quiet(dir.path().join("home"));
        let strategy = (entry.factory)(&entry.name, &entry.options, &context).unwrap();
        let resource = Resource::at_path("fs-directory", &original);
        let sandbox = strategy.create(&PlanId::generate(), &resource).unwrap();
        let tree = sandbox.sandbox_path().unwrap();
        let (base, theirs) = (mine.flat(), mine.flat());
        let (moved, checkpoints) = (BTreeSet::new(), BTreeMap::new());
        let _mounts = DetachBelow(dir.path().to_path_buf());
        let world = Self {
            strategy,
            sandbox,
            tree,
            original,
            looks_through,
            _mounts,
            dir,
            mine,
            base,
            theirs,
            moved,
            checkpoints,
        };
        world.check_sandbox("after create");
        world
    }

    pub fn edit(&mut self, edit: &Edit) {
        if !(self.looks_through && is_link(edit)) && edit.model(&mut self.mine) {
            edit.real(&self.tree);
        }
    }

    /// Somebody else's edit of the original. Other names of the same inode count as moved too: their stamps change.
    pub fn foreign(&mut self, edit: &Edit) {
        let mut theirs = self.theirs_as_tree();
        if self.looks_through || !edit.model(&mut theirs) {
            return;
        }
        let before = inodes(&self.original);
        edit.real(&self.original);
        let after = inodes(&self.original);
        let now = flat_of(&Manifest::capture(&self.original));
        let direct = changed(&self.theirs, &now);
        let touched: BTreeSet<u64> =
            direct.iter().flat_map(|p| [before.get(p), after.get(p)]).flatten().copied().collect();
        let named = edit_paths(edit);
        let siblings =
            before.iter().chain(&after).filter(|(p, inode)| touched.contains(inode) || named.contains(*p));
        self.moved.extend(siblings.map(|(path, _)| path.clone()));
        self.moved.extend(direct);
        self.moved.extend(named);
        self.theirs = now;
    }

    fn theirs_as_tree(&self) -> Tree {
        // The model needs to know what is there, not what it holds: edits are repeated on the real tree.
        let mut tree = Tree::default();
        for (path, flat) in &self.theirs {
            use sandboxer_testkit::manifest::Kind;
            match flat.kind {
                Kind::Directory => drop(tree.nodes.insert(path.clone(), super::model::Node::Dir { mode: 0 })),
                Kind::File => {
                    let file = super::model::File { content: Vec::new(), mode: 0, colour: None };
                    tree.add_file(path, file);
                }
                _ => {
                    let target = String::new();
                    tree.nodes.insert(path.clone(), super::model::Node::Link { target });
                }
            }
        }
        tree
    }

    pub fn checkpoint(&mut self, name: u8) {
        self.strategy.checkpoint(&self.sandbox, &id(name)).unwrap();
        self.checkpoints.insert(name, self.mine.clone());
        self.check_sandbox("after checkpoint");
    }

    pub fn restore(&mut self, name: u8) {
        let result = self.strategy.restore_checkpoint(&self.sandbox, &id(name));
        match self.checkpoints.get(&name) {
            Some(tree) => {
                result.unwrap();
                self.mine = tree.clone();
                self.check_sandbox("after restore");
            }
            None => assert!(matches!(result, Err(Error::NotFound { .. })), "{result:?}"),
        }
    }

    /// Where the original has moved the base's content may be gone, so only rollbacks away from there are tried.
    pub fn rollback(&mut self, below: Option<&str>) {
        let mut changes = changed(&self.base, &self.mine.flat());
        // A touch of a file whose base content is gone cannot be told from an edit, and is shown as one.
        changes.extend(self.strategy.diff(&self.sandbox).unwrap().entries.iter().flat_map(paths_of));
        if changes.iter().any(|path| self.moved.iter().any(|m| related(m, path))) {
            return;
        }
        match below {
            None => {
                self.strategy.rollback(&self.sandbox).unwrap();
                self.adopt_real_sandbox(&self.base.clone(), "after rollback");
                assert!(self.strategy.diff(&self.sandbox).unwrap().is_empty());
            }
            Some(path) => self.rollback_below(path),
        }
    }

    fn rollback_below(&mut self, path: &str) {
        let scope = [RelPath::parse(path).unwrap()];
        let diff = self.strategy.diff(&self.sandbox).unwrap();
        let gone: Vec<DiffEntry> = diff.entries.into_iter().filter(|e| e.is_selected(&scope)).collect();
        let scoped = self.sandbox.clone().scoped(&scope);
        match self.strategy.rollback(&scoped) {
            Ok(_) => {
                let mut expected = self.mine.flat();
                let mut back: BTreeSet<String> = gone.iter().flat_map(paths_of).collect();
                // What comes back needs the directories that it was in.
                for path in back.clone().iter().filter(|p| self.base.contains_key(*p)) {
                    let above = std::iter::successors(parent(path), |p| parent(p));
                    back.extend(above.filter(|p| !self.mine.is_dir(p)).map(str::to_owned));
                }
                for path in back {
                    match self.base.get(&path) {
                        Some(flat) => drop(expected.insert(path, flat.clone())),
                        None => drop(expected.remove(&path)),
                    }
                }
                self.adopt_real_sandbox(&expected, "after a scoped rollback");
            }
            // Half of a rename, say, whose other half stands in the way: refused is fine, half-done is not.
            Err(_) => self.check_sandbox("after a refused rollback"),
        }
    }

    /// Asserts that the real sandbox is `expected`, and takes it over as the model's.
    fn adopt_real_sandbox(&mut self, expected: &FlatTree, context: &str) {
        let real = flat_of(&Manifest::capture(&self.tree));
        assert_eq!(&real, expected, "{context}");
        self.mine = tree_at(&self.tree);
    }

    pub fn commit(&mut self, paths: &[String]) {
        let mut paths: Vec<RelPath> = paths.iter().map(|p| RelPath::parse(p).unwrap()).collect();
        paths.sort();
        paths.dedup();
        let diff = self.strategy.diff(&self.sandbox).unwrap().select(&paths);
        let request = CommitRequest { paths, digest: Some(diff.digest.clone()), ..CommitRequest::default() };
        let before = Manifest::capture(&self.original);
        let result = self.strategy.commit(&self.sandbox, &request);
        self.check_sandbox("after commit");
        match result {
            Ok(result) => self.committed(&request, &diff.entries, &result),
            Err(error) => {
                before.assert_same(&Manifest::capture(&self.original), Facets::UNTOUCHED, "a refused commit");
                self.refused(&request, &diff.entries, &error);
            }
        }
    }

    fn committed(&mut self, request: &CommitRequest, shown: &[DiffEntry], result: &CommitResult) {
        assert_eq!(
            (&result.conflicts, result.entries.len()),
            (&Vec::new(), shown.len()),
            "{:?}",
            result.entries
        );
        let mine = self.mine.flat();
        let mut expected = self.theirs.clone();
        for path in result.entries.iter().flat_map(paths_of) {
            let now = self.theirs.get(&path);
            let lost = now != self.base.get(&path) && now != mine.get(&path);
            assert!(!lost, "{path} was changed in the original, and the commit went over it");
            for tree in [&mut expected, &mut self.base] {
                match mine.get(&path) {
                    Some(flat) => drop(tree.insert(path.clone(), flat.clone())),
                    None => drop(tree.remove(&path)),
                }
            }
            self.moved.remove(&path);
        }
        let real = flat_of(&Manifest::capture(&self.original));
        assert_eq!(real, expected, "the original after a commit of {:?}", request.paths);
        self.theirs = expected;
        self.check_diff();
    }

    /// A refusal has to have a reason that the model knows of.
    fn refused(&self, request: &CommitRequest, shown: &[DiffEntry], error: &Error) {
        let touched: Vec<String> = shown.iter().flat_map(paths_of).collect();
        let moved = touched.iter().any(|path| self.moved.iter().any(|m| related(m, path)));
        let partial = !request.paths.is_empty();
        match error {
            Error::Conflict { .. } => assert!(moved, "conflict without a reason on {touched:?}: {error:?}"),
            // A selection can be impossible: a file without its new directory, a directory that is not empty.
            other => assert!(partial, "a commit of everything failed: {other:?}"),
        }
    }

    /// The diff names exactly what the model says differs. Where the original has moved, base content that was never
    /// read cannot be compared any more: what was touched there may be told as modified although it is the same.
    pub fn check_diff(&self) {
        let diff = self.strategy.diff(&self.sandbox).unwrap();
        let mut shown: BTreeSet<String> = diff.entries.iter().flat_map(paths_of).collect();
        let differs = changed(&self.base, &self.mine.flat());
        shown.retain(|path| differs.contains(path) || !self.moved.contains(path));
        assert_eq!(shown, differs, "{:?}", diff.entries);
        let moved =
            |e: &DiffEntry| paths_of(e).iter().any(|path| self.moved.iter().any(|m| related(m, path)));
        let told: Vec<_> = diff.entries.iter().filter(|e| e.moved && !moved(e)).collect();
        assert!(told.is_empty(), "told as moved in the original, but nobody was there: {told:?}");
    }

    fn check_sandbox(&self, context: &str) {
        let real = flat_of(&Manifest::capture(&self.tree));
        assert_eq!(real, self.mine.flat(), "the sandbox {context}");
    }

    pub fn end(self) {
        self.strategy.cleanup(&self.sandbox).unwrap();
        let left = flat_of(&Manifest::capture(&self.original));
        assert_eq!(left, self.theirs, "cleanup changed the original");
        self.dir.close().unwrap();
    }
}

fn id(name: u8) -> CheckpointId {
    CheckpointId::from_string(format!("cp{name}"))
}

fn paths_of(entry: &DiffEntry) -> Vec<String> {
    [Some(&entry.path), entry.from.as_ref()].into_iter().flatten().map(ToString::to_string).collect()
}

/// Whether one is the other, or lies above it, or both are in one directory that may be at stake.
fn related(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

fn inodes(root: &Path) -> BTreeMap<String, u64> {
    let manifest = Manifest::capture(root);
    let names = manifest.names().into_iter().map(|p| p.to_str().unwrap().to_owned());
    names.map(|path| (path.clone(), std::fs::symlink_metadata(root.join(&path)).unwrap().ino())).collect()
}

fn is_link(edit: &Edit) -> bool {
    matches!(edit, Edit::Hardlink(..))
}

fn edit_paths(edit: &Edit) -> BTreeSet<String> {
    let named = match edit {
        Edit::Rename(from, to) | Edit::Hardlink(from, to) => vec![from, to],
        Edit::Write(path, _)
        | Edit::Append(path, _)
        | Edit::Truncate(path)
        | Edit::Mkdir(path)
        | Edit::Remove(path)
        | Edit::RemoveTree(path)
        | Edit::Chmod(path, _)
        | Edit::Symlink(path, _)
        | Edit::Xattr(path, _) => vec![path],
    };
    named.into_iter().cloned().collect()
}

/// A model of the real tree at `root`, which names share an inode included.
fn tree_at(root: &Path) -> Tree {
    use super::model::{File, Node};
    use sandboxer_testkit::manifest::Kind;
    let manifest = Manifest::capture(root);
    let mut tree = Tree::default();
    for (path, entry) in manifest.entries.iter().filter(|(p, _)| !p.as_os_str().is_empty()) {
        let name = path.to_str().unwrap().to_owned();
        let first =
            entry.linked_to.as_ref().map(|p| p.to_str().unwrap().to_owned()).filter(|first| *first != name);
        match (entry.kind, first) {
            (Kind::Directory, _) => drop(tree.nodes.insert(name, Node::Dir { mode: entry.mode })),
            (Kind::File, Some(first)) => {
                let node = tree.nodes[&first].clone();
                tree.nodes.insert(name, node);
            }
            (Kind::File, None) => {
                let colour = entry.xattrs.get(std::ffi::OsStr::new("user.colour")).cloned();
                let content = std::fs::read(root.join(path)).unwrap();
                tree.add_file(&name, File { content, mode: entry.mode, colour });
            }
            _ => {
                let target = entry.target.as_ref().unwrap().to_str().unwrap().to_owned();
                tree.nodes.insert(name, Node::Link { target });
            }
        }
    }
    debug_assert!(tree.nodes.keys().all(|p| parent(p).is_none_or(|p| tree.is_dir(p))));
    tree
}
