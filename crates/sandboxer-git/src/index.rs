//! The user's index, read and changed under git's own lock.
//!
//! Git changes an index by writing a new one to `index.lock`, which nobody may make while it is there, and renaming it over the old. We do the
//! same, but let git write the new one under a name of ours first and make that name the lock by a hard link: so a lock that is found after a
//! crash is known to be ours, or somebody else's, by its inode, and the one who finds it can finish or give up.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable::sync_dir;
use serde::{Deserialize, Serialize};

use crate::git::Git;
use crate::import::refuse_unsafe;
use crate::oid::{ObjectFormat, Oid};
use crate::repository::Repository;

/// Up to so many paths git is asked for each; for more it lists all, as it goes through all for each.
const ASKED_ONE_BY_ONE: usize = 64;

/// How often a new index is made without holding the lock. After that many changes by git the lock is taken first.
const UNLOCKED_ATTEMPTS: usize = 4;

/// How often, and how long each time, somebody else's lock is waited for: a git that only looks is done by then.
const WAITS: (usize, Duration) = (20, Duration::from_millis(50));

/// Suffixes of the files beside a new index: what the lock is a name of while the index is edited under it, the name that replaces
/// it then, and the lock of the git that edits.
const PLACEHOLDER: &str = "-placeholder";
const SECOND_NAME: &str = "-second";
const LOCK_OF_GIT: &str = ".lock";

/// What an index has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// As in a tree.
    pub mode: u32,
    /// The blob, or the commit of another repository.
    pub oid: Oid,
    /// 0, or the lowest stage that is there while a merge is not resolved.
    pub stage: u8,
    /// What sets it apart: `unmerged`, `skip-worktree`, `assume-unchanged` or `intent-to-add`.
    pub special: Option<&'static str>,
}

/// What the index has at exactly these paths; what it does not have is left out.
pub fn entries(repo: &Repository, paths: &[RelPath]) -> Result<BTreeMap<RelPath, IndexEntry>> {
    if paths.is_empty() {
        return Ok(BTreeMap::new());
    }
    let git = repo.git().args(["ls-files", "-s", "-v", "-z", "--full-name", "--"]);
    let asked = if paths.len() <= ASKED_ONE_BY_ONE { paths } else { &[] };
    let told = git.args(asked.iter().map(RelPath::as_path)).output()?;
    let wanted: BTreeSet<&RelPath> = paths.iter().collect();
    let mut found = BTreeMap::new();
    for row in told.split(|b| *b == 0).filter(|row| !row.is_empty()) {
        let entry = parse_row(row)
            .ok_or_else(|| Error::corrupt(repo.index(), "`git ls-files` said something unknown"))?;
        let path = RelPath::from_bytes(entry.0)?;
        if wanted.contains(&path) {
            found.entry(path).or_insert(entry.1);
        }
    }
    mark_intents(repo, &mut found)?;
    Ok(found)
}

/// Every path in the index.
pub fn names(repo: &Repository) -> Result<BTreeSet<RelPath>> {
    let told = repo.git().args(["ls-files", "-z", "--full-name"]).output()?;
    let names = told.split(|b| *b == 0).filter(|name| !name.is_empty());
    names.map(|name| RelPath::from_bytes(name).map_err(Error::from)).collect()
}

/// The paths that stand for commits of other repositories.
pub fn submodules(repo: &Repository) -> Result<Vec<RelPath>> {
    let told = repo.git().args(["ls-files", "-s", "-z", "--full-name"]).output()?;
    let rows = told.split(|b| *b == 0).filter(|row| row.starts_with(b"160000 "));
    let path = |row: &[u8]| row.iter().position(|b| *b == b'\t').map(|tab| row[tab + 1..].to_vec());
    rows.filter_map(path).map(|path| RelPath::from_bytes(path).map_err(Error::from)).collect()
}

/// A row is `TAG SP MODE SP OID SP STAGE TAB PATH`.
fn parse_row(row: &[u8]) -> Option<(&[u8], IndexEntry)> {
    let tab = row.iter().position(|b| *b == b'\t')?;
    let head = std::str::from_utf8(&row[..tab]).ok()?;
    let mut words = head.split(' ');
    let tag = words.next()?;
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let oid = words.next()?.parse().ok()?;
    let stage: u8 = words.next()?.parse().ok()?;
    let special = match tag {
        _ if stage != 0 => Some("unmerged"),
        "S" | "s" => Some("skip-worktree"),
        _ if tag.starts_with(|c: char| c.is_ascii_lowercase()) => Some("assume-unchanged"),
        _ => None,
    };
    Some((&row[tab + 1..], IndexEntry { mode, oid, stage, special }))
}

/// `git add -N` leaves an entry that looks like an empty file; only a difference leaves it out.
fn mark_intents(repo: &Repository, found: &mut BTreeMap<RelPath, IndexEntry>) -> Result<()> {
    let empty = repo.format.blob(b"");
    let looks_so = |entry: &IndexEntry| entry.oid == empty && entry.special.is_none();
    if !found.values().any(looks_so) {
        return Ok(());
    }
    let git = repo.git().args(["diff-index", "--cached", "--ita-invisible-in-index", "--no-renames"]);
    let told = git.args(["--name-only", "-z", empty_tree(repo.format)]).output()?;
    let real: BTreeSet<&[u8]> = told.split(|b| *b == 0).collect();
    for (path, entry) in found.iter_mut().filter(|(_, entry)| looks_so(entry)) {
        if !real.contains(path.as_bytes()) {
            entry.special = Some("intent-to-add");
        }
    }
    Ok(())
}

/// The tree of nothing, which git knows without having it.
pub fn empty_tree(format: ObjectFormat) -> &'static str {
    match format {
        ObjectFormat::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        ObjectFormat::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    }
}

/// What happens to one path of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEdit {
    /// Where.
    pub path: RelPath,
    /// The mode and the object that it has afterwards; `None` takes it out.
    pub entry: Option<(u32, Oid)>,
    /// What git is to overlook there.
    pub flag: Option<Flag>,
}

/// What somebody told git to overlook at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// That the file is changed.
    AssumeUnchanged,
    /// That it is not there.
    SkipWorktree,
}

impl Flag {
    /// That of an entry.
    pub fn of(entry: &IndexEntry) -> Option<Self> {
        match entry.special {
            Some("assume-unchanged") => Some(Self::AssumeUnchanged),
            Some("skip-worktree") => Some(Self::SkipWorktree),
            _ => None,
        }
    }
}

/// An index that is to take the place of the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewIndex {
    /// The name that is ours.
    pub temporary: PathBuf,
    /// The name that is git's lock.
    pub lock: PathBuf,
}

impl NewIndex {
    /// Names the files, and makes none: the caller writes the names down first. `name` must not have been used before.
    pub fn place(repo: &Repository, name: &str) -> Self {
        let temporary = repo.git_dir.join(format!(".sandboxer-index-{name}"));
        Self { temporary, lock: repo.git_dir.join("index.lock") }
    }

    /// Makes the new index and takes the lock. The objects that it names need not be there yet.
    pub fn make(&self, repo: &Repository, edits: &[IndexEdit]) -> Result<()> {
        let made = self.try_make(repo, edits);
        made.inspect_err(|_| {
            let _ = self.release();
        })
    }

    fn try_make(&self, repo: &Repository, edits: &[IndexEdit]) -> Result<()> {
        let input = index_info(repo.format, edits)?;
        // A process that was killed in here may have left the placeholder as the lock.
        self.release_this()?;
        for _ in 0..UNLOCKED_ATTEMPTS {
            let before = self.copy(&repo.index())?;
            self.edit(repo, &input, edits)?;
            self.take_lock(&self.temporary)?;
            if before == Stamp::of(&repo.index())? {
                return Ok(());
            }
            self.release()?;
        }
        self.make_locked(repo, &input, edits)
    }

    /// Makes the new index while a placeholder is the lock, so that git cannot change the index meanwhile.
    ///
    /// The placeholder is no name of the new index: a crash in here leaves a lock that is not held ([`Self::is_held`]), and an unfinished
    /// index is never installed. The last rename replaces the lock by the finished index without releasing it.
    fn make_locked(&self, repo: &Repository, input: &[u8], edits: &[IndexEdit]) -> Result<()> {
        let (placeholder, second_name) = (self.beside(PLACEHOLDER), self.beside(SECOND_NAME));
        File::create_new(&placeholder).map_err(|e| Error::io("create", &placeholder, e))?;
        self.take_lock(&placeholder)?;
        self.copy(&repo.index())?;
        self.edit(repo, input, edits)?;
        std::fs::hard_link(&self.temporary, &second_name).map_err(|e| Error::io("link", &second_name, e))?;
        if !same_file(&self.lock, &placeholder)? {
            let holder = Some("its lock was removed while it was edited".to_owned());
            return Err(Error::Busy { path: repo.index(), holder });
        }
        let step = |e| Error::io("rename into place", &self.lock, e);
        std::fs::rename(&second_name, &self.lock).map_err(step)?;
        remove(&placeholder)
    }

    /// The name of this index with a suffix.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.temporary.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Copies the index as it is now, with its time, by which git tells what it has to look at again.
    fn copy(&self, index: &Path) -> Result<Option<Stamp>> {
        remove(&self.temporary)?;
        let before = Stamp::of(index)?;
        if before.is_none() {
            return Ok(None);
        }
        let step = |e| Error::io("copy", index, e);
        let mut from = File::open(index).map_err(step)?;
        let like = from.metadata().map_err(step)?;
        let mut options = OpenOptions::new();
        let mut to = options.write(true).create_new(true).mode(0o600).open(&self.temporary).map_err(step)?;
        std::io::copy(&mut from, &mut to).map_err(step)?;
        to.set_modified(like.modified().map_err(step)?).map_err(step)?;
        Ok(before)
    }

    fn edit(&self, repo: &Repository, input: &[u8], edits: &[IndexEdit]) -> Result<()> {
        let git = || Ok::<_, Error>(without_filters(repo)?.env("GIT_INDEX_FILE", &self.temporary));
        git()?.args(["update-index", "--replace", "-z", "--index-info"]).feed(input)?;
        for (flag, word) in FLAGS {
            let paths = flagged(edits, flag);
            if !paths.is_empty() {
                git()?.args(["update-index", word, "-z", "--stdin"]).feed(&paths)?;
            }
        }
        let step = |e| Error::io("flush", &self.temporary, e);
        let file = match File::open(&self.temporary) {
            // Nothing was changed in an index that is not there.
            Err(e) if e.kind() == ErrorKind::NotFound => return self.write_empty(repo),
            opened => opened.map_err(step)?,
        };
        file.sync_all().map_err(step)
    }

    fn write_empty(&self, repo: &Repository) -> Result<()> {
        let git = repo.git().env("GIT_INDEX_FILE", &self.temporary);
        git.args(["read-tree", "--empty"]).output()?;
        let file = File::open(&self.temporary).map_err(|e| Error::io("open", &self.temporary, e))?;
        file.sync_all().map_err(|e| Error::io("flush", &self.temporary, e))
    }

    /// Makes the lock a second name of `file`.
    fn take_lock(&self, file: &Path) -> Result<()> {
        for _ in 0..WAITS.0 {
            match self.try_lock(file) {
                Err(Error::Busy { .. }) => std::thread::sleep(WAITS.1),
                taken => return taken,
            }
        }
        self.try_lock(file)
    }

    fn try_lock(&self, file: &Path) -> Result<()> {
        match std::fs::hard_link(file, &self.lock) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(Error::Busy {
                path: self.lock.clone(),
                holder: Some(
                    "git is at work, or was killed: remove the file only if no git runs here".to_owned(),
                ),
            }),
            made => made.map_err(|e| Error::io("make the lock", &self.lock, e)),
        }
    }

    /// Whether the lock is there and ours.
    pub fn is_held(&self) -> Result<bool> {
        same_file(&self.lock, &self.temporary)
    }

    /// Puts the new index in the place of the old, durably. Can be done again, also by another process: what is done is left.
    pub fn install(&self, repo: &Repository) -> Result<Installed> {
        let index = repo.index();
        if same_file(&index, &self.temporary)? {
            // To rename one name of a file over another of its names does nothing.
            self.release().and_then(|()| sync_dir(&repo.git_dir))?;
            return Ok(Installed::Done);
        }
        if self.is_held()? {
            std::fs::rename(&self.lock, &index).map_err(|e| Error::io("rename into place", &index, e))?;
            sync_dir(&repo.git_dir)?;
        } else if metadata(&self.temporary)?.is_some() {
            return Ok(Installed::LockLost);
        }
        self.release().map(|()| Installed::Done)
    }

    /// A second one, for where the lock of this one was lost. This one stays until it is released, to tell that it is not done yet; then
    /// both go.
    pub fn again(&self) -> Self {
        Self { temporary: self.beside("-again"), lock: self.lock.clone() }
    }

    /// Gives up the lock, if it is ours, and removes what was made.
    pub fn release(&self) -> Result<()> {
        self.again().release_this()?;
        self.release_this()
    }

    fn release_this(&self) -> Result<()> {
        let placeholder = self.beside(PLACEHOLDER);
        if self.is_held()? || same_file(&self.lock, &placeholder)? {
            remove(&self.lock)?;
        }
        for file in [placeholder, self.beside(SECOND_NAME), self.beside(LOCK_OF_GIT)] {
            remove(&file)?;
        }
        remove(&self.temporary)
    }
}

/// How [`NewIndex::install`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is in place.
    Done,
    /// Somebody took the lock away, so git may have changed the index since: nothing was done.
    LockLost,
}

/// A call that runs no filter: where an index is written, git looks again at files that were changed as the old one was written, and would
/// put them through their filters. Without them such a file is at worst looked at once more by the next git.
fn without_filters(repo: &Repository) -> Result<Git> {
    // What newer gits understand; it says nothing of the attributes that are kept in the git directory.
    let mut git = repo.git().env("GIT_ATTR_SOURCE", empty_tree(repo.format));
    let asked = repo.git().args(["config", "-z", "--name-only", "--get-regexp", r"^filter\."]);
    let told = asked.output_unless_no()?.unwrap_or_default();
    let keys = told.split(|b| *b == 0).filter_map(|key| Some(&key[..key.iter().rposition(|b| *b == b'.')?]));
    for filter in keys.collect::<BTreeSet<_>>() {
        for setting in [&b".clean="[..], b".process=", b".required=false"] {
            git = git.set(OsStr::from_bytes(&[filter, setting].concat()));
        }
    }
    Ok(git)
}

/// The edits in the words of `update-index --index-info`: removals first, so that a directory can take the place of a file.
fn index_info(format: ObjectFormat, edits: &[IndexEdit]) -> Result<Vec<u8>> {
    let mut rows = (Vec::new(), Vec::new());
    for edit in edits {
        // Git would leave it out without a word that counts.
        edit.entry.as_ref().map_or(Ok(()), |(mode, _)| refuse_unsafe(&edit.path, *mode))?;
        let (to, head) = match &edit.entry {
            None => (&mut rows.0, format!("0 {}\t", format.zero())),
            Some((mode, oid)) => (&mut rows.1, format!("{mode:06o} {oid} 0\t")),
        };
        to.extend(head.bytes());
        to.extend(edit.path.as_bytes());
        to.push(0);
    }
    let (mut input, rest) = rows;
    input.extend(rest);
    Ok(input)
}

/// The flags in the words of `update-index`. Where not all is checked out, git takes the last away again from files that it finds.
const FLAGS: [(Flag, &str); 2] =
    [(Flag::AssumeUnchanged, "--assume-unchanged"), (Flag::SkipWorktree, "--skip-worktree")];

/// The paths that get a flag, each with its end.
fn flagged(edits: &[IndexEdit], flag: Flag) -> Vec<u8> {
    let edits = edits.iter().filter(|edit| edit.entry.is_some() && edit.flag == Some(flag));
    edits.flat_map(|edit| edit.path.as_bytes().iter().copied().chain([0])).collect()
}

/// What tells one state of a file from another; git never writes to an index that is there.
#[derive(PartialEq, Eq)]
struct Stamp([i64; 7]);

impl Stamp {
    fn of(path: &Path) -> Result<Option<Self>> {
        let Some(found) = metadata(path)? else { return Ok(None) };
        if !found.is_file() {
            return Err(Error::refused(format!("{} is not a regular file", path.display())));
        }
        let (device, inode, size) = (found.dev() as i64, found.ino() as i64, found.size() as i64);
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Ok(Some(Self([device, inode, size, times[0], times[1], times[2], times[3]])))
    }
}

fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("look at", path, e)),
    }
}

/// Whether two names are names of one file.
fn same_file(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (metadata(one)?, metadata(other)?);
    Ok(one.zip(other).is_some_and(|(one, other)| one.dev() == other.dev() && one.ino() == other.ino()))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
