//! Copies of single files: data with its holes, and what is said about it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use sandboxer_core::{Error, Result};

use crate::hash::{BLOCK, ContentHash, ContentHasher};
use crate::pack::PackWriter;
use crate::root::{Dir, stamp_of_fd};
use crate::stamp::Stamp;
use crate::xattrs::{self, Xattrs};

/// How data gets across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Share the blocks; fail where the filesystem cannot. The content is not read, so there is no hash.
    Reflink,
    /// Share the blocks where that is possible, else copy; hash the result in either case.
    Prefer,
    /// Copy the bytes, within the kernel where it can. Content that was not read has no hash.
    Bytes,
    /// Copy the bytes through this process, and hash them.
    Read,
}

/// What a file is given besides its data.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Nanoseconds since 1970.
    pub mtime: i64,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

impl Meta {
    /// What a stamp tells, with these attributes.
    pub fn of(stamp: &Stamp, xattrs: Xattrs) -> Self {
        Self { mode: stamp.permissions(), uid: stamp.uid, gid: stamp.gid, mtime: stamp.mtime, xattrs }
    }
}

/// The outcome of a copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The source when it was read.
    pub source: Stamp,
    /// The copy when it was done.
    pub target: Stamp,
    /// Hash of the content, unless blocks were shared without reading.
    pub hash: Option<ContentHash>,
    /// The attributes of both.
    pub xattrs: Xattrs,
    /// Whether the source held still while it was read.
    pub steady: bool,
    /// Where in a pack the content was kept too.
    pub kept: Option<u64>,
}

/// How often a source that changes under the copy is tried again.
const TRIES: usize = 4;

/// A file to be copied, open and looked at.
pub struct SourceFile<'a> {
    fd: OwnedFd,
    dir: &'a Dir,
    name: &'a [u8],
    /// What it was when it was opened.
    pub stamp: Stamp,
}

impl<'a> SourceFile<'a> {
    /// Opens the regular file `name` of `dir`; `None` where nothing is there any more.
    pub fn open(dir: &'a Dir, name: &'a [u8]) -> Result<Option<Self>> {
        let fd = match dir.try_open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(Error::io("open", dir.shown(name), e)),
        };
        let stamp = settled_stamp(&fd).map_err(|e| Error::io("examine", dir.shown(name), e))?;
        if !stamp.is_file() {
            return Err(Error::refused(format!(
                "{} is not a regular file any more",
                dir.shown(name).display()
            )));
        }
        Ok(Some(Self { fd, dir, name, stamp }))
    }

    /// Copies it to the new file `name` of `to`, metadata included.
    pub fn copy_to(self, to: &Dir, name: &[u8], transfer: Transfer, buffer: &mut Vec<u8>) -> Result<Copied> {
        self.copy_keeping(to, name, transfer, None, buffer)
    }

    /// The same; content that the pack wants is kept there as well.
    pub fn copy_keeping(
        self,
        to: &Dir,
        name: &[u8],
        transfer: Transfer,
        pack: Option<&PackWriter>,
        buffer: &mut Vec<u8>,
    ) -> Result<Copied> {
        let failed = |step| move |e: Errno| Error::io(step, self.dir.shown(self.name), e);
        let xattrs = xattrs::read(&self.fd).map_err(failed("read attributes of"))?;
        let target = create_file(to, name, self.stamp.permissions())?;
        let pack = pack.filter(|pack| pack.wants(self.stamp.size));
        let transfer = if pack.is_some() && transfer == Transfer::Bytes { Transfer::Read } else { transfer };
        let mut copied =
            copy_steadily(&self.fd, self.stamp, &target, transfer, buffer).map_err(failed("copy"))?;
        if let Some(pack) = pack.filter(|_| copied.steady) {
            keep(&mut copied, &target, pack, buffer).map_err(failed("copy"))?;
        }
        let meta = Meta::of(&copied.source, xattrs);
        copied.target =
            finish_file(&target, &meta).map_err(|e| Error::io("set attributes of", to.shown(name), e))?;
        copied.xattrs = meta.xattrs;
        Ok(copied)
    }
}

/// Keeps what was copied; reading it is what left it in the buffer.
fn keep(
    copied: &mut Copied,
    target: &OwnedFd,
    pack: &PackWriter,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<()> {
    let size = copied.source.size;
    if copied.hash.is_none() {
        copied.hash = Some(hash_fd(target, size, buffer)?);
    }
    copied.kept = buffer.get(..size as usize).and_then(|content| pack.keep(content));
    Ok(())
}

/// Copies the file `name` of `from` to the new file `as_name` of `to`, metadata included.
pub fn copy_file(
    (from, name): (&Dir, &[u8]),
    (to, as_name): (&Dir, &[u8]),
    transfer: Transfer,
    buffer: &mut Vec<u8>,
) -> Result<Copied> {
    match SourceFile::open(from, name)? {
        Some(source) => source.copy_to(to, as_name, transfer, buffer),
        None => Err(Error::io("open", from.shown(name), Errno::NOENT)),
    }
}

/// A new, empty file; its final mode is set by [`finish_file`] unless it has it from the start.
pub fn create_file(dir: &Dir, name: &[u8], mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    dir.open(name, flags, (mode & 0o777) | 0o200, "create")
}

/// Copies data until the source held still from beginning to end, or it has been tried often enough.
pub fn copy_steadily(
    source: &OwnedFd,
    mut before: Stamp,
    target: &OwnedFd,
    transfer: Transfer,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<Copied> {
    for attempt in 1.. {
        let hash = transfer_data(source.as_fd(), &before, target.as_fd(), transfer, buffer)?;
        let after = stamp_of_fd(source)?;
        let steady = before.untouched(&after);
        if steady || attempt == TRIES {
            let (target, xattrs) = (Stamp::default(), Xattrs::new());
            return Ok(Copied { source: before, target, hash, xattrs, steady, kept: None });
        }
        fs::ftruncate(target, 0)?;
        before = settled_stamp(source)?;
    }
    unreachable!("the loop above returns at its last attempt")
}

fn transfer_data(
    source: BorrowedFd<'_>,
    stamp: &Stamp,
    target: BorrowedFd<'_>,
    transfer: Transfer,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<Option<ContentHash>> {
    match transfer {
        Transfer::Reflink if stamp.size == 0 => Ok(None),
        Transfer::Reflink => fs::ioctl_ficlone(target, source).map(|()| None),
        Transfer::Prefer if fs::ioctl_ficlone(target, source).is_ok() => {
            // The clone holds still, whatever becomes of the source.
            let size = stamp_of_fd(target)?.size;
            hash_fd(target, size, buffer).map(Some)
        }
        Transfer::Bytes if !stamp.looks_sparse() && copy_in_kernel(source, stamp.size, target)? => Ok(None),
        Transfer::Prefer | Transfer::Bytes | Transfer::Read => {
            copy_bytes(source, stamp, Some(target), buffer).map(Some)
        }
    }
}

/// Copies without the detour through this process; false where these two files do not allow it.
fn copy_in_kernel(source: BorrowedFd<'_>, size: u64, target: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let (mut from, mut to) = (0, 0);
    while from < size {
        let want = usize::try_from(size - from).unwrap_or(usize::MAX);
        match fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), want) {
            // The source became shorter, which the look at it afterwards notices.
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if to == 0 => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// The hash of an open file's content.
pub fn hash_fd(fd: impl AsFd, size: u64, buffer: &mut Vec<u8>) -> rustix::io::Result<ContentHash> {
    let mut stamp = stamp_of_fd(&fd)?;
    stamp.size = size;
    copy_bytes(fd.as_fd(), &stamp, None, buffer)
}

/// Reads data extents, hashes them, and writes them to `target` at the same places; holes stay holes.
fn copy_bytes(
    source: BorrowedFd<'_>,
    stamp: &Stamp,
    target: Option<BorrowedFd<'_>>,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<ContentHash> {
    let mut hasher = ContentHasher::new(stamp.size);
    if buffer.len() < 4 * BLOCK {
        buffer.resize(4 * BLOCK, 0);
    }
    let mut at = 0;
    let mut written = 0;
    'file: while at < stamp.size {
        let (start, end) =
            if stamp.looks_sparse() { next_extent(source, at, stamp.size)? } else { (at, stamp.size) };
        hasher.skip(start - at);
        at = start;
        while at < end {
            let want = (end - at).min(buffer.len() as u64) as usize;
            let got = read_full(source, &mut buffer[..want], at)?;
            if got == 0 {
                break 'file;
            }
            hasher.update(&buffer[..got]);
            if let Some(target) = target {
                write_full(target, &buffer[..got], at)?;
            }
            at += got as u64;
            written = at;
        }
    }
    // A hole at the end is made by setting the size.
    if let Some(target) = target.filter(|_| written < at) {
        fs::ftruncate(target, at)?;
    }
    Ok(hasher.finish())
}

/// The next stretch of data at or after `at`, widened to whole blocks; an empty one at the end where only a hole is left.
fn next_extent(source: BorrowedFd<'_>, at: u64, size: u64) -> rustix::io::Result<(u64, u64)> {
    let block = BLOCK as u64;
    let start = match fs::seek(source, SeekFrom::Data(at)) {
        Ok(start) => (start / block * block).max(at),
        Err(Errno::NXIO) => return Ok((size, size)),
        Err(Errno::INVAL) => return Ok((at, size)),
        Err(e) => return Err(e),
    };
    let end = fs::seek(source, SeekFrom::Hole(start.max(at)))?;
    let end = if end <= start { start + block } else { end.div_ceil(block) * block };
    Ok((start, end.min(size)))
}

fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

fn write_full(fd: BorrowedFd<'_>, buffer: &[u8], at: u64) -> rustix::io::Result<()> {
    let mut put = 0;
    while put < buffer.len() {
        match rustix::io::pwrite(fd, &buffer[put..], at + put as u64) {
            Ok(n) => put += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Gives a new file its attributes, owner, mode and times, in the order in which none undoes another.
pub fn finish_file(fd: &OwnedFd, meta: &Meta) -> rustix::io::Result<Stamp> {
    if !meta.xattrs.is_empty() {
        // Giving a file away clears its capabilities: those come afterwards.
        let present = stamp_of_fd(fd)?;
        if (present.uid, present.gid) != (meta.uid, meta.gid) {
            change_owner(fd, meta)?;
        }
        xattrs::set_new(fd, &meta.xattrs)?;
    }
    finish_node(fd, meta)
}

/// The same for anything that is open, without its extended attributes. What a new file has right already, as nearly all
/// have, costs no call.
pub fn finish_node(fd: &OwnedFd, meta: &Meta) -> rustix::io::Result<Stamp> {
    fs::futimens(fd, &timestamps(meta.mtime))?;
    let present = stamp_of_fd(fd)?;
    let mut mode = meta.mode;
    let same_owner = (present.uid, present.gid) == (meta.uid, meta.gid);
    if same_owner && present.permissions() == mode {
        return Ok(present);
    }
    if !same_owner {
        mode = change_owner(fd, meta)?;
    }
    fs::fchmod(fd, Mode::from_raw_mode(mode))?;
    stamp_of_fd(fd)
}

/// Gives the file to its owner, if we may. A file that stays ours must not run with our privileges for others.
fn change_owner(fd: &OwnedFd, meta: &Meta) -> rustix::io::Result<u32> {
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    match fs::fchown(fd, Some(uid), Some(gid)) {
        Ok(()) => Ok(meta.mode),
        Err(Errno::PERM | Errno::INVAL) => {
            let _ = fs::fchown(fd, None, Some(gid));
            Ok(meta.mode & 0o1777)
        }
        Err(e) => Err(e),
    }
}

/// Both times as one; access times are nobody's business here.
pub fn timestamps(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime.div_euclid(1_000_000_000), tv_nsec: mtime.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time, last_modification: time }
}

/// A stamp that no later change can share: a file touched within the present tick of the clock is looked at again in
/// the next one. Kernels with fine-grained stamps never need the wait; a clock that was stepped back bounds it.
pub fn settled_stamp(fd: impl AsFd) -> rustix::io::Result<Stamp> {
    for _ in 0..30 {
        let stamp = stamp_of_fd(&fd)?;
        if stamp.ctime < coarse_now() {
            return Ok(stamp);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    stamp_of_fd(&fd)
}

/// Waits until a change made from now on cannot have a ctime of `latest` any more.
pub fn wait_past(latest: i64) {
    for _ in 0..30 {
        if latest < coarse_now() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The clock that stamps files, in nanoseconds since 1970.
fn coarse_now() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::root::Root;

    fn dir(path: &std::path::Path) -> Dir {
        Root::open(path).unwrap().as_dir().unwrap()
    }

    #[test]
    fn holes_stay_holes_and_content_stays_content() {
        let temp = tempfile::tempdir().unwrap();
        let source = File::create(temp.path().join("sparse")).unwrap();
        source.write_all_at(b"begin", 0).unwrap();
        source.write_all_at(b"middle", 5_000_000).unwrap();
        source.set_len(20_000_000).unwrap();
        let dir = dir(temp.path());
        let copied = copy_file((&dir, b"sparse"), (&dir, b"copy"), Transfer::Bytes, &mut Vec::new()).unwrap();
        assert!(copied.target.looks_sparse() && copied.target.size == 20_000_000, "{copied:?}");
        let whole = std::fs::read(temp.path().join("sparse")).unwrap();
        assert_eq!(std::fs::read(temp.path().join("copy")).unwrap(), whole);
        assert_eq!(copied.hash, Some(ContentHash::of(&whole)));
    }

    #[test]
    fn a_source_that_changed_under_the_copy_is_read_again() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("source"), "content").unwrap();
        let dir = dir(temp.path());
        let source = dir.open_file(b"source").unwrap();
        let stale = Stamp { ctime: 1, size: 3, ..stamp_of_fd(&source).unwrap() };
        let target = create_file(&dir, b"target", 0o600).unwrap();
        let copied = copy_steadily(&source, stale, &target, Transfer::Prefer, &mut Vec::new()).unwrap();
        assert!(copied.steady && copied.source.size == 7);
        assert_eq!(std::fs::read(temp.path().join("target")).unwrap(), b"content");
    }

    #[test]
    fn a_source_that_became_shorter_ends_where_it_ends() {
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"short").unwrap();
        assert_eq!(hash_fd(&file, 100, &mut Vec::new()).unwrap(), ContentHash::of(b"short"));
    }

    #[test]
    fn filesystems_that_cannot_copy_between_them_are_read_and_written() {
        let temp = tempfile::tempdir().unwrap();
        let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
            println!("SKIPPED: there is no second filesystem at /dev/shm");
            return;
        };
        std::fs::write(temp.path().join("a"), "content").unwrap();
        let (from, to) = (dir(temp.path()), dir(elsewhere.path()));
        copy_file((&from, b"a"), (&to, b"a"), Transfer::Bytes, &mut Vec::new()).unwrap();
        assert_eq!(std::fs::read(elsewhere.path().join("a")).unwrap(), b"content");
    }

    #[test]
    fn what_is_no_regular_file_is_not_copied() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let pipe = rustix::fs::FileType::Fifo;
        fs::mknodat(&dir, "pipe", pipe, Mode::RUSR, 0).unwrap();
        let copy = |name: &[u8]| copy_file((&dir, name), (&dir, b"to"), Transfer::Bytes, &mut Vec::new());
        assert!(matches!(copy(b"pipe"), Err(Error::Refused { .. })));
        assert!(matches!(copy(b"missing"), Err(Error::Io { .. })));
        std::os::unix::fs::symlink("a", temp.path().join("link")).unwrap();
        assert!(matches!(copy(b"link"), Err(Error::Io { .. })));
    }

    #[test]
    fn owner_and_mode_are_given_where_we_may() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let fd = create_file(&dir, b"file", 0o600).unwrap();
        let meta = Meta { mode: 0o4755, uid: 1234, gid: 1234, mtime: 5_000_000_007, xattrs: Xattrs::new() };
        let stamp = finish_file(&fd, &meta).unwrap();
        assert_eq!(stamp.mtime, 5_000_000_007);
        if rustix::process::geteuid().is_root() {
            assert_eq!((stamp.uid, stamp.permissions()), (1234, 0o4755));
        } else {
            // Not given away, so it must not run as us for others.
            assert_eq!(stamp.permissions(), 0o755);
        }
    }
}
