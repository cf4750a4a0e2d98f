//! Where every byte must be: what an operation makes of the original, of a sandbox and of its base.
//!
//! This is the promise, written down once more without files, stamps and journals. A merge is what [`merge`] says; it is held against git
//! elsewhere.

use std::collections::BTreeSet;

use sandboxer_core::model::{DiffEntry, DiffKind, OnConflict, OpId};
use sandboxer_fs::commit::LABELS;
use sandboxer_fs::merge::merge;
use sandboxer_fs::patch::is_binary;

use super::tree::{Node, Tree, ancestors, is_dir, is_within, parent, remove_below, set};

/// One sandbox.
#[derive(Clone, Default)]
pub struct Side {
    /// What its directory holds.
    pub mine: Tree,
    /// What its differences are counted from.
    pub base: Tree,
    /// Texts of the base that are certainly kept for merging.
    pub kept: BTreeSet<String>,
    /// Where the original was written to since the base, whatever it holds now.
    pub stirred: BTreeSet<String>,
    /// States that were kept, oldest first.
    pub checkpoints: Vec<(String, Tree)>,
    /// Commits and undos that can be taken back, oldest first.
    pub operations: Vec<Done>,
}

/// An operation that changed the original.
#[derive(Clone, Debug)]
pub struct Done {
    pub id: OpId,
    /// The commit that it is, or takes back, or makes again.
    pub commit: OpId,
    /// Whether that commit stands by it.
    pub stands: bool,
    pub touched: Vec<Touched>,
}

/// What an operation did at one path.
#[derive(Clone, Debug)]
pub struct Touched {
    pub path: String,
    /// The base before, and whether that was certainly kept.
    pub base: (Option<Node>, bool),
    /// What the original had.
    pub found: Option<Node>,
    /// What the original, and the base, have since.
    pub after: Option<Node>,
}

/// A difference as the sandbox shows it: renames are folded.
#[derive(Clone, Debug)]
pub struct Delta {
    pub kind: DiffKind,
    pub path: String,
    pub from: Option<String>,
}

impl Delta {
    pub fn of(entry: &DiffEntry) -> Self {
        let from = entry.from.as_ref().map(ToString::to_string);
        Self { kind: entry.kind, path: entry.path.to_string(), from }
    }

    /// Every path that it is about.
    pub fn paths(&self) -> impl Iterator<Item = &String> {
        self.from.iter().chain([&self.path])
    }
}

/// What a commit has to come to.
#[derive(Debug)]
pub enum Verdict {
    /// Refused because of these paths; what a merge has put into the sandbox, and taken for its base.
    Refused { paths: BTreeSet<String>, marked: Vec<(String, Node, Node)> },
    /// Carried out; the paths that were left out.
    Done { changes: Vec<Change>, left_out: BTreeSet<String> },
}

/// What a commit does with one difference.
#[derive(Clone, Debug)]
pub struct Change {
    pub delta: Delta,
    /// What comes to its path.
    pub node: Option<Node>,
    /// The base before, where a merge has moved it on.
    pub rebased: Option<Node>,
    /// Whether the sandbox is given it too.
    pub settles: bool,
}

/// A commit, looked at.
pub struct Commit<'a> {
    pub side: &'a Side,
    pub original: &'a Tree,
    pub deltas: Vec<Delta>,
    /// The paths of which it is not known whether their base is kept, and was found not to be.
    pub baseless: &'a BTreeSet<String>,
}

impl Commit<'_> {
    pub fn verdict(&self, on_conflict: OnConflict) -> Verdict {
        match on_conflict {
            OnConflict::Fail => self.all_or_nothing(&self.deltas, |_| None),
            OnConflict::Ours => self.ours(),
            OnConflict::Theirs => self.theirs(),
            OnConflict::Merge | OnConflict::Mark => self.merged(on_conflict == OnConflict::Mark),
        }
    }

    fn plain(&self, delta: &Delta) -> Change {
        let node = self.side.mine.get(&delta.path).cloned();
        Change { delta: delta.clone(), node, rebased: None, settles: false }
    }

    /// Refused if anything is in conflict that `way_out` does not solve.
    fn all_or_nothing(&self, deltas: &[Delta], way_out: impl Fn(&Delta) -> Option<Change>) -> Verdict {
        let (mut paths, mut changes) = (BTreeSet::new(), Vec::new());
        for delta in deltas {
            match self.conflict(delta, deltas) {
                None => changes.push(self.plain(delta)),
                Some(path) => match way_out(delta) {
                    Some(change) => changes.push(change),
                    None => drop(paths.insert(path)),
                },
            }
        }
        if !paths.is_empty() {
            return Verdict::Refused { paths, marked: Vec::new() };
        }
        Verdict::Done { changes, left_out: BTreeSet::new() }
    }

    fn ours(&self) -> Verdict {
        let (mut deltas, mut left_out) = (self.deltas.clone(), BTreeSet::new());
        loop {
            let stuck = |d: &&Delta| self.conflict(d, &deltas).is_some();
            let (out, fine): (Vec<Delta>, Vec<Delta>) = deltas.iter().cloned().partition(|d| stuck(&d));
            if out.is_empty() {
                let changes = fine.iter().map(|d| self.plain(d)).collect();
                return Verdict::Done { changes, left_out };
            }
            left_out.extend(out.into_iter().map(|d| d.path));
            deltas = fine;
        }
    }

    fn theirs(&self) -> Verdict {
        let deltas = self.with_missing_directories();
        self.all_or_nothing(&deltas, |delta| {
            let stranger =
                delta.kind != DiffKind::Metadata && delta.paths().any(|p| self.holds_stranger(p, &deltas));
            (!stranger).then(|| self.plain(delta))
        })
    }

    /// The sandbox's version brings the directories along that the original has no more.
    fn with_missing_directories(&self) -> Vec<Delta> {
        let stays = self.deltas.iter().filter(|d| d.kind != DiffKind::Deleted);
        let above: BTreeSet<&str> = stays.flat_map(|d| ancestors(&d.path)).collect();
        let is_missing =
            |path: &&str| !is_dir(self.original, path) && !self.deltas.iter().any(|d| d.path == *path);
        let made = |path: &str| Delta { kind: DiffKind::Created, path: path.to_owned(), from: None };
        above.into_iter().filter(is_missing).map(made).chain(self.deltas.iter().cloned()).collect()
    }

    fn merged(&self, mark: bool) -> Verdict {
        let verdict = self.all_or_nothing(&self.deltas, |delta| self.merge_one(delta).ok().flatten());
        let Verdict::Refused { paths, .. } = verdict else { return verdict };
        let in_conflict = self.deltas.iter().filter(|d| mark && self.conflict(d, &self.deltas).is_some());
        let marked = in_conflict.filter_map(|delta| {
            let node = match self.merge_one(delta) {
                Ok(change) => change.filter(|c| c.settles).and_then(|c| c.node),
                Err(markers) => Some(markers),
            };
            Some((delta.path.clone(), node?, self.original.get(&delta.path)?.clone()))
        });
        Verdict::Refused { paths, marked: marked.collect() }
    }

    /// The merge of a difference that is in conflict: `Ok(None)` where there is no such thing, the text with markers where
    /// both sides changed the same lines.
    fn merge_one(&self, delta: &Delta) -> Result<Option<Change>, Node> {
        let (path, ours) = (&delta.path, self.original.get(&delta.path));
        if delta.kind == DiffKind::Deleted && ours.is_none() {
            return Ok(Some(self.plain(delta)));
        }
        let mergeable = matches!(delta.kind, DiffKind::Modified | DiffKind::Created | DiffKind::Metadata);
        let (
            Some(Node::File { bytes: ours, mode: our_mode }),
            Some(Node::File { bytes: theirs, mode: their_mode }),
        ) = (ours.filter(|_| mergeable), self.side.mine.get(path))
        else {
            return Ok(None);
        };
        let base = self.side.base.get(path);
        let old = base.and_then(Node::bytes).unwrap_or_default();
        let texts = [ours, theirs].into_iter().all(|bytes| !is_binary(bytes)) && !is_binary(old);
        if !texts || (self.baseless.contains(path) && delta.kind == DiffKind::Modified) {
            return Ok(None);
        }
        let mode = match base.map(Node::mode) {
            _ if our_mode == their_mode => *our_mode,
            Some(mode) if mode == *our_mode => *their_mode,
            Some(mode) if mode == *their_mode => *our_mode,
            _ => return Ok(None),
        };
        let merged = merge(old, ours, theirs, &LABELS);
        let node = Node::File { bytes: merged.content, mode };
        if !merged.conflicts.is_empty() {
            return Err(node);
        }
        let rebased = self.original.get(path).cloned();
        Ok(Some(Change { delta: delta.clone(), node: Some(node), rebased, settles: true }))
    }

    /// The path at which a difference is in conflict with the original.
    pub fn conflict(&self, delta: &Delta, all: &[Delta]) -> Option<String> {
        let new = |path: &String| self.is_in_the_way(path, delta) || self.has_no_parent(path, all);
        let old = |path: &String| {
            moved(self.original, &self.side.base, path)
                || (delta.kind != DiffKind::Metadata
                    && is_dir(&self.side.base, path)
                    && self.holds_stranger(path, all))
        };
        match (&delta.from, delta.kind) {
            (Some(from), _) if old(from) => Some(from.clone()),
            (Some(_), _) | (_, DiffKind::Created) => Some(delta.path.clone()).filter(new),
            _ => Some(delta.path.clone()).filter(old),
        }
    }

    fn is_in_the_way(&self, path: &str, delta: &Delta) -> bool {
        let both_directories = is_dir(self.original, path) && is_dir(&self.side.mine, &delta.path);
        self.original.contains_key(path) && !both_directories
    }

    fn has_no_parent(&self, path: &str, all: &[Delta]) -> bool {
        let comes = |parent: &str| {
            let makes = |d: &&Delta| matches!(d.kind, DiffKind::Created | DiffKind::Renamed);
            all.iter().filter(makes).any(|d| d.path == parent && is_dir(&self.side.mine, parent))
        };
        parent(path).is_some_and(|parent| !comes(parent) && !is_dir(self.original, parent))
    }

    /// Whether a directory of the original that is to go holds something that does not go with it.
    fn holds_stranger(&self, path: &str, all: &[Delta]) -> bool {
        let goes = |child: &String| {
            let gone = |d: &Delta| {
                (d.kind == DiffKind::Deleted && d.path == *child) || d.from.as_ref() == Some(child)
            };
            all.iter().any(gone)
        };
        is_dir(self.original, path)
            && self.original.keys().any(|child| parent(child) == Some(path) && !goes(child))
    }
}

/// Whether the original is not what the base says.
pub fn moved(original: &Tree, base: &Tree, path: &str) -> bool {
    original.get(path) != base.get(path)
}

impl Side {
    /// A fresh copy.
    pub fn fresh(original: &Tree) -> Self {
        let text = |(path, node): (&String, &Node)| {
            node.bytes().filter(|bytes| !is_binary(bytes)).map(|_| path.clone())
        };
        let kept = original.iter().filter_map(text).collect();
        Self { mine: original.clone(), base: original.clone(), kept, ..Self::default() }
    }

    /// Takes a commit over into the original and the base; returns what it touched.
    pub fn carry_out(&mut self, original: &mut Tree, changes: Vec<Change>) -> Vec<Touched> {
        let mut touched = Vec::new();
        for change in &changes {
            for path in change
                .delta
                .from
                .clone()
                .into_iter()
                .chain(Some(change.delta.path.clone()).filter(|_| change.delta.kind == DiffKind::Deleted))
            {
                touched.push(self.touch(original, &path, None, change));
            }
        }
        for change in changes.iter().filter(|c| c.delta.kind != DiffKind::Deleted) {
            let (path, node) = (&change.delta.path, change.node.clone());
            if is_dir(original, path) && matches!(change.delta.kind, DiffKind::Created | DiffKind::Renamed) {
                // A directory that the original has too is none of ours.
                set(&mut self.base, path, node);
                continue;
            }
            touched.push(self.touch(original, path, node.clone(), change));
            if change.settles {
                set(&mut self.mine, path, node);
            }
        }
        touched
    }

    fn touch(&mut self, original: &mut Tree, path: &str, after: Option<Node>, change: &Change) -> Touched {
        let base = match &change.rebased {
            Some(node) => (Some(node.clone()), false),
            None => (self.base.get(path).cloned(), self.kept.contains(path)),
        };
        let found = original.get(path).cloned();
        set(original, path, after.clone());
        let is_text = after.as_ref().and_then(Node::bytes).is_some_and(|b| !b.is_empty() && !is_binary(b));
        let kept = is_text && change.delta.kind != DiffKind::Metadata;
        self.rebase(path, after.clone(), kept);
        Touched { path: path.to_owned(), base, found, after }
    }

    /// What the base says of a path from now on.
    pub fn rebase(&mut self, path: &str, node: Option<Node>, kept: bool) {
        set(&mut self.base, path, node);
        self.stirred.remove(path);
        self.kept.remove(path);
        if kept {
            self.kept.insert(path.to_owned());
        }
    }

    /// The paths that forbid taking an operation back.
    pub fn undo_conflicts(original: &Tree, done: &Done) -> BTreeSet<String> {
        let ours = |path: &str| done.touched.iter().any(|t| t.path == path);
        let is = |node: &Option<Node>| node.as_ref().is_some_and(Node::is_dir);
        let in_conflict = |touched: &&Touched| {
            let path = touched.path.as_str();
            let stranger = |child: &String| parent(child) == Some(path) && !ours(child);
            let goes = is(&touched.after) && !is(&touched.found);
            original.get(path) != touched.after.as_ref()
                || (goes && original.keys().any(stranger))
                || (touched.found.is_some() && parent(path).is_some_and(|p| !ours(p) && !is_dir(original, p)))
        };
        done.touched.iter().filter(in_conflict).map(|t| t.path.clone()).collect()
    }

    /// Takes an operation back; returns what that touched.
    pub fn undo(&mut self, original: &mut Tree, done: &Done) -> Vec<Touched> {
        let mut touched = Vec::new();
        for was in &done.touched {
            let (base, kept) = was.base.clone();
            touched.push(Touched {
                path: was.path.clone(),
                base: (self.base.get(&was.path).cloned(), self.kept.contains(&was.path)),
                found: original.get(&was.path).cloned(),
                after: was.found.clone(),
            });
            set(original, &was.path, was.found.clone());
            self.rebase(&was.path, base, kept);
        }
        touched
    }

    /// The base again at `paths`; what the original has become since is the base from then on.
    pub fn rollback(&mut self, original: &Tree, paths: &BTreeSet<String>) {
        for path in paths {
            let known = self.base.contains_key(path);
            match original.get(path).filter(|_| known) {
                Some(node) => {
                    self.mine.insert(path.clone(), node.clone());
                    self.rebase(path, Some(node.clone()), false);
                }
                None if known => {
                    remove_below(&mut self.mine, path);
                    remove_below(&mut self.base, path);
                }
                None => remove_below(&mut self.mine, path),
            }
        }
    }

    /// The base again at `paths`, whatever the original has become since: an overlay has kept it.
    pub fn rollback_to_base(&mut self, paths: &BTreeSet<String>) {
        for path in paths {
            match self.base.get(path) {
                Some(node) => drop(self.mine.insert(path.clone(), node.clone())),
                None => remove_below(&mut self.mine, path),
            }
        }
    }

    /// Parked and taken up again over what the original is by then.
    pub fn unpark(&mut self, original: &Tree, changes: &BTreeSet<String>) {
        let old = std::mem::take(self);
        let (mut mine, mut base) = (original.clone(), original.clone());
        let absent = |p: &&String| !old.mine.contains_key(*p);
        for path in changes.iter().filter(absent) {
            // The original may have got more below: that is none of the sandbox's, neither to have nor to delete.
            if is_dir(original, path) {
                remove_below(&mut mine, path);
                base.retain(|p, _| !is_within(p, path) || changes.contains(p));
            }
            mine.remove(path);
            if original.contains_key(path) {
                set(&mut base, path, old.base.get(path).cloned());
            }
        }
        for path in changes.iter().filter(|p| old.mine.contains_key(*p)) {
            for above in ancestors(path).filter(|p| !is_dir(original, p)) {
                set(&mut mine, above, old.mine.get(above).cloned());
                set(&mut base, above, old.base.get(above).cloned());
            }
            set(&mut mine, path, old.mine.get(path).cloned());
            let both_made_it =
                is_dir(original, path) && is_dir(&old.mine, path) && !old.base.contains_key(path);
            if !both_made_it {
                set(&mut base, path, old.base.get(path).cloned());
            }
        }
        let changed = |path: &&String| changes.contains(*path);
        let mut kept = Self::fresh(original).kept;
        kept.retain(|path| !changes.contains(path));
        kept.extend(old.kept.iter().filter(changed).cloned());
        let stirred = old.stirred.iter().filter(|p| changes.contains(*p)).cloned().collect();
        *self = Self { mine, base, kept, stirred, ..old };
    }
}
