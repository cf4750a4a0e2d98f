//! Choosing part of a difference: hunk by hunk on a terminal, or with a patch that says which hunks.
//!
//! Both ways end in the same [`Chosen`]: entries that are taken as a whole, and hunks of text files as patches. A commit
//! hands them on to the engine; a rollback takes the hunks out of the sandbox's files. What can only be had as a whole
//! (anything but changed lines of a text file) is decided by `offer`, the conversation is in `ask`, and what a person does in
//! an editor in `edit`. Content comes from programs that nobody vouches for: all of it is escaped before it is shown.

mod ask;
mod discard;
mod edit;
mod offer;
mod patch_file;
mod terminal;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use sandboxer_core::Error;
use sandboxer_core::model::{CommitRequest, DiffEntry, HunkSelection, OnConflict, RelPath};
use sandboxer_core::policy::CommitRules;
use sandboxer_core::service::{Target, TargetDiff, WorkspaceDiff};
use sandboxer_documents::conflicts::Attempt;
use sandboxer_documents::patch::load as load_sides;
use sandboxer_fs::patch::{self, PatchError};

use super::conflicts;
use super::error::{CliError, Kind};
use super::output::{self, shell_word};
use super::session::{App, Session};

pub use discard::discard;

const CHOOSE_AGAIN: &str = "type the command again to choose from what is there now";

/// How part of a difference is chosen.
#[derive(clap::Args)]
pub struct SelectionArgs {
    /// Choose hunk by hunk, on a terminal
    #[arg(short, long)]
    pub patch: bool,
    /// Choose the hunks that are in this patch; - reads it from stdin
    ///
    /// It is what `sandbox diff --patch` or `git diff` prints, with hunks left out or lines of hunks: make a `-` line
    /// an unchanged one, or delete a `+` line (to roll back, the other way round). What a file's patch creates, deletes, renames or changes in another way
    /// than by lines is taken as a whole. Lines that the sandbox has neither added nor removed there are refused (exit 5).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["patch", "paths"])]
    pub hunks: Option<PathBuf>,
}

/// What the choice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Hunks are made real: they lead from the base to something new.
    Commit,
    /// Hunks are thrown away: they are taken out of what the sandbox has.
    Discard,
}

impl Purpose {
    fn verb(self) -> &'static str {
        match self {
            Self::Commit => "Commit",
            Self::Discard => "Discard",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Discard => "rollback",
        }
    }

    /// What becomes of the file that the choice is made in.
    fn apply(self, sides: &Texts, hunks: &[u8]) -> Result<Vec<u8>, PatchError> {
        match self {
            Self::Commit => patch::apply_exactly(&sides.old, hunks),
            Self::Discard => patch::apply_exactly(&sides.new, &patch::reverse_hunks(hunks)?),
        }
    }

    /// Refuses hunks that are no part of what the sandbox did.
    fn check_part_of(self, sides: &Texts, hunks: &[u8]) -> Result<(), PatchError> {
        match self {
            Self::Commit => patch::check_part_of(&sides.old, &sides.new, hunks),
            Self::Discard => patch::check_part_of(&sides.new, &sides.old, &patch::reverse_hunks(hunks)?),
        }
    }
}

/// Both sides of a text file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Texts {
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Texts {
    /// Both sides of an entry, if that is text on both.
    fn of(sides: sandboxer_fs::content::Sides) -> Option<Self> {
        let (old, new) = (sides.old?, sides.new?);
        (!patch::is_binary(&old) && !patch::is_binary(&new)).then_some(Self { old, new })
    }
}

/// What was chosen.
#[derive(Debug, Default, PartialEq)]
pub struct Chosen {
    /// Entries that are taken as a whole.
    whole: Vec<RelPath>,
    /// Those entries, and what is below them, as they were when they were chosen.
    seen: Vec<DiffEntry>,
    /// Files of which hunks are taken.
    files: Vec<FileHunks>,
}

/// The hunks that were chosen of one file.
#[derive(Debug, PartialEq)]
struct FileHunks {
    path: RelPath,
    hunks: Vec<u8>,
    /// The file as it was when they were chosen.
    sides: Texts,
}

impl Chosen {
    /// Whether nothing was.
    pub fn is_nothing(&self) -> bool {
        self.whole.is_empty() && self.files.is_empty()
    }

    /// Makes it what a commit is about.
    pub fn put_into(&self, request: &mut CommitRequest) {
        let selection =
            |file: &FileHunks| HunkSelection { path: file.path.clone(), patch: file.hunks.clone() };
        request.paths = self.whole.clone();
        request.hunks = self.files.iter().map(selection).collect();
    }

    /// The digest that a commit of it is held to, so that whole entries are committed as they were seen: what a dry run
    /// makes of them, if that is what was shown. Chosen hunks need none, they bring their content along. `None` where
    /// there is nothing to hold it to, or the strategy cannot try.
    pub fn digest_as_seen(
        &self,
        session: &Session,
        target: &Target,
        request: &CommitRequest,
        attempt: &Attempt<'_>,
    ) -> Result<Option<String>, CliError> {
        // Trying to write conflict markers would write them.
        let in_vain = self.whole.is_empty() || request.on_conflict == OnConflict::Mark;
        if in_vain || !can_try(session, target) {
            return Ok(None);
        }
        // The rules have their say in the commit itself, where somebody can be asked.
        let anything = CommitRules { accept_flags: true, ..CommitRules::default() };
        let tried = session.manager.try_commit(target, request, &anything);
        let tried = tried.map_err(|error| conflicts::explain(error, attempt))?;
        // What is merged is neither side's.
        if request.on_conflict == OnConflict::Fail {
            let prepared: Vec<&DiffEntry> = tried.workspaces.iter().flat_map(|(_, r)| &r.entries).collect();
            if let Some(entry) = self.seen.iter().find(|seen| has_other_content(seen, &prepared)) {
                return Err(changed_meanwhile(&entry.path));
            }
        }
        check_as_seen(session, target, self)?;
        Ok(Some(tried.digest))
    }

    fn take_whole(&mut self, entry: &DiffEntry, all: &[DiffEntry]) {
        self.seen.push(entry.clone());
        self.seen.extend(offer::taken_along(entry, all).into_iter().cloned());
        self.whole.push(entry.path.clone());
    }
}

/// A commit that was held to what was seen, and is of something else.
pub fn not_as_seen() -> CliError {
    let message = "what was chosen has changed in the sandbox since it was shown; nothing was done";
    CliError::new(Kind::Conflict, message).hint(CHOOSE_AGAIN)
}

fn can_try(session: &Session, target: &Target) -> bool {
    let registry = session.manager.registry();
    let two_phase = |name: &str| registry.get(name).is_ok_and(|entry| entry.capabilities.two_phase);
    target.workspaces.iter().all(|workspace| two_phase(&workspace.sandbox_ref.strategy_name))
}

/// Whether an entry's content was prepared, and is not what was seen.
fn has_other_content(seen: &DiffEntry, prepared: &[&DiffEntry]) -> bool {
    let content = |entry: &DiffEntry| {
        entry.new.as_ref().map(|node| (node.node_type, node.digest.clone(), node.target.clone()))
    };
    let now = prepared.iter().find(|entry| entry.path == seen.path);
    now.is_some_and(|now| content(now) != content(seen))
}

/// Asks, or reads the patch; `None` if nothing of the kind was asked for.
pub fn choose(
    app: &mut App,
    session: &Session,
    target: &Target,
    args: &SelectionArgs,
    paths: &[RelPath],
    purpose: Purpose,
) -> Result<Option<Chosen>, CliError> {
    if args.hunks.is_none() && !args.patch {
        return Ok(None);
    }
    check_ability(session, target, purpose)?;
    let chosen = match &args.hunks {
        None => choose_on_terminal(app, session, target, paths, purpose)?,
        Some(file) => patch_file::choose(app, session, target, file, purpose)?,
    };
    check_as_seen(session, target, &chosen)?;
    Ok(Some(chosen))
}

/// Said before anybody has answered questions in vain. A rollback writes into the sandbox, which every strategy can.
fn check_ability(session: &Session, target: &Target, purpose: Purpose) -> Result<(), CliError> {
    for workspace in target.workspaces.iter().filter(|_| purpose == Purpose::Commit) {
        let strategy = &workspace.sandbox_ref.strategy_name;
        if session.manager.registry().get(strategy).is_ok_and(|entry| !entry.capabilities.select_hunks) {
            let (strategy, reason) = (strategy.clone(), "it commits everything or nothing".to_owned());
            return Err(Error::Unsupported { strategy, what: "commit chosen hunks", reason }.into());
        }
    }
    Ok(())
}

fn choose_on_terminal(
    app: &mut App,
    session: &Session,
    target: &Target,
    paths: &[RelPath],
    purpose: Purpose,
) -> Result<Chosen, CliError> {
    if app.ui.json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = if app.ui.json {
            "`--patch` talks to a person, not in JSON"
        } else {
            "`--patch` asks on a terminal, and this is none"
        };
        let hint = format!("choose with a patch instead: `sandbox {} ID --hunks FILE`", purpose.command());
        return Err(CliError::usage(why).hint(hint));
    }
    let diff = session.manager.diff(target, paths)?;
    let of = single(&diff, purpose)?;
    let mut terminal = terminal::Terminal::new(&mut app.ui, &session.signals);
    let load = |entry: &DiffEntry| Ok(load_sides(&of.workspace, entry)?);
    ask::Selector::new(&mut terminal, purpose, &load).run(&of.entries)
}

/// Hunks are named by paths, which are of one workspace.
fn single(diff: &TargetDiff, purpose: Purpose) -> Result<&WorkspaceDiff, CliError> {
    match diff.workspaces.as_slice() {
        [only] => Ok(only),
        several => {
            let changed = several.iter().find(|w| !w.entries.is_empty()).or(several.first());
            let name = changed.map(|w| shell_word(&w.workspace.name)).unwrap_or_default();
            let hint = format!("`sandbox {} ID:{name} --patch`", purpose.command());
            let message = format!("hunks are chosen in one workspace; this sandbox has {}", several.len());
            Err(CliError::usage(message).hint(hint))
        }
    }
}

/// Whole entries are taken as they are at the moment: nobody may have changed them since somebody looked.
fn check_as_seen(session: &Session, target: &Target, chosen: &Chosen) -> Result<(), CliError> {
    match first_changed(session, target, chosen)? {
        Some(path) => Err(changed_meanwhile(&path)),
        None => Ok(()),
    }
}

/// The first whole entry that is not what was seen.
fn first_changed(session: &Session, target: &Target, chosen: &Chosen) -> Result<Option<RelPath>, CliError> {
    if chosen.whole.is_empty() {
        return Ok(None);
    }
    let now = session.manager.diff(target, &[])?;
    let now = now.workspaces.iter().flat_map(|w| &w.entries);
    let now: BTreeMap<&RelPath, &DiffEntry> = now.map(|entry| (&entry.path, entry)).collect();
    let same = |seen: &DiffEntry, now: &DiffEntry| {
        (seen.kind, &seen.from, &seen.new) == (now.kind, &now.from, &now.new)
    };
    let changed = |seen: &&DiffEntry| {
        !now.get(&seen.path).is_some_and(|now| same(seen, now)) || came_below(seen, &now, chosen)
    };
    Ok(chosen.seen.iter().find(changed).map(|entry| entry.path.clone()))
}

/// Whether something is below a chosen directory that nobody was shown.
fn came_below(seen: &DiffEntry, now: &BTreeMap<&RelPath, &DiffEntry>, chosen: &Chosen) -> bool {
    if !offer::is_directory(seen) || !chosen.whole.contains(&seen.path) {
        return false;
    }
    let mut below = now.values().filter(|entry| entry.is_selected(std::slice::from_ref(&seen.path)));
    below.any(|entry| !chosen.seen.iter().any(|seen| seen.path == entry.path))
}

/// Somebody works in the sandbox while somebody else chooses.
fn changed_meanwhile(path: &RelPath) -> CliError {
    changed_and(path, "nothing was done")
}

/// The same, with what was done all the same.
fn changed_and(path: &RelPath, done: &str) -> CliError {
    let message =
        format!("{} has changed in the sandbox since it was shown; {done}", output::name(path.as_bytes()));
    CliError::new(Kind::Conflict, message).on(path.as_path()).hint(CHOOSE_AGAIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandboxer_core::model::{DiffKind, Node, NodeType};

    use super::*;

    fn file(path: &str, digest: &str, mode: u32) -> DiffEntry {
        let digest = Some(digest.to_owned());
        let node = Node {
            node_type: NodeType::File,
            mode,
            uid: 0,
            gid: 0,
            size: 1,
            digest,
            target: None,
            xattrs: None,
        };
        DiffEntry { new: Some(node), ..DiffEntry::new(RelPath::parse(path).unwrap(), DiffKind::Created) }
    }

    #[test]
    fn what_is_prepared_has_to_be_what_was_seen() {
        let seen = file("a", "1", 0o644);
        assert!(!has_other_content(&seen, &[&file("b", "2", 0o644), &file("a", "1", 0o644)]));
        assert!(has_other_content(&seen, &[&file("a", "2", 0o644)]));
        let gone = DiffEntry::new(RelPath::parse("a").unwrap(), DiffKind::Deleted);
        assert!(has_other_content(&seen, &[&gone]) && has_other_content(&gone, &[&seen]));
        assert!(!has_other_content(&gone, &[&gone]));
    }
}
