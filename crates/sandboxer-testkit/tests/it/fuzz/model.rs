//! What one sandbox has to show, and what a commit of it may do to the original.
//!
//! The model does not predict what a program's edit does: it looks at the edited entries before and after. From then on they are
//! pending, and only a few operations may change them. Everything else has to be as the base says; where somebody edited the
//! original by hand, any version that the original has had is right as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::tree::{Node, Tree, differing, is_related, is_within, parent};

pub type Checked<T = ()> = Result<T, String>;

/// What `commit` does about a path that has changed on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Fail,
    Merge,
    Ours,
    Theirs,
}

impl OnConflict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Merge => "merge",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
        }
    }
}

/// What a sandbox has changed at a path.
#[derive(Clone, Debug)]
pub struct Pending {
    /// What the program saw before its first edit. A commit that replaces anything else loses an update.
    pub seen: Option<Node>,
    pub now: Option<Node>,
}

/// A path that an operation changed in the original.
#[derive(Clone, Debug)]
pub struct Replaced {
    pub path: String,
    pub before: Option<Node>,
    pub after: Option<Node>,
}

/// A commit that can be undone.
pub struct Commit {
    pub operation: String,
    pub replaced: Vec<Replaced>,
}

pub struct Checkpoint {
    pub name: String,
    view: Tree,
    base: Tree,
    pending: BTreeMap<String, Pending>,
}

pub struct SandboxModel {
    pub name: String,
    pub id: String,
    /// The directory of the original that it is made from, relative to the first sandbox's.
    pub prefix: &'static str,
    /// Where programs work.
    pub path: PathBuf,
    /// Whether it shows the original where nothing was changed.
    pub looks_through: bool,
    /// Whether changes are git's, which knows no more of a mode than whether a file is a program.
    pub in_git: bool,
    pub base: Tree,
    pub pending: BTreeMap<String, Pending>,
    /// Paths that may show any version that the original has had.
    pub loose: BTreeSet<String>,
    /// Paths that others have changed in the original since the base.
    pub foreign: BTreeSet<String>,
    /// Every path that the sandbox has ever committed.
    pub committed: BTreeSet<String>,
    pub checkpoints: Vec<Checkpoint>,
    pub commits: Vec<Commit>,
}

/// Paths of a sandbox, none of them for all.
pub fn in_scope(path: &str, scope: &[&str]) -> bool {
    scope.is_empty() || scope.iter().any(|s| is_within(path, s))
}

/// Whether `merged` has all lines that either side added.
fn has_both_sides(
    merged: Option<&Node>,
    seen: Option<&Node>,
    theirs: Option<&Node>,
    ours: Option<&Node>,
) -> bool {
    let lines = |node: Option<&Node>| {
        node.map(|n| n.lines().into_iter().map(str::to_owned).collect()).unwrap_or_default()
    };
    let [merged, seen, theirs, ours]: [BTreeSet<String>; 4] = [merged, seen, theirs, ours].map(lines);
    ours.union(&theirs).all(|line| seen.contains(line) || merged.contains(line))
}

impl SandboxModel {
    /// The path as the original of the first sandbox has it.
    pub fn global(&self, path: &str) -> String {
        if self.prefix.is_empty() { path.to_owned() } else { format!("{}/{path}", self.prefix) }
    }

    /// The part of the original that it is made from.
    pub fn part_of(&self, original: &Tree) -> Tree {
        let local = |(path, node): (&String, &Node)| Some((self.local(path)?, node.clone()));
        original.iter().filter_map(local).collect()
    }

    /// The sandbox's own path of one of the original.
    pub fn local(&self, path: &str) -> Option<String> {
        if self.prefix.is_empty() {
            return Some(path.to_owned());
        }
        path.strip_prefix(self.prefix)?.strip_prefix('/').map(str::to_owned)
    }

    /// Others have changed paths of the original, by hand or by a commit.
    pub fn note_foreign(&mut self, changed: &BTreeSet<String>, by_hand: bool) {
        let local: Vec<String> = changed.iter().filter_map(|path| self.local(path)).collect();
        self.foreign.extend(local.iter().cloned());
        if by_hand && self.looks_through {
            self.loose.extend(local);
        }
    }

    /// Whether the sandbox may show `node` at `path`.
    fn allows(&self, path: &str, node: Option<&Node>, versions: &Versions) -> bool {
        if let Some(pending) = self.pending.get(path) {
            // The kernel shows nothing in a directory that was removed from below the mount.
            let is_hidden = || node.is_none() && self.is_below_a_removed_directory(path);
            return pending.now.as_ref() == node || is_hidden();
        }
        if let Some(Node::Unreadable { .. }) = node {
            return self.loose.iter().any(|loose| is_within(path, loose));
        }
        let had =
            || versions.get(&self.global(path)).is_some_and(|all| all.iter().any(|v| v.as_ref() == node));
        self.base.get(path) == node || (self.loose.contains(path) && had())
    }

    fn is_below_a_removed_directory(&self, path: &str) -> bool {
        let is_dir = |dir: &&String| self.base.get(*dir).is_some_and(Node::is_dir);
        self.loose.iter().filter(is_dir).any(|dir| is_within(path, dir))
    }

    /// What the sandbox shows is right.
    pub fn check_view(&self, view: &Tree, versions: &Versions) -> Checked {
        let paths: BTreeSet<&String> =
            view.keys().chain(self.base.keys()).chain(self.pending.keys()).collect();
        for path in paths {
            if !self.allows(path, view.get(path), versions) {
                let expected = self.pending.get(path).map_or(self.base.get(path), |p| p.now.as_ref());
                let found = view.get(path);
                return Err(format!("{} shows {found:?} at {path}; expected {expected:?}", self.name));
            }
        }
        Ok(())
    }

    /// A program has changed the entries at `targets` from `before` to `after`.
    pub fn edited(&mut self, targets: &[&str], before: &Tree, after: &Tree, versions: &Versions) -> Checked {
        let mut changed = differing(before, after);
        // A file that was written with the content that it had can be told as changed.
        let is_file = |path: &&&str| before.get(**path).is_some_and(Node::is_file);
        changed.extend(targets.iter().filter(is_file).map(|path| (*path).to_owned()));
        for path in changed {
            let (seen, now) = (before.get(&path), after.get(&path).cloned());
            if !self.allows(&path, seen, versions) {
                return Err(format!("{} showed {seen:?} at {path} before an edit", self.name));
            }
            self.pending
                .entry(path)
                .and_modify(|pending| pending.now.clone_from(&now))
                .or_insert_with(|| Pending { seen: seen.cloned(), now: now.clone() });
        }
        Ok(())
    }

    /// The paths of a difference are the pending ones, but for what the original is by now.
    pub fn check_diff(&self, paths: &BTreeSet<String>, original: &Tree) -> Checked {
        // What was edited by hand and then replaced by another's commit is kept, and cannot be told from a change.
        let is_known = |path: &String| self.pending.contains_key(path) || self.loose.contains(path);
        if let Some(path) = paths.iter().find(|path| !is_known(path)) {
            return Err(format!("the diff of {} has {path}, which nothing has changed in it", self.name));
        }
        let differs = |path: &str, p: &Pending| {
            let is_new = [self.base.get(path), original.get(path), p.seen.as_ref()]
                .iter()
                .all(|n| *n != p.now.as_ref());
            is_new && !self.is_below_a_removed_directory(path)
        };
        match self.pending.iter().find(|(path, p)| differs(path, p) && !paths.contains(*path)) {
            Some((path, p)) => Err(format!("the diff of {} lacks {path}: {p:?}", self.name)),
            None => Ok(()),
        }
    }

    /// Whether somebody else was there. At a new path that can be where the file was renamed from, or beside it: an overlay does not
    /// know what a new file replaced.
    fn is_contested(&self, path: &str) -> bool {
        let is_new = self.pending.get(path).is_some_and(|p| p.seen.is_none());
        self.foreign.iter().any(|f| is_related(f, path)) || (is_new && !self.foreign.is_empty())
    }

    /// A conflict has a reason.
    pub fn check_conflicts(&self, paths: &[String]) -> Checked {
        match paths.iter().find(|path| !self.is_contested(path)) {
            Some(path) => Err(format!("{} has a conflict at {path}, where nobody else was", self.name)),
            None => Ok(()),
        }
    }

    /// A commit has changed the original from `old` to `new`. `entries` are the paths that it names.
    pub fn check_commit(
        &self,
        scope: &[&str],
        on_conflict: OnConflict,
        (old, new): (&Tree, &Tree),
        entries: &BTreeSet<String>,
    ) -> Checked {
        let merged = |path: &str, p: &Pending| {
            on_conflict == OnConflict::Merge
                && has_both_sides(new.get(path), p.seen.as_ref(), p.now.as_ref(), old.get(path))
        };
        for path in differing(old, new) {
            let what = format!("the commit of {} changed {path}", self.name);
            let Some(pending) = self.pending.get(&path) else {
                return Err(format!("{what}, which nothing has changed in it"));
            };
            if !entries.contains(&path) {
                return Err(format!("{what}, and does not name it"));
            }
            let found = old.get(&path);
            let has_other_mode = || match (&pending.seen, found) {
                (Some(seen), Some(found)) => seen.lines() == found.lines(),
                _ => false,
            };
            let is_known = pending.seen.as_ref() == found || (self.in_git && has_other_mode());
            let is_lost = !is_known && on_conflict != OnConflict::Theirs;
            if is_lost && !merged(&path, pending) {
                return Err(format!("{what}: lost {found:?}; the program had seen {:?}", pending.seen));
            }
            if pending.now.as_ref() != new.get(&path) && !merged(&path, pending) {
                return Err(format!("{what} to {:?} instead of {:?}", new.get(&path), pending.now));
            }
        }
        for (path, pending) in self.pending.iter().filter(|(path, _)| in_scope(path, scope)) {
            let is_done = pending.now.as_ref() == new.get(path) || pending.now == pending.seen;
            let is_left = on_conflict == OnConflict::Ours && self.is_contested(path);
            if !is_done && !is_left && !merged(path, pending) {
                return Err(format!("the commit of {} left out {path}: {pending:?}", self.name));
            }
        }
        Ok(())
    }

    /// Takes over what a commit has done.
    pub fn committed(&mut self, operation: Option<String>, scope: &[&str], old: &Tree, new: &Tree) {
        let changed = differing(old, new);
        let replaced = |path: &String| Replaced {
            path: path.clone(),
            before: old.get(path).cloned(),
            after: new.get(path).cloned(),
        };
        if let Some(operation) = operation {
            self.commits.push(Commit { operation, replaced: changed.iter().map(replaced).collect() });
        }
        let is_settled = |path: &String, pending: &Pending| {
            changed.contains(path) || (in_scope(path, scope) && pending.now.as_ref() == new.get(path))
        };
        let settled: Vec<String> = self
            .pending
            .iter()
            .filter(|(path, p)| is_settled(path, p))
            .map(|(path, _)| path.clone())
            .collect();
        self.committed.extend(settled.iter().cloned());
        for path in settled {
            self.pending.remove(&path);
            self.rebase(&path, new.get(&path).cloned());
        }
    }

    /// The base at `path` is `node`, which nobody else has changed since.
    fn rebase(&mut self, path: &str, node: Option<Node>) {
        match node {
            Some(node) => drop(self.base.insert(path.to_owned(), node)),
            None => drop(self.base.remove(path)),
        }
        self.loose.remove(path);
        self.foreign.remove(path);
    }

    /// An undo has brought the original back to what it was; the sandbox keeps what it shows in `view`.
    pub fn undone(&mut self, replaced: &[Replaced], view: &Tree) {
        for Replaced { path, before, .. } in replaced {
            let pending = Pending { seen: before.clone(), now: view.get(path).cloned() };
            self.rebase(path, before.clone());
            self.pending.insert(path.clone(), pending);
        }
    }

    /// What a rollback of `scope` gives up: what lies there, other halves of renames, and what is in the way of what comes back.
    pub fn rolled_back(&mut self, scope: &[&str], partners: &BTreeSet<String>) {
        let mut gone: BTreeSet<String> =
            self.pending.keys().filter(|path| in_scope(path, scope)).cloned().collect();
        gone.extend(partners.iter().cloned());
        let comes_back = |path: &&String| self.base.contains_key(*path);
        let back: Vec<String> = gone.iter().filter(comes_back).cloned().collect();
        let is_above = |path: &str, p: &Pending| p.now.is_none() && back.iter().any(|b| is_within(b, path));
        gone.extend(self.pending.iter().filter(|(path, p)| is_above(path, p)).map(|(path, _)| path.clone()));
        for path in gone {
            self.pending.remove(&path);
            if self.foreign.iter().any(|f| is_related(f, &path)) {
                self.loose.insert(path);
            }
        }
    }

    pub fn checkpointed(&mut self, name: String, view: Tree) {
        let (base, pending) = (self.base.clone(), self.pending.clone());
        self.checkpoints.push(Checkpoint { name, view, base, pending });
    }

    /// The sandbox shows what it showed at a checkpoint, wherever it had or has changes of its own.
    pub fn restored(&mut self, which: usize) {
        let Checkpoint { view, base, pending, .. } = &self.checkpoints[which];
        let own = self.pending.keys().chain(pending.keys()).cloned();
        let committed = differing(&self.base, base).into_iter().filter(|path| self.committed.contains(path));
        let mut paths: BTreeSet<String> = own.chain(committed).collect();
        if !self.looks_through {
            paths.extend(differing(view, &self.base));
        }
        let mut now_pending = BTreeMap::new();
        for path in paths {
            let (now, is) = (view.get(&path).cloned(), self.base.get(&path));
            if now.as_ref() == is {
                continue;
            }
            let seen = pending.get(&path).filter(|_| is == base.get(&path)).map(|p| p.seen.clone());
            let seen = seen.unwrap_or_else(|| is.cloned());
            now_pending.insert(path, Pending { seen, now });
        }
        self.pending = now_pending;
    }

    /// The sandbox is based on what the original is now, but where it is in conflict. `view` is what it shows.
    pub fn refreshed(&mut self, original: &Tree, conflicts: &BTreeSet<String>, view: &Tree) -> Checked {
        let in_conflict = |path: &str| conflicts.iter().any(|c| is_related(c, path));
        for (path, pending) in self.pending.iter_mut().filter(|(path, _)| !in_conflict(path)) {
            let (shown, theirs) = (view.get(path), original.get(path));
            let is_kept = shown == pending.now.as_ref() || shown == theirs;
            if !is_kept && !has_both_sides(shown, pending.seen.as_ref(), pending.now.as_ref(), theirs) {
                return Err(format!("the refresh of {} made {shown:?} of {path}: {pending:?}", self.name));
            }
            pending.now = shown.cloned();
            pending.seen = theirs.cloned();
        }
        let kept: Vec<(String, Option<Node>)> = (self.base.keys().chain(original.keys()))
            .filter(|path| in_conflict(path))
            .map(|path| (path.clone(), self.base.get(path).cloned()))
            .collect();
        self.base = original.clone();
        for (path, node) in kept {
            match node {
                Some(node) => drop(self.base.insert(path.clone(), node)),
                None => drop(self.base.remove(&path)),
            }
            self.loose.insert(path);
        }
        self.loose.retain(|path| in_conflict(path));
        self.foreign.retain(|path| in_conflict(path));
        self.pending.retain(|path, p| p.now != p.seen || in_conflict(path));
        Ok(())
    }

    /// Parked work was laid over what the original is now, with the directories that it is in. An overlay goes on hiding what others
    /// have committed meanwhile.
    pub fn unparked(&mut self, original: &Tree) {
        let above =
            self.pending.keys().flat_map(|path| std::iter::successors(parent(path), |path| parent(path)));
        let above: BTreeSet<String> = above.map(str::to_owned).collect();
        let old = self.base.clone();
        let pending = &self.pending;
        let mut base = original.clone();
        let is_covered = |path: &str| {
            let covers = |(own, p): (&String, &Pending)| {
                is_within(path, own) && !p.now.as_ref().is_some_and(Node::is_dir)
            };
            pending.iter().any(covers)
        };
        base.retain(|path, _| !pending.contains_key(path) && !is_covered(path));
        let own = self.base.iter().filter(|(path, _)| pending.contains_key(*path));
        base.extend(own.map(|(path, node)| (path.clone(), node.clone())));
        self.base = base;
        self.loose = above;
        if self.looks_through {
            self.loose.extend(differing(&old, &self.base));
        }
    }

    /// Whether anything is uncommitted there.
    pub fn has_work_in(&self, scope: &[&str]) -> bool {
        let is_work = |path: &str, p: &Pending| p.now != p.seen && p.now.as_ref() != self.base.get(path);
        self.pending.iter().any(|(path, p)| in_scope(path, scope) && is_work(path, p))
    }

    pub fn is_untouched(&self) -> bool {
        self.pending.is_empty()
    }
}

/// What the original has had at each path.
pub type Versions = BTreeMap<String, Vec<Option<Node>>>;
