//! The repository that the agent gets in place of the checkout's `.git`.
//!
//! It looks like a clone that has just been made: its own HEAD, branch, index, configuration and objects; the original's objects behind an
//! alternate and its branches as a copy. Nothing that the agent does to it reaches the original, and from the moment that the agent can see it,
//! nothing in it is believed: [`read`] and [`advance`] treat it as hostile.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use sandboxer_core::{Error, Result};

use crate::git::{Git, Place};
use crate::oid::{ObjectFormat, Oid};
use crate::repository::Head;
use crate::scratch::{alternates_text, write};

pub use crate::agent::{Advance, Advanced, AgentHead, Edit, State, advance, read};

/// How git tells by stat data whether a file is as in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatCheck {
    /// As in the original: what the tree shows has the original's inode numbers and change times.
    Full,
    /// By size and modification time: the tree is a copy.
    Minimal,
}

/// What a private repository is made from.
#[derive(Debug)]
pub struct Seed<'a> {
    /// The git directory of the checkout: for a linked worktree, its own.
    pub git_dir: &'a Path,
    /// The git directory that its worktrees have in common; the same one for a plain checkout.
    pub common_dir: &'a Path,
    /// How its objects are named.
    pub format: ObjectFormat,
    /// The branch that the agent is on, such as [`branch_for`] chose.
    pub branch: &'a str,
    /// Where that branch is; `None` for one that has no commit yet.
    pub base: Option<&'a Oid>,
    /// The original's objects, by a path that stays.
    pub objects: &'a Path,
    /// What the index of a copy is worth.
    pub stat: StatCheck,
    /// The original's refs, from [`refs_of`].
    pub refs: &'a [u8],
    /// What of the original's configuration the agent's git needs, from [`settings_of`].
    pub settings: &'a [Setting],
}

/// A key of a configuration and its value, if it has one.
pub type Setting = (String, Option<String>);

/// Keys of the original's own configuration that the agent's git needs to see its files in the same way. None of them names a program.
const KEPT: [&str; 16] = [
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.trustctime",
    "core.checkstat",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.excludesfile",
    "core.attributesfile",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "index.sparse",
    "user.name",
    "user.email",
];

/// Makes the private repository in `git_dir`: an empty directory that no agent can reach yet.
pub fn sow(seed: &Seed<'_>, git_dir: &Path) -> Result<()> {
    for below in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        make_dirs(&git_dir.join(below))?;
    }
    write(&git_dir.join("HEAD"), format!("ref: refs/heads/{}\n", seed.branch).as_bytes())?;
    write(&git_dir.join("config"), config(seed).as_bytes())?;
    write(&git_dir.join("objects/info/alternates"), &alternates_text(&[seed.objects]))?;
    sow_refs(seed, git_dir)?;
    sow_rules(seed, git_dir)?;
    sow_index(seed, git_dir)
}

fn sow_refs(seed: &Seed<'_>, git_dir: &Path) -> Result<()> {
    let name = format!("refs/heads/{}", seed.branch);
    let own = |line: &&[u8]| line.split(|b| *b == b' ').nth(1) != Some(name.as_bytes());
    let others: Vec<&[u8]> =
        seed.refs.split(|b| *b == b'\n').filter(|line| !line.is_empty()).filter(own).collect();
    let mut packed = b"# pack-refs with: sorted \n".to_vec();
    packed.extend(others.iter().flat_map(|line| [line, b"\n".as_slice()].concat()));
    write(&git_dir.join("packed-refs"), &packed)?;
    let Some(base) = seed.base else { return Ok(()) };
    let path = git_dir.join(name);
    make_dirs(path.parent().unwrap_or(git_dir))?;
    write(&path, format!("{base}\n").as_bytes())
}

fn sow_rules(seed: &Seed<'_>, git_dir: &Path) -> Result<()> {
    for shared in ["info/exclude", "info/attributes", "shallow"] {
        copy(&seed.common_dir.join(shared), &git_dir.join(shared))?;
    }
    if seed.settings.iter().any(|(key, _)| key == "core.sparsecheckout") {
        copy(&seed.git_dir.join("info/sparse-checkout"), &git_dir.join("info/sparse-checkout"))?;
    }
    Ok(())
}

/// The index with its times: git takes a file that is younger than the index for one that may have changed unseen.
fn sow_index(seed: &Seed<'_>, git_dir: &Path) -> Result<()> {
    let (from, to) = (seed.git_dir.join("index"), git_dir.join("index"));
    // Below an overlay nobody writes to it, and git never writes an index in place: another name will do, and nothing has to reach the disk.
    let is_linked = seed.stat == StatCheck::Full && std::fs::hard_link(&from, &to).is_ok();
    if !is_linked {
        copy(&from, &to)?;
    }
    let listing =
        std::fs::read_dir(seed.git_dir).map_err(|e| Error::io("list directory", seed.git_dir, e))?;
    for entry in listing {
        let name = entry.map_err(|e| Error::io("list directory", seed.git_dir, e))?.file_name();
        // The larger part of an index that is split in two.
        if name.to_string_lossy().starts_with("sharedindex.") {
            copy(&seed.git_dir.join(&name), &git_dir.join(&name))?;
        }
    }
    Ok(())
}

/// Makes the index of a repository just sown that of `commit`, where the sandbox does not begin with what is staged in the original. Files that
/// are the same in both keep their stat data, of which `work_tree` is asked: the original's files. No agent can reach the repository yet.
pub fn reset_index(git_dir: &Path, work_tree: &Path, commit: &Oid) -> Result<()> {
    let git = Git::at(Place::Dir(git_dir)).env("GIT_WORK_TREE", work_tree).arg("-C").arg(work_tree);
    git.args(["read-tree", "--reset", commit.as_str()]).output().map(drop)
}

fn make_dirs(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Error::io("create directory", path, e))
}

/// Copies a file with its modification time; there being none is fine.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut source = match File::open(from) {
        Ok(source) => source,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("open", from, e)),
    };
    let failed = |e| Error::io("copy", from, e);
    let modified = source.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
    let mut target = File::create(to).map_err(|e| Error::io("create", to, e))?;
    std::io::copy(&mut source, &mut target).map_err(failed)?;
    target.set_modified(modified).map_err(|e| Error::io("set times of", to, e))
}

/// What the repository's own configuration says, with that of its worktree; keys in lower case.
pub fn settings_of(git_dir: &Path) -> Result<Vec<Setting>> {
    let told = Git::at(Place::Dir(git_dir)).args(["config", "--list", "-z"]).output()?;
    let entry = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).ok()?;
        Some(match text.split_once('\n') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text, None),
        })
    };
    Ok(told.split(|b| *b == 0).filter(|text| !text.is_empty()).filter_map(entry).collect())
}

fn config(seed: &Seed<'_>) -> String {
    let mut lines = vec![
        ("core.repositoryformatversion".to_owned(), Some("1".to_owned())),
        ("extensions.objectformat".to_owned(), Some(seed.format.name().to_owned())),
        ("core.bare".to_owned(), Some("false".to_owned())),
        ("core.logallrefupdates".to_owned(), Some("true".to_owned())),
    ];
    if seed.format == ObjectFormat::Sha1 {
        lines[0].1 = Some("0".to_owned());
        lines.remove(1);
    }
    lines.extend(seed.settings.iter().filter(|(key, _)| KEPT.contains(&key.as_str())).cloned());
    if seed.stat == StatCheck::Minimal {
        lines.push(("core.checkstat".to_owned(), Some("minimal".to_owned())));
        lines.push(("core.trustctime".to_owned(), Some("false".to_owned())));
    }
    lines.push(("gc.auto".to_owned(), Some("0".to_owned())));
    lines.iter().map(|(key, value)| config_line(key, value.as_deref())).collect()
}

/// One setting in a section of its own; a later one of the same key counts.
fn config_line(key: &str, value: Option<&str>) -> String {
    let (section, name) = key.split_once('.').unwrap_or(("core", key));
    match value {
        None => format!("[{section}]\n\t{name}\n"),
        Some(value) => format!("[{section}]\n\t{name} = {}\n", quoted(value)),
    }
}

fn quoted(value: &str) -> String {
    let mut text = String::from('"');
    for character in value.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '"' | '\\' => text.extend(['\\', character]),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// The branches, tags and remote branches of a repository, lines `OID NAME` sorted by name; and what is checked out, if that is a branch that has
/// a commit.
pub fn refs_of(git_dir: &Path) -> Result<(Vec<u8>, Option<Head>)> {
    let git = Git::at(Place::Dir(git_dir)).args(["for-each-ref", "--format=%(HEAD)%(objectname) %(refname)"]);
    let told = git.args(["refs/heads", "refs/tags", "refs/remotes"]).output()?;
    let (mut refs, mut head) = (Vec::with_capacity(told.len()), None);
    for line in told.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        if line[0] == b'*' {
            head = head_of(&line[1..]);
        }
        refs.extend_from_slice(&line[1..]);
        refs.push(b'\n');
    }
    Ok((refs, head))
}

fn head_of(line: &[u8]) -> Option<Head> {
    let (oid, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    Some(Head { branch: Some(name.to_owned()), commit: Some(oid.parse().ok()?) })
}

/// The branch for the sandbox `name` beside the branches among `refs`: `sandbox/NAME`, unless a branch is in its way.
pub fn branch_for(name: &str, refs: &[u8]) -> String {
    let taken: Vec<&[u8]> = refs.split(|b| *b == b'\n').filter_map(branch_of_line).collect();
    let free = |branch: &String| !taken.iter().any(|other| in_the_way(branch.as_bytes(), other));
    let numbered = (2..).map(|number| format!("sandbox-{number}/{name}"));
    let mut candidates = [format!("sandbox/{name}"), format!("sandboxes/{name}")].into_iter().chain(numbered);
    candidates.find(free).unwrap_or_else(|| format!("sandbox/{name}"))
}

fn branch_of_line(line: &[u8]) -> Option<&[u8]> {
    line.split(|b| *b == b' ').nth(1)?.strip_prefix(b"refs/heads/")
}

/// Whether one is a directory of the other: refs are files. An equal name is not in the way: the private repository has its own.
fn in_the_way(branch: &[u8], other: &[u8]) -> bool {
    let above = |a: &[u8], b: &[u8]| b.strip_prefix(a).is_some_and(|rest| rest.starts_with(b"/"));
    above(branch, other) || above(other, branch)
}

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;
