//! What is here.

use sandboxer_core::contract::CancelFlag;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};
use sandboxer_fs::list::names_and_types;
use sandboxer_fs::root::{Dir, Root};
use sandboxer_fs::{copy, pool};

use super::entry::{Entry, Kind, Name, order, shown};

/// `tar` and `rm` there take no longer paths from the root of the tree on, `./` and a NUL included.
const LONGEST: usize = 4096 - 3;

/// A tree as it is now, in the order of [`order`].
#[derive(Default)]
pub(super) struct Tree {
    pub entries: Vec<Entry>,
    /// What a fetch that was killed left behind.
    pub leftovers: Vec<Name>,
}

/// Everything below `root`, the root included. When this returns, what changes later gets another ctime than it has here.
pub(super) fn tree(root: &Root, cancel: &CancelFlag) -> Result<Tree> {
    let handle = |found: &mut Tree, path: Option<RelPath>, queue: &pool::Queue<Option<RelPath>>| {
        cancel.check()?;
        list(root, path.as_ref(), found, |below| queue.push(Some(below)))
    };
    let parts = pool::work(pool::default_threads(), vec![None], Tree::default, handle)?;
    let mut all = Tree::default();
    for part in parts {
        all.entries.extend(part.entries);
        all.leftovers.extend(part.leftovers);
    }
    all.entries.sort_unstable_by(|a, b| order(&a.path, &b.path));
    settle(&all.entries);
    Ok(all)
}

/// The one file `name` of `root`, under the name that it has there; nothing where there is none.
pub(super) fn single(root: &Root, name: &RelPath, there: &[u8]) -> Result<Tree> {
    let stamp = root.stamp(name)?;
    if stamp.is_some_and(|stamp| !stamp.is_file()) {
        return Err(Error::refused(format!(
            "{} is neither a directory nor a regular file",
            root.shown(name).display()
        )));
    }
    // Other names that it has are outside.
    let entry = stamp.map(|stamp| Entry { linked: false, ..Entry::of(there.to_vec(), &stamp, Vec::new()) });
    let entries: Vec<Entry> = entry.into_iter().collect();
    settle(&entries);
    Ok(Tree { entries, leftovers: Vec::new() })
}

fn settle(entries: &[Entry]) {
    copy::wait_past(entries.iter().map(|entry| entry.ctime).max().unwrap_or(0));
}

fn list(root: &Root, path: Option<&RelPath>, found: &mut Tree, mut push: impl FnMut(RelPath)) -> Result<()> {
    let dir = root.dir(path)?;
    let prefix = path.map_or(&[][..], RelPath::as_bytes);
    found.entries.push(Entry::of(prefix.to_vec(), &dir.stamp_self()?, Vec::new()));
    for listed in names_and_types(&dir)? {
        let path = join(prefix, &listed.name);
        if path.len() > LONGEST {
            return Err(too_long(&path));
        }
        match examine(&dir, &listed.name, path)? {
            Some(entry) if entry.kind == Kind::Directory => push(RelPath::from_bytes(entry.path)?),
            Some(entry) if entry.is_leftover() => found.leftovers.push(entry.path),
            Some(entry) => found.entries.push(entry),
            None => {}
        }
    }
    Ok(())
}

fn examine(dir: &Dir, name: &[u8], path: Name) -> Result<Option<Entry>> {
    let Some(stamp) = dir.stamp(name)? else { return Ok(None) };
    let entry = Entry::of(path, &stamp, Vec::new());
    let target = if entry.kind == Kind::Link { dir.read_link(name)? } else { Vec::new() };
    Ok(Some(Entry { target, ..entry }))
}

pub(super) fn join(prefix: &[u8], name: &[u8]) -> Name {
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

fn too_long(path: &[u8]) -> Error {
    let start: String = shown(path).chars().take(80).collect();
    Error::Refused {
        reason: format!("{start}… has a path of {} bytes; a host takes {LONGEST}", path.len()),
        hint: Some("move what lies so deep, or leave it out".to_owned()),
    }
}
