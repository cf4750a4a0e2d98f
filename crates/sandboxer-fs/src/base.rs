//! The base of a workspace: what it was made from, and where content of it may still be found when the original has moved on.

use std::path::{Path, PathBuf};

use sandboxer_core::Result;
use sandboxer_core::model::{OpId, RelPath};

use crate::commit::{CommitFiles, load_undo};
use crate::content::read_all;
use crate::diff::{Comparison, Scan};
use crate::hash::ContentHash;
use crate::manifest::{Edits, Entry};
use crate::overlay::stack::Places;
use crate::pack;
use crate::root::{Root, stamp_of_fd};
use crate::stamp::Stamp;

/// What a workspace is compared with. A copy has a manifest of all of it; an overlay works it out for the paths that are asked for.
pub trait Base: Sync {
    /// The entry at `path`, a directory's own particulars included.
    fn find(&self, path: &RelPath) -> Result<Option<Entry>>;

    /// Which entries of the copy may differ from it.
    fn scan(&self, comparison: &Comparison<'_>) -> Result<Scan>;

    /// Every entry that is written down.
    fn recorded(&self) -> Result<Vec<(RelPath, Entry)>>;

    /// Changes what is written down.
    fn rewrite(&self, edits: Edits) -> Result<()>;
}

/// The name of a workspace's pack.
pub const PACK: &str = "base.pack";

/// The places where a workspace looks.
pub struct Bases<'a> {
    /// The workspace's own directory.
    pub home: &'a Path,
}

impl Bases<'_> {
    /// The content that `entry` at `path` stands for. Every find is verified: by its hash, or by being the very inode.
    pub fn find(&self, path: &RelPath, entry: &Entry) -> Result<Option<Vec<u8>>> {
        if let Some(content) = pack::read(&self.home.join(PACK), entry) {
            return Ok(Some(content));
        }
        if let Some(content) = self.preserved(path, entry) {
            return Ok(Some(content));
        }
        let Some(base) = entry.base.filter(Stamp::is_file) else { return Ok(None) };
        for home in self.neighbours() {
            if let Some(content) = displaced(&home, &base, entry.hash)? {
                return Ok(Some(content));
            }
        }
        Ok(None)
    }

    /// An overlay keeps what somebody else's commit replaced.
    fn preserved(&self, path: &RelPath, entry: &Entry) -> Option<Vec<u8>> {
        let preserve = Root::open(Places::new(self.home).preserve()).ok()?;
        let fd = preserve.find_parent(path).ok()??.open_file(path.name()).ok()?;
        let content = read_all(fd.try_clone().ok()?, stamp_of_fd(&fd).ok()?.size).ok()?;
        (entry.hash == Some(ContentHash::of(&content))).then_some(content)
    }

    /// This workspace and those beside it: a commit from one of them may have displaced what this one was made from.
    fn neighbours(&self) -> Vec<PathBuf> {
        let beside = self.home.parent().and_then(|parent| std::fs::read_dir(parent).ok());
        beside.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

/// The content that some operation of the workspace at `home` displaced, if it was what `base` describes.
fn displaced(home: &Path, base: &Stamp, hash: Option<ContentHash>) -> Result<Option<Vec<u8>>> {
    let files = CommitFiles::new(home);
    for operation in std::fs::read_dir(files.undo()).into_iter().flatten().flatten() {
        let id = OpId::from_string(operation.file_name().to_string_lossy());
        // Another workspace's damage is its own affair.
        let Ok(Some(record)) = load_undo(&files, &id) else { continue };
        let was = |t: &&crate::commit::Touched| {
            // What was gone over was somebody's edit, and never the base.
            t.found_base() && t.before.as_ref().and_then(|b| b.base).is_some_and(|was| was.untouched(base))
        };
        for kept in record.touched.iter().filter(was).filter_map(|t| t.kept.as_ref()) {
            if let Some(content) = read_kept(&operation.path(), &kept.name, &kept.stamp, base, hash) {
                return Ok(Some(content));
            }
        }
    }
    Ok(None)
}

fn read_kept(
    dir: &Path,
    name: &str,
    kept: &Stamp,
    base: &Stamp,
    hash: Option<ContentHash>,
) -> Option<Vec<u8>> {
    let fd = Root::open(dir).ok()?.as_dir().ok()?.open_file(name.as_bytes()).ok()?;
    let now = stamp_of_fd(&fd).ok()?;
    if !(now.same_inode(kept) && now.same_state(kept) && now.same_state(base)) {
        return None;
    }
    let content = read_all(fd, now.size).ok()?;
    hash.is_none_or(|hash| ContentHash::of(&content) == hash).then_some(content)
}
