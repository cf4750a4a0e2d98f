//! Checkpoints: named states of a copy, with content stored once.
//!
//! A checkpoint is a manifest whose files are kept by the hash of their content, so the tenth checkpoint of a tree costs what changed
//! since the ninth. A file whose stamp is known from the base or the last checkpoint is not even read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs;
use rustix::io::Errno;
use sandboxer_core::model::{NodeType, RelPath};
use sandboxer_core::{Error, Result};

use crate::copy::{self, Meta, Transfer};
use crate::diff::Comparison;
use crate::durable;
use crate::hash::ContentHash;
use crate::list;
use crate::manifest::{self, Chunk, DirId, Entry, Manifest, ManifestWriter};
use crate::pool::{self, Queue};
use crate::restore::Source;
use crate::root::{Dir, Root};
use crate::stamp::Stamp;
use crate::xattrs;

/// The checkpoints of one workspace.
pub struct Checkpoints {
    home: PathBuf,
}

const OBJECTS: &str = "objects";
const SUFFIX: &str = "manifest";

impl Checkpoints {
    /// Those kept at `home`, a directory that is made when it is first needed.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_path_buf() }
    }

    /// Where the checkpoint `name` is kept.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.chars().all(plain) {
            return Err(Error::Usage {
                message: format!("{name:?} cannot name a checkpoint"),
                hint: Some("use letters, digits, `.`, `_` and `-`".to_owned()),
            });
        }
        Ok(self.home.join(format!("{name}.{SUFFIX}")))
    }

    /// Keeps the present state of the comparison's copy as `name`. Where that fails, nothing of it stays.
    pub fn take(&self, name: &str, comparison: &Comparison<'_>, base: &Manifest) -> Result<PathBuf> {
        let replaces = self.path(name)?.exists();
        let taken = self.take_all(name, comparison, base);
        if taken.is_err() || replaces {
            // Either the error is on its way already, or the checkpoint is there and only room is lost.
            let _ = self.sweep();
        }
        taken
    }

    /// Forgets the checkpoint `name`, with what it alone holds. It not being there is fine.
    pub fn drop(&self, name: &str) -> Result<()> {
        durable::remove(&self.path(name)?)?;
        self.sweep()
    }

    /// Removes what no checkpoint holds: parts of one that could not be taken, contents of one that was replaced.
    fn sweep(&self) -> Result<()> {
        let mut held = HashSet::new();
        for path in self.manifests() {
            let kept = Manifest::load(&path)?.below(manifest::ROOT, None)?;
            held.extend(kept.into_iter().filter_map(|(_, entry)| entry.hash.map(place_of)));
        }
        let unfinished =
            files_in(&self.home).into_iter().filter(|p| p.extension().is_some_and(|x| x == "new"));
        let objects = self.home.join(OBJECTS);
        unfinished.chain(files_in(&objects)).try_for_each(remove)?;
        for shelf in dirs_in(&objects) {
            let is_held = |object: &PathBuf| held.contains(&(name_of(&shelf), name_of(object)));
            files_in(&shelf).into_iter().filter(|object| !is_held(object)).try_for_each(remove)?;
            // Fails where something is left in it, as it should.
            let _ = std::fs::remove_dir(&shelf);
        }
        if self.manifests().is_empty() {
            let _ = std::fs::remove_dir(&objects).and_then(|()| std::fs::remove_dir(&self.home));
        }
        Ok(())
    }

    fn manifests(&self) -> Vec<PathBuf> {
        files_in(&self.home).into_iter().filter(|p| p.extension().is_some_and(|x| x == SUFFIX)).collect()
    }

    fn take_all(&self, name: &str, comparison: &Comparison<'_>, base: &Manifest) -> Result<PathBuf> {
        let path = self.path(name)?;
        let objects = self.home.join(OBJECTS);
        std::fs::create_dir_all(&objects).map_err(|e| Error::io("create directory", &objects, e))?;
        let last = self.newest().and_then(|path| Manifest::load(&path).ok());
        let known = [Some(base), last.as_ref()];
        let take = Take {
            comparison,
            known,
            objects: Root::open(&objects)?,
            manifest: ManifestWriter::create(&path)?,
            next_dir: AtomicU32::new(manifest::ROOT + 1),
            next_temporary: AtomicU64::new(0),
        };
        let known = known.map(|m| m.map(|_| manifest::ROOT));
        let first = vec![DirTask { path: None, id: manifest::ROOT, known }];
        pool::work(comparison.threads, first, Vec::new, |buffer, task, queue| take.dir(task, queue, buffer))?;
        if take.next_temporary.load(Ordering::Relaxed) > 0 {
            // One flush for all of them: the manifest must not outlive what it names.
            fs::syncfs(&take.objects).map_err(|e| Error::io("flush", &objects, e))?;
        }
        take.manifest.finish()?;
        Ok(path)
    }

    fn newest(&self) -> Option<PathBuf> {
        let modified = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
        self.manifests().into_iter().max_by_key(modified)
    }

    /// The manifest of the checkpoint `name`.
    pub fn load(&self, name: &str) -> Result<Manifest> {
        let path = self.path(name)?;
        if !path.exists() {
            return Err(Error::not_found("checkpoint", name));
        }
        Manifest::load(&path)
    }

    /// Content from the kept objects.
    pub fn source(&self) -> Result<FromObjects> {
        Ok(FromObjects { objects: Root::open(self.home.join(OBJECTS))?, buffer: Vec::new() })
    }
}

/// Not durably: what comes back after a power cut is swept the next time.
fn remove(path: PathBuf) -> Result<()> {
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", path, e))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    listed(dir, |file_type| file_type.is_file())
}

fn dirs_in(dir: &Path) -> Vec<PathBuf> {
    listed(dir, |file_type| file_type.is_dir())
}

fn listed(dir: &Path, wanted: impl Fn(std::fs::FileType) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(&wanted)).map(|e| e.path()).collect()
}

struct DirTask {
    path: Option<RelPath>,
    id: DirId,
    /// The same directory in the base and in the last checkpoint.
    known: [Option<DirId>; 2],
}

struct Take<'a> {
    comparison: &'a Comparison<'a>,
    known: [Option<&'a Manifest>; 2],
    objects: Root,
    manifest: ManifestWriter,
    next_dir: AtomicU32,
    next_temporary: AtomicU64,
}

impl Take<'_> {
    fn dir(&self, task: DirTask, queue: &Queue<DirTask>, buffer: &mut Vec<u8>) -> Result<()> {
        self.comparison.cancel.check()?;
        let dir = match (&task.path, self.comparison.copy.dir(task.path.as_ref())) {
            (_, Ok(dir)) => dir,
            // It went away since it was listed: an empty directory is as near as one gets.
            (Some(_), Err(_)) => {
                return self.manifest.append(&Chunk { id: task.id, own: Entry::default(), entries: vec![] });
            }
            (None, Err(e)) => return Err(e),
        };
        let known = self.known_chunks(&task)?;
        let mut entries = Vec::new();
        for listed in list::sorted(&dir)? {
            if let Some(entry) = self.entry(&task, &dir, listed.name, &known, queue, buffer)? {
                entries.push(entry);
            }
        }
        let own = Entry {
            name: task.path.as_ref().map_or(Vec::new(), |p| p.name().to_vec()),
            copy: Some(dir.stamp_self()?),
            xattrs: xattrs::read(&dir).map_err(|e| Error::io("read attributes of", dir.shown_self(), e))?,
            ..Entry::default()
        };
        self.manifest.append(&Chunk { id: task.id, own, entries })
    }

    fn known_chunks(&self, task: &DirTask) -> Result<[Option<Chunk>; 2]> {
        let load = |at: usize| match (self.known[at], task.known[at]) {
            (Some(manifest), Some(id)) => manifest.chunk(id).map(Some),
            _ => Ok(None),
        };
        Ok([load(0)?, load(1)?])
    }

    fn entry(
        &self,
        task: &DirTask,
        dir: &Dir,
        name: Vec<u8>,
        known: &[Option<Chunk>; 2],
        queue: &Queue<DirTask>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Entry>> {
        let Some(stamp) = dir.stamp(&name)? else { return Ok(None) };
        let path = manifest::join(task.path.as_ref(), &name)?;
        if !self.comparison.filter.passes(&path, stamp.is_dir()) {
            return Ok(None);
        }
        let before = known.each_ref().map(|c| c.as_ref().and_then(|c| c.find(&name)));
        match stamp.node_type() {
            NodeType::Directory => {
                let id = self.next_dir.fetch_add(1, Ordering::Relaxed);
                let known = before.map(|e| e.and_then(|e| e.child));
                queue.push(DirTask { path: Some(path), id, known });
                Ok(Some(Entry { name, child: Some(id), ..Entry::default() }))
            }
            NodeType::Symlink => {
                let target = dir.read_link(&name)?;
                Ok(Some(Entry { name, copy: Some(stamp), target, ..Entry::default() }))
            }
            NodeType::File => self.file(dir, name, &stamp, before, buffer),
            _ => Ok(None),
        }
    }

    fn file(
        &self,
        dir: &Dir,
        name: Vec<u8>,
        stamp: &Stamp,
        before: [Option<&Entry>; 2],
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Entry>> {
        let untouched = |e: &&Entry| e.copy.is_some_and(|c| c.untouched(stamp)) && e.hash.is_some();
        if let Some(same) = before.into_iter().flatten().find(untouched)
            && same.hash.is_some_and(|hash| self.has(hash, stamp.size))
        {
            let (hash, xattrs) = (same.hash, same.xattrs.clone());
            return Ok(Some(Entry { name, copy: Some(*stamp), hash, xattrs, ..Entry::default() }));
        }
        self.store(dir, name, buffer)
    }

    fn has(&self, hash: ContentHash, size: u64) -> bool {
        let (shelf, name) = place_of(hash);
        let found = fs::statat(&self.objects, format!("{shelf}/{name}"), fs::AtFlags::empty());
        found.is_ok_and(|stat| stat.st_size as u64 == size)
    }

    /// Copies a file's content to where its hash says.
    fn store(&self, dir: &Dir, name: Vec<u8>, buffer: &mut Vec<u8>) -> Result<Option<Entry>> {
        let shown = dir.shown(&name);
        let source = match dir.try_open(&name, fs::OFlags::RDONLY | fs::OFlags::NONBLOCK, 0) {
            Ok(source) => source,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(Error::io("open", shown, e)),
        };
        let read = |e| Error::io("read", dir.shown(&name), e);
        let before = copy::settled_stamp(&source).map_err(read)?;
        let xattrs = xattrs::read(&source).map_err(read)?;
        let temporary = format!("new-{}", self.next_temporary.fetch_add(1, Ordering::Relaxed));
        let objects = self.objects.as_dir()?;
        crate::remove_entry(&objects, temporary.as_bytes())?;
        let target = copy::create_file(&objects, temporary.as_bytes(), 0o600)?;
        let copied = copy::copy_steadily(&source, before, &target, Transfer::Prefer, buffer)
            .map_err(|e| Error::io("keep", dir.shown(&name), e))?;
        let hash = copied.hash.ok_or_else(|| Error::corrupt(&shown, "its content has no hash"))?;
        self.shelve(&objects, &temporary, hash)?;
        Ok(Some(Entry { name, copy: Some(copied.source), hash: Some(hash), xattrs, ..Entry::default() }))
    }

    fn shelve(&self, objects: &Dir, temporary: &str, hash: ContentHash) -> Result<()> {
        let (shelf, name) = place_of(hash);
        let full = format!("{shelf}/{name}");
        match fs::mkdirat(objects, shelf.as_str(), fs::Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(Error::io("create directory", objects.shown(shelf.as_bytes()), e)),
        }
        fs::renameat(objects, temporary, objects, full.as_str())
            .map_err(|e| Error::io("keep", objects.shown(full.as_bytes()), e))
    }
}

fn place_of(hash: ContentHash) -> (String, String) {
    let hex = hash.to_hex();
    (hex[..2].to_owned(), hex[2..].to_owned())
}

/// Content of checkpoints.
pub struct FromObjects {
    objects: Root,
    buffer: Vec<u8>,
}

impl Source for FromObjects {
    fn fetch(&mut self, path: &RelPath, entry: &Entry, to: &Dir, name: &[u8]) -> Result<Option<Entry>> {
        let missing = || Error::corrupt(self.objects.path(), format!("the content of {path} is missing"));
        let hash = entry.hash.ok_or_else(missing)?;
        let (shelf, object) = place_of(hash);
        let from = self.objects.as_dir()?.dir(shelf.as_bytes()).map_err(|_| missing())?;
        let source = from.open_file(object.as_bytes()).map_err(|_| missing())?;
        let stamp =
            crate::root::stamp_of_fd(&source).map_err(|e| Error::io("read", self.objects.path(), e))?;
        let target = copy::create_file(to, name, 0o600)?;
        let copied = copy::copy_steadily(&source, stamp, &target, Transfer::Prefer, &mut self.buffer)
            .map_err(|e| Error::io("bring back", path.as_path(), e))?;
        if copied.hash != Some(hash) {
            return Err(Error::corrupt(self.objects.path(), format!("the content of {path} is damaged")));
        }
        let like = entry.copy.unwrap_or_default();
        copy::finish_file(&target, &Meta::of(&like, entry.xattrs.clone()))
            .map_err(|e| Error::io("set attributes of", path.as_path(), e))?;
        Ok(Some(entry.clone()))
    }

    fn verify(&mut self, path: &RelPath, entry: &Entry) -> Result<()> {
        let bad =
            |what: &str| Error::corrupt(self.objects.path(), format!("the content of {path} is {what}"));
        let hash = entry.hash.ok_or_else(|| bad("missing"))?;
        let (shelf, object) = place_of(hash);
        let shelf = self.objects.as_dir()?.dir(shelf.as_bytes()).map_err(|_| bad("missing"))?;
        let file = shelf.open_file(object.as_bytes()).map_err(|_| bad("missing"))?;
        let size =
            crate::root::stamp_of_fd(&file).map_err(|e| Error::io("read", self.objects.path(), e))?.size;
        let found = copy::hash_fd(&file, size, &mut self.buffer)
            .map_err(|e| Error::io("read", self.objects.path(), e))?;
        if found == hash {
            Ok(())
        } else {
            Err(Error::corrupt(self.objects.path(), format!("the content of {path} is damaged")))
        }
    }

    fn current(&mut self, _path: &RelPath, entry: &Entry) -> Result<Option<Entry>> {
        Ok(Some(entry.clone()))
    }
}
