//! Confined directory handles: everything below a root is reached through its descriptor.
//!
//! A string that was checked and is then used can be made to mean something else in between. So nothing here joins
//! paths: a [`Root`] holds the descriptor of a directory, and the kernel itself is told (`openat2`) to refuse whatever
//! would leave it, whether by `..`, by a symbolic link or by a magic link of `/proc`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sandboxer_core::model::RelPath;
use sandboxer_core::{Error, Result};

use crate::stamp::{Births, Stamp};

/// Longest piece of a path handed to the kernel at once; deeper paths are opened in several steps.
const STEP: usize = 3000;

/// How often a question is put again that an overlay could not answer in that moment.
const PATIENCE: usize = 100;

/// Another filesystem mounted below a root is outside it too: what is in it cannot be renamed into place.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A directory below which everything happens.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    births: Births,
}

/// An open directory somewhere below a root, with the path it was reached by for messages.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    shown: PathBuf,
    births: Births,
}

impl Root {
    /// Opens the directory at `path`, which the caller trusts.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open directory", path, e))?;
        let births = Births::of(&fd).map_err(|e| Error::io("examine", path, e))?;
        Ok(Self { fd, path: path.to_path_buf(), births })
    }

    /// Opens the directory that a workspace was made from.
    pub fn open_original(path: &Path) -> Result<Self> {
        Self::open(path).map_err(|error| match error {
            Error::Io { path, source, .. } => Error::io("open the original directory", path, source),
            other => other,
        })
    }

    /// Where the root is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something below the root, for messages only.
    pub fn shown(&self, path: &RelPath) -> PathBuf {
        self.path.join(path.as_path())
    }

    /// A second handle on the root directory itself.
    pub fn as_dir(&self) -> Result<Dir> {
        let fd = self.fd.try_clone().map_err(|e| Error::io("open directory", &self.path, e))?;
        Ok(Dir { fd, shown: self.path.clone(), births: self.births })
    }

    /// The directory at `path`; the root itself for `None`.
    pub fn dir(&self, path: Option<&RelPath>) -> Result<Dir> {
        match path {
            None => self.as_dir(),
            Some(path) => self.open_dir(path).map_err(|e| refusal(e, self.shown(path))),
        }
    }

    /// Like [`Root::dir`] with the system's bare answer, for callers to whom "not there" is an answer too.
    pub fn open_dir(&self, path: &RelPath) -> rustix::io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open_steps(self.fd.as_fd(), path.as_bytes(), flags)?;
        Ok(Dir { fd, shown: self.shown(path), births: self.births })
    }

    /// The directory that holds `path`, for a call on its last component.
    pub fn parent_of(&self, path: &RelPath) -> Result<Dir> {
        self.dir(path.parent().as_ref())
    }

    /// Like [`Root::parent_of`], with `None` where the parent is not there or not a directory.
    pub fn find_parent(&self, path: &RelPath) -> Result<Option<Dir>> {
        let Some(parent) = path.parent() else { return self.as_dir().map(Some) };
        match self.open_dir(&parent) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(refusal(e, self.shown(&parent))),
        }
    }

    /// The stamp of what is at `path`; `None` where nothing is, or where a parent is not a directory any more.
    pub fn stamp(&self, path: &RelPath) -> Result<Option<Stamp>> {
        let Some(parent) = self.find_parent(path)? else { return Ok(None) };
        parent.stamp(path.name())
    }

    /// The stamp of the directory at `path`, or of the root; `None` where there is none.
    pub fn find_dir_stamp(&self, path: Option<&RelPath>) -> Result<Option<Stamp>> {
        match path {
            Some(path) => Ok(self.stamp(path)?.filter(Stamp::is_dir)),
            None => self.as_dir()?.stamp_self().map(Some),
        }
    }

    /// Opens the regular file at `path` for reading; `None` where it is not there any more.
    pub fn find_file(&self, path: &RelPath) -> Result<Option<OwnedFd>> {
        let Some(parent) = self.find_parent(path)? else { return Ok(None) };
        match parent.try_open(path.name(), OFlags::RDONLY | OFlags::NONBLOCK, 0) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some).map_err(|e| Error::io("open", self.shown(path), e)),
        }
    }

    /// Makes `path` and its missing parents directories of mode `mode`.
    pub fn create_dirs(&self, path: &RelPath, mode: u32) -> Result<Dir> {
        let mut dir = self.as_dir()?;
        for name in path.components() {
            match dir.make_dir(name, mode) {
                Ok(()) => {}
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(other) => return Err(other),
            }
            dir = dir.dir(name)?;
        }
        Ok(dir)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Says what the kernel's answer means where it would puzzle.
fn refusal(error: Errno, path: PathBuf) -> Error {
    match error {
        Errno::XDEV => Error::Refused {
            reason: format!("another filesystem is mounted at {}", path.display()),
            hint: Some("leave it out with `--exclude`, or make a sandbox of it alone".to_owned()),
        },
        Errno::LOOP => Error::refused(format!("{} leads through a symbolic link", path.display())),
        other => Error::io("open directory", path, other),
    }
}

fn open_steps(root: BorrowedFd<'_>, path: &[u8], last: OFlags) -> rustix::io::Result<OwnedFd> {
    let Some(cut) = step_boundary(path) else {
        return patiently(|| fs::openat2(root, path, last, Mode::empty(), CONFINED));
    };
    let between = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let next = fs::openat2(root, &path[..cut], between, Mode::empty(), CONFINED)?;
    open_steps(next.as_fd(), &path[cut + 1..], last)
}

/// Asks again for a while where an overlay answers that it has no memory, or that a name is stale: it does so while another
/// lookup makes the same entry, which lasts as long as that one is kept off the processor.
fn patiently<T>(ask: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..PATIENCE {
        match ask() {
            Err(Errno::NOMEM | Errno::STALE) => std::thread::sleep(std::time::Duration::from_millis(1)),
            answer => return answer,
        }
    }
    ask()
}

/// Where to cut a path that is too long for one call.
fn step_boundary(path: &[u8]) -> Option<usize> {
    if path.len() <= STEP {
        return None;
    }
    path[..STEP].iter().rposition(|b| *b == b'/')
}

impl Dir {
    /// The path of the entry `name`, for messages only.
    pub fn shown(&self, name: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.shown.join(std::ffi::OsStr::from_bytes(name))
    }

    /// Where this directory is, for messages only.
    pub fn shown_self(&self) -> &Path {
        &self.shown
    }

    /// The descriptor itself.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The directory called `name`, not through a link, and not onto another mount.
    pub fn dir(&self, name: &[u8]) -> Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = patiently(|| fs::openat2(&self.fd, name, flags, Mode::empty(), CONFINED));
        let fd = fd.map_err(|e| refusal(e, self.shown(name)))?;
        Ok(Dir { fd, shown: self.shown(name), births: self.births })
    }

    /// Opens the entry `name`, never through a link.
    pub fn open(&self, name: &[u8], flags: OFlags, mode: u32, step: &'static str) -> Result<OwnedFd> {
        self.try_open(name, flags, mode).map_err(|e| Error::io(step, self.shown(name), e))
    }

    /// Like [`Dir::open`] with the system's bare answer.
    pub fn try_open(&self, name: &[u8], flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        patiently(|| fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode)))
    }

    /// Opens a regular file for reading. Never waits: a named pipe that was put in its place is refused.
    pub fn open_file(&self, name: &[u8]) -> Result<OwnedFd> {
        self.open(name, OFlags::RDONLY | OFlags::NONBLOCK, 0, "open")
    }

    /// The stamp of the entry `name` itself; `None` where there is none.
    pub fn stamp(&self, name: &[u8]) -> Result<Option<Stamp>> {
        match patiently(|| fs::statx(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW, Stamp::MASK)) {
            Ok(stat) => Ok(Some(Stamp::from_statx(&stat, self.births))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(e) => Err(Error::io("examine", self.shown(name), e)),
        }
    }

    /// The stamp of this directory itself.
    pub fn stamp_self(&self) -> Result<Stamp> {
        stamp_with(&self.fd, self.births).map_err(|e| Error::io("examine", &self.shown, e))
    }

    /// Makes a directory.
    pub fn make_dir(&self, name: &[u8], mode: u32) -> Result<()> {
        fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode))
            .map_err(|e| Error::io("create directory", self.shown(name), e))
    }

    /// Removes the entry `name`; it not being there is fine.
    pub fn remove(&self, name: &[u8], is_dir: bool) -> Result<()> {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("remove", self.shown(name), e)),
        }
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = patiently(|| fs::readlinkat(&self.fd, name, Vec::new()));
        target.map(|t| t.into_bytes()).map_err(|e| Error::io("read link", self.shown(name), e))
    }

    /// Flushes the directory to disk.
    pub fn sync(&self) -> Result<()> {
        fs::fsync(&self.fd).map_err(|e| Error::io("flush", &self.shown, e))
    }
}

/// The stamp of an open file.
pub fn stamp_of_fd(fd: impl AsFd) -> rustix::io::Result<Stamp> {
    let births = Births::of(&fd)?;
    stamp_with(fd, births)
}

fn stamp_with(fd: impl AsFd, births: Births) -> rustix::io::Result<Stamp> {
    fs::statx(fd, "", AtFlags::EMPTY_PATH, Stamp::MASK).map(|stat| Stamp::from_statx(&stat, births))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rel(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn an_overlay_is_asked_again_and_nobody_else() {
        let asked = std::cell::Cell::new(0);
        let answer = |busy: usize, errno| {
            asked.set(0);
            patiently(|| {
                asked.set(asked.get() + 1);
                if asked.get() > busy { Ok(()) } else { Err(errno) }
            })
        };
        assert_eq!((answer(3, Errno::NOMEM), asked.get()), (Ok(()), 4));
        assert_eq!((answer(2, Errno::STALE), asked.get()), (Ok(()), 3));
        assert_eq!((answer(1, Errno::NOENT), asked.get()), (Err(Errno::NOENT), 1));
        assert_eq!((answer(usize::MAX, Errno::NOMEM), asked.get()), (Err(Errno::NOMEM), PATIENCE + 1));
    }

    #[test]
    fn links_are_never_followed() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", temp.path().join("out")).unwrap();
        std::fs::create_dir(temp.path().join("in")).unwrap();
        std::os::unix::fs::symlink("in", temp.path().join("alias")).unwrap();
        let root = Root::open(temp.path()).unwrap();
        assert!(root.dir(Some(&rel("out"))).is_err());
        assert!(root.dir(Some(&rel("alias"))).is_err());
        assert!(root.parent_of(&rel("out/passwd")).is_err());
        assert!(root.find_parent(&rel("out/passwd")).unwrap().is_none());
        assert!(root.stamp(&rel("out/passwd")).unwrap().is_none());
        assert!(root.dir(Some(&rel("in"))).is_ok());
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_opened_in_steps() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let deep = vec!["directory"; 900].join("/");
        let made = root.create_dirs(&rel(&deep), 0o700).unwrap().stamp_self().unwrap();
        let opened = root.dir(Some(&rel(&deep))).unwrap().stamp_self().unwrap();
        assert_eq!(made.ino, opened.ino);
        crate::remove_tree(&temp.path().join("directory")).unwrap();
        assert!(!temp.path().join("directory").exists());
    }

    #[test]
    fn create_dirs_stops_at_a_file() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "x").unwrap();
        let root = Root::open(temp.path()).unwrap();
        assert!(root.create_dirs(&rel("file/below"), 0o700).is_err());
    }

    #[test]
    fn other_filesystems_are_outside() {
        let error = Root::open("/").unwrap().dir(Some(&rel("proc"))).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { reason, .. } if reason.contains("mounted at /proc")),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_path() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let error = root.dir(Some(&rel("missing/dir"))).unwrap_err();
        assert!(error.to_string().contains("missing/dir"), "{error}");
        assert!(Root::open(temp.path().join("nowhere")).unwrap_err().to_string().contains("nowhere"));
    }
}
