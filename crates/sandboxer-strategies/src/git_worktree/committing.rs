//! A commit to the repository: made ready beside the engine's, locked, and carried out by the [`Sequel`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sandboxer_core::model::{
    CommitRequest, CommitResult, Conflict, History, Notice, OnConflict, OpId, Phase, RelPath, Revision,
    SandboxRef,
};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::Journal;
use sandboxer_fs::root::Root;
use sandboxer_fs::space::{Means, Space};
use sandboxer_git::import::{self, FileChange, Made, NewCommit};
use sandboxer_git::incoming;
use sandboxer_git::index::{self, NewIndex};
use sandboxer_git::ledger::Ledger;
use sandboxer_git::objects;
use sandboxer_git::oid::Oid;
use sandboxer_git::private::{self, Advance, Advanced, AgentHead};
use sandboxer_git::quarantine::{self, Quarantine};
use sandboxer_git::refs::{self, HeldRef, Move, Moved};
use ulid::Ulid;

use super::GitWorktree;
use super::changes::{Source, paths_of};
use super::knowledge::{Conversions, Facts, InBase, Memory, View, WorkTree};
use super::making::short;
use super::sequel::Sequel;
use super::spec::{Edit, GitSpec, Plan, place};
use crate::copies::home_of;

/// Who a commit is by where git knows no name for the user.
const NOBODY: &str = "sandboxer <sandboxer@localhost>";

impl GitWorktree {
    /// The engine's means, with the repository among those that hear of a commit.
    fn means_of_commit(&self) -> Means {
        let plain = self.files.means();
        let neighbours = Arc::new(Sequel { neighbours: plain.neighbours.clone(), held: self.held.clone() });
        Means { neighbours, ..plain }
    }

    /// Opens the workspace to make a commit ready: what git hides is hidden, and its history is asked.
    fn open_for_commit(&self, home: &Path) -> Result<(Box<dyn Space>, Arc<Memory>)> {
        let spec = GitSpec::load(home)?;
        let ledger = spec.ledger(home)?;
        let base = InBase::of(&ledger, spec.base.as_ref());
        let tip = spec.repository.branch_tip(spec.moves())?;
        let memory = Arc::new(Memory { home: home.to_path_buf(), spec, ledger, base, tip });
        let means = Means { history: Some(memory.clone()), ..self.means_of_commit() };
        let space = self.screened(self.files.open_space(home, means)?, &memory.spec, memory.base.clone())?;
        Ok((space, memory))
    }

    /// Lets a difference show what git shows.
    pub(super) fn screened(
        &self,
        mut space: Box<dyn Space>,
        spec: &GitSpec,
        base: InBase,
    ) -> Result<Box<dyn Space>> {
        let pair = space.pair_mut();
        let view = View::of(spec, &pair.home, pair.copy.path(), base)?;
        pair.shown = pair.shown.screened(Arc::new(view));
        Ok(space)
    }

    /// Does what `request` asks for.
    pub(super) fn commit_phase(&self, sandbox: &SandboxRef, request: &CommitRequest) -> Result<CommitResult> {
        let home = home_of(sandbox)?;
        match request.phase {
            Phase::Whole => {
                self.prepare(sandbox, &home, request)?;
                self.finish(sandbox, &home)
            }
            Phase::Prepare => self.prepare(sandbox, &home, request),
            Phase::Finish => self.finish(sandbox, &home),
            Phase::Abort => self.abort(sandbox, &home),
        }
    }

    fn prepare(&self, sandbox: &SandboxRef, home: &Path, request: &CommitRequest) -> Result<CommitResult> {
        let (space, memory) = self.open_for_commit(home)?;
        if let Some(branch) = &request.branch {
            self.check_branch(&memory, branch)?;
        } else {
            check_target(&memory.spec)?;
        }
        let on_conflict = if request.branch.is_some() { OnConflict::Theirs } else { request.on_conflict };
        let asked = CommitRequest { phase: Phase::Prepare, on_conflict, ..request.clone() };
        let prepared = self.phases.commit(space.as_ref(), sandbox, &asked);
        let prepared = prepared.map_err(|error| match error {
            Error::Conflict { conflicts } if on_conflict == OnConflict::Fail && sandbox.undo().is_none() => {
                all_conflicts(space.as_ref(), &memory, request, conflicts)
            }
            other => other,
        })?;
        let planned = self.plan(sandbox, home, space.as_ref(), &memory, request, &prepared);
        match planned {
            Ok(more) => Ok(CommitResult { notices: [prepared.notices, more].concat(), ..prepared }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.abort(sandbox, home);
                Err(error)
            }
        }
    }

    /// Makes the commit and locks what it moves. Returns what a careful person wants to know.
    fn plan(
        &self,
        sandbox: &SandboxRef,
        home: &Path,
        space: &dyn Space,
        memory: &Memory,
        request: &CommitRequest,
        prepared: &CommitResult,
    ) -> Result<Vec<Notice>> {
        self.forget_plan(home)?;
        let Some(journal) = Journal::load(&space.pair().files().prepared())? else { return Ok(Vec::new()) };
        let plan = match sandbox.undo() {
            Some(undone) => plan_undo(home, &memory.spec, &undone)?,
            None => self.plan_commit(home, space, memory, request, &journal)?,
        };
        let Some((mut plan, notices)) = plan else {
            // The branch has it all: what is staged is for no checkout.
            if request.branch.is_some() {
                space.abort()?;
            }
            return Ok(Vec::new());
        };
        (plan.operation, plan.digest) = (sandbox.operation(), journal.digest.clone());
        if request.branch.is_some() {
            let revision = Some(revision_of(&plan));
            plan.result = Some(CommitResult { revision, ..prepared.clone() });
            space.abort()?;
        } else {
            plan.index = Some(NewIndex::place(&memory.spec.repository, &Ulid::generate().to_string()));
        }
        // What is made in the user's repository is written down first, so that somebody can clear it up.
        plan.store(home)?;
        if let Some(index) = &plan.index {
            index.make(&memory.spec.repository, &plan.index_edits())?;
        }
        let held =
            HeldRef::prepare(&memory.spec.repository, &memory.ledger, std::slice::from_ref(&plan.moves))?;
        self.held.keep(home, held);
        Ok(notices)
    }

    fn plan_commit(
        &self,
        home: &Path,
        space: &dyn Space,
        memory: &Memory,
        request: &CommitRequest,
        journal: &Journal,
    ) -> Result<Option<(Plan, Vec<Notice>)>> {
        let spec = &memory.spec;
        let onto = Onto::of(memory, request)?;
        let paths = paths_of(&journal.entries);
        let facts = Facts::of(spec, &memory.ledger, onto.files.as_ref(), &paths)?;
        let conversions = Conversions::of(spec, home)?;
        let pair = space.pair();
        let work = request.branch.is_none().then_some(WorkTree { root: &pair.original, spec, home });
        let attributes = conversions.within(&pair.copy);
        let on_conflict = request.on_conflict;
        let source = Source { journal, memory, facts: &facts, work, attributes, on_conflict };
        let changes = source.changes()?;
        let removed = removed_by(&changes);
        let kept = self.kept_commits(home, &pair.copy, memory, request, &paths)?;
        if changes.is_empty() && kept.is_none() {
            return Ok(None);
        }
        let (who, mut notices) = author(spec, &paths)?;
        let (parents, tree_of) = onto.parents(kept.as_ref());
        let message = message_of(spec, request, journal.entries.len());
        let made = import::commit(
            &memory.ledger,
            NewCommit {
                parents: &parents,
                changes,
                tree_of,
                author: &who,
                committer: &who,
                seconds: now(),
                offset: "+0000",
                message: &message,
            },
        )?;
        let new = onto.choose(memory, &made, kept.as_ref())?;
        if Some(&new) == onto.tip.as_ref() {
            incoming::discard(&memory.ledger)?;
            return Ok(None);
        }
        notices.extend(onto.notice(&paths));
        let edits = edits_of(&facts, &made, &removed, &paths);
        let reason = format!("sandbox commit: {}", message.lines().next().unwrap_or_default());
        let plan = Plan {
            operation: None,
            digest: String::new(),
            moves: Move { name: onto.name, old: onto.tip, new: new.clone(), reason },
            index: None,
            edits,
            base_before: spec.base.clone(),
            base_after: if request.branch.is_some() { spec.base.clone() } else { Some(new) },
            kept: kept.map_or(0, |kept| kept.commits),
            result: None,
        };
        Ok(Some((plan, notices)))
    }

    /// The commits that were made inside, checked and brought to the incoming store.
    fn kept_commits(
        &self,
        home: &Path,
        tree: &Root,
        memory: &Memory,
        request: &CommitRequest,
        paths: &[RelPath],
    ) -> Result<Option<KeptCommits>> {
        if request.history == History::Squash {
            return Ok(None);
        }
        if !request.paths.is_empty() || !request.hunks.is_empty() {
            return Err(Error::Usage {
                message: "commits can be kept only where everything is committed".to_owned(),
                hint: Some("leave the paths out, or `--keep-commits`".to_owned()),
            });
        }
        let spec = &memory.spec;
        let state = private::read(tree, spec.repository.format)?;
        let Some(tip) = state.and_then(|state| state.commit).filter(|tip| Some(tip) != spec.base.as_ref())
        else {
            return Ok(None);
        };
        let taken = quarantine::take(
            tree,
            &Quarantine {
                work: &place(home),
                objects: &spec.repository.objects(),
                incoming: &memory.ledger.incoming(),
                format: spec.repository.format,
                base: spec.base.as_ref(),
                tip: &tip,
                limit: quarantine::SIZE_LIMIT,
            },
        )?;
        refuse_strays(memory, &tip, paths)?;
        Ok(Some(KeptCommits { tip, commits: taken.commits.len() }))
    }

    fn finish(&self, sandbox: &SandboxRef, home: &Path) -> Result<CommitResult> {
        if let Some(plan) = Plan::load(home)?.filter(|plan| plan.result.is_some()) {
            return self.finish_branch(home, plan);
        }
        let planned = Plan::load(home)?;
        let space = self.files.open_space(home, self.means_of_commit())?;
        let finish = CommitRequest { phase: Phase::Finish, ..CommitRequest::default() };
        let mut result = self.phases.commit(space.as_ref(), sandbox, &finish)?;
        // Nothing was decided, and nothing will be.
        self.forget_plan(home)?;
        let done = match sandbox.operation() {
            Some(operation) => Plan::kept(home, &operation)?,
            None => planned.filter(|_| !result.entries.is_empty()),
        };
        if let Some(plan) = done {
            result.conflicts.extend(moved_aside(&GitSpec::load(home)?, &plan, &result));
            result.revision = Some(revision_of(&plan));
            let _ = self.advance(home, &space.pair().copy, &plan);
        }
        Ok(result)
    }

    /// Only a branch is made; nothing else of the resource is touched.
    fn finish_branch(&self, home: &Path, plan: Plan) -> Result<CommitResult> {
        let spec = GitSpec::load(home)?;
        incoming::deliver(&spec.ledger(home)?)?;
        let moved = match self.held.take(home) {
            Some(held) => held.commit().map(|()| Moved::Done)?,
            None => refs::move_now(&spec.repository, &plan.moves)?,
        };
        self.phases.let_go(home);
        if let Moved::Elsewhere(_) = moved {
            self.forget_plan(home)?;
            return Err(branch_moved(&plan.moves.name));
        }
        refs::sync(&spec.repository, &plan.moves.name)?;
        self.forget_plan(home)?;
        Ok(plan.result.unwrap_or_default())
    }

    fn abort(&self, sandbox: &SandboxRef, home: &Path) -> Result<CommitResult> {
        if let Some(plan) = Plan::load(home)?.filter(|plan| plan.result.is_some()) {
            let spec = GitSpec::load(home)?;
            if spec.repository.branch_tip(&plan.moves.name)?.as_ref() == Some(&plan.moves.new) {
                return Err(Error::refused(format!("the branch {} is made already", plan.moves.name)));
            }
        }
        let space = self.files.open_space(home, self.files.means())?;
        let abort = CommitRequest { phase: Phase::Abort, ..CommitRequest::default() };
        let aborted = self.phases.commit(space.as_ref(), sandbox, &abort)?;
        self.forget_plan(home)?;
        Ok(aborted)
    }

    /// Lets go of everything that a plan holds, and of the plan.
    pub(super) fn forget_plan(&self, home: &Path) -> Result<()> {
        drop(self.held.take(home));
        if let Some(plan) = Plan::load(home)? {
            if let Some(index) = &plan.index {
                index.release()?;
            }
            incoming::discard(&GitSpec::load(home)?.ledger(home)?)?;
        }
        Plan::forget(home)
    }

    fn check_branch(&self, memory: &Memory, branch: &str) -> Result<()> {
        refs::check_branch_name(branch)?;
        let full = format!("refs/heads/{branch}");
        if !memory.spec.repository.is_checked_out(&full)? {
            return Ok(());
        }
        Err(Error::Refused {
            reason: format!(
                "the branch {branch} is checked out, and moving it would not change the files there"
            ),
            hint: Some("name another branch, or leave `--to` out to commit to the checkout".to_owned()),
        })
    }

    /// Moves the branch inside along, if it is where the base was: what was committed is not a change any more. It is a convenience, and
    /// whatever is odd inside is left alone.
    fn advance(&self, home: &Path, tree: &Root, plan: &Plan) -> Result<()> {
        let mut spec = GitSpec::load(home)?;
        let (Some(to), Some(state)) = (&plan.base_after, private::read(tree, spec.repository.format)?) else {
            return Ok(());
        };
        let is_ours = matches!(&state.head, AgentHead::Branch(name) if *name == spec.branch);
        if !is_ours || (state.commit != plan.base_before && plan.kept == 0) {
            return Ok(());
        }
        let job = Advance {
            work: &place(home),
            objects: &spec.repository.objects(),
            format: spec.repository.format,
            from: state.commit.as_ref(),
            to,
            edits: &index_between(&spec.ledger(home)?, plan.base_before.as_ref(), to)?,
        };
        if private::advance(tree, &job)? == Advanced::Moved {
            spec.index = private::index_stamp(tree)?;
            spec.store(home)?;
        }
        Ok(())
    }
}

/// What an index has to be told when its commit changes.
pub(super) fn index_between(ledger: &Ledger, from: Option<&Oid>, to: &Oid) -> Result<IndexEdits> {
    let from = from.cloned().map_or_else(|| index::empty_tree(ledger.format()).parse(), Ok)?;
    let paths = objects::changed_paths(ledger, &from, to)?;
    let mut entries = objects::tree_entries(ledger, to, &paths)?;
    let edit = |path: RelPath| {
        let now = entries.remove(&path).map(|entry| (entry.mode, entry.oid));
        (path, now)
    };
    Ok(paths.into_iter().map(edit).collect())
}

/// Paths, with mode and object or nothing.
type IndexEdits = Vec<(RelPath, Option<(u32, Oid)>)>;

/// Commits of the sandbox's own.
struct KeptCommits {
    tip: Oid,
    commits: usize,
}

/// Where a commit goes.
struct Onto {
    /// The full name of what is moved.
    name: String,
    /// Where that is now.
    tip: Option<Oid>,
    /// The commit whose files the changes are made to.
    files: Option<Oid>,
    /// Whether that has left the base.
    has_moved: bool,
}

impl Onto {
    fn of(memory: &Memory, request: &CommitRequest) -> Result<Self> {
        let spec = &memory.spec;
        let Some(branch) = &request.branch else {
            let has_moved = memory.tip != spec.base;
            return Ok(Self {
                name: spec.moves().to_owned(),
                tip: memory.tip.clone(),
                files: memory.tip.clone(),
                has_moved,
            });
        };
        let name = format!("refs/heads/{branch}");
        let tip = spec.repository.branch_tip(&name)?;
        if let (Some(tip), Some(base)) = (&tip, &spec.base)
            && !objects::is_ancestor(&memory.ledger, base, tip)?
        {
            return Err(Error::Refused {
                reason: format!(
                    "the branch {branch} is there already, and does not come from what the sandbox was made from"
                ),
                hint: Some("name another branch".to_owned()),
            });
        }
        // The branch becomes what the sandbox is, whatever it has been.
        Ok(Self { name, tip, files: spec.base.clone(), has_moved: false })
    }

    /// The parents of the commit, and the files it starts from where those are not the first parent's.
    fn parents(&self, kept: Option<&KeptCommits>) -> (Vec<Oid>, Option<Oid>) {
        match kept {
            Some(kept) if self.has_moved => {
                (self.tip.iter().cloned().chain([kept.tip.clone()]).collect(), None)
            }
            Some(kept) => (vec![kept.tip.clone()], self.files.clone()),
            None => {
                let parent = self.tip.clone().or_else(|| self.files.clone());
                (parent.into_iter().collect(), self.files.clone())
            }
        }
    }

    /// The commit that is wanted: none where it would change nothing, none of ours where the sandbox's own have it all.
    fn choose(&self, memory: &Memory, made: &Made, kept: Option<&KeptCommits>) -> Result<Oid> {
        let same_files = |commit: &Oid| {
            let told = memory.ledger.git().args(["rev-parse", &format!("{commit}^{{tree}}")]).line()?;
            Ok::<_, Error>(told == made.tree.as_str())
        };
        match (kept, &self.tip) {
            (Some(kept), _) if !self.has_moved && same_files(&kept.tip)? => Ok(kept.tip.clone()),
            (None, Some(tip)) if same_files(tip)? => Ok(tip.clone()),
            _ => Ok(made.commit.clone()),
        }
    }

    fn notice(&self, paths: &[RelPath]) -> Option<Notice> {
        let path = paths.first().filter(|_| self.has_moved)?.clone();
        let branch = short(&self.name);
        Some(Notice {
            path,
            message: format!("{branch} has moved since the sandbox was made: merged with what it has now"),
        })
    }
}

/// Commits must not bring along what the difference does not show.
fn refuse_strays(memory: &Memory, tip: &Oid, paths: &[RelPath]) -> Result<()> {
    let Some(base) = &memory.spec.base else { return Ok(()) };
    let changed = objects::changed_paths(&memory.ledger, base, tip)?;
    let stray: Vec<RelPath> = changed.into_iter().filter(|path| !paths.contains(path)).collect();
    let Some(first) = stray.first() else { return Ok(()) };
    Err(Error::Refused {
        reason: format!(
            "the commits in the sandbox change {} paths that its difference does not show, {first} among them",
            stray.len()
        ),
        hint: Some(
            "commit without `--keep-commits`: what the difference shows becomes one commit".to_owned(),
        ),
    })
}

/// What the engine found, and what git finds besides: all that is in the way is told at once. Git knows the better reasons.
fn all_conflicts(space: &dyn Space, memory: &Memory, request: &CommitRequest, found: Vec<Conflict>) -> Error {
    let mut all: BTreeMap<RelPath, Conflict> = found.into_iter().map(|c| (c.path.clone(), c)).collect();
    let more = || -> Result<Vec<Conflict>> {
        let entries = space.diff()?.select(&request.paths).entries;
        let facts = Facts::of(&memory.spec, &memory.ledger, memory.tip.as_ref(), &paths_of(&entries))?;
        let work = WorkTree { root: &space.pair().original, spec: &memory.spec, home: &memory.home };
        let each = entries.iter().map(|entry| facts.about(&work, entry));
        Ok(each.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    };
    // Where that cannot be told, the first conflicts are conflicts enough.
    for conflict in more().unwrap_or_default() {
        let hunks = all.remove(&conflict.path).map(|known| known.hunks).unwrap_or_default();
        all.insert(conflict.path.clone(), Conflict { hunks, ..conflict });
    }
    Error::Conflict { conflicts: all.into_values().collect() }
}

/// Nobody's checkout is switched to another branch.
fn check_target(spec: &GitSpec) -> Result<()> {
    let to = "`--to BRANCH` leaves the work as a branch of its own";
    if !spec.has_target {
        return Err(Error::Refused {
            reason: "the sandbox was made from another commit than the one that is checked out".to_owned(),
            hint: Some(to.to_owned()),
        });
    }
    let head = spec.repository.head()?;
    if head.branch == spec.target {
        return Ok(());
    }
    let name = |branch: &Option<String>| branch.as_deref().map_or("no branch", short).to_owned();
    let (now, then) = (name(&head.branch), name(&spec.target));
    let switch = spec.target.as_deref().map(|branch| format!("`git switch {}`, or ", short(branch)));
    Err(Error::Refused {
        reason: format!("the checkout is on {now} now, and the sandbox was made from {then}"),
        hint: Some(format!("{}{to}", switch.unwrap_or_default())),
    })
}

/// The way back: the branch and the index as they were, where nothing came on top.
fn plan_undo(home: &Path, spec: &GitSpec, undone: &OpId) -> Result<Option<(Plan, Vec<Notice>)>> {
    let Some(done) = Plan::kept(home, undone)? else { return Ok(None) };
    let branch = short(&done.moves.name).to_owned();
    let commit = done.moves.new.short().to_owned();
    let Some(back) = done.moves.old.clone() else {
        return Err(Error::Refused {
            reason: format!(
                "{commit} is the first commit of {branch}, and a branch cannot be without one again"
            ),
            hint: Some(format!("`git update-ref -d {}` does that", done.moves.name)),
        });
    };
    if spec.repository.branch_tip(&done.moves.name)?.as_ref() != Some(&done.moves.new) {
        return Err(Error::Refused {
            reason: format!("{branch} is not at {commit} any more"),
            hint: Some(format!("`git revert {commit}` takes it back with a commit of its own")),
        });
    }
    let paths: Vec<RelPath> = done.edits.iter().map(|edit| edit.path.clone()).collect();
    let now = index::entries(&spec.repository, &paths)?;
    let is_staged = |edit: &&Edit| now.get(&edit.path).map(|e| (e.mode, e.oid.clone())) != edit.after;
    let staged = done.edits.iter().filter(is_staged);
    let conflicts: Vec<Conflict> =
        staged.map(|edit| Conflict::new(edit.path.clone(), "staged in the checkout since")).collect();
    if !conflicts.is_empty() {
        return Err(Error::Conflict { conflicts });
    }
    let swap = |edit: Edit| Edit { path: edit.path, before: edit.after, after: edit.before };
    let reason = format!("sandbox undo: back from {commit}");
    let moves = Move { old: Some(done.moves.new), new: back, reason, ..done.moves };
    let (base_before, base_after) = (done.base_after, done.base_before);
    let edits = done.edits.into_iter().map(swap).collect();
    Ok(Some((Plan { moves, edits, base_before, base_after, index: None, kept: 0, ..done }, Vec::new())))
}

fn removed_by(changes: &[FileChange]) -> BTreeSet<RelPath> {
    let removed = |change: &FileChange| match change {
        FileChange::Remove(path) => Some(path.clone()),
        FileChange::Put { .. } => None,
    };
    changes.iter().filter_map(removed).collect()
}

/// What the index has now and has to have, where a commit changes it.
fn edits_of(facts: &Facts, made: &Made, removed: &BTreeSet<RelPath>, paths: &[RelPath]) -> Vec<Edit> {
    let edit = |path: &RelPath| {
        let before = facts.index.get(path).map(|entry| (entry.mode, entry.oid.clone()));
        let after = made.blobs.get(path).cloned();
        let is_removed = after.is_none() && before.is_some() && removed.contains(path);
        (after.is_some() || is_removed).then(|| Edit { path: path.clone(), before, after })
    };
    paths.iter().filter_map(edit).filter(|edit| edit.before != edit.after).collect()
}

/// The user, as git knows him.
fn author(spec: &GitSpec, paths: &[RelPath]) -> Result<(String, Vec<Notice>)> {
    if let Some(known) = spec.repository.identity()? {
        return Ok((known, Vec::new()));
    }
    let message =
        format!("committed as {NOBODY}: git knows no name for you (`git config user.name`, `user.email`)");
    let notices = paths.first().map(|path| Notice { path: path.clone(), message });
    Ok((NOBODY.to_owned(), notices.into_iter().collect()))
}

fn message_of(spec: &GitSpec, request: &CommitRequest, entries: usize) -> String {
    let paths = if entries == 1 { "path" } else { "paths" };
    let text = request.message.clone().filter(|text| !text.trim().is_empty());
    let mut text = text.unwrap_or_else(|| format!("Commit {entries} {paths} of {}", spec.branch));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn revision_of(plan: &Plan) -> Revision {
    let branch = plan.moves.name.strip_prefix("refs/heads/").map(str::to_owned);
    Revision { commit: plan.moves.new.to_string(), branch, kept: plan.kept }
}

fn branch_moved(name: &str) -> Error {
    Error::Refused {
        reason: format!("the branch {} was moved by somebody else in this very moment", short(name)),
        hint: Some("look at what it has now, and commit again".to_owned()),
    }
}

/// A branch that was moved by force after the files were decided: its commit is elsewhere.
fn moved_aside(spec: &GitSpec, plan: &Plan, result: &CommitResult) -> Option<Conflict> {
    let aside = plan.moves.name == format!("refs/heads/{}", spec.branch);
    let path = result.entries.first().filter(|_| aside)?.path.clone();
    let reason = format!(
        "{} was moved by somebody else while the files were put in place; the commit is the branch {}",
        short(spec.moves()),
        spec.branch
    );
    Some(Conflict::new(path, reason))
}
