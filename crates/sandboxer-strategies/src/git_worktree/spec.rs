//! What a workspace of a checkout is besides its files; kept beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::laying::Otherwise;
use sandboxer_core::model::{CommitResult, OpId, RelPath};
use sandboxer_core::{Error, Result};
use sandboxer_fs::durable;
use sandboxer_git::index::{Flag, IndexEdit, NewIndex};
use sandboxer_git::ledger::Ledger;
use sandboxer_git::oid::Oid;
use sandboxer_git::refs::Move;
use sandboxer_git::repository::Repository;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What the workspace was made from, and where its work goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GitSpec {
    /// The user's repository.
    pub repository: Repository,
    /// The branch inside, without `refs/heads/`.
    pub branch: String,
    /// What it was made from, or what was last committed; `None` before the first commit of all.
    pub base: Option<Oid>,
    /// The full name of the branch that commits go to; `None` for a detached HEAD.
    pub target: Option<String>,
    /// Whether commits can go there at all: not where the files are those of another commit.
    pub has_target: bool,
    /// The commits that were left on branches besides the target, by the branches' full names.
    #[serde(default)]
    pub left: BTreeMap<String, Oid>,
}

impl GitSpec {
    /// That of the workspace at `home`.
    pub fn load(home: &Path) -> Result<Self> {
        let path = place(home).join("spec.json");
        read(&path)?.ok_or_else(|| Error::corrupt(home, "it is no workspace of a git checkout"))
    }

    /// Writes it down, durably.
    pub fn store(&self, home: &Path) -> Result<()> {
        write(&place(home).join("spec.json"), self)
    }

    /// Writes that of a new workspace: it is as durable as what will be in it.
    pub fn store_new(&self, home: &Path) -> Result<()> {
        let path = place(home).join("spec.json");
        durable::write_lazily(&path, &to_json(&path, self)?)
    }

    /// The git directory that commits are made in.
    pub fn ledger(&self, home: &Path) -> Result<Ledger> {
        Ledger::open(&place(home), &self.repository)
    }

    /// What a commit moves.
    pub fn moves(&self) -> &str {
        self.target.as_deref().unwrap_or("HEAD")
    }
}

/// Where everything of a workspace is that has to do with git.
pub fn place(home: &Path) -> PathBuf {
    home.join("git")
}

/// What a commit does to the repository besides its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What it is logged as.
    pub operation: Option<OpId>,
    /// The digest of what is committed.
    pub digest: String,
    /// The branch and where it goes.
    pub moves: Move,
    /// The user's index as it is to be; none where only a branch is made.
    pub index: Option<NewIndex>,
    /// What that changes.
    pub edits: Vec<Edit>,
    /// The base before.
    pub base_before: Option<Oid>,
    /// The base from now on.
    pub base_after: Option<Oid>,
    /// How many commits of the sandbox's own are kept.
    pub kept: usize,
    /// The last of them, which the branch inside goes back to when the rest is taken back.
    #[serde(default)]
    pub own: Option<Oid>,
    /// Of one that only makes a branch: what it answers.
    #[serde(default)]
    pub result: Option<CommitResult>,
    /// What the user's index could not take any more.
    #[serde(default)]
    pub not_indexed: Vec<RelPath>,
}

/// An entry of the index before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// Where.
    pub path: RelPath,
    /// Mode and object before.
    pub before: Option<(u32, Oid)>,
    /// And after.
    pub after: Option<(u32, Oid)>,
    /// What git was told to overlook there, before and after.
    #[serde(default)]
    pub flags: (Option<Flag>, Option<Flag>),
}

impl Plan {
    /// The plan of a commit under way in the workspace at `home`.
    pub fn load(home: &Path) -> Result<Option<Self>> {
        read(&plan_file(home))
    }

    /// Writes it down, durably.
    pub fn store(&self, home: &Path) -> Result<()> {
        write(&plan_file(home), self)
    }

    /// Forgets it.
    pub fn forget(home: &Path) -> Result<()> {
        durable::discard_temporary(&plan_file(home))?;
        durable::remove(&plan_file(home))
    }

    /// Keeps what it did, so that it can be taken back.
    pub fn keep(&self, home: &Path) -> Result<()> {
        let Some(operation) = &self.operation else { return Ok(()) };
        let dir = place(home).join("operations");
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        write(&kept_file(home, operation), self)
    }

    /// What `operation` did, if it did anything to the repository.
    pub fn kept(home: &Path, operation: &OpId) -> Result<Option<Self>> {
        read(&kept_file(home, operation))
    }

    /// Forgets how to take `operation` back.
    pub fn forget_kept(home: &Path, operation: &OpId) -> Result<()> {
        durable::remove(&kept_file(home, operation))
    }

    /// What the index takes.
    pub fn index_edits(&self) -> Vec<IndexEdit> {
        self.edits.iter().map(Edit::in_index).collect()
    }
}

impl Edit {
    /// The way back.
    pub fn reversed(self) -> Self {
        let (before, after) = self.flags;
        Self { before: self.after, after: self.before, flags: (after, before), ..self }
    }

    /// What the index is told.
    pub fn in_index(&self) -> IndexEdit {
        IndexEdit { path: self.path.clone(), entry: self.after.clone(), flag: self.flags.1 }
    }
}

/// Writes down what was laid over the original.
pub fn store_laid(home: &Path, laid: &Otherwise) -> Result<()> {
    let path = laid_file(home);
    durable::write_lazily(&path, &to_json(&path, laid)?)
}

/// What was laid over the original, if anything was.
pub fn load_laid(home: &Path) -> Result<Option<Otherwise>> {
    read(&laid_file(home))
}

fn laid_file(home: &Path) -> PathBuf {
    place(home).join("laid.json")
}

fn plan_file(home: &Path) -> PathBuf {
    place(home).join("plan.json")
}

fn kept_file(home: &Path, operation: &OpId) -> PathBuf {
    place(home).join("operations").join(format!("{operation}.json"))
}

fn to_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(value).map_err(|e| Error::corrupt(path, e.to_string()))
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    durable::write(path, &to_json(path, value)?)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(path, e.to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}
