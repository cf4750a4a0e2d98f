//! The real thing beside its model, and the comparison of the two after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sandboxer::wiring::{self, Setup};
use sandboxer_core::Error;
use sandboxer_core::model::{
    CommitRequest, Conflict, DiffEntry, DiffKind, HunkSelection, OnConflict, OpId, RelPath,
};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{
    Consumer, CreateRequest, Ended, Input, Sandbox, SandboxManager, Target, TargetCommit, Uncommitted,
};
use sandboxer_fs::patch;
use sandboxer_testkit::mounts::DetachBelow;
use tempfile::TempDir;

use super::edits::{Edit, first_tree, write};
use super::model::{Commit, Delta, Done, Side, Verdict, moved};
use super::tree::{Node, Tree, ancestors, changed, explain, is_dir, read};

/// What is wrong, in words.
pub type Checked = Result<(), String>;

/// Two sandboxes over one resource.
pub struct World {
    manager: SandboxManager,
    strategy: &'static str,
    original_path: PathBuf,
    original: Tree,
    sides: [Side; 2],
    sandboxes: [Sandbox; 2],
    _mounts: DetachBelow,
    dir: TempDir,
}

fn rules() -> CommitRules {
    CommitRules { accept_flags: true, ..CommitRules::default() }
}

fn rel(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

fn target(sandbox: &Sandbox) -> Target {
    Target { sandbox: sandbox.clone(), workspaces: sandbox.workspaces.clone() }
}

fn names(conflicts: &[Conflict]) -> BTreeSet<String> {
    conflicts.iter().map(|c| c.path.to_string()).collect()
}

impl World {
    pub fn new(strategy: &'static str, dir: &Path) -> Self {
        let dir = TempDir::with_prefix_in("history-", dir).unwrap();
        let original_path = dir.path().join("original");
        std::fs::create_dir(&original_path).unwrap();
        let original = first_tree();
        write(&original_path, &original);
        let manager = wiring::open(Setup::quiet(dir.path().join("home"))).unwrap();
        let make = |_| create(&manager, strategy, &original_path);
        let (sandboxes, sides) = ([0, 1].map(make), [0, 1].map(|_| Side::fresh(&original)));
        let _mounts = DetachBelow(dir.path().to_path_buf());
        Self { manager, strategy, original_path, original, sides, sandboxes, _mounts, dir }
    }

    /// Whether sandboxes show the original where they have changed nothing.
    fn looks_through(&self) -> bool {
        self.strategy == "overlay"
    }

    fn root(&self, who: usize) -> PathBuf {
        self.sandboxes[who].workspaces[0].sandbox_ref.sandbox_path().unwrap()
    }

    fn target(&self, who: usize) -> Target {
        target(&self.sandboxes[who])
    }

    /// Everything is where the model says, and every sandbox tells its differences rightly.
    pub fn check(&self) -> Checked {
        same("the original", &self.original, &read(&self.original_path))?;
        for who in [0, 1] {
            same(&format!("sandbox {who}"), &self.sides[who].mine, &read(&self.root(who)))?;
            self.check_diff(who)?;
        }
        Ok(())
    }

    fn entries(&self, who: usize, paths: &[RelPath]) -> Vec<DiffEntry> {
        let diff = self.manager.diff(&self.target(who), paths).unwrap();
        diff.workspaces.into_iter().flat_map(|w| w.entries).collect()
    }

    /// Content that was copied without being read has no hash on record: once the original was written to, it cannot be told
    /// whether it differs, and it is said to.
    fn is_unsure(&self, who: usize, path: &str) -> bool {
        if self.looks_through() {
            // What a neighbour replaced was read and kept.
            return false;
        }
        let side = &self.sides[who];
        let is_file = side.base.get(path).is_some_and(|node| node.bytes().is_some());
        is_file && side.stirred.contains(path) && !side.kept.contains(path)
    }

    fn check_diff(&self, who: usize) -> Checked {
        let side = &self.sides[who];
        let mut told = BTreeMap::new();
        for entry in self.entries(who, &[]) {
            let delta = Delta::of(&entry);
            if !delta.paths().any(|p| self.is_unsure(who, p)) {
                self.check_moved(who, &entry, &delta)?;
            }
            match delta.from {
                Some(from) => {
                    told.insert(from, DiffKind::Deleted);
                    told.insert(delta.path, DiffKind::Created);
                }
                None => drop(told.insert(delta.path, delta.kind)),
            }
        }
        let mut expected: BTreeMap<String, DiffKind> =
            changed(&side.base, &side.mine).into_iter().map(|p| (p.clone(), self.kind(who, &p))).collect();
        expected.retain(|path, _| !self.is_unsure(who, path));
        told.retain(|path, _| !self.is_unsure(who, path));
        if told == expected {
            return Ok(());
        }
        Err(format!("the differences of sandbox {who}: expected {expected:?}, told {told:?}"))
    }

    fn check_moved(&self, who: usize, entry: &DiffEntry, delta: &Delta) -> Checked {
        let base = &self.sides[who].base;
        let expected = delta.paths().any(|path| moved(&self.original, base, path));
        if entry.moved == expected {
            return Ok(());
        }
        Err(format!("sandbox {who} says moved: {} of {}", entry.moved, entry.path))
    }

    fn kind(&self, who: usize, path: &str) -> DiffKind {
        match (self.sides[who].base.get(path), self.sides[who].mine.get(path)) {
            (None, _) => DiffKind::Created,
            (_, None) => DiffKind::Deleted,
            (Some(old), Some(new)) if old.same_content(new) => DiffKind::Metadata,
            _ => DiffKind::Modified,
        }
    }

    /// A program's edit in a sandbox.
    pub fn edit(&mut self, who: usize, edit: &Edit) {
        if let Some(new) = edit.applied(&self.sides[who].mine) {
            edit.real(&self.root(who), &self.sides[who].mine, &new);
            self.sides[who].mine = new;
        }
    }

    /// A person's edit of the original, behind everybody's back.
    pub fn by_hand(&mut self, edit: &Edit) {
        // It would show in sandboxes, and where it does is not in the model.
        if self.looks_through() {
            return;
        }
        if let Some(new) = edit.applied(&self.original) {
            edit.real(&self.original_path, &self.original, &new);
            self.original_became(new, None);
        }
    }

    /// The original is `new`, by a commit of `who` or by hand.
    fn original_became(&mut self, new: Tree, who: Option<usize>) {
        let stirred = changed(&self.original, &new);
        for (at, side) in self.sides.iter_mut().enumerate() {
            // Who committed knows what it has written there.
            if who != Some(at) {
                side.stirred.extend(stirred.iter().cloned());
            }
        }
        self.original = new;
    }

    pub fn commit(&mut self, who: usize, paths: &[&str], on_conflict: OnConflict) -> Checked {
        let mut paths: Vec<RelPath> = paths.iter().map(|p| rel(p)).collect();
        paths.sort();
        paths.dedup();
        let Ok(diff) = self.manager.diff(&self.target(who), &paths) else { return Ok(()) };
        let deltas: Vec<Delta> = diff.workspaces[0].entries.iter().map(Delta::of).collect();
        if self.is_beyond_the_model(who, &deltas) {
            return Ok(());
        }
        let request = CommitRequest { paths, on_conflict, ..CommitRequest::default() };
        let result = self.manager.commit(&self.target(who), &request, &rules());
        let baseless = self.baseless(who, &result)?;
        let commit = Commit { side: &self.sides[who], original: &self.original, deltas, baseless: &baseless };
        let verdict = commit.verdict(on_conflict);
        self.judge(who, result, verdict, on_conflict)
    }

    /// What the promise leaves open: content whose hash nobody knows, a directory that both sides made with different modes.
    fn is_beyond_the_model(&self, who: usize, deltas: &[Delta]) -> bool {
        let mine = &self.sides[who].mine;
        let other_mode = |d: &Delta| {
            let new = matches!(d.kind, DiffKind::Created | DiffKind::Renamed) && is_dir(mine, &d.path);
            new && is_dir(&self.original, &d.path) && self.original.get(&d.path) != mine.get(&d.path)
        };
        deltas.iter().any(|d| other_mode(d) || d.paths().any(|p| self.is_unsure(who, p)))
    }

    /// Where a merge found no base. It may not say so of what is certainly kept.
    fn baseless(
        &self,
        who: usize,
        result: &sandboxer_core::Result<TargetCommit>,
    ) -> Result<BTreeSet<String>, String> {
        let Err(Error::Conflict { conflicts }) = result else { return Ok(BTreeSet::new()) };
        let lost: Vec<_> =
            conflicts.iter().filter(|c| c.reason.contains("its base is not kept")).cloned().collect();
        let lost = names(&lost);
        match lost.iter().find(|path| self.sides[who].kept.contains(*path)) {
            Some(path) => Err(format!("the base of {path} is kept, but was not found")),
            None => Ok(lost),
        }
    }

    fn judge(
        &mut self,
        who: usize,
        result: sandboxer_core::Result<TargetCommit>,
        verdict: Verdict,
        on_conflict: OnConflict,
    ) -> Checked {
        match (result, verdict) {
            (Ok(done), Verdict::Done { changes, left_out }) => {
                let told: BTreeSet<String> =
                    done.workspaces[0].1.notices.iter().map(|n| n.path.to_string()).collect();
                equal("left out", &left_out, &told)?;
                equal("conflicts", &BTreeSet::new(), &names(&done.workspaces[0].1.conflicts))?;
                let before = (self.original.clone(), self.sides[who].base.clone());
                let settled: BTreeSet<String> =
                    changes.iter().filter(|c| c.settles).map(|c| c.delta.path.clone()).collect();
                let mut original = self.original.clone();
                let touched = self.sides[who].carry_out(&mut original, changes);
                self.original_became(original, Some(who));
                if on_conflict != OnConflict::Theirs {
                    self.check_nothing_lost(before, &settled)?;
                }
                let commit = done.op_id.clone();
                self.log(who, Done { id: done.op_id, commit, stands: true, touched })
            }
            (Err(Error::Conflict { conflicts }), Verdict::Refused { paths, marked }) => {
                equal("conflicts", &paths, &names(&conflicts))?;
                for (path, node, base) in marked {
                    self.sides[who].mine.insert(path.clone(), node);
                    self.sides[who].rebase(&path, Some(base), false);
                }
                Ok(())
            }
            (Ok(_), Verdict::Refused { paths, .. }) => Err(format!("not refused in spite of {paths:?}")),
            (Err(error), verdict) => Err(format!("{error:?}, but expected {verdict:?}")),
        }
    }

    /// What a person wrote goes only where nothing had moved, or into a merge.
    fn check_nothing_lost(&self, (original, base): (Tree, Tree), settled: &BTreeSet<String>) -> Checked {
        let lost = changed(&original, &self.original).into_iter().find(|path| {
            original.contains_key(path) && original.get(path) != base.get(path) && !settled.contains(path)
        });
        lost.map_or(Ok(()), |path| Err(format!("what was written to {path} by hand is lost")))
    }

    fn log(&mut self, who: usize, done: Done) -> Checked {
        if !done.touched.is_empty() {
            self.sides[who].operations.push(done);
        }
        Ok(())
    }

    /// Some hunks of a file: those whose bit is set.
    pub fn commit_hunks(&mut self, who: usize, path: &str, mask: u8) -> Checked {
        let side = &self.sides[who];
        let (Some(Node::File { bytes: old, mode }), Some(new)) = (side.base.get(path), side.mine.get(path))
        else {
            return Ok(());
        };
        let Some(new) = new.bytes().filter(|new| *new != old.as_slice()) else { return Ok(()) };
        if patch::is_binary(old) || patch::is_binary(new) || self.is_unsure(who, path) {
            return Ok(());
        }
        let mut chosen = Vec::new();
        let hunks = patch::hunks(old, new);
        let picked = hunks.iter().enumerate().filter(|(at, _)| mask & (1 << (at % 8)) != 0);
        picked.for_each(|(_, hunk)| patch::render_hunk(hunk, &mut chosen).unwrap());
        if chosen.is_empty() {
            return Ok(());
        }
        let content = patch::apply_exactly(old, &chosen).map_err(|e| format!("{path}: {e}"))?;
        let expected = Node::File { bytes: content, mode: *mode };
        let hunks = vec![HunkSelection { path: rel(path), patch: chosen }];
        let request = CommitRequest { hunks, ..CommitRequest::default() };
        let result = self.manager.commit(&self.target(who), &request, &rules());
        let delta = Delta { kind: DiffKind::Modified, path: path.to_owned(), from: None };
        let verdict = match moved(&self.original, &side.base, path) {
            true => Verdict::Refused { paths: BTreeSet::from([path.to_owned()]), marked: Vec::new() },
            false => {
                let change =
                    super::model::Change { delta, node: Some(expected), rebased: None, settles: false };
                Verdict::Done { changes: vec![change], left_out: BTreeSet::new() }
            }
        };
        self.judge(who, result, verdict, OnConflict::Fail)
    }

    /// Takes the newest commit back.
    pub fn undo_last(&mut self, who: usize) -> Checked {
        // Ids are in the order of time.
        let standing = self.sides[who].operations.iter().filter(|op| op.stands);
        let expected = standing.map(|op| op.commit.clone()).max_by(|a, b| a.as_str().cmp(b.as_str()));
        match (self.manager.last_commit(Some(&self.sandboxes[who])), expected) {
            (Err(Error::NotFound { .. }), None) => Ok(()),
            (Ok(found), Some(commit)) if found.id == commit => {
                let stands = |op: &Done| op.stands && op.commit == commit;
                let at = self.sides[who].operations.iter().position(stands).unwrap();
                self.undo_named(who, at, &commit)
            }
            (found, expected) => Err(format!("the last commit is {found:?}, expected {expected:?}")),
        }
    }

    /// Takes any operation back, undos included.
    pub fn undo(&mut self, who: usize, which: usize) -> Checked {
        match self.sides[who].operations.len() {
            0 => Ok(()),
            count => {
                let id = self.sides[who].operations[which % count].id.clone();
                self.undo_named(who, which % count, &id)
            }
        }
    }

    fn undo_named(&mut self, who: usize, at: usize, name: &OpId) -> Checked {
        let done = self.sides[who].operations[at].clone();
        let operation = self.manager.find_operation(name.as_str()).map_err(|e| e.to_string())?;
        let conflicts = Side::undo_conflicts(&self.original, &done);
        match self.manager.undo(&operation) {
            Ok(undone) if conflicts.is_empty() => {
                let mut original = self.original.clone();
                let touched = self.sides[who].undo(&mut original, &done);
                self.original_became(original, Some(who));
                self.sides[who].operations.remove(at);
                let id = undone.commit.op_id;
                self.log(who, Done { id, commit: done.commit, stands: !done.stands, touched })
            }
            Err(Error::Conflict { conflicts: told }) => {
                let mut told = told;
                told.iter_mut().for_each(|c| c.reason.clear());
                equal("conflicts of the undo", &conflicts, &names(&told))
            }
            Ok(_) => Err(format!("undone in spite of {conflicts:?}")),
            Err(error) => Err(format!("not undone: {error:?}; conflicts {conflicts:?}")),
        }
    }

    pub fn rollback(&mut self, who: usize, below: Option<&str>) -> Checked {
        let scope: Vec<RelPath> = below.map(rel).into_iter().collect();
        let Ok(diff) = self.manager.diff(&self.target(who), &scope) else { return Ok(()) };
        let entries = diff.workspaces.into_iter().flat_map(|w| w.entries);
        let gone: Vec<DiffEntry> = entries.filter(|e| e.is_selected(&scope)).collect();
        let deltas: Vec<Delta> = gone.iter().map(Delta::of).collect();
        let mut paths: BTreeSet<String> = deltas.iter().flat_map(Delta::paths).cloned().collect();
        let (mine, base) = (&self.sides[who].mine, &self.sides[who].base);
        for path in paths.clone().iter().filter(|p| base.contains_key(*p)) {
            paths.extend(ancestors(path).filter(|p| !is_dir(mine, p)).map(str::to_owned));
        }
        match self.manager.rollback(&self.target(who), &scope) {
            Ok(_) if self.looks_through() => {
                self.sides[who].rollback_to_base(&paths);
                Ok(())
            }
            Ok(_) => {
                self.sides[who].rollback(&self.original, &paths);
                Ok(())
            }
            // Half of a rename whose other half stands in the way may be refused; what it left is compared anyway.
            Err(_) if below.is_some() => Ok(()),
            Err(error) => Err(format!("not rolled back: {error:?}")),
        }
    }

    pub fn checkpoint(&mut self, who: usize) -> Checked {
        let taken = self.manager.checkpoint(&self.target(who), None).map_err(|e| format!("{e:?}"))?;
        let (name, mine) = (taken[0].1.checkpoint_id.to_string(), self.sides[who].mine.clone());
        self.sides[who].checkpoints.push((name, mine));
        Ok(())
    }

    pub fn restore(&mut self, who: usize, which: usize) -> Checked {
        let count = self.sides[who].checkpoints.len();
        if count == 0 {
            return Ok(());
        }
        let (name, tree) = self.sides[who].checkpoints[which % count].clone();
        self.manager.restore(&self.target(who), &name).map_err(|e| format!("{e:?}"))?;
        self.sides[who].mine = tree;
        Ok(())
    }

    /// Ends the sandbox, lets people work on the original, and takes it up again.
    pub fn park(&mut self, who: usize, meanwhile: &[Edit]) -> Checked {
        let entries = self.entries(who, &[]);
        let changes =
            entries.iter().map(Delta::of).flat_map(|d| d.paths().cloned().collect::<Vec<_>>()).collect();
        let ended =
            self.manager.destroy(&self.target(who), Uncommitted::Park).map_err(|e| format!("{e:?}"))?;
        meanwhile.iter().for_each(|edit| self.by_hand(edit));
        match ended {
            Ended::Destroyed if entries.is_empty() => self.create(who),
            Ended::Parked { changes: told } if told == entries.len() && told > 0 => {
                let id = self.sandboxes[who].id.as_str().to_owned();
                let parked = self.manager.find_parked(&id).map_err(|e| format!("{e:?}"))?;
                self.sandboxes[who] = self.manager.unpark(&parked, None).map_err(|e| format!("{e:?}"))?;
                // An overlay's base is the original at an instant, parked or not.
                if !self.looks_through() {
                    self.sides[who].unpark(&self.original, &changes);
                }
            }
            other => return Err(format!("{other:?} with {} changes", entries.len())),
        }
        Ok(())
    }

    /// Throws the sandbox away and makes another.
    pub fn renew(&mut self, who: usize) -> Checked {
        let ended =
            self.manager.destroy(&self.target(who), Uncommitted::Discard).map_err(|e| format!("{e:?}"))?;
        self.create(who);
        if ended == Ended::Destroyed { Ok(()) } else { Err(format!("{ended:?}")) }
    }

    fn create(&mut self, who: usize) {
        self.sandboxes[who] = create(&self.manager, self.strategy, &self.original_path);
        self.sides[who] = Side::fresh(&self.original);
    }

    /// Whatever has happened: what can be committed can be taken back, and then it is as if nothing had been.
    pub fn end(mut self) -> Checked {
        for who in [0, 1] {
            let (before, count) = (self.original.clone(), self.sides[who].operations.len());
            self.commit(who, &[], OnConflict::Theirs)?;
            self.check()?;
            if self.sides[who].operations.len() > count {
                self.undo_last(who)?;
                same("the original after a commit and its undo", &before, &read(&self.original_path))?;
                self.check()?;
            }
        }
        for who in [0, 1] {
            self.manager.destroy(&self.target(who), Uncommitted::Discard).map_err(|e| format!("{e:?}"))?;
        }
        same("the original in the end", &self.original, &read(&self.original_path))?;
        self.dir.close().map_err(|e| e.to_string())
    }
}

fn create(manager: &SandboxManager, strategy: &str, original: &Path) -> Sandbox {
    let input =
        Input { name: None, location: original.to_str().unwrap().to_owned(), properties: BTreeMap::new() };
    let request = CreateRequest {
        inputs: vec![input],
        strategy: Some(strategy.to_owned()),
        no_fallback: true,
        plan: None,
        name: None,
        ttl: None,
        consumer: Consumer { actor_type: "atm".to_owned(), project: "test".to_owned() },
        disposable: false,
        environment: None,
    };
    manager.get_or_create_sandbox(&request).unwrap().sandbox
}

fn same(what: &str, expected: &Tree, found: &Tree) -> Checked {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what} is not as it must be:\n{}", explain(expected, found)))
    }
}

fn equal(what: &str, expected: &BTreeSet<String>, found: &BTreeSet<String>) -> Checked {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, told {found:?}")) }
}
