//! The stream that is sent: entry by entry, read through confined handles.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use sandboxer_core::{Error, Result};
use sandboxer_fs::root::{Dir, stamp_of_fd};
use sandboxer_fs::xattrs;

use super::Mirror;
use super::archive::{self, Member, padding};
use super::entry::{Entry, Kind, Name, parent};
use super::place::Place;
use super::sparse::{self, Piece};

const BUFFER: usize = 256 << 10;
/// How often progress is told.
const NOTICEABLE: u64 = 64;

/// The attributes of one file that are carried.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) struct Pour<'a> {
    place: &'a Place,
    mirror: &'a Mirror<'a>,
    /// The directory that was read last: its entries follow each other.
    dir: Option<(Name, Dir)>,
    /// The first name of each file that has several.
    first: HashMap<u64, Name>,
    /// Entries that were not at rest.
    unsettled: Vec<usize>,
    buffer: Vec<u8>,
    bytes: u64,
}

/// What was written.
pub(super) struct Poured<W> {
    /// Where: whoever reads there hears the end when this is dropped.
    pub out: W,
    /// How many bytes of content.
    pub bytes: u64,
    /// Entries that changed meanwhile.
    pub unsettled: Vec<usize>,
}

/// A file that is open, as it is now.
struct Opened {
    file: File,
    entry: Entry,
    sparse: bool,
}

impl<'a> Pour<'a> {
    pub fn new(place: &'a Place, mirror: &'a Mirror<'a>) -> Self {
        let (first, unsettled, buffer) = (HashMap::new(), Vec::new(), vec![0; BUFFER]);
        Self { place, mirror, dir: None, first, unsettled, buffer, bytes: 0 }
    }

    /// Writes all that goes, and hands back where it went.
    pub fn all<W: Write>(mut self, out: W, entries: &[Entry], goes: &[bool]) -> Result<Poured<W>> {
        let mut out = BufWriter::with_capacity(BUFFER, out);
        let mut told = (0, 0);
        for (at, entry) in entries.iter().enumerate().filter(|(at, _)| goes[*at]) {
            self.mirror.cancel.check()?;
            self.one(&mut out, at, entry)?;
            told.0 += 1;
            if told.0 % NOTICEABLE == 0 {
                self.mirror.progress.advance(NOTICEABLE, self.bytes - told.1);
                told.1 = self.bytes;
            }
        }
        self.mirror.progress.advance(told.0 % NOTICEABLE, self.bytes - told.1);
        self.last(&mut out, entries)?;
        let written = archive::end(&mut out).and_then(|()| out.into_inner().map_err(|e| e.into_error()));
        let out = written.map_err(|e| self.failed(e))?;
        Ok(Poured { out, bytes: self.bytes, unsettled: self.unsettled })
    }

    /// The root once more, under a name that nothing else has: whoever has it has all. A single file has nothing of ours above it but its directory.
    fn last(&self, out: &mut impl Write, entries: &[Entry]) -> Result<()> {
        let Some(first) = entries.first() else { return Ok(()) };
        let mode = if first.path.is_empty() { first.mode } else { 0o700 };
        let root =
            Entry { path: b".".to_vec(), kind: Kind::Directory, mode, target: Vec::new(), ..first.clone() };
        archive::header(out, &root, &Member::default()).map_err(|e| self.failed(e))
    }

    fn one(&mut self, out: &mut impl Write, at: usize, entry: &Entry) -> Result<()> {
        if entry.kind == Kind::File {
            return self.file(out, at, entry);
        }
        archive::header(out, entry, &Member::default()).map_err(|e| self.failed(e))
    }

    fn file(&mut self, out: &mut impl Write, at: usize, entry: &Entry) -> Result<()> {
        if let Some(first) = self.first.get(&entry.inode).filter(|_| entry.linked) {
            let member = Member { link: Some(first), ..Member::default() };
            return archive::header(out, entry, &member).map_err(|e| self.failed(e));
        }
        let Some(opened) = self.open(entry)? else {
            self.unsettled.push(at);
            return Ok(());
        };
        self.content(out, &opened)?;
        if opened.entry.linked {
            self.first.insert(opened.entry.inode, entry.path.clone());
        }
        let now = stamp_of_fd(&opened.file).map_err(|e| self.unread(entry, e.into()))?;
        if !entry
            .untouched(&Entry { linked: entry.linked, ..Entry::of(entry.path.clone(), &now, Vec::new()) })
        {
            self.unsettled.push(at);
        }
        Ok(())
    }

    /// Nothing where there is no such file any more: then it is looked at again next time.
    fn open(&mut self, entry: &Entry) -> Result<Option<Opened>> {
        let name = match &self.place.single {
            Some(name) => name.as_bytes().to_vec(),
            None => entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec(),
        };
        let Some(dir) = self.enter(parent(&entry.path).unwrap_or_default())? else { return Ok(None) };
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let file: OwnedFd = match dir.try_open(&name, flags, 0) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(self.unread(entry, e.into())),
        };
        let stamp = stamp_of_fd(&file).map_err(|e| self.unread(entry, e.into()))?;
        if !stamp.is_file() {
            return Ok(None);
        }
        let now = Entry { linked: entry.linked, ..Entry::of(entry.path.clone(), &stamp, Vec::new()) };
        Ok(Some(Opened { file: file.into(), entry: now, sparse: stamp.looks_sparse() }))
    }

    fn enter(&mut self, path: &[u8]) -> Result<Option<&Dir>> {
        let entered = self.dir.as_ref().is_some_and(|(at, _)| at == path);
        if !entered {
            let place = self.place;
            let dir = if place.single.is_some() { place.root.as_dir() } else { place.dir(path) };
            match dir {
                Ok(dir) => self.dir = Some((path.to_vec(), dir)),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => self.dir = None,
                Err(other) => return Err(other),
            }
        }
        Ok(self.dir.as_ref().map(|(_, dir)| dir))
    }

    fn content(&mut self, out: &mut impl Write, opened: &Opened) -> Result<()> {
        let entry = &opened.entry;
        let attributes = attributes(&opened.file).map_err(|e| self.unread(entry, e.into()))?;
        let pieces = if opened.sparse { sparse::pieces(&opened.file, entry.size) } else { None };
        let Some(pieces) = pieces else {
            let member = Member { xattrs: &attributes, ..Member::default() };
            archive::header(out, entry, &member).map_err(|e| self.failed(e))?;
            return self.data(out, opened, &[Piece { at: 0, size: entry.size }]);
        };
        let map = sparse::map(&pieces);
        let size = map.len() as u64 + pieces.iter().map(|piece| piece.size).sum::<u64>();
        let member = Member { xattrs: &attributes, sparse: Some(size), ..Member::default() };
        let written = archive::header(out, entry, &member).and_then(|()| out.write_all(&map));
        written.map_err(|e| self.failed(e))?;
        self.data(out, opened, &pieces)
    }

    /// Exactly as much as was announced: what is missing by now is zeros, and what came to it is left.
    fn data(&mut self, out: &mut impl Write, opened: &Opened, pieces: &[Piece]) -> Result<()> {
        let total: u64 = pieces.iter().map(|piece| piece.size).sum();
        for piece in pieces {
            let mut done = 0;
            while done < piece.size {
                self.mirror.cancel.check()?;
                let most = (piece.size - done).min(BUFFER as u64) as usize;
                let count = read_at(&opened.file, &mut self.buffer[..most], piece.at + done)
                    .map_err(|e| self.unread(&opened.entry, e))?;
                if count == 0 {
                    self.buffer[..most].fill(0);
                }
                let count = if count == 0 { most } else { count };
                out.write_all(&self.buffer[..count]).map_err(|e| self.failed(e))?;
                done += count as u64;
            }
        }
        self.bytes += total;
        out.write_all(&[0; archive::BLOCK][..padding(total)]).map_err(|e| self.failed(e))
    }

    fn unread(&self, entry: &Entry, error: io::Error) -> Error {
        let path = OsStr::from_bytes(&entry.path);
        Error::io(
            "read",
            if self.place.single.is_some() { self.mirror.local.into() } else { self.mirror.local.join(path) },
            error,
        )
    }

    /// What it means that the stream cannot be written.
    pub fn failed(&self, error: io::Error) -> Error {
        if self.mirror.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        Error::io("send to", self.mirror.shell.name(), error)
    }
}

fn read_at(mut file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    match at {
        // Small files are read where they are: one call less.
        0 => file.read(buffer),
        at => file.read_at(buffer, at),
    }
}

fn attributes(file: &File) -> rustix::io::Result<Attributes> {
    let all = xattrs::read(file)?;
    Ok(all.into_iter().filter(|(name, _)| name.starts_with(b"user.")).collect())
}
