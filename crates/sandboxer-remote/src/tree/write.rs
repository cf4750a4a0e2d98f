//! What comes from a host, written through confined handles: under another name first, then renamed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags};
use sandboxer_core::{Error, Result};
use sandboxer_fs::copy;
use sandboxer_fs::root::{Dir, stamp_of_fd};

use super::Mirror;
use super::check::Meeting;
use super::entry::{Entry, Kind, Name, TEMPORARY, UNKNOWN, inside, order, parent, plain_mode, shown};
use super::place::Place;
use super::room::{self, Reserve};
use super::unpack::{Member, Unpack};

const BUFFER: usize = 128 << 10;
/// Zeros of this length, where they begin at a multiple of it, are left out.
const HOLE: usize = 4096;
/// What it takes to walk through a directory.
const ACCESS: u32 = 0o500;

/// Writes the changes of one fetch.
pub(super) struct Writer<'a> {
    pub mirror: &'a Mirror<'a>,
    pub place: &'a Place,
    pub meeting: &'a Meeting<'a>,
    /// What was written, and the time that it has since: the one that it was given, as far as the filesystem has such.
    pub written: HashMap<Name, i64>,
    pub bytes: u64,
    pub refused: Vec<String>,
    reserve: Reserve,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(mirror: &'a Mirror<'a>, place: &'a Place, meeting: &'a Meeting<'a>, reserve: Reserve) -> Self {
        let (written, refused) = (HashMap::new(), Vec::new());
        Self { mirror, place, meeting, written, bytes: 0, refused, reserve, buffer: vec![0; BUFFER] }
    }

    /// So many bytes more have to have room.
    pub fn expect_room(&self, bytes: u64) -> Result<()> {
        room::expect(self.mirror, self.place, self.meeting, self.reserve, bytes)
    }

    /// Gives us access to directories here that something is written to or removed from. [`Writer::dress`] takes it back.
    pub fn open_up(&self, changed: &[Name]) -> Result<()> {
        for path in self.touched(changed) {
            let closed = self.meeting.here.get(path).is_some_and(|here| here.mode & 0o700 != 0o700);
            if closed {
                let dir = self.place.dir(path)?;
                rustix::fs::fchmod(&dir, Mode::RWXU)
                    .map_err(|e| Error::io("open up", dir.shown_self(), e))?;
            }
        }
        Ok(())
    }

    /// The directories, outermost first, whose times change by what is done to these.
    fn touched<'b>(&self, changed: &'b [Name]) -> Vec<&'b [u8]> {
        if self.place.single.is_some() {
            return Vec::new();
        }
        let parents: HashSet<&[u8]> = changed.iter().filter_map(|path| parent(path)).collect();
        let mut parents: Vec<&[u8]> = parents.into_iter().collect();
        parents.sort_unstable_by(|a, b| order(a, b));
        parents
    }

    /// Removes these entries, what is in a directory before itself. A directory that something was put into meanwhile stays, with an error.
    pub fn remove(&mut self, entries: &[&Entry]) -> Result<()> {
        for entry in entries.iter().rev() {
            self.mirror.cancel.check()?;
            if let Some((dir, name)) = self.place.dir_of(&entry.path)? {
                dir.remove(&name, entry.kind == Kind::Directory)?;
            }
        }
        Ok(())
    }

    /// Makes a directory that is not there yet, for us alone until it is dressed.
    pub fn directory(&mut self, entry: &Entry) -> Result<()> {
        let exists =
            self.meeting.here.get(entry.path.as_slice()).is_some_and(|here| here.kind == Kind::Directory);
        if let (false, Some((dir, name))) = (exists, self.place.dir_of(&entry.path)?) {
            match dir.make_dir(&name, 0o700) {
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        self.note(entry.path.clone(), entry.kind, entry.mode, entry.mtime);
        Ok(())
    }

    /// Makes a symbolic link with the text that was told, wherever it leads.
    pub fn link(&mut self, entry: &Entry) -> Result<()> {
        let Some((dir, name)) = self.place.dir_of(&entry.path)? else { return Ok(()) };
        let temporary = temporary_name()?;
        let target = entry.target.as_slice();
        rustix::fs::symlinkat(target, &dir, temporary.as_slice())
            .map_err(|e| Error::io("create link", dir.shown(&name), e))?;
        let times = copy::timestamps(entry.mtime);
        rustix::fs::utimensat(&dir, temporary.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::io("set time of", dir.shown(&name), e))?;
        let taken = dir.stamp(&temporary)?.map_or(entry.mtime, |stamp| stamp.mtime);
        put_in_place(&dir, &temporary, &name)?;
        self.note(entry.path.clone(), Kind::Link, 0, taken);
        Ok(())
    }

    fn note(&mut self, path: Name, kind: Kind, mode: u32, mtime: i64) {
        if kind != Kind::Link && plain_mode(kind, mode) != mode {
            self.refused.push(format!("{}: its set-id or sticky bits", shown(&path)));
        }
        self.written.insert(path, mtime);
    }

    /// Writes the files of a stream, of which only those may come that were asked for, and each once. Returns one that did not come.
    pub fn files(&mut self, from: impl Read, mut asked: HashSet<Name>) -> Result<Option<Name>> {
        let mut unpack = Unpack::new(from);
        while let Some(member) = unpack.next().map_err(|e| self.unread(e))? {
            self.mirror.cancel.check()?;
            let path = inside(&member.path).filter(|path| asked.remove(path));
            let path = path.ok_or_else(|| self.unasked(&member.path))?;
            let before = self.bytes;
            match &member.link {
                Some(first) => self.further_name(&path, first, &member)?,
                None => self.file(&path, &member, &mut unpack)?,
            }
            self.mirror.progress.advance(1, self.bytes - before);
        }
        Ok(asked.into_iter().next())
    }

    fn file(&mut self, path: &[u8], member: &Member, unpack: &mut Unpack<impl Read>) -> Result<()> {
        let Some((dir, name)) = self.place.dir_of(path)? else { return Ok(()) };
        self.expect_room(member.pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.size)))?;
        let temporary = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = File::from(dir.open(&temporary, flags, 0o600, "create")?);
        let made = self.fill(&file, member, unpack, &dir, &name);
        let placed = made.and_then(|taken| put_in_place(&dir, &temporary, &name).map(|()| taken));
        if placed.is_err() {
            let _ = dir.remove(&temporary, false);
        }
        self.note(path.to_vec(), Kind::File, member.mode, placed?);
        Ok(())
    }

    /// Returns the time that it has then.
    fn fill(
        &mut self,
        file: &File,
        member: &Member,
        unpack: &mut Unpack<impl Read>,
        dir: &Dir,
        name: &[u8],
    ) -> Result<i64> {
        let failed = |e: std::io::Error| Error::io("write", dir.shown(name), e);
        for piece in &member.pieces {
            let mut done = 0;
            while done < piece.size {
                self.mirror.cancel.check()?;
                let count = self.fill_buffer(unpack, piece.size - done)?;
                write_with_holes(file, &self.buffer[..count], piece.at + done).map_err(failed)?;
                done += count as u64;
            }
            self.bytes += done;
        }
        file.set_len(member.size).map_err(failed)?;
        for (name, value) in &member.xattrs {
            // A filesystem without attributes has none.
            let set = rustix::fs::fsetxattr(file, name.as_slice(), value, rustix::fs::XattrFlags::empty());
            set.or_else(|e| if e == rustix::io::Errno::OPNOTSUPP { Ok(()) } else { Err(e) })
                .map_err(|e| failed(e.into()))?;
        }
        let mode = Mode::from_raw_mode(plain_mode(Kind::File, member.mode));
        rustix::fs::fchmod(file, mode).map_err(|e| failed(e.into()))?;
        rustix::fs::futimens(file, &copy::timestamps(member.mtime)).map_err(|e| failed(e.into()))?;
        Ok(stamp_of_fd(file).map_err(|e| failed(e.into()))?.mtime)
    }

    /// A full buffer, so that holes begin where blocks do; less only at the end. There are as many bytes as were announced, or an error.
    fn fill_buffer(&mut self, unpack: &mut Unpack<impl Read>, most: u64) -> Result<usize> {
        let most = most.min(BUFFER as u64) as usize;
        let mut count = 0;
        while count < most {
            match unpack.read(&mut self.buffer[count..most]).map_err(|e| self.unread(e))? {
                0 => return Err(self.unread(std::io::ErrorKind::UnexpectedEof.into())),
                more => count += more,
            }
        }
        Ok(count)
    }

    /// Only what this same stream brought can have a further name.
    fn further_name(&mut self, path: &[u8], first: &[u8], member: &Member) -> Result<()> {
        let first = inside(first).filter(|first| self.written.contains_key(first) && first != path);
        let first = first.ok_or_else(|| self.unasked(&member.path))?;
        let is_file = self.meeting.wanted(&first).is_some_and(|wanted| wanted.kind == Kind::File);
        let (Some((from, old)), Some((dir, name)), true) =
            (self.place.dir_of(&first)?, self.place.dir_of(path)?, is_file)
        else {
            return Err(self.unasked(&member.path));
        };
        let temporary = temporary_name()?;
        rustix::fs::linkat(&from, old.as_slice(), &dir, temporary.as_slice(), AtFlags::empty())
            .map_err(|e| Error::io("link", dir.shown(&name), e))?;
        put_in_place(&dir, &temporary, &name)?;
        // Where both names are one file already, a rename does nothing.
        dir.remove(&temporary, false)?;
        let mtime = self.written.get(&first).copied().unwrap_or(member.mtime);
        self.written.insert(path.to_vec(), mtime);
        Ok(())
    }

    /// Gives directories their modes and times, innermost first: those that came, and those that something was done in.
    pub fn dress(&mut self, changed: &[Name]) -> Result<()> {
        let mut particulars: BTreeMap<Name, (u32, i64)> = BTreeMap::new();
        for path in self.touched(changed) {
            if let Some(here) = self.meeting.here.get(path).filter(|_| !self.meeting.is_doomed(path)) {
                particulars.insert(path.to_vec(), (here.mode & 0o7777, here.mtime));
            }
        }
        let wanted = self.meeting.told.present.values().filter(|entry| entry.kind == Kind::Directory);
        particulars.extend(wanted.map(|entry| (entry.path.clone(), (entry.plain_mode(), entry.mtime))));
        for (path, (mode, mtime)) in particulars.iter().rev() {
            let Ok(dir) = self.place.dir(path) else { continue };
            let failed = |e| Error::io("set attributes of", dir.shown_self(), e);
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(*mode)).map_err(failed)?;
            if !is_open_to_us(&dir) {
                rustix::fs::fchmod(&dir, Mode::from_raw_mode(*mode | ACCESS)).map_err(failed)?;
                self.refused
                    .push(format!("{}: its mode {mode:o}, by which nobody could read it here", shown(path)));
            }
            rustix::fs::futimens(&dir, &copy::timestamps(*mtime)).map_err(failed)?;
        }
        Ok(())
    }

    /// The entry at `path` as it is now, for our list. One that is not as it was written is not at rest.
    pub fn settled(&self, path: &[u8]) -> Result<Option<Entry>> {
        let (stamp, target) = match self.place.dir_of(path)? {
            None => (Some(self.place.root.as_dir()?.stamp_self()?), Vec::new()),
            Some((dir, name)) => {
                let stamp = dir.stamp(&name)?;
                let is_link =
                    stamp.is_some_and(|stamp| stamp.node_type() == sandboxer_core::model::NodeType::Symlink);
                (stamp, if is_link { dir.read_link(&name)? } else { Vec::new() })
            }
        };
        let Some(stamp) = stamp else { return Ok(None) };
        let entry = Entry::of(path.to_vec(), &stamp, target);
        let rests = self.written.get(path) == Some(&entry.mtime);
        Ok(Some(if rests { entry } else { Entry { ctime: UNKNOWN, ..entry } }))
    }

    fn unasked(&self, path: &[u8]) -> Error {
        Error::refused(format!(
            "{} sent {:?}, which nobody asked for",
            self.mirror.shell.name(),
            String::from_utf8_lossy(path)
        ))
    }

    fn unread(&self, error: std::io::Error) -> Error {
        if self.mirror.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        Error::io("fetch from", self.mirror.shell.name(), error)
    }
}

/// Whether we can list it and look at what is in it. Root can whatever the mode says.
fn is_open_to_us(dir: &Dir) -> bool {
    dir.try_open(b".", OFlags::RDONLY | OFlags::DIRECTORY, 0).is_ok()
}

/// A name that nobody has thought of.
fn temporary_name() -> Result<Vec<u8>> {
    Ok([TEMPORARY, super::new_generation()?.as_bytes()].concat())
}

fn put_in_place(dir: &Dir, temporary: &[u8], name: &[u8]) -> Result<()> {
    rustix::fs::renameat(dir, temporary, dir, name)
        .map_err(|e| Error::io("rename into place", dir.shown(name), e))
}

fn write_with_holes(file: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    if bytes.len() < HOLE {
        return file.write_all_at(bytes, at);
    }
    let mut done = 0;
    while done < bytes.len() {
        let zeros = blocks(&bytes[done..], true);
        let data = blocks(&bytes[done + zeros..], false);
        file.write_all_at(&bytes[done + zeros..done + zeros + data], at + (done + zeros) as u64)?;
        done += zeros + data;
    }
    Ok(())
}

/// How many bytes at the beginning are whole blocks of zeros, or are none.
fn blocks(bytes: &[u8], zeros: bool) -> usize {
    let is_zero = |block: &[u8]| block.len() == HOLE && block.iter().all(|byte| *byte == 0);
    bytes.chunks(HOLE).take_while(|block| is_zero(block) == zeros).map(<[u8]>::len).sum()
}

/// Removes what a fetch that was killed left behind.
pub(super) fn remove_leftovers(place: &Place, leftovers: &[Name]) -> Result<()> {
    for path in leftovers {
        if let Some((dir, name)) = place.dir_of(path)? {
            dir.remove(&name, false)?;
        }
    }
    Ok(())
}
