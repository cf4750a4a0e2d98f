//! The log of what was written straight through, with what was there before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs;
use sandboxer_core::model::{Change, Conflict, DiffEntry, DiffKind, DiffView, Node, NodeType, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::content::read_regular;
use sandboxer_fs::copy::{Transfer, copy_file};
use sandboxer_fs::hash::ContentHash;
use sandboxer_fs::root::Root;
use sandboxer_fs::{durable, patch, space};
use serde::{Deserialize, Serialize};

/// One write, as it is kept: the record is there, durably, before the write happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    path: RelPath,
    /// Whether a file was there before; its content is beside the record.
    existed: bool,
    /// Directories that the write makes.
    made_dirs: Vec<RelPath>,
    /// Hash of what is written.
    after: ContentHash,
}

/// Beside the log of a single file: its name. Looking at the resource each time would take a directory that is gone
/// for a file that is yet to be made, and its neighbours for its content.
const ONLY: &str = "only";

/// Stands in a mark instead of a number: some of the writes before it have been undone.
const SPOILED: &str = "undone";

/// The log of one sandbox.
pub struct WriteLog {
    home: PathBuf,
    root: Root,
    /// The one name of a single file.
    only: Option<RelPath>,
}

/// A path's writes folded into one: what was there first, what may have gone through since.
struct Folded {
    first: u64,
    existed: bool,
    made_dirs: Vec<RelPath>,
    /// Of every write, not of the last alone: that one may have been recorded and then failed.
    after: Vec<ContentHash>,
}

impl Folded {
    /// Whether this is what went through, and not what somebody else has put in its place.
    fn wrote(&self, present: Option<&Vec<u8>>) -> bool {
        present.is_some_and(|content| self.after.contains(&ContentHash::of(content)))
    }
}

impl WriteLog {
    /// Begins the log of writes to `resource` in the existing directory `home`.
    pub fn create(home: &Path, resource: &Path) -> Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        if let (false, Some(name)) = (resource.is_dir(), resource.file_name()) {
            durable::write(&home.join(ONLY), name.as_bytes())?;
        }
        for dir in ["writes", "marks"].map(|d| home.join(d)) {
            std::fs::create_dir(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        }
        Self::open(home, resource)
    }

    /// The log kept at `home` of writes to `resource`.
    pub fn open(home: &Path, resource: &Path) -> Result<Self> {
        let only = single_name(home)?;
        let root = resource.parent().filter(|_| only.is_some()).unwrap_or(resource);
        Ok(Self { home: home.to_path_buf(), root: Root::open(root)?, only })
    }

    /// The directory that is written to.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Refuses the neighbours of a single file.
    pub fn check_inside(&self, path: &RelPath) -> Result<()> {
        match &self.only {
            Some(only) if only != path => {
                Err(Error::refused(format!("{path} is not part of this workspace")))
            }
            _ => Ok(()),
        }
    }

    /// Keeps what is there, then replaces it.
    pub fn write(&self, path: &RelPath, content: &[u8]) -> Result<Change> {
        self.check_inside(path)?;
        let made_dirs = self.missing_dirs(path)?;
        let existed = self.keep_old(path)?;
        let record = Record { path: path.clone(), existed, made_dirs, after: ContentHash::of(content) };
        let number = self.numbers()?.last().map_or(1, |n| n + 1);
        self.publish(number, &record)?;
        let parent = match path.parent() {
            Some(parent) => self.root.create_dirs(&parent, 0o777)?,
            None => self.root.as_dir()?,
        };
        // Made beside its place: the state directory may be on another filesystem.
        let temporary = self.announce(path)?;
        let change = space::replace_file((&parent, &temporary), &parent, path, content)?;
        parent.sync()?;
        self.clear_temporary()?;
        Ok(change)
    }

    fn note(&self) -> PathBuf {
        self.home.join("temporary")
    }

    /// The name of a temporary file beside `path`, in the resource itself. It is written down first, so that the next to
    /// open this log removes what a crash leaves.
    fn announce(&self, path: &RelPath) -> Result<String> {
        self.clear_temporary()?;
        let id = self.home.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!(".sandboxer-{id}");
        let full = match path.parent() {
            Some(parent) => parent.join(name.as_bytes()),
            None => RelPath::single(name.as_bytes())?,
        };
        durable::write(&self.note(), full.as_bytes())?;
        Ok(name)
    }

    /// Removes a temporary file that was announced.
    pub fn clear_temporary(&self) -> Result<()> {
        let Ok(noted) = std::fs::read(self.note()) else { return Ok(()) };
        if let Ok(path) = RelPath::from_bytes(noted) {
            sandboxer_fs::remove_below(&self.root, &path)?;
        }
        durable::remove(&self.note())
    }

    fn missing_dirs(&self, path: &RelPath) -> Result<Vec<RelPath>> {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(dir) = above {
            if self.root.stamp(&dir)?.is_some() {
                break;
            }
            above = dir.parent();
            missing.push(dir);
        }
        Ok(missing)
    }

    fn pending(&self) -> PathBuf {
        self.home.join("pending")
    }

    fn keep_old(&self, path: &RelPath) -> Result<bool> {
        sandboxer_fs::remove_tree(&self.pending())?;
        std::fs::create_dir(self.pending()).map_err(|e| Error::io("create directory", self.pending(), e))?;
        let Some(parent) = self.root.find_parent(path)? else { return Ok(false) };
        let Some(fd) = space::open_regular(&parent, path)? else { return Ok(false) };
        drop(fd);
        let to = Root::open(self.pending())?.as_dir()?;
        copy_file((&parent, path.name()), (&to, b"old"), Transfer::Prefer, &mut Vec::new())?;
        let old = to.open_file(b"old")?;
        fs::fsync(&old).map_err(|e| Error::io("flush", self.pending(), e))?;
        Ok(true)
    }

    fn publish(&self, number: u64, record: &Record) -> Result<()> {
        let json = serde_json::to_vec(record).map_err(|e| Error::corrupt(&self.home, e.to_string()))?;
        durable::write(&self.pending().join("record.json"), &json)?;
        let place = self.place(number);
        std::fs::rename(self.pending(), &place).map_err(|e| Error::io("keep", &place, e))?;
        durable::sync_dir(&self.home.join("writes"))
    }

    fn place(&self, number: u64) -> PathBuf {
        self.home.join("writes").join(format!("{number:012}"))
    }

    /// The numbers of all writes in order. What was accepted leaves its last number behind, so that none is used twice.
    fn numbers(&self) -> Result<Vec<u64>> {
        let writes = self.home.join("writes");
        let listed = std::fs::read_dir(&writes).map_err(|e| Error::io("list directory", &writes, e))?;
        let mut numbers: Vec<u64> =
            listed.flatten().filter_map(|e| e.file_name().to_string_lossy().parse().ok()).collect();
        numbers.push(self.floor());
        numbers.sort_unstable();
        numbers.retain(|n| *n > 0);
        Ok(numbers)
    }

    fn floor(&self) -> u64 {
        let text = std::fs::read_to_string(self.home.join("accepted")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn record(&self, number: u64) -> Result<Option<Record>> {
        let path = self.place(number).join("record.json");
        match std::fs::read(&path) {
            Ok(json) => {
                serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(&path, e.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &path, e)),
        }
    }

    /// The writes after `since`, folded by path.
    fn folded(&self, since: u64) -> Result<BTreeMap<RelPath, Folded>> {
        let mut folded: BTreeMap<RelPath, Folded> = BTreeMap::new();
        for number in self.numbers()?.into_iter().filter(|n| *n > since && *n > self.floor()) {
            let Some(record) = self.record(number)? else { continue };
            let Record { path, existed, made_dirs, after } = record;
            let fresh = Folded { first: number, existed, made_dirs, after: Vec::new() };
            folded.entry(path).or_insert(fresh).after.push(after);
        }
        Ok(folded)
    }

    fn old_content(&self, folded: &Folded) -> Result<Option<Vec<u8>>> {
        let path = self.place(folded.first).join("old");
        if !folded.existed {
            return Ok(None);
        }
        std::fs::read(&path).map(Some).map_err(|e| Error::io("read", path, e))
    }

    fn present(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        match read_regular(&self.root, path, None) {
            Ok(content) => Ok(Some(content)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// What went through, as far as it is still different from what was there.
    pub fn diff(&self) -> Result<DiffView> {
        let mut entries = Vec::new();
        for (path, folded) in self.folded(0)? {
            let (old, new) = (self.old_content(&folded)?, self.present(&path)?);
            if old != new {
                entries.push(self.entry(path, &folded, old, new)?);
            }
        }
        Ok(DiffView::new(entries))
    }

    fn entry(
        &self,
        path: RelPath,
        folded: &Folded,
        old: Option<Vec<u8>>,
        new: Option<Vec<u8>>,
    ) -> Result<DiffEntry> {
        let kind = match (&old, &new) {
            (None, _) => DiffKind::Created,
            (Some(_), None) => DiffKind::Deleted,
            (Some(_), Some(_)) => DiffKind::Modified,
        };
        let stamp = self.root.stamp(&path)?.unwrap_or_default();
        let node = |content: &Vec<u8>| Node {
            node_type: NodeType::File,
            mode: stamp.permissions(),
            uid: stamp.uid,
            gid: stamp.gid,
            size: content.len() as u64,
            digest: Some(ContentHash::of(content).to_text(content.len() as u64)),
            target: None,
            xattrs: None,
        };
        let mut entry = DiffEntry::new(path, kind);
        (entry.old, entry.new) = (old.as_ref().map(node), new.as_ref().map(node));
        entry.binary = new.as_ref().or(old.as_ref()).is_some_and(|c| patch::is_binary(c));
        // Somebody else wrote over it: a rollback would refuse.
        entry.moved = !folded.wrote(new.as_ref());
        let mut text = Vec::new();
        patch::render_entry(&entry, old.as_deref(), new.as_deref(), &mut text)
            .map_err(|e| Error::io("render", entry.path.as_path(), e))?;
        entry.text = Some(String::from_utf8_lossy(&text).into_owned());
        Ok(entry)
    }

    /// Accepts everything: it can no longer be undone.
    pub fn accept(&self) -> Result<()> {
        let numbers = self.numbers()?;
        let Some(last) = numbers.last() else { return Ok(()) };
        durable::write(&self.home.join("accepted"), last.to_string().as_bytes())?;
        numbers.iter().try_for_each(|n| sandboxer_fs::remove_tree(&self.place(*n)))
    }

    /// Undoes the writes after `since` to paths within `scope`. All of it, or nothing where somebody else has written over one.
    pub fn undo(&self, since: u64, scope: &[RelPath]) -> Result<u64> {
        let in_scope = |path: &RelPath| scope.is_empty() || scope.iter().any(|s| path.is_within(s));
        let mut folded = self.folded(since)?;
        folded.retain(|path, _| in_scope(path));
        self.refuse_overwritten(&folded)?;
        self.spoil_marks(folded.values().map(|write| write.first).min())?;
        let mut count = 0;
        for (path, write) in &folded {
            count += u64::from(self.undo_one(path, write)?);
        }
        self.remove_empty(folded.values().flat_map(|write| &write.made_dirs).collect());
        self.forget(since, in_scope)?;
        Ok(count)
    }

    fn refuse_overwritten(&self, folded: &BTreeMap<RelPath, Folded>) -> Result<()> {
        let mut conflicts = Vec::new();
        for (path, write) in folded {
            let present = self.present(path)?;
            if !write.wrote(present.as_ref()) && present != self.old_content(write)? {
                let reason = "changed by somebody else since it was written through this sandbox".to_owned();
                conflicts.push(Conflict::new(path.clone(), reason));
            }
        }
        if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict { conflicts }) }
    }

    fn undo_one(&self, path: &RelPath, write: &Folded) -> Result<bool> {
        let old = self.old_content(write)?;
        if self.present(path)? == old {
            return Ok(false);
        }
        let parent = self.root.parent_of(path)?;
        if old.is_some() {
            let kept = Root::open(self.place(write.first))?.as_dir()?;
            let temporary = self.announce(path)?;
            copy_file((&kept, b"old"), (&parent, temporary.as_bytes()), Transfer::Prefer, &mut Vec::new())?;
            fs::renameat(&parent, temporary.as_str(), &parent, path.name())
                .map_err(|e| Error::io("put back", self.root.shown(path), e))?;
        } else {
            parent.remove(path.name(), false)?;
        }
        parent.sync()?;
        self.clear_temporary()?;
        Ok(true)
    }

    /// Directories that writes made, deepest first, where nobody else has put something into them.
    fn remove_empty(&self, dirs: BTreeSet<&RelPath>) {
        for dir in dirs.into_iter().rev() {
            // What is not empty, or gone already, stays as it is.
            let _ = self.root.parent_of(dir).and_then(|parent| parent.remove(dir.name(), true));
        }
    }

    fn forget(&self, since: u64, in_scope: impl Fn(&RelPath) -> bool) -> Result<()> {
        for number in self.numbers()?.into_iter().rev().filter(|n| *n > since) {
            if self.record(number)?.is_some_and(|r| in_scope(&r.path)) {
                sandboxer_fs::remove_tree(&self.place(number))?;
            }
        }
        Ok(())
    }

    fn mark_path(&self, name: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(Error::usage(format!("{name:?} cannot name a checkpoint")));
        }
        Ok(self.home.join("marks").join(name))
    }

    /// Marks that cover write number `first` cannot be brought back once it is undone: nothing of it is kept. Its number
    /// may be given to another write, too.
    fn spoil_marks(&self, first: Option<u64>) -> Result<()> {
        let Some(first) = first else { return Ok(()) };
        let marks = self.home.join("marks");
        let listed = std::fs::read_dir(&marks).map_err(|e| Error::io("list directory", &marks, e))?;
        for path in listed.flatten().map(|entry| entry.path()) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.trim().parse::<u64>().is_ok_and(|number| number >= first) {
                durable::write(&path, SPOILED.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Remembers how far the log goes.
    pub fn mark(&self, name: &str) -> Result<PathBuf> {
        let path = self.mark_path(name)?;
        let last = self.numbers()?.last().copied().unwrap_or(0);
        durable::write(&path, last.to_string().as_bytes())?;
        Ok(path)
    }

    /// How far the log went at that mark.
    pub fn marked(&self, name: &str) -> Result<u64> {
        let path = self.mark_path(name)?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::not_found("checkpoint", name));
            }
            Err(e) => return Err(Error::io("read", &path, e)),
        };
        if text == SPOILED {
            return Err(Error::refused(format!("what was written before checkpoint {name} has been undone")));
        }
        let number = text.trim().parse().map_err(|_| Error::corrupt(&path, "it is no number"))?;
        if number < self.floor() {
            return Err(Error::refused(format!("what was written since checkpoint {name} was committed")));
        }
        Ok(number)
    }
}

/// The name of the one file that the log at `home` is about, if it is about one.
fn single_name(home: &Path) -> Result<Option<RelPath>> {
    let path = home.join(ONLY);
    match std::fs::read(&path) {
        Ok(name) => Ok(Some(RelPath::single(&name)?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "journal_tests.rs"]
mod tests;
