//! From what the engine has staged to the changes of a git commit.

use std::collections::BTreeMap;
use std::fs::File;

use rustix::fs::OFlags;
use sandboxer_core::model::{Conflict, DiffEntry, DiffKind, Node, NodeType, OnConflict, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::commit::{Journal, LABELS, Step};
use sandboxer_fs::content::read_all;
use sandboxer_fs::hash::ContentHash;
use sandboxer_fs::merge;
use sandboxer_fs::patch;
use sandboxer_fs::root::{Root, stamp_of_fd};
use sandboxer_fs::space::History;
use sandboxer_git::attributes::{Attributes, Rules, ToStore, is_lfs_pointer};
use sandboxer_git::import::{Content, FileChange};
use sandboxer_git::objects;

use super::blocked::Blocked;
use super::knowledge::{FILE, Facts, LINK, Memory, PROGRAM, WorkTree, mode_of_file};

/// Files up to this are held in memory, to see whether they have to be converted.
const HELD: u64 = 64 << 20;

/// What changes are made from.
pub struct Source<'a> {
    /// What is staged.
    pub journal: &'a Journal,
    /// What git knows of the base and the tip.
    pub memory: &'a Memory,
    /// What git knows of the paths.
    pub facts: &'a Facts,
    /// The user's files and what git knows of them; none where the sandbox has none of them.
    pub user: Option<(&'a Facts, WorkTree<'a>)>,
    /// New paths that something is in the place of.
    pub blocked: &'a Blocked,
    /// Whether only a branch is made.
    pub is_branch: bool,
    /// Whether files can be told to be programs by their mode.
    pub file_mode: bool,
    /// How files become blobs.
    pub attributes: Attributes<'a>,
    /// What to do where the user's work is in the way.
    pub on_conflict: OnConflict,
}

/// How the sandbox's version of a file stands to the user's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is taken as it is.
    Alone,
    /// It has uncommitted work of the user's in it, which is left out.
    OverWork,
}

/// The paths that a commit is about.
pub fn paths_of(entries: &[DiffEntry]) -> Vec<RelPath> {
    let all = entries.iter().flat_map(|entry| entry.from.iter().chain([&entry.path]));
    all.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

impl Facts {
    /// Uncommitted work of the user's where a commit of `entry` wants to write. What git does not keep is the engine's affair alone.
    pub fn about(&self, work: &WorkTree<'_>, entry: &DiffEntry) -> Result<Option<Conflict>> {
        if !is_kept(&entry.old) && !is_kept(&entry.new) {
            return Ok(None);
        }
        for path in entry.from.iter().chain([&entry.path]) {
            if let Some(way) = self.in_the_way(work, path)? {
                return Ok(Some(Conflict::new(path.clone(), way.reason)));
            }
        }
        Ok(None)
    }

    /// Whether something at the entry's path is staged that is nowhere else.
    fn has_only_staged(&self, work: &WorkTree<'_>, entry: &DiffEntry) -> Result<bool> {
        Ok(self.in_the_way(work, &entry.path)?.is_some_and(|way| way.is_only_staged))
    }
}

/// Whether git has a name for what is there.
pub fn is_kept(node: &Option<Node>) -> bool {
    node.as_ref().is_some_and(|node| matches!(node.node_type, NodeType::File | NodeType::Symlink))
}

impl Source<'_> {
    /// What a commit of it changes. All that is in the way is told at once.
    pub fn changes(&self) -> Result<Vec<FileChange>> {
        let staged = self.staged();
        let rules = self.attributes.of(&self.put_paths())?;
        self.refuse_filtered(&rules, &staged)?;
        let stored = self.stored(&rules, &staged)?;
        let (mut changes, mut conflicts) = (Vec::new(), Vec::new());
        for entry in &self.journal.entries {
            let found = match self.blocked.conflict(entry) {
                Some(conflict) => Err(conflict),
                None => self.standing(entry)?,
            };
            match found {
                Ok(standing) => match self.change(entry, &staged, &stored, standing)? {
                    Ok(more) => changes.extend(more),
                    Err(conflict) => conflicts.push(conflict),
                },
                Err(conflict) => conflicts.push(conflict),
            }
        }
        if conflicts.is_empty() { Ok(changes) } else { Err(Error::Conflict { conflicts }) }
    }

    fn staged(&self) -> BTreeMap<&RelPath, &str> {
        self.journal.steps.iter().filter_map(placed).collect()
    }

    fn put_paths(&self) -> Vec<RelPath> {
        let files =
            |entry: &&DiffEntry| entry.new.as_ref().is_some_and(|node| node.node_type == NodeType::File);
        self.journal.entries.iter().filter(files).map(|entry| entry.path.clone()).collect()
    }

    /// How the sandbox's version stands to the user's work.
    fn standing(&self, entry: &DiffEntry) -> Result<Result<Standing, Conflict>> {
        let Some((facts, work)) = &self.user else { return Ok(Ok(Standing::Alone)) };
        let Some(conflict) = facts.about(work, entry)? else { return Ok(Ok(Standing::Alone)) };
        match self.on_conflict {
            _ if self.is_branch => self.standing_for_branch(entry, conflict),
            OnConflict::Theirs => Ok(Ok(Standing::Alone)),
            OnConflict::Merge | OnConflict::Mark if !facts.has_only_staged(work, entry)? => {
                Ok(Ok(Standing::OverWork))
            }
            _ => Ok(Err(conflict)),
        }
    }

    /// A branch touches nobody's files; but it must not take along what the user has not committed, and the sandbox was given.
    fn standing_for_branch(
        &self,
        entry: &DiffEntry,
        conflict: Conflict,
    ) -> Result<Result<Standing, Conflict>> {
        let path = entry.from.as_ref().unwrap_or(&entry.path);
        let before =
            self.journal.before.iter().find(|(at, _)| at == path).and_then(|(_, before)| before.as_ref());
        let committed = History::base(self.memory, path)?;
        Ok(match (before.and_then(|entry| entry.hash), committed) {
            (Some(hash), Some(content)) if hash == ContentHash::of(&content) => Ok(Standing::Alone),
            _ if entry.kind == DiffKind::Created => Ok(Standing::Alone),
            (Some(_), Some(_)) if !entry.moved => Ok(Standing::OverWork),
            _ => Err(conflict),
        })
    }

    /// What becomes of one entry.
    fn change(
        &self,
        entry: &DiffEntry,
        staged: &BTreeMap<&RelPath, &str>,
        stored: &BTreeMap<&RelPath, Vec<u8>>,
        standing: Standing,
    ) -> Result<Result<Vec<FileChange>, Conflict>> {
        let mut changes = Vec::new();
        changes.extend(entry.from.clone().map(FileChange::Remove));
        let Some(node) = entry.new.as_ref().filter(|_| is_kept(&entry.new)) else {
            if is_kept(&entry.old) {
                changes.push(FileChange::Remove(entry.path.clone()));
            }
            return Ok(Ok(changes));
        };
        let mode = self.mode_of(node, &entry.path);
        if entry.kind == DiffKind::Metadata && !staged.contains_key(&entry.path) {
            let before = self.facts.tip.get(&entry.path).filter(|before| before.mode != mode);
            changes.extend(before.map(|before| FileChange::Put {
                path: entry.path.clone(),
                mode,
                content: Content::Blob(before.oid.clone()),
            }));
            return Ok(Ok(changes));
        }
        let mut content = match stored.get(&entry.path) {
            Some(stored) => Content::Bytes(stored.clone()),
            None => self.content(entry, node, staged)?,
        };
        if standing == Standing::OverWork {
            content = match self.apart(entry, content)? {
                Ok(content) => content,
                Err(conflict) => return Ok(Err(conflict)),
            };
        }
        changes.push(FileChange::Put { path: entry.path.clone(), mode, content });
        Ok(Ok(changes))
    }

    /// The sandbox's change without the user's uncommitted one, which stays uncommitted.
    fn apart(&self, entry: &DiffEntry, content: Content) -> Result<Result<Content, Conflict>> {
        let path = &entry.path;
        let stuck = |why: &str| Ok(Err(Conflict::new(path.clone(), why)));
        let (Some(tip), Content::Bytes(theirs)) = (self.facts.tip.get(path), content) else {
            return stuck(
                "not committed in the checkout, and cannot be told apart from what the sandbox did",
            );
        };
        let ours = objects::read_blobs(&self.memory.ledger, std::slice::from_ref(&tip.oid))?.pop();
        // What is staged is the user's file with the sandbox's change in it: from there to the tip is the user's own change.
        let base = self.user.as_ref().map_or(Ok(None), |(_, work)| work.read(path))?;
        let (Some(ours), Some(base)) = (ours, base) else { return stuck("not committed in the checkout") };
        if [&base, &ours, &theirs].iter().any(|text| patch::is_binary(text)) {
            return stuck("not committed in the checkout, and binary files cannot be merged");
        }
        let merged = merge::merge(&base, &ours, &theirs, &LABELS);
        if merged.conflicts.is_empty() {
            return Ok(Ok(Content::Bytes(merged.content)));
        }
        let reason = "changed in the checkout and not committed; the sandbox changed the same lines";
        Ok(Err(Conflict { hunks: merged.conflicts, ..Conflict::new(path.clone(), reason) }))
    }

    /// As git knows modes.
    fn mode_of(&self, node: &Node, path: &RelPath) -> u32 {
        if node.node_type == NodeType::Symlink {
            return LINK;
        }
        let known = self.facts.tip.get(path).map_or(FILE, |entry| entry.mode);
        mode_of_file(node.mode, Some(known).filter(|_| !self.file_mode))
    }

    /// What is staged.
    fn content(&self, entry: &DiffEntry, node: &Node, staged: &BTreeMap<&RelPath, &str>) -> Result<Content> {
        let missing = || Error::corrupt(&self.journal.stage, format!("{} is not staged", entry.path));
        let name = staged.get(&entry.path).ok_or_else(missing)?;
        let stage = Root::open(&self.journal.stage)?.as_dir()?;
        if node.node_type == NodeType::Symlink {
            return stage.read_link(name.as_bytes()).map(Content::Bytes);
        }
        let fd = stage.open(name.as_bytes(), OFlags::RDONLY, 0, "open")?;
        let failed = |e: std::io::Error| Error::io("read", stage.shown(name.as_bytes()), e);
        let size = stamp_of_fd(&fd).map_err(|e| failed(e.into()))?.size;
        if size > HELD {
            return Ok(Content::File(File::from(fd), size));
        }
        read_all(fd, size).map(Content::Bytes).map_err(failed)
    }

    /// What the blobs hold that are not just what is staged.
    fn stored(
        &self,
        rules: &BTreeMap<RelPath, Rules>,
        staged: &BTreeMap<&RelPath, &str>,
    ) -> Result<BTreeMap<&RelPath, Vec<u8>>> {
        let mut found = Vec::new();
        for entry in self.journal.entries.iter().filter(|entry| staged.contains_key(&entry.path)) {
            let Some(rules) = rules.get(&entry.path).filter(|rules| rules.converts) else { continue };
            let Some(node) = entry.new.as_ref().filter(|_| is_kept(&entry.new)) else { continue };
            match self.content(entry, node, staged)? {
                Content::Bytes(bytes) if rules.change(&bytes) => found.push((&entry.path, bytes)),
                _ => {}
            }
        }
        let before = |path| self.facts.tip.get(path).filter(|e| matches!(e.mode, FILE | PROGRAM));
        let asked: Vec<ToStore<'_>> = found
            .iter()
            .map(|(path, content)| ToStore { path, content, before: before(path).map(|e| &e.oid) })
            .collect();
        let stored = self.attributes.stored_all(&asked)?;
        Ok(found.into_iter().map(|(path, _)| path).zip(stored).collect())
    }

    /// A filter would have to run to tell what git keeps of a file. Pointers are what one has made already.
    fn refuse_filtered(
        &self,
        rules: &BTreeMap<RelPath, Rules>,
        staged: &BTreeMap<&RelPath, &str>,
    ) -> Result<()> {
        let mut entries = Vec::new();
        for entry in &self.journal.entries {
            let filter = rules.get(&entry.path).and_then(|rules| rules.filter.as_ref());
            let (Some(filter), Some(node)) = (filter, &entry.new) else { continue };
            if !staged.contains_key(&entry.path) {
                continue;
            }
            let is_pointer = matches!(
                self.content(entry, node, staged)?,
                Content::Bytes(bytes) if is_lfs_pointer(&bytes)
            );
            if !is_pointer {
                let reason = format!(
                    "it goes through the filter {filter:?}, which is not run on what an agent wrote; copy and `git add` it by hand"
                );
                entries.push((entry.path.clone(), reason));
            }
        }
        if entries.is_empty() { Ok(()) } else { Err(Error::Uncommittable { entries }) }
    }
}

/// What a step puts in place: where, and its name in the stage.
fn placed(step: &Step) -> Option<(&RelPath, &str)> {
    match step {
        Step::Place { path, staged, .. } => Some((path, staged)),
        _ => None,
    }
}
