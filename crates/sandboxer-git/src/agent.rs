//! The private repository after the agent has had it: where its branch is, and moving that branch on once its work was committed.
//!
//! Everything is read by hand beneath directory handles. What is odd is left alone; it is the agent's own repository, and nobody else depends on it.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::copy::timestamps;
use sandboxer_fs::list;
use sandboxer_fs::root::{Dir, Root};
use sandboxer_fs::stamp::Stamp;

use crate::hostile::{self, Found};
use crate::oid::{ObjectFormat, Oid};
use crate::scratch::Scratch;

const REF_LIMIT: u64 = 1 << 20;
const PACKED_REFS_LIMIT: u64 = 64 << 20;
const INDEX_LIMIT: u64 = 512 << 20;
const SYMREFS: usize = 5;
/// A split index has one shared part; git leaves old ones for a while.
const SHARED_INDEXES: usize = 16;

/// What HEAD of the agent's repository names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentHead {
    /// A branch, without `refs/heads/`.
    Branch(String),
    /// A commit itself.
    Detached,
}

/// Where the agent's repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// What HEAD names.
    pub head: AgentHead,
    /// The commit there; `None` on a branch without one.
    pub commit: Option<Oid>,
}

/// What `.git` of a sandbox's tree says; `None` where it says nothing that can be understood.
pub fn read(tree: &Root, format: ObjectFormat) -> Result<Option<State>> {
    Ok(hostile::dir(tree, ".git").and_then(|git| look(&git, tree, format)))
}

fn look(git: &Dir, tree: &Root, format: ObjectFormat) -> Option<State> {
    let head = one_line(hostile::read_in(git, b"HEAD", REF_LIMIT).whole()?)?;
    let Some(target) = head.strip_prefix("ref:") else {
        return Some(State { head: AgentHead::Detached, commit: Some(object(&head, format)?) });
    };
    let (name, commit) = resolve(git, tree, target.trim(), format)?;
    let branch = name.strip_prefix("refs/heads/")?.to_owned();
    Some(State { head: AgentHead::Branch(branch), commit })
}

/// Follows symbolic refs from `name` to the last one and what it holds.
fn resolve(git: &Dir, tree: &Root, name: &str, format: ObjectFormat) -> Option<(String, Option<Oid>)> {
    let mut name = name.to_owned();
    for _ in 0..SYMREFS {
        if !is_ref_name(&name) {
            return None;
        }
        let path = hostile::below(format!(".git/{name}"))?;
        let text = match hostile::read(tree, &path, REF_LIMIT) {
            Found::Whole(bytes) => one_line(bytes)?,
            // A directory may be left where a branch was; a link or a pipe means nothing good.
            Found::Nothing if !is_oddity(tree, &path) => {
                let commit = packed(git, &name, format)?;
                return Some((name, commit));
            }
            _ => return None,
        };
        match text.strip_prefix("ref:") {
            Some(next) => next.trim().clone_into(&mut name),
            None => return Some((name, Some(object(&text, format)?))),
        }
    }
    None
}

fn is_oddity(tree: &Root, path: &RelPath) -> bool {
    tree.stamp(path).map_or(true, |stamp| stamp.is_some_and(|stamp| !stamp.is_dir()))
}

/// What `packed-refs` says of `name`: outer `None` where the file cannot be understood.
fn packed(git: &Dir, name: &str, format: ObjectFormat) -> Option<Option<Oid>> {
    let text = match hostile::read_in(git, b"packed-refs", PACKED_REFS_LIMIT) {
        Found::Whole(text) => text,
        Found::Nothing => return Some(None),
        Found::Unreadable => return None,
    };
    let suffix = format!(" {name}");
    let line = text.split(|b| *b == b'\n').find(|line| line.ends_with(suffix.as_bytes()));
    let Some(line) = line else { return Some(None) };
    let digits = std::str::from_utf8(&line[..line.len() - suffix.len()]).ok()?;
    object(digits, format).map(Some)
}

fn one_line(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok()?.lines().next().map(|line| line.trim_end().to_owned())
}

fn object(text: &str, format: ObjectFormat) -> Option<Oid> {
    let oid: Oid = text.parse().ok()?;
    (text.len() == format.zero().as_str().len() && !oid.is_zero()).then_some(oid)
}

/// Whether git would take it for the name of a ref, and it can be opened below a git directory.
pub(crate) fn is_ref_name(name: &str) -> bool {
    let bad = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/")
        && name.len() <= 1024
        && !name.contains(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name.split('/').all(part)
}

/// The stamp of the agent's index, to see later whether it was written; `None` where there is none.
pub(crate) fn index_stamp(tree: &Root) -> Result<Option<Stamp>> {
    Ok(hostile::dir(tree, ".git").and_then(|git| git.stamp(b"index").ok().flatten()))
}

/// What became of moving the agent's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// It is at the new commit, and so is its index.
    Moved,
    /// Nothing was changed; here is why.
    LeftAlone(String),
}

/// A move of the agent's branch.
#[derive(Debug)]
pub struct Advance<'a> {
    /// A directory of ours for what is needed meanwhile; nothing is left in it.
    pub work: &'a Path,
    /// The original's objects.
    pub objects: &'a Path,
    /// How they are named.
    pub format: ObjectFormat,
    /// Where the branch has to be now.
    pub from: Option<&'a Oid>,
    /// Where it goes.
    pub to: &'a Oid,
    /// What the new commit has at each path that the index is to be told of: mode and blob, or nothing.
    pub edits: &'a [Edit],
}

/// What a commit has at a path: a mode and a blob, or nothing.
pub type Edit = (RelPath, Option<(u32, Oid)>);

/// Why something was left alone.
type Why = String;

/// Moves the branch that the agent is on, and its index, if that is where it is expected and nobody is writing the index.
pub fn advance(tree: &Root, job: &Advance<'_>) -> Result<Advanced> {
    let Some(git) = hostile::dir(tree, ".git") else {
        return Ok(Advanced::LeftAlone("`.git` is not a directory any more".to_owned()));
    };
    let Ok(lock) = create(&git, b"index.lock") else {
        return Ok(Advanced::LeftAlone("its index is locked (`.git/index.lock` is there)".to_owned()));
    };
    let moved = advance_locked(tree, &git, lock, job);
    if !matches!(moved, Ok(Ok(()))) {
        git.remove(b"index.lock", false).ok();
    }
    Ok(match moved? {
        Ok(()) => Advanced::Moved,
        Err(why) => Advanced::LeftAlone(why),
    })
}

fn advance_locked(tree: &Root, git: &Dir, lock: OwnedFd, job: &Advance<'_>) -> Result<Result<(), Why>> {
    let Some(state) = look(git, tree, job.format).filter(|state| state.commit.as_ref() == job.from) else {
        return Ok(Err("its branch is elsewhere by now".to_owned()));
    };
    let index = match changed_index(git, job)? {
        Ok(index) => index,
        Err(why) => return Ok(Err(why)),
    };
    let written = write_index(git, &File::from(lock), &index).is_some()
        && move_head(tree, git, &state.head, job.to).is_some()
        && rustix::fs::renameat(git, "index.lock", git, "index").is_ok();
    Ok(if written { Ok(()) } else { Err("it cannot be written".to_owned()) })
}

/// With the times of the one it replaces: files that are younger than the index are those that git does not trust its stat data of.
fn write_index(git: &Dir, mut lock: &File, index: &[u8]) -> Option<()> {
    let before = git.stamp(b"index").ok()?;
    lock.write_all(index).ok()?;
    match before {
        Some(before) => rustix::fs::futimens(lock, &timestamps(before.mtime)).ok(),
        None => Some(()),
    }
}

fn create(dir: &Dir, name: &[u8]) -> Result<OwnedFd> {
    dir.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o644, "create")
}

/// Puts `to` into the ref by way of a lock, as git does.
fn move_head(tree: &Root, git: &Dir, head: &AgentHead, to: &Oid) -> Option<()> {
    let path = match head {
        AgentHead::Detached => return replace(git, b"HEAD", to),
        AgentHead::Branch(name) => hostile::below(format!(".git/refs/heads/{name}"))?,
    };
    let parent = tree.create_dirs(&path.parent()?, 0o755).ok()?;
    // What git leaves of a branch whose neighbours below it are gone.
    if parent.stamp(path.name()).ok()?.is_some_and(|stamp| stamp.is_dir()) {
        parent.remove(path.name(), true).ok()?;
    }
    replace(&parent, path.name(), to)
}

fn replace(dir: &Dir, name: &[u8], to: &Oid) -> Option<()> {
    let lock = [name, b".lock"].concat();
    let mut file = File::from(create(dir, &lock).ok()?);
    let done = file.write_all(format!("{to}\n").as_bytes()).is_ok()
        && rustix::fs::renameat(dir, lock.as_slice(), dir, name).is_ok();
    if !done {
        dir.remove(&lock, false).ok();
    }
    done.then_some(())
}

/// The agent's index with the edits in it. Git reads a copy of it, in a git directory of ours.
fn changed_index(git: &Dir, job: &Advance<'_>) -> Result<Result<Vec<u8>, Why>> {
    let scratch = Scratch::make(&job.work.join("index-scratch"), job.format, &[job.objects])?;
    if !copy_index(git, scratch.dir())? {
        return Ok(Err("its index cannot be read".to_owned()));
    }
    let index = scratch.dir().join("index");
    let call = scratch.git().set("core.splitIndex=false").args(["update-index", "-z", "--index-info"]);
    if call.env("GIT_INDEX_FILE", &index).feed(&index_info(job)).is_err() {
        return Ok(Err("git cannot read its index".to_owned()));
    }
    std::fs::read(&index).map(Ok).map_err(|e| Error::io("read", index, e))
}

/// Removals first, so that a file can take the place of a directory.
fn index_info(job: &Advance<'_>) -> Vec<u8> {
    let zero = job.format.zero();
    let line = |path: &RelPath, mode: u32, oid: &Oid| {
        [format!("{mode:o} {oid}\t").as_bytes(), path.as_bytes(), b"\0"].concat()
    };
    let gone = job.edits.iter().filter(|(_, now)| now.is_none()).flat_map(|(path, _)| line(path, 0, &zero));
    let there =
        job.edits.iter().filter_map(|(path, now)| now.as_ref().map(|(mode, oid)| line(path, *mode, oid)));
    gone.chain(there.flatten()).collect()
}

/// Copies the agent's index, and what it may be split into, to the git directory `to` of ours. There being none is fine.
fn copy_index(git: &Dir, to: &Path) -> Result<bool> {
    if hostile::copy_out(git, b"index", &to.join("index"), INDEX_LIMIT)? == Found::Unreadable {
        return Ok(false);
    }
    let Ok(listing) = list::names_and_types(git) else { return Ok(false) };
    let shared = listing.iter().filter(|entry| is_shared_index(&entry.name)).take(SHARED_INDEXES);
    for entry in shared {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        hostile::copy_out(git, &entry.name, &to.join(name), INDEX_LIMIT)?;
    }
    Ok(true)
}

fn is_shared_index(name: &[u8]) -> bool {
    name.strip_prefix(b"sharedindex.").is_some_and(|rest| rest.iter().all(u8::is_ascii_hexdigit))
}

/// The paths in the agent's index; none where it cannot be read.
pub(crate) fn indexed(tree: &Root, work: &Path, format: ObjectFormat) -> Result<Vec<RelPath>> {
    let Some(git) = hostile::dir(tree, ".git") else { return Ok(Vec::new()) };
    let scratch = Scratch::make(&work.join("index-scratch"), format, &[])?;
    if !copy_index(&git, scratch.dir())? {
        return Ok(Vec::new());
    }
    let told = scratch.git().args(["ls-files", "-z", "--cached"]).try_output()?.unwrap_or_default();
    Ok(told.split(|b| *b == 0).filter_map(hostile::below).collect())
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
