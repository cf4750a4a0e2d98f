//! Which entries of a copy were touched: a walk that stats everything and reads nothing.

use std::collections::{BTreeSet, HashMap};

use rustix::fs::FileType;
use rustix::io::Errno;
use sandboxer_core::Result;
use sandboxer_core::model::{NodeType, RelPath};

use super::Comparison;
use crate::filter::RESERVED;
use crate::list::{self, Listed};
use crate::manifest::{self, Chunk, DirId, Entry, Manifest};
use crate::pool::{self, Queue};
use crate::root::Dir;
use crate::stamp::Stamp;
use crate::xattrs;

/// Something that may differ.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Where.
    pub path: RelPath,
    /// What was there in the base.
    pub base: Option<Entry>,
    /// What is there now.
    pub now: Option<Stamp>,
}

/// The names that a file with several has within the tree.
#[derive(Clone, Debug, Default)]
pub struct LinkGroup {
    /// How many.
    pub names: u32,
    /// One that is as it was in the base.
    pub untouched: Option<RelPath>,
    /// Those that were the same file in the base, and may have no other change than the number of its names.
    pub relinked: Vec<RelPath>,
}

/// By inode.
pub type Links = HashMap<u64, LinkGroup>;

/// Settles, once it is known what differs, which names of each group are unchanged.
pub fn settle_links(links: &mut Links, differs: impl Fn(&RelPath) -> bool) {
    for group in links.values_mut().filter(|g| g.untouched.is_none()) {
        group.untouched = std::mem::take(&mut group.relinked).into_iter().find(|path| !differs(path));
    }
}

/// What a walk found.
#[derive(Default)]
pub struct Scan {
    /// In no order.
    pub candidates: Vec<Candidate>,
    /// Of all files with several names.
    pub links: Links,
    /// New entries that may have replaced a file which was then deleted from the original.
    pub uncertain: BTreeSet<RelPath>,
}

struct DirTask {
    path: Option<RelPath>,
    id: Option<DirId>,
}

/// Walks the copy against its manifest.
pub fn scan(comparison: &Comparison<'_>, base: &Manifest) -> Result<Scan> {
    let first = vec![DirTask { path: None, id: Some(manifest::ROOT) }];
    let workers = pool::work(comparison.threads, first, Scan::default, |found, task, queue| {
        comparison.cancel.check()?;
        Walker { comparison, base, queue, found }.visit(&task)
    })?;
    Ok(workers.into_iter().reduce(merge).unwrap_or_default())
}

fn merge(mut all: Scan, more: Scan) -> Scan {
    all.candidates.extend(more.candidates);
    for (ino, group) in more.links {
        let total = all.links.entry(ino).or_default();
        total.names += group.names;
        total.untouched = total.untouched.take().or(group.untouched);
        total.relinked.extend(group.relinked);
    }
    all
}

struct Walker<'a> {
    comparison: &'a Comparison<'a>,
    base: &'a Manifest,
    queue: &'a Queue<DirTask>,
    found: &'a mut Scan,
}

impl Walker<'_> {
    fn visit(&mut self, task: &DirTask) -> Result<()> {
        let dir = match &task.path {
            // A directory that went away while we walk is found as a deletion the next time.
            Some(path) => match self.comparison.copy.open_dir(path) {
                Ok(dir) => dir,
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                Err(Errno::ACCESS) => return self.unreadable(path, task.id),
                Err(_) => self.comparison.copy.dir(Some(path))?,
            },
            None => self.comparison.copy.dir(None)?,
        };
        let base = task.id.map(|id| self.base.chunk(id)).transpose()?;
        if let (Some(path), Some(chunk)) = (&task.path, &base) {
            self.compare_dir(path, &dir, chunk)?;
        }
        let listed = list::sorted(&dir)?;
        self.match_names(task, &dir, listed, base.map(|c| c.entries).unwrap_or_default())
    }

    /// A directory that we may not look into: it differs by its mode at least, and nothing can be said of what it holds.
    fn unreadable(&mut self, path: &RelPath, id: Option<DirId>) -> Result<()> {
        if id.is_none() {
            // A new one was told of when it was met.
            return Ok(());
        }
        let base = id.map(|id| self.base.own(id)).transpose()?;
        let now = self.comparison.copy.stamp(path)?;
        self.found.candidates.push(Candidate { path: path.clone(), base, now });
        Ok(())
    }

    /// A directory's ctime tells of its content too, so what is compared is what can differ.
    fn compare_dir(&mut self, path: &RelPath, dir: &Dir, base: &Chunk) -> Result<()> {
        let (now, own) = (dir.stamp_self()?, &base.own);
        let copy = own.copy.unwrap_or_default();
        if copy.ctime == now.ctime {
            return Ok(());
        }
        let same = copy.mode == now.mode
            && copy.same_owner(&now)
            && xattrs::read(dir).is_ok_and(|xattrs| xattrs == own.xattrs);
        if !same {
            let base = Entry { child: Some(base.id), ..own.clone() };
            self.found.candidates.push(Candidate { path: path.clone(), base: Some(base), now: Some(now) });
        }
        Ok(())
    }

    /// Both lists are sorted: one pass tells what came, what went and what stayed.
    fn match_names(
        &mut self,
        task: &DirTask,
        dir: &Dir,
        listed: Vec<Listed>,
        base: Vec<Entry>,
    ) -> Result<()> {
        let mut base = base.into_iter().peekable();
        for now in listed {
            while let Some(gone) = base.next_if(|b| b.name < now.name) {
                self.gone(task, gone)?;
            }
            let before = base.next_if(|b| b.name == now.name);
            self.present(task, dir, now, before)?;
        }
        base.try_for_each(|gone| self.gone(task, gone))
    }

    fn gone(&mut self, task: &DirTask, entry: Entry) -> Result<()> {
        let path = manifest::join(task.path.as_ref(), &entry.name)?;
        self.deleted(path, entry)
    }

    fn deleted(&mut self, path: RelPath, entry: Entry) -> Result<()> {
        let manifest = self.base;
        let Some(id) = entry.child else {
            // What was never copied cannot have been deleted.
            if entry.copy.is_some() {
                self.told_gone(path, entry);
            }
            return Ok(());
        };
        for (path, entry) in manifest.below(id, Some(&path))? {
            if entry.copy.is_some() {
                self.told_gone(path, entry);
            }
        }
        self.told_gone(path, manifest.own(id)?);
        Ok(())
    }

    /// What is in the sandbox need not be shown.
    fn told_gone(&mut self, path: RelPath, base: Entry) {
        let is_dir = base.node_type() == NodeType::Directory;
        if self.comparison.filter.is_all() || self.comparison.filter.passes_all(&path, is_dir) {
            self.found.candidates.push(Candidate { path, base: Some(base), now: None });
        }
    }

    fn present(&mut self, task: &DirTask, dir: &Dir, listed: Listed, before: Option<Entry>) -> Result<()> {
        let is_dir = match listed.kind {
            // Some filesystems' listings do not tell.
            FileType::Unknown => dir.stamp(&listed.name)?.is_some_and(|s| s.is_dir()),
            kind => kind == FileType::Directory,
        };
        if !self.comparison.filter.is_all() || listed.name.starts_with(RESERVED) {
            let path = manifest::join(task.path.as_ref(), &listed.name)?;
            if !self.comparison.filter.passes(&path, is_dir) {
                return Ok(());
            }
        }
        if is_dir && let Some(child) = before.as_ref().and_then(|b| b.child) {
            // The directory's own task looks at the directory itself.
            let path = manifest::join(task.path.as_ref(), &listed.name)?;
            self.queue.push(DirTask { path: Some(path), id: Some(child) });
            return Ok(());
        }
        match dir.stamp(&listed.name)? {
            Some(now) => self.compare(task, listed.name, before, now),
            None => before.map_or(Ok(()), |gone| self.gone(task, gone)),
        }
    }

    fn compare(&mut self, task: &DirTask, name: Vec<u8>, before: Option<Entry>, now: Stamp) -> Result<()> {
        let untouched = before.as_ref().and_then(|b| b.copy).is_some_and(|copy| copy.untouched(&now));
        let several = now.nlink > 1 && !now.is_dir();
        if untouched && !several {
            return Ok(());
        }
        let path = manifest::join(task.path.as_ref(), &name)?;
        if several {
            let group = self.found.links.entry(now.ino).or_default();
            group.names += 1;
            if untouched {
                group.untouched = Some(path);
                return Ok(());
            }
            if before.as_ref().and_then(|b| b.copy).is_some_and(|c| c.same_inode(&now)) {
                group.relinked.push(path.clone());
            }
        }
        self.touched(path, before, now)
    }

    fn touched(&mut self, path: RelPath, before: Option<Entry>, now: Stamp) -> Result<()> {
        if now.is_dir() {
            self.queue.push(DirTask { path: Some(path.clone()), id: None });
        }
        let base = match before {
            Some(Entry { child: Some(id), .. }) if !now.is_dir() => {
                // What the directory held is gone with it; the entry itself is a change of type.
                for (path, entry) in self.base.below(id, Some(&path))? {
                    self.found.candidates.push(Candidate { path, base: Some(entry), now: None });
                }
                Some(self.base.own(id)?)
            }
            other => other,
        };
        self.found.candidates.push(Candidate { path, base, now: Some(now) });
        Ok(())
    }
}
