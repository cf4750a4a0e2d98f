//! What a checkout is: where its files, its git directory and its objects are.
//!
//! A checkout is found by asking git once, from its top, with the user's own configuration: whether git trusts the
//! directory is the user's to say. Everything that moves (HEAD, branches, a merge that is under way) is read again
//! whenever it is asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandboxer_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::git::{Git, Place};
use crate::oid::{ObjectFormat, Oid};

/// A checkout of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// The top of its files; canonical.
    pub work_tree: PathBuf,
    /// Where its HEAD and index are: `.git`, or `.git/worktrees/x` of another checkout for a linked one.
    pub git_dir: PathBuf,
    /// Where its objects, branches and configuration are.
    pub common_dir: PathBuf,
    /// How its objects are named.
    pub format: ObjectFormat,
}

/// What is checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The branch, as a full name; `None` where HEAD is detached.
    pub branch: Option<String>,
    /// The commit; `None` where the branch has none yet.
    pub commit: Option<Oid>,
}

impl Repository {
    /// The checkout whose top is `path`.
    pub fn find(path: &Path) -> Result<Self> {
        let work_tree = path.canonicalize().map_err(|e| Error::io("find", path, e))?;
        let git = Git::asking(Place::From(&work_tree)).arg("rev-parse");
        let git = git.args(["--show-object-format", "--is-bare-repository", "--is-inside-work-tree"]);
        let told = git.args(["--show-cdup", "--absolute-git-dir"]).output();
        let told = Told::parse(&told.map_err(|e| not_found(&work_tree, e))?)
            .ok_or_else(|| Error::corrupt(&work_tree, "`git rev-parse` said something unknown"))?;
        told.refuse_unless_top(&work_tree)?;
        let common_dir = common_dir(&told.git_dir)?;
        Ok(Self { work_tree, git_dir: told.git_dir, common_dir, format: told.format })
    }

    /// Where its objects are.
    pub fn objects(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// The file of its index, which need not be there.
    pub fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// A call about this checkout, from the top of its files.
    pub(crate) fn git(&self) -> Git {
        let git = Git::at(Place::From(&self.work_tree));
        // Said in full, a linked checkout of a bare repository is no bare one either.
        git.env("GIT_DIR", &self.git_dir).env("GIT_WORK_TREE", &self.work_tree)
    }

    fn asking(&self) -> Git {
        let git = Git::asking(Place::From(&self.work_tree));
        git.env("GIT_DIR", &self.git_dir).env("GIT_WORK_TREE", &self.work_tree)
    }

    /// What is checked out now.
    pub fn head(&self) -> Result<Head> {
        let told = self.git().args(["symbolic-ref", "-q", "HEAD"]).output_unless_no()?;
        let branch = told.map(|bytes| one_line(&bytes));
        let commit = match &branch {
            Some(name) => self.branch_tip(name)?,
            None => self.verified("HEAD")?,
        };
        Ok(Head { branch, commit })
    }

    /// The commit that `rev` stands for, as a user gives it.
    pub fn resolve(&self, rev: &str) -> Result<Oid> {
        if rev.is_empty() || rev.starts_with('-') || rev.contains('\0') {
            return Err(Error::usage(format!("{rev:?} is not the name of a commit")));
        }
        let commit = self.verified(&format!("{rev}^{{commit}}")).ok().flatten();
        commit.ok_or_else(|| Error::not_found("commit", rev))
    }

    /// What `rev` stands for, without a guess where it is not there.
    fn verified(&self, rev: &str) -> Result<Option<Oid>> {
        let git = self.git().args(["rev-parse", "--verify", "-q", "--end-of-options", rev]);
        git.output_unless_no()?.map(|bytes| one_line(&bytes).parse()).transpose()
    }

    /// Where the reference of exactly this name is; `HEAD` is one too.
    pub fn branch_tip(&self, full_ref: &str) -> Result<Option<Oid>> {
        if full_ref == "HEAD" {
            return self.verified(full_ref);
        }
        let git = self.git().args(["for-each-ref", "--format=%(objectname) %(refname)", full_ref]);
        let told = git.output()?;
        let told = String::from_utf8_lossy(&told);
        let mut lines = told.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(_, name)| *name == full_ref).map(|(oid, _)| oid.parse()).transpose()
    }

    /// Whether a branch is checked out, here or in a linked checkout.
    pub fn is_checked_out(&self, full_ref: &str) -> Result<bool> {
        let told = self.git().args(["worktree", "list", "--porcelain"]).output()?;
        let line = format!("branch {full_ref}");
        // A directory whose name has a line of this kind in it only makes us more careful.
        Ok(told.split(|b| *b == b'\n').any(|told| told == line.as_bytes()))
    }

    /// What is under way in this checkout and has to be ended first, if anything is.
    pub fn under_way(&self) -> Option<&'static str> {
        const SIGNS: [(&str, &str); 6] = [
            ("MERGE_HEAD", "merge"),
            ("rebase-merge", "rebase"),
            ("rebase-apply/applying", "am"),
            ("rebase-apply", "rebase"),
            ("CHERRY_PICK_HEAD", "cherry-pick"),
            ("REVERT_HEAD", "revert"),
        ];
        let found = SIGNS.iter().find(|(sign, _)| self.git_dir.join(sign).exists());
        found.map(|(_, what)| *what).or_else(|| self.under_way_by_refs())
    }

    /// Where references are kept in tables, two of the signs are references.
    fn under_way_by_refs(&self) -> Option<&'static str> {
        if !self.common_dir.join("reftable").exists() {
            return None;
        }
        let signs = [("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")];
        let found = signs.iter().find(|(sign, _)| matches!(self.verified(sign), Ok(Some(_))));
        found.map(|(_, what)| *what)
    }

    /// Who the user is as `Name <mail>`, by the user's own settings; `None` where they do not say.
    pub fn identity(&self) -> Result<Option<String>> {
        let git = self.asking().set("user.useConfigOnly=true").args(["var", "GIT_COMMITTER_IDENT"]);
        let told = git.try_output()?.map(|bytes| one_line(&bytes));
        // The time comes after the address.
        Ok(told.and_then(|line| line.rfind('>').map(|end| line[..=end].to_owned())))
    }

    /// What the user's own configuration says under `key`. Of the few keys that every call sets, it says what we set.
    pub fn setting(&self, key: &str) -> Result<Option<String>> {
        let told = self.asking().args(["config", "-z", "--get", key]).output_unless_no()?;
        Ok(told
            .map(|bytes| String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(&bytes)).into_owned()))
    }
}

fn one_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned()
}

/// What `git rev-parse` tells about a directory.
struct Told {
    format: ObjectFormat,
    bare: bool,
    /// The way to the top of the work tree; `None` outside of one.
    to_top: Option<Vec<u8>>,
    git_dir: PathBuf,
}

impl Told {
    /// One line each; the way up is left out outside of a work tree. The path is last, as it may have lines of its own.
    fn parse(told: &[u8]) -> Option<Self> {
        let mut rest = told.strip_suffix(b"\n")?;
        let mut line = || {
            let end = rest.iter().position(|b| *b == b'\n')?;
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            Some(line)
        };
        let format = match line()? {
            b"sha1" => ObjectFormat::Sha1,
            b"sha256" => ObjectFormat::Sha256,
            _ => return None,
        };
        let bare = line()? == b"true";
        let inside = line()? == b"true";
        let to_top = if inside { Some(line()?.to_vec()) } else { None };
        Some(Self { format, bare, to_top, git_dir: PathBuf::from(OsStr::from_bytes(rest)) })
    }

    fn refuse_unless_top(&self, path: &Path) -> Result<()> {
        let shown = path.display();
        let refused = |reason: String, hint: String| Err(Error::Refused { reason, hint: Some(hint) });
        match &self.to_top {
            Some(way) if way.is_empty() => Ok(()),
            Some(way) => {
                let top = path.join(OsStr::from_bytes(way));
                let top = top.canonicalize().unwrap_or(top);
                refused(
                    format!("{shown} is not the top of its checkout"),
                    format!("name the top: {}", top.display()),
                )
            }
            None if self.bare => refused(
                format!("{shown} is a bare repository, which has no files"),
                format!("name a checkout, or make one: `git clone {shown} DIRECTORY`"),
            ),
            None => refused(format!("{shown} is not in a checkout"), "name the top of a checkout".to_owned()),
        }
    }
}

/// The directory that a linked checkout shares with others stands in a file of its git directory.
fn common_dir(git_dir: &Path) -> Result<PathBuf> {
    let file = git_dir.join("commondir");
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(git_dir.to_path_buf()),
        Err(e) => return Err(Error::io("read", file, e)),
    };
    let path = git_dir.join(OsStr::from_bytes(bytes.trim_ascii_end()));
    path.canonicalize().map_err(|e| Error::io("find", path, e))
}

/// What git says when it finds no repository, or one that it does not trust, in words of ours.
fn not_found(path: &Path, error: Error) -> Error {
    let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let shown = path.display();
    if said.contains("not a git repository") {
        let reason = format!("{shown} is not a git repository");
        return Error::Refused { reason, hint: Some(format!("make it one: `git init {shown}`")) };
    }
    if said.contains("dubious ownership") || said.contains("unsafe repository") {
        let reason = format!("git does not trust {shown}: {}", said.lines().next().unwrap_or_default());
        let hint = format!("if you do: `git config --global --add safe.directory {shown}`");
        return Error::Refused { reason, hint: Some(hint) };
    }
    error
}

#[cfg(test)]
#[path = "repository_tests.rs"]
mod tests;
