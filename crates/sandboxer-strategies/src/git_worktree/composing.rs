//! The commit itself: what it comes after, who it is by, and what of the index it changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sandboxer_core::model::{CommitRequest, History, Notice, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::Journal;
use sandboxer_fs::root::Root;
use sandboxer_fs::space::Space;
use sandboxer_git::import::{self, FileChange, Made, NewCommit};
use sandboxer_git::incoming;
use sandboxer_git::index::{self, Flag};
use sandboxer_git::objects;
use sandboxer_git::oid::Oid;
use sandboxer_git::private;
use sandboxer_git::quarantine::{self, AgentCommit, Quarantine};
use sandboxer_git::refs::Move;

use super::GitWorktree;
use super::attributing::AsCommitted;
use super::blocked::Blocked;
use super::changes::{Source, paths_of};
use super::knowledge::{Conversions, Facts, Memory, WorkTree};
use super::making::short;
use super::spec::{Edit, GitSpec, Plan, place};

/// Who a commit is by where git knows no name for the user.
const NOBODY: &str = "sandboxer <sandboxer@localhost>";

/// So many authors of kept commits are named.
const NAMED: usize = 3;

impl GitWorktree {
    /// Makes the commit of what is staged, and plans what it moves.
    pub(super) fn plan_commit(
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
        let (is_branch, file_mode) = (request.branch.is_some(), conversions.file_mode());
        // A branch begins elsewhere than where the user stands; a commit to the checkout does not, and git is asked once.
        let elsewhere = (onto.files != memory.tip)
            .then(|| Facts::of(spec, &memory.ledger, memory.tip.as_ref(), &paths))
            .transpose()?;
        let standing = elsewhere.as_ref().unwrap_or(&facts);
        let work = WorkTree { root: &pair.original, spec, home, file_mode };
        let blocked = Blocked::of(memory, onto.files.as_ref(), &facts, !is_branch, &journal.entries)?;
        let files = AsCommitted::of(journal, &memory.ledger, onto.files.as_ref());
        let attributes = conversions.within(&files);
        let on_conflict = request.on_conflict;
        // Files of another commit have nothing of the user's in them.
        let user = spec.has_target.then_some((standing, work));
        let source = Source {
            journal,
            memory,
            facts: &facts,
            user,
            blocked: &blocked,
            is_branch,
            file_mode,
            attributes,
            on_conflict,
        };
        let changes = source.changes()?;
        let removed = removed_by(&changes);
        let kept = self.kept_commits(home, &pair.copy, memory, request, &paths)?;
        if changes.is_empty() && kept.is_none() {
            return Ok(None);
        }
        let (who, mut notices) = author(spec, &paths)?;
        let parents = onto.parents(kept.as_ref());
        let message = message_of(spec, request, journal.entries.len());
        let made = import::commit(
            &memory.ledger,
            NewCommit {
                parents: &parents,
                changes,
                tree_of: Some(or_nothing(memory, onto.files.as_ref())?),
                author: &who,
                committer: &who,
                seconds: now(),
                offset: "+0000",
                message: &message,
            },
        )?;
        let new = onto.choose(memory, &made, kept.as_ref())?;
        if request.branch.is_some() {
            onto.refuse_leaving(memory, &new)?;
        }
        if Some(&new) == onto.tip.as_ref() {
            incoming::discard(&memory.ledger)?;
            return Ok(None);
        }
        notices.extend(onto.notice(&paths));
        notices.extend(kept.as_ref().and_then(|kept| kept.notice(&who, &paths)));
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
            kept: kept.as_ref().map_or(0, |kept| kept.commits.len()),
            own: kept.map(|kept| kept.tip),
            result: None,
            not_indexed: Vec::new(),
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
        // What came back with a checkpoint may be older than the base.
        if has_it_already(memory, &tip)? {
            return Ok(None);
        }
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
        refuse_strays(memory, &tip, &taken.commits, paths)?;
        Ok(Some(KeptCommits { tip, commits: taken.commits }))
    }
}

/// Commits of the sandbox's own.
struct KeptCommits {
    tip: Oid,
    commits: Vec<AgentCommit>,
}

impl KeptCommits {
    /// How many there are, and who they say they are by where that is not the user.
    fn notice(&self, user: &str, paths: &[RelPath]) -> Option<Notice> {
        // What the agent wrote is not for the terminal to obey.
        let plain = |author: &str| author.chars().filter(|c| !c.is_control()).collect::<String>();
        let authors = self.commits.iter().map(|commit| plain(&commit.author));
        let authors: BTreeSet<String> = authors.filter(|author| author != user).collect();
        let by = match authors.len() {
            0 => String::new(),
            1..=NAMED => format!(", by {}", Vec::from_iter(authors).join(", ")),
            more => {
                let named: Vec<String> = authors.into_iter().take(NAMED).collect();
                format!(", by {} and {} more", named.join(", "), more - NAMED)
            }
        };
        let commits = if self.commits.len() == 1 { "commit" } else { "commits" };
        let message = format!("{} {commits} made in the sandbox kept as they are{by}", self.commits.len());
        Some(Notice { path: paths.first()?.clone(), message })
    }
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
        let is_ours = tip == spec.base || tip.as_ref() == spec.left.get(&name);
        if tip.is_some() && !is_ours {
            return Err(not_ours(branch, "has commits that the sandbox did not make"));
        }
        if let (Some(tip), Some(base)) = (&tip, &spec.base)
            && !objects::is_ancestor(&memory.ledger, base, tip)?
        {
            return Err(not_ours(branch, "does not come from what the sandbox was made from"));
        }
        // The branch becomes what the sandbox is, whatever it has been.
        Ok(Self { name, tip, files: spec.base.clone(), has_moved: false })
    }

    /// What the commit comes after. What it has of files is none of their business: those are [`Onto::files`] and the changes.
    fn parents(&self, kept: Option<&KeptCommits>) -> Vec<Oid> {
        let tip = self.tip.clone();
        match kept {
            Some(kept) if self.has_moved => tip.into_iter().chain([kept.tip.clone()]).collect(),
            Some(kept) => vec![kept.tip.clone()],
            None => tip.or_else(|| self.files.clone()).into_iter().collect(),
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

    /// A branch goes only where its commits stay in it.
    fn refuse_leaving(&self, memory: &Memory, new: &Oid) -> Result<()> {
        match &self.tip {
            Some(tip) if !objects::is_ancestor(&memory.ledger, tip, new)? => {
                Err(not_ours(short(&self.name), "has commits that those of the sandbox do not follow"))
            }
            _ => Ok(()),
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

fn not_ours(branch: &str, why: &str) -> Error {
    Error::Refused {
        reason: format!("the branch {branch} is there already, and {why}"),
        hint: Some("name another branch, and merge the two by hand".to_owned()),
    }
}

/// A commit, or the tree of nothing where there is none.
fn or_nothing(memory: &Memory, commit: Option<&Oid>) -> Result<Oid> {
    commit.cloned().map_or_else(|| index::empty_tree(memory.ledger.format()).parse(), Ok)
}

/// Whether the base has a commit of the sandbox's in its history.
fn has_it_already(memory: &Memory, tip: &Oid) -> Result<bool> {
    let Some(base) = &memory.spec.base else { return Ok(false) };
    let is_known = memory.ledger.git().args(["cat-file", "-e", tip.as_str()]).try_output()?.is_some();
    Ok(is_known && objects::is_ancestor(&memory.ledger, tip, base)?)
}

/// Commits must not bring along what the difference does not show, not even to take it away again.
fn refuse_strays(memory: &Memory, tip: &Oid, commits: &[AgentCommit], paths: &[RelPath]) -> Result<()> {
    let base = or_nothing(memory, memory.spec.base.as_ref())?;
    let shown: BTreeSet<&RelPath> = paths.iter().collect();
    let mut changed = objects::touched_paths(&memory.ledger, commits.iter().map(|commit| &commit.id))?;
    changed.extend(objects::changed_paths(&memory.ledger, &base, tip)?);
    let stray: Vec<RelPath> = changed.into_iter().filter(|path| !shown.contains(path)).collect();
    let Some(first) = stray.first() else { return Ok(()) };
    let more = match stray.len() {
        1 => String::new(),
        count => format!(" and {} more paths", count - 1),
    };
    Err(Error::Refused {
        reason: format!(
            "the commits in the sandbox change {first}{more}, which its difference does not show"
        ),
        hint: Some(
            "commit without `--keep-commits`: what the difference shows becomes one commit".to_owned(),
        ),
    })
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
        let before_flag = facts.index.get(path).and_then(Flag::of);
        // Git itself clears `skip-worktree` of a file that exists.
        let stays = before_flag.filter(|flag| *flag == Flag::AssumeUnchanged && after.is_some());
        let flags = (before_flag, stays);
        (after.is_some() || is_removed).then(|| Edit { path: path.clone(), before, after, flags })
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
