//! Keeping the agent's own commits: its objects are copied, looked at by git in a place of ours, and what is needed of them comes out checked.
//!
//! Of the agent's store only loose objects and packs are taken, and no index, alternate or commit graph that it wrote. Git packs what the commits
//! need, and indexes that pack again beside the original's objects alone: so every object has the name that its content has, every link of it
//! is there, and `fsck` has seen it.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::list;
use sandboxer_fs::root::{Dir, Root};

use crate::git::Git;
use crate::hostile::{self, Found};
use crate::oid::{ObjectFormat, Oid};
use crate::scratch::Scratch;
use crate::screen::names_git;

/// How many bytes of objects are taken at the most, unless something else is said.
pub const SIZE_LIMIT: u64 = 2 << 30;
/// How many commits are kept at the most.
const COMMIT_LIMIT: usize = 10_000;
/// How many files the agent's store may have.
const FILE_LIMIT: u64 = 500_000;

/// What to take from where.
#[derive(Debug)]
pub struct Quarantine<'a> {
    /// A directory of ours for what is needed meanwhile, on the same filesystem as `incoming`.
    pub work: &'a Path,
    /// The original's objects, at their own place.
    pub objects: &'a Path,
    /// The store that the checked objects go into.
    pub incoming: &'a Path,
    /// How objects are named.
    pub format: ObjectFormat,
    /// The commit that the agent began with.
    pub base: Option<&'a Oid>,
    /// The last of its commits.
    pub tip: &'a Oid,
    /// How many bytes to take at the most.
    pub limit: u64,
}

/// A commit of the agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommit {
    /// Its name.
    pub id: Oid,
    /// The author as `Name <mail>`.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
}

/// What was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The commits from the base to the tip, oldest first.
    pub commits: Vec<AgentCommit>,
    /// The pack in the incoming store that holds them; `None` where there was nothing to take.
    pub pack: Option<PathBuf>,
}

/// Takes the commits between the base and the tip out of the agent's repository.
pub fn take(tree: &Root, job: &Quarantine<'_>) -> Result<Kept> {
    if job.base == Some(job.tip) {
        return Ok(Kept::default());
    }
    let ward = Scratch::make(&job.work.join("quarantine"), job.format, &[job.objects])?;
    copy_objects(tree, &ward, job)?;
    let git = || job.shallow(ward.git());
    job.check_descent(&git)?;
    let pack = job.pack(&ward, &git)?;
    let placed = job.place(&pack)?;
    match job.examine(&placed) {
        Ok(commits) => Ok(Kept { commits, pack: Some(placed) }),
        Err(error) => {
            for kind in ["pack", "idx", "rev"] {
                // The store is given up with the commit; nothing refers to what is left.
                let _ = std::fs::remove_file(placed.with_extension(kind));
            }
            Err(error)
        }
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::Refused {
        reason: format!("the commits made in the sandbox cannot be kept: {}", reason.into()),
        hint: Some("commit without `--keep-commits` to make one commit of the files".to_owned()),
    }
}

/// A refusal with what git said.
fn because(what: &'static str) -> impl FnOnce(Error) -> Error {
    move |error| {
        let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let line = said.lines().last().unwrap_or_default().to_owned();
        refused(format!("{what} ({line})"))
    }
}

impl Quarantine<'_> {
    /// The words for everything from the base to the tip.
    fn range(&self) -> Vec<String> {
        let base = self.base.map(|base| format!("^{base}"));
        std::iter::once(self.tip.to_string()).chain(base).collect()
    }

    /// Where a history was cut off stands beside the original's store.
    fn shallow(&self, git: Git) -> Git {
        let objects = self.objects.canonicalize().unwrap_or_else(|_| self.objects.to_path_buf());
        let file = objects.with_file_name("shallow");
        if file.exists() { git.env("GIT_SHALLOW_FILE", file) } else { git }
    }

    fn check_descent(&self, git: &dyn Fn() -> Git) -> Result<()> {
        let kind = git().args(["cat-file", "-t", self.tip.as_str()]).try_output()?;
        if kind.as_deref() != Some(b"commit\n") {
            return Err(refused(format!("commit {} is not in its repository", self.tip.short())));
        }
        if let Some(base) = self.base {
            let words = ["merge-base", "--is-ancestor", base.as_str(), self.tip.as_str()];
            let descends = git().args(words).try_output()?.is_some();
            if !descends {
                return Err(refused(format!("they do not follow {}, which it was made from", base.short())));
            }
        }
        let most = format!("--max-count={}", COMMIT_LIMIT + 1);
        let counted = git().args(["rev-list", "--count", &most]).args(self.range()).line();
        let counted = counted.map_err(because("a commit among them cannot be read"))?;
        match counted.parse::<usize>() {
            Ok(count) if count <= COMMIT_LIMIT => Ok(()),
            _ => Err(refused(format!("there are more than {COMMIT_LIMIT}"))),
        }
    }

    /// Packs what the commits need beyond the base; git may still believe the agent's names here.
    fn pack(&self, ward: &Scratch, git: &dyn Fn() -> Git) -> Result<PathBuf> {
        let name = ward.dir().join("kept");
        let words = ["pack-objects", "--revs", "-q", "--no-reuse-object"];
        let range: String = self.range().iter().map(|word| format!("{word}\n")).collect();
        let call = git().set("core.bigFileThreshold=16m").args(words).arg(&name);
        let told = call.feed(range.as_bytes()).map_err(because("an object is missing or broken"))?;
        let digits = String::from_utf8_lossy(&told).trim().to_owned();
        let digits = digits.parse::<Oid>().map_err(|_| refused("git packed nothing"))?;
        Ok(ward.dir().join(format!("kept-{digits}.pack")))
    }

    /// Puts the pack, without its index, into the incoming store: nothing is seen of it there yet.
    fn place(&self, pack: &Path) -> Result<PathBuf> {
        let dir = self.incoming.join("pack");
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create directory", &dir, e))?;
        let name = pack.file_name().unwrap_or_default().to_string_lossy().replace("kept-", "pack-");
        let placed = dir.join(name);
        std::fs::rename(pack, &placed).map_err(|e| Error::io("rename into place", &placed, e))?;
        Ok(placed)
    }

    /// Indexes the pack by its content and checks what it holds, beside the original's objects and nothing of the agent's.
    fn examine(&self, placed: &Path) -> Result<Vec<AgentCommit>> {
        let stores = [self.incoming, self.objects];
        let desk = Scratch::make(&self.work.join("examination"), self.format, &stores)?;
        let git = || self.shallow(desk.git());
        let index = git().set("core.bigFileThreshold=16m").args(["index-pack", "--strict"]).arg(placed);
        index.output().map_err(because("git finds fault with an object"))?;
        let walk = git().args(["rev-list", "--objects", "--quiet"]).args(self.range());
        walk.output().map_err(because("an object is missing"))?;
        check_paths(&git().args(["rev-list"]).args(self.range()).output()?, &git)?;
        self.commits(&git)
    }

    fn commits(&self, git: &dyn Fn() -> Git) -> Result<Vec<AgentCommit>> {
        let format = "--format=tformat:%H%x00%an <%ae>%x00%s";
        let words = ["log", "-z", "--reverse", "--topo-order", "--no-mailmap", "--no-show-signature", format];
        let told = git().args(words).args(self.range()).output()?;
        let text = String::from_utf8_lossy(&told);
        let fields: Vec<&str> = text.split('\0').collect();
        let commit = |fields: &[&str]| {
            let (author, subject) = (fields[1].to_owned(), fields[2].to_owned());
            Ok(AgentCommit { id: fields[0].parse()?, author, subject })
        };
        fields.chunks_exact(3).map(commit).collect()
    }
}

/// No commit may add a submodule, or a name that git tracks nowhere.
fn check_paths(commits: &[u8], git: &dyn Fn() -> Git) -> Result<()> {
    let words = ["diff-tree", "--stdin", "-m", "--root", "-r", "-z", "--no-renames", "--no-commit-id"];
    let told = git().args(words).feed(commits)?;
    let mut fields = told.split(|b| *b == 0);
    while let (Some(change), Some(path)) = (fields.next(), fields.next()) {
        let shown = String::from_utf8_lossy(path);
        if change.split(|b| *b == b' ').nth(1) == Some(b"160000") {
            return Err(refused(format!("one adds the submodule {shown}")));
        }
        let path = RelPath::from_bytes(path).map_err(|_| refused(format!("one has the path {shown:?}")))?;
        if names_git(&path) {
            return Err(refused(format!("one has {path}, a name that git does not track")));
        }
    }
    Ok(())
}

/// What may still be copied.
struct Allowance {
    bytes: u64,
    files: u64,
}

impl Allowance {
    /// Copies one file of the agent's store.
    fn copy(&mut self, dir: &Dir, name: &[u8], to: &Path) -> Result<()> {
        self.files = self.files.checked_sub(1).ok_or_else(|| refused("it has too many objects"))?;
        match hostile::copy_out(dir, name, to, self.bytes)? {
            Found::Whole(bytes) => self.bytes -= bytes,
            Found::Nothing => {}
            Found::Unreadable => {
                return Err(refused(format!("{} is too large or cannot be read", dir.shown(name).display())));
            }
        }
        Ok(())
    }
}

fn copy_objects(tree: &Root, ward: &Scratch, job: &Quarantine<'_>) -> Result<()> {
    let objects =
        hostile::dir(tree, ".git/objects").ok_or_else(|| refused("it has no store of objects any more"))?;
    let mut left = Allowance { bytes: job.limit, files: FILE_LIMIT };
    let digits = job.format.zero().as_str().len();
    for entry in list::names_and_types(&objects)? {
        if is_hex(&entry.name, 2) && may_be(entry.kind, FileType::Directory) {
            copy_loose(&objects, &entry.name, digits - 2, ward, &mut left)?;
        }
    }
    copy_packs(tree, digits, ward, &mut left)
}

fn copy_loose(objects: &Dir, fan: &[u8], digits: usize, ward: &Scratch, left: &mut Allowance) -> Result<()> {
    let Ok(dir) = objects.dir(fan) else { return Ok(()) };
    let to = ward.dir().join("objects").join(text(fan));
    std::fs::create_dir_all(&to).map_err(|e| Error::io("create directory", &to, e))?;
    for entry in list::names_and_types(&dir)? {
        if is_hex(&entry.name, digits) && may_be(entry.kind, FileType::RegularFile) {
            left.copy(&dir, &entry.name, &to.join(text(&entry.name)))?;
        }
    }
    Ok(())
}

fn copy_packs(tree: &Root, digits: usize, ward: &Scratch, left: &mut Allowance) -> Result<()> {
    let Some(dir) = hostile::dir(tree, ".git/objects/pack") else { return Ok(()) };
    for entry in list::names_and_types(&dir)? {
        let name = entry.name.strip_prefix(b"pack-").and_then(|name| name.strip_suffix(b".pack"));
        if !name.is_some_and(|name| is_hex(name, digits)) || !may_be(entry.kind, FileType::RegularFile) {
            continue;
        }
        let to = ward.dir().join("objects/pack").join(text(&entry.name));
        left.copy(&dir, &entry.name, &to)?;
        if to.exists() {
            let index = ward.git().set("core.bigFileThreshold=16m").arg("index-pack").arg(&to);
            index.output().map_err(because("a pack of it is broken"))?;
        }
    }
    Ok(())
}

/// Some filesystems do not say what an entry is before it is opened.
fn may_be(kind: FileType, expected: FileType) -> bool {
    kind == expected || kind == FileType::Unknown
}

fn is_hex(name: &[u8], digits: usize) -> bool {
    name.len() == digits && name.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
}

/// A name of plain ASCII.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
