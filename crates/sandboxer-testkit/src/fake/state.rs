//! What the fake remembers of one sandbox: contents by path, nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sandboxer_core::model::{
    CheckpointId, CommitRequest, CommitResult, Conflict, DiffEntry, DiffKind, DiffView, Node, NodeType,
    RelPath,
};
use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// What is at a path, if anything.
type Content = Option<Vec<u8>>;
type Contents = BTreeMap<RelPath, Vec<u8>>;

/// A prepared commit: where, what was there, what is to be there.
#[derive(Serialize, Deserialize)]
pub(super) struct Prepared {
    result: CommitResult,
    steps: Vec<(RelPath, Content, Content)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    resource: PathBuf,
    base: Contents,
    /// Content by path, `None` where it was deleted. Never the same as the base's.
    changes: BTreeMap<RelPath, Content>,
    checkpoints: BTreeMap<String, Contents>,
    pub(super) prepared: Option<Prepared>,
}

impl State {
    /// The state of a new sandbox over the tree at `resource`.
    pub(super) fn of(resource: &Path) -> Result<Self> {
        let mut base = Contents::new();
        collect(resource, None, &mut base)?;
        let (changes, checkpoints) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { resource: resource.to_path_buf(), base, changes, checkpoints, prepared: None })
    }

    pub(super) fn load(file: &Path) -> Option<Self> {
        let text = fs::read(file).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    pub(super) fn save(&self, file: &Path) {
        let unpublished = file.with_extension("new");
        fs::write(&unpublished, serde_json::to_vec(self).unwrap()).unwrap();
        fs::rename(unpublished, file).unwrap();
    }

    pub(super) fn content(&self, path: &RelPath) -> Option<&[u8]> {
        match self.changes.get(path) {
            Some(change) => change.as_deref(),
            None => self.base.get(path).map(Vec::as_slice),
        }
    }

    pub(super) fn is_directory(&self, path: &RelPath) -> bool {
        self.base.keys().chain(self.changes.keys()).any(|p| p != path && p.is_within(path))
    }

    pub(super) fn put(&mut self, path: RelPath, content: Option<Vec<u8>>) {
        if self.base.get(&path) == content.as_ref() {
            self.changes.remove(&path);
        } else {
            self.changes.insert(path, content);
        }
    }

    pub(super) fn diff(&self) -> DiffView {
        DiffView::new(self.changes.iter().map(|(path, new)| self.entry(path, new.as_deref())).collect())
    }

    fn entry(&self, path: &RelPath, new: Option<&[u8]>) -> DiffEntry {
        let old = self.base.get(path).map(Vec::as_slice);
        let kind = match (old, new) {
            (None, _) => DiffKind::Created,
            (Some(_), Some(_)) => DiffKind::Modified,
            (Some(_), None) => DiffKind::Deleted,
        };
        DiffEntry { old: old.map(node), new: new.map(node), ..DiffEntry::new(path.clone(), kind) }
    }

    pub(super) fn prepare(&mut self, request: &CommitRequest) -> Result<CommitResult> {
        let selected = self.diff().select(&request.paths);
        if let Some(expected) = request.digest.as_ref().filter(|digest| **digest != selected.digest) {
            return Err(Error::DigestMismatch { expected: expected.clone(), found: selected.digest });
        }
        let mut steps = Vec::new();
        let mut conflicts = Vec::new();
        for entry in &selected.entries {
            let base = self.base.get(&entry.path).cloned();
            if current(&self.resource, &entry.path)? != base {
                conflicts.push(conflict(&entry.path));
            }
            steps.push((entry.path.clone(), base, self.changes[&entry.path].clone()));
        }
        if !conflicts.is_empty() {
            return Err(Error::Conflict { conflicts });
        }
        let result =
            CommitResult { digest: selected.digest, entries: selected.entries, ..CommitResult::default() };
        self.prepared = Some(Prepared { result: result.clone(), steps });
        Ok(result)
    }

    pub(super) fn finish(&mut self) -> CommitResult {
        let Some(Prepared { mut result, steps }) = self.prepared.take() else {
            return CommitResult::default();
        };
        for (path, old, new) in steps {
            let now = current(&self.resource, &path).unwrap_or(None);
            if now != old && now != new {
                result.conflicts.push(conflict(&path));
                continue;
            }
            replace(&self.resource.join(path.as_path()), new.as_deref());
            let seen = self.content(&path).map(<[u8]>::to_vec);
            match new {
                Some(content) => self.base.insert(path.clone(), content),
                None => self.base.remove(&path),
            };
            self.put(path, seen);
        }
        result
    }

    /// Drops the changes within `scope`; returns how many there were.
    pub(super) fn rollback(&mut self, scope: &[RelPath]) -> u64 {
        let before = self.changes.len();
        let within = |path: &RelPath| scope.is_empty() || scope.iter().any(|s| path.is_within(s));
        self.changes.retain(|path, _| !within(path));
        (before - self.changes.len()) as u64
    }

    pub(super) fn checkpoint(&mut self, id: &CheckpointId) {
        let paths: BTreeSet<&RelPath> = self.base.keys().chain(self.changes.keys()).collect();
        let kept = |path: &RelPath| self.content(path).map(|c| (path.clone(), c.to_vec()));
        let view = paths.into_iter().filter_map(kept).collect();
        self.checkpoints.insert(id.to_string(), view);
    }

    /// Brings a checkpoint back; returns how many contents it changed.
    pub(super) fn restore(&mut self, id: &CheckpointId) -> Result<u64> {
        let view = self.checkpoints.get(id.as_str()).cloned();
        let view = view.ok_or_else(|| Error::not_found("checkpoint", id.to_string()))?;
        let paths: BTreeSet<RelPath> =
            self.base.keys().chain(self.changes.keys()).chain(view.keys()).cloned().collect();
        let mut restored = 0;
        for path in paths {
            let wanted = view.get(&path).cloned();
            restored += u64::from(self.content(&path) != wanted.as_deref());
            self.put(path, wanted);
        }
        Ok(restored)
    }
}

fn collect(root: &Path, below: Option<&RelPath>, contents: &mut Contents) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let dir = below.map_or_else(|| root.to_path_buf(), |path| root.join(path.as_path()));
    for entry in fs::read_dir(&dir).map_err(|e| Error::io("list", &dir, e))?.flatten() {
        let name = entry.file_name();
        let path = match below {
            Some(parent) => parent.join(name.as_bytes()),
            None => RelPath::single(name.as_bytes())?,
        };
        let file_type = entry.file_type().unwrap();
        if file_type.is_dir() {
            collect(root, Some(&path), contents)?;
        } else if file_type.is_file() {
            contents.insert(path, fs::read(entry.path()).unwrap());
        }
    }
    Ok(())
}

/// The original's present content at `path`. Anything but a file below plain directories is refused.
fn current(root: &Path, path: &RelPath) -> Result<Option<Vec<u8>>> {
    let mut at = root.to_path_buf();
    for part in path.components() {
        use std::os::unix::ffi::OsStrExt;
        at.push(std::ffi::OsStr::from_bytes(part));
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_symlink() => {
                return Err(Error::refused(format!("{} is a link", at.display())));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("look at", &at, error)),
        }
    }
    fs::read(&at).map(Some).map_err(|e| Error::io("read", &at, e))
}

fn replace(at: &Path, content: Option<&[u8]>) {
    match content {
        Some(content) => {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, content).unwrap();
        }
        None => fs::remove_file(at).unwrap(),
    }
}

fn node(content: &[u8]) -> Node {
    Node {
        node_type: NodeType::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: content.len() as u64,
        digest: Some(format!("blake3:{}", blake3::hash(content).to_hex())),
        target: None,
        xattrs: None,
    }
}

fn conflict(path: &RelPath) -> Conflict {
    Conflict::new(path.clone(), "changed in the original meanwhile")
}
